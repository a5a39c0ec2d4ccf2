//! Bytes as hexadecimal text in the cache file.

use serde::de::{Deserialize, Deserializer, Error};
use std::fmt::Write;

/// `bytes` in hexadecimal.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of hexadecimal text.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    decode(&String::deserialize(from)?).ok_or_else(|| D::Error::custom("not hexadecimal"))
}

/// A network's id.
pub mod network {
    use super::{Deserializer, Error, encode, text};
    use firstflight_credential::NetworkId;
    use serde::Serializer;

    pub fn serialize<S: Serializer>(id: &NetworkId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&encode(&id.0))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<NetworkId, D::Error> {
        let bytes = text(from)?.try_into();
        bytes.map(NetworkId).map_err(|_| D::Error::custom("a network id has 16 bytes"))
    }
}

/// A cookie.
pub mod cookie {
    use super::{Deserializer, Error, encode, text};
    use firstflight_wire::tcp::Cookie;
    use serde::Serializer;

    pub fn serialize<S: Serializer>(cookie: &Cookie, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&encode(cookie.as_bytes()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Cookie, D::Error> {
        Cookie::new(&text(from)?).ok_or_else(|| D::Error::custom("a cookie has 4 to 16 bytes"))
    }
}
