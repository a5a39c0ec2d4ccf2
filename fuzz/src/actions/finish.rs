//! The end of a run: no more packets are lost, applications close, and everything must end.

use super::ends::End;
use super::{HARMLESS_LOSSES, HARMLESS_WAIT, World};
use std::time::Duration;

/// Limits of the rounds (flights of packets, and timers), and of the time that they take, until an application has
/// one more byte or everything has ended. They are not limits for the whole: while an attacker reports a closed
/// window, data is repeated byte by byte.
const MAX_ROUNDS: usize = 5_000;
const PATIENCE: Duration = Duration::from_secs(8 * 3600);
/// Minimum number of bytes that a connection needs for writing or reading.
const SMALLEST_BLOCK: usize = 2_048;

impl World {
    /// Delivers every packet. Both applications write nothing more and read everything, so everything ends.
    pub(super) fn finish(&mut self) {
        self.disturbed |= self.path.losses > HARMLESS_LOSSES || self.waited > HARMLESS_WAIT;
        self.path.perfect();
        self.pump();
        for end in &mut self.ends {
            end.woken = true;
        }
        let (mut rounds, mut limit, mut before) = (0, self.now, None);
        loop {
            let read = Some(self.ends.iter().map(|end| end.read).sum::<usize>());
            rounds += 1;
            if read != before {
                (rounds, limit, before) = (0, self.now + PATIENCE, read);
            }
            assert!(rounds < MAX_ROUNDS, "packets and timers without end: {:#?}", self.ends);
            self.accept();
            // Applications act when they were notified.
            let now = self.now;
            for end in self.ends.iter_mut().filter(|end| end.woken) {
                end.woken = false;
                let stack = &mut self.stacks[end.side];
                end.finish(stack, self.totals[end.side], now);
            }
            self.pump();
            if !self.path.is_empty() {
                self.now += Duration::from_millis(10);
                self.waited = Duration::ZERO;
                for _ in 0..self.path.len() {
                    self.deliver(0);
                }
                self.pump();
                continue;
            }
            if self.ends.iter().all(End::over) {
                break;
            }
            if self.ends.iter().any(|end| end.woken) {
                continue;
            }
            let next = self.next_timer().filter(|at| *at <= limit);
            let Some(next) = next else {
                self.check_stall();
                break;
            };
            self.now = next.max(self.now);
            for stack in &mut self.stacks {
                stack.handle_timeout(self.now);
            }
        }
        self.check_streams();
        self.nothing_is_left();
    }

    /// Checks a world in which nothing has happened for hours although connections are open. A connection may wait
    /// forever for a peer that is gone, or that an attacker told that all is well, but only if nothing of its own is
    /// outstanding. A connection that an attacker told that the window is closed, and that may not believe the peer's
    /// older reports (RFC 9293 §3.10.7.4), keeps probing; others may wait for the memory that its data uses. A
    /// connection with nothing outstanding waits for such a peer.
    fn check_stall(&self) {
        for end in self.ends.iter().filter(|end| !end.over()) {
            let stack = &self.stacks[end.side];
            let unanswered = self.tampered || (self.disturbed && self.is_alone(end));
            let waits = (unanswered || self.is_full_for_ever(1 - end.side)) && end.has_said_all(stack);
            let shut_out = |o: &End| o.side == end.side && o.has_no_window(stack);
            let asks = self.tampered && self.ends.iter().any(shut_out) && stack.poll_timeout().is_some();
            let right = waits || asks || self.is_full_for_ever(end.side);
            assert!(right, "a silent stall of {end:#?}: {:?} among {:#?}", stack.info(end.id), self.ends);
        }
    }

    /// Whether its peer is gone.
    fn is_alone(&self, end: &End) -> bool {
        !self.ends.iter().any(|o| o.side != end.side && o.port == end.port && !o.over())
    }

    /// Whether a stack's memory is completely used by data behind a gap that nothing will fill: the peer is gone, or
    /// an attacker told it that everything had arrived. Nothing reports that to the connection that holds the data.
    fn is_full_for_ever(&self, side: usize) -> bool {
        let stack = &self.stacks[side];
        let full = stack.buffer_bytes() + SMALLEST_BLOCK > stack.config().limits.buffer_bytes;
        let gone = |end: &End| end.side == side && !end.over() && (self.tampered || self.is_alone(end));
        full && self.disturbed && self.ends.iter().any(gone)
    }

    /// If only reordering and few losses happened, every stream must be complete.
    fn check_streams(&self) {
        if self.disturbed {
            return;
        }
        for client in self.ends.iter().filter(|end| end.side == 0) {
            assert_eq!(client.failed, None, "{client:?}");
            let whole = self.ends.iter().any(|child| {
                let ours = child.side == 1 && child.port == client.port && child.failed.is_none();
                ours && (child.read, client.read) == (client.written, child.written)
            });
            assert!(whole, "no whole stream of {client:?} among {:#?}", self.ends);
        }
    }

    fn nothing_is_left(&mut self) {
        for end in std::mem::take(&mut self.ends) {
            self.stacks[end.side].release(end.id, self.now);
        }
        let end = self.now + Duration::from_secs(4 * 3600);
        for rounds in 0.. {
            assert!(rounds < 20_000, "it does not end");
            self.pump();
            self.accept();
            for end in std::mem::take(&mut self.ends) {
                self.stacks[end.side].release(end.id, self.now);
            }
            if self.path.is_empty() {
                match self.next_timer().filter(|at| *at <= end) {
                    Some(next) => self.advance(next.max(self.now)),
                    None => break,
                }
            } else {
                self.deliver(0);
            }
        }
        for stack in &self.stacks {
            assert_eq!((stack.connections(), stack.buffer_bytes()), (0, 0), "left: {stack:?}");
            assert_eq!((stack.time_waits(), stack.poll_timeout()), (0, None), "left: {stack:?}");
        }
    }
}
