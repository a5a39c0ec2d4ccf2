//! Counts what becomes of sealed first flights, for the recorder of the `metrics` crate (feature `metrics`).
//!
//! | name | labels | what |
//! |---|---|---|
//! | `firstflight_sealed_flights_total` | `side`, `outcome`, `reason` | side `server`: sealed flights that arrived; side `client`: contacts for which a seal was considered |
//!
//! `outcome` is the name of an [`Outcome`](crate::seal::Outcome), `reason` that of a [`Reason`](crate::seal::Reason) at the
//! client, of a [`Why`](crate::seal::Why) or a [`Rejection`](crate::Rejection) at the server.

use crate::sealed::{SealReport, ServedSeal};
use metrics::{Unit, counter, describe_counter};

const FLIGHTS: &str = "firstflight_sealed_flights_total";

/// Describes the series to the recorder. Call it once.
pub fn describe() {
    describe_counter!(FLIGHTS, Unit::Count, "Sealed first flights by what became of them, and why");
}

pub(crate) fn served(seal: ServedSeal) {
    count("server", seal.outcome.name(), seal.reason);
}

pub(crate) fn contacted(seal: SealReport) {
    count("client", seal.outcome.name(), seal.reason.map_or("", |reason| reason.name()));
}

fn count(side: &'static str, outcome: &'static str, reason: &'static str) {
    counter!(FLIGHTS, "side" => side, "outcome" => outcome, "reason" => reason).increment(1);
}
