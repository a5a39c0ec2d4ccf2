//! How far a SYN gets, and what routers quote of it.
//!
//! A router that drops a packet because of its hop limit quotes it in an ICMP error. Linux and many other routers quote
//! the whole TCP header (RFC 1812 §4.3.2.3), so the quote shows the options as they were at that router. The kernel
//! gives the quote to the socket, without privileges.

use crate::sys;
use firstflight_wire::tcp::{FastOpen, Segment};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::TcpStream;

/// What became of a SYN with a hop limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trip {
    /// It arrived: the peer accepted or refused the connection.
    Arrived,
    /// A router, or another host on the way, returned an ICMP error.
    Returned {
        /// Who returned it, if the kernel says so.
        router: Option<IpAddr>,
        /// What it quotes.
        quoted: Quoted,
    },
}

/// A SYN's Fast Open option, as an ICMP error quotes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoted {
    /// The SYN has it.
    Option(FastOpen),
    /// The SYN has all its options, and this one is not among them.
    NoOption,
    /// The options are not quoted.
    TooShort,
}

/// Sends a SYN that at most `hops` routers pass on, minus one: with 1, the first router returns it. It has the Fast Open
/// option: with the kernel's cookie for that server and `data` if there is one, or else without. Waits for what becomes
/// of it; the caller limits the time. If it arrives, the connection is closed.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if the namespace does not allow Fast Open, and the system's.
///
/// # Panics
/// Outside a tokio runtime with I/O.
pub async fn send_through(remote: SocketAddr, hops: u8, data: &[u8]) -> io::Result<Trip> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    if remote.is_ipv6() {
        socket.set_unicast_hops_v6(hops.into())?;
    } else {
        socket.set_ttl_v4(hops.into())?;
    }
    sys::ask_for_errors(&socket, remote.is_ipv6())?;
    sys::send_in_syn(&socket, remote, data)?;
    let stream = TcpStream::from_std(socket.into())?;
    stream.writable().await?;
    match (sys::take_error(&stream), stream.take_error()?) {
        (Ok((quote, len, router)), _) => {
            let quoted = quote.get(..len).map_or(Quoted::TooShort, Quoted::of);
            Ok(Trip::Returned { router, quoted })
        }
        (Err(_), None) => Ok(Trip::Arrived),
        (Err(_), Some(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(Trip::Arrived),
        (Err(_), Some(error)) => Err(error),
    }
}

impl Quoted {
    /// Reads a quote, from the TCP header on.
    fn of(quote: &[u8]) -> Self {
        let Ok(segment) = Segment::parse(quote) else { return Self::TooShort };
        segment.options.fast_open().map_or(Self::NoOption, Self::Option)
    }
}

/// The sender of an ICMP error, in the control message that comes with it: `struct cmsghdr`, `struct sock_extended_err`
/// (16 bytes), and a socket address.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "Linux only"))]
pub(crate) fn offender(control: &[u8]) -> Option<IpAddr> {
    /// `sizeof (struct cmsghdr)`, rounded up as the data behind it is.
    const HEAD: usize = (size_of::<usize>() + 8).next_multiple_of(size_of::<usize>());
    let address = control.get(HEAD + 16..)?;
    let family = u16::from_ne_bytes(*address.first_chunk()?);
    match i32::from(family) {
        socket if socket == i32::from(Domain::IPV4) => {
            Some(Ipv4Addr::from_octets(address.get(4..8)?.try_into().ok()?).into())
        }
        socket if socket == i32::from(Domain::IPV6) => {
            Some(IpAddr::V6(Ipv6Addr::from_octets(address.get(8..24)?.try_into().ok()?)).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
