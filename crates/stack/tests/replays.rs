//! How often a first flight is executed, packet by packet (the Fast Open paper §§3.4.1, 3.5, 7.1).

use crate::peer::{CLIENT_PORT, Peer, Seg, key, policy, seg};
use firstflight_credential::{
    Farm, FastOpenPolicy, GuardKey, JobRequest, JobResult, OneTimeCookies, OneTimeKeys, Outcome, PolicyError,
    Quarantine, Reason, RemoteGuard, ReplayTable, Replays, SerialTable, Window,
};
use firstflight_stack::{CloseReason, ListenConfig, ListenError, ListenerId, StateName, Trace};
use firstflight_wire::tcp::{Cookie, FastOpenForm};
use std::sync::Arc;

pub(crate) const DATA: &[u8] = b"POST /pay HTTP/1.1";
pub(crate) const AFTER: u32 = 1 + DATA.len() as u32;

pub(crate) fn first_flight(cookie: &Cookie) -> Seg {
    seg().syn().mss(1460).cookie(cookie.as_bytes()).data(DATA)
}

pub(crate) fn listening(
    tune: impl FnOnce(&mut FastOpenPolicy),
    more: impl FnOnce(&mut ListenConfig),
) -> (Peer, ListenerId) {
    let mut policy = policy(key(1), 10);
    tune(&mut policy);
    let mut p = Peer::new();
    let listener = p.listen_with(|c| {
        c.fast_open = Some(policy);
        more(c);
    });
    (p, listener)
}

fn serials() -> Arc<SerialTable> {
    let serials = SerialTable::own(1, 1, 1000);
    serials.extend(1 << 40);
    Arc::new(serials)
}

fn one_time(farm: Option<Farm>) -> impl FnOnce(&mut FastOpenPolicy) {
    move |policy| {
        let mut cookies = OneTimeCookies::new(OneTimeKeys::from_bytes([7; 32]), serials());
        if let Some(farm) = farm {
            cookies = cookies.with_farm(farm);
        }
        policy.verifier = Some(Arc::new(cookies));
        policy.replays = Replays::AtMostOnce;
    }
}

/// A complete first visit that requests a cookie: SYN, ACK with data, and both sides close.
fn first_visit(p: &mut Peer, listener: ListenerId) -> Cookie {
    p.flow(CLIENT_PORT - 1, 5000);
    p.send(seg().syn().mss(1460).cookie(&[]));
    let cookie = p.expect().syn_ack().ack(1).grants(FastOpenForm::Standard);
    p.send(seg().seq(1).ack(1));
    let id = p.accept(listener);
    p.abort(id);
    p.release(id);
    p.drain();
    p.flow(CLIENT_PORT, 77);
    cookie
}

/// The server's outcome of the next accepted connection.
fn outcome(p: &mut Peer, listener: ListenerId) -> Outcome {
    let id = p.accept(listener);
    p.stack.info(id).unwrap().outcome
}

// --- one-time cookies ------------------------------------------------------------------------------

#[test]
fn a_one_time_cookie_opens_one_connection_and_brings_the_next() {
    let (mut p, listener) = listening(one_time(None), |_| {});
    let first = first_visit(&mut p, listener);
    assert_eq!(first.as_bytes().len(), 16);
    p.send(first_flight(&first));
    let second = p.expect().syn_ack().ack(AFTER).grants(FastOpenForm::Standard);
    assert_ne!(first, second);
    assert_eq!(outcome(&mut p, listener), Outcome::Accepted);
    // Replayed from another port with another number, nothing is executed.
    p.flow(CLIENT_PORT + 1, 99);
    p.send(first_flight(&first));
    p.expect().syn_ack().ack(1);
    p.nothing_to_accept(listener);
    // The second cookie becomes valid with the ACK of its connection.
    p.flow(CLIENT_PORT, 77);
    p.send(seg().seq(AFTER).ack(1));
    p.flow(CLIENT_PORT + 3, 99);
    p.send(first_flight(&second));
    p.expect().syn_ack().ack(AFTER);
    assert_eq!(outcome(&mut p, listener), Outcome::Accepted);
}

/// A cookie that is shown before the ACK of its connection is used up. Its data comes by the ordinary handshake,
/// and a recorded copy of that SYN must not be executed once the ACK has come.
#[test]
fn a_one_time_cookie_shown_too_early_is_good_for_no_copy() {
    let (mut p, listener) = listening(one_time(None), |_| {});
    let first = first_visit(&mut p, listener);
    p.send(first_flight(&first));
    let second = p.expect().syn_ack().ack(AFTER).grants(FastOpenForm::Standard);
    assert_eq!(outcome(&mut p, listener), Outcome::Accepted);
    p.flow(CLIENT_PORT + 2, 99);
    p.send(first_flight(&second));
    p.expect().syn_ack().ack(1);
    p.flow(CLIENT_PORT, 77);
    p.send(seg().seq(AFTER).ack(1));
    p.flow(CLIENT_PORT + 3, 99);
    p.send(first_flight(&second));
    p.expect().syn_ack().ack(1);
    p.nothing_to_accept(listener);
}

/// A client that closes with unread data sends a RST right behind its ACK. Queues of several processors swap the two. The
/// RST acknowledges the SYN-ACK as well, and Linux shows the cookie in its next SYN.
#[test]
fn a_rst_that_overtakes_the_ack_activates_a_one_time_cookie() {
    let (mut p, listener) = listening(one_time(None), |_| {});
    let first = first_visit(&mut p, listener);
    p.send(first_flight(&first));
    let second = p.expect().syn_ack().ack(AFTER).grants(FastOpenForm::Standard);
    let id = p.accept(listener);
    p.write(id, b"answer");
    p.expect().ack(AFTER).data(b"answer");
    p.send(seg().seq(AFTER).ack(7).rst());
    assert_eq!(p.stack.close_reason(id), Some(CloseReason::Reset));
    p.flow(CLIENT_PORT + 1, 99);
    p.send(first_flight(&second));
    p.expect().syn_ack().ack(AFTER);
    assert_eq!(outcome(&mut p, listener), Outcome::Accepted);
}

/// The RST of a host that knows no connection acknowledges nothing, and a blind one nothing that was sent.
#[test]
fn a_rst_without_proof_activates_no_one_time_cookie() {
    for rst in [seg().seq(AFTER).rst(), seg().seq(AFTER).ack(0).rst(), seg().seq(AFTER).ack(2).rst()] {
        let (mut p, listener) = listening(one_time(None), |_| {});
        let first = first_visit(&mut p, listener);
        p.send(first_flight(&first));
        let second = p.expect().syn_ack().ack(AFTER).grants(FastOpenForm::Standard);
        let id = p.accept(listener);
        p.send(rst);
        assert_eq!(p.stack.close_reason(id), Some(CloseReason::Reset));
        p.flow(CLIENT_PORT + 1, 99);
        p.send(first_flight(&second));
        p.expect().syn_ack().ack(1);
        p.nothing_to_accept(listener);
    }
}

/// A spoofer sees no SYN-ACK and sends no valid ACK, so its cookie stays worthless.
#[test]
fn a_cookie_whose_handshake_never_completes_stays_worthless() {
    let (mut p, listener) = listening(one_time(None), |_| {});
    p.send(seg().syn().mss(1460).cookie(&[]));
    let cookie = p.expect().syn_ack().ack(1).grants(FastOpenForm::Standard);
    p.send(seg().seq(1).ack(500));
    p.drain();
    p.flow(CLIENT_PORT + 1, 9);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(1);
    p.nothing_to_accept(listener);
}

#[test]
fn a_shared_store_decides_about_one_time_cookies() {
    let (mut p, listener) = listening(one_time(Some(Farm::Shared)), |_| {});
    let cookie = first_visit(&mut p, listener);
    let told = p.stack.poll_job().expect("the handshake is complete");
    let JobRequest::Activate { serial } = told.request else { panic!("{told:?}") };
    // Nobody waits for this answer.
    p.stack.handle_job(told.id, JobResult::Accept, p.now);
    for (result, ack) in [(JobResult::Accept, AFTER), (JobResult::Refuse(Reason::Replay), 1)] {
        p.flow(CLIENT_PORT + ack as u16, 9);
        p.send(first_flight(&cookie));
        p.quiet();
        let job = p.stack.poll_job().expect("no question");
        assert!(
            matches!(job.request, JobRequest::Redeem { serial: of, flight: Some(_) } if of == serial),
            "{job:?}"
        );
        p.stack.handle_job(job.id, result, p.now);
        p.pump();
        // Whatever the answer is, a next cookie is granted.
        p.expect().syn_ack().ack(ack).grants(FastOpenForm::Standard);
    }
    assert_eq!(outcome(&mut p, listener), Outcome::Accepted);
    p.nothing_to_accept(listener);
}

/// Data that is refused for lack of room comes by the ordinary handshake, so the recorded SYN must not be accepted
/// when there is room again.
#[test]
fn a_cookie_refused_at_the_limit_is_used_up() {
    let (mut p, listener) = listening(
        |policy| {
            one_time(None)(policy);
            policy.pending.set_limit(1);
        },
        |_| {},
    );
    let first = first_visit(&mut p, listener);
    let second = {
        p.flow(CLIENT_PORT - 2, 5000);
        p.send(seg().syn().mss(1460).cookie(&[]));
        let cookie = p.expect().syn_ack().ack(1).grants(FastOpenForm::Standard);
        p.send(seg().seq(1).ack(1));
        let id = p.accept(listener);
        p.abort(id);
        p.drain();
        cookie
    };
    // The only permit is taken.
    p.flow(CLIENT_PORT, 77);
    p.send(first_flight(&first));
    p.expect().syn_ack().ack(AFTER);
    assert_eq!(outcome(&mut p, listener), Outcome::Accepted);
    p.flow(CLIENT_PORT + 1, 9);
    p.send(first_flight(&second));
    p.expect().syn_ack().ack(1).no_fast_open();
    p.send(seg().seq(1).ack(1).data(DATA));
    assert_eq!(outcome(&mut p, listener), Outcome::Handshake(Reason::PendingLimit));
    // There is room again, and an attacker who recorded the SYN sends it from another port.
    p.flow(CLIENT_PORT, 77);
    p.send(seg().seq(AFTER).ack(1));
    p.flow(CLIENT_PORT + 2, 99);
    p.send(first_flight(&second));
    p.expect().syn_ack().ack(1);
    p.nothing_to_accept(listener);
}

/// With a store: the cookie of a SYN that cannot wait is used up in the background.
#[test]
fn a_store_is_told_of_a_cookie_refused_at_the_limit() {
    let (mut p, listener) = listening(
        |policy| {
            one_time(Some(Farm::Shared))(policy);
            policy.pending.set_limit(0);
        },
        |_| {},
    );
    let serials = SerialTable::own(1, 1, 10);
    serials.extend(100);
    let server = p.local().ip();
    let client = p.remote().ip();
    let serial = serials.issue().unwrap();
    let flow = firstflight_credential::Flow { client, server };
    let cookie = OneTimeKeys::from_bytes([7; 32]).make(&flow, serial);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(1).no_fast_open();
    let told = p.stack.poll_job().expect("not told");
    assert_eq!(told.request, JobRequest::Redeem { serial, flight: None });
    p.stack.handle_job(told.id, JobResult::Accept, p.now);
    p.pump();
    p.quiet();
    p.nothing_to_accept(listener);
}

/// A SYN that meets a TIME-WAIT opens nothing. Its client tries another way, and the copy must not run.
#[test]
fn a_cookie_that_meets_a_time_wait_is_used_up() {
    let (mut p, listener) = listening(one_time(None), |_| {});
    let first = first_visit(&mut p, listener);
    p.send(first_flight(&first));
    let second = p.expect().syn_ack().ack(AFTER).grants(FastOpenForm::Standard);
    let id = p.accept(listener);
    p.read(id);
    p.send(seg().seq(AFTER).ack(1));
    // The server closes first.
    p.shutdown(id);
    p.drain();
    p.send(seg().seq(AFTER).ack(2).fin());
    p.release(id);
    p.drain();
    assert_eq!(p.stack.time_waits(), 1);
    // The number is old, so it does not reopen.
    p.flow(CLIENT_PORT, 70);
    p.send(first_flight(&second));
    p.drain();
    p.nothing_to_accept(listener);
    p.flow(CLIENT_PORT + 5, 9);
    p.send(first_flight(&second));
    p.expect().syn_ack().ack(1);
    p.nothing_to_accept(listener);
}

#[test]
fn a_listener_refuses_a_promise_it_cannot_hold() {
    let mut plain = policy(key(1), 10);
    plain.replays = Replays::AtMostOnce;
    let mut p = Peer::new();
    let mut config = ListenConfig::new(p.local());
    config.fast_open = Some(plain);
    let error = p.stack.listen(config).unwrap_err();
    assert_eq!(error, ListenError::Policy(PolicyError::AtMostOnceNeedsOneTime));
    assert!(error.to_string().contains("one-time"), "{error}");
}

// --- copies made by the network --------------------------------------------------------------------

fn guarded() -> (Peer, ListenerId, Cookie) {
    let start = Peer::new().now.as_millis();
    let guard = ReplayTable::new(GuardKey::from_bytes([3; 16]), Window::NETWORK, 1 << 16, start);
    let (p, listener) = listening(|policy| policy.replays = Replays::NoDuplicates(Arc::new(guard)), |_| {});
    let cookie = p.cookie_of(key(1));
    (p, listener, cookie)
}

/// §3.5: the client closed first, the server has forgotten the connection, and then the network
/// delivers a copy of the SYN.
#[test]
fn a_copy_of_the_syn_after_the_close_is_not_executed() {
    let (mut p, listener, cookie) = guarded();
    p.at(121_000);
    for attempt in 0..3 {
        p.send(first_flight(&cookie));
        if attempt == 0 {
            p.expect().syn_ack().ack(AFTER);
            let id = p.accept(listener);
            assert_eq!(p.read(id), DATA);
            // The client acknowledges and resets, so nothing of the connection is left.
            p.send(seg().seq(AFTER).ack(1));
            p.send(seg().seq(AFTER).rst());
            p.release(id);
            assert_eq!(p.stack.connections(), 0);
        } else {
            p.expect().syn_ack().ack(1);
            p.nothing_to_accept(listener);
            p.send(seg().seq(1).rst());
        }
    }
    // The next request of the same client is another one.
    p.flow(CLIENT_PORT + 1, 99);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(AFTER);
    // After 2 MSL no copy can be in flight.
    p.at(250_000);
    p.drain();
    p.flow(CLIENT_PORT, crate::peer::PEER_ISN);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(AFTER);
}

#[test]
fn after_a_start_the_guard_is_closed_for_2_msl() {
    let (mut p, listener, cookie) = guarded();
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(1);
    p.send(seg().seq(1).ack(1).data(DATA));
    assert_eq!(outcome(&mut p, listener), Outcome::Handshake(Reason::GuardFloor));
}

#[test]
fn a_shared_guard_is_asked_and_nothing_runs_before_its_answer() {
    let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::NETWORK);
    let (mut p, listener) =
        listening(|policy| policy.replays = Replays::NoDuplicates(Arc::new(guard)), |_| {});
    let cookie = p.cookie_of(key(1));
    p.send(first_flight(&cookie));
    p.quiet();
    p.nothing_to_accept(listener);
    let job = p.stack.poll_job().unwrap();
    let JobRequest::GuardSet { keep_ms, ahead_ms, reach_ms, .. } = job.request else { panic!("{job:?}") };
    assert_eq!((keep_ms, ahead_ms, reach_ms), (120_000, 0, 120_000));
    p.stack.handle_job(job.id, JobResult::Accept, p.now);
    p.pump();
    p.expect().syn_ack().ack(AFTER);
    assert_eq!(outcome(&mut p, listener), Outcome::Accepted);
}

/// §3.5, the milder heuristic: LAST-ACK is remembered for 2 MSL.
#[test]
fn a_held_last_ack_answers_a_late_copy_and_lets_new_connections_in() {
    for hold in [false, true] {
        let (mut p, listener) = listening(|_| {}, |c| c.hold_last_ack = hold);
        let cookie = p.cookie_of(key(1));
        p.send(first_flight(&cookie));
        p.expect().syn_ack().ack(AFTER);
        let id = p.accept(listener);
        assert_eq!(p.read(id), DATA);
        p.send(seg().seq(AFTER).ack(1).fin());
        p.drain();
        p.shutdown(id);
        p.expect().is_fin();
        p.send(seg().seq(AFTER + 1).ack(2));
        assert_eq!(p.state(id), StateName::Closed);
        p.release(id);
        p.drain();
        p.pass(1000);
        p.send(first_flight(&cookie));
        if !hold {
            p.expect().syn_ack().ack(AFTER);
            assert_eq!(outcome(&mut p, listener), Outcome::Accepted);
            continue;
        }
        p.expect().is_ack().ack(AFTER + 1);
        p.nothing_to_accept(listener);
        assert_eq!(p.stack.counters().last_acks_held, 1);
        // A newer SYN of the same ports is a new connection (RFC 6191).
        p.flow(CLIENT_PORT, crate::peer::PEER_ISN.wrapping_add(100_000));
        p.send(first_flight(&cookie));
        p.expect().syn_ack().ack(AFTER);
        assert_eq!(outcome(&mut p, listener), Outcome::Accepted);
    }
}

/// Two late copies of one SYN. The client, which has closed, answers the first copy's answer with a RST, as every
/// host does. The second copy is still not accepted; a SYN without data is.
#[test]
fn the_clients_reset_lets_no_second_late_copy_in() {
    for server_first in [false, true] {
        let (mut p, listener) = listening(|_| {}, |c| c.hold_last_ack = true);
        let cookie = p.cookie_of(key(1));
        p.send(first_flight(&cookie));
        p.expect().syn_ack().ack(AFTER);
        let id = p.accept(listener);
        assert_eq!(p.read(id), DATA);
        if server_first {
            p.shutdown(id);
            p.send(seg().seq(AFTER).ack(2).fin());
        } else {
            p.send(seg().seq(AFTER).ack(1).fin());
            p.shutdown(id);
            p.send(seg().seq(AFTER + 1).ack(2));
        }
        p.release(id);
        p.drain();
        for _ in 0..3 {
            p.send(first_flight(&cookie));
            p.expect().is_ack().ack(AFTER + 1);
            p.send(seg().seq(AFTER + 1).rst());
            p.quiet();
        }
        p.nothing_to_accept(listener);
        p.send(seg().syn().mss(1460));
        p.expect().syn_ack().ack(1);
    }
}

#[test]
fn held_last_acks_are_bounded_and_end() {
    let policy = policy(key(1), 100);
    let mut p = Peer::with(|c| c.limits.held_last_acks = 3);
    policy.pending.set_client_limit(100);
    let listener = p.listen_with(|c| {
        c.fast_open = Some(policy);
        c.hold_last_ack = true;
    });
    let cookie = p.cookie_of(key(1));
    let visit = |p: &mut Peer, port: u16| {
        p.flow(port, 9);
        p.send(first_flight(&cookie));
        p.expect().syn_ack();
        let id = p.accept(listener);
        p.read(id);
        p.send(seg().seq(AFTER).ack(1).fin());
        p.shutdown(id);
        p.send(seg().seq(AFTER + 1).ack(2));
        p.release(id);
        p.drain();
    };
    let copy_runs = |p: &mut Peer, port: u16| {
        p.flow(port, 9);
        p.send(first_flight(&cookie));
        p.drain();
        p.stack.accept(listener).is_some()
    };
    for port in 1..=5 {
        visit(&mut p, port);
    }
    assert_eq!([5, 4, 3].map(|port| copy_runs(&mut p, port)), [false; 3], "the newest three");
    assert!(copy_runs(&mut p, 1), "the oldest made way");
    p.pass(130_000);
    assert!(copy_runs(&mut p, 5), "2 MSL are over");
}

// --- resets that would let the next spoofed SYN in -------------------------------------------------

/// §3.4.1: with the strict rule, every reset keeps its permit, also for a connection that was not accepted.
#[test]
fn strict_quarantine_counts_resets_before_accept() {
    for (rule, kept) in [(Quarantine::Accepted, 0), (Quarantine::Every, 1)] {
        let (mut p, _) = listening(|policy| policy.quarantine = rule, |_| {});
        let cookie = p.cookie_of(key(1));
        p.send(first_flight(&cookie));
        p.expect().syn_ack();
        p.send(seg().seq(AFTER).rst());
        // The limit of this client shows how many permits it still has: 4 in all.
        let mut free = 0;
        for port in 1..=4 {
            p.flow(CLIENT_PORT + port, 9);
            p.send(first_flight(&cookie));
            let got = p.drain();
            free += u32::from(got.iter().any(|g| g.ack == AFTER));
        }
        assert_eq!(free, 4 - kept, "{rule:?}");
    }
}

/// The switch to ordinary handshakes and back appears in the trace and the counters.
#[test]
fn suspension_and_return_are_told() {
    let (mut p, listener) = listening(|policy| policy.pending.set_limit(1), |_| {});
    let cookie = p.cookie_of(key(1));
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(AFTER);
    for port in 1..=3 {
        p.flow(CLIENT_PORT + port, 9);
        p.send(first_flight(&cookie));
        p.expect().syn_ack().ack(1).no_fast_open();
    }
    p.flow(CLIENT_PORT, crate::peer::PEER_ISN);
    p.send(seg().seq(AFTER).ack(1));
    p.flow(CLIENT_PORT + 9, 9);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(AFTER);
    let told: Vec<_> =
        p.traces.iter().filter(|t| matches!(t, Trace::Suspended(..) | Trace::Resumed(_))).copied().collect();
    assert_eq!(told, [Trace::Suspended(listener, Reason::PendingLimit), Trace::Resumed(listener)]);
    assert_eq!(p.stack.counters().fast_open_suspended, 1);
}
