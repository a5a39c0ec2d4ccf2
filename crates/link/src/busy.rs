//! A link that keeps its thread awake for a while after each packet.

use crate::link::Link;
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

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let received = self.link.poll_recv(cx, buf);
        if received.is_ready() {
            self.moved = true;
        } else if self.lasts() {
            Self::come_again(cx);
        }
        received
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
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    /// A window that does not end.
    const HOUR: Duration = Duration::from_secs(3600);

    /// A link that takes packets, and has one to receive if it is told so.
    #[derive(Default)]
    struct Fake {
        packet: bool,
    }

    impl Link for Fake {
        fn mtu(&self) -> usize {
            1500
        }

        fn poll_recv(&mut self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
            if std::mem::take(&mut self.packet) { Poll::Ready(Ok(1)) } else { Poll::Pending }
        }

        fn poll_send(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Polls the link as the engine's task does: it receives, and then sends. Says how often that task is woken while another
    /// one lets the event loop have its turn.
    async fn turn(link: &mut BusyPoll<Fake>, sends: bool) -> usize {
        let woken = Arc::new(Woken::default());
        let waker = Arc::clone(&woken).into();
        let cx = &mut Context::from_waker(&waker);
        while link.poll_recv(cx, &mut []).is_ready() {}
        if sends {
            assert!(link.poll_send(cx, &[]).is_ready());
        }
        tokio::task::yield_now().await;
        woken.0.load(Ordering::SeqCst)
    }

    #[tokio::test]
    async fn a_packet_that_comes_or_goes_begins_a_window() {
        for sends in [false, true] {
            let mut link = BusyPoll::new(Fake::default(), HOUR);
            assert_eq!(turn(&mut link, false).await, 0, "an idle link is left alone");
            link.link.packet = !sends;
            assert_eq!(turn(&mut link, sends).await, 1);
            assert_eq!(turn(&mut link, false).await, 1, "while the window lasts");
        }
    }

    #[tokio::test]
    async fn without_a_window_the_thread_may_sleep() {
        let mut link = BusyPoll::new(Fake { packet: true }, Duration::ZERO);
        for sends in [true, false] {
            assert_eq!(turn(&mut link, sends).await, 0);
        }
    }

    #[test]
    fn with_several_threads_or_without_a_runtime_nobody_is_kept_awake() {
        let polled = |link: &mut BusyPoll<Fake>| {
            let woken = Arc::new(Woken::default());
            let waker = Arc::clone(&woken).into();
            let cx = &mut Context::from_waker(&waker);
            assert!(link.poll_send(cx, &[]).is_ready());
            while link.poll_recv(cx, &mut []).is_ready() {}
            woken.0.load(Ordering::SeqCst)
        };
        let packet = || BusyPoll::new(Fake { packet: true }, HOUR);
        assert_eq!(polled(&mut packet()), 0);
        let several = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let mut link = several.block_on(async move {
            let task = tokio::spawn(async move {
                let mut link = packet();
                polled(&mut link);
                link
            });
            task.await.unwrap()
        });
        assert!(!link.is_on());
    }

    #[tokio::test]
    async fn a_window_ends() {
        let mut link = BusyPoll::new(Fake { packet: true }, Duration::from_millis(1));
        turn(&mut link, true).await;
        turn(&mut link, false).await;
        std::thread::sleep(Duration::from_millis(20));
        for _ in 0..3 {
            assert_eq!(turn(&mut link, false).await, 0, "nobody polls an idle link");
        }
        link.link.packet = true;
        assert_eq!(turn(&mut link, false).await, 1);
    }

    /// The future of `block_on`, timers and the event loop must not wait until the window has ended.
    #[tokio::test]
    async fn others_have_their_turn_each_time() {
        let polls = Arc::new(AtomicUsize::new(0));
        let mut link = BusyPoll::new(Fake { packet: true }, HOUR);
        let counted = Arc::clone(&polls);
        let task = tokio::spawn(poll_fn(move |cx| {
            counted.fetch_add(1, Ordering::SeqCst);
            while link.poll_recv(cx, &mut []).is_ready() {}
            Poll::<()>::Pending
        }));
        for _ in 0..20 {
            let before = polls.load(Ordering::SeqCst);
            tokio::task::yield_now().await;
            let between = polls.load(Ordering::SeqCst) - before;
            assert!((1..=2).contains(&between), "{between}");
        }
        let begun = polls.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(polls.load(Ordering::SeqCst) > begun, "the thread does not sleep");
        task.abort();
    }
}
