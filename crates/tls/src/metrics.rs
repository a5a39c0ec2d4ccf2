//! Counts what becomes of sealed first flights, for the recorder of the `metrics` crate (feature `metrics`).
//!
//! | name | labels | what |
//! |---|---|---|
//! | `firstflight_sealed_flights_total` | `side`, `outcome`, `reason` | side `server`: sealed flights that arrived; side `client`: contacts for which a seal was considered |
//! | `firstflight_tls_certificate_end_timestamp_seconds` | `chain` | gauge: Unix time at which the certificate of this file ends; NaN if it is not used any more |
//!
//! `outcome` is the name of an [`Outcome`](crate::seal::Outcome), `reason` that of a [`Reason`](crate::seal::Reason) at the
//! client, of a [`Why`](crate::seal::Why) or a [`Rejection`](crate::Rejection) at the server.

use crate::ServerCertificates;
use crate::sealed::{SealReport, ServedSeal};
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use std::collections::BTreeSet;
use std::time::UNIX_EPOCH;

const FLIGHTS: &str = "firstflight_sealed_flights_total";
const END: &str = "firstflight_tls_certificate_end_timestamp_seconds";

/// Describes the series to the recorder. Call it once.
pub fn describe() {
    describe_counter!(FLIGHTS, Unit::Count, "Sealed first flights by what became of them, and why");
    describe_gauge!(END, Unit::Seconds, "Unix time at which a certificate ends");
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
