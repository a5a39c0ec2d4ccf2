//! `bench certificates`: what ASAP's signatures cost a verifier, a client and a server, compared with RSA-1024 in the
//! same run (thesis §7.3).

mod openssl;
mod report;
pub mod server;
pub mod signatures;
#[cfg(test)]
mod tests;

use super::{BenchError, Rounds, cpu_time, progress, repeat};
use openssl::Rsa;
use server::{Accepting, Credential};
use signatures::Signatures;
use std::time::Duration;

/// Number of requests that are verified together, in rows with batches.
pub const BATCH: usize = firstflight_credential::asap::BATCH;
/// Seed of all keys and requests.
const SEED: u64 = 1;

/// The rows, measured in this order in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// A verifier's work: check the key, check that its holder asks (1 signature verified), certify (1 made).
    Issue,
    /// A client signs a request.
    Sign,
    /// The signatures of requests are verified, this many requests together.
    Verify(VerifiedBefore, usize),
    /// A request passes through the whole stack: SYN in, SYN-ACK and early data out, in bursts of this many.
    Accept(Credential, usize),
}

/// Whether the server has verified the certificate before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifiedBefore {
    /// One signature remains to be verified.
    Cached,
    /// Two signatures have to be verified.
    New,
}

impl Row {
    pub const ALL: [Self; 12] = [
        Self::Issue,
        Self::Sign,
        Self::Verify(VerifiedBefore::Cached, 1),
        Self::Verify(VerifiedBefore::Cached, BATCH),
        Self::Verify(VerifiedBefore::New, 1),
        Self::Verify(VerifiedBefore::New, BATCH),
        Self::Accept(Credential::Certificate(VerifiedBefore::Cached), 1),
        Self::Accept(Credential::Certificate(VerifiedBefore::Cached), BATCH),
        Self::Accept(Credential::Certificate(VerifiedBefore::New), 1),
        Self::Accept(Credential::Certificate(VerifiedBefore::New), BATCH),
        Self::Accept(Credential::Cookie, 1),
        Self::Accept(Credential::Cookie, BATCH),
    ];
}

/// All measurements.
#[derive(Debug)]
pub struct Results {
    /// Number of rounds.
    pub rounds: u32,
    /// Whether the time per round was reduced.
    pub quick: bool,
    /// Operations per second, one value for each round.
    rows: Vec<(Row, Vec<f64>)>,
    /// The results of openssl for RSA-1024, one value for each round; or why there are none.
    pub rsa: Result<Rsa, String>,
}

impl Results {
    /// Operations per second of `row`, one value for each round.
    pub fn rates(&self, row: Row) -> &[f64] {
        self.rows.iter().find(|(r, _)| *r == row).map_or(&[], |(_, rates)| rates)
    }
}

/// Measures and returns the report.
pub fn run(options: &Rounds) -> Result<String, BenchError> {
    let results = measure_all(options)?;
    Ok(report::report(&results).print(options.json))
}

fn measure_all(options: &Rounds) -> Result<Results, BenchError> {
    let time = Duration::from_millis(if options.quick { 60 } else { 300 });
    let mut signatures = Signatures::new(SEED)?;
    let mut accepting = Accepting::new(SEED)?;
    let mut rsa = openssl::find();
    let mut rows: Vec<(Row, Vec<f64>)> = Row::ALL.into_iter().map(|row| (row, Vec::new())).collect();
    // The first round is a warm-up.
    for round in 0..=options.rounds {
        for (row, rates) in &mut rows {
            progress(&format!("round {round} of {}: {row:?}", options.rounds));
            let rate = match *row {
                Row::Accept(credential, burst) => rate(time, || accepting.round(credential, burst))?,
                row => rate(time, || timed(|| signatures.step(row)))?,
            };
            if round > 0 {
                rates.push(rate);
            }
        }
        if let (Ok(found), 1..) = (&mut rsa, round) {
            progress(&format!("round {round} of {}: openssl", options.rounds));
            if let Err(why) = found.measure() {
                rsa = Err(why);
            }
        }
    }
    progress("");
    Ok(Results { rounds: options.rounds, quick: options.quick, rows, rsa })
}

/// Operations per second.
fn rate(
    time: Duration,
    step: impl FnMut() -> Result<(u64, Duration), BenchError>,
) -> Result<f64, BenchError> {
    let (done, passed) = repeat(time, step)?;
    Ok(done as f64 / passed.as_secs_f64())
}

/// The CPU time of a step.
fn timed(step: impl FnOnce() -> Result<u64, BenchError>) -> Result<(u64, Duration), BenchError> {
    let start = cpu_time()?;
    let done = step()?;
    Ok((done, cpu_time()?.saturating_sub(start)))
}
