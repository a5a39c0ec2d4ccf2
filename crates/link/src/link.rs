//! The trait of everything packets can be sent through in real time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Whether packets of TCP from the first address and port to the second one come by this queue.
pub type ComesHere = Arc<dyn Fn(SocketAddr, SocketAddr) -> bool + Send + Sync>;

/// Sends and receives IP packets.
///
/// Both `poll_*` methods follow the rules of [`std::future::Future::poll`]: on [`Poll::Pending`] the waker of the
/// *last* call is registered, one for each direction, and woken when a retry is worthwhile. Dropping a future that
/// polls a link loses no packet (cancel-safe). A link may keep accepted packets until
/// [`poll_flush`](Self::poll_flush), to send several at once.
///
/// A link may lose, reorder, duplicate and alter packets, as IP does. None of that is an error.
pub trait Link: Send {
    /// The largest packet this link carries in either direction, in bytes. Constant over the life of the link.
    fn mtu(&self) -> usize;

    /// Whether a device with several queues, of which this is one, learns the queue of a flow from the packets that are sent, as a TUN
    /// device does. A network card chooses it by itself: then a connection stays with the queue that got its SYN.
    fn learns_flows(&self) -> bool {
        true
    }

    /// Which packets come by this queue of a device, where that is known before they come: a connect then chooses a local port
    /// whose answers do. `None` if it is not known.
    fn comes_here(&self) -> Option<ComesHere> {
        None
    }

    /// Receives one packet into `buf` and returns its length in bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if `buf` is shorter than [`mtu`](Self::mtu): the caller is at fault,
    /// and no packet is consumed. Any other error is the link's own, and does not mean that the next call
    /// will fail too.
    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;

    /// From now until [`poll_recv`](Self::poll_recv) is pending, it receives every packet that is there, also one of which the
    /// runtime does not know yet. A runtime asks the system for news only now and then.
    fn look(&mut self) {}

    /// Sends one packet. `Ready(Ok(()))` means that the link has accepted it, not that it arrived.
    ///
    /// # Errors
    /// The link's own. The packet is lost. A packet larger than [`mtu`](Self::mtu) causes an error or is lost
    /// without one, depending on the medium.
    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>>;

    /// Sends the packets that the link has kept. Call it when there is no more to send for now. `Pending`
    /// means that some packets wait for room, and the next call continues with them.
    ///
    /// # Errors
    /// The link's own. The packets that it kept are lost.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn mtu(&self) -> usize {
        (**self).mtu()
    }

    fn learns_flows(&self) -> bool {
        (**self).learns_flows()
    }

    fn comes_here(&self) -> Option<ComesHere> {
        (**self).comes_here()
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        (**self).poll_recv(cx, buf)
    }

    fn look(&mut self) {
        (**self).look();
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        (**self).poll_send(cx, packet)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        (**self).poll_flush(cx)
    }
}

/// The error that every link gives for a receive buffer shorter than its MTU.
pub(crate) fn short_buffer() -> io::Error {
    io::Error::from(io::ErrorKind::InvalidInput)
}
