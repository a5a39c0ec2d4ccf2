//! `bench front`: what a name server spends on first flights in names, beside what any name server spends on a query
//! (thesis §7.3: "on the order of 100 microseconds" more).

mod report;
#[cfg(test)]
mod tests;
mod work;

use super::{BenchError, Rounds, cpu_time, progress, repeat};
use std::time::Duration;
use work::Work;

/// Seed of all keys and first flights.
const SEED: u64 = 1;

/// What is measured in turn, in this order in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// The peer: the library reads a query for an ordinary name, and writes the answer that the front gives.
    Library,
    /// The front answers that query.
    Plain,
    /// The peer: the same of a fragment's query.
    LibraryFragment,
    /// The front answers a fragment that begins a set.
    Begins,
    /// One that others of its set were there before, and that does not make it whole.
    Waits,
    /// HPKE alone: one sealed first flight opened.
    Open,
    /// Seven fragments: answered, put together, opened, sealed again for the server.
    Relayed,
    /// Seven fragments: answered, put together, opened for the server that the front is a part of.
    Here,
    /// The server's end of a relay datagram.
    Received,
}

impl Row {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Library,
        Self::Plain,
        Self::LibraryFragment,
        Self::Begins,
        Self::Waits,
        Self::Open,
        Self::Relayed,
        Self::Here,
        Self::Received,
    ];
}

/// Everything measured.
#[derive(Debug)]
pub struct Results {
    /// Rounds.
    pub rounds: u32,
    /// Time per round was cut.
    pub quick: bool,
    /// Microseconds each, one a round.
    rows: Vec<(Row, Vec<f64>)>,
}

impl Results {
    /// Microseconds of `row`, one a round.
    pub fn each(&self, row: Row) -> &[f64] {
        self.rows.iter().find(|(r, _)| *r == row).map_or(&[], |(_, each)| each)
    }
}

/// Measures and reports.
pub fn run(options: &Rounds) -> Result<String, BenchError> {
    let time = Duration::from_millis(if options.quick { 60 } else { 300 });
    let mut work = Work::new(SEED)?;
    let mut rows: Vec<(Row, Vec<f64>)> = Row::ALL.into_iter().map(|row| (row, Vec::new())).collect();
    // The first round only warms up.
    for round in 0..=options.rounds {
        for (row, all) in &mut rows {
            progress(&format!("round {round} of {}: {row:?}", options.rounds));
            let each = each(time, || work.step(*row))?;
            if round > 0 {
                all.push(each);
            }
        }
    }
    progress("");
    let results = Results { rounds: options.rounds, quick: options.quick, rows };
    Ok(if options.json { report::json(&results) } else { report::table(&results) })
}

/// Microseconds each.
fn each(
    time: Duration,
    step: impl FnMut() -> Result<(u64, Duration), BenchError>,
) -> Result<f64, BenchError> {
    let (done, passed) = repeat(time, step)?;
    Ok(passed.as_secs_f64() * 1e6 / done as f64)
}

/// What `step` gives, and its CPU time.
fn timed<T>(step: impl FnOnce() -> T) -> Result<(T, Duration), BenchError> {
    let start = cpu_time()?;
    let done = step();
    Ok((done, cpu_time()?.saturating_sub(start)))
}
