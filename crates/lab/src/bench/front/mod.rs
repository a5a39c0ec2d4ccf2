//! `bench front`: a name server's cost for first flights in names, compared with any name server's cost for a query
//! (thesis §7.3: "on the order of 100 microseconds" more).

mod report;
#[cfg(test)]
mod tests;
pub mod work;

use super::{BenchError, Rounds, each, progress};
use std::time::Duration;
use work::Work;

/// Seed of all keys and first flights.
const SEED: u64 = 1;

/// The rows, measured in this order in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// The reference: the library parses a query for an ordinary name, and encodes the answer that the front gives.
    Library,
    /// The front answers that query.
    Plain,
    /// The reference for a fragment's query.
    LibraryFragment,
    /// The front answers the first fragment of a set.
    Begins,
    /// The front answers a fragment of a set that has earlier fragments and stays incomplete.
    Waits,
    /// Only HPKE: one sealed first flight is opened.
    Open,
    /// Seven fragments: answered, reassembled, opened, and sealed again for the server.
    Relayed,
    /// Seven fragments: answered, reassembled, and opened for the server that contains the front.
    Here,
    /// The server's work for a relay datagram.
    Received,
}

impl Row {
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

/// All measurements.
#[derive(Debug)]
pub struct Results {
    /// Number of rounds.
    pub rounds: u32,
    /// Whether the time per round was reduced.
    pub quick: bool,
    /// Microseconds for each operation, one value for each round.
    rows: Vec<(Row, Vec<f64>)>,
}

impl Results {
    /// Microseconds of `row`, one value for each round.
    pub fn each(&self, row: Row) -> &[f64] {
        self.rows.iter().find(|(r, _)| *r == row).map_or(&[], |(_, each)| each)
    }
}

/// Measures and returns the report.
pub fn run(options: &Rounds) -> Result<String, BenchError> {
    let time = Duration::from_millis(if options.quick { 60 } else { 300 });
    let mut work = Work::new(SEED)?;
    let mut rows: Vec<(Row, Vec<f64>)> = Row::ALL.into_iter().map(|row| (row, Vec::new())).collect();
    // The first round is a warm-up.
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
    Ok(report::report(&results).print(options.json))
}
