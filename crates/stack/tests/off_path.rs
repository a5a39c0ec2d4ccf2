//! What an off-path attacker can see of other connections.

use crate::peer::{PORT, Peer, Seg, seg};
use firstflight_stack::{EncapsulationConfig, ListenConfig};
use firstflight_wire::ip::Protocol;
use std::net::SocketAddr;

/// A port whose listener answers with SYN cookies only.
const COOKIES: u16 = 81;
/// A closed port.
const CLOSED: u16 = 82;

/// The stack's answers to the attacker's probes: RST, SYN-ACK, SYN cookie, echo reply.
fn probe(p: &mut Peer, port: u16) -> Vec<Vec<u8>> {
    p.moves_to("10.0.0.66");
    for (n, to) in [CLOSED, PORT, COOKIES].into_iter().enumerate() {
        p.flow(port + n as u16, 7);
        p.local_port = to;
        p.send(seg().syn().mss(1460));
    }
    // An echo request; its checksum is that of its five words.
    let echo = [8, 0, 0xf7, 0xfd, 0, 1, 0, 1];
    let packet = p.ip(Protocol::Icmp, &echo);
    p.inject(&packet);
    let segments = p.drain().into_iter().map(|got| got.packet);
    let seen: Vec<Vec<u8>> = segments.chain(p.others.drain(..)).collect();
    assert_eq!(seen.len(), 4);
    seen
}

/// The attacker probes before and after it forges a segment of a connection from 10.0.0.2. Returns the answers that the
/// attacker sees, and whether the stack answered the forged segment.
fn forge(forged: Seg) -> (Vec<Vec<u8>>, bool) {
    let mut p = Peer::new();
    let listener = p.listen();
    let mut cookies = ListenConfig::new(SocketAddr::new(p.local().ip(), COOKIES));
    cookies.syn_backlog = 0;
    p.stack.listen(cookies).unwrap();
    let (port, isn) = (p.port, p.isn);
    p.open_passive(listener, seg().mss(1460));
    let mut seen = probe(&mut p, 50_000);
    p.moves_to("10.0.0.2");
    p.flow(port, isn);
    p.local_port = PORT;
    p.send(forged);
    let answered = !p.drain().is_empty();
    seen.extend(probe(&mut p, 60_000));
    (seen, answered)
}

/// A RST inside the window causes a challenge ACK (RFC 5961), and one outside does not. With a counter in the IP
/// headers an attacker saw the difference, and found the window and its edge by search, instead of guessing one number
/// in 2³².
#[test]
fn a_stranger_cannot_tell_whether_a_challenge_ack_left() {
    let (unseen, answered) = forge(seg().seq(0x8000_0000).rst());
    assert!(!answered, "a RST outside the window is dropped");
    for (name, forged) in [
        ("RST in the window", seg().seq(1_000).rst()),
        ("SYN", seg().seq(0x8000_0000).syn()),
        ("data with an ACK of what was never sent", seg().seq(1).ack(0x4000_0000).bytes(1)),
    ] {
        let (seen, answered) = forge(forged);
        assert!(answered, "{name}");
        assert_eq!(seen, unseen, "{name}");
    }
}

/// RFC 6864 §4.1: no packet may be fragmented, so the identification has no meaning and is zero, in UDP datagrams too.
/// `Peer` checks that for every packet of these tests.
#[test]
fn no_packet_has_an_identification() {
    let mut p = Peer::with(|c| c.encapsulation = Some(EncapsulationConfig::new(4433)));
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1460));
    p.write(id, &[1; 5_000]);
    p.pass(3_000);
    let sent = p.drain();
    assert!(sent.len() > 4 && sent.iter().all(|got| got.packet[4..8] == [0, 0, 0x40, 0]));
    p.outer = Some((5_000, 4_433));
    p.flow(41_000, 9);
    let id = p.open_passive(listener, seg().mss(1460));
    p.write(id, &[1; 5_000]);
    p.pass(3_000);
    let sent = p.drain();
    assert!(sent.len() > 4 && sent.iter().all(|got| got.packet[4..8] == [0, 0, 0x40, 0]));
}
