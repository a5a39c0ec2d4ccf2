//! Requirements of RFC 9293 that no other file covers: addresses, ports, flags, windows, queued segments.

use crate::peer::{Got, PORT, Peer, Seg, seg};
use firstflight_stack::{
    CloseReason, ConnId, ConnectConfig, ConnectError, ListenConfig, ListenError, PacketDrop, StateName,
};
use firstflight_tcp::{Config, Keepalive};
use firstflight_wire::ip::{Ecn, Header, Protocol};
use firstflight_wire::tcp::Flags;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU8;

/// A connection that the peer opened, with an MSS of 1,000.
fn open_with(syn: Seg, tune: impl FnOnce(&mut Config)) -> (Peer, ConnId) {
    let mut p = Peer::with(|c| tune(&mut c.tcp));
    let listener = p.listen();
    let id = p.open_passive(listener, syn.mss(1_000));
    (p, id)
}

fn open() -> (Peer, ConnId) {
    open_with(seg(), |_| {})
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

// --- addresses and ports ---------------------------------------------------------------------------

/// RFC 9293 §3.9.1.1 (MUST-46).
//= rfc9293 MUST-46 test
#[test]
fn nobody_connects_to_broadcast_multicast_or_nowhere() {
    for remote in ["255.255.255.255:80", "224.0.0.1:80", "239.1.2.3:80", "0.0.0.0:80", "10.0.0.2:0"] {
        let mut p = Peer::new();
        let refused = p.stack.connect(address(remote), b"", &ConnectConfig::default(), p.now);
        assert_eq!(refused, Err(ConnectError::BadRemote), "{remote}");
        p.quiet();
    }
    for remote in ["[ff02::1]:80", "[::]:80"] {
        let mut p = Peer::v6(|_| {});
        let refused = p.stack.connect(address(remote), b"", &ConnectConfig::default(), p.now);
        assert_eq!(refused, Err(ConnectError::BadRemote), "{remote}");
    }
}

/// RFC 9293 §3.9.2.3 (MUST-63): such a SYN gets no answer and opens no connection.
//= rfc9293 MUST-63 test
#[test]
fn a_syn_from_an_address_that_nobody_has_is_ignored() {
    let nobodys = ["255.255.255.255", "224.0.0.1", "0.0.0.0", "10.0.0.1"];
    // RFC 1122 §3.2.1.3: this host's inside, this network, reserved, and all hosts of the subnet.
    let not_on_a_link = ["127.0.0.1", "127.9.9.9", "0.1.2.3", "240.0.0.1", "254.1.1.1", "10.0.0.255"];
    for source in nobodys.into_iter().chain(not_on_a_link) {
        let mut p = Peer::with(|config| config.broadcasts = vec!["10.0.0.255".parse().unwrap()]);
        p.listen();
        p.moves_to(source);
        p.send(seg().syn().mss(1460));
        p.quiet();
        assert_eq!(p.stack.connections(), 0, "{source}");
        assert_eq!(p.stack.counters().dropped(PacketDrop::BadSource), 1, "{source}");
    }
}

/// RFC 9293 §3.9.2.3 (MUST-57).
//= rfc9293 MUST-57 test
#[test]
fn a_syn_to_broadcast_or_multicast_is_ignored() {
    for destination in [[255, 255, 255, 255], [224, 0, 0, 1], [10, 0, 0, 255]] {
        let mut p = Peer::new();
        p.listen_with(|c| c.local = address("0.0.0.0:80"));
        let mut packet = p.packet(&seg().syn().mss(1460));
        readdress(&mut packet, destination);
        p.inject(&packet);
        p.quiet();
        assert_eq!(p.stack.connections(), 0);
        assert_eq!(p.stack.counters().dropped(PacketDrop::NotForUs), 1, "{destination:?}");
    }
}

/// Sets another destination in an IPv4 packet, with right checksums.
fn readdress(packet: &mut [u8], destination: [u8; 4]) {
    packet[16..20].copy_from_slice(&destination);
    packet[10..12].fill(0);
    let sum = firstflight_wire::checksum::sum(&packet[..20]).finish();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let source: [u8; 4] = packet[12..16].try_into().unwrap();
    firstflight_wire::tcp::fill_checksum(&mut packet[20..], source.into(), destination.into());
}

/// An IPv6 packet must not contain IPv4 addresses, neither IPv4-mapped nor as the stack keeps them: no IPv4
/// connection accepts its data.
#[test]
fn an_ipv6_packet_reaches_no_ipv4_connection() {
    for prefix in ["::ffff:0:0", "ffff:ffff:ffff:ffff::"].map(|text| text.parse::<Ipv6Addr>().unwrap()) {
        let (mut p, id) = open();
        let of = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => IpAddr::from(Ipv6Addr::from_bits(prefix.to_bits() | u128::from(ip.to_bits()))),
            IpAddr::V6(ip) => ip.into(),
        };
        let mut segment = p.packet(&seg().seq(1).ack(1).data(b"from nobody"))[20..].to_vec();
        let (src, dst) = (of(p.remote().ip()), of(p.local().ip()));
        segment[16..18].fill(0);
        firstflight_wire::tcp::fill_checksum(&mut segment, src, dst);
        let header = Header {
            src,
            dst,
            protocol: Protocol::Tcp,
            hop_limit: 60,
            ecn: Ecn::NotEct,
            dont_fragment: true,
            identification: 0,
        };
        let mut packet = vec![0; 40];
        header.emit(segment.len(), &mut packet).unwrap();
        packet.extend_from_slice(&segment);
        p.inject(&packet);
        p.quiet();
        assert_eq!(p.stack.counters().dropped_in_all(), 1, "{prefix}");
        p.send(seg().seq(1).ack(1).data(b"from the peer"));
        assert_eq!(p.read(id), b"from the peer", "{prefix}");
    }
}

/// RFC 9293 §3.9.1.1 (MUST-43 to MUST-45): the application's local address, otherwise one of the stack's, and the
/// same one for the whole connection. (The peer checks the source of every packet.)
//= rfc9293 MUST-43 MUST-44 MUST-45 test
#[test]
fn the_local_address_is_the_applications_choice_or_the_stacks() {
    for (addresses, local) in
        [(["10.0.0.1", "10.0.0.7"], None), (["10.0.0.7", "10.0.0.1"], Some("10.0.0.1:0"))]
    {
        let mut p = Peer::with(|c| c.addresses = addresses.iter().map(|a| a.parse().unwrap()).collect());
        p.port = PORT;
        let local = local.map(address);
        let id = p.connect_with(b"", &ConnectConfig::default().local(local));
        p.expect().is_syn();
        p.send(seg().syn().ack(1).mss(1460));
        p.expect().is_ack();
        p.write(id, b"x");
        p.expect().data(b"x");
    }
    let mut p = Peer::new();
    let foreign = ConnectConfig::default().local(Some(address("10.0.0.9:0")));
    let refused = p.stack.connect(address("10.0.0.2:80"), b"", &foreign, p.now);
    assert_eq!(refused, Err(ConnectError::LocalInUse));
}

/// RFC 9293 §3.9.1.1 (MUST-42): a port can be listened on while a connect or handshakes use it.
//= rfc9293 MUST-42 test
#[test]
fn a_port_in_syn_sent_or_syn_received_can_be_listened_on() {
    let mut p = Peer::new();
    p.port = 90;
    let local = Some(address("10.0.0.1:80"));
    let connecting = p.connect_with(b"", &ConnectConfig::default().local(local));
    p.expect().is_syn();
    let listener = p.listen();
    p.flow(crate::peer::CLIENT_PORT, 1);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    assert_eq!(p.state(connecting), StateName::SynSent);
    // Another listener, for another address, while that handshake is in progress.
    let other = ListenConfig::new(address("0.0.0.0:80"));
    assert!(p.stack.listen(other).is_ok());
    p.send(seg().seq(1).ack(1));
    p.accept(listener);
}

/// RFC 9293 §3.9.1.1 (MUST-41): a second listener is an error, and the first one and its connections continue.
//= rfc9293 MUST-41 test
#[test]
fn listening_twice_is_an_error_and_disturbs_nothing() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    let again = p.stack.listen(ListenConfig::new(p.local()));
    assert_eq!(again, Err(ListenError::AddressInUse));
    p.send(seg().seq(1).ack(1).data(b"x"));
    let id = p.accept(listener);
    assert_eq!(p.read(id), b"x");
}

// --- flags and options -------------------------------------------------------------------------------

/// RFC 9293 §3.9.1.2 (MUST-61, SHLD-27, SHLD-28): full segments, with PSH only on the last one.
//= rfc9293 MUST-61 SHLD-27 SHLD-28 test
#[test]
fn what_is_written_leaves_in_full_segments_and_the_last_is_pushed() {
    let (mut p, id) = open_with(seg(), |c| c.set_nodelay(true));
    p.write(id, &[0; 2_500]);
    let sent: Vec<(usize, bool)> =
        p.drain().iter().map(|g| (g.data.len(), g.flags.contains(Flags::PSH))).collect();
    assert_eq!(sent, [(1_000, false), (1_000, false), (500, true)]);
    // Three writes wait for the window, and are sent as one.
    p.send(seg().seq(1).ack(2_501).win(0));
    for _ in 0..3 {
        p.write(id, &[0; 100]);
    }
    p.quiet();
    p.send(seg().seq(1).ack(2_501).win(5_000));
    let one = p.expect().len(300);
    assert!(one.flags.contains(Flags::PSH));
}

/// RFC 9293 §3.2 (MUST-65), RFC 2018 §2: options of a SYN are on no other segment.
//= rfc9293 MUST-65 test
//= rfc2018 2-a test
#[test]
fn only_syns_have_options_of_syns() {
    let options = |got: Got| got.packet[20 + 20..20 + usize::from(got.packet[32] >> 4) * 4].to_vec();
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460).sack_ok().scale(7));
    assert_eq!(options(p.expect().syn_ack())[..4], [2, 4, 0x05, 0xb4]);
    p.send(seg().seq(1).ack(1));
    let id = p.accept(listener);
    p.write(id, b"data");
    assert_eq!(options(p.expect()), []);
    p.send(seg().seq(1).ack(5).fin());
    assert_eq!(options(p.expect().is_ack()), []);
    p.shutdown(id);
    assert_eq!(options(p.expect().is_fin()), []);
}

/// RFC 9293 §3.5.3 (SHLD-2).
//= rfc9293 SHLD-2 test
#[test]
fn a_reset_may_carry_data() {
    let (mut p, id) = open();
    p.send(seg().seq(1).ack(1).data(b"why").rst());
    assert_eq!(p.reason(id), Some(CloseReason::Reset));
    p.quiet();
}

/// RFC 9293 §3.4 (MUST-66).
//= rfc9293 MUST-66 test
#[test]
fn a_reset_counts_while_our_window_is_closed() {
    let (mut p, id) = open_with(seg(), |c| c.set_receive_buffer(2_000));
    p.send(seg().seq(1).ack(1).bytes(1_000));
    p.send(seg().seq(1_001).ack(1).bytes(1_000));
    assert_eq!(p.drain().pop().unwrap().window, 0);
    p.send(seg().seq(2_002).rst());
    p.quiet();
    assert_eq!(p.state(id), StateName::Established);
    p.send(seg().seq(2_001).rst());
    assert_eq!(p.reason(id), Some(CloseReason::Reset));
}

/// RFC 9293 §3.10.7.4: "special allowance should be made to accept valid ACKs". Some peers (lwIP) probe a closed window with a
/// segment of new text, and acknowledge in it.
//= rfc9293 MUST-66 test
#[test]
fn an_acknowledgement_counts_while_our_window_is_closed() {
    for len in [1, 1_000] {
        let (mut p, id) = open_with(seg(), |c| c.set_receive_buffer(2_000));
        p.send(seg().seq(1).ack(1).bytes(1_000));
        p.send(seg().seq(1_001).ack(1).bytes(1_000));
        assert_eq!(p.drain().pop().unwrap().window, 0);
        p.write(id, b"answer");
        p.expect().seq(1).data(b"answer");
        p.send(seg().seq(2_001).ack(7).bytes(len).fin());
        p.expect().is_ack().seq(7).ack(2_001).win(0);
        p.at(60_000);
        p.quiet();
        assert_eq!((p.read(id).len(), p.state(id)), (2_000, StateName::Established), "nothing of the text");
    }
}

// --- windows and acknowledgements ----------------------------------------------------------------------

/// RFC 9293 §3.8.6 (SHLD-14): an offered window stays offered, whatever waits to be read.
//= rfc9293 SHLD-14 test
#[test]
fn the_right_edge_of_our_window_never_moves_left() {
    let (mut p, id) = open_with(seg(), |c| c.set_receive_buffer(8_000));
    let mut edge = 0;
    for n in 0..80 {
        p.send(seg().seq(1 + n * 100).ack(1).bytes(100));
        p.pass(50);
        if n == 40 {
            p.read(id);
        }
        for got in p.drain() {
            let right = got.ack + u32::from(got.window);
            assert!(right >= edge, "{right} after {edge}");
            edge = right;
        }
    }
    assert!(edge >= 8_000);
}

/// RFC 9293 §3.8.6 (SHLD-15, SHLD-16): nothing new is sent, and what is outstanding is sent again within the
/// window.
//= rfc9293 MUST-34 SHLD-15 SHLD-16 test
//= rfc7323 2.4-a test
#[test]
fn into_a_window_that_shrank_nothing_new_is_sent() {
    let (mut p, id) = open();
    p.write(id, &[0; 20_000]);
    assert_eq!(p.drain().len(), 10);
    // 4,000 of the 10,000 outstanding bytes are acknowledged, and the window after them is 2,500.
    p.send(seg().seq(1).ack(4_001).win(2_500));
    p.quiet();
    p.pass(300);
    let mut again = p.drain();
    assert_eq!(again[0].seq, 4_001);
    for (ack, window) in [(5_001, 1_500), (6_001, 500)] {
        p.send(seg().seq(1).ack(ack).win(window));
        again.extend(p.drain());
    }
    let end = again.iter().map(|g| g.seq + g.data.len() as u32).max();
    assert_eq!(end, Some(4_001 + 2_500), "{again:?}");
}

/// RFC 9293 §3.10.7.4 (MUST-58, MUST-59).
//= rfc9293 MUST-58 MUST-59 test
#[test]
fn a_series_of_queued_segments_gets_one_acknowledgement() {
    let (mut p, id) = open();
    p.send_all((0..7).map(|n| seg().seq(1 + n * 1_000).ack(1).bytes(1_000)));
    p.expect().is_ack().ack(7_001).empty();
    p.quiet();
    assert_eq!(p.read(id).len(), 7_000);
}

// --- silence -------------------------------------------------------------------------------------------

/// RFC 9293 §3.8.4 (MUST-28): two hours.
//= rfc9293 MUST-28 test
#[test]
fn keepalive_begins_after_two_hours_unless_told_otherwise() {
    let (mut p, _) = open_with(seg(), |c| c.set_keepalive(Some(Keepalive::default())));
    p.at(7_199_000);
    p.quiet();
    p.at(7_201_000);
    p.expect().is_ack().seq(0).empty();
}

/// RFC 9293 §3.8.3 (SHLD-11): R2 is at least 100 s, even if the timeout is at its minimum.
//= rfc9293 SHLD-11 test
#[test]
fn data_is_not_given_up_within_100_seconds() {
    let (mut p, id) = open();
    p.write(id, b"x");
    p.at(100_000);
    assert_eq!(p.state(id), StateName::Established);
    p.at(3_600_000);
    assert_eq!(p.reason(id), Some(CloseReason::TimedOut));
}

/// RFC 9293 §3.9.2.2 (MUST-55): no answer and no effect.
//= rfc9293 MUST-55 test
#[test]
fn source_quench_is_discarded() {
    let mut p = Peer::new();
    let id = p.open_active(seg().mss(1_000));
    p.write(id, &[0; 3_000]);
    let sent = p.drain();
    let cwnd = p.stack.info(id).unwrap().cwnd;
    let mut message = vec![4, 0, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&sent[0].packet[..48]);
    let sum = firstflight_wire::checksum::sum(&message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let packet = p.ip(Protocol::Icmp, &message);
    p.inject(&packet);
    p.quiet();
    assert_eq!((p.state(id), p.stack.info(id).unwrap().cwnd), (StateName::Established, cwnd));
    assert!(p.others.is_empty());
}

/// RFC 9293 §3.9.2 (MUST-49): on every packet, whether a connection sends it or not. The default is 64.
//= rfc9293 MUST-49 test
#[test]
fn packets_have_the_hop_limit_that_was_set() {
    let limits = |mut p: Peer| {
        p.send(seg().syn());
        let reset = p.expect();
        assert!(reset.flags.contains(Flags::RST), "nobody listens");
        let id = p.open_active(seg().mss(1_000));
        p.write(id, b"x");
        [reset.packet[8], p.expect().packet[8]]
    };
    assert_eq!(limits(Peer::new()), [64, 64]);
    assert_eq!(limits(Peer::with(|c| c.hop_limit = NonZeroU8::MAX)), [255, 255]);
}
