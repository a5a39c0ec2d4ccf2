//! First flights whose verdict takes time: packet by packet.

use crate::peer::{CLIENT_PORT, Peer, Seg, key, policy, seg};
use firstflight_credential::{
    FastOpenPolicy, FirstFlight, JobRequest, JobResult, KeyRing, Outcome, PendingLimit, Reason, Scheme,
    Verifier, VerifierVerdict,
};
use firstflight_stack::{Config, JobId, ListenConfig, ListenerId, PacketDrop, StateName};
use firstflight_wire::Clock;
use std::sync::Arc;

const DATA: &[u8] = b"first flight";
const AFTER: u32 = 1 + DATA.len() as u32;

/// Asks an external verifier about every first flight.
struct Asks;

impl Verifier for Asks {
    fn verify(&self, _: &FirstFlight<'_>, _: &Clock) -> VerifierVerdict {
        VerifierVerdict::Pending { job: JobRequest::Verify { key: 7 }, grant: None }
    }
}

fn asking() -> FastOpenPolicy {
    let mut asking = policy(key(1), 10);
    asking.verifier = Some(Arc::new(Asks));
    asking
}

fn server_with(
    stack: impl FnOnce(&mut Config),
    tune: impl FnOnce(&mut ListenConfig),
) -> (Peer, ListenerId, Arc<PendingLimit>) {
    let mut p = Peer::with(stack);
    let asking = asking();
    let pending = asking.pending.clone();
    let listener = p.listen_with(|c| {
        c.fast_open = Some(asking);
        tune(c);
    });
    (p, listener, pending)
}

fn server() -> (Peer, ListenerId, Arc<PendingLimit>) {
    server_with(|_| {}, |_| {})
}

fn first_flight() -> Seg {
    seg().syn().mss(1460).cookie(&[9; 8]).data(DATA)
}

/// The SYN is deferred: no answer is sent, and there is one job.
fn deferred(p: &mut Peer) -> JobId {
    p.send(first_flight());
    p.quiet();
    let job = p.stack.poll_job().expect("no job");
    assert_eq!(job.request, JobRequest::Verify { key: 7 });
    job.id
}

fn answer(p: &mut Peer, id: JobId, result: JobResult) {
    p.stack.handle_job(id, result, p.now);
    p.pump();
}

#[test]
fn an_accepted_first_flight_opens_when_the_verdict_comes() {
    let (mut p, listener, pending) = server();
    let job = deferred(&mut p);
    assert_eq!((p.stack.connections(), pending.pending()), (0, 1));
    p.at(10);
    answer(&mut p, job, JobResult::Accept);
    p.expect().syn_ack().ack(AFTER).at(10);
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
    assert_eq!((p.stack.info(id).unwrap().outcome, pending.pending()), (Outcome::Accepted, 1));
    p.send(seg().seq(AFTER).ack(1));
    assert_eq!((p.state(id), pending.pending()), (StateName::Established, 0));
    // An answer given twice changes nothing.
    answer(&mut p, job, JobResult::Refuse(Reason::Policy));
    assert_eq!(p.state(id), StateName::Established);
}

#[test]
fn new_keys_leave_a_deferred_first_flight_alone() {
    let (mut p, listener, pending) = server();
    let job = deferred(&mut p);
    let keys = KeyRing::new(Scheme::Linux, key(9));
    assert!(p.stack.set_keys(listener, Arc::new(keys)));
    assert_eq!(pending.pending(), 1);
    answer(&mut p, job, JobResult::Accept);
    p.expect().syn_ack().ack(AFTER);
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
}

#[test]
fn a_refused_first_flight_is_an_ordinary_handshake() {
    let (mut p, listener, pending) = server();
    let job = deferred(&mut p);
    answer(&mut p, job, JobResult::Refuse(Reason::Expired));
    p.expect().syn_ack().ack(1).no_fast_open();
    p.nothing_to_accept(listener);
    assert_eq!(pending.pending(), 0);
    p.send(seg().seq(1).ack(1).data(DATA));
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
    assert_eq!(p.stack.info(id).unwrap().outcome, Outcome::Handshake(Reason::Expired));
}

#[test]
fn without_a_verdict_it_becomes_an_ordinary_handshake() {
    let (mut p, listener, pending) = server();
    let job = deferred(&mut p);
    p.at(24);
    p.quiet();
    p.at(30);
    p.expect().syn_ack().ack(1).at(25);
    assert_eq!(pending.pending(), 0);
    // The verdict is late. The answer to a SYN never changes.
    answer(&mut p, job, JobResult::Accept);
    p.quiet();
    p.nothing_to_accept(listener);
    p.send(seg().seq(1).ack(1).data(DATA));
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
    assert_eq!(p.stack.info(id).unwrap().outcome, Outcome::Handshake(Reason::DeferredTooLong));
}

#[test]
fn a_duplicate_of_a_deferred_syn_is_dropped() {
    let (mut p, listener, pending) = server();
    let job = deferred(&mut p);
    p.send(first_flight());
    p.quiet();
    assert!(p.stack.poll_job().is_none());
    assert_eq!((p.stack.counters().dropped(PacketDrop::AlreadyDeferred), pending.pending()), (1, 1));
    answer(&mut p, job, JobResult::Accept);
    p.expect().syn_ack().ack(AFTER);
    p.accept(listener);
    p.nothing_to_accept(listener);
}

/// Longer than a SYN that directly follows another one takes, ms.
const BEHIND: u64 = 6;

/// A client that does not know whether the path passes its first flight sends a plain SYN directly behind it. The first
/// one is here, so the verdict answers both.
#[test]
fn a_plain_syn_directly_behind_it_waits_for_the_verdict() {
    for accept in [true, false] {
        let (mut p, listener, pending) = server();
        let job = deferred(&mut p);
        p.send(seg().syn().mss(1460));
        p.quiet();
        assert_eq!(pending.pending(), 1);
        let verdict = if accept { JobResult::Accept } else { JobResult::Refuse(Reason::Replay) };
        answer(&mut p, job, verdict);
        let got = p.expect().syn_ack();
        if accept {
            got.ack(1 + DATA.len() as u32);
            let id = p.accept(listener);
            assert_eq!(p.read(id), DATA);
        } else {
            got.ack(1);
        }
        // A third one gets the first answer again.
        p.pass(1_000);
        p.drain();
        p.send(seg().syn().mss(1460));
        p.expect().syn_ack();
    }
}

#[test]
fn a_plain_syn_overtakes_the_verdict() {
    let (mut p, listener, pending) = server();
    let job = deferred(&mut p);
    p.pass(BEHIND);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack().ack(1);
    assert_eq!(pending.pending(), 0);
    answer(&mut p, job, JobResult::Accept);
    p.quiet();
    p.nothing_to_accept(listener);
    p.send(seg().seq(1).ack(1).data(DATA));
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
}

#[test]
fn another_isn_on_the_same_ports_replaces_the_deferred_syn() {
    let (mut p, listener, _) = server();
    let old = deferred(&mut p);
    p.isn = 123_456;
    let new = deferred(&mut p);
    answer(&mut p, old, JobResult::Accept);
    p.quiet();
    p.nothing_to_accept(listener);
    answer(&mut p, new, JobResult::Accept);
    p.expect().syn_ack().ack(AFTER);
    p.accept(listener);
}

#[test]
fn deferred_syns_are_bounded_in_number_and_bytes() {
    for (entries, bytes) in [(2, 1 << 20), (100, 100)] {
        let (mut p, _, pending) = server_with(
            |c| {
                c.limits.deferred = entries;
                c.limits.deferred_bytes = bytes;
            },
            |_| {},
        );
        for n in 0..5 {
            p.flow(CLIENT_PORT + n, 5);
            p.send(first_flight());
        }
        // First flights without room were answered as ordinary SYNs.
        let answers = p.drain();
        assert_eq!(answers.len(), 3, "{entries} {bytes}");
        assert!(answers.into_iter().all(|g| g.syn_ack().ack == 1));
        assert_eq!(pending.pending(), 2);
    }
}

#[test]
fn a_closed_listener_forgets_its_deferred_syns() {
    let (mut p, listener, pending) = server();
    let job = deferred(&mut p);
    p.stack.unlisten(listener, p.now);
    let again = p.listen();
    answer(&mut p, job, JobResult::Accept);
    p.quiet();
    p.nothing_to_accept(again);
    assert_eq!((p.stack.connections(), pending.pending()), (0, 0));
    p.at(100);
    p.quiet();
}

/// While SYN cookies are sent, and for 10 s after, no first flight is accepted, including deferred ones.
#[test]
fn syn_cookie_pressure_overtakes_the_verdict() {
    let (mut p, listener, pending) = server_with(|_| {}, |c| c.syn_backlog = 1);
    let job = deferred(&mut p);
    p.flow(CLIENT_PORT + 1, 5);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    p.flow(CLIENT_PORT + 2, 5);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    assert_eq!(p.stack.counters().syn_cookies_sent, 1);
    p.flow(CLIENT_PORT, crate::peer::PEER_ISN);
    answer(&mut p, job, JobResult::Accept);
    p.expect().syn_ack().ack(1);
    p.nothing_to_accept(listener);
    assert_eq!(pending.pending(), 0);
}

/// The same SYN gets a cookie under pressure. The verdict must not cause a second answer.
#[test]
fn a_syn_answered_with_a_cookie_is_no_longer_deferred() {
    let (mut p, listener, pending) = server_with(|_| {}, |c| c.syn_backlog = 1);
    let job = deferred(&mut p);
    p.flow(CLIENT_PORT + 1, 5);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    p.flow(CLIENT_PORT, crate::peer::PEER_ISN);
    p.send(first_flight());
    p.expect().syn_ack().ack(1);
    answer(&mut p, job, JobResult::Accept);
    p.quiet();
    p.nothing_to_accept(listener);
    assert_eq!(pending.pending(), 0);
}

/// RFC 9293 §3.6.1: a deferred SYN that took the place of a TIME-WAIT still gets a larger ISN.
#[test]
fn a_deferred_syn_that_reopened_a_time_wait_gets_a_larger_isn() {
    let (mut p, listener, _) = server_with(|c| c.tcp.set_nodelay(true), |_| {});
    let id = p.open_passive(listener, seg().mss(1460));
    // This is far more than the ISN clock moves in this time.
    for n in 0..40 {
        p.write(id, &[0; 10_000]);
        p.send(seg().seq(1).ack(1 + (n + 1) * 10_000));
    }
    p.drain();
    p.shutdown(id);
    let end = p.expect().is_fin().raw_seq;
    p.send(seg().seq(1).ack(400_002).fin());
    p.expect().is_ack();
    p.isn = p.isn.wrapping_add(100_000);
    let job = deferred(&mut p);
    answer(&mut p, job, JobResult::Accept);
    assert!(p.expect().syn_ack().raw_seq.gt(end));
}

/// A client that gives up cancels its first flight: a late verdict delivers nothing.
#[test]
fn a_reset_cancels_a_deferred_syn() {
    let (mut p, listener, pending) = server();
    let job = deferred(&mut p);
    p.send(seg().seq(50_000).rst());
    assert_eq!(pending.pending(), 1, "a RST that does not fit is not believed");
    p.send(seg().seq(AFTER).rst());
    assert_eq!(pending.pending(), 0);
    p.stack.handle_job(job, JobResult::Accept, p.now);
    p.quiet();
    p.nothing_to_accept(listener);
}
