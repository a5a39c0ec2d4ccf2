//! How a packet to send is found: first the answers that need no connection, then the connections in turn.

use crate::flows::slot::{InQueue, SlotStage};
use crate::output::Reply;
use crate::stack::Stack;
use firstflight_wire::Instant;
use firstflight_wire::encapsulation::Control;
use firstflight_wire::hint::{likely, unlikely};

impl Stack {
    /// Writes the next packet to send into `out` (at least the MTU long) and returns its length.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        debug_assert!(!self.flows.table.has_notifications(), "notifications were left");
        if unlikely(self.flows.env.outbox.has_replies())
            && let Some(len) = self.flows.env.outbox.poll_reply(out)
        {
            self.flows.env.journal.counters.packets_out += 1;
            return Some(len);
        }
        if unlikely(self.flows.encapsulation.is_some())
            && let Some(key) =
                self.flows.encapsulation.as_mut().and_then(|encapsulation| encapsulation.poll_keep_alive())
            && let Some(len) = self.flows.env.outbox.emit(Reply::Control(key, Control::KeepAlive), out)
        {
            self.flows.env.journal.counters.keep_alives_sent += 1;
            self.flows.env.journal.counters.packets_out += 1;
            return Some(len);
        }
        while let Some(index) = self.flows.env.outbox.poll_turn() {
            let Some(slot) = self.flows.table.slots.get_mut(index) else { continue };
            let body = out.get_mut(slot.key.headers_len()..);
            let sent = body.and_then(|body| slot.conn.poll_transmit(now, body, &mut self.flows.env.pool));
            let whole = match (sent, &mut self.flows.encapsulation) {
                (Some(len), Some(encapsulation)) if unlikely(slot.key.is_carried()) => {
                    // The pair is `None` if the connection is over: its last segment leaves after that.
                    if let Some(pair) = slot.pair {
                        encapsulation.sent(pair, now);
                    }
                    self.flows.env.outbox.wrap_carried(&slot.key, slot.conn.ecn(), len, out)
                }
                (Some(len), _) => self.flows.env.outbox.wrap_raw(&slot.key, slot.conn.ecn(), len, out),
                (None, _) => None,
            };
            // In most cases the connection has sent everything and leaves the queue.
            if likely(sent.is_none() || slot.conn.is_quiet()) {
                self.flows.env.outbox.end_turn();
                slot.turn = InQueue::No;
                let readiness = slot.conn.poll_readiness();
                slot.ready |= readiness;
                if slot.stage == SlotStage::Ended {
                    self.flows.reap(index);
                } else if let Some(at) = slot.deadline() {
                    // An earlier timer stays in place: most timers are pushed back and never reached.
                    self.flows.table.wheel.expedite(index, at.max(now));
                }
                if !readiness.is_empty() {
                    self.flows.announce(index);
                }
            } else {
                self.flows.env.outbox.go_on(index);
            }
            if likely(whole.is_some()) {
                self.flows.env.journal.counters.packets_out += 1;
                return whole;
            }
        }
        None
    }
}
