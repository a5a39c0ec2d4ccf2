//! The client's part of `--load`: connects at a constant rate, whatever becomes of the earlier ones.

use super::ends::{Client, FlightEnd};
use crate::figure::Figure;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Connects under way at a time. Further ones are not begun, which the answer counts.
const MOST: usize = 50_000;
/// The shortest sleep of tokio. Connects begin in bursts of this length.
const TICK: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
struct Tally {
    begun: u64,
    skipped: u64,
    accepted: u64,
    refused: u64,
    lost: u64,
    kept_back: u64,
    failed: u64,
    reasons: BTreeMap<&'static str, u64>,
    took: Vec<f64>,
}

impl Tally {
    fn count(&mut self, result: Option<(FlightEnd, Duration)>) {
        let Some((fate, took)) = result else {
            self.failed += 1;
            return;
        };
        self.took.push(took.as_secs_f64() * 1e6);
        let (count, reason) = match fate {
            FlightEnd::Accepted => (&mut self.accepted, None),
            FlightEnd::Refused(reason) => (&mut self.refused, Some(reason)),
            FlightEnd::Lost(reason) => (&mut self.lost, Some(reason)),
            FlightEnd::KeptBack(reason) => (&mut self.kept_back, Some(reason)),
        };
        *count += 1;
        if let Some(reason) = reason {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }
}

/// Begins `per_s` connects a second for `time`, and waits until each is over, for at most `patience`.
pub async fn run(
    client: &Arc<dyn Client>,
    per_s: u64,
    time: Duration,
    patience: Duration,
) -> io::Result<Value> {
    let mut tally = Tally::default();
    let mut under_way = JoinSet::new();
    let since = Instant::now();
    loop {
        let passed = since.elapsed().min(time);
        let due = (passed.as_secs_f64() * per_s as f64) as u64;
        while tally.begun + tally.skipped < due {
            if under_way.len() >= MOST {
                tally.skipped += 1;
                continue;
            }
            let client = Arc::clone(client);
            under_way.spawn(async move {
                let visit = tokio::time::timeout(patience, client.visit(0, None)).await;
                visit.ok()?.ok().map(|visit| (visit.fate, visit.took))
            });
            tally.begun += 1;
        }
        while let Some(over) = under_way.try_join_next() {
            tally.count(over.map_err(io::Error::other)?);
        }
        if passed >= time {
            break;
        }
        tokio::time::sleep(TICK).await;
    }
    let wall = since.elapsed();
    while let Some(over) = under_way.join_next().await {
        tally.count(over.map_err(io::Error::other)?);
    }
    let times = Figure::new(tally.took.iter().copied());
    Ok(json!({
        "begun": tally.begun, "skipped": tally.skipped, "wall_us": wall.as_secs_f64() * 1e6,
        "accepted": tally.accepted, "refused": tally.refused, "lost": tally.lost, "kept_back": tally.kept_back,
        "failed": tally.failed, "reasons": tally.reasons,
        "p50_us": finite(times.quantile(0.5)), "p99_us": finite(times.quantile(0.99)),
    }))
}

/// `null` if nothing was measured.
fn finite(value: f64) -> Option<f64> {
    Some(value).filter(|value| value.is_finite())
}
