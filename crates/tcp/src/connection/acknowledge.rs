//! Processes an acknowledgement: the window, the round-trip time, and the state of the segments under way.

use super::Connection;
use crate::buffer::Pool;
use crate::congestion::CongestionControl;
use crate::flight::{SegmentMarks, Sent};
use crate::rack::Rack;
use crate::state::State;
use crate::straight::straight;
use crate::timers::Timer;
use crate::transition::{StateName, Trigger};
use core::time::Duration;
use firstflight_wire::hint::unlikely;
use firstflight_wire::tcp::{Flags, Segment};
use firstflight_wire::{Instant, SeqNum};

/// What one acknowledgement newly reports.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// Bytes under way before it.
    pub pipe: u32,
    /// Distance by which SND.UNA moved.
    pub advanced: u32,
    /// Bytes newly known to have arrived, by the acknowledgement number or by SACK.
    pub bytes: u32,
    /// Bytes of these that were reported by SACK.
    pub sacked: u32,
    /// It contains nothing new. Without SACK, this means that a segment arrived out of order.
    pub duplicate: bool,
    /// Number of segments that it shows to have arrived.
    segments: u32,
    /// Data arrived twice (RFC 2883): the end of that range.
    pub twice: Option<SeqNum>,
    /// A segment arrived that was sent once and before the recovery began: the timeout was too early (RFC
    /// 5682).
    pub original: bool,
    /// It echoes a time before the first retransmission of the recovery (Eifel, RFC 3522).
    pub delayed: bool,
    /// When the first and the last left, of the segments that were sent once and are newly acknowledged by
    /// number.
    timed: Option<(Instant, Instant)>,
    /// When the first left, of the segments that were sent once and are newly SACKed.
    timed_sack: Option<Instant>,
    /// A segment acknowledged by number was sent more than once.
    pub repeated: bool,
}

impl Delivery {
    /// When the last of the newly acknowledged segments left, if none of them was sent again.
    #[inline]
    pub(super) fn newest(&self) -> Option<Instant> {
        self.timed.filter(|_| !self.repeated).map(|(_, last)| last)
    }
}

/// The context needed to read an acknowledgement.
#[derive(Clone, Copy)]
struct Reader {
    now: Instant,
    /// The smallest round-trip time, nanoseconds.
    min_rtt: Option<u64>,
    /// The echoed timestamp, and the offset of our timestamp clock.
    echo: Option<(u32, u32)>,
    /// The recovery point (RecoveryPoint).
    point: Option<SeqNum>,
    /// When the retransmission timer last fired in this flight.
    timeout_at: Option<Instant>,
    /// The highest number that had arrived before.
    highest: SeqNum,
}

impl Reader {
    /// Whether the echo belongs to a time before `at`.
    fn echoes_before(&self, at: Instant) -> bool {
        let Some((echo, offset)) = self.echo else { return false };
        (echo.wrapping_sub((at.as_millis() as u32).wrapping_add(offset)) as i32) < 0
    }

    /// `sent` has arrived.
    #[inline]
    fn read(&self, sent: &Sent, by_number: bool, delivery: &mut Delivery, rack: &mut Rack) {
        delivery.bytes += sent.end.distance_from(sent.start);
        //= rfc6298 3-a 3-b
        delivery.segments += 1;
        let repeated = sent.marks.has(SegmentMarks::REPEATED);
        if repeated {
            delivery.repeated |= by_number;
        } else {
            delivery.original |= self.point.is_some_and(|point| sent.end.le(point));
            if by_number {
                let (first, last) = delivery.timed.unwrap_or((sent.at, sent.at));
                delivery.timed = Some((first.min(sent.at), last.max(sent.at)));
            } else if self.timeout_at.is_none_or(|at| sent.at > at) {
                // A segment that left before a timeout may have waited for it: its first SACK was lost, and
                // nothing else caused another one.
                delivery.timed_sack.get_or_insert(sent.at);
            }
        }
        // Which copy was it? Not the last one, if the answer came faster than any answer before (RFC 8985
        // §6.2).
        let soon = || self.min_rtt.is_some_and(|min| self.now.nanos_since(sent.at) < min);
        rack.arrived(sent, self.highest, self.now, repeated && (soon() || self.echoes_before(sent.at)));
    }
}

impl Connection {
    /// Fifth step of RFC 9293 §3.10.7.4, for an acknowledgement inside the allowed range. `syn_ack` is the time
    /// when the acknowledged SYN-ACK left.
    #[inline]
    pub(super) fn take_ack(
        &mut self,
        segment: &Segment<'_>,
        seq: SeqNum,
        syn_ack: Option<Instant>,
        now: Instant,
        pool: &mut Pool,
    ) {
        let ack = segment.ack;
        let window = self.window_of(segment);
        if self.is_plain(segment)
            && let Some(sent) = self.snd.flight.take_plain()
        {
            self.take_plain_ack(ack, sent, syn_ack, segment, now, pool);
        } else if self.snd.outstanding() || self.undo.is_some() || self.tail.is_some() {
            // Needed even if nothing is outstanding: a needless retransmission is reported after everything has
            // arrived.
            self.take_any_ack(segment, syn_ack, now, pool);
        }
        if unlikely(self.push.is_used()) {
            self.stamp_acknowledged(now);
        }
        if self.snd.update_window(seq, ack, window) && self.snd.unsent() {
            self.idle_restart(now);
        }
        if unlikely(self.snd.wnd > 0 && self.timers.runs(Timer::Persist)) {
            self.timers.stop(Timer::Persist);
            self.rtt.reset_backoff();
            self.backoffs = 0;
        }
        if self.snd.fin_acked() {
            self.fin_acked(now);
        }
    }

    /// The general path: reads everything that an acknowledgement says about the segments under way.
    fn take_any_ack(
        &mut self,
        segment: &Segment<'_>,
        syn_ack: Option<Instant>,
        now: Instant,
        pool: &mut Pool,
    ) {
        let (ack, una) = (segment.ack, self.snd.una);
        let plain = segment.is_empty() && self.window_of(segment) == self.snd.wnd;
        self.check_app_limited();
        let reader = self.reader(segment, now);
        let mut delivery = Delivery { pipe: self.snd.pipe(), ..Delivery::default() };
        if self.facts.sack && segment.options.has_sack() {
            self.take_sack(segment, &reader, &mut delivery);
        }
        if ack.gt(una) {
            delivery.advanced = ack.distance_from(una);
            self.take_new_ack(segment, &reader, &mut delivery, syn_ack, pool);
        }
        delivery.duplicate = plain && ack == una && delivery.sacked == 0;
        if let Some(first) = self.undo.as_ref().and_then(|undo| undo.first) {
            delivery.delayed = reader.echoes_before(first);
        }
        self.totals.delivered = self.totals.delivered.saturating_add(delivery.segments);
        self.take_echo(segment, &delivery, now);
        self.recover(&delivery, now);
        if self.paced.is_some() {
            self.report_sample(now);
        }
        self.after_ack(&delivery, now);
    }

    /// Fast path: whether `segment` acknowledges everything under way, and there is nothing to repair or to
    /// undo.
    #[inline]
    fn is_plain(&self, segment: &Segment<'_>) -> bool {
        let ends =
            straight() && segment.ack == self.snd.nxt && self.snd.outstanding() && self.snd.dup_acks == 0;
        let says_more = segment.options.has_sack() || segment.flags.contains(Flags::ECE);
        let busy = self.undo.is_some() || self.tail.is_some() || self.paced.is_some();
        ends && !says_more && !busy && self.snd.recovery.is_open()
    }

    /// The usual acknowledgement when answers are short: everything has arrived. `sent` is the segment that had
    /// a record, if any. Must match the general path.
    #[inline]
    fn take_plain_ack(
        &mut self,
        ack: SeqNum,
        sent: Option<Sent>,
        syn_ack: Option<Instant>,
        segment: &Segment<'_>,
        now: Instant,
        pool: &mut Pool,
    ) {
        let syn = self.snd.una == self.snd.iss;
        if let Some(sent) = &sent {
            self.rack.arrived(sent, self.rack.highest(), now, false);
            self.facts.unmeasured = false;
        }
        self.forget(ack, pool);
        match (syn_ack, &sent) {
            (Some(at), _) => self.rtt.sample_between(at, now),
            (None, Some(sent)) => self.rtt.sample_between(sent.at, now),
            (None, None) if syn && !self.rtt.is_for_now() => self.sample_echo(segment, now),
            (None, None) => {}
        }
        self.progressed(ack);
        if let Some(sent) = &sent {
            self.totals.delivered = self.totals.delivered.saturating_add(1);
            self.grow(sent.len(), sent.len(), Some(sent.at), now);
        }
        self.all_arrived(now);
    }

    fn reader(&self, segment: &Segment<'_>, now: Instant) -> Reader {
        let echo = segment.options.timestamps.filter(|ts| self.facts.timestamps && ts.echo != 0);
        Reader {
            now,
            min_rtt: self.rtt.min_nanos(),
            echo: echo.map(|ts| (ts.echo, self.ends.ts_offset)),
            timeout_at: self.snd.flight.timeout_at(),
            highest: self.rack.highest(),
            point: self.snd.recovery.episode().map(|episode| episode.point),
        }
    }

    /// Takes SACK blocks (RFC 2018). The first block may report data that arrived twice (RFC 2883 §4).
    //= rfc2018 5-a
    //= rfc6675 5-a 5.1-e
    fn take_sack(&mut self, segment: &Segment<'_>, reader: &Reader, delivery: &mut Delivery) {
        let sack = segment.options.sack();
        let blocks = sack.as_slice();
        let (una, nxt) = (self.snd.una, self.snd.nxt);
        if let Some(&(start, end)) = blocks.first().filter(|block| block.0.lt(block.1)) {
            let inside = blocks.get(1).is_some_and(|outer| start.ge(outer.0) && end.le(outer.1));
            let valid = end.le(nxt) && start.ge(una - self.snd.max_wnd);
            if valid && (end.le(segment.ack) || inside) {
                delivery.twice = Some(end);
                self.duplicate_reported(start, end);
            }
        }
        let before = delivery.bytes;
        let (flight, rack) = (&mut self.snd.flight, &mut self.rack);
        let mut sampler = self.paced.as_mut().and_then(|paced| paced.sampler.as_mut());
        for &(start, end) in blocks {
            // A block below the acknowledgement number says nothing new, and one beyond NXT is invalid.
            if start.lt(end) && start.ge(una) && end.gt(segment.ack) && end.le(nxt) {
                flight.sack(start..end, |sent| {
                    reader.read(sent, false, delivery, rack);
                    if let Some(sampler) = &mut sampler {
                        sampler.delivered(sent, reader.now);
                    }
                });
            }
        }
        delivery.sacked = delivery.bytes - before;
    }

    /// New data was acknowledged.
    fn take_new_ack(
        &mut self,
        segment: &Segment<'_>,
        reader: &Reader,
        delivery: &mut Delivery,
        syn_ack: Option<Instant>,
        pool: &mut Pool,
    ) {
        let ack = segment.ack;
        let syn = self.snd.una == self.snd.iss;
        let (flight, rack) = (&mut self.snd.flight, &mut self.rack);
        match self.paced.as_mut().and_then(|paced| paced.sampler.as_mut()) {
            None => flight.acknowledge(ack, |sent| reader.read(sent, true, delivery, rack)),
            Some(sampler) => flight.acknowledge(ack, |sent| {
                reader.read(sent, true, delivery, rack);
                sampler.delivered(sent, reader.now);
            }),
        }
        self.forget(ack, pool);
        //= rfc6298 3-c
        self.sample_rtt(segment, delivery, (syn, syn_ack), reader.now);
        self.progressed(ack);
    }

    /// Frees the memory of data below `ack`.
    #[inline]
    fn forget(&mut self, ack: SeqNum, pool: &mut Pool) {
        let buffered = self.snd.buffered();
        self.snd.acknowledge(pool, ack);
        self.push.acknowledged(ack);
        self.totals.bytes_acked += (buffered - self.snd.buffered()) as u64;
    }

    /// Notes that everything up to `ack` arrived, so the path works.
    #[inline]
    fn progressed(&mut self, ack: SeqNum) {
        self.rtt.reset_backoff();
        self.backoffs = 0;
        if unlikely(self.search.is_some()) {
            self.probe_acknowledged(ack);
        }
        self.offer_room();
    }

    /// Sets the timers after an acknowledgement was processed.
    fn after_ack(&mut self, delivery: &Delivery, now: Instant) {
        if !self.snd.outstanding() {
            return self.all_arrived(now);
        }
        if delivery.advanced > 0 {
            self.arm_retransmit(now);
            self.note_progress(now);
        }
        if delivery.advanced > 0 || delivery.sacked > 0 {
            self.arm_tail_probe(now);
        }
    }

    /// Nothing is under way any more.
    #[inline]
    fn all_arrived(&mut self, now: Instant) {
        self.timers.stop(Timer::Retransmit);
        self.timers.stop(Timer::Probe);
        self.note_progress(now);
        self.facts.settling = false;
    }

    /// If a path-MTU probe arrived, raises the MSS.
    fn probe_acknowledged(&mut self, ack: SeqNum) {
        if let Some(size) = self.search.as_mut().and_then(|search| search.acknowledged(ack)) {
            self.snd.mss = size;
            self.control.set_mss(u32::from(size));
        }
    }

    /// Takes a round-trip sample from a segment that was sent once (Karn), else from the echoed timestamp (RFC
    /// 7323 §4.1). The pair says whether our SYN was acknowledged, and when the acknowledged SYN-ACK left.
    fn sample_rtt(
        &mut self,
        segment: &Segment<'_>,
        delivery: &Delivery,
        (syn, syn_ack): (bool, Option<Instant>),
        now: Instant,
    ) {
        let measured = !delivery.repeated && delivery.timed.is_some();
        if measured || delivery.timed_sack.is_some() {
            self.facts.unmeasured = false;
        }
        if let Some(sent) = syn_ack {
            self.rtt.sample_between(sent, now);
        } else if delivery.repeated {
            if let Some(sent) = delivery.timed_sack {
                self.rtt.sample_between(sent, now);
            }
        } else if let Some((first, last)) = delivery.timed {
            self.rtt.sample_between(first, now);
            self.rtt.note_min_between(last, now);
        } else if syn && !self.rtt.is_for_now() {
            self.sample_echo(segment, now);
        }
    }

    /// A round-trip sample from the echoed timestamp.
    pub(super) fn sample_echo(&mut self, segment: &Segment<'_>, now: Instant) {
        if let Some(rtt) = self.echoed_rtt(segment, now) {
            self.rtt.sample(rtt, now);
        }
    }

    /// The time since the echoed timestamp.
    pub(super) fn echoed_rtt(&self, segment: &Segment<'_>, now: Instant) -> Option<Duration> {
        let ts = segment.options.timestamps.filter(|t| self.facts.timestamps && t.echo != 0)?;
        let ms = self.ts_now(now).wrapping_sub(ts.echo);
        Some(Duration::from_millis(u64::from(ms.min(120_000))))
    }

    /// Our FIN was acknowledged.
    #[inline]
    fn fin_acked(&mut self, now: Instant) {
        if matches!(self.state, State::FinWait1(_) | State::Closing(_) | State::LastAck(_)) {
            self.transit(Trigger::FinAck);
            if self.state.name() == StateName::FinWait2 && self.facts.released {
                self.timers.set(Timer::FinWait2, now + self.config.fin_wait2);
            }
        }
    }

    /// Starts the user timeout, unless it runs. Called when data becomes outstanding, or waits for the window to open.
    #[inline]
    pub(super) fn arm_user_timeout(&mut self, now: Instant) {
        if let Some(limit) = self.config.user_timeout
            && !self.timers.runs(Timer::User)
        {
            self.timers.set(Timer::User, now + limit);
            self.expected = self.snd.end_with_fin().min(self.snd.una + u32::from(self.snd.mss));
        }
    }

    /// Notes an acknowledgement. The user timeout restarts after enough progress, and stops when no data waits.
    #[inline]
    pub(super) fn note_progress(&mut self, now: Instant) {
        if unlikely(self.timers.runs(Timer::User)) {
            self.took_some(now);
        }
    }

    fn took_some(&mut self, now: Instant) {
        let waits = self.snd.outstanding() || self.snd.unsent();
        if !waits || self.snd.una.ge(self.expected) {
            self.timers.stop(Timer::User);
        }
        if waits {
            self.arm_user_timeout(now);
        }
    }
}
