//! ICMP: which errors are believed, and from whom (RFC 5927, RFC 5461, RFC 1191).

use crate::peer::{Peer, seg};
use firstflight_stack::{CloseReason, PacketDrop, StateName};
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::ip::Protocol;

const HARD: [IcmpErrorKind; 3] =
    [IcmpErrorKind::PortUnreachable, IcmpErrorKind::ProtocolUnreachable, IcmpErrorKind::AdminProhibited];
const SOFT: [IcmpErrorKind; 3] =
    [IcmpErrorKind::HostUnreachable, IcmpErrorKind::NetUnreachable, IcmpErrorKind::TimeExceeded];

/// RFC 1122 §4.2.3.9, RFC 5461 §4: a hard error ends a connection that is not open yet, a soft one does not.
//= rfc9293 MUST-54 MUST-56 test
#[test]
fn hard_errors_end_syn_sent_and_soft_ones_do_not() {
    for kind in HARD {
        let mut p = Peer::new();
        let id = p.connect(b"", false);
        let syn = p.expect().is_syn();
        p.icmp(kind, &syn.packet);
        assert_eq!(p.reason(id), Some(CloseReason::Unreachable), "{kind:?}");
        p.quiet();
    }
    for kind in SOFT {
        let mut p = Peer::new();
        let id = p.connect(b"", false);
        let syn = p.expect().is_syn();
        p.icmp(kind, &syn.packet);
        assert_eq!(p.state(id), StateName::SynSent, "{kind:?}");
    }
}

/// RFC 5461 §4: routers cannot end an established connection.
//= rfc9293 MUST-56 SHLD-26 test
#[test]
fn errors_do_not_end_an_established_connection() {
    for kind in HARD.into_iter().chain(SOFT) {
        let mut p = Peer::new();
        let id = p.open_active(seg().mss(1460));
        p.write(id, b"data");
        let data = p.expect().seq(1);
        p.icmp(kind, &data.packet);
        assert_eq!(p.state(id), StateName::Established, "{kind:?}");
        p.quiet();
    }
}

/// RFC 9293 §3.9.1.8, §3.9.2.2: errors that end nothing are still reported.
//= rfc9293 MUST-47 SHLD-25 test
#[test]
fn what_the_network_reports_can_be_asked_for() {
    let error = |p: &Peer, id| p.stack.info(id).unwrap().network_error;
    for kind in SOFT {
        let mut p = Peer::new();
        let id = p.connect(b"", false);
        let syn = p.expect().is_syn();
        assert_eq!(error(&p, id), None);
        p.icmp(kind, &syn.packet);
        assert_eq!((p.state(id), error(&p, id)), (StateName::SynSent, Some(kind)));
        // It is still reported when the connect times out in the end.
        p.pass(200_000);
        assert_eq!((p.reason(id), error(&p, id)), (Some(CloseReason::TimedOut), Some(kind)));
    }
    for kind in HARD {
        let mut p = Peer::new();
        let id = p.open_active(seg().mss(1460));
        p.write(id, b"data");
        let data = p.expect().seq(1);
        p.icmp(IcmpErrorKind::PacketTooBig { mtu: 1_400 }, &data.packet);
        assert_eq!(error(&p, id), None);
        p.icmp(kind, &data.packet);
        assert_eq!((p.state(id), error(&p, id)), (StateName::Established, Some(kind)));
    }
}

/// RFC 5927 §4.1: the quoted number must be outstanding.
//= rfc9293 MUST-54 test
#[test]
fn errors_about_numbers_not_outstanding_are_ignored() {
    let mut p = Peer::new();
    let id = p.open_active(seg().mss(1460));
    p.write(id, &[0; 1460]);
    let data = p.expect().len(1460);
    p.send(seg().seq(1).ack(1461));
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 600 }, &data.packet);
    assert_eq!((p.stack.info(id).unwrap().mss, p.stack.counters().dropped(PacketDrop::BadIcmp)), (1460, 1));
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    let mut forged = p.expect().is_syn().packet;
    forged[24] ^= 0x40;
    p.icmp(IcmpErrorKind::PortUnreachable, &forged);
    assert_eq!(p.state(id), StateName::SynSent);
}

/// Errors about connections that are not ours.
#[test]
fn errors_about_unknown_flows_are_dropped() {
    let mut p = Peer::new();
    p.connect(b"", false);
    let mut other = p.expect().is_syn().packet;
    other[22..24].copy_from_slice(&81_u16.to_be_bytes());
    p.icmp(IcmpErrorKind::PortUnreachable, &other);
    assert_eq!(p.stack.counters().dropped(PacketDrop::BadIcmp), 1);
}

/// RFC 1191 §6.4: segments get smaller, the lost one is sent again at once, and the window is not reduced.
//= rfc7323 5.7-a test
//= rfc9293 MUST-16 test
#[test]
fn packet_too_big_lowers_the_mss_and_sends_again() {
    let mut p = Peer::new();
    let id = p.open_active(seg().mss(1460));
    p.write(id, &[0; 4380]);
    let sent = p.drain();
    assert_eq!(sent.len(), 3);
    let cwnd = p.stack.info(id).unwrap().cwnd;
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 1_000 }, &sent[0].packet);
    let again = p.drain();
    assert_eq!(p.stack.info(id).unwrap().mss, 960);
    assert_eq!(p.stack.info(id).unwrap().cwnd, cwnd);
    assert_eq!(again[0].clone().seq(1).data.len(), 960);
    assert!(again.iter().all(|g| g.data.len() <= 960));
    assert_eq!(again.iter().map(|g| g.data.len()).sum::<usize>(), 4380);
    // A larger size later changes nothing (RFC 1191 §6.3: only probing makes segments larger).
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 1_400 }, &again[0].packet);
    assert_eq!(p.stack.info(id).unwrap().mss, 960);
}

/// A tiny MTU is an attack or a broken router. The floor is 552 (RFC 1191 §3; Linux) or 1280 (RFC 8201 §4).
#[test]
fn packet_too_big_has_a_floor() {
    let mut p = Peer::new();
    let id = p.open_active(seg().mss(1460));
    p.write(id, &[0; 1460]);
    let data = p.expect();
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 0 }, &data.packet);
    assert_eq!(p.stack.info(id).unwrap().mss, 512);
    let mut p = Peer::v6(|_| {});
    let id = p.open_active(seg().mss(1440));
    p.write(id, &[0; 1440]);
    let data = p.expect();
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 600 }, &data.packet);
    assert_eq!(p.stack.info(id).unwrap().mss, 1220);
}

/// A router reports that our SYN itself does not fit: it is sent again at once, with a smaller MSS. (First flights
/// make SYNs large: see the Fast Open tests.)
//= rfc9293 MUST-67 test
#[test]
fn packet_too_big_in_syn_sent_announces_a_smaller_mss() {
    let mut p = Peer::new();
    p.connect(b"", false);
    let syn = p.expect().is_syn();
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 1_300 }, &syn.packet);
    assert_eq!(p.expect().is_syn().empty().mss, Some(1_260));
    // The same report again changes nothing, so there is no loop of SYNs.
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 1_300 }, &syn.packet);
    p.quiet();
    p.send(seg().syn().ack(1).mss(1460));
    p.expect().is_ack();
}

/// A hard error also ends a child that waits for its ACK.
#[test]
fn hard_error_in_syn_received_frees_the_child() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460));
    let syn_ack = p.expect().syn_ack();
    p.icmp(IcmpErrorKind::HostUnreachable, &syn_ack.packet);
    assert_eq!(p.stack.queues(listener), Some((0, 1)));
    p.icmp(IcmpErrorKind::PortUnreachable, &syn_ack.packet);
    assert_eq!((p.stack.queues(listener), p.stack.connections()), (Some((0, 0)), 0));
}

fn echo_request(p: &Peer, v6: bool) -> Vec<u8> {
    let mut message = vec![if v6 { 128 } else { 8 }, 0, 0, 0, 0x12, 0x34, 0, 7];
    message.extend_from_slice(b"ping payload");
    let sum = if v6 {
        let packet = p.ip(Protocol::Icmpv6, &message);
        let ip = firstflight_wire::ip::Packet::parse(&packet).unwrap();
        let mut sum = firstflight_wire::checksum::pseudo_header(ip.src, ip.dst, 58, message.len() as u32);
        sum.add_bytes(&message);
        sum.finish()
    } else {
        firstflight_wire::checksum::sum(&message).finish()
    };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    p.ip(if v6 { Protocol::Icmpv6 } else { Protocol::Icmp }, &message)
}

/// RFC 1122 §3.2.2.6, RFC 4443 §4.2.
#[test]
fn echo_is_answered() {
    for v6 in [false, true] {
        let mut p = if v6 { Peer::v6(|_| {}) } else { Peer::new() };
        let request = echo_request(&p, v6);
        p.inject(&request);
        let reply = p.others.pop_front().expect("no reply");
        let ip = firstflight_wire::ip::Packet::parse(&reply).unwrap();
        assert_eq!(ip.payload[0], if v6 { 129 } else { 0 });
        assert_eq!(&ip.payload[4..], &firstflight_wire::ip::Packet::parse(&request).unwrap().payload[4..]);
    }
    let mut p = Peer::with(|c| c.answer_echo = false);
    let request = echo_request(&p, false);
    p.inject(&request);
    assert!(p.others.is_empty());
}

/// A flood of answers is bounded by the reply queue.
#[test]
fn answers_are_bounded() {
    let mut p = Peer::with(|c| c.limits.replies = 4);
    p.send_all((0..100).map(|n| seg().seq(n).ack(5)));
    assert_eq!(p.drain().len(), 4);
    assert_eq!(p.stack.counters().dropped(PacketDrop::ReplyQueueFull), 96);
}
