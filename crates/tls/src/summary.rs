//! How a connection came about, for logs.

use crate::maybe_tls::MaybeTlsStream;
use firstflight::Stream;
use std::fmt;

/// How a connection came about, beside the outcome of its first flight: by which way, after a race, and how TLS and the seal
/// went. As text it is a part of a line: `way udp, TLS resumed, early data accepted`. Serialized (feature `serde`) it has a field
/// for each of these, `null` where there is nothing to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Summary {
    /// Which way the request took: `kernel`, `udp` or `ip`; with requests inside lookups `lookup`, `direct` or `ordinary`. `None`
    /// before there is a connection.
    pub way: Option<&'static str>,
    /// Why the request did not travel inside the lookup.
    pub held_back: Option<&'static str>,
    /// The connection won a race against an attempt with Fast Open, or in UDP.
    pub raced: bool,
    /// Whether the request left with both attempts of the race.
    pub data_left_twice: bool,
    /// How the handshake of TLS went: `full`, `resumed`, or `retried` after a HelloRetryRequest. `None` without TLS.
    pub tls: Option<&'static str>,
    /// What became of TLS early data: `none`, `accepted` or `refused`.
    pub early_data: Option<&'static str>,
    /// What became of the seal. `None` if none was considered.
    pub seal: Option<&'static str>,
    /// Why.
    pub seal_reason: Option<&'static str>,
}

impl MaybeTlsStream {
    /// How the connection came about.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let (stream, handshake, seal) = (self.stream(), self.handshake(), self.seal_report());
        let race = stream.and_then(Stream::race);
        let way = stream.map(|stream| stream.way().as_str());
        #[cfg(feature = "dns")]
        let (way, held_back) = match stream.and_then(Stream::inside_lookup) {
            Some(inside) => (
                Some(inside.way.as_str()),
                inside.held_back.as_ref().map(firstflight::dns_path::HeldBack::as_str),
            ),
            None => (way, None),
        };
        #[cfg(not(feature = "dns"))]
        let held_back = None;
        Summary {
            way,
            held_back,
            raced: race.is_some(),
            data_left_twice: race.is_some_and(|race| race.data_left_twice()),
            tls: handshake.map(|seen| seen.as_str()),
            early_data: handshake.map(|seen| seen.early.as_str()),
            seal: seal.map(|seal| seal.outcome.name()),
            seal_reason: seal.and_then(|seal| seal.reason).map(|reason| reason.name()),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let because = |what: String, why: Option<&str>| match why {
            Some(why) => format!("{what} ({why})"),
            None => what,
        };
        let way = self.way.map(|way| because(format!("way {way}"), self.held_back));
        let tls = self.tls.map(|tls| format!("TLS {tls}"));
        let early = self.early_data.map(|early| format!("early data {early}"));
        let seal = self.seal.map(|seal| because(format!("seal {seal}"), self.seal_reason));
        let twice = self.data_left_twice.then_some("the request left twice");
        let raced = self.raced.then(|| because("raced".to_owned(), twice));
        let parts: Vec<_> = [way, tls, early, seal, raced].into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_a_part_of_a_line() {
        assert_eq!(Summary::default().to_string(), "");
        let mut summary = Summary { way: Some("ordinary"), held_back: Some("refused"), ..Summary::default() };
        assert_eq!(summary.to_string(), "way ordinary (refused)");
        summary =
            Summary { way: Some("udp"), tls: Some("full"), early_data: Some("none"), ..Summary::default() };
        (summary.seal, summary.raced) = (Some("one-round-trip"), true);
        assert_eq!(summary.to_string(), "way udp, TLS full, early data none, seal one-round-trip, raced");
        (summary.seal_reason, summary.data_left_twice) = (Some("no-record"), true);
        assert!(
            summary.to_string().ends_with("seal one-round-trip (no-record), raced (the request left twice)")
        );
    }
}
