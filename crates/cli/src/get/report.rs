//! What became of a fetch.

use crate::output::{self, millis};
use firstflight::credential::Outcome;
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

/// When a fetch began.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    /// The user's request: for the first fetches the start of the command.
    pub asked: Instant,
    /// The work on it; `--timeout` counts from here.
    pub at: Instant,
    /// Between the two something was waited for that is worth a word.
    pub waited: bool,
}

impl Begun {
    /// A fetch that is asked for now.
    pub fn now() -> Self {
        let now = Instant::now();
        Self { asked: now, at: now, waited: false }
    }
}

/// How reports are printed.
#[derive(Debug, Clone, Copy)]
pub struct Print {
    /// Whether as JSON.
    pub json: bool,
    /// Whether on stderr, because the body is on stdout.
    pub aside: bool,
}

/// One fetch. What is not known is `null`.
#[derive(Serialize)]
pub struct Report {
    pub url: String,
    /// The server's address that was connected to.
    pub remote: Option<SocketAddr>,
    pub status: Option<u16>,
    /// Bytes of the body.
    pub bytes: u64,
    /// Of the body, in hexadecimal, if it came whole.
    pub sha256: Option<String>,
    pub outcome: &'static str,
    pub reason: Option<&'static str>,
    /// From the user's request to the first byte of the response.
    pub first_byte_ms: Option<f64>,
    /// From the user's request to the end of the response.
    pub total_ms: f64,
    /// What of this passed before connecting: the start of the command, `--verify-first`, the lookup of the name.
    pub waited_ms: f64,
    /// Whether people are told of it.
    #[serde(skip)]
    pub waited: bool,
    /// Smoothed round-trip time of the connection.
    pub rtt_ms: Option<f64>,
    pub syn_retransmits: Option<u8>,
    /// How old the cookie was that the SYN showed.
    pub cookie_age_s: Option<f64>,
    /// The first request was answered with 425 (Too Early); this is the second one's fate, after an ordinary
    /// handshake.
    pub retried_after_425: bool,
    /// With `--via-dns`: which way the request went.
    pub way: Option<&'static str>,
    /// Why it did not go inside the lookup.
    pub held_back: Option<&'static str>,
    /// Why it failed.
    pub error: Option<String>,
}

impl Report {
    /// One that failed before it could connect.
    pub fn failed(url: &str, begun: Begun, error: String) -> Self {
        let total_ms = millis(begun.asked.elapsed());
        Self {
            url: url.to_owned(),
            remote: None,
            status: None,
            bytes: 0,
            sha256: None,
            outcome: Outcome::Undecided.as_str(),
            reason: None,
            first_byte_ms: None,
            total_ms,
            waited_ms: total_ms,
            waited: begun.waited,
            rtt_ms: None,
            syn_retransmits: None,
            cookie_age_s: None,
            retried_after_425: false,
            way: None,
            held_back: None,
            error: Some(error),
        }
    }

    /// Whether the body came whole, with a status of 200 to 299.
    pub fn succeeded(&self) -> bool {
        self.error.is_none() && self.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// Prints it: as JSON, or for people, to whom failures are told on stderr.
    pub fn print(&self, how: Print) {
        match (&self.error, how) {
            (_, Print { json: true, aside: false }) => output::json(self),
            (_, Print { json: true, aside: true }) => match output::json_text(self) {
                Ok(text) => output::aside(&text),
                Err(error) => output::complain(&error),
            },
            (Some(error), _) => output::complain(&format_args!("{}: {error}", self.url)),
            (None, Print { aside: true, .. }) => output::aside(self),
            (None, _) => output::line(self),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.url)?;
        if let Some(status) = self.status {
            write!(f, "{status} ")?;
        }
        write!(f, "{} B, {}", self.bytes, self.outcome)?;
        if let Some(reason) = self.reason {
            write!(f, " ({reason})")?;
        }
        if let Some(first) = self.first_byte_ms {
            write!(f, ", first byte {first:.1} ms")?;
        }
        if self.waited {
            write!(f, " ({:.1} ms before connecting)", self.waited_ms)?;
        }
        write!(f, ", total {:.1} ms", self.total_ms)?;
        if let Some(rtt) = self.rtt_ms {
            write!(f, ", rtt {rtt:.1} ms")?;
        }
        match (self.way, self.held_back) {
            (Some(way), Some(why)) => write!(f, ", way {way} ({why})")?,
            (Some(way), None) => write!(f, ", way {way}")?,
            (None, _) => {}
        }
        if self.retried_after_425 {
            f.write_str(", retried after 425 Too Early")?;
        }
        Ok(())
    }
}
