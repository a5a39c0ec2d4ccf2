//! The tap: records the packets of a link, and never disturbs it.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Direction, PcapWriter, PcapWriterError};
use crate::link::{ComesHere, Link};

/// A capture that several links share. Clones record into the same capture.
#[derive(Clone)]
pub struct PcapTap {
    shared: Arc<Mutex<Shared>>,
}

/// Returns the time since 1970-01-01 00:00 UTC.
type WallClock = Box<dyn Fn() -> Duration + Send>;

struct Shared {
    writer: PcapWriter<Box<dyn Write + Send>>,
    clock: WallClock,
    errors: u64,
}

impl PcapTap {
    /// Starts a capture with the times of the system's clock, see [`PcapWriter::new`].
    ///
    /// # Errors
    /// As [`PcapWriter::new`].
    pub fn new(
        output: impl Write + Send + 'static,
        application: &str,
        interfaces: &[&str],
    ) -> Result<Self, PcapWriterError> {
        let system = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::with_clock(output, application, interfaces, system)
    }

    /// Like [`PcapTap::new`], with the times of `clock`, which returns the time since 1970-01-01 00:00 UTC.
    ///
    /// # Errors
    /// As [`PcapWriter::new`].
    pub fn with_clock(
        output: impl Write + Send + 'static,
        application: &str,
        interfaces: &[&str],
        clock: impl Fn() -> Duration + Send + 'static,
    ) -> Result<Self, PcapWriterError> {
        let output: Box<dyn Write + Send> = Box::new(output);
        let writer = PcapWriter::new(output, application, interfaces)?;
        let shared = Shared { writer, clock: Box::new(clock), errors: 0 };
        Ok(Self { shared: Arc::new(Mutex::new(shared)) })
    }

    /// Records a packet at the present time of the capture's clock. Failures are only counted.
    pub fn record(&self, interface: u32, direction: Direction, packet: &[u8]) {
        let mut shared = self.lock();
        let timestamp = u64::try_from((shared.clock)().as_nanos()).unwrap_or(u64::MAX);
        if shared.writer.write(timestamp, interface, direction, packet).is_err() {
            shared.errors += 1;
        }
    }

    /// Writes out the buffered packets. A failure is also counted.
    ///
    /// # Errors
    /// [`PcapWriterError::Io`].
    pub fn flush(&self) -> Result<(), PcapWriterError> {
        let mut shared = self.lock();
        let result = shared.writer.flush();
        shared.errors += u64::from(result.is_err());
        result
    }

    /// How often recording or flushing failed.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.lock().errors
    }

    /// A writer that panicked must not stop the traffic.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PcapTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapTap").field("errors", &self.errors()).finish_non_exhaustive()
    }
}

/// A link whose packets are recorded in both directions: received packets when they are received, and sent
/// packets when the link has accepted them. The capture is flushed when the link is dropped.
#[derive(Debug)]
pub struct Tapped<L: Link> {
    link: L,
    tap: PcapTap,
    interface: u32,
}

impl<L: Link> Tapped<L> {
    /// Records `link` as interface number `interface` of the capture.
    pub fn new(link: L, tap: PcapTap, interface: u32) -> Self {
        Self { link, tap, interface }
    }

    /// The link below.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// The capture.
    pub fn tap(&self) -> &PcapTap {
        &self.tap
    }
}

impl<L: Link> Link for Tapped<L> {
    fn mtu(&self) -> usize {
        self.link.mtu()
    }

    fn learns_flows(&self) -> bool {
        self.link.learns_flows()
    }

    fn comes_here(&self) -> Option<ComesHere> {
        self.link.comes_here()
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let result = self.link.poll_recv(cx, buf);
        if let Poll::Ready(Ok(length)) = &result
            && let Some(packet) = buf.get(..*length)
        {
            self.tap.record(self.interface, Direction::In, packet);
        }
        result
    }

    fn look(&mut self) {
        self.link.look();
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        let result = self.link.poll_send(cx, packet);
        if matches!(result, Poll::Ready(Ok(()))) {
            self.tap.record(self.interface, Direction::Out, packet);
        }
        result
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.poll_flush(cx)
    }
}

impl<L: Link> Drop for Tapped<L> {
    fn drop(&mut self) {
        // The tap, which may outlive the link, counts a failure. It cannot be reported otherwise.
        let _ = self.tap.flush();
    }
}
