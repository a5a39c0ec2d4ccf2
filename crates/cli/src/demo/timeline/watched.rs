//! A link whose packets are recorded.

use super::record::{Log, PacketPlace};
use firstflight::link::Link;
use std::io;
use std::task::{Context, Poll};

/// The end of the path at `place`.
pub struct WatchedPath<L> {
    link: L,
    place: PacketPlace,
    log: Log,
}

impl<L: Link> WatchedPath<L> {
    pub fn new(link: L, place: PacketPlace, log: Log) -> Self {
        Self { link, place, log }
    }
}

impl<L: Link> Link for WatchedPath<L> {
    fn mtu(&self) -> usize {
        self.link.mtu()
    }

    fn learns_flows(&self) -> bool {
        self.link.learns_flows()
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let result = self.link.poll_recv(cx, buf);
        if let Poll::Ready(Ok(length)) = &result
            && let Some(packet) = buf.get(..*length)
        {
            self.log.arrived(packet);
        }
        result
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        let result = self.link.poll_send(cx, packet);
        if matches!(result, Poll::Ready(Ok(()))) {
            self.log.sent(self.place, packet);
        }
        result
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.poll_flush(cx)
    }
}
