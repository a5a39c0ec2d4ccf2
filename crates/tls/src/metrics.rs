//! Counts what becomes of sealed first flights, for the recorder of the `metrics` crate (feature `metrics`).
//!
//! | name | labels | what |
//! |---|---|---|
//! | `firstflight_sealed_flights_total` | `side`, `outcome`, `reason` | side `server`: sealed flights that arrived; side `client`: contacts for which a seal was considered |
//! | `firstflight_tls_certificate_end_timestamp_seconds` | `chain` | gauge: Unix time at which the certificate of this file ends; NaN if it is not used any more |
//! | `firstflight_seal_key` | `name`, `key` | gauge: 1 for the number of the seal key that clients of this public name are told to use now, 0 for those before |
//!
//! `outcome` is the name of an [`Outcome`](crate::seal::Outcome), `reason` that of a [`Reason`](crate::seal::Reason) at the
//! client, of a [`Why`](crate::seal::Why) or a [`Rejection`](crate::Rejection) at the server.

use crate::ServerCertificates;
use crate::sealed::{SealReport, ServedSeal};
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use std::collections::BTreeSet;
use std::num::NonZeroU8;
use std::time::UNIX_EPOCH;

const FLIGHTS: &str = "firstflight_sealed_flights_total";
const SEAL_KEY: &str = "firstflight_seal_key";
const END: &str = "firstflight_tls_certificate_end_timestamp_seconds";

/// Describes the series to the recorder. Call it once.
pub fn describe() {
    describe_counter!(FLIGHTS, Unit::Count, "Sealed first flights by what became of them, and why");
    let says = "1 for the seal key that clients of a name are told to use now, 0 for those before";
    describe_gauge!(SEAL_KEY, Unit::Count, says);
    describe_gauge!(END, Unit::Seconds, "Unix time at which a certificate ends");
}

/// Clients of this public name are told to use the seal key `now`, and the one `before` no longer.
pub fn seal_key(name: &str, before: Option<NonZeroU8>, now: Option<NonZeroU8>) {
    for (key, value) in [(before, 0.0), (now, 1.0)] {
        if let Some(key) = key {
            gauge!(SEAL_KEY, "name" => name.to_owned(), "key" => key.to_string()).set(value);
        }
    }
}

/// Publishes when certificates end.
#[derive(Debug, Default)]
pub struct CertificatePublisher(BTreeSet<String>);

impl CertificatePublisher {
    /// Publishes the certificates of these servers, as they are now. Certificates without a file are left out.
    pub fn publish<'a>(&mut self, servers: impl IntoIterator<Item = &'a ServerCertificates>) {
        let mut former = std::mem::take(&mut self.0);
        for served in servers.into_iter().flat_map(ServerCertificates::now) {
            let Some(chain) = served.chain.map(|chain| chain.to_string_lossy().into_owned()) else {
                continue;
            };
            let end = served.ends.duration_since(UNIX_EPOCH).unwrap_or_default();
            gauge!(END, "chain" => chain.clone()).set(end.as_secs_f64());
            former.remove(&chain);
            self.0.insert(chain);
        }
        for chain in former {
            gauge!(END, "chain" => chain).set(f64::NAN);
        }
    }
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
