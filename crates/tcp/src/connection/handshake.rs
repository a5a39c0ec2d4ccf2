//! Opens a connection, from both ends, with or without a first flight (RFC 9293 §3.5, RFC 7413).

use super::{Connection, Disposition, DropReason, Endpoints, Readiness};
use crate::buffer::Pool;
use crate::config::Config;
use crate::congestion::{CongestionControl, InitialWindow};
use crate::error::CloseReason;
use crate::plan::{ChildPlan, Resolution, SynAckReport, SynPlan};
use crate::plpmtud::Search;
use crate::receive::AckNeed;
use crate::state::{Hedge, Origin, State, SynSent};
use crate::timers::Timer;
use crate::transition::{StateName, Transition, Trigger};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;
use firstflight_wire::encapsulation::{FOLLOWER_BYTES, FOLLOWERS};
use firstflight_wire::hint::{likely, unlikely};
use firstflight_wire::tcp::{Flags, Options, Segment};
use firstflight_wire::{Instant, SeqNum};

/// Smallest MSS accepted from the peer. A smaller value costs more than it helps (Linux: 88).
const MIN_PEER_MSS: u16 = 88;

/// Number of bytes that may directly follow a SYN that carries `carried` bytes, in segments of `segment` bytes.
/// Together with the SYN they stay within the initial `window`.
fn follow_limit(segment: u16, carried: u32, window: InitialWindow) -> u32 {
    let segment = u32::from(segment);
    let window = window.window(segment).saturating_sub(carried);
    (segment * FOLLOWERS as u32).min(window).min(FOLLOWER_BYTES)
}

impl Connection {
    /// A connection that begins an active open: see [`Connection::open_active`].
    #[must_use]
    pub fn connect(
        config: Arc<Config>,
        ends: Endpoints,
        plan: SynPlan,
        data: &[u8],
        pool: &mut Pool,
        now: Instant,
    ) -> (Self, usize) {
        let mut conn = Self::new(config, ends, now);
        let taken = conn.open_active(plan, data, pool);
        (conn, taken)
    }

    /// A listener's child for `syn`: see [`Connection::open_passive`].
    #[must_use]
    pub fn accept(
        config: Arc<Config>,
        ends: Endpoints,
        syn: &Segment<'_>,
        plan: &ChildPlan,
        pool: &mut Pool,
        now: Instant,
    ) -> Self {
        let mut conn = Self::new(config, ends, now);
        conn.open_passive(syn, plan, pool, now);
        conn
    }

    /// Begins an active open of a new connection. `data` is the beginning of the stream. The SYN carries as
    /// much of it as `plan.data_limit` and the segment size allow, and what `plan.follow` allows follows the
    /// SYN. Returns how many bytes of `data` were taken into the send buffer.
    #[inline(always)]
    pub fn open_active(&mut self, plan: SynPlan, data: &[u8], pool: &mut Pool) -> usize {
        let preamble = plan.preamble.len() as u32;
        self.snd.set_preamble(preamble);
        let taken = self.snd.write(pool, self.config.send_at_first(), data);
        let riding = (taken as u32).min(plan.data_limit);
        let carried = preamble + riding;
        // These segments have no options, but they are no longer than a retransmission with timestamps.
        let options = if self.config.timestamps { 12 } else { 0 };
        let segment = plan.follow.min(self.config.mss).min(self.ends.path_mss).saturating_sub(options);
        // Nothing follows a SYN without data, and nothing is left to follow one that carries all of it, the
        // usual case.
        let left = if riding == 0 { 0 } else { taken as u32 - riding };
        let follow = if likely(left == 0) {
            0
        } else {
            follow_limit(segment, carried, self.config.initial_window).min(left)
        };
        self.state.leave();
        self.state = State::SynSent(SynSent {
            options: plan.options,
            preamble: plan.preamble.into(),
            first_timeout: plan.first_timeout,
            carried,
            follow,
            segment,
            retransmits: 0,
            hedge: if plan.hedged && !plan.elsewhere { Hedge::Due } else { Hedge::No },
            too_big: false,
            met_old: false,
            refused: false,
            refused_after: Duration::ZERO,
            hastened: false,
            repeats: plan.repeats,
            timeouts: 0,
            first_sent: Instant::FAR_FUTURE,
            pending: !plan.elsewhere,
            elsewhere: plan.elsewhere,
        });
        if plan.elsewhere {
            self.snd.nxt = self.snd.iss + 1 + carried;
        }
        let trigger = if carried > 0 { Trigger::ActiveOpenFirstFlight } else { Trigger::ActiveOpen };
        self.record(Transition { from: StateName::Closed, trigger, to: StateName::SynSent });
        taken
    }

    /// Writes the SYN that travels by another way ([`SynPlan::elsewhere`]) at the front of `out`: header,
    /// options, preamble and data, checksum zero. Returns its length, or `None` if there is no such SYN or no
    /// room for it.
    #[must_use]
    pub fn copy_syn(&self, out: &mut [u8]) -> Option<usize> {
        let State::SynSent(syn) = &self.state else { return None };
        if !syn.elsewhere {
            return None;
        }
        self.emit_syn(syn, true, Instant::ZERO, out)
    }

    /// Sends the SYN that travels by another way from here, too, with a preamble of the same length as the
    /// other copy's. It is sent again after `first_timeout`, or 1 s. False if the connection has left SYN-SENT,
    /// the SYN was released before, or the preamble has another length.
    pub fn release_syn(&mut self, preamble: &[u8], first_timeout: Option<Duration>) -> bool {
        let State::SynSent(syn) = &mut self.state else { return false };
        if !syn.is_held() || syn.preamble.len() != preamble.len() {
            return false;
        }
        syn.preamble.copy_from_slice(preamble);
        syn.first_timeout = first_timeout;
        syn.pending = true;
        true
    }

    /// Stops sending a SYN that also travels by another way ([`SynPlan::elsewhere`]) and was released. It is
    /// not sent again, and the connection waits for the answer to the other copy. False if there is no such
    /// SYN.
    pub fn hold_syn(&mut self) -> bool {
        let State::SynSent(syn) = &mut self.state else { return false };
        if !syn.elsewhere {
            return false;
        }
        syn.pending = false;
        syn.first_sent = Instant::FAR_FUTURE;
        syn.retransmits = 0;
        self.timers.stop(Timer::Retransmit);
        self.timers.stop(Timer::User);
        self.ready |= Readiness::HELD;
        self.forget_followers();
        true
    }

    /// What followed a SYN that also travels by another way went to another peer than the one that will answer. It counts as
    /// lost, and is sent again with the answer.
    pub fn forget_followers(&mut self) {
        let State::SynSent(syn) = &mut self.state else { return };
        if syn.elsewhere && self.snd.nxt.gt(self.snd.iss + 1 + syn.carried) {
            syn.follow = 0;
        }
    }

    /// The SYN of a connection that another way delivered has come from its peer, too, as `segment`. If the two have one number
    /// and one length, up to `bytes` of segments that directly follow are taken from now on, as with [`ChildPlan::follow`].
    pub fn take_followers(&mut self, segment: &Segment<'_>, bytes: u32) {
        let end = segment.seq + 1 + segment.payload.len() as u32;
        if let State::SynRcvd(syn) = &mut self.state
            && syn.early
            && (segment.seq, end) == (self.rcv.irs, self.rcv.nxt)
        {
            syn.follow = Some(end + bytes);
        }
    }

    /// Makes a new connection a listener's child for `syn`. With `plan.early` the SYN's data is readable at
    /// once and may be answered before the handshake completes (RFC 7413 §4.2).
    pub fn open_passive(&mut self, syn: &Segment<'_>, plan: &ChildPlan, pool: &mut Pool, now: Instant) {
        self.become_child(syn.seq, plan);
        self.take_syn_options(&syn.options, now);
        self.take_ecn_of_syn(syn);
        self.snd.first_window(syn.seq, self.snd.iss, u32::from(syn.window));
        let mut trigger = Trigger::Syn;
        if plan.early {
            trigger = Trigger::SynFirstFlight;
            self.rcv.skip(plan.skip);
            let data = syn.payload.get(plan.skip as usize..).unwrap_or_default();
            let seq = self.rcv.nxt;
            self.take_payload(pool, seq, data, true);
            self.totals.early = self.rcv.readable() as u32;
            let end = self.rcv.nxt + plan.follow;
            if let State::SynRcvd(syn) = &mut self.state {
                syn.follow = (plan.follow > 0).then_some(end);
            }
        }
        self.record(Transition { from: StateName::Listen, trigger, to: StateName::SynRcvd });
        self.arm_retransmit(now);
    }

    /// Makes a new connection the child whose SYN-ACK was a SYN cookie (RFC 4987 §3.6). Its ISN is the cookie,
    /// `peer_isn` the SYN's number, and `options` the part of the SYN's options that could be recovered. The
    /// caller passes the ACK that proved the cookie to [`Connection::handle_segment`] next.
    pub fn open_from_cookie(&mut self, peer_isn: SeqNum, options: &Options<'_>, now: Instant) {
        self.become_child(peer_isn, &ChildPlan::default());
        self.take_syn_options(options, now);
        self.snd.first_window(peer_isn, self.snd.iss, 0xffff);
        // The window in the SYN is no longer known.
        self.snd.max_wnd = 0;
        if let State::SynRcvd(syn) = &mut self.state {
            syn.pending = false;
        }
        self.snd.nxt = self.snd.iss + 1;
        // If that ACK does not open the connection, it ends like any other that gets no answer.
        self.arm_retransmit(now);
    }

    fn become_child(&mut self, peer_isn: SeqNum, plan: &ChildPlan) {
        self.rcv.begin(peer_isn);
        let syn = self.state.receive_syn();
        syn.early = plan.early;
        if !plan.options.is_empty() {
            syn.options = plan.options;
            syn.once = plan.once;
        }
        syn.budget = if plan.early { plan.pre_ack_budget } else { 0 };
        syn.overhead = plan.overhead;
        syn.retries = plan.retries;
        syn.linger_s = plan.linger_s;
    }

    /// Takes the peer's options from its SYN.
    #[inline(always)]
    fn take_syn_options(&mut self, options: &Options<'_>, now: Instant) {
        //= rfc9293 MUST-14 MUST-15
        let peer = options.mss.unwrap_or(self.ends.default_mss).max(MIN_PEER_MSS);
        //= rfc9293 MUST-16
        self.snd.mss = peer.min(self.config.mss).min(self.ends.path_mss);
        let (mss, seed) = (u32::from(self.snd.mss), self.ends.isn.get());
        self.control.begin(self.config.congestion, mss, seed);
        if self.config.initial_window != InitialWindow::Standard {
            self.control.begin_with(self.config.initial_window);
        }
        if self.control.models_path() || self.config.pacing {
            self.begin_pacing();
        }
        //= rfc7323 2.2-b 2.3-c 2.3-d
        match options.window_scale {
            Some(shift) if self.config.window_scaling => self.snd.scale = shift.min(14),
            // Without the peer's option neither side scales (RFC 7323 §2.2).
            _ => self.rcv.scale = 0,
        }
        //= rfc2018 4-b
        self.facts.sack = self.config.sack && options.sack_permitted;
        // Without SACK, the loss of a probe cannot be distinguished from congestion.
        self.search = if self.facts.sack && self.ends.probe != [0; 3] {
            let limit = peer.min(self.config.mss);
            Search::new(self.snd.mss, self.ends.probe, limit).map(Box::new)
        } else {
            None
        };
        if let Some(ts) = options.timestamps.filter(|_| self.config.timestamps) {
            //= rfc7323 3.2-f
            self.facts.timestamps = true;
            //= rfc7323 3.2-c
            self.rcv.ts_recent = ts.value;
            self.rcv.ts_recent_at = now;
        }
        // Timestamps take 12 bytes of the peer's full segments (RFC 7323 appendix A).
        let options = if self.facts.timestamps { 12 } else { 0 };
        self.rcv.set_segment_size(self.snd.mss - options);
    }

    /// The report about the first flight, if `segment` is an acceptable SYN-ACK for our SYN. The layer above
    /// answers through [`Connection::handle_syn_ack`].
    #[must_use]
    #[inline]
    pub fn syn_ack_report(&self, segment: &Segment<'_>) -> Option<SynAckReport> {
        let State::SynSent(syn) = &self.state else { return None };
        let wanted = Flags::SYN.union(Flags::ACK);
        if !segment.flags.contains(wanted) || segment.flags.contains(Flags::RST) {
            return None;
        }
        let acceptable = segment.ack.gt(self.snd.iss) && segment.ack.le(self.snd.nxt);
        (acceptable && !self.echoes_nothing(syn, segment)).then(|| {
            let unseen = syn.retransmits > u8::from(syn.too_big) && !self.first_syn_arrived(syn, segment);
            SynAckReport {
                acked: segment.ack.distance_from(self.snd.iss + 1),
                carried: syn.carried,
                retransmitted: syn.retransmits > 0,
                first_lost: unseen && !syn.met_old && !syn.refused,
                met_old: unseen && syn.met_old && !syn.refused,
                refused: unseen && syn.refused,
                may_have_run: syn.refused || syn.timeouts > 0 || syn.met_old,
                too_big: syn.too_big && !unseen && !self.first_syn_arrived(syn, segment),
            }
        })
    }

    /// When the first SYN left, while its answer is awaited and if that is known.
    #[must_use]
    pub const fn first_syn_sent(&self) -> Option<Instant> {
        match &self.state {
            State::SynSent(syn) if syn.first_sent.as_nanos() != Instant::FAR_FUTURE.as_nanos() => {
                Some(syn.first_sent)
            }
            _ => None,
        }
    }

    /// Whether the plain SYN fared no better than the first SYN: it was lost, too, or it has waited for its answer as
    /// long as the first SYN was given. Then the loss of the first SYN shows that the path or the peer is slow, and
    /// nothing about what the first SYN carried. Ask before [`Connection::handle_syn_ack`].
    #[must_use]
    pub fn plain_syn_is_slow(&self, now: Instant) -> bool {
        let (State::SynSent(syn), Some(first)) = (&self.state, self.first_syn_sent()) else { return false };
        let plain = syn.timeouts.saturating_sub(syn.repeats);
        let given = self.last_sent.saturating_since(first);
        plain > 1 || (plain == 1 && now.saturating_since(self.last_sent) >= given)
    }

    /// Whether a segment echoes a timestamp that no SYN of ours had. Then it answers another host or an earlier
    /// connection. Linux resets it, too.
    fn echoes_nothing(&self, syn: &SynSent, segment: &Segment<'_>) -> bool {
        let echo = segment.options.timestamps.filter(|_| self.config.timestamps).map(|ts| ts.echo);
        let unknown = syn.elsewhere || syn.first_sent == Instant::FAR_FUTURE;
        let Some(echo) = echo.filter(|echo| *echo != 0 && !unknown) else { return false };
        let (first, last) = (self.ts_of_first(syn), self.ts_now(self.last_sent));
        echo.wrapping_sub(first) > last.wrapping_sub(first)
    }

    /// The timestamp of the first SYN.
    fn ts_of_first(&self, syn: &SynSent) -> u32 {
        self.ts_now(syn.first_sent).wrapping_sub((syn.hedge == Hedge::Sent).into())
    }

    /// Whether a SYN-ACK shows that the first SYN arrived: it acknowledges data that only the first SYN
    /// carried, or echoes its timestamp (the idea of RFC 3522 §3.2). A timestamp that is also in the last SYN
    /// shows nothing.
    fn first_syn_arrived(&self, syn: &SynSent, segment: &Segment<'_>) -> bool {
        let echo = segment.options.timestamps.filter(|_| self.config.timestamps).map(|ts| ts.echo);
        segment.ack.gt(self.snd.iss + 1)
            || echo.is_some_and(|echo| {
                syn.first_sent != Instant::FAR_FUTURE
                    && self.ts_of_first(syn) == echo
                    && self.ts_now(self.last_sent) != echo
            })
    }

    /// Takes a SYN-ACK for which [`Connection::syn_ack_report`] gave a report.
    pub fn handle_syn_ack(
        &mut self,
        segment: &Segment<'_>,
        resolution: Resolution,
        now: Instant,
        pool: &mut Pool,
    ) -> Disposition {
        let State::SynSent(syn) = &self.state else {
            return Disposition::Dropped(DropReason::Unexpected);
        };
        if resolution == Resolution::Abort {
            self.die(CloseReason::PeerMisbehaved, pool);
            return Disposition::Reset;
        }
        let hedged = syn.hedge == Hedge::Sent;
        let early = self.first_syn_arrived(syn, segment);
        let only = syn.retransmits == 0 || (hedged && syn.timeouts == 0 && early);
        let timed = only && !syn.elsewhere && syn.first_sent != Instant::FAR_FUTURE;
        let (retransmits, first_sent) = (syn.retransmits, syn.first_sent);
        let (elsewhere, follow) = (syn.elsewhere, syn.follow);
        let repeated = retransmits - u8::from(hedged);
        let whole = resolution == Resolution::Accepted && segment.ack.ge(self.snd.iss + 1 + syn.carried);
        // One lost SYN with a first flight says more about the path's middleboxes than about congestion. A SYN
        // that was too big, or that met an earlier connection, says nothing about congestion, and one that was sent
        // again before its answer could come was not lost.
        let unusual = syn.carried > 0 || !syn.options.as_slice().is_empty();
        let spared = u8::from(syn.too_big)
            + u8::from(syn.hastened)
            + u8::from(hedged)
            + u8::from(unusual || syn.met_old || syn.refused);
        let congested = retransmits > spared && !early;
        self.handshake_retransmits = repeated;
        let first_flight = segment.ack.gt(self.snd.iss + 1);
        self.rcv.begin(segment.seq);
        self.snd.first_flight_end = self.snd.nxt;
        self.last_heard = now;
        self.take_syn_options(&segment.options, now);
        self.take_ecn_of_syn(segment);
        //= rfc7323 2.2-d
        self.snd.first_window(segment.seq, segment.ack, u32::from(segment.window));
        if resolution == Resolution::DataRefused {
            // The stream begins behind the SYN: the numbers of a refused preamble are used again.
            self.snd.set_preamble(0);
        }
        let stream_acked = self.snd.buffered();
        self.snd.flight.acknowledge(segment.ack, |_| ());
        self.snd.acknowledge(pool, segment.ack);
        self.totals.bytes_acked += (stream_acked - self.snd.buffered()) as u64;
        if unlikely(self.push.is_used()) {
            self.stamp_acknowledged(now);
        }
        let followed = whole && self.snd.outstanding();
        if followed && (repeated > 0 || (elsewhere && follow == 0)) {
            // These segments left with the first SYN, a timeout ago, or with one that a peer refused. Their loss counts
            // together with the SYN's.
            self.snd.flight.mark(|_| Some(true));
        } else if !followed {
            //= rfc7413 4.2.2-f
            // Data that the SYN-ACK does not acknowledge was not delivered. It is sent again at once, and does
            // not count as congestion (RFC 7413 §4.2.2).
            self.snd.flight.clear();
            self.snd.nxt = segment.ack;
        }
        // The SYN no longer waits. Data that it did not deliver still does (RFC 9293 §3.9.1.1).
        self.note_progress(now);
        match timed.then_some(first_sent) {
            Some(sent) => self.rtt.sample_between(sent, now),
            // The answer to the first of several SYNs may be a repetition, with the same timestamp. Then its round-trip
            // time is too long by the SYN's timeout.
            None if early => {
                if let Some(rtt) = self.echoed_rtt(segment, now) {
                    self.rtt.sample_for_now(rtt);
                }
            }
            None => self.sample_echo(segment, now),
        }
        // After a lost SYN the window is one segment (RFC 5681 §3.1). A SYN that arrived late was not lost.
        if congested {
            self.syn_lost();
        }
        self.rtt.reset_backoff();
        self.backoffs = 0;
        self.timers.stop(Timer::Retransmit);
        if followed {
            self.arm_retransmit(now);
        }
        self.totals.delivered += 1;
        self.transit(if first_flight { Trigger::SynAckFirstFlight } else { Trigger::SynAck });
        self.open(now);
        self.facts.silent = true;
        // Data that the application is about to write carries the acknowledgement.
        self.rcv.need = if self.facts.more { AckNeed::Delayed } else { AckNeed::Now };
        self.take_payload(pool, segment.seq + 1, segment.payload, true);
        if segment.flags.contains(Flags::FIN) {
            self.rcv.note_fin(segment.seq + 1 + segment.payload.len() as u32);
            self.take_fin(now);
        }
        Disposition::Processed
    }

    /// The handshake is complete.
    #[inline]
    pub(super) fn open(&mut self, now: Instant) {
        self.facts.connected = true;
        self.ready |= Readiness::CONNECTED;
        self.ready |= Readiness::WRITABLE;
        self.arm_keepalive(now);
        if self.snd.fin_queued {
            self.transit(Trigger::Close);
        }
    }

    /// A segment in SYN-SENT (RFC 9293 §3.10.7.3).
    pub(super) fn in_syn_sent(
        &mut self,
        segment: &Segment<'_>,
        now: Instant,
        pool: &mut Pool,
    ) -> Disposition {
        if let Some(report) = self.syn_ack_report(segment) {
            let resolution = if report.acked == 0 { Resolution::DataRefused } else { Resolution::Accepted };
            return self.handle_syn_ack(segment, resolution, now, pool);
        }
        let ack = segment.flags.contains(Flags::ACK);
        let good_ack = ack && segment.ack.gt(self.snd.iss) && segment.ack.le(self.snd.nxt);
        //= rfc5961 3.2-e
        let alien = matches!(&self.state, State::SynSent(syn) if self.echoes_nothing(syn, segment));
        if ack && (!good_ack || alien) {
            if segment.flags.contains(Flags::RST) {
                return Disposition::Dropped(DropReason::AckUnacceptable);
            }
            if !good_ack {
                self.met_old_connection();
            }
            return Disposition::Reset;
        }
        if segment.flags.contains(Flags::RST) {
            if good_ack {
                if !self.refuses_first_flight(segment.ack, now) {
                    //= rfc5961 4.2-c
                    self.die(CloseReason::Refused, pool);
                }
                return Disposition::Processed;
            }
            return Disposition::Dropped(DropReason::RstUnacceptable);
        }
        if !segment.flags.contains(Flags::SYN) {
            // Data arrived before the SYN-ACK: the path passes data.
            self.facts.early_data |= good_ack && !segment.payload.is_empty();
            return Disposition::Dropped(DropReason::Unexpected);
        }
        self.simultaneous_open(segment, now);
        Disposition::Processed
    }

    /// Our SYN crossed the peer's SYN (RFC 9293 §3.5, figure 8). The peer's first-flight options and payload
    /// are ignored, and the answer acknowledges only the SYN. The peer may acknowledge what our SYN carried.
    //= rfc9293 MUST-10 MUST-11
    fn simultaneous_open(&mut self, segment: &Segment<'_>, now: Instant) {
        self.rcv.begin(segment.seq);
        self.take_syn_options(&segment.options, now);
        self.snd.first_window(segment.seq, self.snd.iss, u32::from(segment.window));
        if let State::SynSent(syn) = &self.state
            && !syn.preamble.is_empty()
        {
            // A peer that took the preamble for the beginning of the stream must not acknowledge it.
            self.snd.nxt = self.snd.iss + 1;
        }
        self.snd.set_preamble(0);
        self.snd.first_flight_end = self.snd.nxt;
        let syn = self.state.receive_syn();
        syn.origin = Origin::Simultaneous;
        syn.retries = self.config.syn_retries;
        self.record(Transition { from: StateName::SynSent, trigger: Trigger::Syn, to: StateName::SynRcvd });
        self.arm_retransmit(now);
    }

    /// Whether `echo` belongs to a time before `last`.
    fn is_before_last(&self, echo: u32, last: Option<Instant>) -> bool {
        self.facts.timestamps && last.is_some_and(|last| (echo.wrapping_sub(self.ts_now(last)) as i32) < 0)
    }

    /// A SYN was lost, probably to congestion: the window is one segment, and the timeout is at
    /// least 3 s until the first sample (RFC 5681 §3.1, RFC 6298 §5.7).
    //= rfc6298 5.7-a
    fn syn_lost(&mut self) {
        self.control.on_syn_loss();
        self.rtt.set_initial(self.config.timeout_at_first().max(Duration::from_secs(3)));
    }

    /// The ACK of our SYN-ACK arrived (RFC 9293 §3.10.7.4, fifth step, SYN-RECEIVED). Returns when the SYN-ACK
    /// left, if it left only once: with two SYN-ACKs under way nothing can be measured (Karn).
    #[inline(always)]
    pub(super) fn confirm(&mut self, segment: &Segment<'_>, now: Instant) -> Option<Instant> {
        let State::SynRcvd(syn) = &self.state else { return None };
        let (retransmits, early, again, last) = (syn.retransmits, syn.early, syn.again, syn.last_sent);
        if syn.origin == Origin::Simultaneous {
            // The peer did not take all that our SYN carried, so the rest is sent again.
            self.snd.flight.clear();
            self.snd.nxt = segment.ack;
        }
        let left = last.filter(|_| !again);
        // A SYN cookie was sent by the listener: there was no SYN-RECEIVED state.
        let from = if syn.last_sent.is_none() { StateName::Listen } else { StateName::SynRcvd };
        self.handshake_retransmits = retransmits;
        self.totals.delivered += 1;
        // An echo of an earlier time shows that the first SYN-ACK was only late (the idea of RFC 3522).
        let slow = again && segment.options.timestamps.is_some_and(|ts| self.is_before_last(ts.echo, last));
        if slow {
            // Or the client's first ACK was lost, and this one, which repeats its echo, answers a later SYN-ACK. Then
            // the echo shows a time that is too long by the SYN-ACK's timeout.
            if let Some(rtt) = self.echoed_rtt(segment, now) {
                self.rtt.sample_for_now(rtt);
            }
        } else if retransmits > 1 || (retransmits > 0 && !early) {
            self.syn_lost();
        }
        // It answers the last SYN-ACK, as its echo shows, and acknowledges none of the data that left before that one: a
        // client without SYN-ACK drops data.
        let echoes = self.facts.timestamps && segment.options.timestamps.is_some();
        let nothing = segment.ack == self.snd.iss + 1 && !segment.options.has_sack();
        let dropped = last.filter(|_| again && early && !slow && echoes && nothing);
        self.rtt.reset_backoff();
        self.backoffs = 0;
        self.timers.stop(Timer::Retransmit);
        let window = self.window_of(segment);
        self.snd.first_window(segment.seq, segment.ack, window);
        self.transit_from(from, Trigger::HandshakeAck);
        self.open(now);
        if let Some(before) = dropped {
            self.repair(|sent| sent.at < before, now);
        }
        left
    }
}
