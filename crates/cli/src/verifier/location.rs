//! Where a verifier is, as options name it.

use firstflight::credential::asap::PublicKey;
use firstflight::{Authority, ClientBuilder, Host, NamedVerifier};
use firstflight_verifier::{IssuerAddress, VantageAddress};
use serde::{Deserialize, Deserializer, de::Error};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;

/// The port of a verifier that is named without one.
const PORT: u16 = 4433;

/// An address, or a name whose addresses are looked up each time that the verifier is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifierPlace {
    /// An address.
    At(SocketAddr),
    /// A name and a port.
    Named(String, u16),
}

impl FromStr for VerifierPlace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        let wrong = "write an address and a port, as 192.0.2.1:4433, or a name, as pv.example.com or pv.example.com:4433";
        let authority = text.parse().or_else(|_| Authority::new(text, PORT)).map_err(|_| wrong)?;
        match authority.host() {
            Host::Name(name) => Ok(Self::Named(name.to_string(), authority.port())),
            Host::Ip(ip) => Ok(Self::At(SocketAddr::new(*ip, authority.port()))),
        }
    }
}

impl fmt::Display for VerifierPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => at.fmt(f),
            Self::Named(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

impl<'de> Deserialize<'de> for VerifierPlace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl VerifierPlace {
    /// The address, if it is one.
    pub const fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::At(at) => Some(*at),
            Self::Named(..) => None,
        }
    }

    /// The addresses here, by the system's resolver, those of IPv4 first. There is at least one.
    /// Errors: when the name has none.
    pub async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let (name, port) = match self {
            Self::At(at) => return Ok(vec![*at]),
            Self::Named(name, port) => (name.as_str(), *port),
        };
        let mut found: Vec<_> = tokio::net::lookup_host((name, port)).await?.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        found.dedup();
        if found.is_empty() { Err(io::Error::other("it has no address")) } else { Ok(found) }
    }
}

/// A verifier that the options name.
pub struct AskedVerifier {
    /// Where it is.
    pub place: VerifierPlace,
    pub key: PublicKey,
    /// Its vantage points.
    pub group: Vec<VantageAddress>,
}

impl AskedVerifier {
    /// Gives it to a client.
    pub fn configure(&self, builder: ClientBuilder) -> ClientBuilder {
        let (key, group) = (self.key, self.group.clone());
        match &self.place {
            VerifierPlace::At(at) => {
                builder.verifier(IssuerAddress { group, ..IssuerAddress::new(*at, key) })
            }
            VerifierPlace::Named(host, port) => {
                builder.verifier_by_name(NamedVerifier { group, ..NamedVerifier::new(host, *port, key) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn an_address_or_a_name() {
        for (text, expected) in [
            ("192.0.2.1:5000", "192.0.2.1:5000"),
            ("[2001:db8::1]:5000", "[2001:db8::1]:5000"),
            ("192.0.2.1", "192.0.2.1:4433"),
            ("pv.example.com", "pv.example.com:4433"),
            ("PV.example.com:443", "pv.example.com:443"),
        ] {
            let place: VerifierPlace = text.parse().unwrap();
            assert_eq!(place.to_string(), expected);
            assert_eq!(place.address().is_none(), text.to_lowercase().starts_with("pv"), "{text}");
        }
        for wrong in ["", "http://pv.example.com", "pv example", "pv.example.com:", "pv.example.com:70000"] {
            assert!(wrong.parse::<VerifierPlace>().is_err(), "{wrong}");
        }
    }
}
