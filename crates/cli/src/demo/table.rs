//! The demonstration's result as text.

use super::world::Visit;
use crate::output;
use std::fmt;
use std::time::Duration;

/// Longest bar, characters.
const BAR: f64 = 32.0;

/// All visits, one below the other, with a bar for the time to the first byte.
pub struct Table<'a> {
    pub rtt: Duration,
    pub loss: f64,
    pub seed: u64,
    pub visits: &'a [Visit],
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rtt, loss, seed, visits } = self;
        let rtt = output::millis(*rtt);
        writeln!(
            f,
            "One request over a path with a round-trip time of {rtt} ms, {loss} % loss (seed {seed})\n"
        )?;
        writeln!(
            f,
            "{:<28}{:<34}{:>13}{:>13}{:>12}{:>10}  outcome",
            "", "time to first byte", "first byte", "", "total", "bytes"
        )?;
        let longest = visits.iter().map(|visit| visit.first_byte_ms).fold(f64::MIN_POSITIVE, f64::max);
        for visit in *visits {
            let bar = (visit.first_byte_ms / longest * BAR).round().max(1.0) as usize;
            write!(
                f,
                "{:<28}{:<34}{:>10.1} ms{:>9.2} RTT{:>9.1} ms{:>10}  {}",
                visit.title,
                "█".repeat(bar),
                visit.first_byte_ms,
                visit.first_byte_rtts,
                visit.total_ms,
                visit.bytes,
                visit.outcome,
            )?;
            match visit.reason {
                Some(reason) => writeln!(f, " ({reason})")?,
                None if visit.mode.ends_with("replayed") => {
                    writeln!(f, ", executed {} time", visit.executed)?
                }
                None => writeln!(f)?,
            }
        }
        let accepted = |label| visits.iter().find(|visit| visit.mode == label && visit.reason.is_none());
        if let [ordinary, ..] = visits
            && let (Some(cookie), Some(certificate)) = (accepted("fast-open-next"), accepted("asap-first"))
        {
            write!(
                f,
                "\nWith the server's cookie the first byte comes after {:.2} round trips instead of {:.2}; \
                 with a certificate after {:.2}, at the first contact.",
                cookie.first_byte_rtts, ordinary.first_byte_rtts, certificate.first_byte_rtts
            )?;
        }
        let visit = |label| visits.iter().find(|visit| visit.mode == label);
        if let (Some(today), Some(inside)) = (visit("near-handshake"), accepted("near-inside")) {
            write!(
                f,
                "\nWith the lookup of its address in front: after {:.2} instead of {:.2}, inside that lookup.",
                inside.first_byte_rtts, today.first_byte_rtts
            )?;
        }
        Ok(())
    }
}
