//! Received datagrams that were not taken yet.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use super::channel::Diversion;
use firstflight_wire::ip::{Ecn, Header as IpHeader, Protocol};
use firstflight_wire::udp;
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};

/// Messages received in one call.
const MESSAGES: usize = 8;
/// The longest message. The kernel joins datagrams up to the largest size of one datagram.
const MESSAGE: usize = 1 << 16;

/// The messages that one call received. With receive offload, a message can contain several datagrams of one
/// sender.
pub(super) struct Inbox {
    bytes: Box<[u8]>,
    metas: [RecvMeta; MESSAGES],
    /// Messages in `bytes`.
    count: usize,
    /// The first message that is not taken.
    message: usize,
    /// How many bytes of this message are taken.
    offset: usize,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; MESSAGES * MESSAGE].into(),
            metas: [RecvMeta::default(); MESSAGES],
            count: 0,
            message: 0,
            offset: 0,
        }
    }

    /// Receives. Call it only when everything is taken. Returns whether the socket has nothing more.
    pub(super) fn fill(&mut self, state: &UdpSocketState, socket: UdpSockRef<'_>) -> io::Result<bool> {
        (self.count, self.message, self.offset) = (0, 0, 0);
        let mut chunks = self.bytes.chunks_exact_mut(MESSAGE);
        let mut slices: [IoSliceMut<'_>; MESSAGES] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        self.count = state.recv(socket, &mut slices, &mut self.metas)?;
        // `recvmmsg` fills all messages if it can, unless an ICMP error comes in between. The event loop reports the error,
        // and the socket is registered again (`reports`), which also reports the datagrams that are left. Other systems
        // receive one message at a time.
        Ok(cfg!(target_os = "linux") && self.count < MESSAGES)
    }

    /// Puts in one datagram, as if it had been received.
    #[cfg(test)]
    pub(super) fn put(&mut self, from: SocketAddr, to: Option<IpAddr>, datagram: &[u8]) {
        self.bytes[..datagram.len()].copy_from_slice(datagram);
        let meta = &mut self.metas[0];
        (meta.addr, meta.dst_ip) = (from, to);
        (meta.len, meta.stride) = (datagram.len(), datagram.len());
        (self.count, self.message, self.offset) = (1, 0, 0);
    }

    /// Writes the next datagram with its headers into `buf`, and returns the packet's length. Drops datagrams
    /// that are too long for `buf` or cannot be answered. Skips those that `diversion` takes.
    pub(super) fn next(
        &mut self,
        local: SocketAddr,
        diversion: Option<&Diversion>,
        buf: &mut [u8],
    ) -> Option<usize> {
        while self.message < self.count {
            let meta = self.metas.get(self.message)?;
            let start = self.message * MESSAGE + self.offset;
            let left = meta.len.saturating_sub(self.offset);
            let len = left.min(meta.stride.max(1));
            let datagram = self.bytes.get(start..start + len)?;
            self.offset += len;
            if self.offset >= meta.len {
                (self.message, self.offset) = (self.message + 1, 0);
            }
            if diversion.is_some_and(|diversion| diversion.takes(datagram, meta.addr)) {
                continue;
            }
            if let Some(len) = compose(meta, local, datagram, buf) {
                return Some(len);
            }
        }
        None
    }
}

/// Whether an answer could be sent: not to a multicast or broadcast datagram (RFC 1122 §4.2.3.10), not to
/// port 0, and to a link-local address only if the socket is on that link, because a packet does not name the
/// link.
fn answerable(from: SocketAddr, to: IpAddr, local: IpAddr) -> bool {
    let for_many = match to {
        IpAddr::V4(to) => to.is_multicast() || to.is_broadcast(),
        IpAddr::V6(to) => to.is_multicast(),
    };
    let on_one_link = |ip| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !for_many && from.port() != 0 && (!on_one_link(from.ip()) || on_one_link(local))
}

/// Puts headers in front of a datagram.
fn compose(meta: &RecvMeta, local: SocketAddr, datagram: &[u8], buf: &mut [u8]) -> Option<usize> {
    let dst = meta.dst_ip.unwrap_or(local.ip());
    if !answerable(meta.addr, dst, local.ip()) {
        return None;
    }
    let ip = IpHeader {
        src: meta.addr.ip(),
        dst,
        protocol: Protocol::Udp,
        // The socket does not report it.
        hop_limit: 64,
        ecn: meta.ecn.map_or(Ecn::NotEct, |ecn| Ecn::from_bits(ecn as u8)),
        dont_fragment: true,
        identification: 0,
    };
    let at = ip.emit(udp::HEADER + datagram.len(), buf).ok()?;
    let header = udp::Header { src_port: meta.addr.port(), dst_port: local.port() };
    let at = at + header.emit(datagram.len(), buf.get_mut(at..)?).ok()?;
    buf.get_mut(at..at + datagram.len())?.copy_from_slice(datagram);
    Some(at + datagram.len())
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox({} messages)", self.count - self.message)
    }
}
