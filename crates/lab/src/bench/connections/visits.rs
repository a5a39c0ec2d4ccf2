//! The client's part: visits in a closed loop, and connections that stay open.

use super::ends::{Client, FlightEnd, OpenConnection, Visit};
use crate::figure::Figure;
use serde_json::{Value, json};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// A connection without a response after this time is an error.
const PATIENCE: Duration = Duration::from_secs(30);
/// Connections that are opened at a time, of those that stay open.
const OPENING: usize = 64;

/// What became of visits.
#[derive(Debug)]
pub struct VisitResults {
    took: Vec<Duration>,
    early: u64,
    wall: Duration,
}

impl VisitResults {
    /// Adds the figures to an answer.
    pub fn tell(&self, answer: &mut Value) {
        let times = Figure::new(self.took.iter().map(|took| took.as_secs_f64() * 1e6));
        let figures = [
            ("connections", json!(self.took.len())),
            ("early", json!(self.early)),
            ("wall_us", json!(self.wall.as_secs_f64() * 1e6)),
            ("p50_us", json!(times.quantile(0.5))),
            ("p99_us", json!(times.quantile(0.99))),
        ];
        for (name, value) in figures {
            answer[name] = value;
        }
    }
}

/// Visits with `in_flight` at a time, for at least `time` and until at least `least` are done.
pub async fn run(
    client: &Arc<dyn Client>,
    in_flight: usize,
    time: Duration,
    least: u64,
) -> io::Result<VisitResults> {
    let begun = Arc::new(AtomicU64::new(0));
    let since = Instant::now();
    let mut tasks = JoinSet::new();
    for slot in 0..in_flight {
        let (client, begun) = (Arc::clone(client), Arc::clone(&begun));
        tasks.spawn(async move {
            let (mut took, mut early) = (Vec::new(), 0);
            while since.elapsed() < time || begun.load(Ordering::Relaxed) < least {
                begun.fetch_add(1, Ordering::Relaxed);
                let visit = patient(client.visit(slot, None)).await?;
                took.push(visit.took);
                early += u64::from(visit.fate == FlightEnd::Accepted);
            }
            io::Result::Ok((took, early))
        });
    }
    let mut done = VisitResults { took: Vec::new(), early: 0, wall: Duration::ZERO };
    while let Some(task) = tasks.join_next().await {
        let (took, early) = task.map_err(io::Error::other)??;
        done.took.extend(took);
        done.early += early;
    }
    done.wall = since.elapsed();
    Ok(done)
}

async fn patient(visit: impl Future<Output = io::Result<Visit>>) -> io::Result<Visit> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no response within 30 s");
    tokio::time::timeout(PATIENCE, visit).await.map_err(late)?
}

/// Opens the connections with these numbers, and keeps them.
pub async fn stay(
    client: &Arc<dyn Client>,
    numbers: Range<usize>,
    held: &mut Vec<OpenConnection>,
) -> io::Result<()> {
    let next = Arc::new(AtomicU64::new(numbers.start as u64));
    let mut tasks = JoinSet::new();
    for slot in 0..OPENING {
        let (client, next, end) = (Arc::clone(client), Arc::clone(&next), numbers.end as u64);
        tasks.spawn(async move {
            let mut mine = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return io::Result::Ok(mine);
                }
                mine.extend(patient(client.visit(slot, Some(number as usize))).await?.held);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        held.extend(task.map_err(io::Error::other)??);
    }
    Ok(())
}
