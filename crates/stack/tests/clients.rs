//! The limit of connections for each client, and resets when memory is short.

use crate::peer::{PORT, Peer, seg};
use firstflight_stack::{CloseReason, Config, ConnId, ListenerId, StateName};

const HERE: &str = "10.0.0.2";
const ELSEWHERE: &str = "10.0.0.77";

/// A server with these settings.
fn server(tune: impl FnOnce(&mut Config)) -> (Peer, ListenerId) {
    let mut p = Peer::with(tune);
    let listener = p.listen();
    (p, listener)
}

/// The client at `ip` connects from its `n`-th port.
fn open(p: &mut Peer, listener: ListenerId, ip: &str, n: u16) -> ConnId {
    turn(p, ip, n);
    p.open_passive(listener, seg().mss(1460))
}

/// From now on `p` sends on this connection of the client.
fn turn(p: &mut Peer, ip: &str, n: u16) {
    p.moves_to(ip);
    p.flow(20_000 + n, 1_000 * u32::from(n));
    p.local_port = PORT;
}

/// The client, which has reached its limit, connects from its `n`-th port. Returns the number of the port whose
/// connection is reset.
fn reset_by(p: &mut Peer, n: u16) -> u16 {
    turn(p, HERE, n);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    p.send(seg().seq(1).ack(1));
    let reset = p.expect().is_rst();
    p.quiet();
    reset.port - 20_000
}

/// 24 clients behind one address with several connections each stay below a limit of 256. The connection that exceeds
/// it is reset, and a client at another address is not affected.
#[test]
fn one_client_has_so_many_connections_and_no_more() {
    let (mut p, listener) = server(|c| c.limits.connections_per_client = Some(256));
    let office: Vec<ConnId> = (0..24 * 8).map(|n| open(&mut p, listener, HERE, n)).collect();
    assert!(office.iter().all(|id| p.state(*id) == StateName::Established));
    for n in 192..256 {
        open(&mut p, listener, HERE, n);
    }
    assert_eq!(p.stack.connections(), 256);
    assert_eq!(reset_by(&mut p, 256), 256);
    assert_eq!((p.stack.connections(), p.stack.counters().clients_limited), (256, 1));
    let other = open(&mut p, listener, ELSEWHERE, 0);
    assert_eq!(p.state(other), StateName::Established);
    // A connection that ends leaves its place to another one.
    turn(&mut p, HERE, 7);
    p.send(seg().seq(1).rst());
    assert_eq!(p.reason(office[7]), Some(CloseReason::Reset));
    p.release(office[7]);
    let again = open(&mut p, listener, HERE, 300);
    assert_eq!(p.state(again), StateName::Established);
    assert_eq!(p.stack.counters().clients_limited, 1);
}

/// A connection whose peer accepts nothing is replaced, the longest stuck first. Others of the same address go on.
#[test]
fn a_slow_reader_makes_way_for_its_own_client() {
    let (mut p, listener) = server(|c| c.limits.connections_per_client = Some(4));
    let ids: Vec<ConnId> = (0..4).map(|n| open(&mut p, listener, HERE, n)).collect();
    for (n, id) in [(2, ids[2]), (1, ids[1])] {
        turn(&mut p, HERE, n);
        p.write(id, &[0; 60_000]);
        p.drain();
        p.send(seg().seq(1).ack(14_601).win(0));
        p.pass(1_000);
        // A released connection still counts, since its data still waits.
        p.release(id);
        p.drain();
    }
    p.pass(2_000);
    p.drain();
    assert_eq!(reset_by(&mut p, 4), 4, "none has been stuck for long enough");
    p.pass(5_000);
    p.drain();
    // First the stuck connections, in order; then the new one itself.
    assert_eq!([5, 6, 7].map(|n| reset_by(&mut p, n)), [2, 1, 7]);
    assert_eq!(p.stack.counters().clients_limited, 4);
    assert_eq!((p.state(ids[0]), p.state(ids[3])), (StateName::Established, StateName::Established));
    assert_eq!((p.stack.connections(), p.stack.buffer_bytes()), (4, 0));
}

/// A SYN with a forged source address does not count for that host.
#[test]
fn a_forged_syn_takes_no_place_of_its_victim() {
    let (mut p, listener) = server(|c| c.limits.connections_per_client = Some(4));
    for n in 0..50 {
        turn(&mut p, HERE, n);
        p.send(seg().syn().mss(1460));
        p.expect().syn_ack();
    }
    let ids: Vec<ConnId> = (100..104).map(|n| open(&mut p, listener, HERE, n)).collect();
    assert!(ids.iter().all(|id| p.state(*id) == StateName::Established));
    assert_eq!(p.stack.counters().clients_limited, 0);
}

/// When peers that accept nothing use up the memory, they are reset, and a client that reads is served.
#[test]
fn slow_readers_make_way_when_memory_is_short() {
    let (mut p, listener) = server(|c| c.limits.buffer_bytes = 64 << 16);
    for n in 0..64 {
        let id = open(&mut p, listener, HERE, n);
        p.send(seg().seq(1).ack(1).win(0));
        p.write(id, &[0; 1 << 16]);
    }
    assert_eq!(p.stack.buffer_bytes(), 64 << 16);
    let reader = open(&mut p, listener, ELSEWHERE, 0);
    // At first they are not stuck for long enough.
    assert!(p.stack.write(reader, &[0; 20_000], p.now).is_err());
    assert_eq!(p.stack.connections(), 65);
    for _ in 0..10 {
        turn(&mut p, HERE, 0);
        p.pass(1_000);
        p.drain();
    }
    turn(&mut p, ELSEWHERE, 0);
    assert!(p.stack.write(reader, &[0; 20_000], p.now).is_err());
    assert_eq!(p.stack.counters().stuck_reset, 4);
    assert_eq!(p.stack.write(reader, &[0; 20_000], p.now), Ok(20_000));
    assert_eq!(p.state(reader), StateName::Established);
}

/// Clients that wait for notifications do not read anything before. When the server writes to all of them at once, and
/// has no memory for the last ones, none of them is reset: what was written to them has not even been sent.
#[test]
fn clients_that_waited_for_news_are_not_reset_for_it() {
    let (mut p, listener) = server(|c| c.limits.buffer_bytes = 32 << 16);
    let ids: Vec<ConnId> = (0..64).map(|n| open(&mut p, listener, HERE, n)).collect();
    for _ in 0..10 {
        p.pass(1_000);
        p.drain();
    }
    let now = p.now;
    for id in &ids {
        let _ = p.stack.write(*id, &[0; 1 << 16], now);
    }
    let late = ids.iter().find(|id| p.stack.write(**id, &[0; 1 << 16], now).is_err());
    assert!(late.is_some(), "the memory is not all taken: {}", p.stack.buffer_bytes());
    assert_eq!(p.stack.counters().stuck_reset, 0);
    assert_eq!(p.stack.connections(), 64);
}
