//! What an acknowledgement does: the window, the round-trip time, recovery, congestion control.

use super::Connection;
use crate::buffer::Pool;
use crate::congestion::{AckSample, CongestionControl};
use crate::send::{Chunk, DUP_THRESH, Recovery};
use crate::state::State;
use crate::timers::Timer;
use crate::transition::{StateName, Trigger};
use firstflight_wire::tcp::Segment;
use firstflight_wire::{Instant, SeqNum};

impl Connection {
    /// Fifth step of RFC 9293 §3.10.7.4, for an acknowledgement inside the allowed range.
    pub(super) fn take_ack(&mut self, segment: &Segment<'_>, seq: SeqNum, now: Instant, pool: &mut Pool) {
        let ack = segment.ack;
        let window = u32::from(segment.window) << self.snd.scale;
        let had = self.snd.wnd;
        let sacked = if self.facts.sack { self.snd.sack(segment.options.sack().as_slice()) } else { 0 };
        if ack.gt(self.snd.una) {
            self.take_new_ack(segment, now, pool);
        } else if ack == self.snd.una && self.snd.outstanding() {
            let plain = segment.is_empty() && window == had;
            if sacked > 0 || (plain && !self.facts.sack) {
                self.take_duplicate_ack(now);
            }
        }
        if self.search.is_some() {
            self.judge_spared(now);
        }
        self.snd.update_window(seq, ack, window);
        if self.snd.wnd > 0 && self.timers.runs(Timer::Persist) {
            self.timers.stop(Timer::Persist);
            self.rtt.reset_backoff();
            self.backoffs = 0;
        }
        if self.snd.fin_acked() {
            self.fin_acked(now);
        }
    }

    /// Something new was acknowledged.
    fn take_new_ack(&mut self, segment: &Segment<'_>, now: Instant, pool: &mut Pool) {
        let ack = segment.ack;
        let in_flight = self.snd.pipe();
        let acked = ack.distance_from(self.snd.una);
        let buffered = self.snd.buffered();
        self.snd.acknowledge(pool, ack);
        self.totals.bytes_acked += (buffered - self.snd.buffered()) as u64;
        self.sample_rtt(segment, now);
        self.rtt.reset_backoff();
        self.backoffs = 0;
        if self.search.is_some() {
            self.probe_acknowledged(ack);
        }
        self.recovery_step(ack, acked, in_flight, now);
        if self.snd.outstanding() {
            self.arm_retransmit(now);
            self.arm_user_timeout(now, true);
        } else {
            self.timers.stop(Timer::Retransmit);
            self.timers.stop(Timer::User);
        }
        self.offer_room();
    }

    /// Moves recovery on and lets congestion control see the acknowledgement.
    fn recovery_step(&mut self, ack: SeqNum, acked: u32, in_flight: u32, now: Instant) {
        match self.snd.recovery {
            Recovery::Fast { point, .. } if ack.ge(point) => {
                self.snd.recovery = Recovery::Open;
                self.snd.dup_acks = 0;
                let spared = self.search.as_mut().is_some_and(|search| search.spared.take().is_some());
                if !spared {
                    self.control.on_recovery_exit(now);
                }
            }
            Recovery::Fast { ref mut forced, .. } => {
                if self.facts.sack {
                    self.snd.dup_acks = 0;
                } else {
                    // Partial acknowledgement (RFC 6582 §3.2): the next hole, and the segments that
                    // left the network with it.
                    *forced = true;
                    let left = (acked / u32::from(self.snd.mss).max(1)).saturating_sub(1);
                    self.snd.dup_acks = self.snd.dup_acks.saturating_sub(left);
                }
            }
            Recovery::Loss { point } => {
                if ack.ge(point) {
                    self.snd.recovery = Recovery::Open;
                }
                self.grow(acked, in_flight, now);
            }
            Recovery::Open => {
                self.snd.dup_acks = 0;
                self.grow(acked, in_flight, now);
                if self.facts.sack && self.snd.head_lost() {
                    self.enter_fast(now);
                }
            }
        }
    }

    fn grow(&mut self, acked: u32, in_flight: u32, now: Instant) {
        let sample = AckSample {
            now,
            acked,
            in_flight,
            srtt: self.rtt.srtt(),
            min_rtt: self.rtt.min_rtt(),
            cwnd_limited: self.snd.cwnd_limited
                || in_flight + u32::from(self.snd.mss) > self.control.window(),
        };
        self.control.on_ack(&sample);
    }

    /// RFC 5681 §3.2 and RFC 6675 §5: a duplicate says that something left the network.
    fn take_duplicate_ack(&mut self, now: Instant) {
        self.snd.dup_acks = self.snd.dup_acks.saturating_add(1);
        let lost = self.snd.dup_acks >= DUP_THRESH || (self.facts.sack && self.snd.head_lost());
        if lost && self.snd.recovery == Recovery::Open {
            self.enter_fast(now);
        }
    }

    /// A probe that arrived raises the MSS.
    #[inline(never)]
    fn probe_acknowledged(&mut self, ack: SeqNum) {
        if let Some(size) = self.search.as_mut().and_then(|search| search.acknowledged(ack)) {
            self.snd.mss = size;
            self.control.set_mss(u32::from(size));
        }
    }

    /// In a recovery that began with a probe alone: something else was lost, too, and that is congestion.
    #[inline(never)]
    fn judge_spared(&mut self, now: Instant) {
        let spared = self.search.as_ref().and_then(|search| search.spared);
        if spared.is_some_and(|end| !self.snd.lost_only_up_to(end)) {
            self.spare_no_more(now);
        }
    }

    /// In such a recovery `chunk` goes again, and something behind it has arrived: it was lost as well, though
    /// fewer segments than three say so (RFC 6675 NextSeg rule 3).
    #[inline(never)]
    pub(super) fn judge_resent(&mut self, chunk: Chunk, now: Instant) {
        let spared = self.search.as_ref().and_then(|search| search.spared);
        if spared.is_some_and(|end| chunk.seq.ge(end)) && self.snd.is_hole(chunk.seq) {
            self.spare_no_more(now);
        }
    }

    fn spare_no_more(&mut self, now: Instant) {
        if let Some(search) = &mut self.search {
            search.spared = None;
        }
        self.control.on_loss_recovery(now, self.snd.max.distance_from(self.snd.una));
    }

    fn enter_fast(&mut self, now: Instant) {
        let probe = self.search.as_ref().and_then(|search| search.probe());
        let alone = |&(start, end): &(SeqNum, SeqNum)| {
            self.facts.sack && start == self.snd.una && self.snd.lost_only_up_to(end)
        };
        let spared = probe.filter(alone).map(|(_, end)| end);
        if let Some(search) = &mut self.search {
            search.spared = spared;
        }
        // The loss of a probe says something about its size, nothing about congestion (RFC 8899 §3).
        if spared.is_none() {
            self.control.on_loss_recovery(now, self.snd.max.distance_from(self.snd.una));
        }
        self.timed = None;
        self.snd.enter_fast(self.facts.sack);
    }

    /// A round-trip sample: from the timed segment (Karn), else from the echoed timestamp
    /// (RFC 7323 §4.1).
    pub(super) fn sample_rtt(&mut self, segment: &Segment<'_>, now: Instant) {
        if let Some((seq, sent)) = self.timed {
            if segment.ack.ge(seq) {
                self.rtt.sample(now - sent);
                self.timed = None;
            }
            return;
        }
        let Some(ts) = segment.options.timestamps.filter(|t| self.facts.timestamps && t.echo != 0) else {
            return;
        };
        // An echo of something older than the last retransmission has waited for that: a lost ACK,
        // not a long way (RFC 7323 §4 rejects duplicates before it takes their timestamps).
        let old = self.resent_at.is_some_and(|t| (ts.echo.wrapping_sub(self.ts_now(t)) as i32) < 0);
        if !old {
            let ms = self.ts_now(now).wrapping_sub(ts.echo);
            self.rtt.sample(core::time::Duration::from_millis(u64::from(ms.min(120_000))));
        }
    }

    /// Our FIN was acknowledged.
    fn fin_acked(&mut self, now: Instant) {
        if matches!(self.state, State::FinWait1(_) | State::Closing(_) | State::LastAck(_)) {
            self.transit(Trigger::FinAck);
            if self.state.name() == StateName::FinWait2 && self.facts.released {
                self.timers.set(Timer::FinWait2, now + self.config.fin_wait2);
            }
        }
    }

    /// Starts the user timeout when data becomes outstanding, or starts it anew on progress.
    pub(super) fn arm_user_timeout(&mut self, now: Instant, anew: bool) {
        if let Some(limit) = self.config.user_timeout
            && (anew || !self.timers.runs(Timer::User))
        {
            self.timers.set(Timer::User, now + limit);
        }
    }
}
