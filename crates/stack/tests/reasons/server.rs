//! Scenarios at the server, against a hand-made client.

use super::Scenario;
use crate::certified::{self, NOW_MS, certificate_from, request, request_to};
use crate::flights::{AFTER, CLIENT, DATA, Server, client, flight, server, server_with, syn, trusting};
use crate::peer::visited::{first_flight, server as visited, server_with as visited_with};
use crate::peer::{CLIENT_PORT, Peer, Seg, key, policy as cookie_policy, seg};
use firstflight_credential::asap::Identity;
use firstflight_credential::{
    FastOpenPolicy, FirstFlight, GuardKey, JobRequest, JobResult, OneTimeCookies, OneTimeKeys, Outcome,
    PendingLimit, Reason, ReplayTable, Replays, SerialTable, Verifier, VerifierVerdict, Window,
};
use firstflight_stack::ListenerId;
use firstflight_wire::Clock;
use firstflight_wire::tcp::{Cookie, FastOpenForm};
use std::sync::Arc;

/// Additional scenarios, and their reasons.
pub(super) const OTHERS: &[(Scenario, Reason)] =
    &[(bad_signature, Reason::SynCookie), (malformed, Reason::SynCookie), (probed, Reason::NoCredential)];

/// The client completes the handshake that the last SYN began, and its data comes.
fn by_handshake(p: &mut Peer, listener: ListenerId) -> Outcome {
    p.drain();
    p.send(seg().seq(1).ack(1).data(DATA));
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA, "only by the handshake");
    p.stack.info(id).unwrap().outcome
}

/// The outcome of the connection that this SYN opens.
fn answers(mut p: Peer, listener: ListenerId, syn: Seg) -> Outcome {
    p.send(syn);
    by_handshake(&mut p, listener)
}

// --- by cookies ------------------------------------------------------------------------------------------------

pub(super) fn not_requested() -> Outcome {
    let (p, listener, _) = visited();
    answers(p, listener, seg().syn().mss(1460))
}

pub(super) fn no_credential() -> Outcome {
    let (p, listener, _) = visited();
    answers(p, listener, seg().syn().mss(1460).cookie(&[]))
}

pub(super) fn stale_credential() -> Outcome {
    let (p, listener, _) = visited();
    let other = p.cookie_of(key(2));
    answers(p, listener, first_flight(&other))
}

pub(super) fn policy() -> Outcome {
    let (p, listener, cookie) = visited_with(|_| {}, |c| c.fast_open = None);
    answers(p, listener, first_flight(&cookie))
}

pub(super) fn pending_limit() -> Outcome {
    let (p, listener, cookie) = visited_with(|_| {}, |c| c.fast_open = Some(cookie_policy(key(1), 0)));
    answers(p, listener, first_flight(&cookie))
}

pub(super) fn server_limit() -> Outcome {
    let within = PendingLimit::new(9).within(Arc::new(PendingLimit::new(0)));
    let (p, listener, cookie) =
        visited_with(|_| {}, |c| c.fast_open.as_mut().unwrap().pending = Arc::new(within));
    answers(p, listener, first_flight(&cookie))
}

pub(super) fn client_limit() -> Outcome {
    let limit = PendingLimit::with_clients(9, 1);
    let (mut p, listener, cookie) =
        visited_with(|_| {}, |c| c.fast_open.as_mut().unwrap().pending = Arc::new(limit));
    p.send(first_flight(&cookie));
    p.accept(listener);
    p.flow(CLIENT_PORT + 1, 77);
    answers(p, listener, first_flight(&cookie))
}

pub(super) fn syn_cookie() -> Outcome {
    let (p, listener, cookie) = visited_with(|_| {}, |c| c.syn_backlog = 0);
    answers(p, listener, first_flight(&cookie))
}

/// A listener with one-time cookies.
fn one_time() -> (Peer, ListenerId) {
    let serials = SerialTable::own(1, 1, 1000);
    serials.extend(1 << 40);
    let cookies = OneTimeCookies::new(OneTimeKeys::from_bytes([7; 32]), Arc::new(serials));
    let mut policy = cookie_policy(key(1), 10);
    policy.verifier = Some(Arc::new(cookies));
    policy.replays = Replays::AtMostOnce;
    let mut p = Peer::new();
    let listener = p.listen_with(|c| c.fast_open = Some(policy));
    (p, listener)
}

/// A SYN that requests a cookie, followed by its ACK if `completes`.
fn granted(p: &mut Peer, listener: ListenerId, completes: bool) -> Cookie {
    p.flow(CLIENT_PORT + 7, 5000);
    p.send(seg().syn().mss(1460).cookie(&[]));
    let cookie = p.expect().syn_ack().grants(FastOpenForm::Standard);
    if completes {
        p.send(seg().seq(1).ack(1));
        p.accept(listener);
    }
    p.drain();
    p.flow(CLIENT_PORT, 77);
    cookie
}

pub(super) fn not_active() -> Outcome {
    let (mut p, listener) = one_time();
    let cookie = granted(&mut p, listener, false);
    answers(p, listener, first_flight(&cookie))
}

pub(super) fn no_data() -> Outcome {
    let (mut p, listener) = one_time();
    let cookie = granted(&mut p, listener, true);
    answers(p, listener, seg().syn().mss(1460).cookie(cookie.as_bytes()))
}

/// Asks a store about every first flight.
struct Asks;

impl Verifier for Asks {
    fn verify(&self, _: &FirstFlight<'_>, _: &Clock) -> VerifierVerdict {
        VerifierVerdict::Pending { job: JobRequest::Verify { key: 7 }, grant: None }
    }
}

fn asking() -> (Peer, ListenerId) {
    let asks = FastOpenPolicy { verifier: Some(Arc::new(Asks)), ..cookie_policy(key(1), 10) };
    let (mut p, listener, cookie) = visited_with(|_| {}, |c| c.fast_open = Some(asks));
    p.send(first_flight(&cookie));
    p.quiet();
    (p, listener)
}

/// What `firstflight` answers if the shared store does not respond.
pub(super) fn store_unavailable() -> Outcome {
    let (mut p, listener) = asking();
    let job = p.stack.poll_job().unwrap();
    p.stack.handle_job(job.id, JobResult::Refuse(Reason::StoreUnavailable), p.now);
    by_handshake(&mut p, listener)
}

pub(super) fn deferred_too_long() -> Outcome {
    let (mut p, listener) = asking();
    p.pass(30);
    by_handshake(&mut p, listener)
}

// --- by certificates -------------------------------------------------------------------------------------------

fn refuses(mut s: Server, syn: Seg) -> Outcome {
    s.p.send(syn);
    s.verify();
    by_handshake(&mut s.p, s.listener)
}

/// Request 5 under a certificate that began `ago` seconds before the start, made at the start.
fn begun(ago: u32) -> Seg {
    let begins = (NOW_MS / 1000) as u32 - ago;
    let certificate = certificate_from(1, 2, CLIENT.parse().unwrap(), begins);
    syn(&request(&certificate, 5, DATA, u64::from(ago) * 1000))
}

pub(super) fn replay() -> Outcome {
    let mut s = server();
    s.accepts(flight(5));
    s.p.flow(CLIENT_PORT + 1, 77);
    refuses(s, flight(5))
}

pub(super) fn untrusted_verifier() -> Outcome {
    let stranger = certified::certificate(7, 2, CLIENT.parse().unwrap());
    refuses(server(), syn(&request(&stranger, 5, DATA, 0)))
}

pub(super) fn expired() -> Outcome {
    refuses(server(), begun(1801))
}

/// The request was made 100 s after the start, and arrives at the start.
pub(super) fn clock_skew() -> Outcome {
    refuses(server(), syn(&request(&client(), 5, DATA, 100_000)))
}

pub(super) fn overloaded() -> Outcome {
    refuses(server_with(|config| config.limits.asap.per_second = 0, |_| {}, |_| {}), flight(5))
}

/// The previous first flight was reset by the address that it seemed to come from.
pub(super) fn barred() -> Outcome {
    let mut s = server();
    s.accepts(flight(5));
    s.p.send(seg().seq(AFTER).rst());
    s.p.flow(CLIENT_PORT + 1, 77);
    refuses(s, flight(6))
}

/// Of 50 signatures that are saved up for new certificates, one network may have half at once: 12 first flights.
pub(super) fn network_limit() -> Outcome {
    let mut s = server_with(|config| config.limits.asap.per_second = 1000, |_| {}, |_| {});
    for n in 0..12 {
        s.p.flow(CLIENT_PORT + 1 + n, 77);
        s.p.send(flight(n as u8));
    }
    s.p.flow(CLIENT_PORT, 77);
    s.p.send(flight(99));
    by_handshake(&mut s.p, s.listener)
}

pub(super) fn address_mismatch() -> Outcome {
    let other = certified::certificate(1, 2, "10.0.0.3".parse().unwrap());
    refuses(server(), syn(&request(&other, 5, DATA, 0)))
}

pub(super) fn wrong_identity() -> Outcome {
    let other = Identity::name("www.example.net", 80);
    refuses(server(), syn(&request_to(&other, &client(), 5, DATA, 0)))
}

pub(super) fn guard_floor() -> Outcome {
    let guard = ReplayTable::new(GuardKey::from_bytes([4; 16]), Window::REQUESTS, 1 << 20, NOW_MS);
    refuses(trusting(|asap| asap.guard = Arc::new(guard)), flight(5))
}

fn bad_signature() -> Outcome {
    let mut bent = request(&client(), 5, DATA, 0);
    bent.payload[111] ^= 1;
    refuses(server(), syn(&bent))
}

fn malformed() -> Outcome {
    let mut bent = request(&client(), 5, DATA, 0);
    bent.payload[0] ^= 1;
    refuses(server(), syn(&bent))
}

/// The client only probes whether the server understands.
fn probed() -> Outcome {
    use firstflight_wire::asap::AsapOption;
    use firstflight_wire::tcp::OptionBytes;
    let probe = OptionBytes::from(AsapOption::Probe { long_reply: true });
    refuses(server(), seg().syn().mss(1460).option(probe.as_slice()))
}
