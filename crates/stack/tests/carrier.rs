//! TCP in UDP, packet by packet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod peer;

use firstflight_stack::{
    CarrierConfig, CloseReason, Config, ConnId, ConnectConfig, ConnectError, Drop, ListenerId, StateName,
};
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::Flags;
use firstflight_wire::udp::Datagram;
use peer::{CLIENT_PORT, PEER_ISN, PORT, Peer, Seg, key, policy, seg};

/// The stack's UDP port.
const OURS: u16 = 4433;
/// The peer's.
const THEIRS: u16 = 5000;
const KEEP_ALIVE: [u8; 4] = [9, 0, 0, 1];
const RESET: [u8; 4] = [9, 0, 0, 2];

fn carrier(config: &mut Config) {
    config.carrier = Some(CarrierConfig::new(OURS));
}

fn on(v6: bool) -> Peer {
    let mut p = if v6 { Peer::v6(carrier) } else { Peer::with(carrier) };
    p.outer = Some((THEIRS, OURS));
    p
}

fn new() -> Peer {
    on(false)
}

fn udp_payload(packet: &[u8]) -> &[u8] {
    let ip = Packet::parse(packet).unwrap();
    Datagram::parse(ip.payload).unwrap().payload
}

/// What left and is not a segment: the UDP payloads.
fn controls(p: &mut Peer) -> Vec<Vec<u8>> {
    p.pump();
    p.others.drain(..).map(|packet| udp_payload(&packet).to_vec()).collect()
}

fn control(p: &mut Peer, outer: (u16, u16), message: [u8; 4]) {
    let packet = p.udp(outer, &message);
    p.inject(&packet);
}

/// A connection that the stack opened in UDP.
fn opened(p: &mut Peer) -> ConnId {
    p.open_active(seg().mss(1176))
}

fn server(p: &mut Peer) -> (ListenerId, ConnId) {
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1176));
    (listener, id)
}

// --- segments ------------------------------------------------------------------------------------

#[test]
fn a_connection_lives_in_udp_from_its_syn_to_its_end() {
    for v6 in [false, true] {
        let mut p = on(v6);
        let listener = p.listen();
        p.send(seg().syn().mss(1176));
        let syn_ack = p.expect().syn_ack().ack(1);
        // Base datagram of 1,200 bytes: 1,176 of payload.
        assert_eq!((syn_ack.mss, syn_ack.outer), (Some(1176), Some((THEIRS, OURS))));
        p.send(seg().seq(1).ack(1));
        let id = p.accept(listener);
        assert_eq!(p.stack.info(id).unwrap().carrier, Some(THEIRS));
        p.send(seg().seq(1).ack(1).data(b"request"));
        assert_eq!(p.read(id), b"request");
        p.write(id, b"response");
        let response = p.expect().seq(1).ack(8);
        assert_eq!((response.data.as_slice(), response.outer), (&b"response"[..], Some((THEIRS, OURS))));
        if !v6 {
            assert_eq!(response.packet[6] & 0x40, 0x40, "don't fragment");
        }
        p.send(seg().seq(8).ack(9).fin());
        p.release(id);
        p.drain();
        p.send(seg().seq(9).ack(10));
        assert_eq!(p.stack.connections(), 0);
    }
}

#[test]
fn no_datagram_is_longer_than_1200_bytes() {
    for (v6, timestamps) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut p = on(v6);
        let syn_ack = if timestamps { seg().mss(8960).ts(1) } else { seg().mss(8960) };
        let id = p.open_active(syn_ack);
        p.write(id, &[7; 20_000]);
        let lens: Vec<usize> = p.drain().iter().map(|got| udp_payload(&got.packet).len()).collect();
        assert_eq!(lens.iter().max(), Some(&1200));
        assert!(lens.len() > 8, "{lens:?}");
    }
}

#[test]
fn a_link_below_the_base_datagram_decides() {
    let mut p = Peer::with(|config| {
        carrier(config);
        config.mtu = 1000;
    });
    p.outer = Some((THEIRS, OURS));
    p.connect(b"", false);
    assert_eq!(p.expect().is_syn().mss, Some(1000 - 20 - 8 - 4 - 20));
}

#[test]
fn raw_ip_and_udp_do_not_mix() {
    let mut p = new();
    let (listener, carried) = server(&mut p);
    p.outer = None;
    p.stack.handle_timeout(p.now);
    // The same inner four-tuple on raw IP is another connection.
    let raw = p.open_passive(listener, seg().mss(1460));
    p.send(seg().seq(1).ack(1).data(b"raw"));
    assert_eq!((p.read(raw), p.read(carried)), (b"raw".to_vec(), vec![]));
    assert_eq!(p.stack.info(raw).unwrap().carrier, None);
    assert_eq!(p.stack.info(carried).unwrap().mss, 1176);
    assert_eq!(p.stack.info(raw).unwrap().mss, 1460);
}

/// Two clients behind one address may have the same inner ports.
#[test]
fn equal_inner_ports_behind_different_udp_ports_are_two_connections() {
    for v6 in [false, true] {
        let mut p = on(v6);
        let listener = p.listen();
        let mut ids = Vec::new();
        let mut isns = Vec::new();
        for outer in [THEIRS, THEIRS + 1] {
            p.outer = Some((outer, OURS));
            p.send(seg().syn().mss(1176));
            let syn_ack = p.expect().syn_ack();
            assert_eq!(syn_ack.outer, Some((outer, OURS)));
            isns.push(syn_ack.raw_seq);
            p.send(seg().seq(1).ack(1));
            ids.push(p.accept(listener));
            p.send(seg().seq(1).ack(1).data(format!("from {outer}").as_bytes()));
        }
        let distance = (isns[1] - isns[0]) as u32;
        assert!(distance > 1 << 16 && distance < u32::MAX - (1 << 16), "neighbours learn nothing: {isns:?}");
        assert_eq!(p.read(ids[0]), b"from 5000");
        assert_eq!(p.read(ids[1]), b"from 5001");
    }
}

#[test]
fn a_time_wait_belongs_to_its_udp_ports() {
    let mut p = new();
    let (listener, id) = server(&mut p);
    p.release(id);
    p.expect();
    p.send(seg().seq(1).ack(2).fin());
    p.drain();
    assert_eq!(p.stack.time_waits(), 1);
    // In TIME-WAIT a late ACK is answered by the record; behind another port it belongs to nobody.
    p.send(seg().seq(1).ack(2).fin());
    p.expect().is_ack().ack(2);
    p.outer = Some((THEIRS + 1, OURS));
    p.send(seg().seq(1).ack(2).fin());
    p.expect().is_rst();
    p.open_passive(listener, seg().mss(1176));
}

// --- what is not taken ---------------------------------------------------------------------------

#[test]
fn a_wrong_or_missing_checksum_is_dropped() {
    for v6 in [false, true] {
        let mut p = on(v6);
        p.listen();
        let good = p.packet(&seg().syn().mss(1176));
        let udp = if v6 { 40 } else { 20 };
        let mut wrong = good.clone();
        wrong[udp + 20] ^= 1;
        p.inject(&wrong);
        let mut missing = good.clone();
        missing[udp + 6..udp + 8].fill(0);
        p.inject(&missing);
        p.quiet();
        assert_eq!(p.stack.counters().dropped(Drop::BadUdp), 2);
        p.inject(&good);
        p.expect().syn_ack();
    }
}

/// The inner checksum is ignored: address translators do not mend it.
#[test]
fn the_inner_checksum_is_ignored() {
    let mut p = new();
    p.listen();
    let good = p.packet(&seg().syn().mss(1176));
    let mut payload = udp_payload(&good).to_vec();
    payload[4 + 16] = 0xab;
    let packet = p.udp((THEIRS, OURS), &payload);
    p.inject(&packet);
    p.expect().syn_ack();
}

#[test]
fn a_link_that_is_a_socket_has_checked_everything() {
    let mut p = Peer::with(|config| {
        config.carrier = Some(CarrierConfig { from_socket: true, ..CarrierConfig::new(OURS) });
        // A socket bound to all addresses takes datagrams for any of them.
        config.addresses = vec!["10.9.9.9".parse().unwrap()];
    });
    p.outer = Some((THEIRS, OURS));
    let mut config = firstflight_stack::ListenConfig::new("0.0.0.0:80".parse().unwrap());
    config.backlog = 1;
    p.stack.listen(config).unwrap();
    let mut unchecked = p.packet(&seg().syn().mss(1176));
    unchecked[26..28].fill(0);
    p.inject(&unchecked);
    let syn_ack = p.expect().syn_ack();
    assert_eq!(syn_ack.packet[26..28], [0, 0], "the socket computes it");
    // Raw packets for that address are not ours all the same.
    p.outer = None;
    p.send(seg().syn().mss(1176));
    p.quiet();
    assert_eq!(p.stack.counters().dropped(Drop::NotForUs), 1);
}

#[test]
fn other_datagrams_are_counted_and_dropped() {
    let mut p = new();
    p.listen();
    let segment = p.packet(&seg().syn().mss(1176));
    let segment = udp_payload(&segment).to_vec();
    let mut reserved = segment.clone();
    reserved[1] = 1;
    let mut longer = KEEP_ALIVE.to_vec();
    longer.push(0);
    let stun = [0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    let wrong: [((u16, u16), &[u8], Drop); 9] = [
        ((THEIRS, OURS + 1), &segment, Drop::NotCarried),
        ((THEIRS, OURS), &reserved, Drop::NotCarried),
        ((THEIRS, OURS), &longer, Drop::NotCarried),
        ((THEIRS, OURS), &stun, Drop::NotCarried),
        ((THEIRS, OURS), &[], Drop::NotCarried),
        ((THEIRS, OURS), &segment[..20], Drop::BadTcp),
        // Nobody to answer, and ourselves.
        ((0, OURS), &segment, Drop::BadSource),
        ((0, OURS), &KEEP_ALIVE, Drop::BadSource),
        ((THEIRS, OURS), &[9, 0, 0, 3], Drop::NotCarried),
    ];
    for (outer, payload, reason) in wrong {
        let before = p.stack.counters().dropped(reason);
        let packet = p.udp(outer, payload);
        p.inject(&packet);
        assert_eq!(p.stack.counters().dropped(reason), before + 1, "{outer:?} {payload:?}");
    }
    p.quiet();
    assert!(p.others.is_empty());
    p.moves_to("10.0.0.1");
    let packet = p.udp((OURS, OURS), &segment);
    p.inject(&packet);
    assert_eq!(p.stack.counters().dropped(Drop::BadSource), 3, "ourselves");
}

#[test]
fn without_a_carrier_udp_is_not_spoken() {
    let mut p = Peer::new();
    p.listen();
    p.outer = Some((THEIRS, OURS));
    p.send(seg().syn().mss(1176));
    p.quiet();
    assert_eq!(p.stack.counters().dropped(Drop::Protocol), 1);
    let config = ConnectConfig { carrier: Some(THEIRS), ..ConnectConfig::default() };
    let result = p.stack.connect(p.remote(), b"", &config, p.now);
    assert_eq!(result, Err(ConnectError::NoCarrier));
    // Port 0 is none.
    let mut p = Peer::with(|config| config.carrier = Some(CarrierConfig::new(0)));
    let result = p.stack.connect(p.remote(), b"", &config, p.now);
    assert_eq!(result, Err(ConnectError::NoCarrier));
}

#[test]
fn a_stack_connects_to_its_own_address_only_behind_another_port() {
    let mut p = new();
    let own = p.local();
    for (carrier, result) in [(OURS, false), (0, false), (THEIRS, true)] {
        let config = ConnectConfig { carrier: Some(carrier), ..ConnectConfig::default() };
        assert_eq!(p.stack.connect(own, b"", &config, p.now).is_ok(), result, "{carrier}");
    }
}

// --- answers without a connection ----------------------------------------------------------------

#[test]
fn a_segment_of_no_connection_gets_a_rst_in_udp() {
    let mut p = new();
    p.send(seg().seq(5).ack(77));
    let rst = p.expect().is_rst().seq(77);
    assert_eq!(rst.outer, Some((THEIRS, OURS)));
    assert_eq!(udp_payload(&rst.packet).len(), 24);
    p.send(seg().rst().seq(5));
    p.quiet();
}

#[test]
fn a_rst_in_udp_is_judged_as_on_raw_ip() {
    let mut p = new();
    let id = opened(&mut p);
    // RFC 5961 §3.2: in the window, but not exactly next.
    p.send(seg().rst().seq(5));
    p.expect().is_ack().seq(1).ack(1);
    // Behind another port it is for nobody.
    p.outer = Some((THEIRS + 1, OURS));
    p.send(seg().rst().seq(1));
    assert_eq!(p.state(id), StateName::Established);
    p.outer = Some((THEIRS, OURS));
    p.send(seg().rst().seq(1));
    assert_eq!(p.reason(id), Some(CloseReason::Reset));
}

/// Less than three times what a client without proof sent; RFC 9000 §8.1 has the same limit.
#[test]
fn a_syn_that_nobody_confirms_gets_two_syn_acks_at_most() {
    for (v6, syn) in [(false, seg()), (true, seg()), (false, seg().mss(1176).ts(1).sack_ok().scale(7))] {
        let mut p = on(v6);
        // A cookie makes the SYN-ACK longest.
        p.listen_with(|c| c.fast_open = Some(policy(key(1), 10)));
        let syn = syn.syn().cookie(&[]).option(&[1, 1]);
        let received = p.packet(&syn).len();
        p.send(syn);
        p.pass(300_000);
        let got = p.drain();
        assert_eq!(got.iter().map(|g| g.flags).collect::<Vec<_>>(), [Flags::SYN | Flags::ACK; 2]);
        let sent: usize = got.iter().map(|g| g.packet.len()).sum();
        assert!(got[0].fast_open.is_some() && sent < 3 * received, "{sent} for {received}");
        assert_eq!(p.stack.connections(), 0);
    }
}

// --- keep-alives and resets of the carrier -----------------------------------------------------------

#[test]
fn an_idle_connection_that_we_opened_is_kept_alive_for_20_minutes() {
    let mut p = new();
    let id = opened(&mut p);
    // Each may be a tick of the timer wheel late; the one after 20 min is past it.
    for n in 1..80 {
        p.at(n * 15_000 - 5);
        assert!(p.others.is_empty(), "before {} s", n * 15);
        p.at(n * 15_000 + n);
        assert_eq!(controls(&mut p), [KEEP_ALIVE], "at {} s", n * 15);
    }
    p.pass(3_600_000);
    assert!(p.others.is_empty());
    assert_eq!(p.stack.counters().keep_alives_sent, 79);
    // Whatever leaves begins it anew.
    p.write(id, b"x");
    p.expect();
    p.send(seg().seq(1).ack(2));
    p.pass(15_005);
    assert_eq!(controls(&mut p), [KEEP_ALIVE]);
    assert_eq!(p.state(id), StateName::Established);
    p.quiet();
}

#[test]
fn a_busy_connection_needs_no_keep_alive_and_a_closed_one_has_none() {
    let mut p = new();
    let id = opened(&mut p);
    for n in 0..10 {
        p.pass(10_000);
        p.write(id, b"x");
        p.expect();
        p.send(seg().seq(1).ack(2 + n));
    }
    assert!(p.others.is_empty());
    p.abort(id);
    p.release(id);
    p.drain();
    p.pass(60_000);
    assert!(p.others.is_empty());
    assert_eq!((p.stack.connections(), p.stack.poll_timeout()), (0, None));
}

#[test]
fn one_keep_alive_serves_all_connections_between_two_ports() {
    let mut p = new();
    let ids: Vec<ConnId> = (0..20)
        .map(|_| {
            p.local_port = 0;
            let id = p.connect(b"", false);
            p.expect().is_syn();
            p.send(seg().syn().ack(1).mss(1176));
            p.expect().is_ack();
            id
        })
        .collect();
    p.pass(15_005);
    assert_eq!(controls(&mut p), [KEEP_ALIVE]);
    for id in &ids[..19] {
        p.abort(*id);
    }
    p.drain();
    p.pass(15_005);
    assert_eq!(controls(&mut p), [KEEP_ALIVE]);
    p.abort(ids[19]);
    p.pass(60_000);
    assert!(p.others.is_empty());
}

#[test]
fn who_was_connected_to_sends_no_keep_alives() {
    let mut p = new();
    server(&mut p);
    p.pass(100_000);
    assert!(p.others.is_empty());
    p.quiet();
}

#[test]
fn keep_alives_can_be_turned_off_and_set() {
    for (every, count) in [(None, 0), (Some(std::time::Duration::from_secs(5)), 6)] {
        let mut p = Peer::with(|config| {
            config.carrier = Some(CarrierConfig { keep_alive: every, ..CarrierConfig::new(OURS) });
        });
        p.outer = Some((THEIRS, OURS));
        opened(&mut p);
        p.pass(30_010);
        assert_eq!(controls(&mut p).len(), count);
    }
}

#[test]
fn a_keep_alive_for_nothing_is_answered_and_a_reset_for_nothing_is_not() {
    let mut p = new();
    control(&mut p, (THEIRS, OURS), KEEP_ALIVE);
    assert_eq!(controls(&mut p), [RESET]);
    control(&mut p, (THEIRS, OURS), RESET);
    assert!(p.others.is_empty());
    server(&mut p);
    control(&mut p, (THEIRS, OURS), KEEP_ALIVE);
    assert!(p.others.is_empty(), "there is a connection");
    control(&mut p, (THEIRS + 1, OURS), KEEP_ALIVE);
    assert_eq!(controls(&mut p), [RESET]);
    assert_eq!(p.stack.counters().carrier_resets_sent, 2);
}

/// It can be forged by who guesses two ports: it makes the connection ask, and the answer decides.
#[test]
fn a_reset_of_the_carrier_makes_a_connection_ask() {
    let mut p = new();
    let id = opened(&mut p);
    control(&mut p, (THEIRS, OURS), RESET);
    p.quiet();
    p.pass(15_005);
    assert_eq!(controls(&mut p), [KEEP_ALIVE]);
    // One for each keep-alive.
    for _ in 0..10 {
        control(&mut p, (THEIRS, OURS), RESET);
    }
    p.expect().is_ack().seq(0).ack(1);
    p.quiet();
    assert_eq!(p.stack.counters().carrier_resets_believed, 1);
    p.send(seg().seq(1).ack(1));
    assert_eq!(p.state(id), StateName::Established, "the peer has it still");
    p.pass(15_005);
    control(&mut p, (THEIRS, OURS), RESET);
    let probe = p.expect().is_ack();
    p.send(seg().rst().seq(probe.ack));
    assert_eq!(p.reason(id), Some(CloseReason::Reset), "the peer has it no more");
}

#[test]
fn a_reset_of_the_carrier_asks_for_sixteen_connections_at_most_and_for_all_in_turn() {
    let mut p = new();
    for _ in 0..20 {
        p.connect(b"", false);
        p.expect().is_syn();
        p.send(seg().syn().ack(1).mss(1176));
        p.expect().is_ack();
    }
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..2 {
        p.pass(15_005);
        p.others.clear();
        control(&mut p, (THEIRS, OURS), RESET);
        let probes = p.drain();
        assert_eq!(probes.len(), 16);
        asked.extend(probes.iter().map(|got| {
            let ip = Packet::parse(&got.packet).unwrap();
            [ip.payload[12], ip.payload[13]]
        }));
    }
    assert_eq!(asked.len(), 20);
}

// --- ICMP ------------------------------------------------------------------------------------------

#[test]
fn an_icmp_error_counts_if_it_quotes_the_inner_sequence_number() {
    for v6 in [false, true] {
        let ip = if v6 { 40 } else { 20 };
        // RFC 792 asks routers for 8 bytes only: a UDP header.
        for (quoted, ends) in [(8, false), (12, false), (19, false), (20, true), (60, true)] {
            let mut p = on(v6);
            let id = p.connect(b"", false);
            let mut syn = p.expect().is_syn().packet;
            syn.truncate(ip + quoted);
            p.icmp(IcmpErrorKind::PortUnreachable, &syn);
            let reason = ends.then_some(CloseReason::Unreachable);
            assert_eq!(p.reason(id), reason, "{quoted} bytes");
        }
        // Not one of ours.
        let mut p = on(v6);
        let id = p.connect(b"", false);
        let mut forged = p.expect().is_syn().packet;
        forged[ip + 8 + 4 + 4] ^= 0x40;
        p.icmp(IcmpErrorKind::PortUnreachable, &forged);
        forged[ip + 8 + 4 + 4] ^= 0x40;
        forged[ip + 3] ^= 1;
        p.icmp(IcmpErrorKind::PortUnreachable, &forged);
        assert_eq!(p.state(id), StateName::SynSent);
        assert_eq!(p.stack.counters().dropped(Drop::BadIcmp), 2);
    }
    // RFC 5461 §4: not of an open connection.
    let mut p = new();
    let id = opened(&mut p);
    p.write(id, b"data");
    let data = p.expect();
    p.icmp(IcmpErrorKind::PortUnreachable, &data.packet);
    assert_eq!(p.state(id), StateName::Established);
}

#[test]
fn packet_too_big_counts_the_headers_of_udp() {
    let mut p = new();
    let id = opened(&mut p);
    p.write(id, &[0; 1176]);
    let data = p.expect().len(1176);
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 1000 }, &data.packet);
    assert_eq!(p.stack.info(id).unwrap().mss, 1000 - 20 - 8 - 4 - 20);
    let again = p.drain();
    assert!(again.iter().all(|got| got.packet.len() <= 1000));
    assert_eq!(again.iter().map(|got| got.data.len()).sum::<usize>(), 1176);
}

// --- SYN cookies ---------------------------------------------------------------------------------

#[test]
fn a_syn_cookie_is_good_behind_its_own_udp_port_only() {
    for v6 in [false, true] {
        let mut p = on(v6);
        let listener = p.listen_with(|c| c.syn_backlog = 0);
        p.send(seg().syn().mss(1176));
        p.expect().syn_ack();
        assert_eq!(p.stack.counters().syn_cookies_sent, 1);
        for wrong in [Some((THEIRS + 1, OURS)), None] {
            p.outer = wrong;
            p.send(seg().seq(1).ack(1));
            p.expect().is_rst();
            p.nothing_to_accept(listener);
        }
        p.outer = Some((THEIRS, OURS));
        p.send(seg().seq(1).ack(1).data(b"late"));
        let id = p.accept(listener);
        assert_eq!(p.read(id), b"late");
        let info = p.stack.info(id).unwrap();
        assert_eq!((info.mss, info.carrier), (1176, Some(THEIRS)), "its table knows the base datagram");
    }
}

// --- Fast Open -----------------------------------------------------------------------------------

fn first_flight(p: &Peer, data: &[u8]) -> Seg {
    seg().syn().mss(1176).cookie(p.cookie_of(key(1)).as_bytes()).data(data)
}

#[test]
fn a_server_takes_a_first_flight_in_udp() {
    for v6 in [false, true] {
        let mut p = on(v6);
        let listener = p.listen_with(|c| c.fast_open = Some(policy(key(1), 10)));
        let syn = first_flight(&p, b"GET / HTTP/1.0");
        p.send(syn.clone());
        p.expect().syn_ack().ack(15);
        let id = p.accept(listener);
        assert_eq!(p.read(id), b"GET / HTTP/1.0");
        p.write(id, b"200");
        p.expect().seq(1).ack(15);
        // The client sends it again as it was: no second child, the same answer.
        p.pass(100);
        p.send(syn);
        p.drain();
        p.nothing_to_accept(listener);
        assert_eq!((p.stack.counters().first_flights_accepted, p.stack.connections()), (1, 1));
    }
}

/// Gives the stack a cookie of the peer's for the carrier.
fn fetch_cookie(p: &mut Peer) {
    let id = p.connect(b"", true);
    p.expect().is_syn();
    p.send(seg().syn().ack(1).mss(1176).cookie(&[7; 8]).option(&[1, 1]));
    p.drain();
    p.abort(id);
    p.drain();
}

#[test]
fn a_client_sends_its_first_flight_again_as_it_was() {
    let mut p = new();
    fetch_cookie(&mut p);
    let id = p.connect(&[b'a'; 2000], true);
    let first = p.expect().is_syn();
    // The base datagram less the options' space.
    assert_eq!(first.data.len(), 1176 - 40);
    assert!(udp_payload(&first.packet).len() <= 1200);
    p.pass(1_100);
    let again = p.expect().is_syn();
    assert_eq!((&again.data, again.fast_open), (&first.data, first.fast_open));
    p.send(seg().syn().ack(1 + 1136).mss(1176));
    p.drain();
    assert!(p.stack.info(id).unwrap().outcome.is_accepted());
}

/// What routers do to TCP's options says nothing about UDP: nothing learnt on one is used on the other.
#[test]
fn what_is_learnt_in_udp_is_not_used_on_raw_ip() {
    let mut p = new();
    fetch_cookie(&mut p);
    p.outer = None;
    let raw = p.connect(b"data", true);
    let syn = p.expect().is_syn().empty();
    assert!(matches!(syn.fast_open, Some(firstflight_wire::tcp::FastOpen::Request(_))));
    p.abort(raw);
    p.outer = Some((THEIRS, OURS));
    p.connect(b"data", true);
    assert_eq!(p.expect().is_syn().data, b"data");
}

#[test]
fn a_second_attempt_is_for_raw_ip_only() {
    let mut p = new();
    fetch_cookie(&mut p);
    p.port = PORT;
    let config = ConnectConfig {
        fast_open: true,
        replay_safe: true,
        carrier: Some(THEIRS),
        ..ConnectConfig::default()
    };
    p.connect_with(b"data", &config);
    p.pass(10_000);
    let syns = p.drain();
    assert!(syns.len() > 2 && syns.iter().all(|got| got.data == b"data" && got.outer.is_some()));
    assert_eq!(p.stack.counters().second_attempts, 0);
}

#[test]
fn a_port_in_use_towards_one_udp_port_is_free_towards_another() {
    let mut p = new();
    let local = std::net::SocketAddr::new(p.local().ip(), CLIENT_PORT);
    let remote = std::net::SocketAddr::new(p.remote().ip(), PORT);
    let mut connect = |carrier| {
        let config = ConnectConfig { carrier, local: Some(local), ..ConnectConfig::default() };
        p.stack.connect(remote, b"", &config, p.now).map(|_| ())
    };
    assert_eq!(connect(Some(THEIRS)), Ok(()));
    assert_eq!(connect(Some(THEIRS)), Err(ConnectError::LocalInUse));
    assert_eq!(connect(Some(THEIRS + 1)), Ok(()));
    assert_eq!(connect(None), Ok(()));
    assert_eq!(PEER_ISN, p.isn);
}
