//! An eavesdropper on the path who sends a request again from another port.

use firstflight::link::Link;
use firstflight_wire::encapsulation::Carried;
use firstflight_wire::ip::{Packet, Protocol};
use firstflight_wire::tcp::{self, Flags, Segment};
use firstflight_wire::udp::{self, Datagram};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

/// Controls the eavesdropper.
#[derive(Debug, Default)]
pub struct Spy(AtomicBool);

impl Spy {
    /// Sets whether the next request is sent again.
    pub fn replays(&self, replays: bool) {
        self.0.store(replays, Ordering::Relaxed);
    }
}

/// A link with an eavesdropper.
pub struct Overheard<L> {
    link: L,
    spy: Arc<Spy>,
    /// The copy of a SYN with data. It is sent before the client's next packet, a round trip later.
    copy: Option<Vec<u8>>,
}

impl<L: Link> Overheard<L> {
    pub fn new(link: L, spy: Arc<Spy>) -> Self {
        Self { link, spy, copy: None }
    }
}

impl<L: Link> Link for Overheard<L> {
    fn mtu(&self) -> usize {
        self.link.mtu()
    }

    fn learns_flows(&self) -> bool {
        self.link.learns_flows()
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.link.poll_recv(cx, buf)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        if let Some(copy) = &self.copy {
            ready!(self.link.poll_send(cx, copy))?;
            self.copy = None;
        }
        ready!(self.link.poll_send(cx, packet))?;
        if self.spy.0.load(Ordering::Relaxed)
            && let Some(copy) = from_another_port(packet)
        {
            self.spy.replays(false);
            self.copy = Some(copy);
        }
        Poll::Ready(Ok(()))
    }
}

/// A copy of a SYN with data, with another source port. In UDP the inner source port changes.
fn from_another_port(packet: &[u8]) -> Option<Vec<u8>> {
    let ip = Packet::parse(packet).ok()?;
    let (inner, in_udp) = match ip.protocol {
        Protocol::Udp => match Carried::parse(Datagram::parse(ip.payload).ok()?.payload).ok()? {
            Carried::Segment(segment) => (segment, true),
            Carried::Control(_) => return None,
        },
        _ => (ip.payload, false),
    };
    let segment = Segment::parse(inner).ok()?;
    if segment.flags != Flags::SYN || segment.payload.is_empty() {
        return None;
    }
    let (whole, at) = (packet.len() - ip.payload.len(), packet.len() - inner.len());
    let mut copy = packet.to_vec();
    // The port is below the client's ephemeral ports (32,768 and above), any of which its next connection may use.
    let port = (segment.src_port & 0x3fff) | 0x4000;
    copy.get_mut(at..at + 2)?.copy_from_slice(&port.to_be_bytes());
    let body = copy.get_mut(whole..)?;
    if in_udp {
        udp::fill_checksum(body, ip.src, ip.dst);
    } else {
        tcp::fill_checksum(body, ip.src, ip.dst);
    }
    Some(copy)
}
