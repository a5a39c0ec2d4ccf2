//! `bench seal`: what sealed first flights cost beside rustls alone, and a server under a flood of them.

mod ends;
mod flood;
mod io;
mod report;
#[cfg(test)]
mod tests;
mod work;

use super::{BenchError, Rounds, each, progress, timed};
use firstflight_tls::seal::OpeningBudget;
use flood::{Flood, Outcome};
use std::num::NonZeroU32;
use std::time::Duration;
use work::Work;

/// Operations of a step.
const BATCH: u64 = 16;
/// The budgets of openings a second: the default, and one that is never used up.
const BUDGETS: [(&str, NonZeroU32); 2] = [("on", OpeningBudget::PER_SECOND), ("off", NonZeroU32::MAX)];
/// Rounds of the floods.
const FLOODS: u32 = 3;

/// The rows, measured in this order in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// The digest and the seal.
    Seal,
    /// The flight is opened and checked.
    Open,
    /// The reference: rustls answers a ClientHello and sends a response before the client's Finished.
    RustlsServer,
    /// The same by an `Acceptor`.
    ClearServer,
    /// An `Acceptor` opens a flight, answers it, and sends the response.
    SealedServer,
    /// The reference: rustls makes a ClientHello, verifies the answer, and makes its Finished.
    RustlsClient,
    /// The same by a `Connector`.
    ClearClient,
    /// A `Connector` seals, verifies the answer, and makes its Finished.
    SealedClient,
}

impl Row {
    pub const ALL: [Self; 8] = [
        Self::Seal,
        Self::Open,
        Self::RustlsServer,
        Self::ClearServer,
        Self::SealedServer,
        Self::RustlsClient,
        Self::ClearClient,
        Self::SealedClient,
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
    /// The floods, with the budget's name, one outcome for each round.
    floods: Vec<(Flood, &'static str, Vec<Outcome>)>,
}

impl Results {
    /// Microseconds of `row`, one value for each round.
    fn each(&self, row: Row) -> &[f64] {
        self.rows.iter().find(|(r, _)| *r == row).map_or(&[], |(_, each)| each)
    }
}

/// Measures and returns the report.
pub fn run(options: &Rounds) -> Result<String, BenchError> {
    let results = measure(options.rounds, options.quick)?;
    Ok(report::report(&results).print(options.json))
}

fn measure(rounds: u32, quick: bool) -> Result<Results, BenchError> {
    let time = Duration::from_millis(if quick { 60 } else { 300 });
    let mut work = Work::new()?;
    let mut rows: Vec<(Row, Vec<f64>)> = Row::ALL.into_iter().map(|row| (row, Vec::new())).collect();
    // The first round is a warm-up.
    for round in 0..=rounds {
        for (row, all) in &mut rows {
            progress(&format!("round {round} of {rounds}: {row:?}"));
            let each = each(time, || work.step(*row))?;
            if round > 0 {
                all.push(each);
            }
        }
    }
    let lasts = Duration::from_millis(if quick { 500 } else { 2000 });
    let mut floods = Vec::new();
    for flood in Flood::ALL {
        floods.extend(BUDGETS.map(|(name, _)| (flood, name, Vec::new())));
    }
    for round in 1..=if quick { 1 } else { FLOODS } {
        for ((flood, name, all), (_, openings)) in floods.iter_mut().zip(BUDGETS.iter().cycle()) {
            progress(&format!("flood, round {round}: {}, budget {name}", flood.text()));
            all.push(flood::run(*flood, *openings, lasts)?);
        }
    }
    progress("");
    Ok(Results { rounds, quick, rows, floods })
}
