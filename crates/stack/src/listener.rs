//! What happens to a SYN for a listener.

use crate::config::ResponsePolicy;
use crate::event::{Drop, Trace};
use crate::flow::FlowKey;
use crate::isn::Initial;
use crate::parked::Parked;
use crate::slot::Owner;
use crate::stack::{Announced, Stack};
use core::time::Duration;
use firstflight_credential::{
    Admission, FirstFlight, Flow, Grant, JobRequest, JobResult, Outcome, Place, Presented, Reason, admit,
    spoil,
};
use firstflight_tcp::{ChildPlan, Endpoints};
use firstflight_wire::tcp::{FastOpen, Flags, OptionBytes, Options, Segment};
use firstflight_wire::{Instant, SeqNum};

/// No first flight is accepted while SYN cookies answer, nor this long after the last one: a
/// stateless cookie and a later child have different ISNs, and the client's ACK to the cookie would
/// reset its own executed request.
const COOKIE_TAIL: Duration = Duration::from_secs(10);

impl Stack {
    /// A SYN for listener `index`: the one path on which a first flight is admitted.
    pub(crate) fn handle_syn(
        &mut self,
        index: u32,
        key: FlowKey,
        segment: &Segment<'_>,
        above: Option<SeqNum>,
        now: Instant,
    ) {
        if segment.flags.contains(Flags::FIN) {
            return self.drop_packet(Drop::BadFlags);
        }
        let Some(listener) = self.listeners.at(index) else { return };
        let pressed = listener.syn_queue >= listener.config.syn_backlog;
        let tail = listener.last_cookie.is_some_and(|t| now - t < COOKIE_TAIL);
        if pressed {
            self.spoil(index, &key, segment, now);
            return self.answer_with_cookie(index, key, segment, now);
        }
        if listener.accept_queue.len() >= listener.config.backlog {
            self.spoil(index, &key, segment, now);
            return self.drop_packet(Drop::AcceptQueueFull);
        }
        if self.slots.len() >= self.config.limits.connections {
            self.spoil(index, &key, segment, now);
            return self.drop_packet(Drop::TooManyConnections);
        }
        if let Some((job, isn)) = self.parked.find(&key) {
            let first_flight = segment.options.fast_open().is_some() || !segment.payload.is_empty();
            if isn == segment.seq && first_flight {
                return self.drop_packet(Drop::AlreadyParked);
            }
            // A plain SYN overtakes the verdict: ordinary handshake, the job's answer is ignored.
            drop(self.parked.take(job));
        }
        let fast_open = segment.options.fast_open();
        let first =
            FirstFlight { syn_cookie_pressure: tail, ..first_flight(&key, segment, fast_open.as_ref()) };
        let policy = listener.config.fast_open.as_ref();
        match admit(policy, &first, &self.clock_at(now)) {
            Admission::Accept { grant, place } => {
                self.relieved(index);
                self.adopt_early(index, key, segment, grant, place, above, now);
            }
            Admission::Fallback { reason, grant, tell } => {
                self.tell(tell);
                self.limited(index, reason);
                self.adopt(index, key, segment, reason, grant, above, now);
            }
            Admission::Pending { job, grant, place } => {
                self.park(index, key, segment, job, grant, place, above, now);
            }
        }
    }

    /// The SYN's first flight is not taken, so that no copy of it may be taken later.
    pub(crate) fn spoil(&mut self, index: u32, key: &FlowKey, segment: &Segment<'_>, now: Instant) {
        if segment.payload.is_empty() {
            return;
        }
        let Some(listener) = self.listeners.at(index) else { return };
        let fast_open = segment.options.fast_open();
        let first = first_flight(key, segment, fast_open.as_ref());
        let job = spoil(listener.config.fast_open.as_ref(), &first, &self.clock_at(now));
        self.tell(job);
    }

    fn tell(&mut self, job: Option<JobRequest>) {
        if let Some(job) = job {
            self.parked.tell(job);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one call for each verdict, all of it needed")]
    fn park(
        &mut self,
        index: u32,
        key: FlowKey,
        segment: &Segment<'_>,
        job: JobRequest,
        grant: Option<Grant>,
        place: Place,
        above: Option<SeqNum>,
        now: Instant,
    ) {
        let mut bytes = alloc::vec![0; 60 + segment.payload.len()];
        let header = firstflight_wire::tcp::Header {
            src_port: segment.src_port,
            dst_port: segment.dst_port,
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            window: segment.window,
            urgent: segment.urgent,
        };
        let written = header.emit(segment.options.raw, &mut bytes).ok();
        let room = written.filter(|at| self.parked.has_room(at + segment.payload.len()));
        let Some(at) = room else {
            drop(place);
            self.tell(Some(job));
            return self.adopt(index, key, segment, Reason::Overloaded, grant, above, now);
        };
        bytes.truncate(at + segment.payload.len());
        if let Some(body) = bytes.get_mut(at..) {
            body.copy_from_slice(segment.payload);
        }
        let listener = self.listeners.id(index);
        self.parked.park(key, segment.seq, above, &bytes, listener, grant, place, job, now);
    }

    /// A verdict for a parked first flight.
    pub(crate) fn resume(&mut self, parked: Parked, result: JobResult, now: Instant) {
        let Ok(segment) = Segment::parse(&parked.segment) else { return };
        let Some(listener) = self.listeners.get(parked.listener) else { return };
        if self.find(&parked.key).is_some() {
            return;
        }
        // The queues may have filled while it waited.
        let pressed = listener.syn_queue >= listener.config.syn_backlog;
        if listener.accept_queue.len() >= listener.config.backlog {
            return self.drop_packet(Drop::AcceptQueueFull);
        }
        if self.slots.len() >= self.config.limits.connections {
            return self.drop_packet(Drop::TooManyConnections);
        }
        let tail = listener.last_cookie.is_some_and(|t| now - t < COOKIE_TAIL);
        let result = if tail { JobResult::Refuse(Reason::SynCookie) } else { result };
        let (index, key, above, grant) = (parked.listener.index, parked.key, parked.above, parked.grant);
        match result {
            JobResult::Accept => {
                self.relieved(index);
                self.adopt_early(index, key, &segment, grant, parked.place, above, now);
            }
            JobResult::Refuse(_) if pressed => self.answer_with_cookie(index, key, &segment, now),
            JobResult::Refuse(reason) => {
                drop(parked.place);
                self.adopt(index, key, &segment, reason, grant, above, now);
            }
        }
    }

    /// An ordinary child: its data, if any, is not taken.
    #[allow(clippy::too_many_arguments, reason = "one call for each verdict, all of it needed")]
    fn adopt(
        &mut self,
        index: u32,
        key: FlowKey,
        segment: &Segment<'_>,
        reason: Reason,
        grant: Option<Grant>,
        above: Option<SeqNum>,
        now: Instant,
    ) {
        if !segment.payload.is_empty() || segment.options.fast_open().is_some() {
            self.counters.first_flights_refused += 1;
        }
        let plan = ChildPlan { options: self.grant(segment, grant), ..ChildPlan::default() };
        let outcome = Outcome::Handshake(reason);
        let child = self.make_child(index, key, segment, &plan, outcome, None, above, now);
        self.granted(child, index, grant);
    }

    /// A child whose first flight was admitted: readable and acceptable at once.
    #[allow(clippy::too_many_arguments, reason = "one call for each verdict, all of it needed")]
    fn adopt_early(
        &mut self,
        index: u32,
        key: FlowKey,
        segment: &Segment<'_>,
        grant: Option<Grant>,
        place: Place,
        above: Option<SeqNum>,
        now: Instant,
    ) {
        self.counters.first_flights_accepted += 1;
        let ip = key.ip_header_len() as u32;
        let received = ip + (20 + segment.options.raw.len() + segment.payload.len()) as u32;
        let response = self.listeners.at(index).map(|l| l.config.response).unwrap_or_default();
        let plan = ChildPlan {
            early: true,
            skip: 0,
            options: self.grant(segment, grant),
            pre_ack_budget: match response {
                ResponsePolicy::Immediately => u32::MAX,
                ResponsePolicy::Times(k) => k.saturating_mul(received),
                ResponsePolicy::AfterHandshake => 0,
            },
            overhead: ip,
            ..ChildPlan::default()
        };
        let child = self.make_child(index, key, segment, &plan, Outcome::Accepted, Some(place), above, now);
        self.granted(child, index, grant);
    }

    /// The SYN-ACK's option for a granted cookie, in the form in which the client asked.
    fn grant(&mut self, segment: &Segment<'_>, grant: Option<Grant>) -> OptionBytes {
        let Some(grant) = grant else { return OptionBytes::EMPTY };
        let Some(asked) = segment.options.fast_open() else { return OptionBytes::EMPTY };
        self.counters.cookies_granted += 1;
        OptionBytes::from(&FastOpen::Cookie(asked.form(), grant.cookie))
    }

    /// Keeps the serial of a one-time cookie until the client's ACK makes the cookie good.
    fn granted(&mut self, child: Option<u32>, listener: u32, grant: Option<Grant>) {
        let Some((child, serial)) = child.zip(grant.and_then(|grant| grant.serial)) else { return };
        let listener = self.listeners.id(listener);
        if let Some(slot) = self.slots.get_mut(child) {
            slot.granted = true;
            self.grants.insert(child, (listener, serial));
        }
    }

    /// The client of `child` has acknowledged: its one-time cookie is good from now on.
    pub(crate) fn activate(&mut self, child: u32) {
        let Some((listener, serial)) = self.grants.remove(&child) else { return };
        let policy = self.listeners.get(listener).and_then(|l| l.config.fast_open.as_ref());
        let job = policy.and_then(|policy| policy.verifier.as_ref()).and_then(|v| v.activate(serial));
        self.tell(job);
    }

    /// A limit sends first flights to the ordinary handshake from now on (RFC 7413 §5.1).
    fn limited(&mut self, index: u32, reason: Reason) {
        if !matches!(reason, Reason::PendingLimit | Reason::ServerLimit) {
            return;
        }
        let Some(listener) = self.listeners.at_mut(index) else { return };
        if !core::mem::replace(&mut listener.limited, true) {
            self.counters.fast_open_suspended += 1;
            self.trace(Trace::Suspended(self.listeners.id(index), reason));
        }
    }

    /// A first flight is accepted again.
    fn relieved(&mut self, index: u32) {
        let Some(listener) = self.listeners.at_mut(index) else { return };
        if core::mem::replace(&mut listener.limited, false) {
            self.trace(Trace::Resumed(self.listeners.id(index)));
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one call for each verdict, all of it needed")]
    fn make_child(
        &mut self,
        index: u32,
        key: FlowKey,
        segment: &Segment<'_>,
        plan: &ChildPlan,
        outcome: Outcome,
        place: Option<Place>,
        above: Option<SeqNum>,
        now: Instant,
    ) -> Option<u32> {
        let listener = self.listeners.at_mut(index)?;
        let tcp = listener.tcp.clone();
        let hold = plan.early && listener.config.hold_last_ack;
        if !plan.early {
            listener.syn_queue += 1;
        }
        self.counters.passive_opens += 1;
        let ends = self.endpoints(&key, above, now);
        let owner = if plan.early { Owner::AcceptQueue(index) } else { Owner::SynQueue(index) };
        let child = self.insert(tcp, ends, &key, owner, outcome, now);
        let slot = self.slots.get_mut(child)?;
        slot.conn.open_passive(segment, plan, &mut self.pool, now);
        slot.place = place;
        slot.hold = hold;
        let id = self.id(child);
        self.trace(Trace::Outcome(id, outcome));
        if plan.early {
            self.enqueue(child, index);
        }
        self.touched(child, now);
        Some(child)
    }

    pub(crate) fn endpoints(&self, key: &FlowKey, above: Option<SeqNum>, now: Instant) -> Endpoints {
        let Initial { isn, ts_offset } = self.isn.initial(key.local(), key.remote(), now);
        Endpoints {
            local_port: key.local_port(),
            remote_port: key.remote_port(),
            isn: above.map_or(isn, |a| if isn.gt(a) { isn } else { a + 1 }),
            ts_offset,
            path_mss: self.path_mss(key.remote_ip()),
        }
    }

    /// A handshake is complete: from the SYN queue to the accept queue.
    pub(crate) fn promote(&mut self, child: u32, index: u32) {
        self.listeners.left_syn_queue(index);
        if let Some(slot) = self.slots.get_mut(child) {
            slot.owner = Owner::AcceptQueue(index);
        }
        self.enqueue(child, index);
    }

    fn enqueue(&mut self, child: u32, index: u32) {
        if let Some(listener) = self.listeners.at_mut(index) {
            listener.accept_queue.push_back(child);
            if !listener.announced {
                listener.announced = true;
                self.events.push_back(Announced::Listener(index));
            }
        }
    }

    /// Answers without keeping state (RFC 4987 §3.6).
    fn answer_with_cookie(&mut self, index: u32, key: FlowKey, segment: &Segment<'_>, now: Instant) {
        let Some(listener) = self.listeners.at_mut(index) else { return };
        listener.last_cookie = Some(now);
        let tcp = listener.tcp.clone();
        // A verdict that is still out would make a second answer to the same SYN.
        if let Some((job, _)) = self.parked.find(&key) {
            drop(self.parked.take(job));
        }
        let peer_mss = segment.options.mss.unwrap_or(536);
        let cookie = self.cookies.make(key.local(), key.remote(), segment.seq, peer_mss, now);
        self.counters.syn_cookies_sent += 1;
        self.reply_syn_cookie(key, &tcp, segment, cookie, now);
    }

    /// An ACK for a listener: perhaps the answer to a SYN cookie. False if it is not.
    pub(crate) fn handle_cookie_ack(
        &mut self,
        index: u32,
        key: FlowKey,
        segment: &Segment<'_>,
        now: Instant,
    ) -> bool {
        let Some(listener) = self.listeners.at(index) else { return false };
        // Two periods of the cookie's clock: no cookie lives longer.
        let recent = listener.last_cookie.is_some_and(|t| now - t < Duration::from_secs(192));
        let full = listener.accept_queue.len() >= listener.config.backlog
            || self.slots.len() >= self.config.limits.connections;
        let peer_isn = segment.seq - 1;
        let cookie = segment.ack - 1;
        let wanted =
            segment.flags.contains(Flags::ACK) && !segment.flags.intersects(Flags::SYN.union(Flags::RST));
        if !recent || !wanted {
            return false;
        }
        let Some(mss) = self.cookies.check(key.local(), key.remote(), peer_isn, cookie, now) else {
            return false;
        };
        if full {
            self.drop_packet(Drop::AcceptQueueFull);
            return true;
        }
        self.counters.syn_cookies_good += 1;
        let tcp = listener.tcp.clone();
        let mut ends = self.endpoints(&key, None, now);
        ends.isn = cookie;
        let mut options = Options::parse(&[], true);
        options.mss = Some(mss);
        if let Some(ts) = segment.options.timestamps {
            let echo = ts.echo.wrapping_sub(ends.ts_offset);
            let (scale, sack) = crate::syn_cookie::decode_ts(echo);
            options.timestamps = Some(ts);
            options.window_scale = scale;
            options.sack_permitted = sack;
        }
        self.counters.passive_opens += 1;
        if let Some(listener) = self.listeners.at_mut(index) {
            listener.syn_queue += 1;
        }
        let outcome = Outcome::Handshake(Reason::SynCookie);
        let child = self.insert(tcp, ends, &key, Owner::SynQueue(index), outcome, now);
        if let Some(slot) = self.slots.get_mut(child) {
            slot.conn.open_from_cookie(peer_isn, &options, now);
        }
        self.deliver(child, segment, now);
        true
    }
}

/// A SYN as the decision about it sees it.
fn first_flight<'a>(
    key: &FlowKey,
    segment: &'a Segment<'_>,
    fast_open: Option<&'a FastOpen>,
) -> FirstFlight<'a> {
    FirstFlight {
        flow: Flow { client: key.remote_ip(), server: key.local_ip() },
        ports: (segment.src_port, segment.dst_port),
        isn: segment.seq,
        presented: fast_open.map_or(Presented::None, Presented::FastOpen),
        payload: segment.payload,
        accept_queue_full: false,
        syn_cookie_pressure: false,
    }
}
