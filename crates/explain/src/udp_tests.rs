//! Connections in UDP, in whole captures.

use super::fixtures::*;
use super::tests::{Packets, tell};
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::tcp::Flags;
use firstflight_wire::{Instant, SeqNum};
use serde_json::{Value, json};

const DATA: &[u8] = b"request";
const ALL: u32 = DATA.len() as u32;

fn accepted(udp_port: u16, start_ms: u64) -> Packets {
    visit_in_udp(udp_port, 1, start_ms, syn(&cookie(&COOKIE), DATA), syn_ack(ALL, &[], &[]))
}

fn refused(udp_port: u16, start_ms: u64) -> Packets {
    visit_in_udp(udp_port, 1, start_ms, syn(&cookie(&COOKIE), DATA), syn_ack(0, &cookie(&FRESH), &[]))
}

#[test]
fn a_connection_in_udp_says_so() {
    let told = tell(&pcapng(&accepted(50_000, 0)), 100);
    assert_eq!(
        told.lines,
        ["    0.000 s  10.9.0.1:1 → 10.9.0.2:80 in UDP 50000 → 4433  accepted\n             \
          in the SYN: 7 bytes, cookie 0102030405060708; all acknowledged; first byte after 2.00 RTT (100.0 ms)"]
    );
    assert_eq!(told.column("client"), ["10.9.0.1:1"]);
    assert_eq!(told.column("udp"), [&json!({"client_port": 50_000, "server_port": 4433})]);
}

/// The rest of a long first flight follows its SYN at once, and the server may take all of it before it answers.
#[test]
fn a_long_first_flight_is_accepted_with_what_followed() {
    let rest = b"and the rest";
    let (client, server) = ends(false, 1);
    let followed = CLIENT_ISN + 1 + ALL;
    let follower = segment(CLIENT, Flags::default(), followed, SeqNum::new(0), &[], rest);
    let acked = ALL + rest.len() as u32;
    let mut packets = visit_in_udp(50_000, 1, 0, syn(&cookie(&COOKIE), DATA), syn_ack(acked, &[], &[]));
    packets.insert(1, (Instant::from_millis(1), datagram(client, server, (50_000, 4433), &follower)));
    let told = tell(&pcapng(&packets), 100);
    assert_eq!(told.column("outcome"), ["accepted"]);
    assert!(told.lines[0].contains("all acknowledged"), "{:?}", told.lines);
    // Without them it is the answer to something else.
    packets.remove(1);
    assert_eq!(tell(&pcapng(&packets), 100).column("outcome"), ["unknown"]);
}

#[test]
fn the_same_tcp_ports_behind_other_udp_ports_are_another_connection() {
    // At the same time, and with the same sequence numbers.
    let raw = visit(false, 1, 2, syn(&[], &[]), syn_ack(0, &[], &[]));
    let mut packets = [accepted(50_000, 0), refused(50_001, 1), raw].concat();
    packets.sort_by_key(|(at, _)| *at);
    let told = tell(&pcapng(&packets), 100);
    assert_eq!(told.column("client"), ["10.9.0.1:1"; 3]);
    let reasons = [&Value::Null, &json!("stale-or-wrong-credential"), &json!("not-requested")];
    assert_eq!(told.column("reason"), reasons);
    let ports: Vec<_> = told.column("udp").into_iter().map(|udp| &udp["client_port"]).collect();
    assert_eq!(ports, [&json!(50_000), &json!(50_001), &Value::Null]);
    assert_eq!(told.summary()["began_before"], 0);
}

#[test]
fn a_connection_does_not_migrate_to_another_udp_port() {
    // An address translator changes the client's port after the handshake. For the server, too, the new port belongs
    // to no connection.
    let moved = accepted(50_001, 0).split_off(2);
    let stayed = accepted(50_000, 0)[..2].to_vec();
    let told = tell(&pcapng(&[stayed, moved].concat()), 100);
    assert_eq!(told.column("outcome"), ["accepted"]);
    assert_eq!(told.column("first_byte_ms"), [&Value::Null]);
    assert_eq!(told.summary()["began_before"], 1);
}

#[test]
fn a_silent_connection_in_udp_makes_room_for_one_with_the_same_tcp_ports() {
    let visits: Packets = (0..50).flat_map(|n| accepted(50_000 + n, u64::from(n) * 1000)).collect();
    let told = tell(&pcapng(&visits), 3);
    let ports: Vec<_> =
        told.column("udp").into_iter().map(|udp| udp["client_port"].as_u64().unwrap()).collect();
    assert_eq!(ports, (50_000..50_050).collect::<Vec<_>>());
}

/// The notes of two connections with the same TCP ports when a router reports an error about the first one's SYN
/// and quotes `quote` bytes of what follows the IP header.
fn notes_after_error(quote: usize) -> Vec<String> {
    let [first, second] = [0, 1].map(|n| accepted(50_000 + n, u64::from(n))[0].clone());
    let (client, server) = ends(false, 1);
    let about = &first.1[..20 + quote];
    let message = icmp_error(IcmpErrorKind::AdminProhibited, server, client, about);
    let told = tell(&pcapng(&[first.clone(), second, (Instant::from_millis(9), message)]), 100);
    told.records.iter().map(|record| record["notes"][0]["note"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_icmp_error_finds_its_connection_in_udp() {
    // UDP header, encapsulation header, TCP ports, sequence number.
    assert_eq!(notes_after_error(20), ["icmp-error", "no-answer"]);
    // Many routers quote too little for the sequence number. Such an error counts for no connection.
    assert_eq!(notes_after_error(19), ["no-answer", "no-answer"]);
    assert_eq!(notes_after_error(8), ["no-answer", "no-answer"]);
}

#[test]
fn other_datagrams_are_passed_over() {
    let mut packets = accepted(50_000, 0);
    for (_, packet) in &mut packets {
        // After the IP and UDP headers comes the datagram's payload. Here it is something else.
        packet[28] = 0x40;
    }
    let told = tell(&pcapng(&packets), 100);
    assert_eq!((told.lines.len(), &told.summary()["began_before"]), (0, &json!(0)));
}
