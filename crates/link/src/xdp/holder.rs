//! The sockets that hold the served ports against the kernel.
//!
//! Only a socket that listens, or a bound one of UDP, is found by packets. Without one, the kernel would answer what it gets
//! for our ports with RST or an ICMP error. A filter drops what came by the device, silently. What came another way, as from
//! programs of this host, is accepted.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use socket2::{Domain, SockFilter, SockRef, Socket, Type};

use super::{Allow, Prefix, Transport, sys};

/// `BPF_LD | BPF_W | BPF_ABS`, `BPF_JMP | BPF_JEQ | BPF_K` and `BPF_RET | BPF_K` (`linux/filter.h`).
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// `BPF_ALU | BPF_AND | BPF_K`.
const AND: u16 = 0x54;
/// `SKF_AD_OFF + SKF_AD_IFINDEX`: the number of the device.
const DEVICE: u32 = (-0x1000_i32 + 8) as u32;
/// `SKF_NET_OFF`: the header of IP.
const HEADER: i32 = -0x10_0000;
/// What a filter returns for a packet that it drops, or passes whole.
const DROP: SockFilter = SockFilter::new(RETURN, 0, 0, 0);
const PASS: SockFilter = SockFilter::new(RETURN, 0, 0, u32::MAX);

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// One of the processes that share a port, by the order in which they began to listen. When one ends, the last takes its number.
#[derive(Clone, Copy, Debug)]
pub(super) enum SharedBy {
    First = 0,
    Second = 1,
}

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

    /// Shares `at` in TCP with one other process of this user that does so. When the device is taken or waited for, and not before, it takes
    /// all connections that reach the kernel. Of those by the device with the number `device` it takes what `allow` allows.
    ///
    /// # Errors
    /// As [`PortHolder::new`]. Some hundred prefixes are too many for the kernel.
    pub fn shared(at: SocketAddr, device: u32, allow: &Allow) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        if at.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        if let Allow::Prefixes(prefixes) = allow {
            SockRef::from(&socket).attach_filter(&allow_from(device, at.is_ipv4(), prefixes))?;
        }
        socket.bind(&at.into())?;
        let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        socket.listen(BACKLOG)?;
        Ok(Self { socket, at: local, transport: Transport::Tcp })
    }

    /// All connections that the kernel accepts at a shared port go to this one of the processes, from now on. If there is none with this
    /// number, they go to all in turn.
    pub(super) fn choose(&self, process: SharedBy) -> io::Result<()> {
        sys::choose_in_group(&self.socket, process as u32)
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
    [SockFilter::new(LOAD_WORD, 0, 0, DEVICE), SockFilter::new(JUMP_IF_EQUAL, 0, 1, device), DROP, PASS]
}

/// Drops what came by the device, but from these prefixes.
fn allow_from(device: u32, v4: bool, prefixes: &[Prefix]) -> Vec<SockFilter> {
    let mut code =
        vec![SockFilter::new(LOAD_WORD, 0, 0, DEVICE), SockFilter::new(JUMP_IF_EQUAL, 1, 0, device), PASS];
    for Prefix { address, len } in prefixes.iter().filter(|prefix| prefix.address.is_ipv4() == v4) {
        let (source, words) = match address {
            IpAddr::V4(address) => (12, vec![address.to_bits()]),
            IpAddr::V6(address) => {
                let word = |n: u32| (address.to_bits() >> (96 - 32 * n)) as u32;
                (8, (0..4).map(word).collect())
            }
        };
        let compared = u32::from(*len).div_ceil(32);
        for (n, word) in (0..compared).zip(words) {
            let mask = u32::MAX << (32 - (u32::from(*len) - 32 * n).min(32));
            let at = HEADER + source + 4 * n.cast_signed();
            // Over the rest of the prefix, and the instruction behind it.
            let no = 3 * (compared - 1 - n) + 1;
            code.push(SockFilter::new(LOAD_WORD, 0, 0, at.cast_unsigned()));
            code.push(SockFilter::new(AND, 0, 0, mask));
            code.push(SockFilter::new(JUMP_IF_EQUAL, 0, no as u8, word & mask));
        }
        code.push(PASS);
    }
    code.push(DROP);
    code
}
