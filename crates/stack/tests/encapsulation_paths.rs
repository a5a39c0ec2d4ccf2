//! TCP in UDP over emulated paths: address translators, loss, several connections at once.

use crate::pair::{CLIENT_UDP, End, Pair, SERVER_UDP, key, policy};
use firstflight_link::path::PathConfig;
use firstflight_stack::{CloseReason, ConnId};
use firstflight_wire::ip::Packet;
use firstflight_wire::udp;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(20);

/// An address translator that shows the server this port instead of the client's.
fn translate(pair: &mut Pair) -> Rc<Cell<u16>> {
    let shown = Rc::new(Cell::new(61_000_u16));
    let port = Rc::clone(&shown);
    pair.middlebox = Some(Box::new(move |end, packet| {
        let ip = Packet::parse(packet).unwrap();
        let (src, dst) = (ip.src, ip.dst);
        let at = packet.len() - ip.payload.len();
        let datagram = &mut packet[at..];
        if end == End::Client {
            datagram[..2].copy_from_slice(&port.get().to_be_bytes());
        } else if datagram[2..4] == port.get().to_be_bytes() {
            datagram[2..4].copy_from_slice(&CLIENT_UDP.to_be_bytes());
        } else {
            // The mapping no longer exists.
            return false;
        }
        udp::fill_checksum(datagram, src, dst);
        true
    }));
    shown
}

#[test]
fn an_address_translator_on_the_way_is_not_noticed() {
    for v6 in [false, true] {
        let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 1, v6);
        translate(&mut p);
        let listener = p.listen(None);
        let client = p.connect(b"", false);
        let server = p.accept(listener);
        let info = p.server.info(server).unwrap();
        assert_eq!(info.encapsulation, Some(61_000));
        p.client.write(client, &[7; 50_000], p.now).unwrap();
        p.run(Duration::from_secs(5), |p| p.server.info(server).unwrap().totals.bytes_received == 50_000);
    }
}

/// Once the connection belonged to the ports with which it began, and ended at both ends. Now it continues.
#[test]
fn a_mapping_that_changes_ends_no_connection() {
    for busy in [true, false] {
        let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 2, false);
        let mapping = translate(&mut p);
        let listener = p.listen(None);
        let client = p.connect(b"", false);
        let server = p.accept(listener);
        p.idle(Duration::from_secs(1));
        mapping.set(61_001);
        let before = p.now;
        if busy {
            p.client.write(client, b"more", p.now).unwrap();
        }
        p.run(Duration::from_secs(60), |p| p.server.info(server).unwrap().encapsulation == Some(61_001));
        let limit = if busy { Duration::from_millis(61) } else { Duration::from_millis(15_200) };
        assert!(p.now - before <= limit, "{:?}", p.now - before);
        p.idle(Duration::from_secs(60));
        assert_eq!(p.client.close_reason(client), None);
        assert_eq!(p.server.counters().resets_sent, 0);
    }
}

/// The client also detects a server that has lost all its state.
#[test]
fn a_server_that_forgot_is_found_out_by_a_keep_alive() {
    let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 3, false);
    let listener = p.listen(None);
    let client = p.connect(b"", false);
    let server = p.accept(listener);
    p.connected(client);
    p.idle(Duration::from_secs(1));
    // The server's last segment is lost.
    p.middlebox = Some(Box::new(|end, _| end == End::Client));
    p.server.abort(server, p.now);
    p.server.release(server, p.now);
    p.flush();
    p.middlebox = None;
    p.run(Duration::from_secs(60), |p| p.client.close_reason(client).is_some());
    assert_eq!(p.client.close_reason(client), Some(CloseReason::Reset));
    assert_eq!(p.server.counters().encapsulation_resets_sent, 1);
}

/// Every client behind one pair of UDP ports gets its own bytes, on a path that loses, reorders and copies.
#[test]
fn many_connections_share_two_ports() {
    let path = PathConfig::with_delay(DELAY)
        .loss(0.02)
        .reorder(0.05)
        .reorder_delay(Duration::from_millis(3))
        .duplicate(0.02)
        .corrupt(0.01)
        .rate_bits_per_s(Some(50_000_000));
    for (seed, v6) in [(11, false), (12, true)] {
        println!("seed {seed}");
        let mut p = Pair::in_udp(path.clone(), seed, v6);
        let listener = p.listen(None);
        let clients: Vec<ConnId> = (0..20).map(|n| p.connect(&[n; 3_000], false)).collect();
        let mut servers: Vec<(ConnId, Vec<u8>)> = Vec::new();
        p.run(Duration::from_secs(300), |p| {
            while let Some(id) = p.server.accept(listener) {
                servers.push((id, Vec::new()));
            }
            for (id, read) in &mut servers {
                read.extend(p.server_reads(*id));
            }
            servers.len() == clients.len() && servers.iter().all(|(_, read)| read.len() == 3_000)
        });
        let mut seen: Vec<u8> = servers.iter().map(|(_, read)| read[0]).collect();
        assert!(servers.iter().all(|(_, read)| read.iter().all(|byte| *byte == read[0])));
        seen.sort_unstable();
        assert_eq!(seen, (0..20).collect::<Vec<u8>>());
        let ports: Vec<_> = servers.iter().map(|(id, _)| p.server.info(*id).unwrap().encapsulation).collect();
        assert!(ports.iter().all(|port| *port == Some(CLIENT_UDP)));
    }
}

/// RFC 7413 in UDP: the first visit fetches a cookie; on the second visit the data arrives after half a round trip.
#[test]
fn fast_open_saves_its_round_trip_in_udp() {
    for v6 in [false, true] {
        let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 4, v6);
        translate(&mut p);
        let listener = p.listen(Some(policy(key(1), 10)));
        let id = p.connect(b"", true);
        p.connected(id);
        p.accept(listener);
        p.idle(Duration::from_secs(1));
        let began = p.now;
        let client = p.connect(b"early", true);
        let server = p.accept(listener);
        assert_eq!((p.server_reads(server), p.now - began), (b"early".to_vec(), DELAY));
        p.server.write(server, b"answer", p.now).unwrap();
        let mut answer = Vec::new();
        p.run(Duration::from_secs(1), |p| {
            answer.extend(p.client_reads(client));
            answer == b"answer"
        });
        assert_eq!(p.now - began, 2 * DELAY);
        assert!(p.client.info(client).unwrap().outcome.is_accepted());
    }
}

/// Raw TCP and UDP at once, to one listener.
#[test]
fn a_server_takes_both_at_once() {
    let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 5, false);
    let listener = p.listen(None);
    let mut carried = Vec::new();
    for encapsulation in [None, Some(SERVER_UDP)] {
        p.encapsulation = encapsulation;
        let client = p.connect(b"hello", false);
        let server = p.accept(listener);
        p.run(Duration::from_secs(1), |p| p.server.info(server).unwrap().totals.bytes_received == 5);
        carried.push(p.server.info(server).unwrap().encapsulation);
        assert_eq!(p.client.info(client).unwrap().encapsulation, encapsulation);
    }
    assert_eq!(carried, [None, Some(CLIENT_UDP)]);
}
