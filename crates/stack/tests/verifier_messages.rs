//! Messages to a verifier that shares the encapsulation's UDP port.

use crate::peer::{Peer, seg};
use firstflight_stack::{EncapsulationConfig, PacketDrop};
use firstflight_wire::asap::message::{ProbeRequest, TransactionId};
use firstflight_wire::ip::Packet;
use firstflight_wire::udp::Datagram;

const OURS: u16 = 4433;
const THEIRS: u16 = 5000;

fn on(v6: bool) -> Peer {
    let encapsulation = |config: &mut firstflight_stack::Config| {
        config.encapsulation = Some(EncapsulationConfig::new(OURS).probe(false));
    };
    let mut p = if v6 { Peer::v6(encapsulation) } else { Peer::with(encapsulation) };
    p.outer = Some((THEIRS, OURS));
    p
}

fn message(number: u8) -> Vec<u8> {
    ProbeRequest::new(TransactionId([number; 8]), None, [7; 8]).to_bytes().to_vec()
}

fn send(p: &mut Peer, ports: (u16, u16), payload: &[u8]) {
    let packet = p.udp(ports, payload);
    p.inject(&packet);
}

#[test]
fn a_message_waits_for_the_verifier_and_the_answer_leaves_from_where_it_came() {
    for v6 in [false, true] {
        let mut p = on(v6);
        assert!(p.stack.keep_verifier_messages());
        send(&mut p, (THEIRS, OURS), &message(1));
        p.quiet();
        let got = p.stack.poll_verifier_message().unwrap();
        let (ours, theirs) = (p.local().ip(), p.remote().ip());
        assert_eq!((got.local, got.client.ip(), got.client.port()), (ours, theirs, THEIRS));
        assert_eq!(*got.bytes, message(1));
        assert_eq!(p.stack.poll_verifier_message(), None);
        p.stack.send_verifier_answer(got.local, got.client, b"an answer");
        p.pump();
        let packet = p.others.pop_front().unwrap();
        let ip = Packet::parse(&packet).unwrap();
        let datagram = Datagram::parse_checked(ip.payload, ip.src, ip.dst).unwrap();
        assert_eq!((ip.src, ip.dst), (ours, theirs));
        assert_eq!((datagram.src_port, datagram.dst_port), (OURS, THEIRS));
        assert_eq!(datagram.payload, b"an answer");
    }
}

/// Without a verifier they are dropped, as any other datagram. With one, nothing else is taken for a message.
#[test]
fn nothing_else_is_kept() {
    let mut p = on(false);
    send(&mut p, (THEIRS, OURS), &message(1));
    assert_eq!(p.stack.counters().dropped(PacketDrop::NotCarried), 1);
    assert_eq!(p.stack.poll_verifier_message(), None);
    assert!(p.stack.keep_verifier_messages());
    assert_eq!(p.stack.poll_verifier_message(), None);
    let short = &message(1)[..319];
    for (ports, payload, reason) in [
        ((THEIRS, OURS + 1), &message(1)[..], PacketDrop::NotCarried),
        ((THEIRS, OURS), short, PacketDrop::NotCarried),
        ((THEIRS, OURS), &[0xff, 0x56, 0x11][..], PacketDrop::NotCarried),
        ((THEIRS, OURS), &[0xff, 0x52, 1, 1][..], PacketDrop::NotCarried),
        // Nobody could get the answer.
        ((0, OURS), &message(1)[..], PacketDrop::BadSource),
    ] {
        let before = p.stack.counters().dropped(reason);
        send(&mut p, ports, payload);
        assert_eq!(p.stack.counters().dropped(reason), before + 1, "{ports:?}");
        assert_eq!(p.stack.poll_verifier_message(), None);
    }
    // The encapsulation's datagrams go on.
    p.listen();
    p.send(seg().syn().mss(1176));
    p.expect().syn_ack();
    assert!(!Peer::new().stack.keep_verifier_messages(), "no encapsulation, no port");
}

#[test]
fn a_bounded_number_waits() {
    let mut p = on(false);
    p.stack.keep_verifier_messages();
    for number in 0..100 {
        send(&mut p, (THEIRS, OURS), &message(number));
    }
    let kept: Vec<_> = std::iter::from_fn(|| p.stack.poll_verifier_message()).collect();
    assert_eq!(kept.len(), 64);
    assert_eq!(*kept[63].bytes, message(63), "the first ones");
    assert_eq!(p.stack.counters().dropped(PacketDrop::VerifierQueueFull), 36);
    send(&mut p, (THEIRS, OURS), &message(200));
    assert!(p.stack.poll_verifier_message().is_some());
}
