//! TCP in UDP: an attacker knows four ports but not the numbers of a connection, and tries to find, hold or disturb
//! it.

use crate::peer::{CLIENT_PORT, PORT, Peer, seg};
use crate::rebinding::{NEW, OURS, THEIRS, at, challenges, client, control, from, new, respond, server};
use firstflight_wire::encapsulation::{Control, PathProof};

/// Wrong numbers get a RST and right ones a challenge, which an attacker behind the same translator sees. So the server
/// answers neither after 64 wrong ones.
#[test]
fn a_search_for_the_numbers_ends_in_silence() {
    let (mut p, id) = server();
    for n in 0..64 {
        from(&mut p, NEW, seg().seq(1 << 30).ack(1 + n));
        p.expect().is_rst();
    }
    for _ in 0..1_000 {
        from(&mut p, NEW, seg().seq(1 << 30).ack(1));
        from(&mut p, NEW, seg().seq(1).ack(1));
    }
    assert!(challenges(&mut p).is_empty());
    p.quiet();
    // At its own port the connection continues.
    from(&mut p, THEIRS, seg().seq(1).ack(2).data(b"x"));
    p.drain();
    assert_eq!(p.read(id), b"x");
    // A minute later the client may move again.
    p.pass(60_000);
    from(&mut p, NEW, seg().seq(2).ack(2));
    let sent = challenges(&mut p);
    respond(&mut p, NEW, sent[0].1);
    assert_eq!(at(&p, id), NEW);
}

/// Half-open connections of forged SYNs with the same inner port take all eight places before the client.
#[test]
fn forged_syns_do_not_keep_a_connection_from_moving() {
    let mut p = new();
    let listener = p.listen();
    for n in 0..8u16 {
        p.outer = Some((THEIRS + 100 + n, OURS));
        p.flow(CLIENT_PORT, u32::from(n) << 20);
        p.send(seg().syn().mss(1176));
        p.drain();
    }
    p.outer = Some((THEIRS, OURS));
    p.flow(CLIENT_PORT, 0x7000_0000);
    let id = p.open_passive(listener, seg().mss(1176));
    from(&mut p, NEW, seg().seq(1).ack(1).data(b"moved"));
    let sent = challenges(&mut p);
    respond(&mut p, NEW, sent[0].1);
    assert_eq!(at(&p, id), NEW);
}

/// Forged SYNs take no place of an open connection.
#[test]
fn forged_syns_push_no_connection_out() {
    let (mut p, id) = server();
    p.send(seg().seq(1).ack(2));
    p.write(id, b"y");
    let next = p.expect().raw_seq + 1;
    let client = (p.port, p.isn);
    for n in 0..20u16 {
        p.outer = Some((THEIRS + 100 + n, OURS));
        p.flow(CLIENT_PORT, u32::from(n) << 20);
        p.send(seg().syn().mss(1176));
        p.drain();
    }
    p.flow(client.0, client.1);
    p.outer = Some((THEIRS, OURS));
    from(&mut p, NEW, seg().seq(1).raw_ack(next));
    let sent = challenges(&mut p);
    respond(&mut p, NEW, sent[0].1);
    assert_eq!(at(&p, id), NEW);
}

/// A connection that the stack opened, with `data` in flight for 60 ms, and a forged challenge for it.
fn challenged(data: &[u8], rtt: u64) -> (Peer, firstflight_stack::ConnId, Control) {
    let (mut p, id) = client(seg().mss(1176).sack_ok(), rtt);
    p.write(id, data);
    p.drain();
    let forged = Control::PathChallenge(PathProof { src_port: PORT, dst_port: p.local_port, bits: 7 });
    (p, id, forged)
}

#[test]
fn a_forged_challenge_repeats_one_segment_and_leaves_the_window() {
    let (mut p, id, forged) = challenged(&[7; 1176 * 10], 100);
    p.pass(60);
    // This is only reordering.
    p.send(seg().seq(1).ack(1).sack(&[(1 + 1176, 1 + 2 * 1176)]));
    p.drain();
    let before = p.stack.info(id).unwrap().cwnd;
    control(&mut p, THEIRS, forged);
    assert!(p.drain().len() <= 1);
    assert_eq!(p.stack.info(id).unwrap().cwnd, before);
}

#[test]
fn forged_challenges_do_not_keep_a_dead_connection() {
    let (mut p, id, forged) = challenged(b"data", 100);
    let ended = (0..4 * 360).any(|_| {
        control(&mut p, THEIRS, forged);
        p.pass(10_000);
        p.drain();
        p.others.clear();
        p.reason(id).is_some()
    });
    assert!(ended, "after four hours: {:?}", p.state(id));
}

#[test]
fn forged_challenges_on_a_path_without_delay_repeat_little() {
    let (mut p, _, forged) = challenged(&[7; 1176], 0);
    for _ in 0..1_000 {
        control(&mut p, THEIRS, forged);
    }
    assert!(p.drain().len() <= 1);
}
