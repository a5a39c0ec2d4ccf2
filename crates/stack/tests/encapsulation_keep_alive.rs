//! TCP in UDP: keep-alives and resets of the encapsulation, which belong to two UDP ports.

use crate::peer::{Peer, seg};
use firstflight_stack::{CloseReason, ConnId, EncapsulationConfig, StateName};
use firstflight_wire::ip::Packet;
use firstflight_wire::udp::Datagram;
use std::time::Duration;

/// The stack's UDP port.
const OURS: u16 = 4433;
/// The peer's UDP port.
const THEIRS: u16 = 5000;
const KEEP_ALIVE: [u8; 4] = [9, 0, 0, 1];
const RESET: [u8; 4] = [9, 0, 0, 2];

/// Keep-alives that are equally far apart.
fn regular() -> EncapsulationConfig {
    EncapsulationConfig::new(OURS).first_keep_alive(Duration::MAX)
}

fn new() -> Peer {
    with(regular())
}

fn with(encapsulation: EncapsulationConfig) -> Peer {
    let mut p = Peer::with(|config| config.encapsulation = Some(encapsulation));
    p.outer = Some((THEIRS, OURS));
    p
}

/// The UDP payloads that were sent and are not segments.
fn controls(p: &mut Peer) -> Vec<Vec<u8>> {
    p.pump();
    let payload = |packet: Vec<u8>| {
        let ip = Packet::parse(&packet).unwrap();
        Datagram::parse(ip.payload).unwrap().payload.to_vec()
    };
    p.others.drain(..).map(payload).collect()
}

fn control(p: &mut Peer, outer: (u16, u16), message: [u8; 4]) {
    let packet = p.udp(outer, &message);
    p.inject(&packet);
}

/// A connection that the stack opened in UDP.
fn opened(p: &mut Peer) -> ConnId {
    p.open_active(seg().mss(1176))
}

/// A connection that the peer opened.
fn child(p: &mut Peer) -> ConnId {
    let listener = p.listen();
    p.open_passive(listener, seg().mss(1176))
}

/// By default keep-alives last as long as the application holds the connection: here six hours, then it releases
/// it.
#[test]
fn keep_alives_last_as_long_as_the_application_holds_the_connection() {
    let mut p = new();
    let id = opened(&mut p);
    // Each may be a tick of the timer wheel late.
    for n in 1..80 {
        p.at(n * 15_000 - 5);
        assert!(p.others.is_empty(), "before {} s", n * 15);
        p.at(n * 15_000 + n);
        assert_eq!(controls(&mut p), [KEEP_ALIVE], "at {} s", n * 15);
    }
    p.pass(6 * 3_600_000);
    let sent = controls(&mut p).len();
    assert!((1_430..=1_440).contains(&sent), "{sent}");
    // Anything that is sent restarts the interval.
    p.write(id, b"x");
    p.expect();
    p.send(seg().seq(1).ack(2));
    p.pass(15_005);
    assert_eq!(controls(&mut p), [KEEP_ALIVE]);
    assert_eq!(p.state(id), StateName::Established);
    p.quiet();
    // After the release the connection closes without keep-alives: the peer has acknowledged the FIN, and its own
    // FIN is missing.
    p.release(id);
    p.expect();
    p.send(seg().seq(1).ack(3));
    assert_eq!(p.state(id), StateName::FinWait2);
    p.pass(30_000);
    assert!(p.others.is_empty());
}

#[test]
fn keep_alives_can_be_ended_some_time_after_the_last_segment() {
    let mut p = Peer::with(|config| {
        let keep_alive_for = Some(Duration::from_secs(20 * 60));
        config.encapsulation = Some(regular().keep_alive_for(keep_alive_for));
    });
    p.outer = Some((THEIRS, OURS));
    let id = opened(&mut p);
    p.pass(3 * 3_600_000);
    assert_eq!(p.stack.counters().keep_alives_sent, 79);
    // Anything that is sent restarts the interval.
    p.others.clear();
    p.write(id, b"x");
    p.expect();
    p.send(seg().seq(1).ack(2));
    p.pass(15_005);
    assert_eq!(controls(&mut p), [KEEP_ALIVE]);
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
    child(&mut p);
    p.pass(100_000);
    assert!(p.others.is_empty());
    p.quiet();
}

#[test]
fn keep_alives_can_be_turned_off_and_set() {
    for (every, count) in [(None, 0), (Some(Duration::from_secs(5)), 6)] {
        let mut p = Peer::with(|config| {
            config.encapsulation = Some(regular().keep_alive(every));
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
    child(&mut p);
    control(&mut p, (THEIRS, OURS), KEEP_ALIVE);
    assert!(p.others.is_empty(), "there is a connection");
    control(&mut p, (THEIRS + 1, OURS), KEEP_ALIVE);
    assert_eq!(controls(&mut p), [RESET]);
    assert_eq!(p.stack.counters().encapsulation_resets_sent, 2);
}

/// An attacker who guesses two ports can forge a reset. It makes the connection send a probe, and the answer
/// decides.
#[test]
fn a_reset_of_the_encapsulation_makes_a_connection_ask() {
    let mut p = new();
    let id = opened(&mut p);
    control(&mut p, (THEIRS, OURS), RESET);
    p.quiet();
    p.pass(15_005);
    assert_eq!(controls(&mut p), [KEEP_ALIVE]);
    // One reset is accepted for each keep-alive.
    for _ in 0..10 {
        control(&mut p, (THEIRS, OURS), RESET);
    }
    p.expect().is_ack().seq(0).ack(1);
    p.quiet();
    assert_eq!(p.stack.counters().encapsulation_resets_believed, 1);
    p.send(seg().seq(1).ack(1));
    assert_eq!(p.state(id), StateName::Established, "the peer has it still");
    p.pass(15_005);
    control(&mut p, (THEIRS, OURS), RESET);
    let probe = p.expect().is_ack();
    p.send(seg().rst().seq(probe.ack));
    assert_eq!(p.reason(id), Some(CloseReason::Reset), "the peer has it no more");
}

#[test]
fn a_reset_of_the_encapsulation_asks_for_sixteen_connections_at_most_and_for_all_in_turn() {
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

/// The first one is sent soon: a client that waits for a response sends nothing else, and its port may change
/// meanwhile.
#[test]
fn keep_alives_begin_soon_after_the_last_segment_and_then_get_rare() {
    let mut p = with(EncapsulationConfig::new(OURS));
    let id = opened(&mut p);
    for again in 0..3 {
        let begun = p.ms();
        let mut count = 0;
        for seconds_after in [0.25, 0.75, 1.75, 3.75, 7.75, 15.75, 30.75] {
            let at = begun + (seconds_after * 1000.0) as u64;
            p.at(at - 10);
            assert_eq!(p.others.len(), count, "{again}: before {seconds_after} s");
            p.at(at + 20);
            count += 1;
            assert_eq!(p.others.len(), count, "{again}: at {seconds_after} s");
        }
        assert_eq!(controls(&mut p), vec![KEEP_ALIVE.to_vec(); count]);
        // A segment restarts the intervals.
        p.write(id, b"x");
        p.expect();
        p.send(seg().seq(1).ack(2 + again));
    }
}
