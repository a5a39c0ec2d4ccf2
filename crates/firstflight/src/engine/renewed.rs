//! A link that is made again when it has failed.

use crate::time::{Time, Timer};
use firstflight_link::{ComesHere, Link};
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The first and the longest pause before a link is made again.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// After this many failures in a row the link is given up: half a minute.
const MOST_TRIES: u32 = 36;

/// Makes links with `F`. While there is none, what is sent is lost, as on a cut wire, and connections last as long as
/// their timeouts allow.
pub(crate) struct Renewed<L, F> {
    link: Option<L>,
    make: F,
    mtu: usize,
    learns_flows: bool,
    comes_here: Option<ComesHere>,
    time: Time,
    timer: Timer,
    /// Failures since the last packet.
    failures: u32,
}

impl<L: Link, F: FnMut() -> io::Result<L>> Renewed<L, F> {
    /// The first link. Call it within the runtime that shall use it.
    pub(crate) fn new(mut make: F, time: &Time) -> io::Result<Self> {
        let link = make()?;
        let (mtu, learns_flows) = (link.mtu(), link.learns_flows());
        let (comes_here, timer) = (link.comes_here(), time.timer());
        Ok(Self {
            link: Some(link),
            make,
            mtu,
            learns_flows,
            comes_here,
            time: time.clone(),
            timer,
            failures: 0,
        })
    }

    /// The link failed, or was not made. After a pause it is made again, if it did not fail too often.
    fn pause(&mut self, error: io::Error) -> io::Result<()> {
        self.link = None;
        self.failures += 1;
        if self.failures > MOST_TRIES {
            return Err(error);
        }
        if self.failures == 1 {
            tracing::warn!(%error, "a link failed and will be made again");
        }
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures.saturating_sub(1).min(16)).min(PAUSE_MAX);
        self.timer.reset(self.time.now() + pause);
        Ok(())
    }
}

impl<L: Link, F: FnMut() -> io::Result<L> + Send> Link for Renewed<L, F> {
    fn mtu(&self) -> usize {
        self.mtu
    }

    fn learns_flows(&self) -> bool {
        self.learns_flows
    }

    fn comes_here(&self) -> Option<ComesHere> {
        self.comes_here.clone()
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            if let Some(link) = &mut self.link {
                match ready!(link.poll_recv(cx, buf)) {
                    // The caller's fault, not the link's.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                        return Poll::Ready(Err(error));
                    }
                    Err(error) => self.pause(error)?,
                    Ok(len) => {
                        self.failures = 0;
                        return Poll::Ready(Ok(len));
                    }
                }
            }
            ready!(self.timer.poll(cx));
            match (self.make)() {
                // The stack does not learn of another MTU.
                Ok(link) if link.mtu() != self.mtu => {
                    self.pause(io::Error::other("the new link has another MTU"))?;
                }
                Ok(link) => {
                    tracing::info!("a link was made again");
                    self.link = Some(link);
                }
                Err(error) => self.pause(error)?,
            }
        }
    }

    fn look(&mut self) {
        if let Some(link) = &mut self.link {
            link.look();
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        self.link.as_mut().map_or(Poll::Ready(Ok(())), |link| link.poll_send(cx, packet))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.as_mut().map_or(Poll::Ready(Ok(())), |link| link.poll_flush(cx))
    }
}
