//! The fallback sequence of a connect whose first flight gets no answer. It ensures
//! that such a connect is never much slower than an ordinary one.
//!
//! 1. The client sends the SYN with data.
//! 2. After its timeout, the client sends a plain SYN on the same four-tuple; `tcp` does that.
//! 3. After twice that time, if the data may run twice, the client sends a plain SYN from another port. The data
//!    waits until one of the handshakes completes. The other attempt is given up, and what still arrives for it is
//!    answered with a RST.
//!
//! A path may also pass SYN and SYN-ACK and then nothing that carries data. A connection whose first flight may run
//! twice is therefore probed if it stays silent. The peer's answer shows whether the peer has sent something that
//! did not arrive. If it has, or if no answer comes, step 3 follows, too.
//!
//! Unless a first flight to the server was answered before and none has failed since, the probing begins a quarter
//! of a round trip after the SYN-ACK (25 ms at least), and the second attempt's plain SYN follows another quarter
//! later. When that SYN is answered, the answers to the probes must have come, too. The data is sent again only if
//! they have not. Such a path costs 1.5 round trips more than an ordinary connect. A server on a good path that
//! takes time to respond costs one SYN, once.
//!
//! The second attempt has a slot of its own ([`Owner::SecondAttempt`]). When it succeeds, the two connections change
//! places, so that the application keeps its id.

use crate::client::Client;
use crate::config::ConnectConfig;
use crate::event::Trace;
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::flows::slot::{Beginning, Eager, OpeningSide, Owner};
use crate::flows::table::Table;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;
use firstflight_credential::{Outcome, Reason};
use firstflight_tcp::{Connection, Disposition, DropReason, Resolution, StateName, SynPlan};
use firstflight_wire::Instant;
use firstflight_wire::tcp::{Flags, Segment};

/// Shortest time between two checks of a silent connection: servers take time to respond, and a lost response is
/// sent again.
const WATCH_MIN: Duration = Duration::from_millis(500);
/// Longest time between two checks. If the server takes even longer to respond, the checks end.
const WATCH_MAX: Duration = Duration::from_secs(16);
/// Shortest time between the steps of an eager second attempt. If the round trip is shorter than this, servers take
/// longer to answer than packets take to travel.
const EAGER_MIN: Duration = Duration::from_millis(25);
/// Timeouts in a row, or probes without an answer, after which data counts as swallowed.
const SWALLOWED: u8 = 2;

/// Segment size of a second attempt if the path may drop large segments. Nearly every path takes this size (RFC
/// 4821 §7.2).
const SMALL_SEGMENT: u16 = 1024;

/// Whether an open connection gets no acknowledgement of large segments.
fn loses_large_segments(conn: &Connection) -> bool {
    conn.state() != StateName::SynSent
        && conn.timeouts() > 0
        && conn.unacknowledged() > usize::from(SMALL_SEGMENT)
}

/// Whether the attempt `second_attempt`, whose answer comes now, shows nothing about what the SYN of `first`
/// carried: its plain SYN was lost, too, or waited for its answer as long as the SYN of `first` did before it left.
fn fares_no_better(first: &Connection, second_attempt: &Connection, now: Instant) -> bool {
    let (Some(sent), Some(again)) = (first.first_syn_sent(), second_attempt.first_syn_sent()) else {
        return false;
    };
    second_attempt.handshake_retransmits() > 0 || now.saturating_since(again) >= again.saturating_since(sent)
}

fn eager_step(rtt: Duration) -> Duration {
    (rtt / 4).max(EAGER_MIN)
}

impl Client {
    /// Prepares step 3 of the fallback sequence for a connect that begins now, if it may have that step.
    pub(crate) fn plan_fallback(
        &mut self,
        table: &mut Table,
        index: u32,
        config: &ConnectConfig,
        data: &[u8],
        now: Instant,
    ) {
        let chosen = config.local.is_none_or(|local| local.port() == 0);
        if !config.replay_safe || !chosen || config.encapsulation.is_some() {
            return;
        }
        let Some(slot) = table.slots.get_mut(index) else { return };
        let Some(pending) = &mut slot.pending else { return };
        let timeout = self.credentials.syn_timeout(pending.network, slot.key.remote_ip(), now);
        pending.fallback.at = Some(now + timeout * 2);
        let riding = data.get(..slot.conn.first_flight_len()).unwrap_or_default();
        pending.fallback.first = Some(Box::from(riding));
    }

    /// Takes the next step of the fallback sequence of connection `index`.
    pub(crate) fn fall_back(&mut self, flows: &mut Flows, index: u32, now: Instant) {
        let Some(slot) = flows.table.slots.get_mut(index) else { return };
        let Some(pending) = &mut slot.pending else { return };
        pending.fallback.at = None;
        if slot.key.is_carried() {
            return self.remind(flows, index, now);
        }
        if pending.fallback.first.is_none() || slot.owner != Owner::Application {
            return;
        }
        match slot.conn.state() {
            StateName::SynSent => self.second_attempt(flows, index, now),
            StateName::Established | StateName::FinWait1 | StateName::FinWait2 => {
                self.look(flows, index, now)
            }
            _ => {}
        }
    }

    /// The SYN-ACK has come. From now on, the connection waits for the response, as long as the data may be sent
    /// again.
    pub(crate) fn watch(&mut self, table: &mut Table, index: u32, now: Instant) {
        let Some(slot) = table.slots.get_mut(index) else { return };
        let Some(pending) = &mut slot.pending else { return };
        if pending.fallback.first.is_none() && !slot.key.is_carried() {
            // There is nothing to send again.
            pending.fallback.at = None;
            return;
        }
        let rtt = slot.conn.rtt().map_or(Duration::ZERO, |rtt| rtt.0);
        let eager = !rtt.is_zero() && !self.credentials.is_proven(pending.network, slot.key.remote_ip());
        let fallback = &mut pending.fallback;
        if slot.key.is_carried() {
            // A retransmitted SYN-ACK shows a round trip that is too long, and one ACK more does no harm.
            fallback.wait = WATCH_MIN;
            fallback.at = slot.outcome.is_accepted().then(|| now + fallback.wait);
            fallback.acked = slot.conn.totals().bytes_acked;
            return;
        }
        fallback.wait = (rtt * 3).max(WATCH_MIN);
        let waits = slot.conn.unacknowledged() > 0 || fallback.first.as_ref().is_some_and(|f| !f.is_empty());
        // An ordinary handshake shows nothing new about the path.
        let eager = eager && slot.outcome.is_accepted();
        fallback.eager = if eager { Eager::Probes } else { Eager::No };
        let wait = if eager { eager_step(rtt) } else { fallback.wait };
        fallback.at = (waits && fallback.first.is_some()).then(|| now + wait);
    }

    /// Repeats the ACK of a handshake in UDP. A server in UDP retransmits its SYN-ACK only once or twice, and sends nothing
    /// or only the beginning of its response before the ACK that shows our port. If that ACK was lost and there is nothing
    /// else to send, the client repeats it until something comes that the server would not send without it.
    fn remind(&mut self, flows: &mut Flows, index: u32, now: Instant) {
        let Some(slot) = flows.table.slots.get_mut(index) else { return };
        let (conn, Some(pending)) = (&mut slot.conn, &mut slot.pending) else { return };
        let open = matches!(conn.state(), StateName::Established | StateName::FinWait1 | StateName::FinWait2);
        // What came with the SYN-ACK left without our ACK. What came later shows that the server has it.
        let fallback = &mut pending.fallback;
        let half = conn.rtt().map_or(WATCH_MIN, |rtt| rtt.0) / 2;
        let heard =
            conn.last_heard() > pending.answered_at + half || conn.totals().bytes_acked > fallback.acked;
        if !open || heard || fallback.wait > WATCH_MAX {
            return;
        }
        fallback.wait *= 2;
        fallback.at = Some(now + fallback.wait);
        conn.acknowledge_again();
        flows.touched(index);
    }

    /// Checks an open connection from which nothing may have come yet.
    fn look(&mut self, flows: &mut Flows, index: u32, now: Instant) {
        let Some(slot) = flows.table.slots.get_mut(index) else { return };
        let (conn, Some(pending)) = (&mut slot.conn, &mut slot.pending) else { return };
        let fallback = &mut pending.fallback;
        let kept = fallback.first.as_ref().map_or(0, |first| first.len() as u64);
        let totals = conn.totals();
        // The connection works if there is a response, or if the server took more than is kept.
        if totals.bytes_received > 0 || totals.bytes_acked > kept || fallback.wait > WATCH_MAX {
            fallback.first = None;
            return;
        }
        if conn.has_heard_data() {
            // Something behind a hole came, so the path passes data, and the server will fill the hole. Only its silence
            // counts from here on.
            fallback.eager = Eager::No;
        }
        match fallback.eager {
            Eager::No => {}
            Eager::Probes => {
                let rtt = conn.rtt().map_or(Duration::ZERO, |rtt| rtt.0);
                (fallback.eager, fallback.probed_at) = (Eager::Begins, Some(now));
                fallback.at = Some(now + eager_step(rtt));
                conn.probe();
                return flows.touched(index);
            }
            Eager::Begins => {
                fallback.eager = Eager::Begun;
                // If its SYN is lost, the sequence continues as on any other path.
                fallback.at = Some(now + fallback.wait);
                conn.probe();
                flows.touched(index);
                return self.second_attempt(flows, index, now);
            }
            Eager::Begun if fallback.second_attempt.is_some() => {
                fallback.at = Some(now + fallback.wait);
                return;
            }
            Eager::Begun => fallback.eager = Eager::No,
        }
        if let Some(at) = fallback.probed_at {
            let silent = conn.last_heard() < at;
            fallback.unanswered = if silent { fallback.unanswered + 1 } else { 0 };
            let lost = conn.peer_is_ahead() && !conn.has_heard_data();
            if lost || conn.timeouts().max(fallback.unanswered) >= SWALLOWED {
                return self.second_attempt(flows, index, now);
            }
            if !silent {
                // The server is alive and has sent nothing yet.
                fallback.wait *= 2;
            }
        }
        fallback.probed_at = Some(now);
        fallback.at = Some(now + fallback.wait);
        conn.probe();
        flows.touched(index);
    }

    /// Sends a plain SYN from another port.
    pub(crate) fn second_attempt(&mut self, flows: &mut Flows, index: u32, now: Instant) {
        let Some(slot) = flows.table.slots.get(index) else { return };
        let (local, remote) = (slot.key.local(), slot.key.remote());
        let any_port =
            ConnectConfig { local: Some(SocketAddr::new(local.ip(), 0)), ..ConnectConfig::default() };
        if flows.is_full() {
            return;
        }
        let Ok(local) = self.local_end(flows, remote, &any_port) else { return };
        let key = FlowKey::new(local, remote);
        let mut ends = flows.env.endpoints(&key, None, now);
        ends.path_mss = self.client_path_mss(&mut flows.env, &key, now);
        let Some(slot) = flows.table.slots.get(index) else { return };
        if loses_large_segments(&slot.conn) {
            // The path may drop large packets. With large segments this attempt would find that out again, timeout
            // by timeout.
            ends.path_mss = ends.path_mss.min(SMALL_SEGMENT);
        }
        let tcp = Arc::clone(slot.conn.config());
        let hash = flows.table.hasher.hash(&key);
        let owner = Owner::SecondAttempt(index);
        let with = Beginning { ends, key: &key, hash, owner, outcome: Outcome::Undecided, now };
        let second_attempt = flows.insert(Some(&tcp), with, |slot, pool| {
            slot.conn.open_active(SynPlan::default(), &[], pool);
            slot.side = OpeningSide::Client;
        });
        if let Some(pending) = flows.table.slots.get_mut(index).and_then(|slot| slot.pending.as_mut()) {
            pending.fallback.second_attempt = Some(second_attempt);
        }
        flows.env.journal.counters.second_attempts += 1;
        flows.touched(second_attempt);
    }

    /// Handles a segment for the second attempt of connection `first`.
    pub(crate) fn handle_second_attempt(
        &mut self,
        flows: &mut Flows,
        second_attempt: u32,
        first: u32,
        segment: &Segment<'_>,
        now: Instant,
    ) -> Disposition {
        let Some((winner, loser)) = flows.table.slots.pair_mut(second_attempt, first) else {
            return Disposition::Reset;
        };
        if winner.conn.syn_ack_report(segment).is_none() {
            if !segment.flags.intersects(Flags::ACK.union(Flags::RST)) {
                // The peer's own SYN opens nothing here.
                return Disposition::Dropped(DropReason::Unexpected);
            }
            return winner.conn.handle_segment(segment, now, &mut flows.env.pool);
        }
        let first_bytes = loser.pending.as_ref().and_then(|pending| pending.fallback.first.as_ref());
        let kept = first_bytes.map_or(0, |bytes| bytes.len() as u64);
        let totals = loser.conn.totals();
        let open = loser.conn.state() != StateName::SynSent;
        // A part of a response, behind a hole that the server will fill.
        let part = open
            && loser.conn.has_heard_data()
            && winner.conn.first_syn_sent().is_some_and(|sent| loser.conn.last_heard() >= sent);
        if part || totals.bytes_received > 0 || totals.bytes_acked > kept || loser.owner != Owner::Application
        {
            // The response came after all, or the server took bytes that cannot be sent again.
            self.forget_second_attempt(&mut flows.table, first);
            self.drop_second_attempt(flows, Some(second_attempt));
            return Disposition::Reset;
        }
        if let Some(pending) = &mut loser.pending
            && core::mem::take(&mut pending.fallback.eager) == Eager::Begun
            && pending.fallback.probed_at.is_some_and(|at| loser.conn.last_heard() >= at)
            && !loser.conn.peer_is_ahead()
        {
            // The server is alive and has lost nothing: it only takes time to respond.
            pending.fallback.at = Some(now + pending.fallback.wait);
            self.forget_second_attempt(&mut flows.table, first);
            self.drop_second_attempt(flows, Some(second_attempt));
            flows.touched(first);
            return Disposition::Reset;
        }
        self.change_places(flows, second_attempt, first, now);
        let Some(slot) = flows.table.slots.get_mut(first) else { return Disposition::Reset };
        let server = slot.key.remote_ip();
        let disposition =
            slot.conn.handle_syn_ack(segment, Resolution::DataRefused, now, &mut flows.env.pool);
        if let Some(mss) = segment.options.mss {
            self.credentials.learn_mss(flows.env.config.network, server, mss);
        }
        flows.touched(first);
        self.drop_second_attempt(flows, Some(second_attempt));
        disposition
    }

    /// The attempt `second_attempt` succeeds and becomes connection `first`. It takes over the stream and the
    /// application's settings. The first attempt becomes `second_attempt`.
    fn change_places(&mut self, flows: &mut Flows, second_attempt: u32, first: u32, now: Instant) {
        let Some((to, from)) = flows.table.slots.pair_mut(first, second_attempt) else { return };
        let Some(pending) = &mut to.pending else { return };
        let (network, server) = (pending.network, to.key.remote_ip());
        let was_open = !pending.awaited;
        let large = loses_large_segments(&to.conn);
        let (sent, slow) = (to.conn.first_syn_sent(), fares_no_better(&to.conn, &from.conn, now));
        pending.fallback.second_attempt = None;
        pending.fallback.at = None;
        pending.answered_at = Instant::FAR_FUTURE;
        pending.fallback.syns = to.conn.handshake_retransmits().saturating_add(1);
        let kept = pending.fallback.first.take().filter(|_| was_open).unwrap_or_default();
        from.conn.adopt(&mut to.conn, &kept, &mut flows.env.pool);
        core::mem::swap(&mut to.conn, &mut from.conn);
        core::mem::swap(&mut to.key, &mut from.key);
        core::mem::swap(&mut to.hash, &mut from.hash);
        let hashes = (to.hash, from.hash);
        let reason = match pending.distrusts() {
            Some(reason) => reason,
            // The block was refused, so the server took nothing. The data that was sent in its place did not
            // arrive.
            None if was_open && pending.shows_block() && !to.outcome.is_accepted() => {
                Reason::OverlapBlackhole
            }
            // It is unknown what the server took on the connection that is given up.
            None if was_open => Reason::Unknown,
            None => Reason::SynTimedOut,
        };
        to.outcome = Outcome::Handshake(reason);
        let outcome = to.outcome;
        flows.table.wheel.cancel(first);
        flows.table.wheel.cancel(second_attempt);
        flows.table.index.remove(hashes.1, first);
        flows.table.index.remove(hashes.0, second_attempt);
        flows.table.map(hashes.0, first);
        flows.table.map(hashes.1, second_attempt);
        if large {
            self.credentials.learn_path_mss(network, server, SMALL_SEGMENT, now);
        }
        self.no_answer(flows, first, now);
        // Here the plain SYN on the same four-tuple got no answer either, so chance is less likely than a path that bars
        // the four-tuple.
        let passed = sent.is_some_and(|sent| self.credentials.passed_since(network, server, sent));
        if was_open || !(slow || passed) {
            self.credentials.note_failure(network, server, now);
        }
        let id = flows.table.id(first);
        flows.env.journal.trace(Trace::Outcome(id, outcome));
    }

    /// Ends the connection `second_attempt`: the second attempt, or the first one if they have changed places.
    pub(crate) fn drop_second_attempt(&mut self, flows: &mut Flows, second_attempt: Option<u32>) {
        let Some(index) = second_attempt else { return };
        let Some(slot) = flows.table.slots.get_mut(index) else { return };
        slot.owner = Owner::Nobody;
        slot.conn.abort(&mut flows.env.pool);
        flows.touched(index);
    }

    /// Notes that the second attempt of connection `first` no longer exists.
    pub(crate) fn forget_second_attempt(&mut self, table: &mut Table, first: u32) {
        if let Some(pending) = table.slots.get_mut(first).and_then(|slot| slot.pending.as_mut()) {
            pending.fallback.second_attempt = None;
        }
    }
}
