//! TCP in UDP: an address translator gives the client another UDP port, and the connection continues.

use crate::pair::{End, Pair, key, policy};
use crate::translator::{Translator, translate};
use firstflight_link::path::PathConfig;
use firstflight_stack::{CloseReason, ConnId, Readiness, StateName};
use firstflight_wire::ip::Packet;
use firstflight_wire::udp;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(20);

/// A pair behind a translator with one open connection: the client's and the server's.
fn open(path: PathConfig, seed: u64, v6: bool) -> (Pair, Translator, ConnId, ConnId) {
    let mut p = Pair::in_udp(path, seed, v6);
    let translator = translate(&mut p);
    let listener = p.listen(None);
    let client = p.connect(b"", false);
    let server = p.accept(listener);
    p.idle(Duration::from_secs(1));
    (p, translator, client, server)
}

fn port(p: &Pair, server: ConnId) -> Option<u16> {
    p.server.info(server).unwrap().encapsulation
}

fn moves(p: &Pair) -> u64 {
    p.server.counters().encapsulation_paths_moved
}

/// Sends `message` from the client, waits for it, and sends it back.
fn talk(p: &mut Pair, client: ConnId, server: ConnId, message: &[u8]) {
    assert_eq!(p.client.write(client, message, p.now), Ok(message.len()));
    let mut read = Vec::new();
    p.run(Duration::from_secs(60), |p| {
        read.extend(p.server_reads(server));
        read == message
    });
    assert_eq!(p.server.write(server, message, p.now), Ok(message.len()));
    let mut read = Vec::new();
    p.run(Duration::from_secs(60), |p| {
        read.extend(p.client_reads(client));
        read == message
    });
}

#[test]
fn a_connection_goes_on_at_another_port_of_its_client() {
    for v6 in [false, true] {
        let (mut p, translator, client, server) = open(PathConfig::with_delay(DELAY), 1, v6);
        translator.rebind();
        let before = p.now;
        talk(&mut p, client, server, b"more");
        assert_eq!((port(&p, server), moves(&p)), (Some(translator.port()), 1));
        assert!(p.now - before < Duration::from_secs(1), "{:?}", p.now - before);
        assert_eq!(p.server.counters().resets_sent, 0);
    }
}

/// The next keep-alive finds the connection, and then the reset, the probe and the check take a round trip each.
#[test]
fn an_idle_connection_is_found_again_with_the_next_keep_alive() {
    let (mut p, translator, client, server) = open(PathConfig::with_delay(DELAY), 2, false);
    translator.rebind();
    let before = p.now;
    p.run(Duration::from_secs(60), |p| moves(p) == 1);
    assert!(p.now - before < Duration::from_millis(15_200), "{:?}", p.now - before);
    assert_eq!(p.client.counters().encapsulation_resets_believed, 1);
    // The server may send first.
    p.server.write(server, b"news", p.now).unwrap();
    let sent = p.now;
    p.run(Duration::from_secs(1), |p| p.client_reads(client) == b"news");
    assert_eq!(p.now - sent, DELAY);
}

/// What the server sends meanwhile is lost. It is sent again at once when the client is found, not after the
/// timeout that has grown by then.
#[test]
fn what_was_sent_to_the_old_port_goes_again_at_once() {
    let (mut p, translator, client, server) = open(PathConfig::with_delay(DELAY), 3, false);
    translator.rebind();
    p.server.write(server, b"news", p.now).unwrap();
    p.run(Duration::from_secs(60), |p| moves(p) == 1);
    assert!(
        p.server.info(server).unwrap().rto > Duration::from_secs(1)
            || p.now > firstflight_wire::Instant::ZERO
    );
    let moved = p.now;
    p.run(Duration::from_secs(60), |p| p.client_reads(client) == b"news");
    assert!(p.now - moved <= DELAY, "{:?}", p.now - moved);
}

fn bulk(path: PathConfig, seed: u64, every: Duration, sizes: [usize; 2]) -> (Pair, ConnId, ConnId) {
    println!("seed {seed}");
    let (mut p, translator, client, server) = open(path, seed, false);
    let byte = |end: usize, at: usize| (at.wrapping_mul(0x9e37_79b9) >> (7 + end)) as u8;
    let (mut written, mut read) = ([0; 2], [0; 2]);
    let mut next = p.now + every;
    p.run(Duration::from_secs(3_000), |p| {
        for (end, (stack, id)) in [(&mut p.client, client), (&mut p.server, server)].into_iter().enumerate() {
            while written[end] < sizes[end] {
                let n = (sizes[end] - written[end]).min(10_000);
                let bytes: Vec<u8> = (written[end]..written[end] + n).map(|at| byte(end, at)).collect();
                match stack.write(id, &bytes, p.now) {
                    Ok(n) => written[end] += n,
                    Err(firstflight_stack::IoError::WouldBlock) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        for (end, bytes) in [p.server_reads(server), p.client_reads(client)].into_iter().enumerate() {
            for got in bytes {
                assert_eq!(got, byte(end, read[end]));
                read[end] += 1;
            }
        }
        if p.now >= next {
            translator.rebind();
            next = p.now + every;
        }
        read == sizes
    });
    (p, client, server)
}

#[test]
fn a_download_an_upload_and_both_go_on_over_many_ports_with_loss() {
    let path = |loss| {
        PathConfig::with_delay(DELAY).loss(loss).rate_bits_per_s(Some(20_000_000)).queue_bytes(100_000)
    };
    for (seed, sizes) in [(1, [0, 8_000_000]), (2, [8_000_000, 0]), (3, [4_000_000, 4_000_000])] {
        for loss in [0.0, 0.02] {
            let (p, ..) = bulk(path(loss), seed, Duration::from_millis(700), sizes);
            assert!(moves(&p) >= 3, "{}", moves(&p));
            assert_eq!((p.server.counters().resets_sent, p.client.counters().resets_sent), (0, 0));
        }
    }
}

/// Only the port has changed (RFC 9000 §9.4), so the knowledge about the path stays.
#[test]
fn the_congestion_window_is_kept() {
    let (mut p, translator, client, server) = open(PathConfig::with_delay(DELAY), 5, false);
    p.server.write(server, &[7; 400_000], p.now).unwrap();
    let mut got = 0;
    p.run(Duration::from_secs(60), |p| {
        got += p.client_reads(client).len();
        got == 400_000
    });
    p.idle(Duration::from_millis(100));
    let before = p.server.info(server).unwrap();
    translator.rebind();
    p.client.write(client, b"x", p.now).unwrap();
    p.run(Duration::from_secs(10), |p| moves(p) == 1);
    let after = p.server.info(server).unwrap();
    assert_eq!((after.cwnd, after.rtt), (before.cwnd, before.rtt));
}

#[test]
fn connections_between_the_same_ports_follow_the_one_that_moves() {
    let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 6, false);
    let translator = translate(&mut p);
    let listener = p.listen(None);
    let clients: Vec<ConnId> = (0..40).map(|_| p.connect(b"", false)).collect();
    let servers: Vec<ConnId> = clients.iter().map(|_| p.accept(listener)).collect();
    p.idle(Duration::from_secs(1));
    let kept = p.client.counters().keep_alives_sent;
    translator.rebind();
    // One client sends. The others are silent, and no keep-alive of theirs is due.
    p.client.write(clients[7], b"x", p.now).unwrap();
    let before = p.now;
    p.run(Duration::from_secs(60), |p| moves(p) == 40);
    assert!(p.now - before < Duration::from_secs(2), "{:?}", p.now - before);
    assert!(servers.iter().all(|id| port(&p, *id) == Some(translator.port())));
    assert_eq!(p.client.counters().keep_alives_sent, kept);
    let mut heard = 0;
    for id in servers {
        p.server.write(id, b"news", p.now).unwrap();
    }
    p.run(Duration::from_secs(1), |p| {
        heard += clients.iter().filter(|id| p.client_reads(**id) == b"news").count();
        heard == clients.len()
    });
}

/// A lost challenge or response of a connection that only follows is repeated.
#[test]
fn followers_move_although_a_third_of_the_messages_is_lost() {
    let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 7, false);
    let translator = translate(&mut p);
    let listener = p.listen(None);
    let clients: Vec<ConnId> = (0..20).map(|_| p.connect(b"", false)).collect();
    for _ in &clients {
        p.accept(listener);
    }
    p.idle(Duration::from_secs(1));
    translator.rebind();
    translator.lose_controls(3);
    p.client.write(clients[3], b"x", p.now).unwrap();
    p.run(Duration::from_secs(30), |p| moves(p) == 20);
}

#[test]
fn a_closing_connection_moves_too() {
    // The server has closed and waits for the client. Then the client closes from another port.
    let (mut p, translator, client, server) = open(PathConfig::with_delay(DELAY), 8, false);
    p.server.shutdown(server, p.now).unwrap();
    p.idle(Duration::from_secs(1));
    assert_eq!(p.server.info(server).unwrap().state, StateName::FinWait2);
    translator.rebind();
    p.client.write(client, b"last words", p.now).unwrap();
    p.client.shutdown(client, p.now).unwrap();
    p.run(Duration::from_secs(10), |p| p.client.close_reason(client).is_some());
    assert_eq!(p.client.close_reason(client), Some(CloseReason::Finished));
    assert_eq!(p.server.close_reason(server), Some(CloseReason::Finished));
    assert_eq!(p.server_reads(server), b"last words");
    assert_eq!(p.server.counters().resets_sent, 0);
    // The client closed first, from the old port.
    let (mut p, translator, client, server) = open(PathConfig::with_delay(DELAY), 9, false);
    p.client.shutdown(client, p.now).unwrap();
    p.idle(Duration::from_secs(1));
    assert_eq!(p.server.info(server).unwrap().state, StateName::CloseWait);
    translator.rebind();
    p.server.write(server, b"answer", p.now).unwrap();
    p.server.shutdown(server, p.now).unwrap();
    // Its keep-alive makes the server find it.
    p.run(Duration::from_secs(30), |p| p.server.close_reason(server).is_some());
    assert_eq!(p.client_reads(client), b"answer");
    assert_eq!(p.server.close_reason(server), Some(CloseReason::Finished));
}

/// The client's FIN arrives, its acknowledgement is lost, and the FIN comes again from another port.
#[test]
fn a_fin_that_goes_again_from_another_port_is_acknowledged_in_time_wait() {
    for moved_before in [false, true] {
        let (mut p, translator, client, server) = open(PathConfig::with_delay(DELAY), 10, false);
        if moved_before {
            translator.rebind();
            talk(&mut p, client, server, b"hello");
        }
        p.server.shutdown(server, p.now).unwrap();
        p.idle(Duration::from_secs(1));
        p.client.shutdown(client, p.now).unwrap();
        p.flush();
        translator.rebind();
        p.run(Duration::from_secs(10), |p| p.client.close_reason(client).is_some());
        assert_eq!(p.client.close_reason(client), Some(CloseReason::Finished));
        assert_eq!((p.server.time_waits(), p.server.counters().resets_sent), (1, 0));
    }
}

/// A connection that moved keeps its timestamp clock in TIME-WAIT.
#[test]
fn a_fin_that_goes_again_after_a_move_is_acknowledged_so_that_paws_takes_it() {
    let (mut p, translator, client, server) = open(PathConfig::with_delay(DELAY), 11, false);
    translator.rebind();
    talk(&mut p, client, server, b"hello");
    p.server.shutdown(server, p.now).unwrap();
    p.idle(Duration::from_secs(1));
    p.client.shutdown(client, p.now).unwrap();
    p.flush();
    // The acknowledgement is lost, the port stays.
    translator.lose_from_server(true);
    p.idle(Duration::from_millis(30));
    translator.lose_from_server(false);
    p.run(Duration::from_secs(10), |p| p.client.close_reason(client).is_some());
    assert_eq!(p.client.close_reason(client), Some(CloseReason::Finished));
}

/// The SYN-ACK reached the client, and its ACK comes from another port.
#[test]
fn a_handshake_is_completed_from_another_port() {
    for early in [false, true] {
        let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 12, false);
        let translator = translate(&mut p);
        let listener = p.listen(Some(policy(key(1), 10)));
        if early {
            let id = p.connect(b"", true);
            p.connected(id);
            let server = p.accept(listener);
            p.client.release(id, p.now);
            p.server.release(server, p.now);
            p.idle(Duration::from_secs(1));
        }
        let client = p.connect(b"hello", early);
        p.idle(DELAY * 2 - Duration::from_millis(1));
        translator.rebind();
        let server = p.accept(listener);
        p.connected(client);
        p.run(Duration::from_secs(20), |p| p.server.info(server).unwrap().confirmed);
        p.run(Duration::from_secs(20), |p| p.server_reads(server) == b"hello" || early);
        p.server.write(server, b"answer", p.now).unwrap();
        p.run(Duration::from_secs(20), |p| p.client_reads(client) == b"answer");
        assert_eq!((port(&p, server), moves(&p)), (Some(translator.port()), 1));
    }
}

/// A client from before the path check drops challenges. Its connection ends as it did then, after a bounded time.
#[test]
fn a_client_that_knows_no_challenges_is_reset() {
    let (mut p, translator, client, server) = open(PathConfig::with_delay(DELAY), 13, false);
    translator.rebind();
    translator.lose_controls(1);
    let before = p.now;
    p.client.write(client, &[7; 100_000], p.now).unwrap();
    p.run(Duration::from_secs(60), |p| p.client.close_reason(client).is_some());
    assert_eq!(p.client.close_reason(client), Some(CloseReason::Reset));
    assert!(p.client_saw(client, Readiness::CLOSED));
    assert!(p.now - before < Duration::from_secs(40), "{:?}", p.now - before);
    // The server has tried for at least this time.
    assert!(p.now - before >= Duration::from_secs(15), "{:?}", p.now - before);
    assert_eq!((moves(&p), port(&p, server)), (0, Some(61_000)));
}

/// The client returns to a port that it had shortly before.
#[test]
fn a_port_may_come_back() {
    let (mut p, translator, client, server) = open(PathConfig::with_delay(DELAY), 14, false);
    let first = translator.port();
    translator.rebind();
    talk(&mut p, client, server, b"one");
    translator.set(first);
    talk(&mut p, client, server, b"two");
    assert_eq!((port(&p, server), moves(&p)), (Some(first), 2));
    // For a while no port is checked. Then the next one is checked.
    translator.rebind();
    talk(&mut p, client, server, b"three");
    assert_eq!((port(&p, server), moves(&p)), (Some(translator.port()), 3));
}

/// A client that only receives has nothing to send from its new port but keep-alives. The first one leaves soon.
#[test]
fn a_download_goes_on_although_the_client_has_nothing_to_send() {
    let (mut p, translator, client, server) = open(PathConfig::with_delay(DELAY), 8, false);
    p.server.write(server, &[7; 200_000], p.now).unwrap();
    // Everything in flight to the old port is lost, so the client acknowledges nothing.
    translator.rebind();
    let begun = p.now;
    let mut got = 0;
    p.run(Duration::from_secs(60), |p| {
        got += p.client_reads(client).len();
        got == 200_000
    });
    assert!(p.now - begun < Duration::from_secs(3), "{:?}", p.now - begun);
}

/// Forty connections between the same ports, of which one speaks. The port changes again before the others have followed
/// the first change.
#[test]
fn the_others_follow_two_changes_in_a_row() {
    for (apart, lose) in [(100, false), (300, false), (500, false), (2_000, true)] {
        let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 6, false);
        let translator = translate(&mut p);
        let listener = p.listen(None);
        let open = |p: &mut Pair| (p.connect(b"", false), p.accept(listener));
        let (clients, servers): (Vec<_>, Vec<_>) = (0..40).map(|_| open(&mut p)).unzip();
        p.idle(Duration::from_secs(1));
        translator.rebind();
        translator.lose_controls(if lose { 3 } else { 0 });
        for n in 0..1_200 {
            p.client.write(clients[7], b"x", p.now).unwrap();
            p.idle(Duration::from_millis(100));
            p.server_reads(servers[7]);
            if (n + 1) * 100 == apart {
                translator.rebind();
            }
        }
        let there = |id: &&ConnId| p.server.info(**id).unwrap().encapsulation == Some(translator.port());
        assert_eq!(servers.iter().filter(there).count(), 40, "{apart} ms apart");
    }
}

/// Whether what the server writes reaches the client within two minutes.
fn hears(p: &mut Pair, client: ConnId, server: ConnId) -> bool {
    p.server.write(server, b"news", p.now).unwrap();
    for _ in 0..120 {
        p.idle(Duration::from_secs(1));
        if p.client_reads(client) == b"news" {
            return true;
        }
    }
    false
}

/// The port changes while the connection is idle, and before its next keep-alive the client opens another one. The server
/// answers no keep-alive with a reset any more, because it knows the new connection.
#[test]
fn an_idle_connection_is_found_again_beside_a_new_one() {
    for (before, after, lost) in [(0, 0, 0), (61, 3, 0), (0, 0, 20)] {
        let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 1, false);
        let translator = translate(&mut p);
        let listener = p.listen(None);
        let client = p.connect(b"", false);
        let server = p.accept(listener);
        p.idle(Duration::from_secs(1 + before));
        translator.rebind();
        p.idle(Duration::from_secs(after));
        let other = p.connect(b"", false);
        p.accept(listener);
        // What the server sends is lost, so the first probe brings nothing.
        p.connected(other);
        translator.lose_from_server(lost > 0);
        p.idle(Duration::from_secs(lost));
        translator.lose_from_server(false);
        p.idle(Duration::from_secs(20));
        assert!(hears(&mut p, client, server), "{before} s before, {after} s after, lost for {lost} s");
        assert_eq!(port(&p, server), Some(translator.port()));
    }
}

/// A client that opens one connection after the other does not probe the idle one each time.
#[test]
fn new_connections_probe_an_idle_one_once_in_ten_seconds() {
    let (mut p, _, client, _) = open(PathConfig::with_delay(DELAY), 1, false);
    p.idle(Duration::from_secs(5));
    let listener = p.listen_with(|config| config.local.set_port(81));
    p.keep_log = true;
    // Behind IP, UDP and the encapsulation's header stands the inner port.
    let inner = p.client.info(client).unwrap().local.port().to_be_bytes();
    let probes = |p: &Pair| {
        p.log
            .iter()
            .filter(|(_, end, packet)| *end == End::Client && packet.get(32..34) == Some(&inner))
            .count()
    };
    let mut to = p.server_addr();
    to.set_port(81);
    for _ in 0..30 {
        let config = firstflight_stack::ConnectConfig::default().encapsulation(p.encapsulation);
        let id = p.client.connect(to, b"", &config, p.now).unwrap().0;
        let server = p.accept(listener);
        p.connected(id);
        p.client.release(id, p.now);
        p.server.release(server, p.now);
        p.idle(Duration::from_millis(100));
    }
    assert_eq!(probes(&p), 1);
}

/// After the move, what the server sends does not arrive for a while.
#[test]
fn an_outage_after_a_move_loses_no_followers() {
    for outage in [0, 7, 12, 60] {
        let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 6, false);
        let translator = translate(&mut p);
        let listener = p.listen(None);
        let mut ends = Vec::new();
        for _ in 0..40 {
            let client = p.connect(b"", false);
            ends.push((client, p.accept(listener)));
        }
        p.idle(Duration::from_secs(1));
        translator.rebind();
        p.client.write(ends[39].0, b"x", p.now).unwrap();
        p.run(Duration::from_secs(10), |p| moves(p) == 1);
        translator.lose_from_server(true);
        p.idle(Duration::from_secs(outage));
        translator.lose_from_server(false);
        p.idle(Duration::from_secs(130));
        let there = ends.iter().filter(|(_, server)| port(&p, *server) == Some(translator.port())).count();
        assert_eq!(there, 40, "outage of {outage} s");
    }
}

/// Before the translator forgets, an attacker replays the last segment of an idle connection from another port. The
/// client answers at its own port, so that no other port is checked for ten seconds: all turns of that time bring nothing.
#[test]
fn a_replayed_segment_keeps_no_follower_behind() {
    let mut p = Pair::in_udp(PathConfig::with_delay(DELAY), 6, false);
    p.keep_log = true;
    let translator = translate(&mut p);
    let listener = p.listen(None);
    let ends: Vec<_> = (0..2).map(|_| (p.connect(b"", false), p.accept(listener))).collect();
    p.idle(Duration::from_secs(1));
    let last = p.log.iter().rev().find(|(_, end, packet)| *end == End::Client && packet[28] == 8).unwrap();
    let replayed = from_port(&last.2, 9_999);
    p.server.handle_packet(p.now, &replayed);
    p.idle(Duration::from_millis(500));
    translator.rebind();
    p.client.write(ends[0].0, b"x", p.now).unwrap();
    p.idle(Duration::from_secs(60));
    for (_, server) in &ends {
        assert_eq!(port(&p, *server), Some(translator.port()));
    }
    assert!(hears(&mut p, ends[1].0, ends[1].1));
}

/// This packet, sent from another UDP port.
fn from_port(packet: &[u8], port: u16) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let ip = Packet::parse(&packet).unwrap();
    let (src, dst, at) = (ip.src, ip.dst, packet.len() - ip.payload.len());
    packet[at..at + 2].copy_from_slice(&port.to_be_bytes());
    udp::fill_checksum(&mut packet[at..], src, dst);
    packet
}
