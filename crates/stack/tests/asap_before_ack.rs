//! What a server sends before the client's ACK, when only a certificate vouches for the client's address, and what
//! it learns when a host at that address denies the request (`docs/spec/asap.md` §7.8).

use crate::certified::{NOW_MS, certificate, certificate_with, request, verifier};
use crate::flights::{AFTER, CLIENT, DATA, Server, flight, server, server_with, syn};
use crate::peer::{CLIENT_PORT, Got, seg};
use firstflight_credential::asap::{TrustStore, Trusted};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::{CloseReason, ConnId, ResponsePolicy, StateName};
use firstflight_wire::asap::Status;
use firstflight_wire::icmp::IcmpErrorKind;
use std::net::IpAddr;
use std::sync::Arc;

const NOW_S: u32 = (NOW_MS / 1000) as u32;
/// Length of the SYN: IP and TCP header, MSS and ASAP's option, the block.
const SYN: usize = 20 + 20 + 12 + 196 + DATA.len();
/// Ten segments with an MSS of 1460.
const IW10: usize = 14_600;

fn address() -> IpAddr {
    CLIENT.parse().unwrap()
}

/// A server with this policy for verifier 1.
fn trusting(trusted: Trusted, response: ResponsePolicy) -> Server {
    let trust = Arc::new(TrustStore::new([trusted]).unwrap());
    server_with(|_| {}, |asap| asap.trust = trust, |listen| listen.response = response)
}

fn third_party() -> Trusted {
    Trusted::new(verifier(1).public())
}

fn own() -> Trusted {
    Trusted { own: true, ..third_party() }
}

/// Everything that a server sends to a silent client. The application has more data than may be sent.
struct Sent {
    /// Bytes of IP packets, without retransmitted SYN-ACKs.
    packets: usize,
    /// Bytes of the stream, and the number of SYN-ACK retransmissions.
    stream: usize,
    again: usize,
}

fn before_ack(mut s: Server, vantage: u8, age: u32) -> Sent {
    let certificate = certificate_with(1, 2, address(), NOW_S - age, 86_400, vantage);
    s.p.send(syn(&request(&certificate, 5, DATA, u64::from(age) * 1000)));
    s.verify();
    let id = s.p.accept(s.listener);
    s.p.read(id);
    s.p.write(id, &[b'x'; 60_000]);
    s.p.pass(120_000);
    let sent = s.p.drain();
    let syn_acks = sent.iter().filter(|got| got.flags.contains(firstflight_wire::tcp::Flags::SYN)).count();
    let len = |got: &Got| got.packet.len();
    let bare = sent.iter().find(|got| got.flags.contains(firstflight_wire::tcp::Flags::SYN)).map_or(0, len);
    // No byte of the stream is sent twice.
    let mut next = 1;
    for got in sent.iter().filter(|got| !got.data.is_empty()) {
        assert_eq!(got.seq, next);
        next += got.data.len() as u32;
    }
    Sent {
        packets: sent.iter().map(len).sum::<usize>() - (syn_acks - 1) * bare,
        stream: next as usize - 1,
        again: syn_acks - 1,
    }
}

#[test]
fn the_operators_own_verifier_vouches_for_an_initial_window() {
    let sent = before_ack(trusting(own(), ResponsePolicy::Immediately), 1, 7200);
    assert_eq!((sent.stream, sent.again), (IW10, 2));
}

#[test]
fn another_verifier_vouches_for_three_times_what_came() {
    for (vantage, age) in [(1, 0), (2, 0), (8, 3601)] {
        let sent = before_ack(trusting(third_party(), ResponsePolicy::Immediately), vantage, age);
        assert!(sent.packets <= 3 * SYN, "{} bytes for {SYN}", sent.packets);
        assert!(sent.packets > 3 * SYN - 60, "{} bytes for {SYN}", sent.packets);
        assert_eq!(sent.again, 2);
    }
}

#[test]
fn three_vantage_points_vouch_for_an_initial_window_for_an_hour() {
    for (vantage, age) in [(3, 0), (3, 3600), (8, 3600)] {
        let sent = before_ack(trusting(third_party(), ResponsePolicy::Immediately), vantage, age);
        assert_eq!((sent.stream, sent.again), (IW10, 2), "{vantage} {age}");
    }
}

/// Other factors: the smaller of the listener's limit and the limit in the verifier's entry counts.
#[test]
fn the_smaller_bound_counts() {
    let times = |times| Trusted { times, ..third_party() };
    for (trusted, response, most) in [
        (times(2), ResponsePolicy::Immediately, 2 * SYN),
        (times(9), ResponsePolicy::Times(4), 4 * SYN),
        (times(4), ResponsePolicy::Times(9), 4 * SYN),
        (own(), ResponsePolicy::Times(5), 5 * SYN),
    ] {
        let sent = before_ack(trusting(trusted, response), 1, 0);
        assert!((most - 60..=most).contains(&sent.packets), "{} bytes of {most}", sent.packets);
    }
    for response in [ResponsePolicy::Times(0), ResponsePolicy::AfterHandshake] {
        assert_eq!(before_ack(trusting(own(), response), 1, 0).stream, 0);
    }
    assert_eq!(before_ack(trusting(times(0), ResponsePolicy::Immediately), 1, 0).stream, 0);
}

/// The ACK proves the address, so the rest is sent at once.
#[test]
fn an_ack_lifts_the_bound() {
    let mut s = trusting(third_party(), ResponsePolicy::Immediately);
    let (_, id) = s.accepts(flight(5));
    s.p.write(id, &[b'x'; 10_000]);
    let early: usize = s.p.drain().iter().map(|got| got.data.len()).sum();
    assert!(early < 3 * SYN);
    s.p.send(seg().seq(AFTER).ack(1 + early as u32));
    let rest: usize = s.p.drain().iter().map(|got| got.data.len()).sum();
    // Nagle's algorithm holds back one small segment.
    assert!(early + rest > 10_000 - 1460, "{early} + {rest}");
}

// --- a host at the address says no ---------------------------------------------------------------------------

/// The status of a SYN by `client` at `address` on another port; `None`: accepted.
fn tries(s: &mut Server, client: u8, address: &str, began: u32) -> Option<Status> {
    s.p.drain();
    s.p.moves_to(address);
    let port = s.p.port + 1;
    s.p.flow(port, 77);
    let made = s.p.ms() - u64::from(began - NOW_S) * 1000;
    let certificate = certificate_with(1, client, address.parse().unwrap(), began, 1800, 1);
    let got = s.asks(syn(&request(&certificate, port as u8, DATA, made)));
    let status = crate::flights::reply(&got).unwrap().status;
    if status == Status::Accepted {
        s.p.accept(s.listener);
        // Its pending permits are not tested here.
        s.p.send(seg().seq(got.ack).ack(1));
        return None;
    }
    assert_eq!(got.ack, 1);
    s.p.send(seg().seq(1).ack(1).rst());
    Some(status)
}

/// The effect of a complaint about the accepted first flight of client 2 at [`CLIENT`]: its key is barred, and no
/// other key.
#[track_caller]
fn is_barred(mut s: Server) {
    assert_eq!(tries(&mut s, 2, CLIENT, NOW_S), Some(Status::Barred), "the key");
    assert_eq!(tries(&mut s, 3, CLIENT, NOW_S), None, "a neighbour");
    assert_eq!(tries(&mut s, 2, "10.0.0.9", NOW_S), Some(Status::Barred), "the key from elsewhere");
    assert_eq!(tries(&mut s, 3, "10.0.0.9", NOW_S), None, "somebody else");
    // The key is listed until the certificate ends. The key may have another certificate.
    s.p.at(1_799_000);
    assert_eq!(tries(&mut s, 2, CLIENT, NOW_S + 1700), Some(Status::Barred));
    s.p.at(1_801_000);
    assert_eq!(tries(&mut s, 2, CLIENT, NOW_S + 1700), None);
}

#[track_caller]
fn is_not_barred(mut s: Server) {
    assert_eq!(tries(&mut s, 2, CLIENT, NOW_S), None);
    assert_eq!(tries(&mut s, 3, CLIENT, NOW_S), None);
}

fn accepted() -> (Server, Got, ConnId) {
    let mut s = server();
    let (got, id) = s.accepts(flight(5));
    (s, got, id)
}

#[test]
fn a_reset_before_the_ack_bars_the_key_and_no_neighbour() {
    let (mut s, _, id) = accepted();
    s.p.send(seg().seq(AFTER).rst());
    assert_eq!(s.p.reason(id), Some(CloseReason::Reset));
    is_barred(s);
}

/// This does not depend on whether the application has the connection yet.
#[test]
fn a_reset_in_the_accept_queue_bars_it_too() {
    let mut s = server();
    s.asks(flight(5));
    s.p.send(seg().seq(AFTER).rst());
    is_barred(s);
}

/// A first flight of `client` at [`CLIENT`] is accepted, and reset before the ACK.
fn reset_of(s: &mut Server, client: u8) {
    let made = s.p.ms();
    s.p.drain();
    s.p.moves_to(CLIENT);
    let port = s.p.port + 1;
    s.p.flow(port, 77);
    let certificate = certificate_with(1, client, address(), NOW_S, 1800, 1);
    let got = s.asks(syn(&request(&certificate, port as u8, DATA, made))).ack(AFTER);
    assert_eq!(crate::flights::reply(&got).unwrap().status, Status::Accepted);
    s.p.send(seg().seq(AFTER).rst());
    s.p.accept(s.listener);
}

/// An attacker that had the address before may hold certificates for many keys. So the address is barred, for
/// longer with each key, and both ends report `barred`.
#[test]
fn resets_of_several_keys_bar_the_address_for_longer_and_longer() {
    let mut s = server();
    let mut at = s.p.ms();
    reset_of(&mut s, 2);
    for (key, seconds) in [(3, 1), (4, 2), (5, 4), (6, 8)] {
        reset_of(&mut s, key);
        s.p.at(at + seconds * 1000 - 1);
        assert_eq!(tries(&mut s, 9, CLIENT, NOW_S), Some(Status::Barred), "after key {key}");
        assert_eq!(tries(&mut s, 9, "10.0.0.9", NOW_S), None, "another address");
        assert_eq!(s.p.stack.counters().server.count(Outcome::Handshake(Reason::Barred)), u64::from(key) - 2);
        at += seconds * 1000;
        s.p.at(at);
    }
    assert_eq!(tries(&mut s, 9, CLIENT, NOW_S), None);
}

/// The ACKs of other clients at the address compensate for resets.
#[test]
fn acks_of_neighbours_forgive_resets() {
    let mut s = server();
    reset_of(&mut s, 2);
    s.p.at(20_000);
    assert_eq!(tries(&mut s, 3, CLIENT, NOW_S), None);
    reset_of(&mut s, 4);
    assert_eq!(tries(&mut s, 5, CLIENT, NOW_S), None, "the second reset counts as the first");
}

#[test]
fn a_reset_with_another_number_bars_nobody() {
    let (mut s, _, id) = accepted();
    for seq in [1, AFTER - 1, AFTER + 1, AFTER + 1000] {
        s.p.send(seg().seq(seq).rst());
    }
    assert_eq!(s.p.state(id), StateName::SynRcvd);
    is_not_barred(s);
}

#[test]
fn a_reset_after_the_ack_bars_nobody() {
    let (mut s, _, _) = accepted();
    s.p.send(seg().seq(AFTER).ack(1));
    s.p.send(seg().seq(AFTER).rst());
    is_not_barred(s);
}

/// The server's own abort says nothing about the address.
#[test]
fn an_abort_bars_nobody() {
    let (mut s, _, id) = accepted();
    s.p.abort(id);
    s.p.expect().is_rst();
    is_not_barred(s);
}

/// A missing answer says nothing either.
#[test]
fn a_timeout_bars_nobody() {
    let (mut s, _, id) = accepted();
    s.p.pass(120_000);
    assert_eq!(s.p.reason(id), Some(CloseReason::TimedOut));
    is_not_barred(s);
}

#[test]
fn an_unreachable_port_or_host_bars_the_key() {
    for kind in [IcmpErrorKind::PortUnreachable, IcmpErrorKind::HostUnreachable] {
        let (mut s, syn_ack, id) = accepted();
        s.p.icmp(kind, &syn_ack.packet);
        // The host may become reachable again. Then the connection continues (RFC 5461).
        let over = kind.is_hard().then_some(CloseReason::Unreachable);
        assert_eq!(s.p.reason(id), over, "{kind:?}");
        if over.is_none() {
            s.p.send(seg().seq(AFTER).ack(1));
            assert_eq!(s.p.state(id), StateName::Established);
        }
        is_barred(s);
    }
}

#[test]
fn what_routers_say_about_the_path_bars_nobody() {
    for kind in [
        IcmpErrorKind::TimeExceeded,
        IcmpErrorKind::NetUnreachable,
        IcmpErrorKind::PacketTooBig { mtu: 1400 },
        IcmpErrorKind::ParameterProblem,
    ] {
        let (mut s, syn_ack, _) = accepted();
        s.p.icmp(kind, &syn_ack.packet);
        is_not_barred(s);
    }
}

/// An ICMP error that quotes a number not in flight proves nothing, and neither does one about an open connection.
#[test]
fn an_unreachable_that_proves_nothing_bars_nobody() {
    for kind in [IcmpErrorKind::PortUnreachable, IcmpErrorKind::HostUnreachable] {
        let (mut s, syn_ack, _) = accepted();
        let mut forged = syn_ack.packet.clone();
        forged[24] ^= 1;
        s.p.icmp(kind, &forged);
        is_not_barred(s);

        let (mut s, _, id) = accepted();
        s.p.send(seg().seq(AFTER).ack(1));
        s.p.write(id, b"answer");
        let answer = s.p.expect();
        s.p.icmp(kind, &answer.packet);
        is_not_barred(s);
    }
}

/// A request that was refused because its key is on the block list, and done by handshake, is not valid when the key leaves it.
#[test]
fn what_is_refused_for_a_bar_is_used_up() {
    let mut s = server();
    for key in [2, 4, 5] {
        reset_of(&mut s, key);
        s.p.at(s.p.ms() + 1000);
    }
    let other = certificate(1, 3, address());
    let late = || syn(&request(&other, 9, DATA, 3_000));
    s.p.drain();
    s.p.flow(CLIENT_PORT + 10, 77);
    s.refuses(late(), Status::Barred);
    s.p.send(seg().seq(1).ack(1).data(DATA));
    let id = s.p.accept(s.listener);
    assert_eq!(s.p.read(id), DATA);
    s.p.at(5_000);
    s.p.drain();
    s.p.flow(CLIENT_PORT + 20, 77);
    s.refuses(late(), Status::Replayed);
    s.p.flow(CLIENT_PORT + 21, 77);
    let (_, id) = s.accepts(syn(&request(&other, 10, DATA, 5_000)));
    assert_eq!(s.p.state(id), StateName::SynRcvd);
}
