//! The result of a fetch.

use crate::output;
use firstflight_tls::Summary;
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

/// When a fetch began.
#[derive(Debug, Clone, Copy)]
pub struct FetchStart {
    /// When the user asked for it. For the first fetches this is the start of the command.
    pub asked: Instant,
    /// When the work on it began. `--timeout` counts from here.
    pub at: Instant,
    /// Whether something worth reporting was waited for between the two.
    pub waited: bool,
}

impl FetchStart {
    pub fn now() -> Self {
        let now = Instant::now();
        Self { asked: now, at: now, waited: false }
    }
}

/// The report of one fetch. Unknown values are `null`.
#[derive(Serialize)]
pub struct Report {
    pub url: String,
    /// The server address of the connection.
    pub remote: Option<SocketAddr>,
    pub status: Option<u16>,
    /// Where a redirect leads, as the server writes it.
    pub location: Option<String>,
    /// Bytes of the body.
    pub bytes: u64,
    /// Hash of the body, in hexadecimal, if the body is complete.
    pub sha256: Option<String>,
    pub outcome: &'static str,
    pub reason: Option<&'static str>,
    /// From the user's request to the first byte of the response.
    pub first_byte_ms: Option<f64>,
    /// From the user's request to the end of the response.
    pub total_ms: f64,
    /// The part of this time that passed before connecting, that is, until the first SYN left: the start of the command,
    /// `--verify-first`, the lookup of the name, the making of the ClientHello.
    pub waited_ms: f64,
    /// Whether the text report mentions it.
    #[serde(skip)]
    pub waited: bool,
    /// Smoothed round-trip time of the connection.
    pub rtt_ms: Option<f64>,
    pub syn_retransmits: Option<u8>,
    /// The age of the cookie in the SYN.
    pub cookie_age_s: Option<f64>,
    /// The first request was answered with 425 (Too Early). The report is about the second request, after an ordinary
    /// handshake.
    pub retried_after_425: bool,
    /// The server did not know the short label (`--short`). The report is about the request in full.
    pub retried_in_full: bool,
    #[serde(skip)]
    pub is_named: bool,
    #[serde(flatten)]
    pub summary: Summary,
    /// Whether the text report mentions the way.
    #[serde(skip)]
    pub way_told: bool,
    /// Why it failed.
    pub error: Option<String>,
}

impl Report {
    /// Whether the body is complete and the status is 200 to 299.
    pub fn succeeded(&self) -> bool {
        self.error.is_none() && self.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// Prints the report as JSON or as text, and `aside` if the body is on stdout. As text, failures are printed on stderr.
    pub fn print(&self, json: bool, aside: bool) {
        let text = match (&self.error, json) {
            (_, true) => output::json_text(self).unwrap_or_else(|error| error.to_string()),
            (Some(error), false) => return output::complain(&format_args!("{}: {error}", self.url)),
            (None, false) => self.to_string(),
        };
        if aside { output::aside(&text) } else { output::line(&text) }
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
        let mut summary = self.summary;
        summary.way = summary.way.filter(|_| self.way_told);
        let summary = summary.to_string();
        if !summary.is_empty() {
            write!(f, ", {summary}")?;
        }
        if self.retried_after_425 {
            f.write_str(", retried after 425 Too Early")?;
        }
        if self.retried_in_full {
            f.write_str(", retried in full: the short label is not known")?;
        }
        Ok(())
    }
}
