//! Path-MTU probing in UDP (RFC 8899), segment by segment: losses with a probe, losses before it, and reports of
//! routers.

use crate::peer::{Got, Peer, Seg, seg};
use firstflight_stack::{ConnId, EncapsulationConfig};
use firstflight_wire::icmp::IcmpErrorKind;

/// Payloads that pass everywhere, and the payload of the first probe.
const BASE: u32 = 1176;
const PROBE: u32 = 1428 - 20 - 12 - 20;
/// Bytes of headers below the segment in a packet.
const BELOW: u32 = 20 + 12 + 20;

fn stream(len: u32) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// The peer in UDP, with an open connection of a listener that has sent nothing.
fn open() -> (Peer, ConnId) {
    let mut p = Peer::with(|config| config.encapsulation = Some(EncapsulationConfig::new(4433)));
    p.outer = Some((5000, 4433));
    p.handshake_ms = 50;
    let listener = p.listen();
    let id = p.open_passive(listener, seg().syn().mss(1448).sack_ok());
    p.drain();
    (p, id)
}

fn sizes(got: &[Got]) -> Vec<u32> {
    got.iter().map(|got| got.data.len() as u32).collect()
}

/// An acknowledgement of everything below `ack`, and of the bytes between these numbers.
fn sack(ack: u32, blocks: &[(u32, u32)]) -> Seg {
    seg().seq(1).ack(ack).sack(blocks)
}

fn cwnd(p: &Peer, id: ConnId) -> u32 {
    p.stack.info(id).unwrap().cwnd
}

fn mss(p: &Peer, id: ConnId) -> u32 {
    p.stack.info(id).unwrap().mss.into()
}

/// The stream's number of the `n`-th segment after the probe.
fn behind(n: u32) -> u32 {
    1 + PROBE + n * BASE
}

/// A probe and six segments are sent, and the probe is lost.
fn lost_probe() -> (Peer, ConnId) {
    let (mut p, id) = open();
    p.write(id, &stream(PROBE + 6 * BASE));
    assert_eq!(sizes(&p.drain()), [PROBE, BASE, BASE, BASE, BASE, BASE, BASE]);
    p.pass(50);
    for n in 1..4 {
        p.send(sack(1, &[(behind(0), behind(n))]));
    }
    let again = p.drain();
    // The data is retransmitted in segments of the old size.
    assert_eq!(again.iter().map(|got| got.seq).collect::<Vec<_>>(), [1, 1 + BASE]);
    assert_eq!(sizes(&again), [BASE, PROBE - BASE]);
    (p, id)
}

#[test]
fn a_lost_probe_alone_costs_no_window() {
    let (mut p, id) = lost_probe();
    let before = cwnd(&p, id);
    p.send(sack(1, &[(behind(0), behind(6))]));
    p.send(sack(behind(6), &[]));
    p.quiet();
    assert!(cwnd(&p, id) >= before, "{} of {before}", cwnd(&p, id));
    assert_eq!(mss(&p, id), BASE);
}

/// The last but one segment is lost, too, with too few segments after it for three duplicates.
#[test]
fn a_loss_near_the_end_behind_a_lost_probe_is_congestion() {
    let (mut p, id) = lost_probe();
    let before = cwnd(&p, id);
    p.send(sack(1, &[(behind(0), behind(4))]));
    p.send(sack(1, &[(behind(0), behind(4)), (behind(5), behind(6))]));
    p.send(sack(behind(4), &[(behind(5), behind(6))]));
    assert_eq!(p.drain().last().map(|got| got.seq), Some(behind(4)));
    p.send(sack(behind(6), &[]));
    p.quiet();
    assert!(cwnd(&p, id) < before, "{} of {before}", cwnd(&p, id));
}

/// A probe that is SACKed has arrived, but it counts only when everything before it has arrived, too.
#[test]
fn a_loss_before_a_probe_is_congestion_and_the_probe_counts() {
    let (mut p, id) = open();
    p.write(id, &stream(1000));
    p.write(id, &stream(PROBE + 4 * BASE));
    assert_eq!(sizes(&p.drain()), [1000, PROBE, BASE, BASE, BASE, BASE]);
    let before = cwnd(&p, id);
    p.pass(50);
    for n in 0..4 {
        p.send(sack(1, &[(1001, 1001 + PROBE + n * BASE)]));
    }
    assert_eq!(mss(&p, id), BASE);
    let again = p.expect().seq(1);
    assert!(again.data.len() as u32 <= BASE);
    p.drain();
    p.send(sack(1001 + PROBE + 4 * BASE, &[]));
    assert!(cwnd(&p, id) < before);
    assert_eq!(mss(&p, id), PROBE);
}

/// A router reports a size while a probe is in flight. A size that everybody takes or less is believed at once, and
/// nothing larger is tried.
#[test]
fn a_router_that_takes_less_ends_the_search() {
    let (mut p, id) = open();
    let data = stream(40_000);
    p.write(id, &data);
    let sent = p.drain();
    assert_eq!(sent[0].data.len() as u32, PROBE);
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 1100 }, &sent[0].packet);
    let mut read = vec![0; data.len()];
    let mut acked = 1;
    for _ in 0..200 {
        p.pass(20);
        for got in p.drain() {
            assert!(got.data.len() as u32 <= 1100 - BELOW, "{}", got.data.len());
            let at = got.seq as usize - 1;
            read[at..at + got.data.len()].copy_from_slice(&got.data);
            // Segments are in order, because nothing is lost from here on.
            acked = acked.max(got.seq + got.data.len() as u32);
        }
        p.send(sack(acked, &[]));
    }
    assert_eq!(acked, 40_001);
    assert_eq!(read, data);
    p.pass(700_000);
    p.write(id, &stream(20_000));
    assert!(sizes(&p.drain()).iter().all(|len| *len <= 1100 - BELOW));
}

/// A router reports a size between the one in use and the one that was tried. That changes nothing: the probe is
/// lost, and the search pauses.
#[test]
fn a_router_that_takes_more_than_is_in_use_changes_nothing() {
    let (mut p, id) = open();
    p.write(id, &stream(PROBE + 6 * BASE));
    let sent = p.drain();
    p.icmp(IcmpErrorKind::PacketTooBig { mtu: 1300 }, &sent[0].packet);
    p.quiet();
    p.pass(50);
    for n in 1..4 {
        p.send(sack(1, &[(behind(0), behind(n))]));
    }
    assert_eq!(sizes(&p.drain()), [BASE, PROBE - BASE]);
    p.send(sack(behind(6), &[]));
    p.write(id, &stream(20_000));
    let sent = p.drain();
    assert!(sizes(&sent).iter().all(|len| *len <= BASE));
    p.pass(50);
    p.send(sack(behind(6) + sizes(&sent).iter().sum::<u32>(), &[]));
    assert!(sizes(&p.drain()).iter().all(|len| *len <= BASE));
}

/// A peer that reduces its window during a probe gets the missing data in segments of the old size.
#[test]
fn a_window_that_closes_under_a_probe() {
    let (mut p, id) = open();
    p.write(id, &stream(PROBE + 6 * BASE));
    p.drain();
    p.pass(50);
    p.send(seg().seq(1).ack(1).win(0));
    p.pass(300_000);
    let again = p.drain();
    assert!(again.len() > 2 && again.iter().all(|got| got.seq < behind(0) && got.data.len() as u32 <= BASE));
    p.send(sack(1, &[]));
    p.pass(120_000);
    let most = p.drain().iter().map(|got| got.data.len() as u32).max();
    assert_eq!(most, Some(BASE));
    p.send(sack(behind(6), &[]));
    assert_eq!(mss(&p, id), BASE);
}
