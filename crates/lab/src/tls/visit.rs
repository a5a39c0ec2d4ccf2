//! What to visit, read from JSON.

use super::{Failure, PORT};
use serde_json::Value;

/// How packets travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketWay {
    /// The kernel's TCP.
    Kernel,
    /// An engine's TCP in UDP.
    Udp,
    /// An engine's TCP on a TUN device.
    Ip,
    /// QUIC by another implementation.
    Quic,
}

/// What proves the client's address in its first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    None,
    Cookie,
    /// Of ASAP.
    Certificate,
    /// One that the server does not take.
    Refused,
}

/// What the client knows about seals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seal {
    /// They are switched off.
    Off,
    /// They are on, and there is no key.
    NoKey,
    Right,
    /// A key that the server does not have.
    Stale,
}

#[derive(Debug, Clone)]
pub struct Visit {
    pub way: PacketWay,
    pub credential: Credential,
    /// With a session ticket.
    pub ticket: bool,
    /// The request must not run twice.
    pub once: bool,
    pub seal: Seal,
    pub port: u16,
    pub path: String,
    /// Milliseconds to wait afterwards.
    pub settle_ms: u64,
}

impl Visit {
    /// Reads a visit.
    /// Errors: Names the member that is wrong.
    pub fn read(visit: &Value) -> Result<Self, Failure> {
        let text = |name: &str| visit.get(name).and_then(Value::as_str).unwrap_or_default();
        let set = |name: &str| visit.get(name).and_then(Value::as_bool).unwrap_or_default();
        let number = |name: &str| visit.get(name).and_then(Value::as_u64);
        let wrong = |name: &str| format!("{name} of a visit: {}", visit[name]);
        Ok(Self {
            way: match text("way") {
                "kernel" => PacketWay::Kernel,
                "udp" => PacketWay::Udp,
                "ip" => PacketWay::Ip,
                "quic" => PacketWay::Quic,
                _ => return Err(wrong("way").into()),
            },
            credential: match text("credential") {
                "" | "none" => Credential::None,
                "cookie" => Credential::Cookie,
                "certificate" => Credential::Certificate,
                "refused" => Credential::Refused,
                _ => return Err(wrong("credential").into()),
            },
            ticket: set("ticket"),
            once: set("once"),
            seal: match text("seal") {
                "" => Seal::Off,
                "none" => Seal::NoKey,
                "right" => Seal::Right,
                "stale" => Seal::Stale,
                _ => return Err(wrong("seal").into()),
            },
            port: u16::try_from(number("port").unwrap_or(u64::from(PORT))).map_err(|_| wrong("port"))?,
            path: text("path").to_owned(),
            settle_ms: number("settle_ms").unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_visit_is_read_or_refused() {
        let visit =
            Visit::read(&json!({ "way": "ip", "credential": "cookie", "once": true, "seal": "stale" }))
                .unwrap();
        assert_eq!(
            (visit.way, visit.credential, visit.seal),
            (PacketWay::Ip, Credential::Cookie, Seal::Stale)
        );
        assert!(visit.once && !visit.ticket && visit.port == PORT);
        assert!(Visit::read(&json!({ "way": "train" })).unwrap_err().to_string().contains("train"));
        assert!(Visit::read(&json!({ "way": "udp", "port": 70_000 })).is_err());
    }
}
