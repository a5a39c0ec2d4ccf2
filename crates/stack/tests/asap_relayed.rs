//! First flights that a front delivers: accepted, or dropped silently (`docs/spec/dns-path.md` §9).

use crate::certified::{Request, certificate, certificate_from, certificate_with, identity, request};
use crate::flights::{AFTER, DATA, Server, client, server_with, syn};
use crate::handed::*;
use crate::peer::{Got, Seg, seg};
use firstflight_credential::asap::{AsapPolicy, Identity};
use firstflight_credential::{Outcome, PendingLimit};
use firstflight_stack::{EncapsulationConfig, ResponsePolicy, StateName};
use firstflight_wire::asap::{AsapOption, BLOCK_LEN, Encapsulation, Hint, Status};
use firstflight_wire::encapsulation::Carried;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{OptionBytes, Segment};
use firstflight_wire::udp::Datagram;
use firstflight_wire::{Instant, SeqNum};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Delivers a first flight that is dropped silently.
#[track_caller]
fn is_dropped(s: &mut Server, seg: &Seg) {
    let before = (s.p.stack.counters().relayed_dropped, s.p.stack.connections());
    hand_over(s, seg);
    s.p.pass(60_000);
    s.p.quiet();
    s.p.nothing_to_accept(s.listener);
    assert_eq!((s.p.stack.counters().relayed_dropped, s.p.stack.connections()), (before.0 + 1, before.1));
    assert_eq!(s.p.stack.counters().syn_cookies_sent, 0);
    assert_eq!(s.pending.pending(), 0);
}

/// The SYN-ACK's own number.
fn isn(got: &Got) -> SeqNum {
    let ip = Packet::parse(&got.packet).unwrap();
    let datagram = Datagram::parse(ip.payload).unwrap();
    let Ok(Carried::Segment(segment)) = Carried::parse(datagram.payload) else { panic!() };
    Segment::parse(segment).unwrap().seq
}

#[test]
fn it_is_accepted_and_the_answer_is_proved() {
    let mut s = server();
    hand_over(&mut s, &relayed(5));
    let got = s.p.expect().syn_ack().ack(AFTER);
    let reply = reply(&got);
    let Hint::Proof(proof) = reply.hint else { panic!("{reply:?}") };
    let ours = SocketAddr::new(s.p.local().ip(), OURS);
    assert!(key().verifies(ours, isn(&got), Status::Accepted, &proof));
    assert_eq!((reply.status, reply.tag), (Status::Accepted, [5, 5]));
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), DATA);
    // The answer goes at once to the address that the client claims.
    s.p.write(id, b"answer");
    s.p.expect().data(b"answer");
    s.p.send(seg().seq(AFTER).ack(7));
    assert_eq!(
        (s.p.state(id), s.p.stack.info(id).unwrap().outcome),
        (StateName::Established, Outcome::Accepted)
    );
    assert_eq!((s.p.stack.counters().relayed, s.p.stack.counters().relayed_dropped), (1, 0));
}

/// Nothing came from the client's address. So the server sends three times the SYN's bytes, for any verifier, and
/// one SYN-ACK more.
#[test]
fn little_is_sent_before_the_clients_ack() {
    let mut s = server();
    hand_over(&mut s, &relayed(5));
    let id = s.p.accept(s.listener);
    s.p.write(id, &[7; 100_000]);
    s.p.pass(120_000);
    let (mut syn_acks, mut bytes) = (0, 0);
    for got in s.p.drain() {
        bytes += got.packet.len();
        syn_acks += usize::from(got.packet.len() < 100);
    }
    let received = 20 + 8 + 4 + 20 + 20 + BLOCK_LEN + DATA.len();
    assert!(bytes <= 3 * received + 2 * 100, "{bytes} bytes for {received}");
    assert_eq!(syn_acks, 2);
}

#[test]
fn what_is_not_good_is_dropped_without_a_trace() {
    let wrong_signature = {
        let mut request = by_front(&client(), &identity(), 5, 0);
        *request.payload.last_mut().unwrap() ^= 1;
        syn(&request)
    };
    let elsewhere = certificate(1, 2, "10.0.0.9".parse().unwrap());
    let old = certificate_with(1, 2, address(), NOW_S - 3601, 86_400, 1);
    let for_others = Identity::name("other.example.com", 80);
    for (what, seg) in [
        ("untrusted", syn(&by_front(&certificate(9, 2, address()), &identity(), 5, 0))),
        ("another address", syn(&by_front(&elsewhere, &identity(), 5, 0))),
        ("another server", syn(&by_front(&client(), &for_others, 5, 0))),
        ("a wrong signature", wrong_signature),
        // The signature covers the way on which the copy travels.
        ("the direct copy", direct(5)),
        ("the copy on IP", syn(&request(&client(), 5, DATA, 0))),
        (
            "older than half a minute",
            syn(&by_front(&certificate_from(1, 2, address(), NOW_S - 40), &identity(), 5, 9_000)),
        ),
        ("under a certificate older than an hour", syn(&by_front(&old, &identity(), 5, 3_601_000))),
        ("without a block", seg().syn().mss(1460).data(DATA)),
        ("a segment", seg().seq(1).ack(1).data(DATA)),
    ] {
        println!("{what}");
        is_dropped(&mut server(), &seg);
    }
    // Younger certificates are accepted.
    let mut s = server();
    let young = certificate_with(1, 2, address(), NOW_S - 3599, 86_400, 1);
    hand_over(&mut s, &syn(&by_front(&young, &identity(), 5, 3_599_000)));
    s.p.expect().syn_ack().ack(AFTER);
}

#[test]
fn a_listener_takes_none_unless_it_is_told_to() {
    is_dropped(&mut server_of(|policy| policy.relayed = None), &relayed(5));
}

/// A reason to drop the front's copy does not invalidate the client's own copy.
#[test]
fn the_direct_copy_of_what_was_dropped_is_good() {
    let mut s = server_of(|policy| policy.relayed = Some(Arc::new(PendingLimit::new(0))));
    is_dropped(&mut s, &relayed(5));
    let mut s = server();
    // The direct copy comes while the front's copy is verified, and the front's copy is then forgotten.
    defer(&mut s, &relayed(5));
    let got = s.asks(direct(5)).ack(AFTER);
    assert_eq!(reply(&got).hint, Hint::None);
    s.p.accept(s.listener);
    s.p.nothing_to_accept(s.listener);
}

/// Each request is executed once, whichever copy comes first.
#[test]
fn of_the_two_copies_one_is_executed() {
    // The front's copy comes first: the direct one is a SYN of the same connection.
    let mut s = server();
    hand_over(&mut s, &relayed(5));
    s.p.expect().syn_ack().ack(AFTER);
    let id = s.p.accept(s.listener);
    s.p.pass(600);
    let again = s.asks(direct(5)).ack(AFTER);
    assert!(matches!(reply(&again).hint, Hint::Proof(_)));
    // With another number it opens nothing, and is not executed later either.
    s.p.isn = s.p.isn.wrapping_add(5000);
    s.p.send(direct(8));
    s.verify();
    s.p.expect().is_ack().ack(AFTER.wrapping_sub(5000));
    // From another port of a translator it is another connection, and the status says what happened.
    s.p.flow(41_000, 77);
    let got = s.asks(direct(5)).ack(1);
    assert_eq!(reply(&got).status, Status::Replayed);
    s.p.nothing_to_accept(s.listener);
    assert_eq!(s.p.read(id), DATA);
    // The direct copy comes first: the front's copy is dropped, from the same port and from another.
    let mut s = server();
    s.asks(direct(5)).ack(AFTER);
    s.p.accept(s.listener);
    hand_over(&mut s, &relayed(5));
    s.p.flow(41_000, 77);
    hand_over(&mut s, &relayed(5));
    s.p.nothing_to_accept(s.listener);
    assert_eq!(s.p.stack.counters().relayed_dropped, 2);
}

/// An attacker who collects certificates uses them against the next client with that address: four at a time, ten a
/// minute.
#[test]
fn one_address_gets_few_of_them() {
    let mut s = server();
    for n in 0..6 {
        s.p.flow(40_000 + u16::from(n), 100 + u32::from(n));
        s.p.pass(50);
        hand_over(&mut s, &relayed(10 + n));
    }
    assert_eq!(s.p.stack.counters().relayed_dropped, 2);
    let mut s = server();
    let mut accepted = 0;
    for n in 0..30 {
        s.p.flow(40_000 + u16::from(n), 100 + u32::from(n));
        s.p.pass(50);
        hand_over(&mut s, &relayed(10 + n));
        if let Some(id) = s.p.stack.accept(s.listener) {
            accepted += 1;
            // The client has answered, so its permit is free again.
            s.p.expect().syn_ack();
            s.p.send(seg().seq(AFTER).ack(1));
            s.p.release(id);
            s.p.drain();
        }
    }
    assert_eq!(accepted, 10);
    // A permit is free again after some time.
    s.p.pass(6_500);
    s.p.drain();
    s.p.flow(45_000, 900);
    hand_over(&mut s, &relayed(99));
    s.p.accept(s.listener);
}

/// Verifying the signatures of delivered first flights has a separate budget.
#[test]
fn they_do_not_use_up_the_budget_of_others() {
    let tune = |config: &mut firstflight_stack::Config| {
        config.encapsulation = Some(EncapsulationConfig::new(OURS).probe(false));
        config.limits.asap.relayed_per_second = 0;
    };
    let relays = |policy: &mut AsapPolicy| policy.relayed = Some(Arc::new(PendingLimit::new(64)));
    let mut s = server_with(tune, relays, |_| {});
    s.p.outer = Some((THEIRS, OURS));
    is_dropped(&mut s, &relayed(5));
    assert_eq!(s.signatures(), 0);
    s.p.flow(41_000, 77);
    let now = Instant::ZERO + Duration::from_secs(60);
    let block = client().request(Encapsulation::Udp, &identity(), DATA, [6; 8], now);
    let option = AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 };
    let option = OptionBytes::from(option).as_slice().to_vec();
    s.asks(syn(&Request { option, payload: [&block.to_bytes()[..], DATA].concat() })).ack(AFTER);
}

/// Bytes of IP that are sent after the answer was written, until nothing more is sent.
fn leaves(s: &mut Server) -> usize {
    s.p.pump();
    s.p.drain().iter().map(|got| got.packet.len()).sum()
}

/// A packet has come from the client's own address, so as much is sent as for any direct first flight.
#[test]
fn the_direct_copy_brings_the_rest_of_the_answer() {
    let mut s = server();
    hand_over(&mut s, &relayed(5));
    let id = s.p.accept(s.listener);
    s.p.write(id, &[7; 9000]);
    let little = leaves(&mut s);
    assert!(little < 1500, "{little}");
    s.p.send(direct(5));
    let rest = leaves(&mut s);
    assert!(little + rest > 9000, "{rest}");
    // This happens once, and there is still one connection.
    s.p.nothing_to_accept(s.listener);
    s.p.send(seg().seq(AFTER).ack(2));
    assert_eq!(s.p.state(id), StateName::Established);
}

#[test]
fn only_the_same_request_from_the_same_place_is_a_direct_copy() {
    // Another request, and SYNs without a request.
    for seg in [direct(6), seg().syn().mss(1460).data(DATA), seg().syn().mss(1460)] {
        let mut s = server();
        hand_over(&mut s, &relayed(5));
        let id = s.p.accept(s.listener);
        s.p.write(id, &[7; 9000]);
        let little = leaves(&mut s);
        s.p.send(seg);
        let again = leaves(&mut s);
        // A SYN-ACK at most.
        assert!(little < 1500 && again < 200, "{little} {again}");
    }
    // The listener's own limit applies, too.
    let mut s = server_listening(|listen| listen.response = ResponsePolicy::AfterHandshake, |_| {});
    hand_over(&mut s, &relayed(5));
    let id = s.p.accept(s.listener);
    s.p.write(id, &[7; 9000]);
    leaves(&mut s);
    s.p.send(direct(5));
    assert!(leaves(&mut s) < 200);
}
