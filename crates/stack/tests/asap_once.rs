//! How often a certified request is executed, and for whom a certificate is valid, packet by packet
//! (`docs/spec/asap.md` §§4.5, 7.4, 7.5, 7.10).

use crate::certified::{NOW_MS, Request, certificate, request, verifier};
use crate::flights::{
    AFTER, CLIENT, DATA, Server, client, flight, flight_at, reply, server, server_with, syn, trusting,
};
use crate::peer::{CLIENT_PORT, seg};
use firstflight_credential::asap::{TrustStore, Trusted};
use firstflight_credential::{
    GuardKey, JobRequest, JobResult, Outcome, PendingLimit, Reason, RemoteGuard, ReplayTable, Window,
};
use firstflight_stack::{JobId, StateName, Verifications};
use firstflight_wire::Clock;
use firstflight_wire::asap::Status;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::sync::Arc;
use std::time::Duration;

/// Another flow: another port, another ISN.
fn next(s: &mut Server) {
    s.p.drain();
    let (port, isn) = (s.p.port + 1, s.p.isn.wrapping_mul(3) + 7);
    s.p.flow(port, isn);
}

/// Whatever happened to the first one, a copy from anywhere executes nothing.
#[track_caller]
fn copies_do_nothing(s: &mut Server, id: u8, made: u64, status: Status) {
    for _ in 0..3 {
        next(s);
        s.refuses(flight_at(id, made), status);
        s.p.send(seg().seq(1).ack(1).rst());
    }
}

fn guard_from(now_ms: u64) -> Arc<ReplayTable> {
    Arc::new(ReplayTable::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS, 1 << 20, now_ms))
}

// --- copies ----------------------------------------------------------------------------------------------

#[test]
fn a_copy_from_another_port_or_with_another_isn() {
    let mut s = server();
    s.accepts(flight(5));
    copies_do_nothing(&mut s, 5, 0, Status::Replayed);
    assert_eq!(s.p.stack.counters().first_flights_accepted, 1);
}

/// The copies arrive while the request is in time, and after it is too old.
#[test]
fn a_copy_after_the_close() {
    let mut s = server();
    let (_, id) = s.accepts(flight(5));
    s.p.send(seg().seq(AFTER).ack(1).fin());
    s.p.shutdown(id);
    s.p.release(id);
    s.p.drain();
    s.p.send(seg().seq(AFTER + 1).ack(2));
    assert_eq!(s.p.stack.connections(), 0);
    for ms in [100, 30_000, 60_000] {
        s.p.at(ms);
        copies_do_nothing(&mut s, 5, 0, Status::Replayed);
        assert_eq!(s.p.stack.connections(), 0);
    }
    // It is too late as well, but the guard has not forgotten it yet.
    s.p.at(60_001);
    copies_do_nothing(&mut s, 5, 0, Status::Replayed);
}

#[test]
fn a_request_of_the_future_is_remembered_until_it_is_too_old() {
    let mut s = server();
    s.accepts(flight_at(5, 10_000));
    s.p.send(seg().seq(AFTER).ack(1));
    for ms in [69_900, 70_100] {
        s.p.at(ms);
        copies_do_nothing(&mut s, 5, 10_000, Status::Replayed);
    }
}

#[test]
fn two_copies_in_one_batch() {
    let mut s = server();
    s.p.send(flight(5));
    next(&mut s);
    s.p.send(flight(5));
    assert_eq!((s.verify(), s.pending.pending()), (2, 1));
    let mut replies: Vec<_> = s.p.drain().iter().map(|got| reply(got).unwrap().status).collect();
    replies.sort_unstable();
    assert_eq!(replies, [Status::Accepted, Status::Replayed]);
    s.p.accept(s.listener);
    s.p.nothing_to_accept(s.listener);
}

/// The same id from another client, or for another identity, is another request.
#[test]
fn an_id_is_one_clients_and_one_identitys() {
    let other = firstflight_credential::asap::Identity::name("www.example.net", 80);
    let both = [crate::certified::identity(), other.clone()];
    let mut s = trusting(|asap| asap.identities = both.into());
    s.accepts(flight(5));
    next(&mut s);
    s.accepts(syn(&request(&certificate(1, 3, CLIENT.parse().unwrap()), 5, DATA, 0)));
    next(&mut s);
    s.accepts(syn(&crate::certified::request_to(&other, &client(), 5, DATA, 0)));
}

/// A request signed again with the same id is the same request, like copies for other ways.
#[test]
fn an_id_signed_again_is_the_same_request() {
    let mut s = server();
    s.accepts(flight(5));
    next(&mut s);
    s.refuses(flight_at(5, 3000), Status::Replayed);
    next(&mut s);
    s.refuses(syn(&request(&client(), 5, b"something else", 0)), Status::Replayed);
}

// --- restarts and clocks -----------------------------------------------------------------------------------

/// The previous process may have accepted requests that were made up to ten seconds ahead.
#[test]
fn a_copy_after_a_restart() {
    let mut before = server();
    before.p.at(5_000);
    before.accepts(flight(5));
    before.p.flow(CLIENT_PORT + 1, 7);
    before.accepts(flight_at(6, 15_000));

    let mut s = trusting(|asap| asap.guard = guard_from(NOW_MS + 5_000));
    for ms in [5_000, 10_000, 15_001] {
        s.p.at(ms);
        copies_do_nothing(&mut s, 5, 0, Status::GuardFloor);
        copies_do_nothing(&mut s, 6, 15_000, Status::GuardFloor);
    }
    // A request made later than that cannot have been accepted before.
    s.accepts_at(15_001);
}

impl Server {
    /// A new request is accepted.
    #[track_caller]
    fn accepts_at(&mut self, ms: u64) {
        next(self);
        self.accepts(flight_at(77, ms));
        self.p.send(seg().seq(AFTER).ack(1));
    }

    /// The wall clock jumps by this number of milliseconds.
    fn set_clock(&mut self, by: i64) {
        let unix_ms = (NOW_MS + self.p.ms()).checked_add_signed(by).unwrap();
        let clock = Clock { mono: self.p.now, unix_ms, uncertainty: Duration::ZERO };
        self.p.stack.handle_clock(clock);
    }
}

/// If the clock is set back a little, the memory still works. If it is set back by more, nothing is accepted until
/// the clock has made that up, because accepted requests cannot be told from new ones.
#[test]
fn a_copy_after_the_clock_was_set_back() {
    for back in [900, 5_000] {
        let mut s = server();
        s.p.at(20_000);
        s.accepts(flight_at(5, 20_000));
        s.p.send(seg().seq(AFTER).ack(1));
        s.set_clock(-back);
        copies_do_nothing(&mut s, 5, 20_000, Status::Replayed);
        if back > 1_000 {
            next(&mut s);
            s.refuses(flight_at(6, 20_000), Status::GuardFloor);
            s.p.at(35_001);
            copies_do_nothing(&mut s, 5, 20_000, Status::Replayed);
            next(&mut s);
            s.refuses(flight_at(8, 30_000), Status::GuardFloor);
            s.accepts_at(30_001);
        }
    }
}

/// The clock goes back twenty minutes. Twenty minutes later the copy is in time again.
#[test]
fn a_copy_when_the_clock_has_come_back_to_its_time() {
    let mut s = server();
    s.p.at(20_000);
    s.accepts(flight_at(5, 20_000));
    s.p.send(seg().seq(AFTER).ack(1));
    s.set_clock(-1_200_000);
    copies_do_nothing(&mut s, 5, 20_000, Status::Replayed);
    for ms in [1_210_000, 1_220_000, 1_250_000] {
        s.p.at(ms);
        copies_do_nothing(&mut s, 5, 20_000, Status::Replayed);
    }
    s.accepts_at(45_000);
}

/// The clock goes forward, and back again.
#[test]
fn a_copy_after_the_clock_went_forward_and_back() {
    let mut s = server();
    s.accepts(flight(5));
    s.p.send(seg().seq(AFTER).ack(1));
    s.set_clock(600_000);
    copies_do_nothing(&mut s, 5, 0, Status::Replayed);
    // Requests that were refused with that clock must not be accepted now.
    s.set_clock(0);
    copies_do_nothing(&mut s, 5, 0, Status::Replayed);
    // With that clock something was accepted, and older requests may have been forgotten.
    s.set_clock(610_001);
    s.accepts_at(610_001);
    s.set_clock(0);
    copies_do_nothing(&mut s, 5, 0, Status::Replayed);
    copies_do_nothing(&mut s, 77, 610_001, Status::Replayed);
}

// --- refused for now ---------------------------------------------------------------------------------------

/// Its data comes by the handshake. When there is room again, a copy of the SYN must not execute it a second time.
#[test]
fn what_was_refused_for_want_of_room_is_used_up() {
    let pending = Arc::new(PendingLimit::new(0));
    let limit = pending.clone();
    let mut s = trusting(|asap| asap.pending = limit);
    s.refuses(flight(5), Status::Overloaded);
    s.p.send(seg().seq(1).ack(1).data(DATA));
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), DATA);
    pending.set_limit(100);
    copies_do_nothing(&mut s, 5, 0, Status::Replayed);
    s.accepts_at(0);
}

#[test]
fn what_was_refused_for_one_clients_limit_is_used_up() {
    let pending = Arc::new(PendingLimit::with_clients(9, 1));
    let limit = pending.clone();
    let mut s = trusting(|asap| asap.pending = limit);
    s.accepts(flight(4));
    next(&mut s);
    s.refuses(flight(5), Status::Overloaded);
    pending.set_client_limit(9);
    copies_do_nothing(&mut s, 5, 0, Status::Replayed);
}

#[test]
fn what_was_refused_for_the_budget_is_used_up() {
    let mut s = server_with(|config| config.limits.asap.per_second = 100, |_| {}, |_| {});
    // The budget for new certificates allows two in a tenth of a second.
    let mut refused = Vec::new();
    for n in 0..6 {
        let theirs = certificate(1, 50 + n, CLIENT.parse().unwrap());
        let flight = syn(&request(&theirs, n, DATA, 0));
        next(&mut s);
        let got = s.asks(flight.clone());
        if reply(&got).unwrap().status == Status::Overloaded {
            refused.push(flight);
        }
    }
    assert!(refused.len() > 2 && refused.len() < 6);
    s.p.at(5_000);
    let signatures = s.signatures();
    for flight in refused {
        next(&mut s);
        while s.p.stack.accept(s.listener).is_some() {}
        s.refuses(flight, Status::Replayed);
    }
    assert_eq!(s.signatures(), signatures);
}

#[test]
fn what_was_refused_for_the_verifiers_rate_is_used_up() {
    let trusted = Trusted { per_second: Some(1), ..Trusted::new(verifier(1).public()) };
    let mut s = trusting(|asap| asap.trust = Arc::new(TrustStore::new([trusted]).unwrap()));
    s.accepts(flight(1));
    next(&mut s);
    s.accepts(flight(2));
    next(&mut s);
    s.refuses(flight(5), Status::Overloaded);
    s.p.at(3_000);
    copies_do_nothing(&mut s, 5, 0, Status::Replayed);
    s.accepts_at(3_000);
}

/// A SYN that is dropped because the accept queue is full is retransmitted without its block.
#[test]
fn what_was_dropped_for_a_full_accept_queue_is_used_up() {
    let mut s = server_with(|_| {}, |_| {}, |listen| listen.backlog = 1);
    s.p.send(flight(4));
    s.verify();
    s.p.expect().syn_ack();
    next(&mut s);
    s.p.send(flight(5));
    assert_eq!(s.verify(), 0);
    s.p.quiet();
    s.p.accept(s.listener);
    copies_do_nothing(&mut s, 5, 0, Status::Replayed);
}

/// An attacker who invents a request in a client's name does not use up another request of that client, whether
/// there is room or not.
#[test]
fn an_invented_request_uses_up_nothing() {
    let pending = Arc::new(PendingLimit::new(0));
    let limit = pending.clone();
    let mut s = trusting(|asap| asap.pending = limit);
    let mut invented = request(&client(), 6, DATA, 0);
    invented.payload[140] ^= 1;
    s.refuses(syn(&invented), Status::Overloaded);
    pending.set_limit(100);
    next(&mut s);
    s.accepts(flight(5));
    // A forged request that is detected does not even use up its own id.
    let mut forged = request(&client(), 7, DATA, 0);
    forged.payload[140] ^= 1;
    next(&mut s);
    s.refuses(syn(&forged), Status::BadSignature);
    next(&mut s);
    s.accepts(flight(7));
}

// --- whose certificate ---------------------------------------------------------------------------------------

/// The certificate was verified for the attacker's own address. The same bytes from the victim's address, with a
/// request that the attacker signs for it, are another certificate, which nobody has signed.
#[test]
fn a_verified_certificate_does_not_serve_another_address() {
    let mut s = server();
    let attacker = certificate(1, 66, CLIENT.parse().unwrap());
    s.accepts(syn(&request(&attacker, 5, DATA, 0)));
    assert_eq!(s.signatures(), 2);
    // What the attacker would have if a verifier certified the victim's address for it: the request fits that
    // digest only.
    let victim = certificate(1, 66, "10.0.0.77".parse().unwrap());
    let mut stolen = request(&victim, 6, DATA, 0);
    let own = request(&attacker, 6, DATA, 0);
    stolen.payload[..112].copy_from_slice(&own.payload[..112]);
    s.p.moves_to("10.0.0.77");
    next(&mut s);
    s.refuses(syn(&stolen), Status::BadSignature);
    assert_eq!(s.signatures(), 3, "the certificate is verified for that address, and is wrong");
    // From the attacker's own address the certificate is known.
    s.p.moves_to(CLIENT);
    next(&mut s);
    s.accepts(syn(&own));
    assert_eq!(s.signatures(), 4);
}

fn verified(flights: &Verifications) -> Vec<firstflight_credential::asap::Verified> {
    flights.verify(&mut ChaCha20Rng::from_seed([9; 32]))
}

fn trust(verifiers: &[u8]) -> Arc<TrustStore> {
    Arc::new(TrustStore::new(verifiers.iter().map(|n| Trusted::new(verifier(*n).public()))).unwrap())
}

/// The trust store is replaced while the signatures are verified. Certificates that it no longer trusts are
/// refused, and so are those that it still trusts, because the verdict belongs to an older generation.
#[test]
fn trust_that_changes_during_a_verification_refuses_it() {
    for (then, status) in [(vec![2], Status::UnknownVerifier), (vec![1], Status::Replayed)] {
        let mut s = server();
        s.p.send(flight(5));
        let flights = s.p.stack.poll_verifications().unwrap();
        let verdicts = verified(&flights);
        assert!(s.p.stack.set_trust(s.listener, trust(&then), s.p.now));
        let now = s.p.now;
        s.p.stack.handle_verified(flights, &verdicts, now);
        let got = s.p.expect().syn_ack().ack(1);
        assert_eq!(reply(&got).unwrap().status, Status::UnknownVerifier);
        s.p.nothing_to_accept(s.listener);
        assert_eq!(s.pending.pending(), 0);
        copies_do_nothing(&mut s, 5, 0, status);
    }
}

#[test]
fn a_new_trust_store_verifies_everything_anew() {
    let mut s = server();
    s.accepts(flight(5));
    next(&mut s);
    s.accepts(flight(6));
    assert_eq!(s.signatures(), 3, "the certificate is known");
    s.p.stack.set_trust(s.listener, trust(&[1, 2]), s.p.now);
    // What the new one certifies is not taken yet. The other one's requests go on.
    next(&mut s);
    s.accepts(flight(7));
    assert_eq!(s.signatures(), 5);
    s.p.stack.set_trust(s.listener, trust(&[2]), s.p.now);
    next(&mut s);
    s.refuses(flight(8), Status::UnknownVerifier);
}

/// A request by a verifier that was not trusted may have been executed after the handshake that followed. When its
/// verifier is added, copies of it do nothing, and the requests of verifiers that were trusted before go on. Wider
/// prefixes of one verifier are the same.
#[test]
fn an_added_verifier_is_closed_for_what_was_refused_and_no_other_is() {
    let by = |verifier: u8, id: u8, at: u64| {
        syn(&request(&certificate(verifier, 2, CLIENT.parse().unwrap()), id, DATA, at))
    };
    let mut s = server();
    s.refuses(by(2, 5, 0), Status::UnknownVerifier);
    s.p.send(seg().seq(1).ack(1).rst());
    s.p.stack.set_trust(s.listener, trust(&[1, 2]), s.p.now);
    next(&mut s);
    s.refuses(by(2, 5, 0), Status::GuardFloor);
    next(&mut s);
    s.accepts(by(1, 6, 0));
    // A request that was made more than ten seconds after the change is new.
    s.p.at(10_001);
    next(&mut s);
    s.accepts(by(2, 7, 10_001));
    next(&mut s);
    // The guard remembers it since it was refused.
    s.refuses(by(2, 5, 0), Status::Replayed);
    // A change that admits no more keeps what is closed, and closes nothing else.
    s.p.stack.set_trust(s.listener, trust(&[1, 2]), s.p.now);
    next(&mut s);
    s.refuses(by(2, 8, 10_000), Status::GuardFloor);
    next(&mut s);
    s.accepts(by(2, 9, 10_001));
}

// --- a guard that a farm shares ------------------------------------------------------------------------------

fn farm() -> Server {
    let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS);
    trusting(|asap| asap.guard = Arc::new(guard))
}

/// The question to the store, which is sent once the signatures are right.
#[track_caller]
fn asked(s: &mut Server, request: Request) -> JobId {
    s.p.send(syn(&request));
    assert!(s.p.stack.poll_job().is_none(), "not before the signatures");
    assert_eq!(s.verify(), 1);
    s.p.quiet();
    let job = s.p.stack.poll_job().expect("nobody is asked");
    assert!(matches!(job.request, JobRequest::GuardSet { .. }));
    assert!(s.p.stack.poll_job().is_none());
    assert_eq!(s.pending.pending(), 1);
    job.id
}

fn answer(s: &mut Server, id: JobId, result: JobResult) {
    let now = s.p.now;
    s.p.stack.handle_job(id, result, now);
    s.p.pump();
}

fn right(id: u8) -> Request {
    request(&client(), id, DATA, 0)
}

#[test]
fn a_remote_guard_is_asked_after_the_signatures() {
    let mut s = farm();
    s.p.send(syn(&request(&client(), 5, DATA, 3_000)));
    s.verify();
    let job = s.p.stack.poll_job().unwrap();
    let JobRequest::GuardSet { keep_ms, ahead_ms, reach_ms, unix_ms, .. } = job.request else { panic!() };
    assert_eq!((keep_ms, ahead_ms, reach_ms), (64_000, 3_000, 13_000));
    assert!(unix_ms.is_some(), "the store compares clocks");
    answer(&mut s, job.id, JobResult::Accept);
    let got = s.p.expect().syn_ack().ack(AFTER);
    assert_eq!(reply(&got).unwrap().status, Status::Accepted);
    let id = s.p.accept(s.listener);
    assert_eq!((s.p.read(id), s.p.state(id)), (DATA.to_vec(), StateName::SynRcvd));
    assert!(s.p.stack.info(id).unwrap().certificate);
    // Giving the same answer twice has no further effect.
    answer(&mut s, job.id, JobResult::Accept);
    s.p.nothing_to_accept(s.listener);
    // The block list still knows whose certificate it was.
    s.p.send(seg().seq(AFTER).rst());
    next(&mut s);
    s.refuses(flight(9), Status::Barred);
}

/// The same id gives the same question, whatever the port.
#[test]
fn a_remote_guard_is_asked_about_the_request() {
    let mut keys = Vec::new();
    for id in [5, 5, 6] {
        let mut s = farm();
        next(&mut s);
        s.p.send(syn(&right(id)));
        s.verify();
        let JobRequest::GuardSet { key, .. } = s.p.stack.poll_job().unwrap().request else { panic!() };
        keys.push(key);
    }
    assert!(keys[0] == keys[1] && keys[0] != keys[2]);
}

#[test]
fn a_remote_guard_is_not_asked_about_forgeries() {
    let mut s = farm();
    let mut forged = right(5);
    forged.payload[140] ^= 1;
    s.refuses(syn(&forged), Status::BadSignature);
    assert!(s.p.stack.poll_job().is_none());
    assert_eq!(s.pending.pending(), 0);
}

#[test]
fn a_remote_guard_refuses() {
    // A repeat, too: the client learns of it, and decides whether the data may run again.
    for (result, reason, status) in [
        (JobResult::Repeat, Reason::Replay, Status::Replayed),
        (JobResult::Refuse(Reason::Replay), Reason::Replay, Status::Replayed),
        (JobResult::Refuse(Reason::GuardFloor), Reason::GuardFloor, Status::GuardFloor),
        (JobResult::Refuse(Reason::ClockSkew), Reason::ClockSkew, Status::OutsideWindow),
        (JobResult::Refuse(Reason::StoreUnavailable), Reason::StoreUnavailable, Status::Overloaded),
    ] {
        let mut s = farm();
        let job = asked(&mut s, right(5));
        answer(&mut s, job, result);
        let got = s.p.expect().syn_ack().ack(1);
        assert_eq!(reply(&got).map(|r| (r.status, r.tag)), Some((status, [5, 5])));
        s.p.nothing_to_accept(s.listener);
        assert_eq!(s.pending.pending(), 0);
        s.p.send(seg().seq(1).ack(1).data(DATA));
        let id = s.p.accept(s.listener);
        assert_eq!(s.p.stack.info(id).unwrap().outcome, Outcome::Handshake(reason));
    }
}

/// The answer comes after the deadline. An id that was set stays set, and the SYN has had its answer.
#[test]
fn a_remote_guard_that_is_late_changes_nothing() {
    let mut s = farm();
    let job = asked(&mut s, right(5));
    s.p.at(30);
    let got = s.p.expect().syn_ack().ack(1).at(25);
    assert_eq!(reply(&got).map(|r| (r.status, r.tag)), Some((Status::Overloaded, [5, 5])));
    answer(&mut s, job, JobResult::Accept);
    s.p.quiet();
    s.p.nothing_to_accept(s.listener);
    assert_eq!(s.pending.pending(), 0);
}

/// The farm is informed of a request that is refused for lack of room before it was asked.
#[test]
fn a_farm_hears_what_is_used_up() {
    let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS);
    let mut s = trusting(|asap| {
        asap.guard = Arc::new(guard);
        asap.pending = Arc::new(PendingLimit::new(0));
    });
    s.refuses(flight(5), Status::Overloaded);
    let job = s.p.stack.poll_job().expect("the farm is not told");
    let mut other = farm();
    other.p.send(flight(5));
    other.verify();
    let id = |request| match request {
        JobRequest::GuardSet { key, checked, .. } => (key, checked),
        other => panic!("{other:?}"),
    };
    let (key, checked) = id(job.request);
    assert!(!checked);
    assert_eq!(id(other.p.stack.poll_job().unwrap().request), (key, true));
    // Nobody waits for that answer.
    answer(&mut s, job.id, JobResult::Accept);
    s.p.nothing_to_accept(s.listener);
}

/// The SYN is overtaken while the farm is asked.
#[test]
fn a_plain_syn_overtakes_the_question_to_a_farm() {
    let mut s = farm();
    let job = asked(&mut s, right(5));
    s.p.pass(6);
    s.p.send(seg().syn().mss(1460));
    s.p.expect().syn_ack().ack(1);
    answer(&mut s, job, JobResult::Accept);
    s.p.quiet();
    s.p.nothing_to_accept(s.listener);
    assert_eq!(s.pending.pending(), 0);
}

/// If the driver has no time for the questions, they do not pile up.
#[test]
fn questions_that_nobody_takes_do_not_pile_up() {
    let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS);
    let mut s = server_with(|config| config.limits.deferred = 4, |asap| asap.guard = Arc::new(guard), |_| {});
    for n in 0..100 {
        next(&mut s);
        s.p.send(flight_at(n, s.p.ms()));
        assert_eq!(s.verify(), 1);
        s.p.pass(30);
        s.p.drain();
        s.p.send(seg().seq(1).ack(1).rst());
    }
    let waiting = std::iter::from_fn(|| s.p.stack.poll_job()).count();
    assert!(waiting <= 8, "{waiting} questions");
}

/// Removing a verifier revokes at once, also for requests that wait for the guard. The block list revokes in the same way.
#[test]
fn what_is_revoked_while_a_farm_is_asked_is_refused() {
    let mut s = farm();
    let job = asked(&mut s, right(5));
    s.p.stack.set_trust(s.listener, trust(&[2]), s.p.now);
    answer(&mut s, job, JobResult::Accept);
    let got = s.p.expect().syn_ack().ack(1);
    assert_eq!(reply(&got).map(|r| (r.status, r.tag)), Some((Status::UnknownVerifier, [5, 5])));
    s.p.nothing_to_accept(s.listener);
    assert_eq!(s.pending.pending(), 0);

    let mut s = farm();
    let first = asked(&mut s, right(5));
    answer(&mut s, first, JobResult::Accept);
    s.p.expect().syn_ack().ack(AFTER);
    s.p.accept(s.listener);
    next(&mut s);
    s.p.send(syn(&right(6)));
    s.verify();
    let second = s.p.stack.poll_job().unwrap().id;
    s.p.flow(CLIENT_PORT, crate::peer::PEER_ISN);
    s.p.send(seg().seq(AFTER).rst());
    answer(&mut s, second, JobResult::Accept);
    let got = s.p.expect().syn_ack();
    assert_eq!(reply(&got).unwrap().status, Status::Barred);
    s.p.nothing_to_accept(s.listener);
}
