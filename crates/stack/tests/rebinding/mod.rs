//! A stack in UDP, its peer, and the messages of the encapsulation between them.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::peer::{PORT, Peer, Seg, seg};
use firstflight_stack::{ConnId, EncapsulationConfig};
use firstflight_wire::encapsulation::{Carried, Control, PathProof};
use firstflight_wire::ip::Packet;
use firstflight_wire::udp::Datagram;
use std::collections::BTreeSet;

/// The stack's UDP port, and the peer's.
pub(crate) const OURS: u16 = 4433;
pub(crate) const THEIRS: u16 = 5000;
pub(crate) const NEW: u16 = 6000;

pub(crate) fn new() -> Peer {
    let mut p = Peer::with(|config| config.encapsulation = Some(EncapsulationConfig::new(OURS)));
    p.outer = Some((THEIRS, OURS));
    p
}

/// A connection that the peer opened from [`THEIRS`], and one byte of the stack's data that is not acknowledged.
pub(crate) fn server() -> (Peer, ConnId) {
    let mut p = new();
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1176));
    p.write(id, b"x");
    p.expect();
    (p, id)
}

/// A connection that the stack opened to [`PORT`]. The SYN-ACK has these options and comes after `rtt` milliseconds.
pub(crate) fn client(options: Seg, rtt: u64) -> (Peer, ConnId) {
    let mut p = new();
    p.port = PORT;
    let id = p.connect(b"", false);
    p.expect().is_syn();
    p.pass(rtt);
    p.send(options.syn().ack(1));
    p.expect().is_ack();
    (p, id)
}

/// Sends a segment from this UDP port of the peer.
pub(crate) fn from(p: &mut Peer, port: u16, segment: Seg) {
    let outer = p.outer.replace((port, OURS));
    p.send(segment);
    p.outer = outer;
}

/// The messages that were sent: the port, and the message.
pub(crate) fn controls(p: &mut Peer) -> Vec<(u16, Control)> {
    p.pump();
    let read = |packet: Vec<u8>| {
        let ip = Packet::parse(&packet).unwrap();
        let datagram = Datagram::parse(ip.payload).unwrap();
        match Carried::parse(datagram.payload).unwrap() {
            Carried::Control(control) => (datagram.dst_port, control),
            Carried::Segment(_) => panic!("a segment"),
        }
    };
    p.others.drain(..).map(read).collect()
}

/// The challenges that were sent, with their ports.
pub(crate) fn challenges(p: &mut Peer) -> Vec<(u16, PathProof)> {
    let challenge = |(port, control)| match control {
        Control::PathChallenge(proof) => (port, proof),
        other => panic!("{other:?}"),
    };
    controls(p).into_iter().map(challenge).collect()
}

/// The challenges that follow a segment from the first of `ports`: to that port, to the connection's own port, and
/// to its previous port.
pub(crate) fn asked<const N: usize>(p: &mut Peer, ports: [u16; N]) -> [PathProof; N] {
    let sent = challenges(p);
    let to: Vec<u16> = sent.iter().map(|one| one.0).collect();
    assert_eq!(to, ports);
    let bits: BTreeSet<u64> = sent.iter().map(|one| one.1.bits).collect();
    assert_eq!(bits.len(), N);
    let proofs = sent.iter().map(|one| one.1);
    assert!(proofs.clone().all(|proof| (proof.src_port, proof.dst_port) == (p.local_port, p.port)));
    proofs.collect::<Vec<_>>().try_into().unwrap()
}

pub(crate) fn control(p: &mut Peer, port: u16, control: Control) {
    let mut payload = [0; PathProof::MESSAGE];
    let len = control.emit(&mut payload).unwrap();
    let packet = p.udp((port, OURS), &payload[..len]);
    p.inject(&packet);
}

/// The response to a challenge, from this port of the peer.
pub(crate) fn respond(p: &mut Peer, port: u16, proof: PathProof) {
    let PathProof { src_port, dst_port, bits } = proof;
    control(p, port, Control::PathResponse(PathProof { src_port: dst_port, dst_port: src_port, bits }));
}

pub(crate) fn at(p: &Peer, id: ConnId) -> u16 {
    p.stack.info(id).unwrap().encapsulation.unwrap()
}

pub(crate) fn moves(p: &Peer) -> u64 {
    p.stack.counters().encapsulation_paths_moved
}
