//! Handles the timers.

use super::{Connection, DueSegments};
use crate::buffer::Pool;
use crate::congestion::CongestionControl;
use crate::error::CloseReason;
use crate::plpmtud::{BASE, BLACK_HOLE, Search};
use crate::receive::AckNeed;
use crate::state::{Hedge, State};
use crate::timers::Timer;
use alloc::boxed::Box;
use core::mem::take;
use core::time::Duration;
use firstflight_wire::Instant;

impl Connection {
    /// Handles all timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Instant, pool: &mut Pool) {
        while let Some(timer) = self.timers.take_expired(now) {
            match timer {
                Timer::Probe => {
                    self.check_app_limited();
                    self.probe_timeout(now);
                    self.report_losses(now);
                }
                Timer::Retransmit => self.retransmit_timeout(now, pool),
                Timer::Persist => self.persist_timeout(now, pool),
                Timer::DelayedAck => self.acknowledge_late(),
                Timer::Keepalive => self.keepalive_timeout(now, pool),
                // `poll_transmit` sends the waiting data next.
                Timer::Pacing => {}
                Timer::User | Timer::FinWait2 => self.give_up(timer, pool),
            }
        }
    }

    /// No data left in time to carry a delayed acknowledgement, or a window update is repeated because the peer
    /// has not continued.
    fn acknowledge_late(&mut self) {
        if self.rcv.need == AckNeed::None {
            self.rcv.reopening.repeat();
        } else {
            self.quick.waited_in_vain();
        }
        self.rcv.need = AckNeed::Now;
    }

    fn give_up(&mut self, timer: Timer, pool: &mut Pool) {
        // A peer that never sends its FIN gets no RST: it would not act on one.
        self.die(CloseReason::TimedOut, pool);
        if timer == Timer::User {
            self.owed.set(DueSegments::RESET);
        }
    }

    fn retransmit_timeout(&mut self, now: Instant, pool: &mut Pool) {
        match &mut self.state {
            State::SynSent(syn) => {
                //= rfc9293 MUST-22
                // A SYN that met an earlier connection or was refused got an answer, perhaps from an attacker,
                // so it does not count.
                let answered = u8::from(syn.met_old)
                    + u8::from(syn.refused)
                    + u8::from(syn.hastened)
                    + u8::from(syn.hedge == Hedge::Sent)
                    + u8::from(syn.too_big);
                if syn.retransmits.saturating_sub(answered) >= self.config.syn_retries {
                    return self.die(CloseReason::TimedOut, pool);
                }
                syn.retransmits += 1;
                syn.timeouts = syn.timeouts.saturating_add(1);
                syn.pending = true;
                let initial = self.config.timeout_at_first();
                let short = syn.first_timeout.is_some_and(|timeout| timeout < initial);
                if syn.retransmits - u8::from(syn.hedge == Hedge::Sent) == 1 && short {
                    // The first timeout came from an old measurement. From here on the timeouts are those of an unknown
                    // path: 1, 2, 4 … s.
                    self.rtt.set_initial(initial);
                } else {
                    self.rtt.backoff();
                }
            }
            State::SynRcvd(syn) => {
                if syn.retransmits >= syn.retries {
                    let linger_s = take(&mut syn.linger_s);
                    if linger_s > 0 {
                        self.timers.set(Timer::Retransmit, now + Duration::from_secs(linger_s.into()));
                        return;
                    }
                    return self.die(CloseReason::TimedOut, pool);
                }
                syn.retransmits += 1;
                syn.pending = true;
                let collapse = syn.early && syn.retransmits == 2;
                self.rtt.backoff();
                if collapse {
                    self.control.on_syn_loss();
                }
            }
            State::TimeWait(_) | State::Closed(_) => return,
            _ => self.data_timeout(now, pool),
        }
        if !matches!(self.state, State::Closed(_)) {
            self.arm_retransmit(now);
        }
    }

    /// RFC 6298 §5.4–5.6 and RFC 5681 §3.1.
    fn data_timeout(&mut self, now: Instant, pool: &mut Pool) {
        // A peer that closed its window again but still answers is probed without limit (RFC 9293 §3.8.6.1,
        // MUST-37).
        //= rfc9293 MUST-35 SHLD-17
        let probing = self.snd.wnd == 0 && now - self.last_heard <= crate::rtt::MAX_RTO;
        //= rfc9293 MUST-20
        if self.backoffs >= self.config.retries && !probing {
            return self.die(CloseReason::TimedOut, pool);
        }
        self.check_app_limited();
        self.enter_loss(now);
        self.report_losses(now);
        self.release_pace();
        self.backoffs = self.backoffs.saturating_add(1);
        self.rtt.backoff();
        if self.search.is_some() || self.backoffs > BLACK_HOLE {
            self.suspect_black_hole(now);
        }
    }

    /// Several timeouts in a row at a raised size mean that the path no longer takes this size (RFC 8899 §4.3).
    fn suspect_black_hole(&mut self, now: Instant) {
        let Some(search) = &mut self.search else {
            // No sizes to try are configured: start from a size that passes nearly everywhere and search up to
            // the size in use (RFC 4821 §7.7), if the lost segments are large enough for their size to be the
            // cause.
            let tried = self.snd.mss;
            if self.config.mtu_probing && tried > BASE {
                self.snd.mss = BASE;
                self.facts.narrowed = true;
                self.control.set_mss(u32::from(BASE));
                let halfway = BASE + (tried - BASE) / 2;
                let search = Search::resting(BASE, [halfway, tried, 0], now).filter(|_| self.facts.sack);
                self.search = search.map(Box::new);
            }
            return;
        };
        search.spared = None;
        if self.backoffs >= BLACK_HOLE && self.snd.mss > search.base() {
            search.complete(now);
            self.snd.mss = search.base();
            self.control.set_mss(u32::from(search.base()));
        }
    }

    /// The window has been closed, or a small segment held back, for long enough.
    fn persist_timeout(&mut self, now: Instant, pool: &mut Pool) {
        if !self.snd.unsent() {
            return;
        }
        //= rfc9293 MUST-37
        if self.probes >= self.config.retries {
            // The peer has not answered any probe. A peer that answers keeps the connection without limit (RFC
            // 9293 §3.8.6.1, MUST-37).
            return self.die(CloseReason::TimedOut, pool);
        }
        if self.snd.wnd == 0 {
            self.probe_window(now);
        } else {
            //= rfc9293 MUST-60
            self.owed.set(DueSegments::SMALL);
            self.timers.set(Timer::Persist, now + self.timeout());
        }
    }

    /// Probes a closed window, or waits for the next probe if the last was answered.
    ///
    /// The interval between probes doubles with each answered probe. A probe without an answer is sent again after
    /// twice the retransmission timeout, and from then on with backoff of its own, so that a lost probe does not delay
    /// the next one.
    //= rfc9293 SHLD-30
    fn probe_window(&mut self, now: Instant) {
        let mut waited = 0;
        if take(&mut self.facts.probed) && self.probes == 0 {
            waited = self.timeout_nanos();
            self.answered = self.answered.saturating_add(1);
            self.rtt.back_off_to(self.answered);
        } else {
            self.facts.probed = true;
            self.owed.set(DueSegments::PROBE);
            self.probes = self.probes.saturating_add(1);
            self.rtt.back_off_to(self.probes);
        }
        self.timers.set(Timer::Persist, now.after_nanos(self.timeout_nanos().saturating_sub(waited)));
    }

    fn keepalive_timeout(&mut self, now: Instant, pool: &mut Pool) {
        let Some(keepalive) = self.config.keepalive else { return };
        let due = self.last_heard + keepalive.idle;
        //= rfc9293 MUST-26
        if now < due && self.probes == 0 {
            return self.timers.set(Timer::Keepalive, due);
        }
        if self.snd.outstanding() || self.snd.unsent() {
            // The retransmission timer or the persist timer watches the peer now.
            return self.timers.set(Timer::Keepalive, now + keepalive.idle);
        }
        //= rfc9293 MUST-29
        if self.probes >= keepalive.probes {
            self.owed.set(DueSegments::RESET);
            return self.die(CloseReason::TimedOut, pool);
        }
        self.probes += 1;
        self.owed.set(DueSegments::PROBE);
        self.timers.set(Timer::Keepalive, now + keepalive.interval);
    }
}
