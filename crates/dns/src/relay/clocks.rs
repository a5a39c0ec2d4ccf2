//! Fronts whose clock is too far from the server's.
//!
//! A front whose clock is wrong loses everything that it sends, and gets no answer. So the server warns of
//! it. Only a genuine datagram that is newer than all known ones of its front may cause a warning. Otherwise
//! a copy of an old datagram could cause one.

use super::head::Head;
use super::{Boot, RELAY_WINDOW_MS};
use core::time::Duration;
use std::collections::BTreeMap;

/// The shortest time between two datagrams with a wrong time that are opened, in milliseconds.
const CHECK_EVERY_MS: u64 = 1_000;
/// A clock that stays wrong is reported again after this time, in milliseconds.
const REMIND_MS: u64 = 600_000;
/// A clock is right again when it is no farther than this from the server's, in milliseconds. It is less than
/// [`RELAY_WINDOW_MS`], so that a clock near the limit is not reported again and again.
const RIGHT_MS: u64 = RELAY_WINDOW_MS / 2;
/// The most fronts that are remembered.
const MAX_FRONTS: usize = 1024;

/// A front's clock in comparison with the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReport {
    /// The number of the relay key.
    pub key_id: u8,
    /// The front, among those that have the key.
    pub front: u16,
    /// How the clocks differ.
    pub clock: FrontClock,
}

/// How a front's clock differs from the server's. Either of the two may be the wrong one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrontClock {
    /// The front's clock is ahead by this many milliseconds, so its datagrams are dropped.
    Ahead(u64),
    /// The front's clock is behind by this many milliseconds, so its datagrams are dropped.
    Behind(u64),
    /// They agree again.
    Right,
}

impl FrontClock {
    /// By how many seconds the front's clock is wrong, and `ahead of` or `behind`. `None` if the clocks
    /// agree.
    #[must_use]
    pub fn apart(self) -> Option<(f64, &'static str)> {
        let seconds = |ms| Duration::from_millis(ms).as_secs_f64();
        match self {
            Self::Ahead(ms) => Some((seconds(ms), "ahead of")),
            Self::Behind(ms) => Some((seconds(ms), "behind")),
            Self::Right => None,
        }
    }
}

/// The record of one front's clock.
#[derive(Debug)]
struct ClockRecord {
    /// The newest genuine datagram whose time was wrong.
    newest: (Boot, u64),
    /// The server's time of the last report that it is wrong. `None` after it was right again.
    reported: Option<u64>,
}

/// The clocks of fronts, by key id and front id.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    fronts: BTreeMap<(u8, u16), ClockRecord>,
    /// The server's time of the last check.
    checked: Option<u64>,
    report: Option<ClockReport>,
}

/// Whether `interval` has passed. If the clock was set back by more, that counts too.
fn passed(since: Option<u64>, now: u64, interval: u64) -> bool {
    since.is_none_or(|since| now.abs_diff(since) >= interval)
}

impl Clocks {
    /// Whether to open a datagram with a wrong time at the server's time `now`. If so, it counts as opened.
    pub(super) fn check(&mut self, place: (u8, u16), head: &Head, now: u64) -> bool {
        let worth = match self.fronts.get(&place) {
            Some(known) => {
                (head.boot, head.sequence) > known.newest && passed(known.reported, now, REMIND_MS)
            }
            None => self.fronts.len() < MAX_FRONTS,
        };
        let worth = worth && passed(self.checked, now, CHECK_EVERY_MS);
        if worth {
            self.checked = Some(now);
        }
        worth
    }

    /// Notes a genuine datagram with a wrong time.
    pub(super) fn note_wrong(&mut self, place: (u8, u16), head: &Head, now: u64) {
        let newest = (head.boot, head.sequence);
        self.fronts.insert(place, ClockRecord { newest, reported: Some(now) });
        let apart = head.time.abs_diff(now);
        let clock = if head.time > now { FrontClock::Ahead(apart) } else { FrontClock::Behind(apart) };
        self.report = Some(ClockReport { key_id: place.0, front: place.1, clock });
    }

    /// Notes a datagram that was accepted.
    pub(super) fn note_taken(&mut self, place: (u8, u16), head: &Head, now: u64) {
        if head.time.abs_diff(now) <= RIGHT_MS
            && let Some(known) = self.fronts.get_mut(&place)
            && known.reported.take().is_some()
        {
            self.report = Some(ClockReport { key_id: place.0, front: place.1, clock: FrontClock::Right });
        }
    }

    /// Forgets all fronts with this key.
    pub(super) fn remove_key(&mut self, key_id: u8) {
        self.fronts.retain(|(of, _), _| *of != key_id);
    }

    pub(super) const fn report(&mut self) -> Option<ClockReport> {
        self.report.take()
    }
}
