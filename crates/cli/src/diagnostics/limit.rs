//! Limits how many lines each log statement may write. Time is an argument.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Lines that a log statement may write at once.
const BURST: u32 = 10;
/// Time until it may write one more.
const EACH: Duration = Duration::from_secs(1);
/// While lines are suppressed without a pause, their number is reported this often.
const REMIND: Duration = Duration::from_secs(60);

/// The limits of all log statements. The program has a fixed number of them, so network input cannot grow this table.
pub struct Limiter<Place> {
    places: HashMap<Place, Bucket>,
}

impl<Place> Default for Limiter<Place> {
    fn default() -> Self {
        Self { places: HashMap::new() }
    }
}

struct Bucket {
    /// Lines that may be written now.
    lines: u32,
    /// The time to which `lines` refers.
    since: Instant,
    /// Suppressed lines that were not reported yet.
    left_out: u64,
    /// When the first and the last of them were suppressed.
    times: Option<(Instant, Instant)>,
}

/// The number of suppressed lines of a log statement.
#[derive(Debug, PartialEq, Eq)]
pub struct LeftOut<Place> {
    pub place: Place,
    pub lines: u64,
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_nanos() / EACH.as_nanos();
        let more = u32::try_from(passed).unwrap_or(u32::MAX).min(BURST);
        self.lines = self.lines.saturating_add(more).min(BURST);
        if self.lines == BURST {
            self.since = now;
        } else {
            self.since += EACH * more;
        }
        let Some(left) = self.lines.checked_sub(1) else { return false };
        self.lines = left;
        true
    }
}

impl<Place: Clone + Eq + Hash> Limiter<Place> {
    /// Whether `place` may write a line.
    pub fn admit(&mut self, place: Place, now: Instant) -> bool {
        let new = || Bucket { lines: BURST, since: now, left_out: 0, times: None };
        let bucket = self.places.entry(place).or_insert_with(new);
        let admitted = bucket.take(now);
        if !admitted {
            bucket.left_out += 1;
            bucket.times = Some((bucket.times.map_or(now, |(first, _)| first), now));
        }
        admitted
    }

    /// Takes the counts to report now: of places that have suppressed nothing for [`EACH`], or something for
    /// [`REMIND`].
    pub fn due(&mut self, now: Instant) -> Vec<LeftOut<Place>> {
        self.take(|(first, last)| {
            now.saturating_duration_since(last) >= EACH || now.saturating_duration_since(first) >= REMIND
        })
    }

    /// Takes all counts that were not reported yet.
    pub fn rest(&mut self) -> Vec<LeftOut<Place>> {
        self.take(|_| true)
    }

    /// Whether everything was reported.
    pub fn is_told(&self) -> bool {
        self.places.values().all(|bucket| bucket.left_out == 0)
    }

    fn take(&mut self, when: impl Fn((Instant, Instant)) -> bool) -> Vec<LeftOut<Place>> {
        let mut told = Vec::new();
        for (place, bucket) in &mut self.places {
            if bucket.times.is_some_and(&when) {
                bucket.times = None;
                told.push(LeftOut { place: place.clone(), lines: std::mem::take(&mut bucket.left_out) });
            }
        }
        told
    }
}

#[cfg(test)]
mod tests;
