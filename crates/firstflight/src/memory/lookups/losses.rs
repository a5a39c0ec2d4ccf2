//! Counts first flights inside lookups that had no effect although the resolver answered their names.
//!
//! If the server's operator changes the DNS-path key, the zone or the front, a client with the old parameter gets no
//! error, because the front gives every name the same answer. The client sees only that the direct copy is always
//! first. That alone proves nothing: if the address is in the resolver's cache, the direct copy may win every race.
//! So the count of such losses only decides when to query the parameter again, which is cheap and harmless.
//!
//! Some first flights should have won: those for which the client had the answers to all names before the direct copy
//! can have reached the server. The front had the names even earlier. If such a flight loses, it is *overdue*; after
//! four overdue flights there is a pause. A flight that loses an open race is not counted as overdue.

use firstflight_dns::manners::backoff;
use firstflight_wire::Instant as Moment;
use firstflight_wire::asap::{DnsPathParam, Zone};
use std::collections::VecDeque;
use std::num::NonZeroU8;

/// Maximum number of parameters whose losses are counted. The least recently used one is dropped first.
const PARAMETERS: usize = 64;

/// The parameter that a first flight is sealed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    zone: Box<[u8]>,
    key_id: NonZeroU8,
    key: [u8; 32],
}

impl From<&DnsPathParam<'_>> for Parameter {
    fn from(dns_path: &DnsPathParam<'_>) -> Self {
        let zone: Zone<'_> = dns_path.zone;
        Self { zone: zone.as_bytes().into(), key_id: dns_path.key_id, key: dns_path.key }
    }
}

/// Number of overdue first flights in a row that starts a pause. Each further one doubles the pause.
const OVERDUE: u32 = 4;

/// For each parameter, the losses in a row. The most recently used parameter is last.
#[derive(Debug, Default)]
pub(crate) struct Losses(VecDeque<Row>);

#[derive(Debug)]
struct Row {
    of: Parameter,
    lost: u32,
    /// How many of them were overdue.
    overdue: u32,
    paused_until: Moment,
}

impl Losses {
    /// Returns the row of a parameter and moves it to the end.
    fn row(&mut self, of: &Parameter) -> Option<&mut Row> {
        let at = self.0.iter().position(|row| row.of == *of);
        let row = match at {
            Some(at) => self.0.remove(at)?,
            None => Row { of: of.clone(), lost: 0, overdue: 0, paused_until: Moment::ZERO },
        };
        if self.0.len() >= PARAMETERS {
            self.0.pop_front();
        }
        self.0.push_back(row);
        self.0.back_mut()
    }

    /// Takes a count of an earlier run.
    pub(crate) fn recall(&mut self, of: &Parameter, lost: u32) {
        if let Some(row) = self.row(of) {
            row.lost = lost;
        }
    }

    fn get(&self, of: &Parameter) -> Option<&Row> {
        self.0.iter().find(|row| row.of == *of)
    }

    pub(crate) fn lost(&self, of: &Parameter) -> u32 {
        self.get(of).map_or(0, |row| row.lost)
    }

    /// Whether first flights with this parameter are paused because earlier ones were overdue.
    pub(crate) fn is_paused(&self, of: &Parameter, now: Moment) -> bool {
        self.get(of).is_some_and(|row| now < row.paused_until)
    }

    /// Records that a first flight arrived.
    pub(crate) fn end(&mut self, of: &Parameter) {
        self.0.retain(|row| row.of != *of);
    }

    /// Records that a first flight was lost.
    pub(crate) fn count(&mut self, of: &Parameter, overdue: bool, now: Moment) {
        let Some(row) = self.row(of) else { return };
        row.lost = row.lost.saturating_add(1);
        if !overdue {
            return;
        }
        row.overdue = row.overdue.saturating_add(1);
        if let Some(doublings) = row.overdue.checked_sub(OVERDUE) {
            row.paused_until = now + backoff(doublings);
        }
    }
}

#[cfg(test)]
mod tests;
