//! TCP in UDP, packet by packet.

use crate::peer::{Peer, key, policy, seg};
use firstflight_stack::{
    CloseReason, Config, ConnId, ConnectConfig, ConnectError, EncapsulationConfig, ListenerId, PacketDrop,
    StateName,
};
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::Flags;
use firstflight_wire::udp::Datagram;

/// The stack's UDP port.
const OURS: u16 = 4433;
/// The peer's UDP port.
const THEIRS: u16 = 5000;
const KEEP_ALIVE: [u8; 4] = [9, 0, 0, 1];

fn encapsulation(config: &mut Config) {
    config.encapsulation = Some(EncapsulationConfig::new(OURS).probe(false));
}

fn on(v6: bool) -> Peer {
    let mut p = if v6 { Peer::v6(encapsulation) } else { Peer::with(encapsulation) };
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
        assert_eq!(p.stack.info(id).unwrap().encapsulation, Some(THEIRS));
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
        encapsulation(config);
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
    assert_eq!(p.stack.info(raw).unwrap().encapsulation, None);
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
    // In TIME-WAIT, the record answers a late ACK. An ACK from another port belongs to no connection, unless it is
    // the FIN again, with the right numbers.
    p.send(seg().seq(1).ack(2).fin());
    p.expect().is_ack().ack(2);
    p.outer = Some((THEIRS + 1, OURS));
    p.send(seg().seq(1).ack(2).fin());
    assert_eq!(p.expect().is_ack().seq(2).ack(2).outer, p.outer);
    for wrong in [seg().seq(1).ack(1).fin(), seg().seq(2).ack(2).fin(), seg().seq(1).ack(2).data(b"x")] {
        p.send(wrong);
        p.expect().is_rst();
    }
    p.open_passive(listener, seg().mss(1176));
}

// --- what is not accepted ------------------------------------------------------------------------

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
        assert_eq!(p.stack.counters().dropped(PacketDrop::BadUdp), 2);
        p.inject(&good);
        p.expect().syn_ack();
    }
}

/// The inner checksum is ignored, because address translators do not correct it.
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
        config.encapsulation = Some(EncapsulationConfig::new(OURS).from_socket(true));
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
    // Raw packets for that address are still not ours.
    p.outer = None;
    p.send(seg().syn().mss(1176));
    p.quiet();
    assert_eq!(p.stack.counters().dropped(PacketDrop::NotForUs), 1);
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
    let wrong: [((u16, u16), &[u8], PacketDrop); 10] = [
        ((THEIRS, OURS + 1), &segment, PacketDrop::NotCarried),
        ((THEIRS, OURS), &reserved, PacketDrop::NotCarried),
        ((THEIRS, OURS), &longer, PacketDrop::NotCarried),
        ((THEIRS, OURS), &stun, PacketDrop::NotCarried),
        ((THEIRS, OURS), &[], PacketDrop::NotCarried),
        ((THEIRS, OURS), &segment[..20], PacketDrop::BadTcp),
        // A port that cannot be answered, and our own port.
        ((0, OURS), &segment, PacketDrop::BadSource),
        ((0, OURS), &KEEP_ALIVE, PacketDrop::BadSource),
        ((THEIRS, OURS), &[9, 0, 0, 3], PacketDrop::NotCarried),
        ((THEIRS, OURS), &[9, 0, 0, 5], PacketDrop::NotCarried),
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
    assert_eq!(p.stack.counters().dropped(PacketDrop::BadSource), 3, "ourselves");
}

#[test]
fn without_a_encapsulation_udp_is_not_spoken() {
    let mut p = Peer::new();
    p.listen();
    p.outer = Some((THEIRS, OURS));
    p.send(seg().syn().mss(1176));
    p.quiet();
    assert_eq!(p.stack.counters().dropped(PacketDrop::Protocol), 1);
    let config = ConnectConfig::default().encapsulation(Some(THEIRS));
    let result = p.stack.connect(p.remote(), b"", &config, p.now);
    assert_eq!(result, Err(ConnectError::NoEncapsulation));
    // Port 0 disables the encapsulation.
    let mut p = Peer::with(|config| config.encapsulation = Some(EncapsulationConfig::new(0)));
    let result = p.stack.connect(p.remote(), b"", &config, p.now);
    assert_eq!(result, Err(ConnectError::NoEncapsulation));
}

#[test]
fn a_stack_connects_to_its_own_address_only_behind_another_port() {
    let mut p = new();
    let own = p.local();
    for (encapsulation, result) in [(OURS, false), (0, false), (THEIRS, true)] {
        let config = ConnectConfig::default().encapsulation(Some(encapsulation));
        assert_eq!(p.stack.connect(own, b"", &config, p.now).is_ok(), result, "{encapsulation}");
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
    // RFC 5961 §3.2: in the window, but not exactly the next number.
    p.send(seg().rst().seq(5));
    p.expect().is_ack().seq(1).ack(1);
    // From another port it belongs to no connection.
    p.outer = Some((THEIRS + 1, OURS));
    p.send(seg().rst().seq(1));
    assert_eq!(p.state(id), StateName::Established);
    p.outer = Some((THEIRS, OURS));
    p.send(seg().rst().seq(1));
    assert_eq!(p.reason(id), Some(CloseReason::Reset));
}

/// The client's address is not proved, so it gets less than three times what it sent. RFC 9000 §8.1 has the same
/// limit.
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

// --- ICMP ------------------------------------------------------------------------------------------

#[test]
fn an_icmp_error_counts_if_it_quotes_the_inner_sequence_number() {
    for v6 in [false, true] {
        let ip = if v6 { 40 } else { 20 };
        // RFC 792 requires routers to quote only 8 bytes: a UDP header.
        for (quoted, ends) in [(8, false), (12, false), (19, false), (20, true), (60, true)] {
            let mut p = on(v6);
            let id = p.connect(b"", false);
            let mut syn = p.expect().is_syn().packet;
            syn.truncate(ip + quoted);
            p.icmp(IcmpErrorKind::PortUnreachable, &syn);
            let reason = ends.then_some(CloseReason::Unreachable);
            assert_eq!(p.reason(id), reason, "{quoted} bytes");
        }
        // The quoted packet is not one of ours.
        let mut p = on(v6);
        let id = p.connect(b"", false);
        let mut forged = p.expect().is_syn().packet;
        forged[ip + 8 + 4 + 4] ^= 0x40;
        p.icmp(IcmpErrorKind::PortUnreachable, &forged);
        forged[ip + 8 + 4 + 4] ^= 0x40;
        forged[ip + 3] ^= 1;
        p.icmp(IcmpErrorKind::PortUnreachable, &forged);
        assert_eq!(p.state(id), StateName::SynSent);
        assert_eq!(p.stack.counters().dropped(PacketDrop::BadIcmp), 2);
    }
    // RFC 5461 §4: an error does not end an open connection.
    let mut p = new();
    let id = opened(&mut p);
    p.write(id, b"data");
    let data = p.expect();
    p.icmp(IcmpErrorKind::PortUnreachable, &data.packet);
    assert_eq!(p.state(id), StateName::Established);
}

/// The peer is on this host, at the same address. On a socket, the kernel has checked the error; on IP, it may be
/// forged.
#[test]
fn an_icmp_error_from_our_own_address_counts_over_a_socket_only() {
    for from_socket in [false, true] {
        let mut p = Peer::with(|config| {
            config.encapsulation = Some(EncapsulationConfig::new(OURS).from_socket(from_socket));
        });
        p.outer = Some((THEIRS, OURS));
        let id = p.connect(b"", false);
        let syn = p.expect().is_syn().packet;
        let ours = p.stack.config().addresses[0];
        let mut report = [0; 576];
        let kind = IcmpErrorKind::PortUnreachable;
        let len = firstflight_wire::icmp::emit_error(kind, ours, ours, &syn, &mut report).unwrap();
        p.inject(&report[..len]);
        assert_eq!(p.reason(id), from_socket.then_some(CloseReason::Unreachable));
        assert_eq!(p.stack.counters().dropped(PacketDrop::BadSource), u64::from(!from_socket));
    }
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
