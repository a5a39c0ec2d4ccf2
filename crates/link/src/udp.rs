//! TCP in UDP datagrams through sockets of the operating system: no privileges, no device.
//!
//! A packet of this link is a whole IP packet with a UDP datagram, as in the other links. The link removes
//! the two headers of a sent packet and sends the rest through the socket to the address and port in them. It
//! adds the headers to received datagrams. Where the system has offloads, several datagrams to one
//! destination are sent in one call (segmentation offload), and several that arrived together are received in
//! one (receive offload).
//!
//! Another protocol can share the sockets with the link: [`UdpLink::channel`].
//!
//! Make links and channels, and poll them, within a tokio runtime whose I/O driver is enabled. Elsewhere tokio panics.
//!
//! The kernel has checked that a received datagram is for this host and that its checksum is right, so the
//! link writes a checksum field of zero. Tell the stack so by `from_socket` of its encapsulation settings. The
//! kernel also computes the checksums of sent datagrams.

mod channel;
mod inbox;
mod outbox;
#[cfg(target_os = "linux")]
mod reports;
mod shared;
#[cfg(test)]
mod tests;
mod watched;

use crate::source_for;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use firstflight_wire::ip::{Packet, Protocol};
use firstflight_wire::udp::Datagram;
use quinn_udp::{UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol as SocketProtocol, Socket as RawSocket, Type};

use crate::link::{Link, short_buffer};
pub use channel::Channel;
use channel::Diversion;
use inbox::Inbox;
use outbox::{Outboxes, Target};
#[cfg(target_os = "linux")]
use reports::Reports;
pub use shared::SharedUdp;
use watched::{Room, Watched};

/// The largest IP packet. Longer received datagrams are dropped.
const MTU: usize = 1500;
/// Size of the sockets' buffers, bytes, if the system allows it: enough for the windows of some connections.
const SOCKET_BUFFER: usize = 4 << 20;
/// After this many consecutive errors a socket is not tried again. Errors about single packets arrive one at
/// a time.
const MAX_ERRORS: u32 = 1000;
/// How many ports are tried to find one that is free for IPv4 and IPv6.
const PORT_TRIES: usize = 16;

/// Sockets for IPv4, IPv6 or both, with one port.
#[derive(Debug)]
pub struct UdpLink {
    v4: Option<Socket>,
    v6: Option<Socket>,
    /// Whether the IPv6 socket is polled first for received datagrams.
    v6_first: bool,
    /// What it [adopted](Self::adopt), as long as it lives.
    adopted: Vec<Arc<std::net::UdpSocket>>,
}

#[derive(Debug)]
struct Socket {
    io: Arc<Watched>,
    /// For what the link sends.
    room: Room,
    state: UdpSocketState,
    local: SocketAddr,
    inbox: Inbox,
    outbox: Outboxes,
    /// Takes the datagrams that are not for the link.
    diversion: Option<Diversion>,
    /// Errors since the last datagram.
    errors: u32,
    /// See [`Link::look`].
    looks: bool,
    /// ICMP errors about sent packets, if the link passes them on.
    #[cfg(target_os = "linux")]
    reports: Option<Reports>,
}

impl UdpLink {
    /// A link on a socket at this address and port (0: the system chooses). With the unspecified address
    /// (`0.0.0.0` or `::`) it serves all addresses of that family, and answers leave from the address that
    /// was asked.
    ///
    /// Call it within a tokio runtime whose I/O driver is enabled. Elsewhere tokio panics.
    ///
    /// # Errors
    /// Those of the system, for example if the address is not one of this host, or the port is not free.
    pub fn bind(local: SocketAddr) -> io::Result<Self> {
        let socket = Socket::bind(local)?;
        let (v4, v6) = if local.is_ipv4() { (Some(socket), None) } else { (None, Some(socket)) };
        Ok(Self { v4, v6, v6_first: false, adopted: Vec::new() })
    }

    /// A link at all addresses of this host, IPv4 and IPv6, at this port (0: the system chooses). It uses
    /// only IPv4 on a host without IPv6.
    ///
    /// Call it within a tokio runtime, as [`UdpLink::bind`].
    ///
    /// # Errors
    /// Those of the system, for example if the port is not free.
    pub fn bind_all(port: u16) -> io::Result<Self> {
        let mut tries = if port == 0 { PORT_TRIES } else { 1 };
        loop {
            tries -= 1;
            let v4 = Socket::bind((Ipv4Addr::UNSPECIFIED, port).into())?;
            let v6 = match Socket::bind((Ipv6Addr::UNSPECIFIED, v4.local.port()).into()) {
                Ok(v6) => Some(v6),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => continue,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
                Err(_) => None,
            };
            return Ok(Self { v4: Some(v4), v6, v6_first: false, adopted: Vec::new() });
        }
    }

    /// A link for a client of `remote`. Its socket has the address from which the kernel would send there,
    /// and a port that the kernel chooses. The link passes on ICMP errors ([`UdpLink::heed_icmp`]).
    ///
    /// Call it within a tokio runtime, as [`UdpLink::bind`].
    ///
    /// # Errors
    /// Those of the system, for example if there is no route to `remote`.
    pub fn towards(remote: SocketAddr) -> io::Result<Self> {
        Self::bind(source_for(remote)?)?.heed_icmp()
    }

    /// A link for a client of several servers. It has sockets of both families, if the host has both, on one
    /// port that the system chooses. Packets leave from the address that they name, so each connection can
    /// use the address that the kernel's routes choose for its server ([`source_for`]). So a family whose
    /// packets get lost does not affect the other one. `remotes` are the servers that are known already: if
    /// all of them have link-local addresses, the only socket is one on the first server's link, because a
    /// packet does not name the link. The link passes on ICMP errors ([`UdpLink::heed_icmp`]).
    ///
    /// Call it within a tokio runtime, as [`UdpLink::bind`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn client(remotes: &[SocketAddr]) -> io::Result<Self> {
        let on_a_link = |at: &SocketAddr| matches!(at.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local());
        match remotes.first() {
            Some(&first) if remotes.iter().all(on_a_link) => Self::towards(first),
            _ => Self::bind_all(0)?.heed_icmp(),
        }
    }

    /// Passes on ICMP errors about sent packets, as ICMP packets. A client then learns at once that the
    /// server's UDP port is closed, if the server's host quotes enough of the SYN (Linux does). Use it only
    /// for clients: a server would receive an error for each client that has gone. It has an effect only on
    /// Linux.
    ///
    /// Call it within a tokio runtime, as [`UdpLink::bind`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn heed_icmp(mut self) -> io::Result<Self> {
        for socket in [&mut self.v4, &mut self.v6].into_iter().flatten() {
            socket.heed_icmp()?;
        }
        Ok(self)
    }

    /// A link on a bound socket that was made elsewhere, for example to find out how it is reached
    /// (`firstflight_verifier::reach`). It must not be connected, and nothing else may read from it as long as the link
    /// lives, which holds it as long.
    ///
    /// Call it within a tokio runtime, as [`UdpLink::bind`].
    ///
    /// # Errors
    /// Those of the system. [`io::ErrorKind::InvalidInput`] for an IPv6 socket that also receives IPv4.
    pub fn adopt(socket: impl Into<Arc<std::net::UdpSocket>>) -> io::Result<Self> {
        let owner = socket.into();
        let raw = RawSocket::from(owner.try_clone()?);
        let v4 = raw.local_addr()?.as_socket().is_some_and(|local| local.is_ipv4());
        if !v4
            && !raw.only_v6()?
            && raw.local_addr()?.as_socket_ipv6().is_some_and(|a| a.ip().is_unspecified())
        {
            let message = "an IPv6 socket that takes IPv4 as well";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let socket = Socket::take(raw)?;
        let (v4, v6) = if v4 { (Some(socket), None) } else { (None, Some(socket)) };
        Ok(Self { v4, v6, v6_first: false, adopted: vec![owner] })
    }

    /// This link and `other`, which have sockets of different families on one port, as one link.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if they have sockets of the same family, or on different ports.
    pub fn join(mut self, other: Self) -> io::Result<Self> {
        let both = (self.v4.is_some() && other.v4.is_some()) || (self.v6.is_some() && other.v6.is_some());
        if both || self.port() != other.port() {
            let message = "a link has one socket for IPv4 and one for IPv6, on one port";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.adopted.extend(other.adopted);
        Ok(Self {
            v4: self.v4.or(other.v4),
            v6: self.v6.or(other.v6),
            v6_first: false,
            adopted: self.adopted,
        })
    }

    /// The UDP port, of both families.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.sockets().next().map_or(0, |socket| socket.local.port())
    }

    /// The addresses of its sockets. The unspecified address stands for all addresses of its family.
    pub fn local_ips(&self) -> impl Iterator<Item = IpAddr> {
        self.sockets().map(|socket| socket.local.ip())
    }

    fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.v4.iter().chain(&self.v6)
    }
}

impl Socket {
    fn bind(local: SocketAddr) -> io::Result<Self> {
        Self::take(Self::bound(local, false)?)
    }

    /// A socket at this address, which others may share or not.
    fn bound(local: SocketAddr, shared: bool) -> io::Result<RawSocket> {
        let raw = RawSocket::new(Domain::for_address(local), Type::DGRAM, Some(SocketProtocol::UDP))?;
        if local.is_ipv6() {
            // IPv4 has its own socket.
            raw.set_only_v6(true)?;
        }
        if shared {
            shared::allow(&raw)?;
        }
        raw.bind(&local.into())?;
        Ok(raw)
    }

    /// A bound socket.
    fn take(raw: RawSocket) -> io::Result<Self> {
        raw.set_nonblocking(true)?;
        let io = Arc::new(Watched::new(raw.into())?);
        let room = Room::new(&io)?;
        let state = offloads(&io)?;
        // The system may allow less. Then bursts are lost, as on any narrow path.
        let _ = state.set_send_buffer_size(UdpSockRef::from(io.get()), SOCKET_BUFFER);
        let _ = state.set_recv_buffer_size(UdpSockRef::from(io.get()), SOCKET_BUFFER);
        let local = io.get().local_addr()?;
        Ok(Self {
            io,
            room,
            state,
            local,
            inbox: Inbox::new(),
            outbox: Outboxes::default(),
            diversion: None,
            errors: 0,
            looks: false,
            #[cfg(target_os = "linux")]
            reports: None,
        })
    }

    /// From now on ICMP errors about sent packets arrive as ICMP packets.
    fn heed_icmp(&mut self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            self.reports = Some(Reports::new(&self.io)?);
        }
        Ok(())
    }

    /// The next ICMP error, or that there is none now.
    fn poll_report(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<usize> {
        #[cfg(target_os = "linux")]
        if let Some(reports) = &mut self.reports {
            match ready!(reports.poll_next(cx, &mut self.io, self.local, buf)) {
                Ok(len) => return Poll::Ready(len),
                // No descriptor is left to watch for errors, so the socket continues without them.
                Err(_) => self.reports = None,
            }
        }
        let _ = (cx, buf);
        Poll::Pending
    }

    /// Whether an error of a system call is about an earlier packet. This error then also arrives as an ICMP
    /// packet.
    fn reported(&self, error: &io::Error) -> bool {
        #[cfg(target_os = "linux")]
        return self.reports.is_some() && outbox::reported(error);
        #[cfg(not(target_os = "linux"))]
        {
            let _ = error;
            false
        }
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            if let Some(len) = self.inbox.next(self.local, self.diversion.as_ref(), buf) {
                return Poll::Ready(Ok(len));
            }
            if let Poll::Ready(len) = self.poll_report(cx, buf) {
                return Poll::Ready(Ok(len));
            }
            let ready = self.io.poll_recv_ready(cx)?.is_ready();
            if !ready && !std::mem::take(&mut self.looks) {
                return Poll::Pending;
            }
            let (state, inbox) = (&self.state, &mut self.inbox);
            let received = match ready {
                true => self.io.try_recv(|socket| inbox.fill(state, socket)),
                false => inbox.fill(state, UdpSockRef::from(self.io.get())).map(|all| self.looks = !all),
            };
            match received {
                Ok(()) => self.errors = 0,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock || self.reported(&error) => {}
                Err(error) => {
                    // In most cases it reports that a sent packet did not arrive, and the socket itself
                    // works.
                    self.errors += 1;
                    if self.errors >= MAX_ERRORS {
                        return Poll::Ready(Err(error));
                    }
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbox.is_empty() {
            ready!(self.room.poll(cx))?;
            match self.outbox.send(&self.state, UdpSockRef::from(self.io.get())) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.room.is_missing()?,
                // After a refusal quinn-udp stops using offload and ECN marks, even if only the address of one
                // datagram was the cause. Start again with a new state: the outbox remembers the cause.
                Err(error) if outbox::refuses(&error) => {
                    if let Ok(state) = offloads(&self.io) {
                        self.state = state;
                    }
                }
                _ => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Switches on the features that the system has: offloads, ECN marks, the destination address of received
/// datagrams, no fragments.
fn offloads(io: &Watched) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(UdpSockRef::from(io.get()))?;
    // Switch off the receive times that quinn-udp 0.6 requests. They are not needed here, and with the
    // receive offload and the address they leave no room for the ECN mark in its buffer.
    #[cfg(target_os = "linux")]
    nix::sys::socket::setsockopt(io.get(), nix::sys::socket::sockopt::ReceiveTimestampns, &false)?;
    Ok(state)
}

impl Link for UdpLink {
    fn mtu(&self) -> usize {
        MTU
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if buf.len() < MTU {
            return Poll::Ready(Err(short_buffer()));
        }
        self.v6_first = !self.v6_first;
        let order = if self.v6_first { [&mut self.v6, &mut self.v4] } else { [&mut self.v4, &mut self.v6] };
        for socket in order.into_iter().flatten() {
            if let Poll::Ready(result) = socket.poll_recv(cx, buf) {
                return Poll::Ready(result);
            }
        }
        Poll::Pending
    }

    fn look(&mut self) {
        self.v4.iter_mut().chain(&mut self.v6).for_each(|socket| socket.looks = true);
    }

    /// Accepts packets with a UDP datagram from the socket's port. Other packets cause an error.
    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let Ok(ip) = Packet::parse(packet) else { return Poll::Ready(Err(invalid())) };
        let datagram = Datagram::parse(ip.payload).ok().filter(|_| ip.protocol == Protocol::Udp);
        let socket = if ip.src.is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        let (Some(datagram), Some(socket)) = (datagram, socket) else {
            return Poll::Ready(Err(invalid()));
        };
        if datagram.src_port != socket.local.port() {
            return Poll::Ready(Err(invalid()));
        }
        let destination = SocketAddr::new(ip.dst, datagram.dst_port);
        let target = Target { destination, src: ip.src, ecn: ip.ecn };
        if socket.outbox.full(&target, datagram.payload, &socket.state) {
            ready!(socket.poll_flush(cx))?;
        }
        socket.outbox.push(target, datagram.payload);
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Flush both, whether or not the first one must wait.
        let results = [&mut self.v4, &mut self.v6].map(|socket| match socket {
            Some(socket) => socket.poll_flush(cx),
            None => Poll::Ready(Ok(())),
        });
        for result in results {
            ready!(result)?;
        }
        Poll::Ready(Ok(()))
    }
}
