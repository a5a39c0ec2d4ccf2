//! Streams of the kernel.

use super::connection::Connection;
use super::{Kind, Stream, Way};
use firstflight_credential::{AcceptedBlock, Outcome};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

pub(crate) use firstflight_kernel::Stream as KernelStream;

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

    fn local_addr(&self) -> Option<SocketAddr> {
        Self::local_addr(self).ok()
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

    fn set_nodelay(&self, nodelay: bool) {
        // It fails only when the connection is over, and then it makes no difference.
        let _ = Self::set_nodelay(self, nodelay);
    }

    fn nodelay(&self) -> bool {
        Self::nodelay(self).unwrap_or_default()
    }

    fn abort(&self) {
        // It fails only when the connection is over.
        let _ = Self::abort(self);
    }

    fn hand_over(&mut self) -> Option<Self> {
        self.try_clone().ok()
    }
}
