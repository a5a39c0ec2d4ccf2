//! Captures of several devices at once. A packet that passes a router counts once.

use super::fixtures::*;
use super::tests::{Packets, Told, tell};
use firstflight_wire::Instant;
use serde_json::json;

const DATA: &[u8] = b"request";
const ALL: u32 = DATA.len() as u32;
/// How long the router's queue delays what it forwards, ms. This is longer than the time between two copies at one
/// place.
const QUEUE: u64 = 30;

fn accepted() -> Packets {
    visit(false, 1, 0, syn(&cookie(&COOKIE), DATA), syn_ack(ALL, &[], &[]))
}

/// Where a frame is captured: the device, and whether the frame leaves by it.
type At = (u8, bool);

/// A capture of a router with two devices: each packet enters by one and leaves by the other, `QUEUE` ms later.
fn routed(packets: &Packets) -> Vec<(u64, At, Vec<u8>)> {
    let mut frames: Vec<_> = packets
        .iter()
        .flat_map(|(at, packet)| {
            let (near, far) = if packet[12..16] == [10, 9, 0, 1] { (1, 2) } else { (2, 1) };
            let at = at.as_millis();
            [(at, (near, false), packet.clone()), (at + QUEUE, (far, true), packet.clone())]
        })
        .collect();
    frames.sort_by_key(|(at, ..)| *at);
    frames
}

fn told_by(link: u32, frames: &[(u64, At, Vec<u8>)]) -> Told {
    let cooked = |(device, out): At, packet: &[u8]| match link {
        113 => sll(device + if out { 10 } else { 0 }, out, packet),
        _ => sll2(device.into(), out, packet),
    };
    let frames: Vec<_> =
        frames.iter().map(|(at, place, packet)| (*at as u32 * 1000, cooked(*place, packet))).collect();
    tell(&pcap(false, link, &frames), 100)
}

#[test]
fn a_packet_that_is_forwarded_counts_once() {
    for link in [113, 276] {
        let told = told_by(link, &routed(&accepted()));
        assert_eq!(told.column("outcome"), ["accepted"], "link type {link}");
        assert_eq!(told.column("syn_retransmits"), [0], "link type {link}");
        assert_eq!(told.records[0]["notes"], json!([]), "link type {link}");
    }
    // Two devices of a pcapng file give the same information.
    let frames: Vec<_> = routed(&accepted())
        .into_iter()
        .map(|(at, (device, _), packet)| (u32::from(device) - 1, Instant::from_millis(at), packet))
        .collect();
    let told = tell(&two_devices(&frames), 100);
    assert_eq!((told.column("syn_retransmits"), &told.records[0]["notes"]), (vec![&json!(0)], &json!([])));
}

#[test]
fn a_cookie_request_that_is_forwarded_slowly_did_not_time_out() {
    // The second device shows only a plain SYN, because the router removes the option.
    let mut frames = routed(&visit(false, 1, 0, syn(&request(), &[]), syn_ack(0, &[], &[])));
    let (client, server) = ends(false, 1);
    let plain = packet(client, server, &syn(&[], &[]));
    let (_, _, leaving) = frames.iter_mut().find(|(_, place, _)| *place == (2, true)).unwrap();
    *leaving = plain;
    for link in [113, 276] {
        let told = told_by(link, &frames);
        assert_eq!(told.column("reason"), ["peer-without-fast-open"], "link type {link}");
        assert_eq!(told.column("syn_retransmits"), [0], "link type {link}");
    }
}

#[test]
fn what_passes_a_device_again_was_sent_again() {
    let (client, server) = ends(false, 1);
    let lost = packet(client, server, &syn(&cookie(&COOKIE), DATA));
    let plain: Packets = visit(false, 1, 1000, syn(&[], &[]), syn_ack(0, &[], &[]));
    let packets = [vec![(Instant::ZERO, lost)], plain].concat();
    for link in [113, 276] {
        let told = told_by(link, &routed(&packets));
        assert_eq!(told.column("reason"), ["syn-timed-out"], "link type {link}");
        assert_eq!(told.column("syn_retransmits"), [1], "link type {link}");
    }
}

#[test]
fn a_device_shows_what_is_sent_again_at_once() {
    // Two SYNs within 3 ms at one device are not copies, if the capture distinguishes devices.
    let mut packets = visit(false, 1, 3, syn(&cookie(&COOKIE), DATA), syn_ack(ALL, &[], &[]));
    let (_, first) = packets[0].clone();
    packets.insert(0, (Instant::ZERO, first));
    let frames: Vec<_> =
        packets.iter().map(|(at, packet)| (at.as_millis(), (1, true), packet.clone())).collect();
    assert_eq!(told_by(276, &frames).column("syn_retransmits"), [1]);
    // Version 1 cannot distinguish a bridge from its port.
    assert_eq!(told_by(113, &frames).column("syn_retransmits"), [0]);
}

#[test]
fn more_places_than_are_kept_are_copies_by_time() {
    let frames: Vec<_> = accepted()
        .iter()
        .flat_map(|(at, packet)| (0..9).map(|device| (at.as_millis(), (device, false), packet.clone())))
        .collect();
    assert_eq!(told_by(276, &frames).column("syn_retransmits"), [0]);
}

#[test]
fn both_sides_of_an_address_translator_are_two_connections() {
    let (_, server) = ends(false, 1);
    let outside = ("192.0.2.1:4000".parse().unwrap(), server);
    let outside = visit_between(outside, 0, syn(&cookie(&COOKIE), DATA), syn_ack(ALL, &[], &[]));
    let inside = accepted().into_iter().map(|(at, packet)| (at.as_millis(), (1, false), packet));
    let outside = outside.into_iter().map(|(at, packet)| (at.as_millis() + 1, (2, true), packet));
    let mut frames: Vec<_> = inside.chain(outside).collect();
    frames.sort_by_key(|(at, ..)| *at);
    let told = told_by(276, &frames);
    assert_eq!(told.column("outcome"), ["accepted"; 2]);
    assert_eq!((&told.summary()["connections"], &told.summary()["translated"]), (&json!(2), &json!(1)));
    let text = told.rest.summary.to_string();
    assert!(text.contains("1 connection was captured on both sides of an address translator"), "{text}");
    // Two visits count as two, whatever their sequence numbers are.
    let later = visit(false, 2, 5000, syn(&cookie(&COOKIE), DATA), syn_ack(ALL, &[], &[]));
    let frames: Vec<_> = [accepted(), later]
        .concat()
        .into_iter()
        .map(|(at, packet)| (at.as_millis(), (1, false), packet))
        .collect();
    assert_eq!(told_by(276, &frames).summary()["translated"], 0);
}
