//! Loss recovery: RACK-TLP (RFC 8985) with SACK, duplicate acknowledgements without SACK (RFC 6582),
//! proportional rate reduction (RFC 9937), F-RTO (RFC 5682), and undoing a needless reduction (RFC 3522, RFC
//! 3708).

use super::acknowledge::Delivery;
use super::{Connection, DueSegments};
use crate::congestion::{AckSample, CongestionControl};
use crate::flight::{SegmentMarks, Sent};
use crate::rack::{DUP_THRESH, Path};
use crate::recovery::{Episode, Frto, Prr, Recovery, Undo};
use crate::timers::Timer;
use alloc::boxed::Box;
use core::time::Duration;
use firstflight_wire::{Instant, SeqNum};

/// With a single segment under way, a tail loss probe allows for a delayed acknowledgement (RFC 8985 §7.2;
/// Linux: 200 ms), nanoseconds.
const DELAYED_ACK: u64 = 200_000_000;
/// With more segments, it allows only for a short delay (Linux: 2 ms), nanoseconds.
const SLACK: u64 = 2_000_000;

impl Connection {
    /// The current congestion window.
    #[inline]
    pub(super) fn window(&self) -> u32 {
        match self.snd.recovery.episode().and_then(|episode| episode.prr.as_ref()) {
            Some(prr) if !self.control.models_path() => prr.window(),
            _ => self.control.window(),
        }
    }

    /// Advances recovery by one acknowledgement, and passes it to congestion control.
    pub(super) fn recover(&mut self, delivery: &Delivery, now: Instant) {
        let quiet = self.snd.recovery.is_open()
            && delivery.sacked == 0
            && !delivery.duplicate
            && !self.facts.settling;
        if quiet && self.tail.is_none() && self.snd.flight.sacked() == 0 && self.snd.dup_acks == 0 {
            // The usual case.
            if self.undo.is_some() && delivery.twice.is_some() {
                self.undo_if_all_duplicates();
            }
            return self.grow(delivery.pipe, delivery.bytes, delivery.newest(), now);
        }
        self.judge_tail(delivery, now);
        self.leave_recovery(delivery, now);
        let known = self.snd.dup_acks;
        let waited = self.snd.flight.waiting();
        if !self.undo_partly(delivery) {
            self.find_losses(delivery, now);
        }
        let lost_more = self.snd.flight.waiting() > waited;
        if self.snd.flight.lost() > 0 && !self.snd.recovery.is_repairing() {
            self.enter_fast(delivery.pipe, now);
        } else if lost_more && self.snd.recovery.is_spared() {
            // More was lost than the segment that was too large: this is congestion.
            let prr = self.reduce(delivery.pipe, now);
            if let Some(episode) = self.snd.recovery.episode_mut() {
                episode.prr = Some(prr);
            }
        }
        self.move_window(delivery, known, lost_more, now);
    }

    /// Updates the window after an acknowledgement. `known` duplicates have each reported a segment before.
    fn move_window(&mut self, delivery: &Delivery, known: u32, lost_more: bool, now: Instant) {
        let (pipe, mss) = (self.snd.pipe(), u32::from(self.snd.mss));
        let sack = self.facts.sack;
        match &mut self.snd.recovery {
            Recovery::Fast(episode) | Recovery::Reducing(episode) => {
                // Without SACK each duplicate reports one segment.
                let bytes = if !sack && delivery.duplicate { mss } else { delivery.bytes };
                //= rfc8985 9.3-b
                if let Some(prr) = &mut episode.prr {
                    prr.acknowledged(bytes, pipe, delivery.advanced > 0 && !lost_more);
                }
            }
            _ if delivery.advanced > 0 => {
                let newly_acked =
                    delivery.bytes.saturating_sub(known.saturating_mul(mss)).max(mss).min(delivery.bytes);
                self.grow(delivery.pipe, newly_acked, delivery.newest(), now);
            }
            _ => {}
        }
    }

    /// `newly_acked` bytes of the `pipe` bytes under way are newly acknowledged; the last of them left at `newest`.
    #[inline]
    pub(super) fn grow(&mut self, pipe: u32, newly_acked: u32, newest: Option<Instant>, now: Instant) {
        if newly_acked == 0 {
            return;
        }
        let (usage, rtt) = (&self.usage, &self.rtt);
        let sample = |cwnd_limited| AckSample {
            now,
            acked: newly_acked,
            in_flight: pipe,
            srtt: rtt.srtt_nanos(),
            rtt: newest.map(|newest| now.nanos_since(newest)),
            cwnd_limited,
        };
        let limited = |window, slow_start| usage.allows_growth(window, slow_start);
        self.control.on_ack_if(now, sample, limited);
    }

    /// Ends a recovery whose point is acknowledged. After a timeout, checks whether it was spurious.
    fn leave_recovery(&mut self, delivery: &Delivery, now: Instant) {
        let una = self.snd.una;
        match &self.snd.recovery {
            Recovery::Open => {}
            // A number above the point is acknowledged, so the peer can have seen CWR.
            Recovery::Reducing(episode) if una.gt(episode.point) => self.end_reduction_by_mark(now),
            // Without SACK, the duplicates that our retransmissions cause would start another recovery (RFC
            // 6582 §4).
            Recovery::Fast(episode) if una.gt(episode.point) || (self.facts.sack && una == episode.point) => {
                if self.reduced_for_nothing(delivery) {
                    return self.undo_reduction();
                }
                self.end_reduction(now);
                self.rack.recovered();
            }
            Recovery::Loss(_) => self.step_after_timeout(delivery),
            _ => {}
        }
    }

    fn end_reduction(&mut self, now: Instant) {
        let reduced = self.snd.recovery.episode().is_some_and(|episode| episode.prr.is_some());
        //= rfc6675 5-f
        self.snd.recovery = Recovery::Open;
        self.snd.dup_acks = 0;
        if reduced {
            self.control.on_recovery_exit(now);
        }
    }

    /// RFC 5682 §3.1, without SACK §2.1, and the end of the recovery after a timeout.
    fn step_after_timeout(&mut self, delivery: &Delivery) {
        let (una, nxt) = (self.snd.una, self.snd.nxt);
        if delivery.advanced > 0 && self.reduced_for_nothing(delivery) {
            return self.undo_reduction();
        }
        let fresh = self.snd.unsent() && nxt.lt(una + self.snd.wnd);
        let Recovery::Loss(episode) = &mut self.snd.recovery else { return };
        let recovered = una.ge(episode.point);
        if episode.frto != Frto::Off {
            // Without SACK, a number that covers the retransmission also covers what arrived before the timeout, behind
            // the hole (§2.1 step 2).
            let telling = self.facts.sack || !delivery.repeated;
            if delivery.original && telling && self.undo.is_some() {
                // Step 3b: a segment that was sent once has arrived.
                return self.undo_reduction();
            }
            if nxt.gt(episode.point) {
                if delivery.sacked > 0 || delivery.duplicate {
                    episode.frto = Frto::Off;
                }
            } else if delivery.advanced > 0 && !recovered {
                episode.point = nxt;
                episode.frto = if fresh { Frto::Asking } else { Frto::Off };
                return;
            }
        }
        if recovered {
            self.snd.recovery = Recovery::Open;
            self.rack.recovered();
            self.control.on_repaired();
        }
    }

    /// Whether the last reduction has been shown to be needless.
    fn reduced_for_nothing(&self, delivery: &Delivery) -> bool {
        self.undo.as_ref().is_some_and(|undo| undo.all_duplicates() || delivery.delayed)
    }

    /// Undoes a reduction: restores the windows from before it, and removes all LOST marks.
    fn undo_reduction(&mut self) {
        self.undo = None;
        self.control.undo();
        self.snd.flight.unmark_lost();
        self.snd.recovery = Recovery::Open;
        self.snd.dup_acks = 0;
    }

    fn undo_if_all_duplicates(&mut self) {
        if self.undo.as_ref().is_some_and(|undo| undo.all_duplicates()) {
            self.undo_reduction();
        }
    }

    /// During a recovery: segments marked as lost were only late. Returns true if no more segments may be
    /// marked as lost now.
    fn undo_partly(&mut self, delivery: &Delivery) -> bool {
        if delivery.twice.is_some() {
            self.undo_if_all_duplicates();
        }
        if !matches!(self.snd.recovery, Recovery::Fast(_)) || delivery.advanced == 0 || !delivery.delayed {
            return false;
        }
        if self.undo.is_none() {
            return false;
        }
        self.rack.see_reordering(0);
        if self.snd.flight.again() == 0 {
            self.undo_reduction();
        }
        true
    }

    /// Marks the segments that must now count as lost.
    fn find_losses(&mut self, delivery: &Delivery, now: Instant) {
        //= rfc8985 4-a 9.2-a
        if self.facts.sack {
            // Without news, the segments that may be late are those that the timer already waits for, so it runs on
            // (RFC 8985 §6.2 step 5).
            if self.rack.take_news() {
                let path = self.path(now);
                let wait = self.rack.look(&mut self.snd.flight, &path);
                self.wait_for_late(wait, now);
            }
            return;
        }
        // RFC 6582 §3.2: on the third duplicate, and on each partial acknowledgement in recovery.
        let fast = matches!(self.snd.recovery, Recovery::Fast(_));
        if delivery.advanced > 0 {
            let left = delivery.advanced / u32::from(self.snd.mss).max(1);
            self.snd.dup_acks =
                if fast { self.snd.dup_acks.saturating_sub(left.saturating_sub(1)) } else { 0 };
        } else if delivery.duplicate && self.snd.flight.len() > 0 && !self.repeats_all() {
            self.snd.dup_acks = self.snd.dup_acks.saturating_add(1);
        }
        // After a timeout duplicates prove nothing: the timer causes the retransmissions.
        let enough = !self.snd.recovery.is_repairing() && self.snd.dup_acks >= DUP_THRESH;
        let partial = fast && delivery.advanced > 0;
        let over = self.snd.recovery.episode().is_some_and(|episode| self.snd.una == episode.point);
        if (enough || partial) && !over {
            self.snd.flight.mark_first();
        }
    }

    /// Whether, after a timeout, nothing new was sent since: then a duplicate answers a retransmission.
    fn repeats_all(&self) -> bool {
        matches!(&self.snd.recovery, Recovery::Loss(episode) if self.snd.nxt == episode.point)
    }

    fn path(&self, now: Instant) -> Path {
        Path {
            now,
            recovering: self.snd.recovery.is_repairing(),
            min_rtt: self.rtt.min_rtt(),
            srtt: self.rtt.srtt(),
        }
    }

    /// Searches for losses again after `wait`, when segments that may be late no longer are.
    //= rfc8985 6.2-b
    fn wait_for_late(&mut self, wait: Option<Duration>, now: Instant) {
        self.facts.settling = wait.is_some();
        if let Some(wait) = wait {
            self.timers.set(Timer::Probe, now + wait);
        }
    }

    /// `Timer::Probe` fired.
    pub(super) fn probe_timeout(&mut self, now: Instant) {
        if !core::mem::take(&mut self.facts.settling) {
            //= rfc8985 7.3-a 7.3-b
            let another = self.tail.is_none() && !self.facts.unmeasured;
            // If the peer's window does not allow the probe, it must not delay the timeout.
            if another && self.snd.tail_probe(u32::from(self.snd.mss)).is_some() {
                self.owed.set(DueSegments::TAIL);
                // If the timeout is due at the same time, the probe leaves instead.
                self.arm_retransmit(now);
            }
            return;
        }
        let pipe = self.snd.pipe();
        let path = self.path(now);
        let wait = self.rack.look(&mut self.snd.flight, &path);
        self.wait_for_late(wait, now);
        if self.snd.flight.lost() > 0 && !self.snd.recovery.is_repairing() {
            self.enter_fast(pipe, now);
            let (pipe, mss) = (self.snd.pipe(), u32::from(self.snd.mss));
            if let Some(prr) = self.snd.recovery.episode_mut().and_then(|episode| episode.prr.as_mut()) {
                prr.acknowledged(mss, pipe, false);
            }
        }
    }

    /// Enters fast recovery; `pipe` bytes were under way.
    fn enter_fast(&mut self, pipe: u32, now: Instant) {
        let (una, nxt) = (self.snd.una, self.snd.nxt);
        self.tail = None;
        // The loss of a probe says something about the path's packet size, but nothing about congestion (RFC
        // 8899 §3).
        let probe = self.search.as_ref().and_then(|search| search.probe());
        let spared = probe.is_some_and(|(start, end)| {
            let lost = self.snd.flight.lost();
            self.facts.sack
                && start == una
                && lost <= end.distance_from(start)
                && lost == self.snd.flight.lost_below(end)
        });
        let prr = match &self.snd.recovery {
            _ if spared => {
                self.undo = None;
                None
            }
            // The window already shrinks.
            Recovery::Reducing(episode) => episode.prr,
            _ => Some(self.reduce(pipe, now)),
        };
        if let Some(search) = self.search.as_mut().filter(|_| spared) {
            search.complete(now);
        }
        self.snd.recovery = Recovery::Fast(Box::new(Episode { point: nxt, prr, frto: Frto::Off }));
    }

    /// Starts to shrink the window; `pipe` bytes were under way.
    //= rfc2018 5.1-a
    pub(super) fn reduce(&mut self, pipe: u32, now: Instant) -> Prr {
        let (una, nxt) = (self.snd.una, self.snd.nxt);
        let again = self.snd.flight.again().div_ceil(u32::from(self.snd.mss).max(1));
        self.undo = Some(Box::new(Undo::new(una, again)));
        self.note_reduction();
        // Data that the peer has behind a hole is no longer in flight. If it counted, a loss in the round trip
        // after a loss would open the window.
        let in_flight = nxt.distance_from(una).max(pipe).min(self.control.window());
        self.control.on_loss_recovery(now, in_flight);
        Prr::new(self.control.slow_start_threshold(), pipe, u32::from(self.snd.mss))
    }

    /// The retransmission timer fired (RFC 6298 §5.4 to 5.6, RFC 5681 §3.1): every segment that had time to
    /// arrive is marked as lost.
    pub(super) fn enter_loss(&mut self, now: Instant) {
        let (una, nxt) = (self.snd.una, self.snd.nxt);
        let first = self.backoffs == 0;
        let repairing = self.snd.recovery.is_repairing();
        // The window is lowered only once for the same data.
        let fresh = match &self.snd.recovery {
            Recovery::Open => true,
            Recovery::Reducing(e) | Recovery::Fast(e) | Recovery::Loss(e) => una.ge(e.point),
        };
        let flight = &mut self.snd.flight;
        let reneged = flight.first().is_some_and(|sent| sent.marks.has(SegmentMarks::SACKED));
        //= rfc6675 5.1-a
        if reneged {
            flight.renege();
        }
        let again = flight.again().div_ceil(u32::from(self.snd.mss).max(1));
        //= rfc2018 5-c
        flight.mark_first();
        let rack = &self.rack;
        flight.mark(|sent| Some(reneged || !rack.may_arrive(sent, now)));
        self.snd.dup_acks = 0;
        if fresh {
            self.undo = Some(Box::new(Undo::new(una, again)));
        }
        self.note_reduction();
        let in_flight = nxt.distance_from(una).min(self.control.window());
        self.control.on_timeout(now, in_flight, fresh, self.snd.flight.pipe());
        self.tail = None;
        self.snd.flight.time_out(now);
        self.owed.clear(DueSegments::TAIL);
        self.facts.settling = false;
        self.timers.stop(Timer::Probe);
        // F-RTO is not used for a path-MTU probe, which was more likely lost than late.
        let probing = self.search.as_ref().is_some_and(|search| search.probe().is_some());
        let frto = if (!repairing || !first) && !probing { Frto::Begun } else { Frto::Off };
        self.snd.recovery = Recovery::Loss(Box::new(Episode { point: nxt, prr: None, frto }));
    }

    /// The path takes smaller segments than those sent: all larger ones are sent again.
    pub(super) fn repair_too_large(&mut self, now: Instant) {
        let mss = u32::from(self.snd.mss);
        self.repair(|sent| sent.end.distance_from(sent.start) > mss, now);
    }

    /// What is `lost` goes again. Its loss says nothing about congestion.
    pub(super) fn repair(&mut self, lost: impl Fn(&Sent) -> bool, now: Instant) {
        self.snd.flight.mark(|sent| Some(lost(sent)));
        if self.snd.flight.waiting() > 0 && !self.snd.recovery.is_repairing() {
            self.undo = None;
            let episode = Episode { point: self.snd.nxt, prr: None, frto: Frto::Off };
            self.snd.recovery = Recovery::Fast(Box::new(episode));
        }
        self.arm_retransmit(now);
    }

    /// The peer reports that the numbers from `start` to `end` arrived twice.
    //= rfc8985 4-c
    pub(super) fn duplicate_reported(&mut self, start: SeqNum, end: SeqNum) {
        let segments = end.distance_from(start).div_ceil(u32::from(self.snd.mss).max(1)).max(1);
        let probe = self.tail.is_some_and(|tail| tail.again && tail.end == end);
        let ours = self.undo.as_mut().is_some_and(|undo| undo.duplicate(start, segments));
        if ours || probe {
            self.rack.duplicate_seen(self.snd.una, self.snd.nxt);
        }
    }

    /// Decides what happened to a tail loss probe (RFC 8985 §7.4).
    fn judge_tail(&mut self, delivery: &Delivery, now: Instant) {
        let Some(tail) = self.tail else { return };
        let una = self.snd.una;
        if una.lt(tail.end) {
            return;
        }
        let arrived_twice = delivery.twice == Some(tail.end);
        let nothing_new = delivery.duplicate && delivery.advanced == 0;
        if !tail.again || arrived_twice || (una == tail.end && nothing_new) {
            // The probe carried new data, or the original had arrived, too.
            self.tail = None;
        } else if una.gt(tail.end) {
            //= rfc8985 7.4.2-a 7.4.2-b
            // The probe repaired a loss, which still counts as congestion.
            self.tail = None;
            if self.snd.recovery.is_open() {
                self.undo = None;
                self.note_reduction();
                self.control.on_loss_recovery(now, delivery.pipe);
                self.control.on_recovery_exit(now);
            }
        }
    }

    /// Arms the timer of a tail loss probe, or stops it if none is to be sent (RFC 8985 §7.2).
    //= rfc8985 7.2-a
    #[inline]
    pub(super) fn arm_tail_probe(&mut self, now: Instant) {
        if self.facts.settling {
            return;
        }
        let snd = &self.snd;
        let whole = !snd.recovery.is_repairing() && snd.flight.sacked() == 0;
        // Only one probe at a time, and none until a round-trip time was measured since the last one (§7.3).
        let another = self.tail.is_none() && !self.facts.unmeasured;
        if !whole || !another || !self.facts.sack || !self.facts.connected || snd.flight.len() == 0 {
            return self.timers.stop(Timer::Probe);
        }
        let patience = match self.rtt.srtt_nanos() {
            Some(srtt) if snd.flight.len() == 1 => srtt * 2 + DELAYED_ACK,
            Some(srtt) => srtt * 2 + SLACK,
            //= rfc8985 7.2-b
            None => crate::rtt::INITIAL_RTO.as_nanos() as u64,
        };
        // If the timeout is due earlier, the probe leaves at that time instead.
        //= rfc8985 7.2-c
        let at = now.after_nanos(patience).min(self.timers.at(Timer::Retransmit));
        self.timers.set(Timer::Probe, at);
    }
}
