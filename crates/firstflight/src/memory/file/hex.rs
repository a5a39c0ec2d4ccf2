//! Bytes as hexadecimal text in the cache file.

use data_encoding::HEXLOWER_PERMISSIVE;
use serde::de::{Deserialize, Deserializer, Error};

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let digits = String::deserialize(from)?;
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).map_err(|_| D::Error::custom("not hexadecimal"))
}

/// A network's id.
pub(super) mod network {
    use super::{Deserializer, Error, text};
    use data_encoding::HEXLOWER;
    use firstflight_credential::NetworkId;
    use serde::Serializer;

    pub(crate) fn serialize<S: Serializer>(id: &NetworkId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&HEXLOWER.encode(&id.0))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<NetworkId, D::Error> {
        let bytes = text(from)?.try_into();
        bytes.map(NetworkId).map_err(|_| D::Error::custom("a network id has 16 bytes"))
    }
}

/// Any bytes.
pub(super) mod bytes {
    use super::{Deserializer, Error, text};
    use data_encoding::HEXLOWER;
    use serde::Serializer;

    /// Longer ones are no parameter of a record, and no zone.
    const LONGEST: usize = 512;

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&HEXLOWER.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let bytes = text(from)?;
        if bytes.len() > LONGEST {
            return Err(D::Error::custom("longer than any parameter"));
        }
        Ok(bytes)
    }
}

pub(super) mod cookie {
    use super::{Deserializer, Error, text};
    use data_encoding::HEXLOWER;
    use firstflight_wire::tcp::Cookie;
    use serde::Serializer;

    pub(crate) fn serialize<S: Serializer>(cookie: &Cookie, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&HEXLOWER.encode(cookie.as_bytes()))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Cookie, D::Error> {
        Cookie::new(&text(from)?).ok_or_else(|| D::Error::custom("a cookie has 4 to 16 bytes"))
    }
}
