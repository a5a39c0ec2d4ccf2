//! The trait of everything packets can be sent through in real time.

use std::io;
use std::task::{Context, Poll};

/// A place to send IP packets to and to receive them from.
///
/// Both `poll_*` methods follow the rules of [`std::future::Future::poll`]: on [`Poll::Pending`] the waker of the
/// *last* call is registered, one for each direction, and woken when a retry is worthwhile. Dropping a future that
/// polls a link loses no packet (cancel-safe). A link may keep packets that it took, to send several at once, until
/// [`poll_flush`](Self::poll_flush).
///
/// A link may lose, reorder, duplicate and alter packets, as IP does; none of that is an error.
pub trait Link: Send {
    /// The largest packet this link carries in either direction, in bytes. Constant over the life of the link.
    fn mtu(&self) -> usize;

    /// Receives one packet into `buf` and gives its length in bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if `buf` is shorter than [`mtu`](Self::mtu): the caller's fault, no packet is
    /// consumed. Any other error is the link's own and does not say that the next call will fail too.
    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Sends one packet. `Ready(Ok(()))` means that the link took it, not that it arrived.
    ///
    /// # Errors
    /// The link's own; the packet is lost. A packet larger than [`mtu`](Self::mtu) is an error or lost without one,
    /// as the medium does it.
    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>>;

    /// Sends what the link has kept: to be called when there is no more to send for now. `Pending` means that some of
    /// it waits for room, and the same call again will go on with it.
    ///
    /// # Errors
    /// The link's own; what it kept is lost.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn mtu(&self) -> usize {
        (**self).mtu()
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        (**self).poll_recv(cx, buf)
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
