//! SOCKS5 (RFC 1928), as much as a proxy for TCP needs: no authentication, and the command CONNECT.
//!
//! The messages are read and written here without sockets. The crates that there are bring a client, UDP and six further
//! dependencies (`fast-socks5`, which also writes passwords into its log), or have another licence (`socks5-proto`).

use firstflight::{Authority, BadAuthority};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The first byte of each message of a client.
pub const VERSION: u8 = 5;
/// The same in SOCKS4, which has no names.
pub const OLD_VERSION: u8 = 4;
/// The longest message of a client: a name of 255 bytes.
pub const LONGEST: usize = 262;
/// The answer to SOCKS4: refused.
pub const OLD_REFUSAL: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];
/// The answer to a greeting: no authentication, or no acceptable method.
pub const CHOSEN: [u8; 2] = [VERSION, 0];
pub const NO_METHOD: [u8; 2] = [VERSION, 0xff];

const CONNECT: u8 = 1;
const NO_AUTHENTICATION: u8 = 0;

/// The code of a reply (RFC 1928 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Succeeded = 0,
    Failure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    /// "TTL expired", which clients show as a timeout.
    TimedOut = 6,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// A reply. The address that the proxy uses means nothing to the client of a CONNECT, so it is not told.
pub const fn reply(code: Code) -> [u8; 10] {
    [VERSION, code as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// Why a message cannot be answered as it asks. The client is at fault.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    #[error("it is not SOCKS5")]
    Version,
    #[error("the client wants to authenticate itself, and this proxy has no users")]
    Method,
    #[error("the command is not CONNECT")]
    Command,
    #[error("the type of the address is not known")]
    AddressType,
    #[error(transparent)]
    Host(#[from] BadAuthority),
    #[error("the name is not UTF-8")]
    Name,
}

impl SocksError {
    /// The answer to the client. `None`: it would not be understood.
    pub const fn answer(&self) -> Option<&'static [u8]> {
        const REFUSED: [&[u8]; 4] = [
            &reply(Code::CommandNotSupported),
            &reply(Code::AddressNotSupported),
            &reply(Code::HostUnreachable),
            &NO_METHOD,
        ];
        match self {
            Self::Version => None,
            Self::Command => Some(REFUSED[0]),
            Self::AddressType => Some(REFUSED[1]),
            Self::Host(_) | Self::Name => Some(REFUSED[2]),
            Self::Method => Some(REFUSED[3]),
        }
    }
}

/// Reads a greeting. Returns its length, `None` if it is not complete.
pub fn greeting(bytes: &[u8]) -> Result<Option<usize>, SocksError> {
    match bytes {
        [] | [VERSION] => Ok(None),
        [VERSION, count, methods @ ..] => {
            let Some(methods) = methods.get(..usize::from(*count)) else { return Ok(None) };
            let able = methods.contains(&NO_AUTHENTICATION);
            if able { Ok(Some(2 + methods.len())) } else { Err(SocksError::Method) }
        }
        _ => Err(SocksError::Version),
    }
}

/// Reads a request. Returns the server and the length of the request, `None` if it is not complete.
pub fn request(bytes: &[u8]) -> Result<Option<(Authority, usize)>, SocksError> {
    match bytes {
        [] | [VERSION] => return Ok(None),
        [VERSION, CONNECT, ..] => {}
        [VERSION, ..] => return Err(SocksError::Command),
        _ => return Err(SocksError::Version),
    }
    let &[_, _, _, kind, ref address @ ..] = bytes else { return Ok(None) };
    // The host, and the bytes up to the port.
    let (host, len) = match (kind, address) {
        (1, [a, b, c, d, ..]) => (Ipv4Addr::new(*a, *b, *c, *d).to_string(), 4),
        (4, _) => match address.first_chunk::<16>() {
            Some(octets) => (Ipv6Addr::from(*octets).to_string(), 16),
            None => return Ok(None),
        },
        (3, [len, name @ ..]) => match name.get(..usize::from(*len)) {
            Some(name) => (String::from_utf8(name.to_vec()).map_err(|_| SocksError::Name)?, 1 + name.len()),
            None => return Ok(None),
        },
        (1 | 3, _) => return Ok(None),
        _ => return Err(SocksError::AddressType),
    };
    let Some(&[high, low]) = address.get(len..).and_then(|rest| rest.first_chunk()) else { return Ok(None) };
    Ok(Some((Authority::new(&host, u16::from_be_bytes([high, low]))?, 4 + len + 2)))
}

#[cfg(test)]
mod tests;
