//! A link that keeps its thread awake for a while after each packet.

use crate::link::{ComesHere, Link};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Keeps the thread that polls a link awake for a while after each packet (busy polling).
///
/// Waking a sleeping thread costs some microseconds, in a virtual machine tens of them, at the end that wakes and at the one
/// that is woken. Between two processes of one machine this is most of what a short connection costs. Instead, the event
/// loop is asked again and again whether a packet has come, until none has come or gone for as long as the window. Other tasks
/// and timers have their turn in between.
///
/// Use it at both ends, with a processor for each, and if the peer usually answers within the window. Start with 50 µs. If
/// nothing follows a packet, it costs up to a window of CPU time. Anybody can send such packets. An idle link costs nothing.
/// It does nothing unless it is polled on a tokio runtime with one thread (`new_current_thread`, or `firstflight::Workers`): with
/// several, another thread sleeps in the event loop, and has to be woken anyway. Poll both directions from one task. The window is
/// real time, so it is not for virtual time.
///
/// ```
/// use firstflight_link::{BusyPoll, Link};
/// use std::time::Duration;
///
/// fn awake(link: impl Link) -> impl Link {
///     BusyPoll::new(link, Duration::from_micros(50))
/// }
/// ```
#[derive(Debug)]
pub struct BusyPoll<L> {
    link: L,
    window: Duration,
    /// A packet was sent or received since the link was last found empty.
    moved: bool,
    /// When the link was found empty behind a packet, while the window lasts.
    since: Option<Instant>,
    /// Whether the runtime has one thread, once that is known.
    single: Option<bool>,
}

impl<L: Link> BusyPoll<L> {
    /// Keeps the thread awake for `window` after each packet of `link`; zero leaves it alone.
    pub const fn new(link: L, window: Duration) -> Self {
        Self { link, window, moved: false, since: None, single: None }
    }

    /// Whether there is a window, and a runtime where it helps.
    fn is_on(&mut self) -> bool {
        let ask =
            || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::CurrentThread);
        !self.window.is_zero() && *self.single.get_or_insert_with(ask)
    }

    /// Whether the window lasts, for a link that is empty.
    fn lasts(&mut self) -> bool {
        if !self.is_on() {
            return false;
        }
        if std::mem::take(&mut self.moved) {
            self.since = Some(Instant::now());
        } else if self.since.is_some_and(|since| since.elapsed() >= self.window) {
            self.since = None;
        }
        self.since.is_some()
    }

    /// Wakes the caller after the other tasks had their turn, and the event loop was asked, which does not sleep then.
    fn come_again(cx: &mut Context<'_>) {
        // It is not ready the first time.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
    }
}

impl<L: Link> Link for BusyPoll<L> {
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
        let received = self.link.poll_recv(cx, buf);
        if received.is_ready() {
            self.moved = true;
        } else if self.lasts() {
            Self::come_again(cx);
        }
        received
    }

    fn look(&mut self) {
        self.link.look();
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        let sent = self.link.poll_send(cx, packet);
        // The caller has usually found the link empty before it sends.
        if sent.is_ready() && !self.moved && self.is_on() {
            self.moved = true;
            Self::come_again(cx);
        }
        sent
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.poll_flush(cx)
    }
}

#[cfg(test)]
mod tests;
