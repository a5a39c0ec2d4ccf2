//! TCP in UDP: attackers that try to move another client's connection to their UDP port, and what that costs the
//! server.

use crate::peer::{CLIENT_PORT, PORT, Peer, Seg, seg};
use crate::rebinding::{
    NEW, OURS, THEIRS, asked, at, challenges, client, control, controls, from, moves, new, respond, server,
};
use firstflight_stack::{ConnId, PacketDrop, StateName};
use firstflight_wire::encapsulation::{Control, PathProof};

#[test]
fn a_segment_from_another_port_is_not_taken_and_the_response_moves_the_connection() {
    let (mut p, id) = server();
    from(&mut p, NEW, seg().seq(1).ack(2).data(b"stolen"));
    p.quiet();
    let [new, _] = asked(&mut p, [NEW, THEIRS]);
    assert_eq!((p.read(id), at(&p, id)), (b"".to_vec(), THEIRS));
    assert_eq!(p.stack.counters().dropped(PacketDrop::UncheckedPath), 1);
    // Until the response comes, everything goes to the old port, and segments from there are accepted.
    p.send(seg().seq(1).ack(2).data(b"ours"));
    assert_eq!(p.read(id), b"ours");
    p.write(id, b"more");
    assert_eq!(p.expect().data(b"more").outer, Some((THEIRS, OURS)));
    respond(&mut p, NEW, new);
    assert_eq!((at(&p, id), moves(&p)), (NEW, 1));
    // The stack sends at once an ACK of what it has, and repeats at once what is not acknowledged.
    let again = p.expect().data(b"more").ack(5);
    assert_eq!(again.outer, Some((NEW, OURS)));
    assert_eq!(p.stack.counters().resets_sent, 0);
}

/// Only a segment that the connection would accept begins a check. All others get the usual RST.
#[test]
fn a_segment_with_wrong_numbers_begins_no_check() {
    for timestamps in [false, true] {
        let mut p = new();
        let listener = p.listen();
        let syn = if timestamps { seg().mss(1176).ts(100) } else { seg().mss(1176) };
        let id = p.open_passive(listener, syn);
        p.write(id, b"x");
        let clock = p.expect().ts.map_or(0, |ts| ts.value);
        let right = |segment: Seg| {
            if timestamps { segment.ts_echo(101, clock) } else { segment }
        };
        let mut wrong = vec![
            // Beyond the window, long before it, acknowledging what was not sent, and too old.
            right(seg().seq(1 + (16 << 20)).ack(2)),
            right(seg().seq(1u32.wrapping_sub(16 << 20)).ack(2)),
            right(seg().seq(1).ack(3)),
            right(seg().seq(1).ack(1u32.wrapping_sub(1 << 20))),
        ];
        if timestamps {
            wrong.push(seg().seq(1).ack(2));
            wrong.push(seg().seq(1).ack(2).ts_echo(99, clock));
            wrong.push(seg().seq(1).ack(2).ts_echo(101, clock.wrapping_add(1)));
        }
        for segment in wrong {
            let what = format!("{segment:?}");
            from(&mut p, NEW, segment);
            assert!(controls(&mut p).is_empty(), "{what}");
            p.expect().is_rst();
        }
        // Segments without ACK, a SYN, a RST.
        from(&mut p, NEW, right(seg().seq(1).ack(2).rst()));
        assert!(controls(&mut p).is_empty());
        p.quiet();
        from(&mut p, NEW, right(seg().seq(1).ack(2)));
        asked(&mut p, [NEW, THEIRS]);
        // A number below the window is right: what was acknowledged to the old port comes again.
        p.pass(200);
        p.drain();
        from(&mut p, NEW, right(seg().seq(0).ack(2)));
        asked(&mut p, [NEW, THEIRS]);
        assert_eq!((at(&p, id), p.stack.counters().encapsulation_paths_checked), (THEIRS, 2));
    }
}

#[test]
fn bits_are_good_only_from_the_port_that_they_were_sent_to_and_only_once() {
    let (mut p, id) = server();
    from(&mut p, NEW, seg().seq(1).ack(2));
    let [new, old] = asked(&mut p, [NEW, THEIRS]);
    // From a third port, from each other's port, with other inner ports, with guessed bits.
    respond(&mut p, NEW + 1, new);
    respond(&mut p, THEIRS, new);
    respond(&mut p, NEW, old);
    respond(&mut p, NEW, PathProof { dst_port: CLIENT_PORT + 1, ..new });
    respond(&mut p, NEW, PathProof { src_port: PORT + 1, ..new });
    respond(&mut p, NEW, PathProof { bits: new.bits ^ 1, ..new });
    // From another address.
    p.moves_to("10.0.0.3");
    respond(&mut p, NEW, new);
    p.moves_to("10.0.0.2");
    assert_eq!((at(&p, id), moves(&p)), (THEIRS, 0));
    respond(&mut p, NEW, new);
    assert_eq!((at(&p, id), moves(&p)), (NEW, 1));
    // Everything is replayed after another move.
    p.pass(31_000);
    p.drain();
    assert!(challenges(&mut p).iter().all(|asked| *asked == (THEIRS, old)));
    from(&mut p, NEW + 1, seg().seq(1).ack(2));
    let [newest, _] = asked(&mut p, [NEW + 1, NEW]);
    respond(&mut p, NEW + 1, newest);
    assert_eq!((at(&p, id), moves(&p)), (NEW + 1, 2));
    for _ in 0..3 {
        for (port, proof) in [(NEW, new), (THEIRS, old), (NEW + 1, newest), (NEW, newest)] {
            respond(&mut p, port, proof);
        }
    }
    assert_eq!((at(&p, id), moves(&p)), (NEW + 1, 2));
}

/// RFC 9000 §9.3.3: an attacker behind the same translator sees the client's packets and answers the challenge. The
/// client's own port answers, too, and takes the connection back.
#[test]
fn who_shares_the_address_loses_the_connection_to_the_port_that_had_it() {
    // The attacker's response comes first.
    let (mut p, id) = server();
    from(&mut p, NEW, seg().seq(1).ack(2));
    let [new, old] = asked(&mut p, [NEW, THEIRS]);
    respond(&mut p, NEW, new);
    assert_eq!(at(&p, id), NEW);
    respond(&mut p, THEIRS, old);
    assert_eq!((at(&p, id), moves(&p)), (THEIRS, 2));
    // The attacker's response comes second.
    let (mut p, id) = server();
    from(&mut p, NEW, seg().seq(1).ack(2));
    let [new, old] = asked(&mut p, [NEW, THEIRS]);
    respond(&mut p, THEIRS, old);
    respond(&mut p, NEW, new);
    assert_eq!((at(&p, id), moves(&p)), (THEIRS, 0));
    // For 10 s no other port is checked.
    for _ in 0..9 {
        p.pass(1_000);
        p.drain();
        from(&mut p, NEW, seg().seq(1).ack(2));
        from(&mut p, NEW + 1, seg().seq(1).ack(2));
        assert!(controls(&mut p).is_empty());
        p.quiet();
    }
    p.pass(1_100);
    p.drain();
    from(&mut p, NEW, seg().seq(1).ack(2));
    asked(&mut p, [NEW, THEIRS]);
}

/// The attacker moves on to more ports before the client has answered. The client's port still takes the connection
/// back, also if the first challenge to it was lost.
#[test]
fn a_chain_of_moves_does_not_shake_off_the_client() {
    let (mut p, id) = server();
    from(&mut p, NEW, seg().seq(1).ack(2));
    let [new, old] = asked(&mut p, [NEW, THEIRS]);
    respond(&mut p, NEW, new);
    p.pass(300);
    // The old port is asked again after each move.
    assert_eq!(challenges(&mut p), [(THEIRS, old)]);
    from(&mut p, NEW + 1, seg().seq(1).ack(2));
    let [newer, _, same] = asked(&mut p, [NEW + 1, NEW, THEIRS]);
    assert_eq!(same, old);
    respond(&mut p, NEW + 1, newer);
    assert_eq!(at(&p, id), NEW + 1);
    // The client sends from its port, so it is challenged again.
    p.pass(300);
    assert_eq!(challenges(&mut p), [(THEIRS, old)]);
    p.send(seg().seq(1).ack(2));
    assert_eq!(challenges(&mut p), [(THEIRS, old)]);
    respond(&mut p, NEW, new);
    respond(&mut p, NEW + 1, newer);
    respond(&mut p, THEIRS, old);
    assert_eq!(at(&p, id), THEIRS);
}

#[test]
fn a_flood_from_many_ports_gets_one_check_in_100_ms_and_no_more_bytes_than_it_sent() {
    let (mut p, id) = server();
    p.send(seg().seq(1).ack(2));
    p.drain();
    let (mut received, mut answered) = (0, 0);
    for n in 0..1_000u16 {
        let outer = p.outer.replace((NEW + n, OURS));
        let packet = p.packet(&seg().seq(1).ack(2));
        p.outer = outer;
        received += packet.len();
        p.inject(&packet);
        for (port, _) in challenges(&mut p) {
            // Messages to the connection's own port are no larger.
            answered += if port == THEIRS { 0 } else { 28 + PathProof::MESSAGE };
        }
        p.pass(1);
    }
    p.quiet();
    assert!((9..=10).contains(&p.stack.counters().encapsulation_paths_checked));
    assert!(answered < received, "{answered} for {received}");
    assert_eq!((at(&p, id), p.stack.counters().resets_sent), (THEIRS, 0));
    // This holds for a single segment, too: 52 bytes came, 44 are sent.
    p.pass(100);
    let outer = p.outer.replace((NEW, OURS));
    let packet = p.packet(&seg().seq(1).ack(2));
    p.outer = outer;
    p.inject(&packet);
    assert_eq!((packet.len(), p.others[0].len()), (52, 44));
}

/// The client's challenge is repeated with the same bits, so that an answer that is slower than the next challenge
/// counts.
#[test]
fn a_repeated_challenge_has_the_same_bits() {
    let (mut p, id) = server();
    from(&mut p, NEW, seg().seq(1).ack(2));
    let first = asked(&mut p, [NEW, THEIRS]);
    p.pass(150);
    p.drain();
    from(&mut p, NEW, seg().seq(1).ack(2));
    assert_eq!(asked(&mut p, [NEW, THEIRS]), first);
    respond(&mut p, NEW, first[0]);
    assert_eq!(at(&p, id), NEW);
}

#[test]
fn a_port_that_never_responds_is_given_up_after_four_challenges_and_15_seconds() {
    let (mut p, id) = server();
    for n in 0..4 {
        from(&mut p, NEW, seg().seq(1).ack(2));
        asked(&mut p, [NEW, THEIRS]);
        p.pass(4_000);
        p.drain();
        assert_eq!(p.stack.counters().resets_sent, 0, "{n}");
    }
    from(&mut p, NEW, seg().seq(1).ack(2));
    assert!(controls(&mut p).is_empty());
    assert_eq!(p.expect().is_rst().outer, Some((NEW, OURS)));
    // The connection stays where it was, and another port is checked.
    assert_eq!((at(&p, id), p.state(id)), (THEIRS, StateName::Established));
    from(&mut p, NEW + 1, seg().seq(1).ack(2));
    asked(&mut p, [NEW + 1, THEIRS]);
}

/// No state of a check outlives its connection.
#[test]
fn a_connection_that_ends_in_a_check_leaves_nothing() {
    let (mut p, id) = server();
    from(&mut p, NEW, seg().seq(1).ack(2));
    let [new, old] = asked(&mut p, [NEW, THEIRS]);
    p.abort(id);
    p.release(id);
    p.drain();
    respond(&mut p, NEW, new);
    respond(&mut p, THEIRS, old);
    from(&mut p, NEW, seg().seq(1).ack(2));
    p.expect().is_rst();
    assert!(controls(&mut p).is_empty());
    assert_eq!((p.stack.connections(), p.stack.poll_timeout()), (0, None));
}

#[test]
fn neighbours_with_the_same_inner_ports_do_not_get_each_others_connections() {
    let mut p = new();
    let listener = p.listen();
    // Their numbers differ.
    let ids: Vec<ConnId> = (0..2u16)
        .map(|n| {
            p.outer = Some((THEIRS + n, OURS));
            p.flow(CLIENT_PORT, if n == 0 { 1_000 } else { 3_000_000_000 });
            p.open_passive(listener, seg().mss(1176))
        })
        .collect();
    // The segment belongs to the second connection, so that one is checked, and moves.
    from(&mut p, NEW, seg().seq(1).ack(1).data(b"b"));
    let [new, _] = asked(&mut p, [NEW, THEIRS + 1]);
    respond(&mut p, NEW, new);
    assert_eq!((at(&p, ids[0]), at(&p, ids[1])), (THEIRS, NEW));
    p.drain();
    from(&mut p, NEW, seg().seq(1).ack(1).data(b"b"));
    assert_eq!((p.read(ids[0]), p.read(ids[1])), (b"".to_vec(), b"b".to_vec()));
    // A connection does not move to the port of its neighbour.
    assert!(controls(&mut p).is_empty());
}

/// Eight connections are told apart. A ninth one is an ordinary connection, but cannot move.
#[test]
fn more_than_eight_connections_with_the_same_inner_ports_cost_no_more() {
    let mut p = new();
    let listener = p.listen();
    let mut ids = Vec::new();
    for n in 0..20u16 {
        p.outer = Some((THEIRS + n, OURS));
        p.flow(CLIENT_PORT, u32::from(n) << 28);
        ids.push(p.open_passive(listener, seg().mss(1176)));
    }
    // This is the ninth one.
    from(&mut p, NEW, seg().seq(1).ack(1));
    assert!(controls(&mut p).is_empty());
    p.expect().is_rst();
    p.send(seg().seq(1).ack(1).data(b"here"));
    assert_eq!(p.read(ids[19]), b"here");
    // There is room again when one of the eight has ended.
    p.abort(ids[3]);
    p.drain();
    p.outer = Some((THEIRS + 30, OURS));
    p.flow(CLIENT_PORT, 0xf800_0000);
    let late = p.open_passive(listener, seg().mss(1176));
    from(&mut p, NEW, seg().seq(1).ack(1));
    let [new, _] = asked(&mut p, [NEW, THEIRS + 30]);
    respond(&mut p, NEW, new);
    assert_eq!(at(&p, late), NEW);
}

/// A client answers for connections that it opened, and for no others. Its answer is no larger than the challenge.
#[test]
fn a_client_answers_challenges_for_its_own_connections_only() {
    let mut p = new();
    let id = p.open_active(seg().mss(1176));
    p.drain();
    // The last repetition is longer ago than the shortest time between two repetitions.
    p.pass(10);
    let (theirs, ours) = (p.port, p.local_port);
    let challenge = |src_port, dst_port| PathProof { src_port, dst_port, bits: 7 };
    control(&mut p, THEIRS, Control::PathChallenge(challenge(theirs, ours)));
    assert_eq!(controls(&mut p), [(THEIRS, Control::PathResponse(challenge(ours, theirs)))]);
    // The client repeats its ACK, because the server may not have taken the earlier one.
    p.expect().is_ack().ack(1);
    p.quiet();
    for (port, proof) in [
        (THEIRS, challenge(theirs, ours ^ 1)),
        (THEIRS, challenge(theirs + 1, ours)),
        (THEIRS + 1, challenge(theirs, ours)),
    ] {
        control(&mut p, port, Control::PathChallenge(proof));
        assert!(controls(&mut p).is_empty());
    }
    // A response does not move it either, because it is the client.
    from(&mut p, NEW, seg().seq(1).ack(1));
    p.expect().is_rst();
    respond(&mut p, NEW, challenge(ours, theirs));
    assert_eq!((at(&p, id), controls(&mut p).len()), (THEIRS, 0));
    // A server does not answer for connections that were opened to it.
    let (mut p, _) = server();
    control(&mut p, THEIRS, Control::PathChallenge(challenge(CLIENT_PORT, PORT)));
    assert!(controls(&mut p).is_empty());
    p.quiet();
}

/// Forged challenges do not make a client send all the time: it repeats at most once in half a round trip.
#[test]
fn forged_challenges_make_a_client_repeat_little() {
    let (mut p, id) = client(seg().mss(1176), 100);
    p.write(id, b"data");
    p.expect().data(b"data");
    let proof = PathProof { src_port: PORT, dst_port: p.local_port, bits: 7 };
    for _ in 0..100 {
        control(&mut p, THEIRS, Control::PathChallenge(proof));
        p.pass(1);
    }
    assert!(p.drain().len() <= 2);
}

/// An attacker with only its own connection from the same address does not get another connection.
#[test]
fn followers_are_those_between_the_same_ports() {
    let mut p = new();
    let listener = p.listen();
    let open = |p: &mut Peer, outer, port| {
        p.outer = Some((outer, OURS));
        p.flow(port, 77);
        p.open_passive(listener, seg().mss(1176))
    };
    let other = open(&mut p, THEIRS + 1, 40_001);
    let follower = open(&mut p, THEIRS, 40_002);
    let first = open(&mut p, THEIRS, 40_003);
    from(&mut p, NEW, seg().seq(1).ack(1));
    let [new, _] = asked(&mut p, [NEW, THEIRS]);
    respond(&mut p, NEW, new);
    p.pass(1);
    let sent = challenges(&mut p);
    let inner: Vec<(u16, u16)> = sent.iter().map(|(port, proof)| (*port, proof.dst_port)).collect();
    assert_eq!(inner, [(NEW, 40_002), (THEIRS, 40_002)]);
    respond(&mut p, NEW, sent[0].1);
    assert_eq!([first, follower, other].map(|id| at(&p, id)), [NEW, NEW, THEIRS + 1]);
    // No state of it is left.
    for id in [first, follower, other] {
        p.abort(id);
        p.release(id);
        assert_eq!(p.reason(id), None);
    }
    p.drain();
    p.pass(20_000);
    assert!(controls(&mut p).is_empty());
    assert_eq!((p.stack.connections(), p.stack.poll_timeout()), (0, None));
}

/// Moves that follow each other do not delay retransmissions: each move repeats what is missing, whatever was
/// probed before.
#[test]
fn each_move_repeats_what_is_missing() {
    for holes in [false, true] {
        let mut p = new();
        let listener = p.listen();
        let id = p.open_passive(listener, seg().mss(1176).sack_ok());
        p.write(id, &[7; 2 * 1176]);
        p.drain();
        if holes {
            // The first of two segments is lost.
            p.send(seg().seq(1).ack(1).sack(&[(1177, 2353)]));
            p.drain();
        }
        for n in 0..5 {
            from(&mut p, NEW + n, seg().seq(1).ack(1));
            let sent = challenges(&mut p);
            respond(&mut p, NEW + n, sent[0].1);
            assert_eq!(at(&p, id), NEW + n);
            let again = p.drain();
            assert!(again.iter().any(|got| got.data.len() == 1176), "{holes} {n}: {again:?}");
            p.pass(150);
            p.drain();
        }
    }
}

/// Timestamps tell no order after half of their range, 24.9 days, and PAWS does not apply after 24 (RFC 7323 §5.5).
#[test]
fn a_connection_moves_after_25_days_of_silence() {
    let mut p = new();
    let listener = p.listen();
    p.send(seg().syn().mss(1176).ts(100));
    let clock = p.expect().syn_ack().ts.unwrap().value;
    p.send(seg().seq(1).ack(1).ts_echo(101, clock));
    let id = p.accept(listener);
    let days = 25 * 86_400_000;
    p.pass(days);
    p.drain();
    from(&mut p, NEW, seg().seq(1).ack(1).ts_echo(101_u32.wrapping_add(days as u32), clock).data(b"x"));
    let [new, _] = asked(&mut p, [NEW, THEIRS]);
    respond(&mut p, NEW, new);
    assert_eq!(at(&p, id), NEW);
}
