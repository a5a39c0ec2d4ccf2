//! Datagrams for one destination, to be sent in one call.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use firstflight_wire::encapsulation::Carried;
use firstflight_wire::ip::Ecn;
use firstflight_wire::tcp::{Flags, Segment};
use quinn_udp::{EcnCodepoint, Transmit, UdpSockRef, UdpSocketState};

/// The most bytes in one call. The kernel accepts them as one datagram and cuts it.
const MAX_BYTES: usize = 64_000;

/// The addresses and the ECN mark of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub destination: SocketAddr,
    pub src: IpAddr,
    pub ecn: Ecn,
}

/// Datagrams for one target. All have one length, but the last one may be shorter.
#[derive(Default)]
pub(super) struct Outbox {
    target: Option<Target>,
    bytes: Vec<u8>,
    /// Length of each datagram but the last.
    segment: usize,
    /// No datagram can follow the last one, because it is shorter.
    closed: bool,
    /// How many bytes were sent.
    sent: usize,
    /// Send this batch one by one, because the kernel refused it as a whole.
    apart: bool,
    /// The last call for this batch failed with an error about an earlier packet.
    told: bool,
}

/// The batches of a socket. Datagrams that open a connection wait apart, so that they and the segments of other
/// connections, which have other lengths, do not end each other's batches. They leave first: a SYN or SYN-ACK is the first
/// datagram of its connection, so each connection's order stays.
#[derive(Debug, Default)]
pub(super) struct Outboxes {
    opening: Outbox,
    other: Outbox,
    offload: Offload,
}

/// What is known of the segmentation offload.
#[derive(Debug, Default)]
struct Offload {
    /// The kernel refuses it.
    refused: bool,
    /// The last batch went out as a whole.
    proven: bool,
}

impl Outboxes {
    /// Whether what waits must leave before there is room for this datagram.
    pub(super) fn full(&mut self, target: &Target, datagram: &[u8], state: &UdpSocketState) -> bool {
        // A first flight must not depend on an offload that was not seen to work, or was refused: then it goes alone.
        let alone = opens(datagram) && !self.offload.proven;
        let segments = if alone { 1 } else { self.segments(state) };
        !self.of(datagram).takes(target, datagram, segments)
    }

    pub(super) fn push(&mut self, target: Target, datagram: &[u8]) {
        self.of(datagram).push(target, datagram);
    }

    fn of(&mut self, datagram: &[u8]) -> &mut Outbox {
        if opens(datagram) { &mut self.opening } else { &mut self.other }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.opening.is_empty() && self.other.is_empty()
    }

    /// The same without what waits.
    #[cfg(test)]
    pub(super) fn emptied(self) -> Self {
        Self { offload: self.offload, ..Self::default() }
    }

    /// The most datagrams in one call.
    pub(super) fn segments(&self, state: &UdpSocketState) -> usize {
        if self.offload.refused { 1 } else { state.max_gso_segments() }
    }

    /// Sends a batch, or one datagram if there is no offload: see [`Outbox::send`].
    pub(super) fn send(&mut self, state: &UdpSocketState, socket: UdpSockRef<'_>) -> io::Result<()> {
        let segments = self.segments(state);
        let next = if self.opening.is_empty() { &mut self.other } else { &mut self.opening };
        next.send(segments, &mut self.offload, state, socket)
    }
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.target.is_none()
    }

    /// Whether a datagram can join those that wait, at most `segments` in total.
    pub(super) fn takes(&self, target: &Target, datagram: &[u8], segments: usize) -> bool {
        let Some(mine) = &self.target else { return true };
        let fits = self.bytes.len() + datagram.len() <= MAX_BYTES.min(self.segment * segments);
        let alike = mine == target && !datagram.is_empty() && datagram.len() <= self.segment;
        alike && fits && !self.closed && self.sent == 0
    }

    /// Adds a datagram for which there is room.
    pub(super) fn push(&mut self, target: Target, datagram: &[u8]) {
        if self.target.replace(target).is_none() {
            self.segment = datagram.len();
        }
        self.closed = datagram.len() < self.segment;
        self.bytes.extend_from_slice(datagram);
    }

    /// Sends everything, or one datagram if there is no offload. After the error `WouldBlock`, which means
    /// that there is no room, nothing has changed. After another error, datagrams that cannot be sent are
    /// lost, as datagrams may be.
    fn send(
        &mut self,
        segments: usize,
        offload: &mut Offload,
        state: &UdpSocketState,
        socket: UdpSockRef<'_>,
    ) -> io::Result<()> {
        let Some(target) = self.target else { return Ok(()) };
        let len = self.step(segments);
        let contents = self.bytes.get(self.sent..self.sent + len).unwrap_or_default();
        let transmit = Transmit {
            destination: target.destination,
            ecn: EcnCodepoint::from_bits(target.ecn.bits()),
            contents,
            segment_size: (len > self.segment).then_some(self.segment),
            src_ip: (!target.src.is_unspecified()).then_some(target.src),
        };
        let result = state.try_send(socket, &transmit);
        match &result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The cause is the offload or one of the datagrams. Sending them one by one will show it.
            Err(error) if len > self.segment && refuses(error) => {
                (self.apart, offload.proven) = (true, false)
            }
            // The error is about an earlier packet, not this batch: send it once more.
            Err(error) if reported(error) && !self.told => self.told = true,
            Err(_) => self.left(len),
            Ok(()) => {
                offload.refused |= self.apart;
                offload.proven |= len > self.segment;
                self.left(len);
            }
        }
        result
    }

    /// Bytes to send in one call.
    fn step(&self, segments: usize) -> usize {
        let rest = self.bytes.len() - self.sent;
        if segments > 1 && !self.apart { rest } else { rest.min(self.segment) }
    }

    fn left(&mut self, len: usize) {
        (self.sent, self.told) = (self.sent + len, false);
        if self.sent >= self.bytes.len() {
            self.bytes.clear();
            (self.target, self.sent, self.segment) = (None, 0, 0);
            (self.closed, self.apart) = (false, false);
        }
    }
}

/// Whether the kernel refused the call because of an offload, an address or a mark that it does not support.
pub(super) fn refuses(error: &io::Error) -> bool {
    /// Linux's number. The standard library has no name for it.
    const EIO: i32 = 5;
    error.kind() == io::ErrorKind::InvalidInput || error.raw_os_error() == Some(EIO)
}

/// Whether an error may be about an earlier packet, which an ICMP error reported to the kernel.
pub(super) fn reported(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, PermissionDenied};
    /// Linux's ENOPROTOOPT and EMSGSIZE, which have no stable [`io::ErrorKind`].
    const OTHERS: [i32; 2] = [92, 90];
    let known = [ConnectionRefused, HostUnreachable, NetworkUnreachable, PermissionDenied];
    known.contains(&error.kind()) || error.raw_os_error().is_some_and(|number| OTHERS.contains(&number))
}

/// Whether a datagram carries a SYN.
fn opens(datagram: &[u8]) -> bool {
    match Carried::parse(datagram) {
        Ok(Carried::Segment(bytes)) => Segment::parse(bytes).is_ok_and(|s| s.flags.contains(Flags::SYN)),
        _ => false,
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outbox({} bytes)", self.bytes.len() - self.sent)
    }
}
