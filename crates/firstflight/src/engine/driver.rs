//! The task that moves packets between a link and the stack.

use crate::jobs::Jobs;
use crate::mailboxes::Mailboxes;
use crate::shared::{Inner, Shared};
use crate::time::Timer;
use firstflight_link::Link;
use firstflight_stack::{PacketDrop as Dropped, Trace};
use firstflight_wire::Instant;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Packets received or sent before the other direction gets its turn.
const BURST: usize = 64;
/// Timers that are due for longer than this wait for packets that the link has: this host stood still (a suspended
/// machine, a frozen container, SIGSTOP), and what the timers are about may have arrived meanwhile.
const LATE: Duration = Duration::from_millis(500);
/// The most turns that late timers wait. Nobody's packets can hold them up for longer.
const LATE_TURNS: u8 = 64;
/// How often the stack is given the wall clock.
const CLOCK_EVERY: Duration = Duration::from_secs(1);

/// Owns the link. It ends when `stopping` is set, or when the endpoint has no handles left and all connections are
/// closed.
pub(crate) struct Driver<L> {
    shared: Arc<Shared>,
    link: L,
    jobs: Jobs,
    /// What this shard and the others hand to each other.
    post: Option<Mailboxes>,
    received: Vec<u8>,
    sending: Vec<u8>,
    /// Length of a packet in `sending` that the link had no space for.
    unsent: usize,
    timer: Timer,
    timer_at: Option<Instant>,
    clock_at: Instant,
    /// Turns that late timers have waited.
    late: u8,
    /// How often the applications had their turn since the last packet was sent.
    yielded: u8,
    /// Random coefficients for the batch verification of signatures.
    random: ChaCha20Rng,
}

impl<L: Link> Driver<L> {
    pub(crate) fn new(
        shared: Arc<Shared>,
        link: L,
        jobs: Jobs,
        post: Option<Mailboxes>,
        seed: [u8; 32],
    ) -> Self {
        let mtu = link.mtu().max(1280);
        let timer = shared.lock().time.timer();
        Self {
            shared,
            received: vec![0; mtu],
            sending: vec![0; mtu],
            link,
            jobs,
            post,
            unsent: 0,
            timer,
            timer_at: None,
            clock_at: Instant::ZERO,
            late: 0,
            yielded: 0,
            random: ChaCha20Rng::from_seed(seed),
        }
    }

    /// Whether answers have to be sent before more packets are handled. While the link takes nothing, they are lost.
    fn must_send(&self, inner: &Inner) -> bool {
        self.unsent == 0 && inner.stack.is_full_of_answers()
    }

    /// Receives packets from the link. Returns true if there may be more.
    fn receive(&mut self, inner: &mut Inner, now: Instant, cx: &mut Context<'_>) -> io::Result<bool> {
        for _ in 0..BURST {
            if self.must_send(inner) {
                return Ok(true);
            }
            match self.link.poll_recv(cx, &mut self.received) {
                Poll::Ready(Ok(len)) => {
                    if let Some(packet) = self.received.get(..len) {
                        inner.stack.handle_packet(now, packet);
                    }
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Sends the stack's packets. Returns true if there may be more.
    fn send(&mut self, inner: &mut Inner, now: Instant, cx: &mut Context<'_>) -> io::Result<bool> {
        let more = self.hand_over(inner, now, cx);
        // If the flush fails, the packets that the link kept are lost, which TCP tolerates. If it is pending, the
        // link wakes this task.
        let _ = self.link.poll_flush(cx);
        more
    }

    /// Like `send`, but does not flush the link.
    fn hand_over(&mut self, inner: &mut Inner, now: Instant, cx: &mut Context<'_>) -> io::Result<bool> {
        for _ in 0..BURST {
            if self.unsent == 0 {
                match inner.stack.poll_transmit(now, &mut self.sending) {
                    Some(len) => self.unsent = len,
                    None => return Ok(false),
                }
            }
            let packet = self.sending.get(..self.unsent).unwrap_or_default();
            match self.link.poll_send(cx, packet) {
                Poll::Ready(Ok(())) => self.unsent = 0,
                // The packet is lost, which TCP tolerates. A broken link shows when it receives.
                Poll::Ready(Err(_)) => self.unsent = 0,
                Poll::Pending => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Verifies signatures in batches.
    fn verify(&mut self, inner: &mut Inner, now: Instant) {
        while let Some(flights) = inner.stack.poll_verifications() {
            let verdicts = flights.verify(&mut self.random);
            inner.stack.handle_verified(flights, &verdicts, now);
        }
    }

    /// Handles what is due and sets the timer for the next deadline. Returns true if something was due. `more_in` says that
    /// the link may have more packets.
    fn time(&mut self, inner: &mut Inner, now: Instant, more_in: bool, cx: &mut Context<'_>) -> bool {
        if now >= self.clock_at {
            self.clock_at = now + CLOCK_EVERY;
            inner.set_clock();
        }
        if inner.save_due().is_some_and(|at| at <= now) {
            save(inner);
        }
        let due = [inner.stack.poll_timeout(), inner.save_due()];
        let Some(at) = due.into_iter().flatten().min() else {
            self.timer_at = None;
            return false;
        };
        if at <= now {
            if more_in && now - at > LATE && self.late < LATE_TURNS {
                self.late += 1;
                return true;
            }
            self.late = 0;
            inner.stack.handle_timeout(now);
            return true;
        }
        if self.timer_at != Some(at) {
            self.timer_at = Some(at);
            self.timer.reset(at);
        }
        self.timer.poll(cx).is_ready()
    }

    fn run(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = Arc::clone(&self.shared);
        let mut inner = shared.lock();
        // One reading for the whole turn. A timer that is due in the meantime makes another turn.
        let now = inner.begin_turn(cx);
        let result = self.turn(&mut inner, now, cx);
        inner.end_turn(result.is_ready());
        result
    }

    fn turn(&mut self, inner: &mut Inner, now: Instant, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.post.as_mut().is_some_and(|post| post.open(cx)) {
            // What came before a packet that goes round is handled before it.
            self.link.look();
        }
        let mut more_in = self.receive(inner, now, cx)?;
        if let Some(post) = &mut self.post {
            more_in |= post.exchange(&mut inner.stack, now, self.unsent == 0);
        }
        self.verify(inner, now);
        let due = self.time(inner, now, more_in, cx);
        self.jobs.exchange(inner, cx);
        // The applications act before anything is sent, so that their data rides with the acknowledgements. Who accepts a
        // connection often starts a task for it, which needs a turn of its own.
        let woken = inner.dispatch();
        if match self.yielded {
            0 => woken,
            1 => inner.has_accepted(),
            _ => false,
        } && !self.must_send(inner)
        {
            self.yielded += 1;
            return Poll::Ready(Err(io::ErrorKind::Interrupted.into()));
        }
        self.yielded = 0;
        let more_out = self.send(inner, now, cx)?;
        inner.dispatch();
        // Segments come before messages to the server's verifier.
        inner.desk.hand_over(&mut inner.stack);
        while let Some(record) = inner.stack.poll_trace() {
            log(&record);
        }
        // At this point the driver and this call hold one reference each.
        let alone = Arc::strong_count(&self.shared) <= 2 && inner.stack.connections() == 0;
        if let Some(error) = self.post.as_ref().and_then(Mailboxes::failed) {
            return Poll::Ready(Err(error.into()));
        }
        if inner.stopping || alone && self.post.as_mut().is_none_or(Mailboxes::all_alone) {
            save(inner);
            return Poll::Ready(Ok(()));
        }
        // Sending may have set a timer that is due before the one that was just set.
        if more_in || more_out || due || self.time(inner, now, false, cx) {
            return Poll::Ready(Err(io::ErrorKind::Interrupted.into()));
        }
        Poll::Pending
    }
}

impl<L: Link> Future for Driver<L> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let result = match ready!(this.run(cx)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                // Let other tasks run between two bursts.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Ok(()) => None,
            Err(error) => {
                tracing::error!(%error, "the link failed");
                if let Some(post) = &this.post {
                    post.fail(error.kind());
                }
                Some(error.kind())
            }
        };
        this.shared.lock().stop(result);
        Poll::Ready(())
    }
}

// No part of a driver is pinned in place; the system's timer is pinned in its own box.
impl<L> Unpin for Driver<L> {}

/// Writes the cache file if something changed, on a thread where blocking is allowed.
fn save(inner: &mut Inner) {
    if let Some(snapshot) = inner.save() {
        tokio::task::spawn_blocking(move || snapshot.write());
    }
}

/// One record of the engine's trace, as a `tracing` event.
fn log(record: &Trace) {
    match record {
        Trace::Transition(id, t) => {
            tracing::debug!(conn = %id, from = %t.from, to = %t.to, trigger = %t.trigger, "transition");
        }
        Trace::Outcome(id, outcome) => {
            let reason = outcome.reason().map(|r| r.as_str());
            tracing::debug!(conn = %id, outcome = outcome.as_str(), reason, "first flight");
        }
        Trace::Dropped(Dropped::NoConnection) => tracing::trace!("segment of no connection"),
        Trace::Dropped(reason) => tracing::debug!(?reason, "packet dropped"),
        Trace::Segment(id, reason) => tracing::debug!(conn = %id, ?reason, "segment dropped"),
        _ => {}
    }
}
