//! Ways to begin that the two papers name, beside what came later, in one table: how fast, how safe, how private.

mod engine;
mod formulas;
mod inside;
mod memory;
mod quic;
mod report;
mod rows;
mod tao;
mod tcpct;
#[cfg(test)]
mod tests;
mod tls;

use crate::bench::progress;
use crate::pages;
use clap::Args;
use std::time::Duration;

/// Compare ways to begin that the papers name, and QUIC and TLS 1.3: round trips, amplification, memory, replays, privacy, moves.
///
/// Rows marked `run` were run in virtual time, with this project's engine, quinn, rustls, or a small model. Rows marked
/// `formula` were computed; the formula is printed. A row marked `assertion` says what a paper says. Everything follows from the seed.
#[derive(Debug, Args)]
pub struct Compare {
    /// Chooses the numbers of stacks and connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Round-trip time of all rows, up to 500 ms; a number without a unit is milliseconds
    #[arg(long, value_name = "TIME", default_value = "100", value_parser = rtt)]
    rtt: u64,
    /// Share of the connections for which PRECONNECT has opened one before
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    hits: f64,
    /// Requests that share one connection in the row like SPDY
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    requests: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What all rows depend on.
#[derive(Debug, Clone, Copy)]
pub struct Base {
    /// Numbers of stacks and connections.
    pub seed: u64,
    /// Round-trip time.
    pub rtt: Duration,
}

impl Base {
    /// `time` in round trips.
    pub fn trips(&self, time: Duration) -> f64 {
        time.div_duration_f64(self.rtt)
    }
}

impl Compare {
    /// What all rows depend on.
    pub fn base(&self) -> Base {
        Base { seed: self.seed, rtt: Duration::from_millis(self.rtt) }
    }
}

fn rtt(text: &str) -> Result<u64, &'static str> {
    pages::rtt(text)
        .ok()
        .filter(|ms| *ms <= 500)
        .ok_or("write whole milliseconds from 1ms to 500ms, as 40 or 40ms")
}

/// Bytes of a response: more than any initial window.
pub const RESPONSE: usize = 100_000;
/// Bytes of a request.
pub const REQUEST: [u8; 100] = [b'q'; 100];
/// How long a spoofed packet is watched.
pub const WATCHED: Duration = Duration::from_secs(300);
/// How long a visit may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Where a row's numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Run in virtual time, by this.
    Run(&'static str),
    /// Computed by this formula.
    Formula(&'static str),
    /// Stated by a paper without a design, so there is nothing to run or to compute from.
    Assertion(&'static str),
}

/// The numbers of a row. Where one is `None`, [`Words`] says why.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Numbers {
    /// Round trips to the first byte of the response, at first and at later contact.
    pub first: Option<f64>,
    pub later: Option<f64>,
    /// IP bytes that a victim gets for each byte of the first flight in its name, from an attacker without the victim's
    /// credential, and from one with it.
    pub blind: Option<f64>,
    pub stolen: Option<f64>,
    /// Bytes that the server keeps for each such first flight without a credential.
    pub memory: Option<f64>,
    /// How often the server executes a copy of a first flight, after the connection has ended.
    pub replayed: Option<u32>,
    /// Round trips to the first byte of a new connection after the client has moved to another network.
    pub moved: Option<f64>,
}

/// What stands in the place of numbers that a row does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Words {
    pub blind: &'static str,
    pub stolen: &'static str,
    pub memory: &'static str,
    pub copies: &'static str,
    pub moved: &'static str,
}

impl Words {
    /// There is no credential to steal.
    pub const NONE: Self = Self { stolen: "none", ..Self::EMPTY };
    const EMPTY: Self = Self { blind: "", stolen: "", memory: "", copies: "", moved: "" };

    /// What becomes of a spoofed first flight is the same as with another row.
    pub const fn spoofed(word: &'static str) -> Self {
        Self { blind: word, stolen: word, memory: word, ..Self::EMPTY }
    }
}

/// One line of the table.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    pub source: Source,
    pub numbers: Numbers,
    pub words: Words,
    /// What an observer of several contacts can link.
    pub links: &'static str,
    /// What a move costs beside `moved`.
    pub moving: &'static str,
    /// What the model leaves out, or what the numbers mean.
    pub leaves_out: &'static str,
}

/// A model did not do what it should.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct ModelFailed(pub &'static str, pub String);

/// Runs everything. Returns the text to print.
pub fn run(options: &Compare) -> Result<String, ModelFailed> {
    if !(0.0..=1.0).contains(&options.hits) {
        return Err(ModelFailed("--hits", "a share from 0 to 1".into()));
    }
    let mut all = Vec::new();
    for make in rows::MAKE {
        let row = make(options)?;
        progress(row.name);
        all.push(row);
    }
    progress("");
    Ok(report::report(&all, options).print(options.json))
}
