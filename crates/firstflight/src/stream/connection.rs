//! What a stream needs of a connection, and the connection where there is none.

use super::Way;
use firstflight_credential::{AcceptedBlock, Outcome};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::ReadBuf;

/// A connection: see the methods of [`Stream`](super::Stream).
pub(crate) trait Connection: Sized {
    fn way(&self) -> Way;
    fn rtt(&self) -> Option<Duration>;
    fn outcome(&self) -> Outcome;
    fn peer_addr(&self) -> SocketAddr;
    fn local_addr(&self) -> io::Result<SocketAddr>;
    fn is_early(&self) -> bool;
    fn early_bytes(&self) -> u32;
    /// What the credential block of an accepted first flight said, and how many bytes of data its signature covers.
    fn block(&self) -> Option<(AcceptedBlock, u32)>;
    fn poll_confirmed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn set_nodelay(&self, nodelay: bool) -> io::Result<()>;
    fn nodelay(&self) -> io::Result<bool>;
    fn set_keep_alive(&self, after: Option<Duration>) -> io::Result<()>;
    fn keep_alive(&self) -> io::Result<Option<Duration>>;
    fn set_linger(&self, linger: Option<Duration>) -> io::Result<()>;
    /// Whether nothing was written yet, and nothing connects.
    fn is_idle(&self) -> bool;
    fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;
    fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>>;
    fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    fn poll_send_vectored(&self, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>>;
    fn close_sending(&self) -> io::Result<()>;
    fn abort(&self);
    /// The connection in a value of its own: dropping this one then does nothing to it. `None` if there is no
    /// connection.
    fn hand_over(&mut self) -> Option<Self>;
}

/// The connection of a TCP that was not built in. There is none, so the compiler drops what would be done with it.
#[derive(Debug)]
#[allow(dead_code, reason = "the engine may be there")]
pub(crate) enum Absent {}

impl Connection for Absent {
    fn way(&self) -> Way {
        match *self {}
    }

    fn rtt(&self) -> Option<Duration> {
        match *self {}
    }

    fn outcome(&self) -> Outcome {
        match *self {}
    }

    fn peer_addr(&self) -> SocketAddr {
        match *self {}
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        match *self {}
    }

    fn is_early(&self) -> bool {
        match *self {}
    }

    fn early_bytes(&self) -> u32 {
        match *self {}
    }

    fn block(&self) -> Option<(AcceptedBlock, u32)> {
        match *self {}
    }

    fn poll_confirmed(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    fn set_nodelay(&self, _: bool) -> io::Result<()> {
        match *self {}
    }

    fn nodelay(&self) -> io::Result<bool> {
        match *self {}
    }

    fn set_keep_alive(&self, _: Option<Duration>) -> io::Result<()> {
        match *self {}
    }

    fn keep_alive(&self) -> io::Result<Option<Duration>> {
        match *self {}
    }

    fn set_linger(&self, _: Option<Duration>) -> io::Result<()> {
        match *self {}
    }

    fn is_idle(&self) -> bool {
        match *self {}
    }

    fn poll_receive(&self, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    fn poll_peek(&self, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        match *self {}
    }

    fn poll_send(&self, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match *self {}
    }

    fn poll_send_vectored(&self, _: &mut Context<'_>, _: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match *self {}
    }

    fn close_sending(&self) -> io::Result<()> {
        match *self {}
    }

    fn abort(&self) {
        match *self {}
    }

    fn hand_over(&mut self) -> Option<Self> {
        match *self {}
    }
}
