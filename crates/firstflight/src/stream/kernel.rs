//! Streams of the kernel.

use super::connection::Connection;
use super::{Kind, Race, Stream, Way};
use crate::client::ConnectTimes;
use firstflight_credential::{AcceptedBlock, Outcome};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

pub(super) use crate::client::ConnectTimes as Times;
pub(crate) use firstflight_kernel::Stream as KernelStream;

impl From<KernelStream> for Stream {
    fn from(stream: KernelStream) -> Self {
        Self::of(Kind::Kernel(stream))
    }
}

impl Race {
    pub(crate) const fn new(data_left_twice: bool) -> Self {
        Self { data_left_twice }
    }
}

impl Stream {
    /// A stream of the kernel after a race. `elsewhere` is the outcome of its first flight if that was in the SYN of an
    /// attempt at another address.
    pub(crate) const fn raced(stream: KernelStream, race: Option<Race>, elsewhere: Option<Outcome>) -> Self {
        Self { kind: Kind::Kernel(stream), race, elsewhere, times: None, stages: None }
    }

    /// The same stream, which took this long to connect.
    pub(crate) const fn took(mut self, times: ConnectTimes) -> Self {
        self.times = Some(times);
        self
    }

    /// How long the connect took, of a stream by [`Client::connect`](crate::Client::connect).
    #[must_use]
    pub const fn times(&self) -> Option<ConnectTimes> {
        self.times
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
