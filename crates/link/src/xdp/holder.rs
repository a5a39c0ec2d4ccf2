//! The sockets that hold the served ports against the kernel.
//!
//! Only a socket that listens, or a bound one of UDP, is found by packets. Without one, the kernel would answer what it gets
//! for our ports with RST or an ICMP error. A filter drops what came by the device, silently. What came another way, as from
//! programs of this host, is accepted.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use socket2::{Domain, SockFilter, SockRef, Socket, Type};

use super::{Transport, sys};

/// `BPF_LD | BPF_W | BPF_ABS`, `BPF_JMP | BPF_JEQ | BPF_K` and `BPF_RET | BPF_K` (`linux/filter.h`).
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// `SKF_AD_OFF + SKF_AD_IFINDEX`: the number of the device.
const DEVICE: u32 = (-0x1000_i32 + 8) as u32;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// A socket that holds a port.
#[derive(Debug)]
pub struct PortHolder {
    socket: Socket,
    at: SocketAddr,
    transport: Transport,
}

impl PortHolder {
    /// Holds `at` in TCP or UDP, and drops what comes for it by the device with the number `device`. Port 0 is a free one.
    ///
    /// # Errors
    /// The system's, with [`io::ErrorKind::AddrInUse`] if another socket has the port.
    pub fn new(at: SocketAddr, transport: Transport, device: u32) -> io::Result<Self> {
        let kind = match transport {
            Transport::Tcp => Type::STREAM,
            Transport::Udp => Type::DGRAM,
        };
        let socket = Socket::new(Domain::for_address(at), kind, None)?;
        socket.set_nonblocking(true)?;
        if at.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        // Never SO_REUSEPORT: a socket beside this one would get a part of what is accepted. With UDP, SO_REUSEADDR
        // would have that meaning.
        if transport == Transport::Tcp {
            socket.set_reuse_address(true)?;
        }
        SockRef::from(&socket).attach_filter(&drop_from(device))?;
        socket.bind(&at.into())?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        if transport == Transport::Tcp {
            socket.listen(BACKLOG)?;
        }
        Ok(Self { socket, at: local, transport })
    }

    /// Shares `at` in TCP with other processes of this user that do so, and takes all connections that reach the kernel, from now on, in
    /// place of one other.
    ///
    /// # Errors
    /// As [`PortHolder::new`].
    pub fn shared(at: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        if at.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&at.into())?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        socket.listen(BACKLOG)?;
        // The sockets of the group have numbers in the order in which they began to listen. If none has this number, all take turns.
        sys::choose_in_group(&socket, 1)?;
        Ok(Self { socket, at: local, transport: Transport::Tcp })
    }

    /// Another handle of the same socket.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, at: self.at, transport: self.transport })
    }

    /// The address and port.
    #[must_use]
    pub const fn at(&self) -> SocketAddr {
        self.at
    }

    /// TCP or UDP.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// Another handle of the listening socket, to accept what does not come by the device. The filter stays while one of the
    /// handles is open. It does not block. `None` with UDP.
    ///
    /// # Errors
    /// The system's.
    pub fn listener(&self) -> io::Result<Option<TcpListener>> {
        match self.transport {
            Transport::Tcp => Ok(Some(self.socket.try_clone()?.into())),
            Transport::Udp => Ok(None),
        }
    }

    /// Another handle of the UDP socket, as [`PortHolder::listener`]. `None` with TCP.
    ///
    /// # Errors
    /// The system's.
    pub fn udp(&self) -> io::Result<Option<UdpSocket>> {
        match self.transport {
            Transport::Udp => Ok(Some(self.socket.try_clone()?.into())),
            Transport::Tcp => Ok(None),
        }
    }

    pub(super) fn into_socket(self) -> OwnedFd {
        self.socket.into()
    }
}

fn drop_from(device: u32) -> [SockFilter; 4] {
    [
        SockFilter::new(LOAD_WORD, 0, 0, DEVICE),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, device),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}
