//! Connections as descriptors.

use super::pump::{self, StreamKeeper};
use crate::outcome::ff_outcome;
use firstflight::Stream;
use firstflight::credential::Outcome;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A connection, as a descriptor that does not block.
#[derive(Debug)]
pub(crate) struct MadeConnection {
    /// A socket of the kernel's TCP, or an end of a socket pair, which reads and writes alike.
    pub stream: TcpStream,
    pub remote: SocketAddr,
    pub outcome: Outcome,
    pub early_bytes: u32,
    confirmed: bool,
    rtt: Duration,
}

impl MadeConnection {
    /// The stream's own socket. A stream in UDP has none: its bytes go through a socket pair, and `keeper` lives as long.
    pub(super) fn of(stream: Stream, keeper: impl FnOnce() -> StreamKeeper) -> io::Result<Self> {
        let (remote, outcome, early_bytes) = (stream.peer_addr()?, stream.outcome(), stream.early_bytes());
        let (confirmed, rtt) = (!stream.is_early(), stream.rtt().unwrap_or_default());
        let stream = match stream.into_std()? {
            Ok(tcp) => tcp,
            Err(stream) => TcpStream::from(OwnedFd::from(pump::begin(stream, keeper())?)),
        };
        Ok(Self { stream, remote, outcome, early_bytes, confirmed, rtt })
    }

    /// For the program.
    pub(crate) fn told(&self) -> ff_outcome {
        let info = firstflight_kernel::descriptor::info(&self.stream).ok();
        let mut told = ff_outcome::of(self.outcome, self.early_bytes, info.as_ref());
        if info.is_none() {
            told.confirmed = self.confirmed.into();
            told.rtt_us = u32::try_from(self.rtt.as_micros()).unwrap_or(u32::MAX);
        }
        told
    }
}
