//! The client's side of first flights inside a lookup: who may answer, the direct copy, and both copies together
//! (`docs/spec/dns-path.md` §§2.1, 5). Two stacks in virtual time; the front is a function call.

use crate::certified::{certificate, certified, policy};
use crate::pair::{End, PORT, Pair};
use firstflight_credential::asap::{AsapPolicy, ReplyKey};
use firstflight_credential::{Outcome, PendingLimit, Reason};
use firstflight_link::path::PathConfig;
use firstflight_stack::{
    CloseReason, ConnId, ConnectConfig, ConnectError, EncapsulationConfig, FirstData, InLookupSyn,
    ListenConfig, ListenerId, Readiness, RelayedFlight, StateName,
};
use firstflight_wire::Instant;
use firstflight_wire::encapsulation::Carried;
use firstflight_wire::icmp::{self, IcmpErrorKind};
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, Segment};
use firstflight_wire::udp::Datagram;
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const SERVER: u16 = 4433;
const CLIENT: u16 = 5000;
const DELAY: Duration = Duration::from_millis(50);
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn key(n: u8) -> ReplyKey {
    ReplyKey::from_bytes(&[n; 16])
}

/// The second address of the server, in the client's family.
fn other_address(v6: bool) -> IpAddr {
    if v6 { "2001:db8::99".parse().unwrap() } else { "10.0.0.99".parse().unwrap() }
}

fn takes_relayed() -> AsapPolicy {
    AsapPolicy { relayed: Some(Arc::new(PendingLimit::with_clients(64, 4))), ..policy(&[1]) }
}

/// A client and a server with two addresses, both of which take first flights from fronts and share a guard.
fn pair(v6: bool) -> (Pair, ListenerId) {
    pair_with(v6, takes_relayed())
}

fn pair_with(v6: bool, policy: AsapPolicy) -> (Pair, ListenerId) {
    let mut pair = Pair::new(PathConfig::with_delay(DELAY), 7, v6, |config, end| {
        config.encapsulation =
            Some(EncapsulationConfig::new(if end == End::Client { CLIENT } else { SERVER }));
        if end == End::Server {
            config.addresses.push(other_address(v6));
        }
    });
    pair.keep_log = true;
    pair.encapsulation = Some(SERVER);
    let listener = pair.listen_with(|config| config.asap = Some(policy));
    (pair, listener)
}

fn connect(p: &mut Pair) -> InLookupSyn {
    connect_with(p, FirstData::whole(REQUEST))
}

fn connect_with(p: &mut Pair, data: FirstData<'_>) -> InLookupSyn {
    let address = p.client.config().addresses[0];
    let asap = Some(certified(certificate(1, 2, address), p.now));
    let config = ConnectConfig::default().asap(asap).replay_safe(true).encapsulation(Some(SERVER));
    let in_lookup = p.client.connect_in_lookup(PORT, data, &config, p.now).unwrap();
    assert!(p.client.expect_answer(in_lookup.id, key(5)));
    in_lookup
}

/// A front delivers the SYN to the server at `to`.
fn hand_over(p: &mut Pair, in_lookup: &InLookupSyn, to: IpAddr, with: ReplyKey) {
    let client = SocketAddr::new(p.client.config().addresses[0], CLIENT);
    let flight = RelayedFlight { client, server: to, segment: &in_lookup.segment, key: with, seen_as: None };
    p.server.handle_relayed(p.now, flight);
    p.verify();
}

fn here(p: &Pair) -> IpAddr {
    p.server_addr().ip()
}

/// The server answers the request. Returns when the client has the answer.
fn served(p: &mut Pair, listener: ListenerId, id: ConnId) -> Instant {
    let child = p.accept(listener);
    assert_eq!(p.server_reads(child), REQUEST);
    p.server.write(child, b"answer", p.now).unwrap();
    let mut got = Vec::new();
    p.run(Duration::from_secs(60), |p| {
        got.extend(p.client_reads(id));
        got.len() >= 6
    });
    assert_eq!(got, b"answer");
    p.now
}

fn outcome(p: &Pair, id: ConnId) -> (Outcome, bool) {
    let info = p.client.info(id).unwrap();
    (info.outcome, info.relayed)
}

fn sent_by_client(p: &Pair) -> Vec<Flags> {
    let flags = |bytes: &[u8]| {
        let ip = Packet::parse(bytes).unwrap();
        match Carried::parse(Datagram::parse(ip.payload).unwrap().payload).unwrap() {
            Carried::Segment(segment) => Some(Segment::parse(segment).unwrap().flags),
            Carried::Control(_) => None,
        }
    };
    p.log.iter().filter(|(_, end, _)| *end == End::Client).filter_map(|(_, _, bytes)| flags(bytes)).collect()
}

#[test]
fn a_server_that_was_never_contacted_answers_in_half_a_round_trip() {
    for v6 in [false, true] {
        let (mut p, listener) = pair(v6);
        let in_lookup = connect(&mut p);
        p.idle(ms(20));
        assert!(p.log.is_empty(), "a packet for nobody");
        let to = here(&p);
        hand_over(&mut p, &in_lookup, to, key(5));
        // Only the way back takes time.
        assert_eq!(served(&mut p, listener, in_lookup.id), Instant::ZERO + ms(70));
        assert_eq!(outcome(&p, in_lookup.id), (Outcome::Accepted, true));
        assert_eq!(p.client.info(in_lookup.id).unwrap().remote, p.server_addr());
        assert_eq!(p.client.counters().in_lookup_answered, 1);
        assert!(p.client_saw(in_lookup.id, Readiness::CONNECTED));
        // It is not known when the SYN reached the server, so the answer is no sample of the round trip.
        assert!(p.client.info(in_lookup.id).unwrap().rtt.is_none_or(|rtt| rtt >= ms(100)));
        // The address comes too late to be used.
        p.client.send_direct(in_lookup.id, to, p.now).unwrap();
        p.idle(Duration::from_secs(5));
        assert!(sent_by_client(&p).iter().all(|flags| !flags.contains(Flags::SYN)));
        assert_eq!(p.server.accept(listener), None);
    }
}

#[test]
fn an_answer_without_the_right_proof_is_none() {
    let (mut p, _listener) = pair(false);
    let in_lookup = connect(&mut p);
    let to = here(&p);
    hand_over(&mut p, &in_lookup, to, key(6));
    p.idle(ms(60));
    assert_eq!(p.client.info(in_lookup.id).unwrap().state, StateName::SynSent);
    assert_eq!(p.client.counters().in_lookup_answered, 0);
    // The server gets a RST, because the client has no such connection.
    assert_eq!(sent_by_client(&p).len(), 1);
    assert!(sent_by_client(&p)[0].contains(Flags::RST));
}

/// A RST would end the server's connection. The direct copy would then be refused as a replay, and the client would
/// send the executed request again.
#[test]
fn data_that_comes_before_its_syn_ack_is_not_reset() {
    let (mut p, listener) = pair(false);
    let mut lost = false;
    p.middlebox = Some(Box::new(move |from, _| from == End::Client || std::mem::replace(&mut lost, true)));
    let in_lookup = connect(&mut p);
    let to = here(&p);
    hand_over(&mut p, &in_lookup, to, key(5));
    let child = p.accept(listener);
    assert_eq!(p.server_reads(child), REQUEST);
    p.server.write(child, b"answer", p.now).unwrap();
    p.idle(ms(60));
    assert!(p.log.len() >= 2, "no data before the ACK");
    assert_eq!((sent_by_client(&p).len(), p.client.counters().resets_sent), (0, 0));
    // The SYN-ACK is retransmitted, or the direct copy causes one.
    p.client.send_direct(in_lookup.id, to, p.now).unwrap();
    let mut got = Vec::new();
    p.run(Duration::from_secs(10), |p| {
        got.extend(p.client_reads(in_lookup.id));
        got.len() >= 6
    });
    assert_eq!(got, b"answer");
    assert_eq!(p.server.accept(listener), None, "executed twice");
}

#[test]
fn an_answer_of_another_address_or_number_is_none() {
    // The proof does not cover a SYN-ACK that a middlebox has changed.
    type Change = fn(&mut [u8]);
    let changes: [(&str, Change); 4] = [
        ("the address", |packet| packet[15] = 77),
        ("the port", |packet| packet[21] ^= 1),
        ("the number", |packet| packet[20 + 8 + 4 + 7] ^= 1),
        ("what is acknowledged", |packet| packet[20 + 8 + 4 + 11] ^= 1),
    ];
    for (what, change) in changes {
        println!("{what}");
        let (mut p, _) = pair(false);
        p.middlebox = Some(Box::new(move |from, packet| {
            if from == End::Server {
                change(packet);
                // Correct the checksum, so that it is not the reason for the drop.
                packet[10..12].fill(0);
                let sum = packet[..20].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
                let sum = (sum & 0xffff) + (sum >> 16);
                packet[10..12].copy_from_slice(&(!(sum + (sum >> 16)) as u16).to_be_bytes());
                let (src, dst) = (Packet::parse(packet).unwrap().src, Packet::parse(packet).unwrap().dst);
                firstflight_wire::udp::fill_checksum(&mut packet[20..], src, dst);
            }
            true
        }));
        let in_lookup = connect(&mut p);
        let to = here(&p);
        hand_over(&mut p, &in_lookup, to, key(5));
        p.idle(ms(60));
        assert_eq!(p.client.info(in_lookup.id).unwrap().state, StateName::SynSent);
        assert_eq!(p.client.counters().in_lookup_answered, 0);
        assert!(p.client.counters().resets_sent > 0, "it did not arrive");
    }
}

#[test]
fn the_direct_copy_alone_is_an_ordinary_first_flight() {
    let (mut p, listener) = pair(false);
    let in_lookup = connect(&mut p);
    p.idle(ms(30));
    let to = here(&p);
    p.client.send_direct(in_lookup.id, to, p.now).unwrap();
    assert_eq!(served(&mut p, listener, in_lookup.id), Instant::ZERO + ms(130));
    assert_eq!(outcome(&p, in_lookup.id), (Outcome::Accepted, false));
}

/// One of the two copies is executed, and both are one connection.
#[test]
fn both_copies_meet_at_the_server() {
    // When the front's copy arrives. The direct copy leaves at 30 ms and arrives at 80 ms.
    for (handed, relayed) in [(0, true), (40, true), (79, true), (90, false), (120, false)] {
        println!("handed over after {handed} ms");
        let (mut p, listener) = pair(false);
        let in_lookup = connect(&mut p);
        let to = here(&p);
        if handed < 30 {
            p.idle(ms(handed));
            hand_over(&mut p, &in_lookup, to, key(5));
            p.idle(ms(30 - handed));
            p.client.send_direct(in_lookup.id, to, p.now).unwrap();
        } else {
            p.idle(ms(30));
            p.client.send_direct(in_lookup.id, to, p.now).unwrap();
            p.idle(ms(handed - 30));
            hand_over(&mut p, &in_lookup, to, key(5));
        }
        // From then on the server is asked what it has received.
        let at = served(&mut p, listener, in_lookup.id);
        assert_eq!(at, Instant::ZERO + ms(handed.max(30) + 50));
        assert_eq!(outcome(&p, in_lookup.id), (Outcome::Accepted, relayed));
        p.idle(Duration::from_secs(5));
        assert_eq!(p.server.accept(listener), None, "executed twice");
        assert_eq!(p.server.connections(), 1);
        assert_eq!((p.client.counters().resets_sent, p.server.counters().resets_sent), (0, 0));
    }
}

/// A request of which only the first line travels in the lookup.
const LONG: &[u8] = b"GET /small HTTP/1.1\r\nHost: www.example.com\r\nCookie: 0123456789012345678901234567890123456789\r\n\r\n";
const LINE: usize = 21;

/// Connects with [`LONG`] in a lookup, and runs until the server has all of it. Returns when it has the first line, and when the rest.
fn received_in_parts(
    p: &mut Pair,
    listener: ListenerId,
    steps: impl IntoIterator<Item = (u64, Step)>,
) -> [u64; 2] {
    let in_lookup = connect_with(p, FirstData::part(LONG, LINE));
    received(p, listener, &in_lookup, steps)
}

#[derive(Clone, Copy)]
enum Step {
    HandOver,
    SendDirect(IpAddr),
}

fn received(
    p: &mut Pair,
    listener: ListenerId,
    in_lookup: &InLookupSyn,
    steps: impl IntoIterator<Item = (u64, Step)>,
) -> [u64; 2] {
    assert_eq!(in_lookup.taken, LONG.len());
    let (mut child, mut got, mut times) = (None, Vec::new(), [None; 2]);
    let mut steps = steps.into_iter().peekable();
    let begun = p.now;
    for time in 0..3000 {
        if let Some((_, step)) = steps.next_if(|(at, _)| *at == time) {
            let to = here(p);
            match step {
                Step::HandOver => hand_over(p, in_lookup, to, key(5)),
                Step::SendDirect(to) => p.client.send_direct(in_lookup.id, to, p.now).unwrap(),
            }
        }
        let now = p.now.saturating_since(begun).as_millis() as u64;
        child = child.or_else(|| p.server.accept(listener));
        if let Some(child) = child {
            got.extend(p.server_reads(child));
        }
        assert!(LONG.starts_with(&got), "something was received twice: {got:?}");
        if got.len() >= LINE {
            times[0] = times[0].or(Some(now));
        }
        if got.len() == LONG.len() {
            times[1] = times[1].or(Some(now));
        }
        p.idle(ms(1));
    }
    assert_eq!(p.server.accept(listener), None, "executed twice");
    assert_eq!((p.client.counters().resets_sent, p.server.connections()), (0, 1));
    times.map(|time| time.expect("all of it arrives"))
}

#[test]
fn the_first_line_travels_in_the_lookup_and_the_rest_behind_the_direct_syn() {
    for v6 in [false, true] {
        let (mut p, listener) = pair(v6);
        let to = here(&p);
        let [first, rest] =
            received_in_parts(&mut p, listener, [(5, Step::HandOver), (30, Step::SendDirect(to))]);
        // As with a request that goes directly as a whole: the direct copy leaves at 30 ms.
        assert_eq!((first, rest), (5, 80));
        // The SYN of the direct copy carries what the other one did.
        let sizes: Vec<usize> = p
            .log
            .iter()
            .filter(|(_, end, _)| *end == End::Client)
            .filter_map(|(_, _, bytes)| {
                match Carried::parse(Datagram::parse(Packet::parse(bytes).unwrap().payload).unwrap().payload)
                    .unwrap()
                {
                    Carried::Segment(segment) => Some(Segment::parse(segment).unwrap().payload.len()),
                    Carried::Control(_) => None,
                }
            })
            .collect();
        assert_eq!(&sizes[..2], [196 + LINE, LONG.len() - LINE]);
    }
}

#[test]
fn the_rest_leaves_with_the_answer_to_the_lookup_s_copy_if_that_comes_first() {
    let (mut p, listener) = pair(false);
    let to = here(&p);
    let times = received_in_parts(&mut p, listener, [(0, Step::HandOver), (90, Step::SendDirect(to))]);
    assert_eq!(times, [0, 100]);
}

#[test]
fn a_part_whose_copy_in_the_lookup_is_late_or_lost_costs_nothing() {
    let (mut p, listener) = pair(false);
    let to = here(&p);
    assert_eq!(received_in_parts(&mut p, listener, [(30, Step::SendDirect(to))]), [80, 80]);
    for handed in [31, 60, 79, 81, 100, 140] {
        let (mut p, listener) = pair(false);
        let steps = [(30, Step::SendDirect(to)), (handed, Step::HandOver)];
        assert_eq!(
            received_in_parts(&mut p, listener, steps),
            [handed.min(80), 80],
            "handed over after {handed} ms"
        );
    }
}

#[test]
fn what_followed_a_refused_direct_copy_is_sent_to_the_server_that_answers() {
    for (second, expected) in
        [(Step::HandOver, [200, 300]), (Step::SendDirect(other_address(true)), [250, 350])]
    {
        let (mut p, listener) = pair(false);
        let second = match second {
            Step::SendDirect(_) => Step::SendDirect(here(&p)),
            Step::HandOver => Step::HandOver,
        };
        let steps = [(0, Step::SendDirect(other_address(false))), (200, second)];
        assert_eq!(received_in_parts(&mut p, listener, steps), expected);
    }
}

/// Before it, somebody who has seen the names at the front could send another rest.
#[test]
fn nothing_follows_a_relayed_syn_before_the_direct_one() {
    // Without the direct SYN, the first datagram of the client.
    let (mut p, listener) = pair(false);
    let mut first = true;
    p.middlebox = Some(Box::new(move |from, _| from == End::Server || !std::mem::take(&mut first)));
    let to = here(&p);
    let [begun, rest] =
        received_in_parts(&mut p, listener, [(5, Step::HandOver), (30, Step::SendDirect(to))]);
    assert!(begun == 5 && rest > 100, "{begun} {rest}");
}

/// A front that hands the SYN over with another number would cut off what the client sends behind its own.
#[test]
fn what_follows_a_syn_with_another_number_is_not_taken() {
    let (mut p, listener) = pair(false);
    let mut in_lookup = connect_with(&mut p, FirstData::part(LONG, LINE));
    let to = here(&p);
    let number = u32::from_be_bytes(in_lookup.segment[4..8].try_into().unwrap());
    in_lookup.segment[4..8].copy_from_slice(&number.wrapping_add(10).to_be_bytes());
    hand_over(&mut p, &in_lookup, to, key(5));
    p.client.send_direct(in_lookup.id, to, p.now).unwrap();
    p.idle(ms(60));
    let child = p.accept(listener);
    // The block is signed for another number, or the line stands alone.
    let got = p.server_reads(child);
    assert_eq!(String::from_utf8_lossy(&got), "GET /small HTTP/1.1\r\n");
}

/// The two copies lead to two servers with one guard. What followed the direct copy is not in flight to the other.
#[test]
fn the_rest_goes_at_once_to_the_server_that_took_the_beginning() {
    let (mut p, _listener) = pair(false);
    let elsewhere = SocketAddr::new(other_address(false), PORT);
    let there = p.server.listen(ListenConfig::new(elsewhere).asap(Some(takes_relayed()))).unwrap();
    let in_lookup = connect_with(&mut p, FirstData::part(LONG, LINE));
    let to = here(&p);
    p.client.send_direct(in_lookup.id, to, p.now).unwrap();
    p.idle(ms(20));
    hand_over(&mut p, &in_lookup, elsewhere.ip(), key(5));
    let child = p.accept(there);
    let mut got = p.server_reads(child);
    assert_eq!(got, &LONG[..LINE]);
    // The answer comes at 70 ms, and the rest 50 ms later.
    p.idle(ms(101));
    got.extend(p.server_reads(child));
    assert_eq!(got, LONG);
    assert_eq!(p.client.info(in_lookup.id).unwrap().remote, elsewhere);
}

#[test]
fn a_lost_rest_is_sent_again_and_nothing_runs_twice() {
    // The second datagram of the client is the rest.
    let (mut p, listener) = pair(false);
    let mut count = 0;
    p.middlebox = Some(Box::new(move |from, _| {
        count += usize::from(from == End::Client);
        from == End::Server || count != 2
    }));
    let to = here(&p);
    let [first, rest] =
        received_in_parts(&mut p, listener, [(5, Step::HandOver), (30, Step::SendDirect(to))]);
    assert!(first == 5 && rest > 80, "{first} {rest}");
}

/// The plain name and the front lead to two servers with one guard.
#[test]
fn a_proved_answer_wins_over_another_servers_until_that_one_answers() {
    let (mut p, listener) = pair(false);
    let policy = takes_relayed();
    let elsewhere = SocketAddr::new(other_address(false), PORT);
    let there = p.server.listen(ListenConfig::new(elsewhere).asap(Some(policy))).unwrap();
    let in_lookup = connect(&mut p);
    let to = here(&p);
    p.client.send_direct(in_lookup.id, to, p.now).unwrap();
    p.idle(ms(20));
    hand_over(&mut p, &in_lookup, elsewhere.ip(), key(5));
    let at = served(&mut p, there, in_lookup.id);
    assert_eq!(at, Instant::ZERO + ms(70));
    assert_eq!(outcome(&p, in_lookup.id), (Outcome::Accepted, true));
    assert_eq!(p.client.info(in_lookup.id).unwrap().remote, elsewhere);
    // The other server, which has a guard of its own here, learns that nobody waits for its answer.
    p.idle(Duration::from_secs(5));
    assert_eq!(p.client.counters().resets_sent, 1);
    if let Some(child) = p.server.accept(listener) {
        assert!(p.server.close_reason(child).is_some());
    }
}

/// A connection whose direct copy is on its way to an address of the server's host without a listener.
fn refused_soon(v6: bool) -> (Pair, ListenerId, InLookupSyn) {
    let (mut p, listener) = pair(v6);
    let in_lookup = connect(&mut p);
    p.client.send_direct(in_lookup.id, other_address(v6), p.now).unwrap();
    (p, listener, in_lookup)
}

#[test]
fn a_refused_direct_copy_does_not_end_the_wait_for_the_other_answer() {
    for v6 in [false, true] {
        let (mut p, listener, in_lookup) = refused_soon(v6);
        assert_eq!(p.client.direct_refused(in_lookup.id), None);
        p.idle(ms(110));
        assert_eq!(p.client.direct_refused(in_lookup.id), Some(CloseReason::Refused));
        assert!(p.client_saw(in_lookup.id, Readiness::HELD));
        // It is not retransmitted.
        p.idle(Duration::from_secs(3));
        assert_eq!(sent_by_client(&p).len(), 1);
        let to = here(&p);
        hand_over(&mut p, &in_lookup, to, key(5));
        let answered = served(&mut p, listener, in_lookup.id);
        assert_eq!(answered, Instant::ZERO + ms(110) + Duration::from_secs(3) + DELAY);
        assert_eq!(outcome(&p, in_lookup.id), (Outcome::Accepted, true));
        assert_eq!(p.client.direct_refused(in_lookup.id), None);
    }
}

#[test]
fn a_refused_direct_copy_can_go_to_another_address() {
    let (mut p, listener, in_lookup) = refused_soon(false);
    p.idle(ms(110));
    let to = here(&p);
    p.client.send_direct(in_lookup.id, to, p.now).unwrap();
    assert_eq!(p.client.direct_refused(in_lookup.id), None);
    assert_eq!(served(&mut p, listener, in_lookup.id), Instant::ZERO + ms(210));
    assert_eq!(outcome(&p, in_lookup.id), (Outcome::Accepted, false));
}

#[test]
fn a_reset_that_acknowledges_something_else_refuses_nothing() {
    let (mut p, _listener, in_lookup) = refused_soon(false);
    p.middlebox = Some(Box::new(|from, packet| {
        if from == End::Server {
            packet[20 + 8 + 4 + 8] ^= 0x80;
            let ip = Packet::parse(packet).unwrap();
            let (src, dst) = (ip.src, ip.dst);
            firstflight_wire::udp::fill_checksum(&mut packet[20..], src, dst);
        }
        true
    }));
    p.idle(ms(110));
    assert!(p.server.counters().resets_sent > 0);
    assert_eq!(p.client.direct_refused(in_lookup.id), None);
    assert_eq!(p.client.info(in_lookup.id).unwrap().state, StateName::SynSent);
}

#[test]
fn an_unreachable_server_of_the_direct_copy_does_not_end_the_wait_for_the_other_answer() {
    for v6 in [false, true] {
        let (mut p, listener, in_lookup) = refused_soon(v6);
        p.flush();
        let syn = p.log.first().unwrap().2.clone();
        let ip = Packet::parse(&syn).unwrap();
        let mut error = [0; 576];
        let kind = IcmpErrorKind::PortUnreachable;
        let len = icmp::emit_error(kind, ip.dst, ip.src, &syn, &mut error).unwrap();
        p.client.handle_packet(p.now, &error[..len]);
        assert_eq!(p.client.direct_refused(in_lookup.id), Some(CloseReason::Unreachable));
        let to = here(&p);
        hand_over(&mut p, &in_lookup, to, key(5));
        served(&mut p, listener, in_lookup.id);
        assert_eq!(outcome(&p, in_lookup.id), (Outcome::Accepted, true));
    }
}

#[test]
fn a_copy_that_another_server_has_seen_is_answered_replayed() {
    let policy = takes_relayed();
    let (mut p, listener) = pair_with(false, policy.clone());
    let to = here(&p);
    let elsewhere = SocketAddr::new(other_address(false), PORT);
    p.server.listen(ListenConfig::new(elsewhere).asap(Some(policy))).unwrap();
    // The answer to the front's copy is lost.
    p.middlebox = Some(Box::new(move |from, packet| {
        from == End::Client || Packet::parse(packet).unwrap().src != elsewhere.ip()
    }));
    let in_lookup = connect(&mut p);
    hand_over(&mut p, &in_lookup, elsewhere.ip(), key(5));
    p.client.send_direct(in_lookup.id, to, p.now).unwrap();
    // The handshake is complete, and the request is sent again. This takes one round trip more, and the request may
    // run twice.
    assert_eq!(served(&mut p, listener, in_lookup.id), Instant::ZERO + ms(200));
    assert_eq!(outcome(&p, in_lookup.id), (Outcome::Handshake(Reason::Replay), false));
}

#[test]
fn a_plain_syn_follows_a_direct_copy_that_is_lost() {
    let (mut p, listener) = pair(false);
    let mut lost = 0;
    p.middlebox = Some(Box::new(move |from, _| {
        lost += u32::from(from == End::Client);
        from == End::Server || lost > 1
    }));
    let in_lookup = connect(&mut p);
    let to = here(&p);
    p.client.send_direct(in_lookup.id, to, p.now).unwrap();
    let at = served(&mut p, listener, in_lookup.id);
    assert!((ms(1200)..ms(1201)).contains(&(at - Instant::ZERO)), "{at:?}");
    assert_eq!(outcome(&p, in_lookup.id), (Outcome::Handshake(Reason::SynTimedOut), false));
}

#[test]
fn nothing_is_sent_while_there_is_no_address() {
    let (mut p, _) = pair(false);
    let in_lookup = connect(&mut p);
    p.idle(Duration::from_secs(20));
    assert!(p.log.is_empty());
    assert_eq!(p.client.info(in_lookup.id).unwrap().state, StateName::SynSent);
    p.client.abort(in_lookup.id, p.now);
    p.client.release(in_lookup.id, p.now);
    p.idle(Duration::from_secs(1));
    assert!(p.log.is_empty());
    assert_eq!(p.client.connections(), 0);
    // An answer that comes after that belongs to no connection.
    let to = here(&p);
    hand_over(&mut p, &in_lookup, to, key(5));
    p.idle(ms(60));
    assert_eq!(p.client.counters().in_lookup_answered, 0);
    assert_eq!(p.client.counters().resets_sent, 1);
}

#[test]
fn what_cannot_be_put_in_a_lookup_or_sent() {
    let (mut p, _) = pair(false);
    let address = p.client.config().addresses[0];
    let good = ConnectConfig::default()
        .asap(Some(certified(certificate(1, 2, address), p.now)))
        .encapsulation(Some(SERVER));
    let now = p.now;
    let mut fails = |port, config: &ConnectConfig| {
        p.client.connect_in_lookup(port, FirstData::whole(REQUEST), config, now).unwrap_err()
    };
    assert_eq!(fails(PORT, &good.clone().asap(None)), ConnectError::NoCertificate);
    assert_eq!(fails(PORT, &good.clone().encapsulation(None)), ConnectError::NoEncapsulation);
    assert_eq!(fails(0, &good), ConnectError::BadRemote);
    assert_eq!(fails(PORT, &good.clone().encapsulation(Some(0))), ConnectError::BadRemote);
    let v6 = certified(certificate(1, 2, "2001:db8::5".parse().unwrap()), now);
    assert_eq!(fails(PORT, &good.asap(Some(v6))), ConnectError::NoAddress);
    let in_lookup = connect(&mut p);
    for wrong in ["0.0.0.0", "224.0.0.1", "2001:db8::1"] {
        let wrong = wrong.parse().unwrap();
        assert_eq!(p.client.send_direct(in_lookup.id, wrong, now), Err(ConnectError::BadRemote), "{wrong}");
    }
    p.idle(ms(100));
    assert!(p.log.is_empty());
}

/// Several connections at once differ in their ports.
#[test]
fn each_answer_finds_its_own_connection() {
    let (mut p, _) = pair(false);
    let all: Vec<InLookupSyn> = (0..20)
        .map(|n| {
            let in_lookup = connect(&mut p);
            assert!(p.client.expect_answer(in_lookup.id, key(n)));
            in_lookup
        })
        .collect();
    let to = here(&p);
    for (n, in_lookup) in all.iter().enumerate().rev().take(3) {
        hand_over(&mut p, in_lookup, to, key(n as u8));
    }
    p.idle(ms(60));
    let answered: Vec<usize> = (0..20).filter(|n| outcome(&p, all[*n].id).0.is_accepted()).collect();
    assert_eq!(answered, [17, 18, 19]);
}

#[test]
fn a_keep_alive_goes_to_who_has_no_connection() {
    let (mut p, _) = pair(false);
    let to = SocketAddr::new(here(&p), 4500);
    p.client.keep_alive(to);
    p.flush();
    let (_, _, packet) = &p.log[0];
    let ip = Packet::parse(packet).unwrap();
    let datagram = Datagram::parse(ip.payload).unwrap();
    assert_eq!((ip.dst, datagram.dst_port, datagram.src_port), (to.ip(), to.port(), CLIENT));
    assert!(matches!(Carried::parse(datagram.payload), Ok(Carried::Control(_))));
    assert_eq!(p.log.len(), 1);
}

/// The thesis' own form: on IP, any sender that acknowledges the right numbers is believed. For its experiments
/// only.
#[cfg(feature = "lab")]
#[test]
fn the_thesis_own_form_takes_any_answer() {
    let (mut p, listener) = pair(false);
    let address = p.client.config().addresses[0];
    let asap = Some(certified(certificate(1, 2, address), p.now));
    let config = ConnectConfig::default().asap(asap).replay_safe(true);
    let in_lookup =
        p.client.lab_connect_in_lookup_on_ip(PORT, FirstData::whole(REQUEST), &config, p.now).unwrap();
    // The SYN is delivered to the server as if it had come from the client.
    let segment = Segment::parse(&in_lookup.segment).unwrap();
    let header = firstflight_wire::ip::Header {
        src: address,
        dst: here(&p),
        protocol: firstflight_wire::ip::Protocol::Tcp,
        hop_limit: 64,
        ecn: firstflight_wire::ip::Ecn::default(),
        dont_fragment: true,
        identification: 1,
    };
    assert_eq!(segment.dst_port, PORT);
    let mut packet = vec![0; 20 + in_lookup.segment.len()];
    let at = header.emit(in_lookup.segment.len(), &mut packet).unwrap();
    packet[at..].copy_from_slice(&in_lookup.segment);
    let (src, dst) = (address, here(&p));
    firstflight_wire::tcp::fill_checksum(&mut packet[at..], src, dst);
    let now = p.now;
    p.server.handle_packet(now, &packet);
    p.verify();
    assert!(p.client.lab_expect_unproved_answer(in_lookup.id));
    assert_eq!(served(&mut p, listener, in_lookup.id), Instant::ZERO + ms(50));
    assert_eq!(outcome(&p, in_lookup.id), (Outcome::Accepted, false));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whenever the two copies leave, and whichever four of the first packets are lost: the request runs once, its
    /// answer arrives, and no state is left.
    #[test]
    fn in_any_order_and_with_any_loss_it_runs_once(
        handed in proptest::option::of(0_u64..300),
        direct in 0_u64..300,
        lost in proptest::collection::btree_set(0_usize..10, 0..5),
        v6 in any::<bool>(),
    ) {
        let (mut p, listener) = pair(v6);
        let mut packets = 0..;
        p.middlebox = Some(Box::new(move |_, _| packets.next().is_none_or(|n| !lost.contains(&n))));
        let in_lookup = connect(&mut p);
        let to = here(&p);
        let mut events: Vec<(u64, bool)> = handed.map(|at| (at, true)).into_iter().collect();
        events.push((direct, false));
        events.sort_unstable();
        for (at, by_front) in events {
            let left = (Instant::ZERO + ms(at)) - p.now;
            p.idle(left);
            if by_front {
                hand_over(&mut p, &in_lookup, to, key(5));
            } else {
                p.client.send_direct(in_lookup.id, to, p.now).unwrap();
            }
        }
        let (mut children, mut executed, mut answer) = (Vec::new(), Vec::new(), Vec::new());
        p.run(Duration::from_secs(120), |p| {
            while let Some(child) = p.server.accept(listener) {
                children.push((child, false));
            }
            for (child, answered) in &mut children {
                let read = p.server_reads(*child);
                executed.extend(read);
                if !*answered && executed.ends_with(REQUEST) {
                    *answered = true;
                    p.server.write(*child, b"answer", p.now).unwrap();
                    p.server.shutdown(*child, p.now).unwrap();
                }
            }
            answer.extend(p.client_reads(in_lookup.id));
            answer.len() >= 6
        });
        prop_assert_eq!(&executed[..], REQUEST);
        prop_assert_eq!(&answer[..], b"answer");
        p.client.shutdown(in_lookup.id, p.now).unwrap();
        p.client.release(in_lookup.id, p.now);
        for (child, _) in children {
            p.server.release(child, p.now);
        }
        p.idle(Duration::from_secs(300));
        prop_assert_eq!((p.client.connections(), p.server.connections()), (0, 0));
    }
}
