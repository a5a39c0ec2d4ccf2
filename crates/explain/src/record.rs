//! What is found, as fields for programs: `serde` writes the JSON objects of `firstflight explain --json`. The names of the
//! fields, and the labels in them, are stable; there may be more of both in another release.

use data_encoding::HEXLOWER;
use firstflight_wire::asap;
use firstflight_wire::asap::Hint;
use serde::Serialize;
use std::net::Ipv4Addr;

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
