//! One UDP address that several links share, each with a socket of its own (`SO_REUSEPORT`).

use super::{Socket, UdpLink};
use socket2::Socket as RawSocket;
use std::io;
use std::net::SocketAddr;

/// A UDP address for several links. The kernel gives each datagram to the socket that a hash of addresses and ports
/// chooses, so all datagrams of one client's port arrive at one of the links. If links come or go, the choice changes.
///
/// Only sockets of the same user can share an address. Linux only.
#[derive(Debug, Clone, Copy)]
pub struct SharedUdp {
    local: SocketAddr,
}

impl SharedUdp {
    /// Makes sure that `local` belongs to no other socket of this host, and chooses a port if its port is 0. No socket
    /// is open afterwards: the address is taken by the first [`SharedUdp::link`].
    ///
    /// # Errors
    /// Those of the system, for example if the address is in use. [`io::ErrorKind::Unsupported`] on systems that do not
    /// distribute datagrams.
    pub fn reserve(local: SocketAddr) -> io::Result<Self> {
        if cfg!(not(target_os = "linux")) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // A socket that does not share its address shows whether another one has it.
        let alone = Socket::bound(local, false)?;
        let local = alone.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { local })
    }

    /// The address, with the port that was chosen.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Another link at the address. Call it within the tokio runtime that shall use it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn link(&self) -> io::Result<UdpLink> {
        let socket = Socket::take(Socket::bound(self.local, true)?)?;
        let (v4, v6) = if self.local.is_ipv4() { (Some(socket), None) } else { (None, Some(socket)) };
        Ok(UdpLink { v4, v6, v6_first: false, adopted: Vec::new() })
    }
}

/// Allows other sockets of the same user at the address to which `socket` will be bound.
pub(super) fn allow(socket: &RawSocket) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::ReusePort, &true)?;
    #[cfg(not(target_os = "linux"))]
    let _ = socket;
    Ok(())
}
