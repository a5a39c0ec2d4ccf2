//! One answer for each four-tuple and ISN: SYNs with and without a block in every state of the server, packet by
//! packet (`docs/spec/asap.md` §7.3).

use crate::flights::{AFTER, DATA, Server, flight, flight_at, reply, server, server_with, trusting};
use crate::peer::{CLIENT_PORT, PEER_ISN, Seg, seg};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::{ConnId, PacketDrop, StateName};
use firstflight_wire::asap::{Reply, Status};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

/// The SYN of [`flight`] without the option and the block.
fn plain() -> Seg {
    seg().syn().mss(1460)
}

/// A copy of request `id` from another port executes nothing.
#[track_caller]
fn is_used_up(server: &mut Server, id: u8, ms: u64) {
    server.p.drain();
    server.p.flow(CLIENT_PORT + 100, 77);
    server.refuses(flight_at(id, ms), Status::Replayed);
    server.p.flow(CLIENT_PORT, PEER_ISN);
}

/// The client completes the handshake of a refused first flight, and its data comes after it.
#[track_caller]
fn by_handshake(server: &mut Server) -> ConnId {
    server.p.send(seg().seq(1).ack(1).data(DATA));
    let id = server.p.accept(server.listener);
    assert_eq!(server.p.read(id), DATA);
    id
}

fn outcome(server: &Server, id: ConnId) -> Outcome {
    server.p.stack.info(id).unwrap().outcome
}

#[test]
fn an_accepted_block_opens_at_once() {
    let mut s = server();
    s.p.send(flight(5));
    s.p.quiet();
    assert_eq!((s.p.stack.connections(), s.pending.pending()), (0, 1), "deferred, with a permit");
    assert_eq!(s.verify(), 1);
    let got = s.p.expect().syn_ack().ack(AFTER).empty();
    assert_eq!(reply(&got), Some(Reply { status: Status::Accepted, tag: [5, 5], hint: Default::default() }));
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.state(id), StateName::SynRcvd);
    let info = s.p.stack.info(id).unwrap();
    assert_eq!((info.outcome, info.confirmed, info.certificate), (Outcome::Accepted, false, true));
    assert_eq!(info.totals.early as usize, DATA.len(), "the block is no part of the stream");
    assert_eq!(info.totals.bytes_received as usize, DATA.len());
    assert_eq!(s.p.read(id), DATA);
    assert_eq!(s.pending.pending(), 1);
    s.p.send(seg().seq(AFTER).ack(1).data(b"more"));
    assert_eq!((s.p.state(id), s.p.read(id)), (StateName::Established, b"more".to_vec()));
    assert_eq!(s.pending.pending(), 0);
    assert_eq!(s.signatures(), 2);
}

// --- deferred ------------------------------------------------------------------------------------------

#[test]
fn a_duplicate_of_a_deferred_block_is_dropped() {
    let mut s = server();
    s.p.send(flight(5));
    s.p.send(flight(5));
    // Nor with another payload, because it is the same SYN.
    s.p.send(flight(6));
    assert_eq!(s.p.stack.counters().dropped(PacketDrop::AlreadyDeferred), 2);
    assert_eq!((s.verify(), s.pending.pending()), (1, 1));
    s.p.expect().syn_ack().ack(AFTER);
    s.p.quiet();
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), DATA);
    s.p.nothing_to_accept(s.listener);
}

#[test]
fn a_plain_syn_overtakes_a_deferred_block() {
    let mut s = server();
    s.p.send(flight(5));
    let flights = s.p.stack.poll_verifications().unwrap();
    s.p.pass(6);
    s.p.send(plain());
    let got = s.p.expect().syn_ack().ack(1);
    assert_eq!(reply(&got), None, "the SYN that is answered offers nothing");
    assert_eq!(s.pending.pending(), 0);
    // The verdict comes too late.
    let verdicts = flights.verify(&mut rng());
    let now = s.p.now;
    s.p.stack.handle_verified(flights, &verdicts, now);
    s.p.quiet();
    s.p.nothing_to_accept(s.listener);
    by_handshake(&mut s);
    is_used_up(&mut s, 5, 0);
}

fn rng() -> ChaCha20Rng {
    SeedableRng::from_seed([9; 32])
}

/// Only one of them can be the client's. The request of the other one is not executed later either.
#[test]
fn another_isn_replaces_a_deferred_block() {
    let mut s = server();
    s.p.send(flight(5));
    s.p.isn = 123_456;
    s.p.send(flight(6));
    assert_eq!((s.verify(), s.pending.pending()), (1, 1));
    let got = s.p.expect().syn_ack().ack(AFTER);
    assert_eq!(reply(&got).unwrap().tag, [6, 6]);
    s.p.quiet();
    s.p.accept(s.listener);
    s.p.nothing_to_accept(s.listener);
    is_used_up(&mut s, 5, 0);
}

/// The client has given up, or an eavesdropper says so and sends a copy later.
#[test]
fn a_reset_cancels_a_deferred_block_for_ever() {
    let mut s = server();
    s.p.send(flight(5));
    s.p.send(seg().seq(1 << 12).rst());
    assert_eq!(s.pending.pending(), 1, "not with any number");
    s.p.send(seg().seq(1).rst());
    assert_eq!(s.pending.pending(), 0);
    assert_eq!(s.verify(), 0);
    s.p.quiet();
    s.p.nothing_to_accept(s.listener);
    is_used_up(&mut s, 5, 0);
}

/// The driver has no time to verify: the SYN becomes a handshake, and the client learns why.
#[test]
fn a_block_deferred_for_too_long_is_answered_overloaded() {
    for polled in [false, true] {
        let mut s = server();
        s.p.send(flight(5));
        let flights = polled.then(|| s.p.stack.poll_verifications().unwrap());
        s.p.at(24);
        s.p.quiet();
        s.p.at(30);
        let got = s.p.expect().syn_ack().ack(1).at(25);
        assert_eq!(reply(&got).map(|r| (r.status, r.tag)), Some((Status::Overloaded, [5, 5])));
        assert_eq!(s.pending.pending(), 0);
        if let Some(flights) = flights {
            let verdicts = flights.verify(&mut rng());
            let now = s.p.now;
            s.p.stack.handle_verified(flights, &verdicts, now);
            s.p.quiet();
        }
        s.p.nothing_to_accept(s.listener);
        let id = by_handshake(&mut s);
        assert_eq!(outcome(&s, id), Outcome::Handshake(Reason::DeferredTooLong));
        is_used_up(&mut s, 5, 0);
    }
}

#[test]
fn a_closed_listener_forgets_its_deferred_blocks() {
    let mut s = server();
    s.p.send(flight(5));
    let flights = s.p.stack.poll_verifications().unwrap();
    let now = s.p.now;
    s.p.stack.unlisten(s.listener, now);
    let verdicts = flights.verify(&mut rng());
    s.p.stack.handle_verified(flights, &verdicts, now);
    s.p.pass(100);
    s.p.quiet();
    assert_eq!((s.pending.pending(), s.p.stack.connections()), (0, 0));
}

// --- accepted, not acknowledged --------------------------------------------------------------------------

/// Every repeated SYN gets the same SYN-ACK, and its payload is ignored. The first repetition gets it at once, if
/// it is no copy made by the network, and further ones at most once in 500 ms.
#[test]
fn a_repeated_syn_gets_the_same_answer() {
    for again in [flight(5), flight(6), plain(), plain().data(b"other data"), plain().cookie(&[7; 8])] {
        let mut s = server();
        let (first, _) = s.accepts(flight(5));
        let mut last = s.p.ms();
        for (after, answered) in [(9, false), (60, true), (499, false), (500, true)] {
            s.p.at(last + after);
            s.p.send(again.clone());
            if !answered {
                s.p.quiet();
                continue;
            }
            let got = s.p.expect().syn_ack().ack(AFTER).empty();
            assert_eq!((reply(&got), got.raw_seq), (reply(&first), first.raw_seq));
            last = s.p.ms();
        }
        assert_eq!((s.verify(), s.signatures()), (0, 2));
        s.p.nothing_to_accept(s.listener);
    }
}

/// Every SYN-ACK carries the reply. There are two retransmissions; after them the server only answers repeated
/// SYNs.
#[test]
fn every_syn_ack_says_accepted() {
    let mut s = server();
    let (first, _) = s.accepts(flight(5));
    let again = s.p.sends_at(30_000, &[1000, 3000]);
    for got in again {
        let got = got.syn_ack().ack(AFTER);
        assert_eq!((reply(&got), got.raw_seq), (reply(&first), first.raw_seq));
    }
    s.p.send(plain());
    let got = s.p.expect().syn_ack().ack(AFTER);
    assert_eq!(reply(&got), reply(&first));
    s.p.nothing_to_accept(s.listener);
}

/// RFC 5961 §4: another ISN on an existing four-tuple.
#[test]
fn another_isn_is_challenged() {
    for accepted in [true, false] {
        let mut s = server();
        let next = if accepted {
            s.accepts(flight(5));
            AFTER
        } else {
            s.asks(plain());
            1
        };
        let isn = s.p.isn;
        s.p.isn = isn.wrapping_add(50_000);
        for again in [plain(), flight(6)] {
            s.p.send(again);
            // Relative to the new number.
            let got = s.p.expect().is_ack().empty();
            assert_eq!(got.raw_ack.get(), isn.wrapping_add(next));
        }
        assert_eq!(s.verify(), 0);
        s.p.nothing_to_accept(s.listener);
        assert_eq!(s.p.stack.connections(), 1);
    }
}

#[test]
fn an_open_connection_challenges_a_block() {
    let mut s = server();
    s.accepts(flight(5));
    s.p.send(seg().seq(AFTER).ack(1));
    for isn in [PEER_ISN, 4321] {
        s.p.isn = isn;
        s.p.send(flight(6));
        s.p.expect().is_ack().empty();
    }
    assert_eq!((s.verify(), s.p.stack.connections()), (0, 1));
}

// --- ordinary SYN-RECEIVED -------------------------------------------------------------------------------

/// Once a SYN-ACK of the ISN alone was sent, a block for that SYN is never accepted, here or on another port.
#[test]
fn a_block_behind_a_plain_syn_is_never_accepted() {
    let mut s = server();
    s.p.send(plain());
    let first = s.p.expect().syn_ack().ack(1);
    s.p.at(600);
    s.p.send(flight(5));
    let again = s.p.expect().syn_ack().ack(1);
    assert_eq!((reply(&first), reply(&again), again.raw_seq), (None, None, first.raw_seq));
    assert_eq!((s.verify(), s.signatures()), (0, 0));
    s.p.nothing_to_accept(s.listener);
    by_handshake(&mut s);
    is_used_up(&mut s, 5, 0);
}

/// A refusal does not change either.
#[test]
fn every_syn_ack_repeats_the_refusal() {
    let mut s = trusting(|asap| asap.identities = [].into());
    s.refuses(flight(5), Status::WrongIdentity);
    for got in s.p.sends_at(5_000, &[1000, 3000]) {
        assert_eq!(reply(&got.syn_ack().ack(1)).unwrap().status, Status::WrongIdentity);
    }
    s.p.send(flight(6));
    assert_eq!(reply(&s.p.expect().syn_ack().ack(1)).unwrap().tag, [5, 5]);
    assert_eq!(s.verify(), 0);
}

/// A probe is answered on every SYN-ACK. Without ASAP, or without a probe, there is no answer.
#[test]
fn a_probe_is_answered() {
    let probe = || plain().option(&[253, 8, 0xfa, 0x57, 0x10, 1, 0, 0]);
    let mut s = server();
    let got = s.asks(probe()).ack(1);
    assert_eq!(reply(&got), Some(Reply { status: Status::Capable, tag: [0; 2], hint: Default::default() }));
    for got in s.p.sends_at(1_500, &[1000]) {
        assert_eq!(reply(&got.syn_ack()).unwrap().status, Status::Capable);
    }
    let mut other = server_with(|_| {}, |_| {}, |listen| listen.asap = None);
    assert_eq!(reply(&other.asks(probe())), None);
    assert_eq!(reply(&server().asks(plain())), None);
}

// --- later ---------------------------------------------------------------------------------------------

/// RFC 6191: a larger number may reopen, through all checks. A smaller number is an old copy, and its request is
/// not executed elsewhere either.
#[test]
fn a_block_in_time_wait_needs_a_larger_isn() {
    let mut s = server();
    let (first, id) = s.accepts(flight(5));
    s.p.send(seg().seq(AFTER).ack(1));
    s.p.shutdown(id);
    s.p.expect().is_fin();
    s.p.send(seg().seq(AFTER).ack(2).fin());
    s.p.expect().is_ack();
    s.p.release(id);
    assert_eq!((s.p.stack.connections(), s.p.stack.time_waits()), (0, 1));
    for (n, isn) in [(5, PEER_ISN), (6, PEER_ISN.wrapping_sub(10))] {
        s.p.isn = isn;
        s.p.send(flight(n));
        s.p.expect().is_ack().empty();
    }
    assert_eq!((s.verify(), s.p.stack.connections()), (0, 0));
    s.p.isn = PEER_ISN.wrapping_add(100_000);
    let (again, _) = s.accepts(flight(7));
    assert!(again.raw_seq.gt(first.raw_seq + 0xffff), "above every number of the last connection");
    is_used_up(&mut s, 6, 0);
}

/// The client closed first, and a copy of its SYN comes late. The guard would stop it, but the answer for the
/// four-tuple does not change.
#[test]
fn a_block_finds_a_held_last_ack() {
    let mut s = server_with(|_| {}, |_| {}, |listen| listen.hold_last_ack = true);
    let (_, id) = s.accepts(flight(5));
    s.p.send(seg().seq(AFTER).ack(1).fin());
    s.p.expect().is_ack();
    s.p.shutdown(id);
    s.p.expect().is_fin();
    s.p.send(seg().seq(AFTER + 1).ack(2));
    s.p.release(id);
    assert_eq!((s.p.stack.connections(), s.p.stack.counters().last_acks_held), (0, 1));
    s.p.send(flight(5));
    s.p.expect().is_ack().empty();
    assert_eq!((s.verify(), s.p.stack.connections()), (0, 0));
    s.p.isn = PEER_ISN.wrapping_add(100_000);
    s.accepts(flight(6));
}

/// In TIME-WAIT, a newer timestamp lets a block reopen even if its number is lower (RFC 6191 §2).
#[test]
fn a_newer_timestamp_opens_again() {
    let mut s = server();
    let (_, id) = s.accepts(flight(5).ts(1000));
    s.p.send(seg().seq(AFTER).ack(1).ts(1001));
    s.p.shutdown(id);
    s.p.expect().is_fin();
    s.p.send(seg().seq(AFTER).ack(2).fin().ts(1002));
    s.p.expect().is_ack();
    s.p.release(id);
    s.p.isn = PEER_ISN.wrapping_sub(100_000);
    s.p.send(flight(6).ts(900));
    s.p.expect().is_ack().empty();
    s.accepts(flight(7).ts(2000));
}

// --- SYN-cookie pressure ---------------------------------------------------------------------------------

/// One ordinary handshake in progress fills the queue.
fn pressed() -> Server {
    let mut s = server_with(|_| {}, |_| {}, |listen| listen.syn_backlog = 1);
    s.p.flow(CLIENT_PORT + 1, 9);
    s.p.send(plain());
    s.p.expect().syn_ack().ack(1);
    s.p.flow(CLIENT_PORT, PEER_ISN);
    s
}

/// The handshake that causes the pressure is complete.
fn relieve(s: &mut Server) {
    s.p.flow(CLIENT_PORT + 1, 9);
    s.p.send(seg().seq(1).ack(1));
    s.p.accept(s.listener);
    s.p.flow(CLIENT_PORT, PEER_ISN);
}

#[test]
fn syn_cookies_take_no_block() {
    let mut s = pressed();
    s.p.send(flight(5));
    let got = s.p.expect().syn_ack().ack(1);
    assert_eq!(reply(&got).map(|reply| reply.status), Some(Status::Overloaded));
    assert_eq!((s.verify(), s.p.stack.counters().syn_cookies_sent), (0, 1));
    by_handshake(&mut s);
    is_used_up_after(&mut s, 5, 10_000);
}

/// When nothing blocks first flights any more, a copy still executes nothing.
fn is_used_up_after(s: &mut Server, id: u8, ms: u64) {
    relieve(s);
    s.p.pass(ms);
    is_used_up(s, id, 0);
}

/// For ten seconds after the last SYN cookie. The cookie has another number than a child made now would have, and
/// the client's ACK of the cookie would reset that child.
#[test]
fn no_block_is_taken_for_ten_seconds_after_a_syn_cookie() {
    let mut s = pressed();
    s.p.send(plain());
    s.p.expect().syn_ack().ack(1);
    assert_eq!(s.p.stack.counters().syn_cookies_sent, 1);
    relieve(&mut s);
    s.p.at(9_990);
    s.p.flow(CLIENT_PORT + 2, 10);
    let told = s.refuses(flight_at(5, 9_990), Status::Overloaded);
    assert_eq!(told.tag, [0; 2], "nobody looked at the block");
    let id = by_handshake(&mut s);
    assert_eq!(outcome(&s, id), Outcome::Handshake(Reason::SynCookie));
    assert_eq!(s.signatures(), 0);
    s.p.at(10_010);
    s.p.flow(CLIENT_PORT + 3, 11);
    s.accepts(flight_at(6, 10_010));
    s.p.send(seg().seq(AFTER).ack(1));
    is_used_up(&mut s, 5, 9_990);
}

/// The pressure began while the signatures were verified. The request is used up, and the client learns that it was
/// not accepted.
#[test]
fn syn_cookies_sent_meanwhile_refuse_a_deferred_block() {
    let mut s = server_with(|_| {}, |_| {}, |listen| listen.syn_backlog = 1);
    s.p.send(flight(5));
    s.p.flow(CLIENT_PORT + 1, 9);
    s.p.send(plain());
    s.p.expect().syn_ack().ack(1);
    s.p.flow(CLIENT_PORT + 2, 10);
    s.p.send(plain());
    s.p.expect().syn_ack().ack(1);
    assert_eq!(s.p.stack.counters().syn_cookies_sent, 1);
    relieve(&mut s);
    assert_eq!(s.verify(), 1);
    let got = s.p.expect().syn_ack().ack(1);
    assert_eq!(reply(&got).map(|r| (r.status, r.tag)), Some((Status::Overloaded, [5, 5])));
    s.p.nothing_to_accept(s.listener);
    assert_eq!(s.pending.pending(), 0);
    let id = by_handshake(&mut s);
    assert_eq!(outcome(&s, id), Outcome::Handshake(Reason::SynCookie));
    s.p.pass(10_010);
    is_used_up(&mut s, 5, 0);
}

/// The deferred SYN comes again while SYN cookies are sent: the cookie is the only answer to it.
#[test]
fn a_syn_cookie_overtakes_a_deferred_block() {
    let mut s = server_with(|_| {}, |_| {}, |listen| listen.syn_backlog = 1);
    s.p.send(flight(5));
    let flights = s.p.stack.poll_verifications().unwrap();
    s.p.flow(CLIENT_PORT + 1, 9);
    s.p.send(plain());
    s.p.expect().syn_ack().ack(1);
    s.p.flow(CLIENT_PORT, PEER_ISN);
    s.p.send(flight(5));
    let got = s.p.expect().syn_ack().ack(1);
    assert_eq!(reply(&got).map(|reply| reply.status), Some(Status::Overloaded));
    let verdicts = flights.verify(&mut rng());
    let now = s.p.now;
    s.p.stack.handle_verified(flights, &verdicts, now);
    s.p.quiet();
    assert_eq!(s.pending.pending(), 0);
    by_handshake(&mut s);
    is_used_up_after(&mut s, 5, 10_010);
}

// --- odd SYNs --------------------------------------------------------------------------------------------

#[test]
fn a_syn_with_fin_is_dropped() {
    let mut s = server();
    s.p.send(flight(5).fin());
    s.p.quiet();
    assert_eq!((s.verify(), s.p.stack.counters().dropped(PacketDrop::BadFlags)), (0, 1));
    // It was no first flight, so the valid one is accepted.
    s.accepts(flight(5));
}

#[test]
fn urgent_says_nothing() {
    let mut s = server();
    s.accepts(flight(5).urg());
}

/// The block is not delivered even if a cookie is valid: it is handled as a block.
#[test]
fn a_cookie_beside_a_block_does_not_count() {
    let mut s = server_with(
        |_| {},
        |_| {},
        |listen| {
            listen.fast_open = Some(crate::peer::policy(crate::peer::key(1), 16));
        },
    );
    let cookie = s.p.cookie_of(crate::peer::key(1));
    let stranger = crate::certified::certificate(9, 2, crate::flights::CLIENT.parse().unwrap());
    let request = crate::certified::request(&stranger, 5, DATA, 0);
    s.refuses(crate::flights::syn(&request).cookie(cookie.as_bytes()), Status::UnknownVerifier);
    s.p.flow(CLIENT_PORT + 1, 9);
    let (got, _) = s.accepts(flight(6).cookie(cookie.as_bytes()));
    assert_eq!(got.fast_open, None);
    // A cookie request is answered.
    s.p.flow(CLIENT_PORT + 2, 9);
    let (got, _) = s.accepts(flight(7).cookie(&[]));
    assert_eq!(got.grants(firstflight_wire::tcp::FastOpenForm::Standard), cookie);
}
