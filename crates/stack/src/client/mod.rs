//! The client's side of Fast Open: what a SYN asks for, what the answer means (RFC 7413 §4.1).

pub(crate) mod connect;
pub(crate) mod fallback;
pub(crate) mod ports;
pub(crate) mod visit;

use crate::asap::in_lookup::InLookup;
use crate::asap::option;
use crate::client::ports::PortSelector;
use crate::config::{Certified, Config, ConnectConfig};
use crate::env::Env;
use crate::flow::{FlowKey, default_mss};
use crate::flows::Flows;
use crate::flows::slot::{Fallback, PendingConnect, SentAsapOption, ShownCertificate, Slot};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::net::IpAddr;
use firstflight_credential::store::CookieAnswer;
use firstflight_credential::{
    CredentialStore, Entry, LearntOfServer, NetworkId, Outcome, Permission, Reason,
};
use firstflight_tcp::rtt::INITIAL_RTO;
use firstflight_tcp::{Disposition, DropReason, Resolution, StateName, SynAckReport, SynPlan};
use firstflight_wire::asap::{BLOCK_LEN, Hint, Reply};
use firstflight_wire::hint::unlikely;
use firstflight_wire::tcp::{FastOpen, Flags, Segment};
use firstflight_wire::{Instant, encapsulation};

/// Bytes that options may take in a SYN. First-flight data leaves this room free.
const SYN_OPTIONS: u32 = 40;

/// The client's side of first flights: what is remembered of servers, and the connects that have no answer yet.
pub(crate) struct Client {
    pub credentials: CredentialStore,
    ports: PortSelector,
    /// Connects carried in a lookup that no server has answered.
    pub in_lookup: BTreeMap<FlowKey, InLookup>,
}

impl Client {
    pub(crate) fn new(config: &Config, ports: [u8; 16]) -> Self {
        let credentials = CredentialStore::new(config.limits.credentials).simple(config.simple_credentials);
        Self {
            credentials: if config.shard.is_some() { credentials.telling() } else { credentials },
            ports: PortSelector::new(ports, config.ports.clone()),
            in_lookup: BTreeMap::new(),
        }
    }

    /// What is remembered of servers.
    pub(crate) const fn credentials(&self) -> &CredentialStore {
        &self.credentials
    }

    /// Forgets everything about servers.
    pub(crate) fn forget(&mut self) {
        self.credentials.flush();
    }

    /// Restores what was saved about a server on `network`.
    pub(crate) fn restore(&mut self, network: NetworkId, server: IpAddr, entry: Entry) {
        self.credentials.restore(network, server, entry);
    }

    /// What the clients of other shards must know.
    pub(crate) fn poll_learnt(&mut self) -> Option<LearntOfServer> {
        self.credentials.poll_learnt()
    }

    /// Takes what the client of another shard learnt.
    pub(crate) fn repeat(&mut self, learnt: LearntOfServer) {
        self.credentials.repeat(learnt);
    }

    /// A router told the largest segment that passes to `server`.
    pub(crate) fn learn_path_mss(&mut self, network: NetworkId, server: IpAddr, mss: u16, now: Instant) {
        self.credentials.learn_path_mss(network, server, mss, now);
    }

    /// Connects no longer come from `port`, on which a listener began to listen.
    pub(crate) fn reserve_port(&mut self, port: u16) {
        self.ports.reserve(port);
    }

    /// No listener uses `port` any more.
    pub(crate) fn free_port(&mut self, port: u16) {
        self.ports.free(port);
    }

    /// Whether any connect was carried in a lookup and has no answer yet.
    #[inline]
    pub(crate) fn has_in_lookup(&self) -> bool {
        !self.in_lookup.is_empty()
    }
}

/// The other attempt of a connect whose one attempt is over.
pub(crate) enum Other {
    /// The second attempt (index), which ends too.
    SecondAttempt(u32),
    /// The first attempt (index), which has no second one any more.
    First(u32),
}

/// A decision about a connect's first flight.
pub(crate) struct Intent {
    pub pending: Option<Box<PendingConnect>>,
    pub outcome: Outcome,
    /// Largest payload of a segment to the server.
    pub path_mss: u16,
}

impl Intent {
    /// An ordinary handshake, and the reason for it.
    fn handshake(reason: Reason, path_mss: u16) -> Self {
        Self { pending: None, outcome: Outcome::Handshake(reason), path_mss }
    }
}

impl Client {
    /// Decides how much of `data` the SYN to the server carries, if the connect asks for more than a handshake.
    /// Data with a cookie has priority over data with a certificate, which costs both ends more. `plan` is a new
    /// plan that the caller owns, because it is too large to be moved.
    pub(crate) fn intend(
        &mut self,
        flows: &mut Flows,
        plan: &mut SynPlan,
        config: &ConnectConfig,
        key: &FlowKey,
        data: &[u8],
        now: Instant,
    ) -> Intent {
        let (network, server) = (flows.env.config.network_of(key), key.remote_ip());
        if !config.fast_open && config.asap.is_none() {
            let reason = config.held_back.unwrap_or(Reason::NotRequested);
            return Intent::handshake(reason, self.client_path_mss(&mut flows.env, key, now));
        }
        // Reuses a box of an earlier connection, so that connects allocate nothing in the long run.
        let mut pending = flows.table.spare.pop().unwrap_or_default();
        let known = self.credentials.prospect(network, server, &mut pending.cookie, now);
        let path_mss = flows.env.path_mss(key).min(known.path_mss.unwrap_or(u16::MAX));
        if known.permission == Permission::Nothing {
            flows.table.spare.push(pending);
            return Intent::handshake(Reason::FailureMemory, path_mss);
        }
        // A certificate may carry what must not run twice; a plain cookie may not.
        let by_cookie = config.fast_open && (config.replay_safe || config.asap.is_none());
        if (!by_cookie || config.no_cookie)
            && let Some(unused) = pending.cookie.take()
        {
            // `prospect` has taken a cookie for one use out of the store. This puts it back.
            self.credentials.note_answer(network, server, &unused, CookieAnswer::Unclear, None, now);
        }
        pending.asap_option = None;
        let cookie = pending.cookie.as_ref();
        let tcp = config.tcp.as_ref().unwrap_or(&flows.env.tcp);
        // The store says the usual timeout of a server whose round-trip time it does not know.
        let measured = Some(known.timeout).filter(|timeout| *timeout < INITIAL_RTO);
        plan.first_timeout = Some(config.syn_timeout.or(measured).unwrap_or(tcp.timeout_at_first()));
        let own = tcp.largest_segment();
        // In UDP every server takes the base datagram.
        let mss = known.mss.or(key.is_carried().then_some(encapsulation::BASE_MSS));
        if let (Some(certified), None) = (&config.asap, cookie) {
            let shown = self.credentials.speaks_asap(network, server, &certified.identity, now);
            let speaks = shown.unwrap_or(certified.known);
            let address = certified.certificate.address();
            let mismatch = self.credentials.is_mismatch(network, server, address, now);
            let withheld = withheld(config, certified, speaks, mismatch, data);
            let limit =
                self.first_flight_limit(&mut flows.env, server, certified.mss.or(mss), path_mss.min(own));
            // The signature covers exactly the data that rides: no more than the connection takes at once.
            let buffer = config.tcp.as_ref().unwrap_or(&flows.env.tcp).most_to_send();
            let room = (limit.saturating_sub(BLOCK_LEN as u32)).min(buffer) as usize;
            let riding = option::riding(certified, withheld, room, data);
            let asap = option::asap_option(certified, key.encapsulation(), riding, &mut flows.env.random);
            plan.options = asap.option;
            plan.preamble = asap.block;
            plan.data_limit = asap.data as u32;
            pending.asap_option = Some(asap.sent);
            pending.certified_for = Some(address);
        }
        let bare = config.fast_open && config.no_cookie;
        if bare {
            // The operator of such a network knows what its servers take.
            plan.data_limit =
                self.first_flight_limit(&mut flows.env, server, mss.or(Some(u16::MAX)), path_mss.min(own));
        } else if config.fast_open {
            let option = match cookie {
                Some(held) => {
                    plan.data_limit = self.first_flight_limit(&mut flows.env, server, mss, path_mss.min(own));
                    FastOpen::Cookie(held.form, held.cookie)
                }
                //= rfc7413 4.2.1-a 4.2.2-a
                None => FastOpen::Request(known.form),
            };
            plan.options.append_fast_open(&option);
        }
        plan.hedged = known.doubtful && (config.replay_safe || !key.is_carried());
        // The server's replay guard detects a copy of a block, even if the copy comes from another port.
        plan.repeats = u8::from(key.is_carried() && !config.replay_safe && !plan.preamble.is_empty());
        pending.plain = if bare || cookie.is_some() {
            option::why_plain(config.held_back, plan.data_limit as usize, data)
        } else {
            // A cookie may be known, but is not sent because the server refused the last ones.
            (known.permission == Permission::Request).then_some(Reason::FailureMemory)
        };
        if cookie.is_some() || pending.shows_block() {
            plan.follow = option::follow(config, key, mss);
        }
        // Fill in place to avoid a copy.
        pending.network = network;
        pending.form = cookie.map_or(known.form, |held| held.form);
        pending.fast_open = config.fast_open;
        pending.cookie_age = cookie.map(|held| now.saturating_since(held.granted_at));
        pending.bare = bare;
        pending.first_rtt = false;
        pending.at_most_once = !config.replay_safe;
        pending.awaited = true;
        pending.answered_at = Instant::FAR_FUTURE;
        pending.fallback = Fallback::default();
        Intent { pending: Some(pending), outcome: Outcome::Undecided, path_mss }
    }

    /// Largest first-flight data: the peer's MSS, else the default of RFC 7413 §4.2.1, limited by our own and the
    /// path's, less the options.
    fn first_flight_limit(&self, env: &mut Env, server: IpAddr, mss: Option<u16>, path_mss: u16) -> u32 {
        let mss = mss.unwrap_or(default_mss(server)).min(env.tcp.largest_segment()).min(path_mss);
        u32::from(mss).saturating_sub(SYN_OPTIONS)
    }

    /// Largest payload of a segment to the flow's server, according to the link and to routers on earlier visits.
    pub(crate) fn client_path_mss(&self, env: &mut Env, key: &FlowKey, now: Instant) -> u16 {
        let learnt = self.credentials.path_mss(env.config.network_of(key), key.remote_ip(), now);
        env.path_mss(key).min(learnt.unwrap_or(u16::MAX))
    }

    /// Handles a segment for a client whose SYN asked for a first flight and has no answer yet.
    pub(crate) fn handle_answer(
        &mut self,
        flows: &mut Flows,
        index: u32,
        segment: &Segment<'_>,
        now: Instant,
    ) -> Disposition {
        let Some(slot) = flows.table.slots.get_mut(index) else { return Disposition::Processed };
        let Some(report) = slot.conn.syn_ack_report(segment) else {
            let crosses = !segment.flags.intersects(Flags::ACK.union(Flags::RST));
            if crosses && slot.conn.may_have_run() && must_not_run_again(slot) {
                return Disposition::Dropped(DropReason::Unexpected);
            }
            let disposition = slot.conn.handle_segment(segment, now, &mut flows.env.pool);
            if slot.conn.state() == StateName::SynRcvd {
                slot.outcome = Outcome::Handshake(Reason::SimultaneousOpen);
                self.no_answer(flows, index, now);
            }
            return disposition;
        };
        let may_have_run = report.may_have_run && (slot.key.is_carried() || slot.conn.was_refused());
        let once = must_not_run_again(slot);
        if unlikely(may_have_run) && report.acked == 0 && once {
            return self.refuse_second_time(flows, index, now);
        }
        let Some(pending) = &mut slot.pending else { return Disposition::Processed };
        let offered = pending.asap_option.as_ref().map(|sent| option::read(sent, &report, segment));
        if let Some(answer) = offered.filter(|answer| answer.resolution == Resolution::Abort) {
            return self.distrust(flows, index, answer, segment, now);
        }
        let carried = slot.key.is_carried();
        if once && let Some(answer) = offered.filter(|answer| answer.may_have_run(carried)) {
            return self.may_have_run(flows, index, answer, now);
        }
        (pending.awaited, pending.answered_at) = (false, now);
        let second_attempt = pending.fallback.second_attempt.take();
        let (network, form, cookie, plain_why) =
            (pending.network, pending.form, &pending.cookie, pending.plain);
        let (fast_open, bare) = (pending.fast_open, pending.bare);
        let server = slot.key.remote_ip();
        let fresh = match segment.options.fast_open() {
            // A cookie that was not requested is not accepted.
            Some(FastOpen::Cookie(form, cookie)) if !bare => Some((cookie, form)),
            _ => None,
        };
        let plain = if report.acked == 0 { Resolution::DataRefused } else { Resolution::Accepted };
        let (resolution, outcome) = match offered {
            Some(answer) => (answer.resolution, answer.outcome),
            None => (plain, judge(&report, cookie.is_some() || bare, fresh.is_some(), plain_why)),
        };
        slot.outcome = outcome;
        slot.shown = match pending.shows_block() {
            true if outcome == Outcome::Accepted && is_proved(segment) => ShownCertificate::ByFront,
            true => ShownCertificate::Certificate,
            false => ShownCertificate::Nothing,
        };
        let (sent, slow) = (slot.conn.first_syn_sent(), slot.conn.plain_syn_is_slow(now));
        let passed = sent.filter(|_| outcome.is_accepted());
        let disposition = slot.conn.handle_syn_ack(segment, resolution, now, &mut flows.env.pool);
        let mss = segment.options.mss;
        if let Some(used) = cookie {
            let answer = answer_to(&report);
            self.credentials.note_syn_ack(network, server, mss, passed, used, answer, fresh, now);
            pending.cookie = None;
        } else {
            if let Some(mss) = mss {
                self.credentials.learn_mss(network, server, mss);
            }
            if let Some(sent) = passed {
                self.credentials.note_passed(network, server, sent);
            }
            if let Some((srtt, rttvar)) = slot.conn.rtt() {
                pending.first_rtt = self.credentials.learn_first_rtt(network, server, srtt, rttvar, now);
            }
            match fresh {
                Some((cookie, form)) => self.credentials.learn_cookie(network, server, form, cookie, now),
                None if fast_open && !bare && !report.retransmitted => {
                    self.credentials.note_unanswered(network, server, form);
                }
                None => {}
            }
        }
        if unlikely(outcome == Outcome::Handshake(Reason::AddressMismatch))
            && let Some(address) = pending.certified_for
        {
            self.credentials.note_mismatch(network, server, address, now);
        }
        if let Some(capable) = offered.and_then(|answer| answer.capable)
            && let Some(sent) = pending.asap_option.clone()
        {
            self.note_asap(network, server, &sent, capable, now);
        }
        let stripped = outcome == Outcome::Handshake(Reason::OptionStripped);
        let first_lost = offered.map_or(report.first_lost, |answer| answer.first_lost);
        if (report.refused && fresh.is_none()) || stripped {
            // The SYN with the option was refused and the plain one came through, or the SYN came without the option.
            self.credentials.note_failure(network, server, now);
        } else if unlikely(first_lost) && fresh.is_none() && !slow {
            self.credentials.note_lost(network, server, sent, now);
        }
        if outcome.is_accepted() {
            flows.env.journal.counters.first_flights_taken += 1;
        }
        if unlikely(second_attempt.is_some()) {
            self.drop_second_attempt(flows, second_attempt);
        }
        self.watch(&mut flows.table, index, now);
        if !self.in_lookup.is_empty()
            && let Some(slot) = flows.table.slots.get(index)
        {
            let key = slot.key;
            self.forget_in_lookup(&key, index);
        }
        flows.trace_outcome(index, outcome);
        disposition
    }

    /// Fails a connect whose SYN carried data that must not run twice. This is called if a later SYN is answered:
    /// one that left after a timeout, in UDP, or behind a RST or an ICMP error. It is also called if the server has
    /// seen the request before, because a copy overtook the SYN. The server may have executed the data, so the data
    /// does not go again. First flights rest, so the next connect succeeds.
    fn refuse_second_time(&mut self, flows: &mut Flows, index: u32, now: Instant) -> Disposition {
        let Some(slot) = flows.table.slots.get_mut(index) else { return Disposition::Reset };
        let (server, network) = (slot.key.remote_ip(), flows.env.config.network_of(&slot.key));
        self.credentials.note_failure(network, server, now);
        slot.outcome = Outcome::Handshake(Reason::Unknown);
        let disposition = slot.conn.refuse(&mut flows.env.pool);
        self.no_answer(flows, index, now);
        disposition
    }

    /// An answer to a block from which the client cannot tell that its data did not run.
    fn may_have_run(
        &mut self,
        flows: &mut Flows,
        index: u32,
        answer: option::SynAckMeaning,
        now: Instant,
    ) -> Disposition {
        let slot = flows.table.slots.get(index);
        let sent = slot.and_then(|slot| Some((slot.key, slot.pending.as_ref()?.asap_option.clone()?)));
        if let Some(((key, sent), capable)) = sent.zip(answer.capable) {
            self.note_asap(flows.env.config.network_of(&key), key.remote_ip(), &sent, capable, now);
        }
        self.refuse_second_time(flows, index, now)
    }

    /// Records whether a server understands what was offered.
    fn note_asap(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        sent: &SentAsapOption,
        capable: bool,
        now: Instant,
    ) {
        if capable || sent.tag.is_err() {
            self.credentials.note_asap(network, server, &sent.identity, capable, now);
        } else {
            // The server got a block. It must be asked before the next one, even if other sources say that it
            // understands blocks.
            self.credentials.doubt_asap(network, server, &sent.identity, now);
        }
    }

    /// A SYN-ACK contradicts what is known of the server, or itself. Resets its connection. If the data may run
    /// twice, a plain connection from another port follows at once.
    fn distrust(
        &mut self,
        flows: &mut Flows,
        index: u32,
        answer: option::SynAckMeaning,
        segment: &Segment<'_>,
        now: Instant,
    ) -> Disposition {
        let Some(slot) = flows.table.slots.get_mut(index) else { return Disposition::Reset };
        let server = slot.key.remote_ip();
        let Some(pending) = &mut slot.pending else { return Disposition::Reset };
        let network = pending.network;
        let Some(sent) = &mut pending.asap_option else { return Disposition::Reset };
        let again = sent.distrusted.is_some();
        sent.distrusted = sent.distrusted.or(answer.outcome.reason());
        let sent = sent.clone();
        let (falls_back, begun) =
            (pending.fallback.first.is_some(), pending.fallback.second_attempt.is_some());
        if !again {
            self.note_asap(network, server, &sent, false, now);
            self.credentials.note_failure(network, server, now);
        }
        if falls_back {
            if !begun {
                self.second_attempt(flows, index, now);
            }
            return Disposition::Reset;
        }
        let Some(slot) = flows.table.slots.get_mut(index) else { return Disposition::Reset };
        slot.outcome = answer.outcome;
        if let Some(pending) = &mut slot.pending {
            pending.awaited = false;
        }
        slot.conn.handle_syn_ack(segment, Resolution::Abort, now, &mut flows.env.pool)
    }
}

/// Whether the SYN carried data that must not be executed twice.
fn must_not_run_again(slot: &Slot) -> bool {
    slot.pending.as_ref().is_some_and(|pending| pending.at_most_once) && slot.conn.first_flight_len() > 0
}

/// Whether a SYN-ACK answers a first flight that a front delivered.
fn is_proved(segment: &Segment<'_>) -> bool {
    let reply = segment.options.asap().and_then(Reply::parse);
    reply.is_some_and(|reply| matches!(reply.hint, Hint::Proof(_)))
}

/// Why the SYN to a server that takes certificates carries a probe instead of a block, apart from the certificate
/// itself and the room in the SYN.
fn withheld(
    config: &ConnectConfig,
    certified: &Certified,
    speaks: bool,
    mismatch: bool,
    data: &[u8],
) -> Option<Reason> {
    if !speaks {
        return Some(Reason::CapabilityUnknown);
    }
    if mismatch {
        // The server sees this client under another address than the certificate's.
        return Some(Reason::AddressMismatch);
    }
    let twice = config.replay_safe || certified.once || data.is_empty();
    config.held_back.or((!twice).then_some(Reason::NotReplaySafe))
}

/// The outcome that a SYN-ACK shows. `plain` is why the SYN carried no data, if the client decided that.
fn judge(report: &SynAckReport, with_cookie: bool, granted: bool, plain: Option<Reason>) -> Outcome {
    let reason = match (with_cookie, report.carried) {
        (false, _) if granted => plain.unwrap_or(Reason::NoCredential),
        (false, _) if report.met_old => Reason::OldConnection,
        (false, _) if report.refused => Reason::SynRefused,
        // The SYN with the request was lost. The plain SYN that was answered had no request.
        (false, _) if report.first_lost => Reason::SynTimedOut,
        (false, _) => Reason::PeerWithoutFastOpen,
        (true, 0) if report.refused => Reason::SynRefused,
        (true, 0) => plain.unwrap_or(Reason::NoData),
        (true, carried) if report.acked >= carried => return Outcome::Accepted,
        (true, _) if report.acked > 0 => Reason::DataPartlyAcknowledged,
        (true, _) if report.refused => Reason::SynRefused,
        (true, _) if report.too_big => Reason::PathTooSmall,
        (true, _) if report.met_old => Reason::OldConnection,
        (true, _) if report.first_lost => Reason::SynTimedOut,
        (true, _) if granted => Reason::StaleOrWrongCredential,
        (true, _) => Reason::DataNotAcknowledged,
    };
    Outcome::Handshake(reason)
}

/// What a SYN-ACK says about the cookie.
const fn answer_to(report: &SynAckReport) -> CookieAnswer {
    match (report.carried, report.acked) {
        (0, _) => CookieAnswer::Unclear,
        (_, 0) if report.first_lost || report.met_old || report.refused || report.too_big => {
            CookieAnswer::Unclear
        }
        (_, 0) => CookieAnswer::Refused,
        _ => CookieAnswer::Accepted,
    }
}
