//! Streams of the kernel.

use super::connection::Connection;
use super::{Kind, Stream, Way};
use firstflight_credential::{AcceptedBlock, Outcome};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::ReadBuf;

pub use firstflight_kernel::Stream as KernelStream;

impl From<KernelStream> for Stream {
    fn from(stream: KernelStream) -> Self {
        Self::of(Kind::Kernel(stream))
    }
}

impl Connection for KernelStream {
    fn way(&self) -> Way {
        Way::Kernel
    }

    fn rtt(&self) -> Option<Duration> {
        Some(self.info().ok()?.srtt).filter(|rtt| !rtt.is_zero())
    }

    fn outcome(&self) -> Outcome {
        Self::outcome(self)
    }

    fn peer_addr(&self) -> SocketAddr {
        Self::peer_addr(self)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }

    fn is_early(&self) -> bool {
        Self::is_early(self)
    }

    fn early_bytes(&self) -> u32 {
        Self::early_bytes(self)
    }

    fn block(&self) -> Option<(AcceptedBlock, u32)> {
        None
    }

    fn poll_confirmed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_handshake_confirmed(cx)
    }

    fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        Self::set_nodelay(self, nodelay)
    }

    fn nodelay(&self) -> io::Result<bool> {
        Self::nodelay(self)
    }

    fn set_keep_alive(&self, after: Option<Duration>) -> io::Result<()> {
        Self::set_keep_alive(self, after)
    }

    fn keep_alive(&self) -> io::Result<Option<Duration>> {
        Self::keep_alive(self)
    }

    fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        Self::set_linger(self, linger)
    }

    fn is_idle(&self) -> bool {
        false
    }

    fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Self::poll_receive(self, cx, buf)
    }

    fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        Self::poll_peek(self, cx, buf)
    }

    fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_send(self, cx, bytes)
    }

    fn poll_send_vectored(&self, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Self::poll_send_vectored(self, cx, bufs)
    }

    fn close_sending(&self) -> io::Result<()> {
        Self::close_sending(self)
    }

    fn abort(&self) {
        // It fails only when the connection is over.
        let _ = Self::abort(self);
    }

    fn hand_over(&mut self) -> Option<Self> {
        Some(self.share())
    }
}
