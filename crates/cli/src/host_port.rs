//! An address and a port on the command line, or a name and a port.

use firstflight::Authority;
use std::net::{AddrParseError, SocketAddr};
use std::str::FromStr;

/// Where to listen, written as `192.0.2.1:8080`, `[2001:db8::1]:8080` or `localhost:8080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPort {
    Address(SocketAddr),
    /// A name that the system's resolver has to look up.
    Name(String, u16),
}

/// Parses an address and a port for an option, with a zone by name or number.
/// Errors: what to write.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    match text.contains('%') {
        true => zoned(text).map_err(str::to_owned),
        false => text.parse().map_err(|error: AddrParseError| error.to_string()),
    }
}

fn zoned(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse::<Authority>().ok().and_then(|at| at.address()).ok_or(
        "that zone cannot be used: write a link-local address and an interface of this host, as in \
         [fe80::1%eth0]:8080",
    )
}

impl FromStr for HostPort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        if text.contains('%') {
            return zoned(text).map(Self::Address);
        }
        let says =
            "write an address or a name, and a port: 192.0.2.1:8080, [2001:db8::1]:8080 or localhost:8080";
        let (name, port) = text.rsplit_once(':').ok_or(says)?;
        let letters = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        // A name whose last label is a number is a mistyped IPv4 address.
        let last = name.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
        if !name.chars().all(letters) || last.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(says);
        }
        Ok(Self::Name(name.to_owned(), port.parse().map_err(|_| says)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_with_a_port() {
        let address = |text: &str| HostPort::Address(text.parse().unwrap());
        assert_eq!("192.0.2.1:80".parse(), Ok(address("192.0.2.1:80")));
        assert_eq!("[2001:db8::1]:80".parse(), Ok(address("[2001:db8::1]:80")));
        assert_eq!("[fe80::1%lo]:80".parse(), Ok(address("[fe80::1%1]:80")));
        assert!("[fe80::1%no-such-device]:80".parse::<HostPort>().is_err_and(|error| error.contains("zone")));
        assert_eq!("localhost:80".parse(), Ok(HostPort::Name("localhost".to_owned(), 80)));
        assert_eq!("a-b.example.:80".parse(), Ok(HostPort::Name("a-b.example.".to_owned(), 80)));
        for wrong in
            ["", "80", ":80", "localhost", "localhost:", "localhost:x", "192.0.2:80", "192.0.2.256:80"]
        {
            assert!(wrong.parse::<HostPort>().is_err(), "{wrong}");
        }
        for wrong in ["2001:db8::1:80", "local host:80", "a/b:80", "localhost:65536", ".:80"] {
            assert!(wrong.parse::<HostPort>().is_err(), "{wrong}");
        }
    }
}
