//! A copy of a SYN reaches another member of a farm before the SYN reaches its own, and is accepted there. The store then says
//! that this very first flight is a repeat: the client must not hand over its data again after a handshake.

use crate::peer::{Peer, key, policy, seg};
use crate::replays::{AFTER, DATA, first_flight, listening};
use firstflight_credential::{
    GuardKey, JobRequest, JobResult, Outcome, Reason, RemoteGuard, Replays, Window,
};
use firstflight_stack::{ListenConfig, ListenerId, PacketDrop};
use std::sync::Arc;

/// A member of a farm with a shared guard, and a client that has a cookie.
fn member(more: impl FnOnce(&mut ListenConfig)) -> (Peer, ListenerId) {
    let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::NETWORK);
    listening(|policy| policy.replays = Replays::NoDuplicates(Arc::new(guard)), more)
}

/// The client's SYN arrives, and the store gives this answer.
fn answered(p: &mut Peer, result: JobResult) {
    let cookie = p.cookie_of(key(1));
    p.send(first_flight(&cookie));
    p.quiet();
    let job = p.stack.poll_job().unwrap();
    assert!(matches!(job.request, JobRequest::GuardSet { .. }));
    p.stack.handle_job(job.id, result, p.now);
    p.pump();
}

#[test]
fn a_repeat_is_reset_when_its_handshake_is_complete() {
    let (mut p, listener) = member(|_| {});
    answered(&mut p, JobResult::Repeat);
    p.expect().syn_ack().ack(1);
    p.nothing_to_accept(listener);
    // Its own client repeats the SYN, plain or not, and gets the same answer.
    p.pass(1000);
    p.drain();
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack().ack(1);
    assert!(p.stack.poll_job().is_none());
    p.send(seg().seq(1).ack(1).data(DATA));
    p.expect().is_rst().seq(1);
    p.quiet();
    p.nothing_to_accept(listener);
    let counters = p.stack.counters();
    assert_eq!((counters.repeats_reset, counters.first_flights_accepted), (1, 0));
    assert_eq!(counters.server.count(Outcome::Handshake(Reason::Replay)), 1);
    assert_eq!(p.stack.connections(), 0);
    // The next connection of the client is an ordinary one.
    p.flow(crate::peer::CLIENT_PORT + 1, 99);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack().ack(1);
    p.send(seg().seq(1).ack(1).data(DATA));
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
}

/// Without data, the ACK alone completes the handshake.
#[test]
fn an_ack_without_data_is_reset_too() {
    let (mut p, listener) = member(|_| {});
    answered(&mut p, JobResult::Repeat);
    p.expect().syn_ack().ack(1);
    p.send(seg().seq(1).ack(1));
    p.expect().is_rst().seq(1);
    p.nothing_to_accept(listener);
}

/// Another first flight with a cookie that was used is no repeat: its data has not run.
#[test]
fn a_cookie_that_another_first_flight_used_costs_a_round_trip_only() {
    let (mut p, listener) = member(|_| {});
    answered(&mut p, JobResult::Refuse(Reason::Replay));
    p.expect().syn_ack().ack(1);
    p.send(seg().seq(1).ack(1).data(DATA));
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
    assert_eq!(p.stack.info(id).unwrap().outcome, Outcome::Handshake(Reason::Replay));
}

/// A SYN that was accepted here is answered by its connection, however often its client repeats it.
#[test]
fn the_client_of_an_accepted_first_flight_gets_its_syn_ack_again() {
    let (mut p, listener) = member(|_| {});
    answered(&mut p, JobResult::Accept);
    p.expect().syn_ack().ack(AFTER);
    let cookie = p.cookie_of(key(1));
    // Not too soon behind the SYN-ACKs that it sends again by itself.
    for wait in [600, 1100, 900] {
        p.pass(wait);
        p.drain();
        p.send(first_flight(&cookie));
        p.expect().syn_ack().ack(AFTER);
        // The store is told that this SYN opens nothing. What it says to that changes nothing.
        while let Some(job) = p.stack.poll_job() {
            p.stack.handle_job(job.id, JobResult::Repeat, p.now);
        }
    }
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
    p.nothing_to_accept(listener);
    assert_eq!(p.stack.counters().repeats_reset, 0);
}

/// A SYN cookie would let the client complete a handshake of which nobody knows that it is a repeat.
#[test]
fn no_syn_cookie_answers_a_repeat() {
    let (mut p, listener) = member(|c| c.syn_backlog = 1);
    let cookie = p.cookie_of(key(1));
    p.send(first_flight(&cookie));
    let job = p.stack.poll_job().unwrap();
    // Others fill the backlog meanwhile, and SYN cookies answer.
    let port = crate::peer::CLIENT_PORT;
    for n in 1..=3 {
        p.flow(port + n, 500);
        p.send(seg().syn().mss(1460));
        p.expect().syn_ack().ack(1);
    }
    assert!(p.stack.counters().syn_cookies_sent > 0);
    let before = p.stack.counters().syn_cookies_sent;
    p.flow(port, crate::peer::PEER_ISN);
    p.stack.handle_job(job.id, JobResult::Repeat, p.now);
    p.pump();
    p.expect().syn_ack().ack(1);
    assert_eq!(p.stack.counters().syn_cookies_sent, before);
    p.send(seg().seq(1).ack(1).data(DATA));
    p.expect().is_rst();
    p.nothing_to_accept(listener);
}

/// A repeat needs no place in the accept queue. Where there is no room for any connection, it is dropped like all others.
#[test]
fn a_repeat_needs_room_for_a_connection_only() {
    let (mut p, listener) = member(|c| c.backlog = 1);
    let cookie = p.cookie_of(key(1));
    p.send(first_flight(&cookie));
    let job = p.stack.poll_job().unwrap();
    p.flow(crate::peer::CLIENT_PORT + 1, 500);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack().ack(1);
    p.send(seg().seq(1).ack(1));
    p.flow(crate::peer::CLIENT_PORT, crate::peer::PEER_ISN);
    p.stack.handle_job(job.id, JobResult::Repeat, p.now);
    p.pump();
    p.expect().syn_ack().ack(1);
    p.accept(listener);
    p.send(seg().seq(1).ack(1).data(DATA));
    p.expect().is_rst();

    let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::NETWORK);
    let mut policy = policy(key(1), 10);
    policy.replays = Replays::NoDuplicates(Arc::new(guard));
    let mut p = Peer::with(|config| config.limits.connections = 1);
    p.listen_with(|c| c.fast_open = Some(policy));
    let cookie = p.cookie_of(key(1));
    p.send(first_flight(&cookie));
    let job = p.stack.poll_job().unwrap();
    p.flow(crate::peer::CLIENT_PORT + 1, 500);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack().ack(1);
    p.stack.handle_job(job.id, JobResult::Repeat, p.now);
    p.pump();
    p.quiet();
    assert_eq!(p.stack.counters().dropped(PacketDrop::TooManyConnections), 1);
}

/// The SYN has had its answer when the store's comes too late.
#[test]
fn a_late_answer_changes_nothing() {
    let (mut p, listener) = member(|_| {});
    let cookie = p.cookie_of(key(1));
    p.send(first_flight(&cookie));
    let job = p.stack.poll_job().unwrap();
    p.pass(30);
    p.expect().syn_ack().ack(1);
    p.stack.handle_job(job.id, JobResult::Repeat, p.now);
    p.send(seg().seq(1).ack(1).data(DATA));
    let id = p.accept(listener);
    assert_eq!(p.stack.info(id).unwrap().outcome, Outcome::Handshake(Reason::DeferredTooLong));
}
