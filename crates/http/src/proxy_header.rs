//! The PROXY protocol, version 2: who the client is, in front of a connection's bytes.
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>

use ppp::v2::{Addresses, Builder, Command, Header, ParseError, Protocol, Type, Version};
use std::io;
use std::net::SocketAddr;

/// The type of the entry that marks early bytes: a number of four bytes, in network order. So many bytes behind the header
/// came before the client was confirmed, and may be a copy. It is the first type for private use (2.2.7).
pub const EARLY_BYTES: u8 = 0xe0;
/// The longest header that is read, bytes.
pub const LONGEST: usize = 4096;

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Client and the address to which it connected. `None` for a connection of the sender's own.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// Bytes behind the header that may be a copy.
    pub early_bytes: u32,
    /// The header's length.
    pub length: usize,
}

/// Why bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoHeader {
    /// Something else.
    #[error("the sender did not begin with a PROXY header of version 2")]
    Wrong,
    /// It ends behind the first [`LONGEST`] bytes.
    #[error("the PROXY header is longer than {LONGEST} bytes")]
    TooLong,
}

/// Reads the header at the beginning of `bytes`. `None` if more bytes are needed.
///
/// # Errors
/// When they begin with something else, or with a header that is too long. The sender is at fault.
pub fn read(bytes: &[u8]) -> Result<Option<Said>, NoHeader> {
    let header = match Header::try_from(bytes) {
        Ok(header) if header.len() <= LONGEST => header,
        Ok(_) => return Err(NoHeader::TooLong),
        Err(ParseError::Incomplete(_) | ParseError::Partial(..)) if bytes.len() < LONGEST => return Ok(None),
        Err(ParseError::Incomplete(_) | ParseError::Partial(..)) => return Err(NoHeader::TooLong),
        Err(_) => return Err(NoHeader::Wrong),
    };
    let addresses = match (header.command, header.addresses) {
        (Command::Local, _) => None,
        (Command::Proxy, Addresses::IPv4(ip)) => Some((
            (ip.source_address, ip.source_port).into(),
            (ip.destination_address, ip.destination_port).into(),
        )),
        (Command::Proxy, Addresses::IPv6(ip)) => Some((
            (ip.source_address, ip.source_port).into(),
            (ip.destination_address, ip.destination_port).into(),
        )),
        (Command::Proxy, Addresses::Unspecified | Addresses::Unix(_)) => None,
    };
    let mut early_bytes = 0;
    for entry in header.tlvs() {
        let entry = entry.map_err(|_| NoHeader::Wrong)?;
        if entry.kind == EARLY_BYTES {
            early_bytes =
                u32::from_be_bytes(<[u8; 4]>::try_from(&*entry.value).map_err(|_| NoHeader::Wrong)?);
        }
    }
    Ok(Some(Said { addresses, early_bytes, length: header.len() }))
}

/// The header about a client. `name` is the name in its ClientHello.
///
/// # Errors
/// When the name is too long for a header that [`read`] takes.
pub fn about(
    client: SocketAddr,
    local: SocketAddr,
    name: Option<&str>,
    early_bytes: u32,
) -> io::Result<Vec<u8>> {
    let (client, local) = of_one_family(client, local);
    let mut builder =
        Builder::with_addresses(Version::Two | Command::Proxy, Protocol::Stream, (client, local));
    if let Some(name) = name {
        builder = builder.write_tlv(Type::Authority, name.as_bytes())?;
    }
    if early_bytes > 0 {
        builder = builder.write_tlv(EARLY_BYTES, &early_bytes.to_be_bytes())?;
    }
    let header = builder.build()?;
    if header.len() > LONGEST { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(header) }
}

/// The header of a connection of our own, as those of health checks.
///
/// # Errors
/// Never in practice.
pub fn local() -> io::Result<Vec<u8>> {
    Builder::with_addresses(Version::Two | Command::Local, Protocol::Unspecified, Addresses::Unspecified)
        .build()
}

/// An IPv4 address in IPv6 stays IPv4 if the other is; else both become IPv6.
fn of_one_family(one: SocketAddr, two: SocketAddr) -> (SocketAddr, SocketAddr) {
    let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    let (one, two) = (canonical(one), canonical(two));
    let mapped = |at: SocketAddr| match at {
        SocketAddr::V4(v4) => SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())),
        v6 @ SocketAddr::V6(_) => v6,
    };
    if one.is_ipv4() == two.is_ipv4() { (one, two) } else { (mapped(one), mapped(two)) }
}

#[cfg(test)]
mod tests;
