//! What is found, as fields for programs: `serde` writes the JSON objects of `firstflight explain --json`. The names of the
//! fields, and the labels in them, are stable; there may be more of both in another release.

use data_encoding::HEXLOWER;
use firstflight_wire::asap;
use firstflight_wire::asap::Hint;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// The first flight of one connection, and what came of it. Unknown values are `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Connection {
    /// When the first packet was captured, milliseconds since 1970 UTC.
    pub start_unix_ms: f64,
    /// The client's address and TCP port.
    pub client: SocketAddr,
    /// The server's address and TCP port.
    pub server: SocketAddr,
    /// The UDP ports, if the connection is in UDP.
    pub udp: Option<UdpPorts>,
    /// `accepted`, `handshake` or `unknown`: [`Outcome::as_str`](crate::Outcome::as_str).
    pub outcome: &'static str,
    /// Why the first flight was not accepted, or what was unusual: the label of a [`Reason`](crate::Reason).
    pub reason: Option<&'static str>,
    /// The SYN's Fast Open option (RFC 7413): `none`, `request`, `cookie` or `illegal`.
    pub option: Option<&'static str>,
    /// The option's kind: `34` or `254/0xF989`.
    pub form: Option<&'static str>,
    /// The SYN's cookie, in hexadecimal.
    pub cookie: Option<String>,
    /// The SYN-ACK's cookie, in hexadecimal.
    pub granted: Option<String>,
    /// Bytes of data in the SYN, without the credential block.
    pub syn_bytes: Option<u32>,
    /// How many of them the SYN-ACK acknowledged.
    pub acked_bytes: Option<u32>,
    /// How often the SYN was repeated.
    pub syn_retransmits: u32,
    /// The certificate fields of SYN and SYN-ACK, if there are any.
    pub asap: Option<Box<Asap>>,
    /// The sealed flight at the beginning of the client's stream.
    pub seal: Option<Sealed>,
    /// The round-trip time of the handshake as both ends see it, milliseconds.
    pub rtt_ms: Option<f64>,
    /// From the first SYN to the server's first byte, as seen by the client, milliseconds.
    pub first_byte_ms: Option<f64>,
    /// `first_byte_ms` in round trips of the handshake.
    pub first_byte_rtts: Option<f64>,
    /// Further observations, in the order in which they happened.
    pub notes: Vec<Note>,
}

/// The UDP ports of a connection in UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UdpPorts {
    /// The client's.
    pub client_port: u16,
    /// The server's.
    pub server_port: u16,
}

/// The certificate fields of a connection (ASAP), with the names that [`Object::record`](crate::asap::Object::record) uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Asap {
    /// What the SYN has: `probe`, `block` or `unreadable`.
    pub offered: Option<&'static str>,
    /// Bytes of the credential block, padding included. [`Connection::syn_bytes`] counts the data.
    pub block_bytes: Option<u32>,
    /// The certificate in the block.
    pub certificate: Option<Certificate>,
    /// First two bytes of the request's id, in hexadecimal.
    pub tag: Option<String>,
    /// The server's reply.
    pub reply: Option<Reply>,
    /// Whether the reply is for this request.
    pub tag_matches: Option<bool>,
}

/// The certificate that a SYN shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Certificate {
    /// The id of the verifier, in hexadecimal.
    pub verifier: String,
    /// When it begins, Unix seconds.
    pub valid_from: u32,
    /// How long it lasts, seconds.
    pub duration: u32,
    /// Its age when the request was made, milliseconds. Negative if the request claims to be older.
    pub age_ms: i64,
    /// From how many places the verifier saw the client.
    pub vantage_points: u8,
    /// Whether the verifier challenged the client's address.
    pub challenged: bool,
    /// Whether it renews another one.
    pub renewed: bool,
}

/// A sealed first flight (`docs/spec/sealed.md`), as far as a capture shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Sealed {
    /// The number of the key that it is sealed to.
    pub key_id: u8,
    /// Bytes of the whole flight.
    pub bytes: u32,
    /// How the server answered: `tls`, `reject`, `other` or `none`.
    pub answer: &'static str,
    /// What became of it, if that can be told, with the labels of `firstflight_seal::Outcome`.
    pub outcome: Option<&'static str>,
}

/// An observation about a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Note {
    /// A label in kebab-case.
    pub note: &'static str,
    /// A clause for people.
    pub text: String,
}

/// ASAP's reply in a SYN-ACK (`docs/spec/asap.md`, section 2.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Reply {
    /// The proof of a server that was never contacted, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// The client's address as the server sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sees: Option<Ipv4Addr>,
    /// The server's clock, Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_time: Option<u32>,
    /// The status as a number.
    pub status: u8,
    /// The label of the status.
    pub status_name: &'static str,
    /// The first two bytes of the request's id, in hexadecimal.
    pub tag: String,
    /// The id of a verifier that the server trusts, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusts: Option<String>,
}

impl From<&asap::Reply> for Reply {
    fn from(reply: &asap::Reply) -> Self {
        let asap::Reply { status, tag, hint } = reply;
        let mut record = Self {
            proof: None,
            sees: None,
            server_time: None,
            status: *status as u8,
            status_name: status.as_str(),
            tag: HEXLOWER.encode(tag),
            trusts: None,
        };
        if let Hint::Time(at) | Hint::Trusts(at, _) | Hint::Sees(at, _) = *hint {
            record.server_time = Some(at);
        }
        match hint {
            Hint::None | Hint::Time(_) => {}
            Hint::Trusts(_, id) => record.trusts = Some(id.to_string()),
            Hint::Sees(_, address) => record.sees = Some(*address),
            Hint::Proof(proof) => record.proof = Some(HEXLOWER.encode(proof)),
        }
        record
    }
}

/// Counts over a capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Connections that were reported.
    pub connections: u64,
    /// Connections that asked for Fast Open.
    pub asked: u64,
    /// Connections that asked whether the server accepts certificates.
    pub probed: u64,
    /// Connections that used a certificate.
    pub certified: u64,
    /// Connections whose first flight was accepted.
    pub accepted: u64,
    /// Number of connections for each outcome: `accepted`, a reason's label, or `undecided`.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Connections that began before the capture, or that continued after they were reported.
    pub began_before: u64,
    /// Connections that were captured on both sides of an address translator, and are counted twice.
    pub translated: u64,
    /// What fails every time, with the probable cause, in one line.
    pub hint: Option<String>,
    /// Why reading stopped before the end.
    pub damage: Option<String>,
}

/// What TCP's handshakes cost the requests of a capture. Shares are numbers from 0 to 1, times are those of the clients.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Requests {
    /// Frames in the capture.
    pub frames: u64,
    /// TCP segments in them.
    pub segments: u64,
    /// Connections.
    pub connections: u64,
    /// Connections of which the capture shows the whole handshake.
    pub opened: u64,
    /// Connections whose beginning is shown, without an answer that completed it.
    pub not_opened: u64,
    /// Connections of which the capture has only later segments.
    pub begun_before: u64,
    /// Connections whose SYN was sent more than once.
    pub syn_repeated: u64,
    /// How long their clients waited before they sent the last SYN, in all, milliseconds.
    pub syn_wait_ms: f64,
    /// Connections with data that the capture lacks.
    pub with_gaps: u64,
    /// Connections over IPv6.
    pub ipv6: u64,
    /// Connections in UDP.
    pub in_udp: u64,
    /// First requests of connections: the Fast Open paper's cold requests.
    pub requests_cold: u64,
    /// Later requests of connections.
    pub requests_warm: u64,
    /// The first requests that the capture shows of connections that began before it.
    pub requests_unknown: u64,
    /// Requests of HTTP/1.x in clear.
    pub requests_http: u64,
    /// Requests by TLS.
    pub requests_tls: u64,
    /// Requests of other protocols.
    pub requests_other: u64,
    /// Cold requests that were in an accepted SYN.
    pub requests_in_syn: u64,
    /// Requests without an answer in the capture.
    pub requests_unanswered: u64,
    /// Requests that were sent before the answer to the one before.
    pub requests_pipelined: u64,
    /// Requests with a time.
    pub requests_timed: u64,
    /// Cold requests with a time.
    pub requests_cold_timed: u64,
    /// The share of the requests that were on new connections.
    pub new_connection_share: Option<f64>,
    /// The handshakes' share of the time of cold requests.
    pub handshake_share_cold: Option<f64>,
    /// The handshakes' share of the time of all requests.
    pub handshake_share_all: Option<f64>,
    /// The share of TLS's handshakes of the time of cold requests.
    pub tls_share_cold: Option<f64>,
    /// How much shorter cold requests would be without TCP's handshake, at the percentile from 10 to 90 with the most.
    pub handshake_share_greatest: Option<f64>,
    /// That percentile.
    pub handshake_share_greatest_at_percentile: Option<u32>,
    /// The distributions of the times: the percentiles from 0 to 100.
    pub percentiles: Vec<Percentile>,
    /// Each server, the one with the most requests first.
    pub servers: Vec<Server>,
    /// Why reading stopped before the end.
    pub damage: Option<String>,
}

/// The times below which a share of the requests lies, milliseconds. `None` without requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Percentile {
    /// The share, per cent.
    pub percentile: u32,
    /// Of cold requests, with their handshake.
    pub cold_ms: Option<f64>,
    /// Of cold requests, without TCP's handshake.
    pub cold_without_handshake_ms: Option<f64>,
    /// Of all requests.
    pub all_ms: Option<f64>,
}

/// The requests to one server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Server {
    /// Its address. `None` for the servers that are counted together, because there are more than 1,024.
    pub server: Option<SocketAddr>,
    /// First requests of connections.
    pub requests_cold: u64,
    /// Later ones.
    pub requests_warm: u64,
    /// The handshakes' share of the time of cold requests.
    pub handshake_share_cold: Option<f64>,
    /// The handshakes' share of the time of all requests.
    pub handshake_share_all: Option<f64>,
}
