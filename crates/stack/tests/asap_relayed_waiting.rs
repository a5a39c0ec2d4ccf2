//! First flights that a front delivers and that wait: whatever ends the wait, it is silent, and does not use up
//! what the client itself may still send (`docs/spec/dns-path.md` §9).

use crate::certified::identity;
use crate::flights::{AFTER, DATA, Server, client, server_with, syn};
use crate::handed::*;
use crate::peer::{Got, seg};
use firstflight_credential::asap::{ClientCertificate, PrivateKey, TrustStore, certify};
use firstflight_credential::{
    GuardKey, JobRequest, JobResult, PendingLimit, RemoteGuard, ReplayTable, Replays, Window,
};
use firstflight_stack::{EncapsulationConfig, RelayedFlight};
use firstflight_wire::Instant;
use firstflight_wire::asap::{CertificateFlags, Hint, Status};
use firstflight_wire::encapsulation::Carried;
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::ip::Packet;
use firstflight_wire::udp::Datagram;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// There was room when it was deferred, and there is none at its verdict.
#[test]
fn what_finds_no_room_at_its_verdict_is_not_used_up() {
    let mut s = server_listening(|listen| listen.backlog = 1, |_| {});
    defer(&mut s, &relayed(5));
    s.p.flow(41_000, 77);
    s.p.send(seg().syn().mss(1460));
    s.p.expect().syn_ack().ack(1);
    s.p.send(seg().seq(1).ack(1));
    s.verify();
    s.p.quiet();
    assert_eq!(s.p.stack.counters().relayed_dropped, 1);
    s.p.accept(s.listener);
    s.p.nothing_to_accept(s.listener);
    s.p.flow(crate::peer::CLIENT_PORT, crate::peer::PEER_ISN);
    s.asks(direct(5)).ack(AFTER);
}

/// A store that is asked about a request uses it up.
#[test]
fn a_store_is_not_asked_about_what_waits_no_more() {
    let remote = || {
        server_of(|policy| {
            policy.guard = Arc::new(RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS));
        })
    };
    let mut s = remote();
    hand_over(&mut s, &relayed(5));
    s.p.pass(1000);
    assert!(s.p.stack.poll_job().is_none(), "after its time");
    assert_eq!(s.p.stack.counters().relayed_dropped, 1);
    let mut s = remote();
    hand_over(&mut s, &relayed(5));
    s.p.send(direct(5));
    assert!(s.p.stack.poll_job().is_none(), "overtaken");
    s.verify();
    let job = s.p.stack.poll_job().expect("about the direct copy");
    assert!(matches!(job.request, JobRequest::GuardSet { .. }));
    assert!(s.p.stack.poll_job().is_none());
    s.p.stack.handle_job(job.id, JobResult::Accept, s.p.now);
    s.p.pump();
    let got = s.p.expect().syn_ack().ack(AFTER);
    assert_eq!(reply(&got).hint, Hint::None);
}

/// Only requests with a certificate are accepted: a mode without cookies takes data only from clients that are
/// there.
#[test]
fn what_has_no_block_is_not_used_up_either() {
    let tune = |config: &mut firstflight_stack::Config| {
        config.encapsulation = Some(EncapsulationConfig::new(OURS).probe(false));
    };
    let mut s = server_with(
        tune,
        |_| {},
        |listen| {
            let guard = ReplayTable::new(GuardKey::from_bytes([3; 16]), Window::NETWORK, 1 << 16, 0);
            let mut closed = crate::peer::policy(crate::peer::key(1), 10);
            closed.no_cookie = true;
            closed.replays = Replays::NoDuplicates(Arc::new(guard));
            (listen.asap, listen.fast_open) = (None, Some(closed));
        },
    );
    s.p.outer = Some((THEIRS, OURS));
    let plain = || seg().syn().mss(1460).data(DATA);
    hand_over(&mut s, &plain());
    s.p.quiet();
    s.p.send(plain());
    s.p.expect().syn_ack().ack(1 + DATA.len() as u32);
    assert_eq!(s.p.stack.counters().relayed_dropped, 1);
}

/// The sealed request tells the family of its client. Nobody can be answered in another family.
#[test]
fn a_client_of_another_family_is_nobody() {
    let mut s = server();
    let away: IpAddr = "fd00::9".parse().unwrap();
    let key = PrivateKey::from_seed(&[2; 32]);
    let flags = CertificateFlags::new(1, true, true).unwrap();
    let verifier = crate::certified::verifier(1);
    let body = certify(&verifier, &key.public(), away, NOW_S, 1800, flags).unwrap();
    let certificate = ClientCertificate::new(body, verifier.public(), away, key, Instant::ZERO).unwrap();
    let packet = s.p.packet(&syn(&by_front(&certificate, &identity(), 5, 0)));
    let ip = Packet::parse(&packet).unwrap();
    let datagram = Datagram::parse(ip.payload).unwrap();
    let Ok(Carried::Segment(segment)) = Carried::parse(datagram.payload) else { panic!() };
    let client = SocketAddr::new(away, THEIRS);
    let flight = RelayedFlight { client, server: ip.dst, segment, key: crate::handed::key(), seen_as: None };
    s.p.stack.handle_relayed(s.p.now, flight);
    s.verify();
    s.p.nothing_to_accept(s.listener);
    assert_eq!(s.p.stack.counters().relayed_dropped, 1);
}

/// A listener that sends SYN cookies, or sent one recently, answers none of them.
#[test]
fn a_full_syn_queue_answers_none() {
    let mut s = server_listening(|listen| listen.syn_backlog = 1, |_| {});
    s.p.flow(41_000, 77);
    s.p.send(seg().syn().mss(1460));
    s.p.expect().syn_ack();
    s.p.flow(crate::peer::CLIENT_PORT, crate::peer::PEER_ISN);
    hand_over(&mut s, &relayed(5));
    s.p.quiet();
    assert_eq!(s.p.stack.counters().syn_cookies_sent, 0);
    s.p.flow(42_000, 78);
    s.p.send(seg().syn().mss(1460));
    s.p.expect().syn_ack();
    assert_eq!(s.p.stack.counters().syn_cookies_sent, 1);
    s.p.flow(41_000, 77);
    s.p.send(seg().seq(1).ack(1));
    s.p.accept(s.listener);
    // The queue is empty again. The client of the cookie may still return another number of ours.
    s.p.flow(crate::peer::CLIENT_PORT, crate::peer::PEER_ISN);
    hand_over(&mut s, &relayed(5));
    s.p.quiet();
    s.p.pass(10_000);
    hand_over(&mut s, &relayed(5));
    s.p.expect().syn_ack().ack(AFTER);
    let counters = s.p.stack.counters();
    assert_eq!((counters.relayed, counters.relayed_dropped), (3, 2));
}

/// However the wait ends, it ends silently.
#[test]
fn what_waits_is_forgotten_in_silence() {
    let permits = Arc::new(PendingLimit::new(64));
    type Ends = fn(&mut Server);
    let cases: [(&str, Ends); 4] = [
        ("nobody verifies", |_| {}),
        ("nobody listens", |s| s.p.stack.unlisten(s.listener, s.p.now)),
        ("nobody is trusted", |s| {
            let nobody = Arc::new(TrustStore::new([]).unwrap());
            assert!(s.p.stack.set_trust(s.listener, nobody, s.p.now));
            s.verify();
        }),
        ("a reset", |s| s.p.send(seg().seq(1).rst())),
    ];
    for (what, ends) in cases {
        println!("{what}");
        let mut s = server_of(|policy| policy.relayed = Some(permits.clone()));
        defer(&mut s, &relayed(5));
        assert_eq!((permits.pending(), s.p.stack.gauges().pending), (1, 1));
        ends(&mut s);
        s.p.pass(1000);
        s.verify();
        s.p.quiet();
        s.p.nothing_to_accept(s.listener);
        assert_eq!((permits.pending(), s.p.stack.connections()), (0, 0));
        assert_eq!(s.p.stack.counters().relayed_dropped, 1);
    }
}

/// A permit is held no longer than its client may take to answer, and a client that denies the request gets no more.
#[test]
fn what_is_accepted_and_disowned_is_the_last() {
    let permits = Arc::new(PendingLimit::new(64));
    let mut s = server_of(|policy| policy.relayed = Some(permits.clone()));
    hand_over(&mut s, &relayed(5));
    s.p.expect().syn_ack();
    s.p.pass(120_000);
    s.p.drain();
    assert_eq!((permits.pending(), s.p.stack.counters().relayed), (0, 1));
    let says: [fn(&mut Server, &Got); 2] = [
        |s, _| s.p.send(seg().seq(AFTER).rst()),
        |s, got| s.p.icmp(IcmpErrorKind::PortUnreachable, &got.packet),
    ];
    for no in says {
        let mut s = server();
        hand_over(&mut s, &relayed(5));
        let got = s.p.expect().syn_ack();
        no(&mut s, &got);
        s.p.flow(41_000, 77);
        hand_over(&mut s, &relayed(6));
        s.p.quiet();
        assert_eq!(s.p.stack.counters().relayed_dropped, 1);
        let got = s.asks(direct(7)).ack(1);
        assert_eq!(reply(&got).status, Status::Barred);
    }
}

/// Anyone who has seen a certificate can seal requests with wrong signatures under it, from anywhere.
#[test]
fn wrong_signatures_that_a_front_hands_over_bar_nobody() {
    let mut s = server();
    for n in 0..20 {
        let mut request = by_front(&client(), &identity(), 100 + n, 0);
        *request.payload.last_mut().unwrap() ^= 1;
        s.p.flow(40_000 + u16::from(n), 100 + u32::from(n));
        s.p.pass(50);
        hand_over(&mut s, &syn(&request));
    }
    // One signature for the certificate, which is right, and one for each request under it.
    assert_eq!((s.p.stack.counters().relayed_dropped, s.signatures()), (20, 21));
    s.p.flow(41_000, 77);
    s.asks(direct(5)).ack(AFTER);
}
