//! `bench certificates`: what ASAP's signatures cost a verifier, a client and a server, against RSA-1024 in the
//! same run (thesis §7.3).

mod openssl;
mod report;
mod server;
pub mod signatures;
#[cfg(test)]
mod tests;

use super::{BenchError, Rounds, cpu_time, progress, repeat};
use openssl::Rsa;
use server::{Accepting, Credential};
use signatures::Signatures;
use std::time::Duration;

/// Requests verified together, where it is not one by one.
pub const BATCH: usize = firstflight_credential::asap::BATCH;
/// Seed of all keys and requests.
const SEED: u64 = 1;

/// What is measured in turn, in this order in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// A verifier: is the key sound, does its holder ask (1 signature verified), certify (1 made).
    Issue,
    /// A client: a request signed.
    Sign,
    /// A request's signatures verified; so many together.
    Verify(Seen, usize),
    /// A request through the whole stack: SYN in, SYN-ACK and early data out; bursts of so many.
    Accept(Credential, usize),
}

/// Whether the server has verified the certificate before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// One signature is left.
    Cached,
    /// Two signatures.
    New,
}

impl Row {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Issue,
        Self::Sign,
        Self::Verify(Seen::Cached, 1),
        Self::Verify(Seen::Cached, BATCH),
        Self::Verify(Seen::New, 1),
        Self::Verify(Seen::New, BATCH),
        Self::Accept(Credential::Certificate(Seen::Cached), 1),
        Self::Accept(Credential::Certificate(Seen::Cached), BATCH),
        Self::Accept(Credential::Certificate(Seen::New), 1),
        Self::Accept(Credential::Certificate(Seen::New), BATCH),
        Self::Accept(Credential::Cookie, 1),
        Self::Accept(Credential::Cookie, BATCH),
    ];
}

/// Everything measured.
#[derive(Debug)]
pub struct Results {
    /// Rounds.
    pub rounds: u32,
    /// Time per round was cut.
    pub quick: bool,
    /// Operations a second, one a round.
    rows: Vec<(Row, Vec<f64>)>,
    /// What openssl says of RSA-1024, one a round; or why it says nothing.
    pub rsa: Result<Rsa, String>,
}

impl Results {
    /// Operations a second of `row`, one a round.
    pub fn rates(&self, row: Row) -> &[f64] {
        self.rows.iter().find(|(r, _)| *r == row).map_or(&[], |(_, rates)| rates)
    }
}

/// Measures and reports.
pub fn run(options: &Rounds) -> Result<String, BenchError> {
    let results = measure_all(options)?;
    Ok(if options.json { report::json(&results) } else { report::table(&results) })
}

fn measure_all(options: &Rounds) -> Result<Results, BenchError> {
    let time = Duration::from_millis(if options.quick { 60 } else { 300 });
    let mut signatures = Signatures::new(SEED)?;
    let mut accepting = Accepting::new(SEED)?;
    let mut rsa = openssl::find();
    let mut rows: Vec<(Row, Vec<f64>)> = Row::ALL.into_iter().map(|row| (row, Vec::new())).collect();
    // The first round only warms up.
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

/// Operations a second.
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
