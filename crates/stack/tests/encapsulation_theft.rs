//! TCP in UDP: another client behind the same translator tries to take a connection, or has the client's old port.

use crate::peer::{CLIENT_PORT, PEER_ISN, PORT, Peer, Seg, seg};
use crate::rebinding::{
    NEW, OURS, THEIRS, asked, at, challenges, client, control, controls, from, new, respond, server,
};
use firstflight_stack::{ConnId, ListenerId};
use firstflight_wire::encapsulation::{Control, PathProof};

const THIEF: u16 = 7000;

/// A segment that begins a check.
fn segment() -> Seg {
    seg().seq(1).ack(2)
}

/// The ports in `who` answer every challenge that they receive.
fn answer(p: &mut Peer, who: &[u16]) {
    loop {
        let sent = challenges(p);
        if sent.is_empty() {
            return;
        }
        for (port, proof) in sent.into_iter().filter(|(port, _)| who.contains(port)) {
            respond(p, port, proof);
        }
    }
}

/// A connection whose client has moved to [`NEW`], and the bits in the challenge to its old port.
fn moved() -> (Peer, ConnId, PathProof) {
    let (mut p, id) = server();
    from(&mut p, NEW, segment());
    let [proof, old] = asked(&mut p, [NEW, THEIRS]);
    respond(&mut p, NEW, proof);
    assert_eq!(at(&p, id), NEW);
    from(&mut p, NEW, segment());
    p.drain();
    (p, id, old)
}

#[test]
fn the_old_port_takes_a_connection_back_for_half_a_minute() {
    for (wait, port) in [(29_000, THEIRS), (31_000, NEW), (3_600_000, NEW)] {
        let (mut p, id, old) = moved();
        p.pass(wait);
        p.drain();
        respond(&mut p, THEIRS, old);
        assert_eq!(at(&p, id), port, "after {wait} ms");
    }
}

/// A check is forgotten a minute after it began.
#[test]
fn a_response_after_an_hour_moves_nothing() {
    let (mut p, id) = server();
    p.send(segment());
    from(&mut p, NEW, segment());
    let [proof, _] = asked(&mut p, [NEW, THEIRS]);
    p.pass(3_600_000);
    p.drain();
    respond(&mut p, NEW, proof);
    assert_eq!(at(&p, id), THEIRS);
}

#[test]
fn the_port_that_a_connection_has_is_asked_soon_after_a_move_too() {
    let (mut p, _, old) = moved();
    p.pass(5_000);
    p.drain();
    // The old port is asked again after each move.
    assert_eq!(challenges(&mut p), [(THEIRS, old); 3]);
    from(&mut p, THIEF, segment());
    asked(&mut p, [THIEF, NEW, THEIRS]);
}

/// The tenth of a second `n`: the client at `home` speaks in every third one, and client and thief answer. Says which port
/// has the connection.
fn tenth(p: &mut Peer, id: ConnId, home: u16, n: u32) -> u16 {
    if n.is_multiple_of(3) {
        from(p, home, segment());
        answer(p, &[home, THIEF]);
    }
    p.drain();
    let holder = at(p, id);
    p.pass(100);
    p.drain();
    holder
}

/// Client and thief answer every challenge. The thief sends every 100 ms and is faster, the client sends every 300
/// ms.
#[test]
fn a_thief_has_a_connection_for_moments_only() {
    for rebinds in [false, true] {
        let (mut p, id, home) = match rebinds {
            true => {
                let (p, id, _) = moved();
                (p, id, NEW)
            }
            false => {
                let (p, id) = server();
                (p, id, THEIRS)
            }
        };
        let mut stolen = 0;
        for n in 0..600 {
            from(&mut p, THIEF, segment());
            answer(&mut p, &[home, THIEF]);
            stolen += u32::from(tenth(&mut p, id, home, n) == THIEF);
        }
        assert!(stolen < 60, "rebinds {rebinds}: for {stolen} of 600 tenths of a second");
    }
}

/// The challenge to the client's port was lost, and the client sends only every 15 s.
#[test]
fn a_lost_challenge_does_not_give_an_idle_connection_away() {
    for silent in [9_000, 16_000] {
        let (mut p, id) = server();
        p.send(segment());
        from(&mut p, THIEF, segment());
        let [proof, _lost] = asked(&mut p, [THIEF, THEIRS]);
        respond(&mut p, THIEF, proof);
        assert_eq!(at(&p, id), THIEF);
        p.pass(silent);
        p.drain();
        // The keep-alive is answered with a reset, and the client probes.
        from(&mut p, THEIRS, seg().seq(0).ack(2));
        answer(&mut p, &[THIEF, THEIRS]);
        assert_eq!(at(&p, id), THEIRS, "silent for {silent} ms");
    }
}

// --- a search, and what it must not touch --------------------------------------------------------------

fn search(p: &mut Peer) {
    for n in 0..70 {
        from(p, NEW, seg().seq(1 << 30).ack(1 + n));
    }
    p.drain();
}

#[test]
fn a_search_does_not_stop_new_connections_by_syn_cookies() {
    let mut p = new();
    let listener = p.listen_with(|config| config.syn_backlog = 0);
    let syn = seg().syn().mss(1176);
    p.flow(CLIENT_PORT, 1_000);
    p.send(syn.clone());
    p.expect().syn_ack();
    p.send(seg().seq(1).ack(1));
    p.accept(listener);
    search(&mut p);
    // A neighbour behind the same translator.
    p.outer = Some((THEIRS + 1, OURS));
    p.flow(CLIENT_PORT, 3_000_000_000);
    p.send(syn);
    p.expect().syn_ack().ack(1);
    p.send(seg().seq(1).ack(1).data(b"hello"));
    let id = p.accept(listener);
    assert_eq!(p.read(id), b"hello");
}

#[test]
fn a_search_does_not_hide_a_connection_in_time_wait() {
    let mut p = new();
    let listener = p.listen();
    p.flow(CLIENT_PORT, 1_000);
    p.open_passive(listener, seg().mss(1176));
    search(&mut p);
    p.outer = Some((THEIRS + 1, OURS));
    p.flow(CLIENT_PORT, 3_000_000_000);
    let id = p.open_passive(listener, seg().mss(1176));
    p.shutdown(id);
    p.expect().is_fin();
    p.send(seg().seq(1).ack(2).fin());
    p.expect().is_ack();
    p.pass(1_000);
    p.send(seg().seq(1).ack(2).fin());
    p.expect().is_ack();
}

// --- windows and sizes -----------------------------------------------------------------------------------

#[test]
fn the_window_stays_at_a_move() {
    for (sack, holes) in [(false, false), (true, false), (true, true)] {
        let mut p = new();
        let listener = p.listen();
        let syn = if sack { seg().mss(1176).sack_ok() } else { seg().mss(1176) };
        let id = p.open_passive(listener, syn);
        p.write(id, &[7; 1176 * 10]);
        p.drain();
        if holes {
            p.send(seg().seq(1).ack(1).sack(&[(1177, 2353)]));
            p.drain();
        }
        let before = p.stack.info(id).unwrap().cwnd;
        p.pass(50);
        from(&mut p, NEW, seg().seq(1).ack(1));
        let sent = challenges(&mut p);
        respond(&mut p, NEW, sent[0].1);
        assert_eq!(p.stack.info(id).unwrap().cwnd, before, "SACK {sack}, holes {holes}");
    }
}

#[test]
fn a_forged_challenge_leaves_the_search_for_larger_datagrams() {
    let (mut p, id) = client(seg().mss(1448).sack_ok(), 100);
    p.write(id, &[7; 1176 * 12]);
    let sizes: Vec<usize> = p.drain().iter().map(|got| got.data.len()).collect();
    assert!(sizes[0] > 1176, "the probe leaves first: {sizes:?}");
    p.pass(60);
    let inner = p.local_port;
    control(&mut p, THEIRS, Control::PathChallenge(PathProof { src_port: PORT, dst_port: inner, bits: 7 }));
    p.drain();
    p.pass(40);
    p.send(seg().seq(1).ack(1 + sizes.iter().sum::<usize>() as u32));
    p.drain();
    assert!(p.stack.info(id).unwrap().mss > 1176);
}

// --- forged SYNs -----------------------------------------------------------------------------------------

/// A SYN without ACK can be forged without a number. In UDP it opens nothing at a client, and the server's answer
/// counts.
#[test]
fn a_forged_syn_does_not_end_a_connect_in_udp() {
    let mut p = new();
    p.port = PORT;
    let id = p.connect(b"", false);
    p.expect().is_syn();
    let isn = p.isn;
    p.flow(PORT, 0x4444_0000);
    p.send(seg().syn().mss(1000));
    p.quiet();
    p.flow(PORT, isn);
    p.send(seg().syn().ack(1).mss(1176));
    p.expect().is_ack();
    assert!(p.stack.info(id).unwrap().confirmed);
}

// --- losses that a thief uses --------------------------------------------------------------------------

/// The client speaks every 300 ms, and answers all but what comes in the first `outage` ms. The thief goes from one of its
/// `ports` to the next and answers for the newest one only. Tenths of a second of 3,000 in which it has the connection.
fn chain(ports: u16, outage: u32) -> u32 {
    let (mut p, id) = server();
    p.send(segment());
    p.drain();
    let thieves: Vec<u16> = (0..ports).map(|n| THIEF + n).collect();
    let (mut stolen, mut next) = (0, 0);
    for n in 0..3_000 {
        let here = n * 100 >= outage;
        let current = at(&p, id);
        let other = thieves.iter().rev().find(|port| **port != current).copied();
        let speaks = match thieves.get(next) {
            Some(port) => {
                next += 1;
                Some(*port)
            }
            None if current == THEIRS => {
                next = 1;
                Some(THIEF)
            }
            None => other,
        };
        let newest = next < thieves.len() || current == THEIRS || speaks == thieves.last().copied();
        let mut who = if newest { speaks.into_iter().collect() } else { thieves.clone() };
        if here {
            who.push(THEIRS);
        }
        if let Some(port) = speaks {
            from(&mut p, port, segment());
            answer(&mut p, &who);
        }
        if here && n % 3 == 0 {
            from(&mut p, THEIRS, segment());
            answer(&mut p, &who);
        }
        p.drain();
        stolen += u32::from(at(&p, id) != THEIRS);
        p.pass(100);
        p.drain();
    }
    stolen
}

#[test]
fn an_outage_does_not_give_a_connection_away() {
    for ports in [1, 2, 3, 4, 6] {
        for outage in [0, 200, 500, 1_000, 5_000] {
            let stolen = chain(ports, outage);
            assert!(stolen < 60 + outage / 100, "{ports} ports, {outage} ms: {stolen} of 3000 tenths");
        }
    }
}

/// One challenge to the client is lost, and then the thief sends 64 wrong numbers.
#[test]
fn a_search_does_not_hide_the_client_from_its_connection() {
    for (lost, flood) in [(0, true), (1, false), (1, true)] {
        let (mut p, id) = server();
        p.send(segment());
        p.drain();
        from(&mut p, THIEF, segment());
        if lost > 0 {
            answer(&mut p, &[THIEF]);
        } else {
            answer(&mut p, &[THIEF, THEIRS]);
        }
        let mut stolen = 0;
        for n in 0..3_000 {
            if flood && n % 600 == 0 {
                for k in 0..70 {
                    from(&mut p, THIEF + 1, seg().seq(1 << 30).ack(1 + k));
                }
            }
            stolen += u32::from(tenth(&mut p, id, THEIRS, n) == THIEF);
        }
        assert!(stolen < 10, "lost {lost} flood {flood}: {stolen} of 3000 tenths; ends at {}", at(&p, id));
    }
}

/// The client answers everything, first; the thief what is about the connection of [`CLIENT_PORT`].
fn answer_about_one(p: &mut Peer) {
    loop {
        let sent = challenges(p);
        if sent.is_empty() {
            return;
        }
        for (port, proof) in sent.iter().filter(|one| one.0 == THEIRS) {
            respond(p, *port, *proof);
        }
        for (port, proof) in sent.iter().filter(|one| one.0 == THIEF && one.1.dst_port == CLIENT_PORT) {
            respond(p, *port, *proof);
        }
    }
}

/// The client's keep-alives find its other connections and draw no reset, so the server asks again by itself.
#[test]
fn a_lost_challenge_does_not_give_one_of_two_connections_away() {
    for others in 0..2u16 {
        let mut p = new();
        let listener = p.listen();
        p.outer = Some((THEIRS, OURS));
        for n in 0..others {
            p.flow(CLIENT_PORT + 1 + n, 77);
            p.open_passive(listener, seg().mss(1176));
        }
        p.flow(CLIENT_PORT, PEER_ISN);
        let id = p.open_passive(listener, seg().mss(1176));
        let segment = || seg().seq(1).ack(1);
        from(&mut p, THIEF, segment());
        // The challenge to the client is lost.
        answer(&mut p, &[THIEF]);
        assert_eq!(at(&p, id), THIEF);
        for n in 0..200 {
            p.pass(1_000);
            p.drain();
            answer_about_one(&mut p);
            if n % 14 == 13 {
                control(&mut p, THEIRS, Control::KeepAlive);
                let sent = controls(&mut p);
                // The client's connection probes if there is a reset.
                if sent.contains(&(THEIRS, Control::Reset)) {
                    from(&mut p, THEIRS, seg().seq(0).ack(1));
                    answer_about_one(&mut p);
                }
            }
        }
        assert_eq!(at(&p, id), THEIRS, "{others} others");
    }
}

/// The other connections are not asked at the thief's port any more.
#[test]
fn turns_for_a_thief_end_when_the_client_takes_the_connection_back() {
    let mut p = new();
    let listener = p.listen();
    p.outer = Some((THEIRS, OURS));
    let mut ids = Vec::new();
    for n in 0..3u16 {
        p.flow(CLIENT_PORT + n, 77);
        ids.push(p.open_passive(listener, seg().mss(1176)));
    }
    from(&mut p, THIEF, seg().seq(1).ack(1));
    let sent = challenges(&mut p);
    for port in [THIEF, THEIRS] {
        let proof = sent.iter().find(|one| one.0 == port).unwrap().1;
        respond(&mut p, port, proof);
    }
    assert_eq!(at(&p, ids[2]), THEIRS);
    let mut to_thief = 0;
    for _ in 0..200 {
        p.pass(100);
        p.drain();
        to_thief += challenges(&mut p).iter().filter(|one| one.0 == THIEF).count();
    }
    assert_eq!(to_thief, 0);
}

/// The thief has filled the queue of replies but for one place.
#[test]
fn no_challenge_leaves_without_those_that_contradict_it() {
    let (mut p, id) = server();
    p.send(segment());
    p.drain();
    let room = p.stack.config().limits.replies;
    p.outer = Some((THIEF + 1, OURS));
    p.flow(1, 1);
    let junk = p.packet(&seg().seq(1).ack(1));
    p.flow(CLIENT_PORT, PEER_ISN);
    p.outer = Some((THIEF, OURS));
    let good = p.packet(&segment());
    p.outer = Some((THEIRS, OURS));
    for _ in 0..room - 1 {
        p.stack.handle_packet(p.now, &junk);
    }
    p.stack.handle_packet(p.now, &good);
    p.pump();
    let sent = challenges(&mut p);
    assert!(sent.is_empty(), "{sent:?}");
    // With room again it is checked as ever.
    from(&mut p, THIEF, segment());
    asked(&mut p, [THIEF, THEIRS]);
    assert_eq!(at(&p, id), THEIRS);
}

/// Where three connections of a client are after one has moved, beside a stranger with `pairs` of ports, two connections
/// on each, of which one has moved.
fn followers(pairs: u16) -> Vec<u16> {
    let mut p = new();
    let listener = p.listen_with(|config| {
        config.backlog = 10_000;
        config.syn_backlog = 10_000;
    });
    for n in 0..pairs {
        for k in 0..2 {
            p.outer = Some((10_000 + n, OURS));
            p.flow(20_000 + 2 * n + k, 77);
            p.open_passive(listener, seg().mss(1176));
        }
        from(&mut p, 30_000 + n, seg().seq(1).ack(1));
        let sent = challenges(&mut p);
        let own = sent.iter().find(|(port, _)| *port == 30_000 + n).unwrap().1;
        respond(&mut p, 30_000 + n, own);
        p.drain();
        p.others.clear();
    }
    let mut ids = Vec::new();
    for k in 0..3 {
        p.outer = Some((THEIRS, OURS));
        p.flow(50_000 + k, 77);
        ids.push(p.open_passive(listener, seg().mss(1176)));
    }
    from(&mut p, NEW, seg().seq(1).ack(1));
    answer(&mut p, &[NEW]);
    for _ in 0..600 {
        p.pass(100);
        p.drain();
        answer(&mut p, &[NEW]);
    }
    ids.iter().map(|id| at(&p, *id)).collect()
}

#[test]
fn a_stranger_with_many_moves_leaves_others_their_turns() {
    for pairs in [0, 1_000, 1_024] {
        assert_eq!(followers(pairs), [NEW; 3], "{pairs} pairs");
    }
}

// --- a thief who keeps the server from asking the client again ---------------------------------------------

/// The client has a second connection, so that its keep-alives draw no reset.
fn with_another() -> (Peer, ListenerId) {
    let mut p = new();
    let listener = p.listen_with(|config| (config.backlog, config.syn_backlog) = (10_000, 10_000));
    p.flow(CLIENT_PORT + 1, 77);
    p.open_passive(listener, seg().mss(1176));
    (p, listener)
}

/// Opens the client's connection. The thief gets it, because one challenge to the client is lost.
fn stolen(p: &mut Peer, listener: ListenerId) -> ConnId {
    p.outer = Some((THEIRS, OURS));
    p.flow(CLIENT_PORT, PEER_ISN);
    let id = p.open_passive(listener, seg().mss(1176));
    from(p, THIEF, seg().seq(1).ack(1));
    answer(p, &[THIEF]);
    assert_eq!(at(p, id), THIEF);
    id
}

/// Client and thief answer for a minute.
fn minute(p: &mut Peer, mut each_second: impl FnMut(&mut Peer, u16)) {
    for second in 0..60 {
        each_second(p, second);
        answer_about_one(p);
        p.pass(1_000);
        p.drain();
        answer_about_one(p);
    }
}

/// The thief opens a connection with the client's inner ports.
fn alike(p: &mut Peer, listener: ListenerId) {
    p.outer = Some((THIEF + 9, OURS));
    p.flow(CLIENT_PORT, 3_000_000_000);
    p.open_passive(listener, seg().mss(1176));
}

#[test]
fn a_thief_with_the_same_inner_ports_does_not_stop_the_questions_to_the_client() {
    let (mut p, listener) = with_another();
    alike(&mut p, listener);
    let id = stolen(&mut p, listener);
    minute(&mut p, |_, _| ());
    assert_eq!(at(&p, id), THEIRS);
}

/// The thief forges SYNs with the same inner ports.
#[test]
fn forged_syns_do_not_stop_the_questions_to_the_client() {
    let (mut p, listener) = with_another();
    let id = stolen(&mut p, listener);
    minute(&mut p, |p, second| {
        if second % 5 == 0 {
            p.outer = Some((THIEF + 1 + second, OURS));
            p.flow(CLIENT_PORT, 3_000_000_000);
            p.send(seg().syn().mss(1176));
            p.outer = Some((THEIRS, OURS));
            p.flow(CLIENT_PORT, PEER_ISN);
            // Nobody answers these SYN-ACKs.
            p.drain();
        }
    });
    assert_eq!(at(&p, id), THEIRS);
}

/// Strangers have moved connections of their own, so that the server asks at 1,024 ports again.
#[test]
fn strangers_who_move_do_not_stop_the_questions_to_the_client() {
    let (mut p, listener) = with_another();
    for n in 0..1_024 {
        p.outer = Some((10_000 + n, OURS));
        p.flow(20_000 + n, 77);
        p.open_passive(listener, seg().mss(1176));
        from(&mut p, 30_000 + n, seg().seq(1).ack(1));
        let sent = challenges(&mut p);
        let (port, own) = *sent.iter().find(|(port, _)| *port == 30_000 + n).unwrap();
        respond(&mut p, port, own);
        p.pass(10);
        p.drain();
        p.others.clear();
    }
    let id = stolen(&mut p, listener);
    minute(&mut p, |_, _| ());
    assert_eq!(at(&p, id), THEIRS);
}

/// After two moves the thief speaks a hundred times a second from the port before, and the client every 300 ms. A port that
/// speaks does not use up the questions to another port.
#[test]
fn a_thief_does_not_use_up_the_questions_to_the_client() {
    let (mut p, listener) = with_another();
    alike(&mut p, listener);
    p.outer = Some((THEIRS, OURS));
    p.flow(CLIENT_PORT, PEER_ISN);
    let id = p.open_passive(listener, seg().mss(1176));
    let segment = || seg().seq(1).ack(1);
    for n in 0..2 {
        from(&mut p, THIEF + n, segment());
        answer(&mut p, &[THIEF + n]);
        assert_eq!(at(&p, id), THIEF + n);
        p.pass(110);
        p.drain();
        p.others.clear();
    }
    let mut stolen = 0;
    for n in 0..6_000u32 {
        from(&mut p, THIEF, segment());
        answer(&mut p, &[THEIRS]);
        if n.is_multiple_of(30) {
            from(&mut p, THEIRS, segment());
            answer(&mut p, &[THEIRS]);
        }
        stolen += u32::from(at(&p, id) != THEIRS);
        p.pass(10);
        p.drain();
        answer(&mut p, &[THEIRS, THIEF + 1]);
    }
    assert!(stolen < 100 && at(&p, id) == THEIRS, "{stolen} of 6000, now at {}", at(&p, id));
}
