//! Datagrams of another protocol through the sockets of a link (RFC 7983 does the same for WebRTC).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::watched::Watched;
use super::{MTU, UdpLink, outbox};

/// The most received datagrams that wait for [`Channel::recv_from`]. Further ones are dropped.
const WAITING: usize = 16;

/// A received datagram and its sender.
type ReceivedDatagram = (Box<[u8]>, SocketAddr);

/// Sends and receives datagrams of another protocol through the sockets of a [`UdpLink`], from the same port.
/// They begin with two bytes that no datagram of the link begins with. The link delivers them to the channel
/// and not as packets.
///
/// At most 16 received datagrams of at most 1500 bytes wait. Others are dropped. When the channel is dropped,
/// the link treats its datagrams like all others.
#[derive(Debug)]
pub struct Channel {
    v4: Option<Arc<Watched>>,
    v6: Option<Arc<Watched>>,
    received: mpsc::Receiver<ReceivedDatagram>,
}

/// The side of the link's socket, which delivers datagrams to the channel.
#[derive(Debug, Clone)]
pub(super) struct Diversion {
    prefix: [u8; 2],
    to: mpsc::Sender<ReceivedDatagram>,
}

impl Diversion {
    /// Whether a datagram belongs to the channel. If so, it is put into the channel, or dropped if there is
    /// no room.
    pub(super) fn takes(&self, datagram: &[u8], from: SocketAddr) -> bool {
        if !datagram.starts_with(&self.prefix) || self.to.is_closed() {
            return false;
        }
        if datagram.len() <= MTU {
            // Without room the datagram is lost, as datagrams may be.
            let _ = self.to.try_send((datagram.into(), from));
        }
        true
    }
}

impl UdpLink {
    /// A channel for datagrams that begin with `prefix`. There is one at a time: a new channel replaces the
    /// previous one.
    ///
    /// The link delivers them while it is polled for packets.
    pub fn channel(&mut self, prefix: [u8; 2]) -> Channel {
        let (to, received) = mpsc::channel(WAITING);
        let diversion = Diversion { prefix, to };
        let divert = |socket: &mut Option<super::Socket>| {
            let socket = socket.as_mut()?;
            socket.diversion = Some(diversion.clone());
            Some(Arc::clone(&socket.io))
        };
        Channel { v4: divert(&mut self.v4), v6: divert(&mut self.v6), received }
    }
}

impl Channel {
    /// Sends a datagram.
    ///
    /// # Errors
    /// Those of the system. [`io::ErrorKind::Unsupported`] if the link has no socket of that family.
    pub async fn send_to(&self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        let socket = if to.is_ipv4() { &self.v4 } else { &self.v6 };
        let socket = socket.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        match socket.send_to(datagram, to).await {
            // This call may report that an earlier datagram did not arrive. Then this datagram was not sent.
            Err(error) if outbox::reported(&error) => socket.send_to(datagram, to).await?,
            result => result?,
        };
        Ok(())
    }

    /// Receives the next datagram and its sender. Cancel-safe: a dropped future loses no datagram.
    ///
    /// # Errors
    /// [`io::ErrorKind::BrokenPipe`] when the link is gone or has another channel.
    pub async fn recv_from(&mut self) -> io::Result<(Box<[u8]>, SocketAddr)> {
        self.received.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}
