//! Datagrams for one place, to leave in one call.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use firstflight_wire::carrier::Carried;
use firstflight_wire::ip::Ecn;
use firstflight_wire::tcp::{Flags, Segment};
use quinn_udp::{EcnCodepoint, Transmit, UdpSockRef, UdpSocketState};

/// Most bytes in one call: the kernel takes them as one datagram and cuts it.
const MAX_BYTES: usize = 64_000;

/// Where datagrams go, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub destination: SocketAddr,
    pub src: IpAddr,
    pub ecn: Ecn,
}

/// Datagrams for one target: all of one length, the last one perhaps shorter.
#[derive(Default)]
pub(super) struct Outbox {
    target: Option<Target>,
    bytes: Vec<u8>,
    /// Length of all but the last.
    segment: usize,
    /// Nothing goes behind the last one: it is shorter, or opens a connection.
    closed: bool,
    /// What has left.
    sent: usize,
    /// These go one by one: the kernel refused them together.
    apart: bool,
    /// It is the offload that the kernel refuses.
    no_offload: bool,
    /// The last call for this batch failed with an error about an earlier packet.
    told: bool,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.target.is_none()
    }

    /// Whether a datagram can join those that wait, at most `segments` in all.
    pub fn takes(&self, target: &Target, datagram: &[u8], segments: usize) -> bool {
        let Some(mine) = &self.target else { return true };
        let fits = self.bytes.len() + datagram.len() <= MAX_BYTES.min(self.segment * segments);
        let alike = mine == target && !datagram.is_empty() && datagram.len() <= self.segment;
        // What opens a connection leaves alone: a first flight is not to hang on an offload's whims.
        alike && fits && !self.closed && self.sent == 0 && !opens(datagram)
    }

    /// Adds a datagram for which there is room.
    pub fn push(&mut self, target: Target, datagram: &[u8]) {
        if self.target.replace(target).is_none() {
            self.segment = datagram.len();
        }
        self.closed = datagram.len() < self.segment || opens(datagram);
        self.bytes.extend_from_slice(datagram);
    }

    /// Most datagrams in one call.
    pub fn segments(&self, state: &UdpSocketState) -> usize {
        if self.no_offload { 1 } else { state.max_gso_segments() }
    }

    /// Sends everything, or one datagram where there is no offload. After an error that says that there is no room
    /// (`WouldBlock`) nothing has changed; after another one, what cannot be sent is lost, as datagrams may be.
    pub fn send(&mut self, state: &UdpSocketState, socket: UdpSockRef<'_>) -> io::Result<()> {
        let Some(target) = self.target else { return Ok(()) };
        let len = self.step(self.segments(state));
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
            // The offload's fault, or that of what was to be sent: one by one it will show.
            Err(error) if len > self.segment && refuses(error) => self.apart = true,
            // The error is about an earlier packet, not this batch: send it once more.
            Err(error) if reported(error) && !self.told => self.told = true,
            Err(_) => self.left(len),
            Ok(()) => {
                self.no_offload |= self.apart;
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

/// Whether the kernel found fault with the call: with an offload, an address or a mark that it does not have.
pub(super) fn refuses(error: &io::Error) -> bool {
    /// Linux's number, which the standard library gives no name to.
    const EIO: i32 = 5;
    error.kind() == io::ErrorKind::InvalidInput || error.raw_os_error() == Some(EIO)
}

/// Whether an error may be about a packet that was sent before, of which the kernel learnt by ICMP.
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
