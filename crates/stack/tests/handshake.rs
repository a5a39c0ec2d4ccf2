//! Opening a connection, packet by packet.

use crate::peer::{CLIENT_PORT, PORT, Peer, seg};
use firstflight_stack::{CloseReason, IoError, PacketDrop, Readiness, StateName};
use std::time::Duration;

/// RFC 9293 §3.5, figure 6. The stack is A.
//= rfc9293 MUST-14 SHLD-5 test
//= rfc7323 2.2-a 3.2-a test
#[test]
fn active_open() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    assert_eq!(p.state(id), StateName::SynSent);
    let syn = p.expect().is_syn().empty();
    assert_eq!((syn.mss, syn.sack_ok), (Some(1460), true));
    assert!(syn.scale.is_some() && syn.ts.is_some_and(|t| t.echo == 0));
    p.send(seg().syn().ack(1).mss(1460));
    p.expect().is_ack().seq(1).ack(1).empty();
    assert_eq!(p.state(id), StateName::Established);
    assert!(p.saw(id, Readiness::CONNECTED));
    p.quiet();
}

/// RFC 9293 §3.5, figure 6. The stack is B.
//= rfc9293 MUST-14 SHLD-5 test
#[test]
fn passive_open() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460));
    p.nothing_to_accept(listener);
    let syn_ack = p.expect().syn_ack().ack(1).empty();
    assert_eq!((syn_ack.mss, syn_ack.scale, syn_ack.sack_ok, syn_ack.ts), (Some(1460), None, false, None));
    p.send(seg().seq(1).ack(1));
    let id = p.accept(listener);
    assert_eq!(p.state(id), StateName::Established);
    p.quiet();
}

/// RFC 9293 §3.10.7.4: the ACK of the SYN-ACK may carry data, and the FIN too.
#[test]
fn data_and_fin_with_the_ack_of_the_syn_ack() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    p.send(seg().seq(1).ack(1).data(b"hello").fin());
    p.expect().is_ack().ack(7);
    let id = p.accept(listener);
    assert_eq!(p.read(id), b"hello");
    assert_eq!(p.read_once(id), Ok(0));
    assert_eq!(p.state(id), StateName::CloseWait);
}

/// RFC 9293 §3.5, figure 8.
//= rfc9293 MUST-10 test
#[test]
fn simultaneous_open() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    p.expect().is_syn();
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack().ack(1);
    assert_eq!(p.state(id), StateName::SynRcvd);
    p.send(seg().syn().ack(1).mss(1460));
    assert_eq!(p.state(id), StateName::Established);
    p.drain();
    p.write(id, b"x");
    p.expect().is_ack().seq(1).ack(1).data(b"x");
}

/// RFC 9293 §3.5: the other side may answer a crossed SYN with a bare ACK too.
//= rfc9293 MUST-10 test
#[test]
fn simultaneous_open_completed_by_a_bare_ack() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    p.expect().is_syn();
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack().ack(1);
    p.send(seg().seq(1).ack(1));
    assert_eq!(p.state(id), StateName::Established);
    p.quiet();
}

/// RFC 9293 §3.10.7.4, fifth step: a SYN-ACK that crosses ours and acknowledges what was never sent is answered
/// only by a RST. (Before, it was also acknowledged, because its SYN had come before.)
#[test]
fn simultaneous_open_with_a_wrong_acknowledgement() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    p.expect().is_syn();
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack().ack(1);
    p.send(seg().syn().ack(2).mss(1460));
    p.expect().is_rst().seq(2);
    p.quiet();
    assert_eq!(p.state(id), StateName::SynRcvd);
}

/// RFC 9293 §3.10.7.4: a RST in SYN-RECEIVED of an active open means refused.
//= rfc9293 MUST-11 test
#[test]
fn simultaneous_open_refused() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    p.expect().is_syn();
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    p.send(seg().rst().seq(1));
    assert_eq!(p.reason(id), Some(CloseReason::Refused));
    p.quiet();
}

/// RFC 6298 §2.1 and §5.5: 1 s, doubled every time. RFC 9293 §3.8.3, R2 for SYNs: the connect is given up.
//= rfc9293 MUST-22 test
//= rfc6298 2.1-a 5.5-a test
#[test]
fn syn_is_sent_again_after_1_2_4_seconds_and_given_up() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    let sent = p.sends_at(200_000, &[0, 1_000, 3_000, 7_000, 15_000, 31_000, 63_000]);
    assert!(sent.into_iter().all(|g| g.is_syn().empty().seq == 0));
    assert_eq!(p.reason(id), Some(CloseReason::TimedOut));
    assert_eq!(p.read_once(id), Err(IoError::Closed(CloseReason::TimedOut)));
}

/// RFC 6298 §5.7: after a lost SYN the timeout starts at 3 s, unless timestamps measure the path.
//= rfc6298 5.7-a test
#[test]
fn rto_is_three_seconds_after_a_lost_syn() {
    for timestamps in [false, true] {
        let mut p = Peer::new();
        let id = p.connect(b"", false);
        p.at(1_010);
        p.drain();
        p.at(1_100);
        let syn_ack = seg().syn().ack(1).mss(1460);
        p.send(if timestamps { syn_ack.ts(1) } else { syn_ack });
        p.expect().is_ack();
        p.write(id, b"x");
        p.expect().data(b"x").at(1_100);
        p.at(5_000);
        // With timestamps 100 ms were measured: SRTT + max(200 ms, 4 RTTVAR).
        p.expect().data(b"x").at(if timestamps { 1_400 } else { 4_100 });
    }
}

/// RFC 5681 §3.1: after a lost SYN the initial window is one segment.
#[test]
fn one_segment_after_a_lost_syn() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    p.at(1_010);
    p.drain();
    p.send(seg().syn().ack(1).mss(1460));
    p.expect().is_ack();
    p.write(id, &[0; 5000]);
    p.expect().len(1460).seq(1);
    p.quiet();
}

/// RFC 9293 §3.10.7.3, second step.
//= rfc5961 4.2-c test
#[test]
fn rst_answers_syn_refused() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    p.expect().is_syn();
    p.send(seg().rst().ack(1));
    assert_eq!(p.reason(id), Some(CloseReason::Refused));
    p.quiet();
}

/// RFC 9293 §3.10.7.3: only a RST that acknowledges our SYN counts (blind resets, RFC 5961).
//= rfc5961 3.2-e test
#[test]
fn rst_without_or_with_bad_ack_is_ignored_in_syn_sent() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    p.expect().is_syn();
    p.send(seg().rst());
    p.send(seg().rst().ack(0));
    p.send(seg().rst().ack(2));
    assert_eq!(p.state(id), StateName::SynSent);
    p.quiet();
}

/// RFC 9293 §3.10.7.3, first step: <SEQ=SEG.ACK><CTL=RST>, and the connection stays in SYN-SENT. After the first
/// RST the SYN is sent again (§3.5.1; see `time_wait_client.rs`).
#[test]
fn bad_ack_in_syn_sent_is_reset() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    p.expect().is_syn();
    for (n, segment) in [seg().syn().ack(0), seg().syn().ack(2), seg().ack(77)].into_iter().enumerate() {
        p.send(segment);
        let rst = p.expect().is_rst().seq([0, 2, 77][n]);
        assert!(!rst.flags.contains(firstflight_wire::tcp::Flags::ACK));
        if n == 0 {
            p.expect().is_syn().empty();
        }
        p.quiet();
    }
    assert_eq!(p.state(id), StateName::SynSent);
    p.send(seg().syn().ack(1).mss(1460));
    assert_eq!(p.state(id), StateName::Established);
}

/// RFC 9293 §3.10.7.3, fifth step: a segment without SYN and RST is dropped.
#[test]
fn good_ack_without_syn_is_dropped_in_syn_sent() {
    let mut p = Peer::new();
    let id = p.connect(b"", false);
    p.expect().is_syn();
    p.send(seg().seq(1).ack(1).data(b"x"));
    p.quiet();
    assert_eq!(p.state(id), StateName::SynSent);
}

/// RFC 9293 §3.10.7.4 (SYN-RECEIVED): the first repetition is answered at once, if it is no copy made by the
/// network, and further ones at most once in 500 ms.
#[test]
fn duplicate_syn_gets_the_syn_ack_again() {
    let mut p = Peer::new();
    p.listen();
    p.send(seg().syn().mss(1460));
    let first = p.expect().syn_ack().ack(1);
    for (at, answered) in [(9, false), (10, true), (509, false), (510, true), (511, false)] {
        p.at(at);
        p.send(seg().syn().mss(1460));
        match answered {
            true => assert_eq!(p.expect().syn_ack().ack(1).raw_seq, first.raw_seq),
            false => p.quiet(),
        }
    }
}

/// A repeated SYN with a payload that is not taken: its last byte lies in the window, its SYN does not.
#[test]
fn duplicate_syn_with_data_gets_the_syn_ack_again() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460).data(b"early"));
    p.expect().syn_ack().ack(1);
    p.at(600);
    p.send(seg().syn().mss(1460).data(b"early"));
    p.expect().syn_ack().ack(1);
    p.send(seg().seq(1).ack(1).data(b"early"));
    let id = p.accept(listener);
    assert_eq!(p.read(id), b"early");
}

/// RFC 6298 §3 (Karn): with two SYN-ACKs in flight, their ACK measures nothing.
//= rfc6298 3-a 3-b test
//= rfc9293 MUST-18 test
#[test]
fn an_ack_after_a_repeated_syn_ack_is_no_round_trip_sample() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460));
    p.at(900);
    p.send(seg().syn().mss(1460));
    p.send(seg().seq(1).ack(1));
    let id = p.accept(listener);
    assert_eq!(p.stack.info(id).unwrap().rtt, None);
}

/// The client's first ACK is lost. The next one answers the SYN-ACK that was sent again, but a client outside SYN-SENT
/// records no timestamp of a SYN-ACK (RFC 7323 §5.3, R2), so the echo is still that of the first one. It decides about the
/// timeout until the path is measured, and then counts for nothing.
//= rfc6298 3-a 3-b test
#[test]
fn an_old_echo_behind_a_repeated_syn_ack_is_no_round_trip_sample() {
    for old in [true, false] {
        let mut p = Peer::new();
        let listener = p.listen();
        p.send(seg().syn().mss(1460).ts(1_000));
        let first = p.expect().syn_ack().ts.unwrap().value;
        p.at(1_010);
        let again = p.expect().syn_ack().at(1_000).ts.unwrap().value;
        p.at(1_100);
        p.send(seg().seq(1).ack(1).ts_echo(1_100, if old { first } else { again }));
        let id = p.accept(listener);
        let rtt = |p: &Peer| p.stack.info(id).unwrap().rtt;
        let measured = Some(Duration::from_millis(100));
        assert_eq!(rtt(&p), if old { None } else { measured });
        // A late copy of the client's SYN does not confirm it.
        p.send(seg().syn().mss(1460).ts(1_000));
        p.drain();
        assert_eq!(rtt(&p), if old { None } else { measured });
        if old {
            // SRTT + 4 · SRTT / 2.
            assert_eq!(p.stack.info(id).unwrap().rto.as_millis(), 3_300);
        }
        p.write(id, b"x");
        let value = p.expect().data(b"x").ts.unwrap().value;
        p.at(1_200);
        p.send(seg().seq(1).ack(2).ts_echo(1_200, value));
        assert_eq!((rtt(&p), p.stack.info(id).unwrap().rto.as_millis()), (measured, 300));
    }
}

/// SYN-ACK timer: 1, 2, 4 … s, five times. Then the child is removed.
#[test]
fn syn_ack_is_sent_again_and_given_up() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460));
    let sent = p.sends_at(120_000, &[0, 1_000, 3_000, 7_000, 15_000, 31_000]);
    assert!(sent.into_iter().all(|g| g.syn_ack().ack == 1));
    assert_eq!(p.stack.queues(listener), Some((0, 0)));
    assert_eq!((p.stack.connections(), p.stack.buffer_bytes()), (0, 0));
}

/// RFC 9293 §3.10.7.2 leaves this open. All stacks drop it, so that a scanner learns nothing.
#[test]
fn syn_with_fin_is_dropped_by_a_listener() {
    let mut p = Peer::new();
    p.listen();
    p.send(seg().syn().fin().mss(1460));
    p.quiet();
    assert_eq!(p.stack.connections(), 0);
    assert_eq!(p.stack.counters().dropped(PacketDrop::BadFlags), 1);
}

/// RFC 9293 §3.10.7.2, first, second and fourth step.
#[test]
fn a_listener_ignores_rst_and_resets_ack() {
    let mut p = Peer::new();
    p.listen();
    p.send(seg().rst());
    p.send(seg().syn().rst());
    p.quiet();
    p.send(seg().seq(5).ack(123));
    p.expect().is_rst().seq(123).empty();
    p.send(seg().syn().ack(123));
    p.expect().is_rst().seq(123);
    // Anything else is dropped.
    p.send(seg().seq(5).data(b"abc"));
    p.send(seg().seq(5).fin());
    p.quiet();
    assert_eq!(p.stack.counters().dropped(PacketDrop::BadFlags), 2);
}

/// RFC 9293 §3.10.7.1: both forms.
#[test]
fn unknown_segments_are_reset() {
    let mut p = Peer::new();
    p.send(seg().syn().data(b"abc"));
    p.expect().is_rst().seq(0).ack(4).empty();
    p.send(seg().seq(9).fin());
    p.expect().is_rst().seq(0).ack(10);
    let rst = {
        p.send(seg().seq(9).ack(4_321).data(b"abc"));
        p.expect().is_rst().seq(4_321)
    };
    assert!(!rst.flags.contains(firstflight_wire::tcp::Flags::ACK));
    p.send(seg().rst().ack(1));
    p.quiet();
}

/// The accept queue is full: the SYN is dropped, and so is the ACK of a handshake in progress.
#[test]
fn backlog_full() {
    let mut p = Peer::new();
    let listener = p.listen_with(|c| c.backlog = 1);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    p.flow(CLIENT_PORT + 1, 1);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    p.send(seg().seq(1).ack(1));
    assert_eq!(p.stack.queues(listener), Some((1, 1)));
    p.flow(CLIENT_PORT + 2, 1);
    p.send(seg().syn().mss(1460));
    p.quiet();
    p.flow(CLIENT_PORT, crate::peer::PEER_ISN);
    p.send(seg().seq(1).ack(1));
    p.quiet();
    assert_eq!(p.stack.counters().dropped(PacketDrop::AcceptQueueFull), 2);
    // There is room again: the client's data carries the ACK a second time.
    p.accept(listener);
    p.send(seg().seq(1).ack(1).data(b"x"));
    let id = p.accept(listener);
    assert_eq!(p.read(id), b"x");
}

/// RFC 9293 §3.5.1, figure 9: the peer crashed and opens a new connection.
//= rfc5961 4.2-a 4.2-c test
#[test]
fn half_open_connection_is_found_by_a_new_syn() {
    let mut p = Peer::new();
    let listener = p.listen();
    let old = p.open_passive(listener, seg().mss(1460));
    p.pass(1_000);
    let isn = crate::peer::PEER_ISN;
    p.isn = isn.wrapping_add(500_000);
    p.send(seg().syn().mss(1460));
    // The challenge ACK acknowledges the old incarnation's numbers …
    let challenge = p.expect().is_ack().seq(1);
    assert_eq!(challenge.raw_ack.get(), isn.wrapping_add(1));
    // … and the new one resets them, exactly at the edge, so that the RST is believed.
    p.isn = isn;
    p.send(seg().rst().seq(1));
    assert_eq!(p.reason(old), Some(CloseReason::Reset));
    p.isn = isn.wrapping_add(500_000);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack().ack(1);
}

/// RFC 9293 §3.5.1, figure 10: the active side sends data to a peer that has no connection.
//= rfc9293 MUST-12 test
#[test]
fn half_open_connection_is_found_by_a_reset_of_its_data() {
    let mut p = Peer::new();
    let id = p.open_active(seg().mss(1460));
    p.write(id, b"data");
    p.expect().seq(1).ack(1).data(b"data");
    p.send(seg().rst().seq(1));
    assert_eq!(p.reason(id), Some(CloseReason::Reset));
    assert_eq!(p.stack.write(id, b"x", p.now), Err(IoError::Closed(CloseReason::Reset)));
    p.quiet();
}

/// RFC 9293 §3.10.7.4: in SYN-RECEIVED, an ACK of something else gets a RST, and the child stays.
#[test]
fn bad_ack_in_syn_received_is_reset() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    for bad in [0, 2, 500] {
        p.send(seg().seq(1).ack(bad));
        p.expect().is_rst().seq(bad);
    }
    p.nothing_to_accept(listener);
    p.send(seg().seq(1).ack(1));
    p.accept(listener);
}

/// RFC 9293 §3.10.7.4: the number comes first. A segment that is not acceptable is answered with an ACK alone, whatever it acknowledges: also
/// one like a probe of a client that is open.
#[test]
fn bad_ack_of_an_old_segment_in_syn_received_gets_one_answer() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    for bad in [0, 2, 500] {
        p.pass(1_000);
        while p.sent.pop_front().is_some() {}
        p.send(seg().seq(0).ack(bad));
        p.expect().is_ack().seq(1).ack(1).empty();
        p.quiet();
    }
    p.nothing_to_accept(listener);
    p.send(seg().seq(0).ack(1));
    p.accept(listener);
}

/// RFC 9293 §3.10.7.4: a RST in SYN-RECEIVED of a passive open: back to LISTEN, without an event.
//= rfc9293 MUST-11 test
#[test]
fn rst_in_syn_received_frees_the_child() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    p.send(seg().rst().seq(1));
    p.quiet();
    p.nothing_to_accept(listener);
    assert_eq!((p.stack.connections(), p.stack.queues(listener)), (0, Some((0, 0))));
}

/// RFC 9293 §3.7.1: without the option the MSS is 536. An absurd one is not believed.
//= rfc9293 MUST-15 MUST-16 test
#[test]
fn mss_defaults_and_bounds() {
    for (offered, used) in [(None, 536), (Some(1), 88), (Some(1400), 1400), (Some(9000), 1460)] {
        let mut p = Peer::new();
        let listener = p.listen();
        let syn = offered.map_or(seg(), |m| seg().mss(m));
        let id = p.open_passive(listener, syn);
        p.write(id, &[0; 5000]);
        p.expect().len(used);
    }
}

/// RFC 9293 §3.7.1: over IPv6 the MSS without the option is 1,220, also with a SYN cookie.
//= rfc9293 MUST-15 test
#[test]
fn mss_defaults_over_ipv6() {
    for syn_backlog in [1, 0] {
        let mut p = Peer::v6(|_| {});
        let listener = p.listen_with(|c| c.syn_backlog = syn_backlog);
        let id = p.open_passive(listener, seg());
        p.write(id, &[0; 5000]);
        p.expect().len(1220);
    }
    let mut p = Peer::v6(|_| {});
    let id = p.open_active(seg());
    p.write(id, &[0; 5000]);
    p.expect().len(1220);
}

/// A close before the handshake is complete takes effect after it (RFC 9293 §3.10.4, SYN-SENT note).
#[test]
fn close_in_syn_sent_sends_data_and_fin_after_the_handshake() {
    let mut p = Peer::new();
    let id = p.connect(b"all", false);
    p.shutdown(id);
    p.expect().is_syn().empty();
    p.send(seg().syn().ack(1).mss(1460));
    p.expect().is_fin().seq(1).ack(1).data(b"all");
    assert_eq!(p.state(id), StateName::FinWait1);
}

/// The port of a connection in use is not used for another one to the same server.
#[test]
fn two_connects_use_two_ports() {
    let mut p = Peer::new();
    p.connect(b"", false);
    p.connect(b"", false);
    let packets = p.drain();
    assert_eq!((packets.len(), packets[0].port), (2, PORT));
    assert_ne!(packets[0].packet[20..22], packets[1].packet[20..22]);
}
