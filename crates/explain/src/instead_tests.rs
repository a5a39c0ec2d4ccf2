//! SYNs that a device on the path answers, and what follows them.

use super::fixtures::*;
use super::note::Note;
use super::tests::{Packets, tell};
use super::verdict::ConnectionVerdict;
use firstflight::credential::{Outcome, Reason};
use firstflight_wire::Instant;
use firstflight_wire::asap::{Hint, Status};
use firstflight_wire::icmp::IcmpErrorKind;
use serde_json::json;

const DATA: &[u8] = b"request";
const ALL: u32 = DATA.len() as u32;
const TOO_BIG: IcmpErrorKind = IcmpErrorKind::PacketTooBig { mtu: 1280 };

/// The client's first SYN, then the events of `then`, a second SYN `ms` later, and the server's answer to it.
fn followed(
    first: &[u8],
    then: impl Fn(Scene) -> Scene,
    ms: u64,
    second: &[u8],
    answer: &[u8],
) -> ConnectionVerdict {
    let scene = then(Scene::default().client(0, first.to_vec()));
    scene
        .client(ms, second.to_vec())
        .server(ms + 50, answer.to_vec())
        .client(ms + 50, ack())
        .server(ms + 100, reply())
        .verdict()
}

fn reason(verdict: &ConnectionVerdict) -> Reason {
    match verdict.outcome {
        Outcome::Handshake(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rst_or_icmp_error_and_a_plain_syn_after_it_are_a_refused_syn() {
    let block = [credential(1000), DATA.to_vec()].concat();
    let plain = syn(&[], &[]);
    for first in [
        syn(&request(), &[]),
        syn(&cookie(&COOKIE), &[]),
        syn(&cookie(&COOKIE), DATA),
        syn(&asap_option(), &block),
        syn(&probe(), &[]),
    ] {
        // Immediately, and after a while.
        for ms in [1, 200] {
            let by_rst =
                followed(&first, |s| s.server(0, rst(CLIENT.other())), ms, &plain, &syn_ack(0, &[], &[]));
            assert_eq!(reason(&by_rst), Reason::SynRefused);
            for kind in [IcmpErrorKind::AdminProhibited, IcmpErrorKind::PortUnreachable] {
                let by_icmp = followed(&first, |s| s.icmp(kind), ms, &plain, &syn_ack(0, &[], &[]));
                assert_eq!(reason(&by_icmp), Reason::SynRefused);
                assert!(by_icmp.notes.contains(&Note::Icmp(kind)), "{:?}", by_icmp.notes);
            }
        }
    }
}

#[test]
fn a_rst_after_the_plain_syn_refused_nothing() {
    let verdict = Scene::default()
        .client(0, syn(&cookie(&COOKIE), DATA))
        .client(1000, syn(&[], &[]))
        .server(1040, syn_ack(0, &[], &[]))
        .client(1040, ack())
        .server(1100, rst(CLIENT.other()))
        .verdict();
    assert_eq!(reason(&verdict), Reason::SynTimedOut);
    // A RST, and nothing after it.
    let verdict =
        Scene::default().client(0, syn(&cookie(&COOKIE), DATA)).server(40, rst(CLIENT.other())).verdict();
    assert_eq!(
        (verdict.outcome, &verdict.notes[..]),
        (Outcome::Handshake(Reason::Unknown), &[Note::Refused][..])
    );
}

#[test]
fn a_syn_that_is_too_big_and_a_smaller_one_are_a_narrow_path() {
    let too_big = |scene: Scene| scene.icmp(TOO_BIG);
    let full = syn(&cookie(&COOKIE), DATA);
    let plain = followed(&full, too_big, 2, &syn(&[], &[]), &syn_ack(0, &[], &[]));
    assert_eq!(reason(&plain), Reason::PathTooSmall);
    // The smaller SYN also has data, all of which is acknowledged.
    let smaller = followed(&full, too_big, 2, &syn(&cookie(&COOKIE), &DATA[..3]), &syn_ack(3, &[], &[]));
    assert_eq!((reason(&smaller), smaller.acked_bytes), (Reason::PathTooSmall, Some(3)));
    // With a certificate: the smaller SYN has the block, and less data.
    let block = credential(1000);
    let full = syn(&asap_option(), &[&block[..], DATA].concat());
    let smaller = syn(&asap_option(), &block);
    let accepted = replied(Status::Accepted, TAG, Hint::None);
    let verdict = followed(&full, too_big, 200, &smaller, &syn_ack(BLOCK, &accepted, &[]));
    assert_eq!(reason(&verdict), Reason::PathTooSmall);
    // A router's report can be wrong: the large SYN was acknowledged.
    let verdict = followed(&syn(&cookie(&COOKIE), DATA), too_big, 2, &syn(&[], &[]), &syn_ack(ALL, &[], &[]));
    assert_eq!(verdict.outcome, Outcome::Accepted);
    // An error about a SYN that no other SYN followed explains why its data was not accepted. It does not give
    // another reason.
    let scene = Scene::default().client(0, syn(&cookie(&COOKIE), DATA)).icmp(TOO_BIG);
    let verdict = scene.server(50, syn_ack(0, &[], &[])).verdict();
    assert_eq!(reason(&verdict), Reason::DataNotAcknowledged);
}

/// Unanswered SYNs in UDP to the same server at these times, then `more`.
fn unanswered(times: &[u64], more: &[(Instant, Vec<u8>)]) -> Packets {
    let visit = visit_in_udp(50_000, 1, 0, syn(&cookie(&COOKIE), DATA), syn_ack(0, &[], &[]));
    let (_, datagram) = &visit[0];
    let mut packets: Packets = times.iter().map(|ms| (Instant::from_millis(*ms), datagram.clone())).collect();
    packets.extend_from_slice(more);
    packets.sort_by_key(|(at, _)| *at);
    packets
}

fn notes(packets: &Packets) -> Vec<String> {
    let told = tell(&pcapng(packets), 100);
    let notes = told.records[0]["notes"].as_array().unwrap();
    notes.iter().map(|note| note["note"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn udp_from_which_nothing_comes_back_is_blocked() {
    // One unanswered SYN may be caused by the end of the capture.
    assert_eq!(notes(&unanswered(&[0], &[])), ["no-answer"]);
    assert_eq!(notes(&unanswered(&[0, 1000], &[])), ["no-answer", "udp-blocked"]);
    // An unanswered SYN on IP says nothing about UDP.
    let (client, server) = ends(false, 1);
    let lost = [0, 1000].map(|ms| (Instant::from_millis(ms), packet(client, server, &syn(&[], &[]))));
    assert_eq!(notes(&lost.to_vec()), ["no-answer"]);
    // A router reports that UDP is prohibited. Another error has another meaning.
    for (kind, expected) in [
        (IcmpErrorKind::AdminProhibited, &["icmp-error", "udp-blocked"][..]),
        (IcmpErrorKind::PortUnreachable, &["icmp-error"][..]),
    ] {
        let sent = unanswered(&[0], &[]);
        let message = icmp_error(kind, server, client, &sent[0].1);
        assert_eq!(notes(&unanswered(&[0], &[(Instant::from_millis(1), message)])), expected);
    }
}

#[test]
fn the_hint_says_whether_the_server_answers_tcp() {
    let hint = |packets: &Packets| tell(&pcapng(packets), 100).hint();
    let on_ip = visit(false, 7, 3000, syn(&[], &[]), syn_ack(0, &[], &[]));
    let told = hint(&unanswered(&[0, 1000], &on_ip));
    assert!(told.contains("nothing came back from 10.9.0.2 in UDP, but it answers TCP on IP"), "{told}");
    assert!(!hint(&unanswered(&[0, 1000], &[])).contains("in UDP"), "once is an accident");
    // One answered SYN shows that UDP passes.
    let in_udp = visit_in_udp(50_001, 2, 5000, syn(&[], &[]), syn_ack(0, &[], &[]));
    let told = hint(&unanswered(&[0, 1000], &[on_ip, in_udp].concat()));
    assert!(!told.contains("in UDP"), "{told}");
    assert_eq!(tell(&pcapng(&unanswered(&[0, 1000], &[])), 100).summary()["hint"], json!(null));
}
