//! Closing a connection, packet by packet.

use crate::peer::{Peer, seg};
use core::time::Duration;
use firstflight_stack::{CloseReason, ConnId, IoError, Readiness, StateName};
use firstflight_wire::tcp::Flags;

/// An established connection, peer's MSS 1460, no other options.
fn open() -> (Peer, ConnId) {
    let mut p = Peer::new();
    let id = p.open_active(seg().mss(1460));
    (p, id)
}

/// RFC 9293 §3.6, figure 12, the stack being A: FIN-WAIT-1, FIN-WAIT-2, TIME-WAIT.
//= rfc9293 MUST-12 MUST-13 test
#[test]
fn normal_close_by_us() {
    let (mut p, id) = open();
    p.shutdown(id);
    assert_eq!(p.state(id), StateName::FinWait1);
    p.expect().is_fin().seq(1).ack(1);
    p.send(seg().seq(1).ack(2));
    assert_eq!(p.state(id), StateName::FinWait2);
    p.quiet();
    p.send(seg().seq(1).ack(2).fin());
    p.expect().is_ack().seq(2).ack(2);
    assert_eq!(p.state(id), StateName::TimeWait);
    assert_eq!((p.reason(id), p.stack.time_waits()), (Some(CloseReason::Finished), 1));
    assert!(p.saw(id, Readiness::CLOSED));
    p.pass(61_000);
    assert_eq!(p.stack.time_waits(), 0);
    p.quiet();
}

/// RFC 9293 §3.6, figure 12, the stack being B: CLOSE-WAIT, LAST-ACK, CLOSED.
#[test]
fn normal_close_by_the_peer() {
    let (mut p, id) = open();
    p.send(seg().seq(1).ack(1).fin());
    p.expect().is_ack().ack(2);
    assert_eq!(p.state(id), StateName::CloseWait);
    assert_eq!(p.read_once(id), Ok(0));
    p.shutdown(id);
    p.expect().is_fin().seq(1).ack(2);
    assert_eq!(p.state(id), StateName::LastAck);
    p.send(seg().seq(2).ack(2));
    assert_eq!((p.state(id), p.reason(id)), (StateName::Closed, Some(CloseReason::Finished)));
    assert_eq!(p.stack.time_waits(), 0);
    p.release(id);
    assert_eq!(p.stack.connections(), 0);
    p.quiet();
}

/// RFC 9293 §3.6, figure 13: both FINs cross.
#[test]
fn simultaneous_close() {
    let (mut p, id) = open();
    p.shutdown(id);
    p.expect().is_fin().seq(1);
    p.send(seg().seq(1).ack(1).fin());
    assert_eq!(p.state(id), StateName::Closing);
    p.expect().is_ack().seq(2).ack(2);
    p.send(seg().seq(2).ack(2));
    assert_eq!(p.state(id), StateName::TimeWait);
    p.quiet();
}

/// RFC 9293 §3.10.7.4: the FIN that acknowledges ours leads from FIN-WAIT-1 to TIME-WAIT at once.
#[test]
fn fin_with_the_ack_of_our_fin() {
    let (mut p, id) = open();
    p.write(id, b"bye");
    p.shutdown(id);
    let sent = p.drain();
    assert!(sent.len() <= 2);
    p.send(seg().seq(1).ack(5).data(b"ok").fin());
    p.expect().is_ack().seq(5).ack(4);
    assert_eq!(p.state(id), StateName::TimeWait);
    assert_eq!(p.read(id), b"ok");
    assert_eq!(p.read_once(id), Ok(0));
}

/// RFC 9293 §3.6, case 1: after our FIN the peer may go on sending.
#[test]
fn half_close_by_us() {
    let (mut p, id) = open();
    p.shutdown(id);
    p.expect().is_fin();
    p.send(seg().seq(1).ack(2));
    p.send(seg().seq(1).ack(2).data(b"more"));
    assert_eq!(p.read(id), b"more");
    assert_eq!(p.stack.write(id, b"x", p.now), Err(IoError::SendClosed));
    p.pass(3_600_000);
    assert_eq!(p.state(id), StateName::FinWait2);
    p.drain();
    p.send(seg().seq(5).ack(2).data(b"!").fin());
    p.expect().is_ack().ack(7);
    assert_eq!(p.read(id), b"!");
}

/// The limit holds for connections that were in FIN-WAIT-2 and released before, and for those released later. It does
/// not hold for a connection that the application still reads from.
#[test]
fn fin_wait_2_is_limited_for_released_connections() {
    for released_first in [true, false] {
        let (mut p, id) = open();
        p.shutdown(id);
        p.expect().is_fin();
        p.send(seg().seq(1).ack(2));
        if released_first {
            p.release(id);
        }
        p.stack.limit_fin_wait2(Duration::from_millis(100), p.now);
        if !released_first {
            p.pass(1_000);
            assert_eq!(p.state(id), StateName::FinWait2);
            p.release(id);
        }
        p.pass(90);
        assert_eq!(p.stack.connections(), 1);
        p.pass(20);
        assert_eq!(p.stack.connections(), 0);
        p.quiet();
    }
}

/// RFC 9293 §3.6, case 2: after the peer's FIN we may go on sending.
#[test]
fn half_close_by_the_peer() {
    let (mut p, id) = open();
    p.send(seg().seq(1).ack(1).fin());
    p.expect().is_ack().ack(2);
    p.write(id, b"answer");
    p.expect().is_ack().seq(1).ack(2).data(b"answer");
    p.send(seg().seq(2).ack(7));
    assert_eq!(p.state(id), StateName::CloseWait);
    p.shutdown(id);
    p.expect().is_fin().seq(7);
}

/// RFC 9293 §3.10.7.4, eighth step: a FIN counts only when everything before it is there.
#[test]
fn fin_out_of_order() {
    let (mut p, id) = open();
    p.send(seg().seq(3).ack(1).data(b"c").fin());
    p.expect().is_ack().ack(1);
    assert_eq!(p.state(id), StateName::Established);
    p.send(seg().seq(1).ack(1).data(b"ab"));
    p.expect().is_ack().ack(5);
    assert_eq!(p.state(id), StateName::CloseWait);
    assert_eq!(p.read(id), b"abc");
}

/// RFC 5681 §4.2: a segment that fills a part of a hole is acknowledged at once, if only a FIN follows the hole.
#[test]
fn what_a_fin_overtook_is_acknowledged_at_once() {
    let (mut p, id) = open();
    p.send(seg().seq(111).ack(1).fin());
    p.expect().is_ack().ack(1);
    p.send(seg().seq(1).ack(1).bytes(10));
    p.expect().is_ack().ack(11);
    p.send(seg().seq(11).ack(1).bytes(100));
    p.expect().is_ack().ack(112);
    assert_eq!(p.state(id), StateName::CloseWait);
}

/// RFC 9293 §3.10.7.4, seventh step: there is no text after a FIN.
#[test]
fn data_behind_a_fin_is_not_taken() {
    let (mut p, id) = open();
    p.send(seg().seq(1).ack(1).fin());
    p.expect().ack(2);
    p.send(seg().seq(2).ack(1).data(b"ghost"));
    p.expect().is_ack().ack(2);
    assert_eq!(p.read_once(id), Ok(0));
    // Nor is data taken that came before the FIN, with numbers after it.
    let (mut p, id) = open();
    p.send(seg().seq(5).ack(1).data(b"ghost"));
    p.send(seg().seq(3).ack(1).fin());
    p.send(seg().seq(1).ack(1).data(b"ab"));
    p.drain();
    assert_eq!(p.read(id), b"ab");
    assert_eq!(p.read_once(id), Ok(0));
    assert_eq!(p.state(id), StateName::CloseWait);
}

/// RFC 9293 §3.10.7.4: text beyond the window is trimmed off, and so is a FIN. It has no effect later.
#[test]
fn a_fin_beyond_the_window_is_not_taken() {
    let mut p = Peer::with(|c| c.tcp.set_receive_buffer(1_000));
    let id = p.open_active(seg().mss(1460));
    p.send(seg().seq(1).ack(1).bytes(1_001).fin());
    p.expect().ack(1_001).win(0);
    assert_eq!(p.read(id).len(), 1_000);
    p.drain();
    p.send(seg().seq(1_001).ack(1).data(b"z"));
    assert_eq!(p.read(id), b"z");
    assert_eq!(p.state(id), StateName::Established);
    p.send(seg().seq(1_002).ack(1).fin());
    assert_eq!(p.state(id), StateName::CloseWait);
}

/// A FIN inside text that waits behind a hole is the peer's error. The stream continues, and ends where the next
/// FIN says. It neither ends without a change of state nor loses bytes.
#[test]
fn a_fin_inside_of_text_does_not_end_the_stream() {
    let (mut p, id) = open();
    p.send(seg().seq(3).ack(1).data(b"cdef"));
    p.send(seg().seq(5).ack(1).fin());
    p.send(seg().seq(1).ack(1).data(b"ab"));
    assert_eq!(p.read(id), b"abcdef");
    assert_eq!(p.read_once(id), Err(IoError::WouldBlock));
    assert_eq!(p.state(id), StateName::Established);
    p.send(seg().seq(7).ack(1).fin());
    assert_eq!(p.read_once(id), Ok(0));
    assert_eq!(p.state(id), StateName::CloseWait);
}

/// A FIN is retransmitted like data (RFC 6298 §5), and acknowledged again.
#[test]
fn our_fin_is_retransmitted() {
    let (mut p, id) = open();
    p.shutdown(id);
    let sent = p.sends_at(1_500, &[0, 200, 600, 1_400]);
    assert!(sent.into_iter().all(|g| g.is_fin().seq(1).data.is_empty()));
    p.send(seg().seq(1).ack(2));
    assert_eq!(p.state(id), StateName::FinWait2);
    p.pass(100_000);
    p.quiet();
}

/// The peer's FIN again in CLOSE-WAIT and LAST-ACK: our ACK was lost.
#[test]
fn the_peers_fin_again_is_acknowledged_again() {
    let (mut p, id) = open();
    for _ in 0..2 {
        p.send(seg().seq(1).ack(1).fin());
        p.expect().is_ack().seq(1).ack(2);
    }
    p.shutdown(id);
    p.expect().is_fin();
    p.send(seg().seq(1).ack(1).fin());
    p.expect().is_ack().ack(2);
    assert_eq!(p.state(id), StateName::LastAck);
}

fn in_time_wait(syn_ack: crate::peer::Seg) -> (Peer, ConnId) {
    let mut p = Peer::new();
    let ts = syn_ack.clone().stamp();
    let with = |s: crate::peer::Seg| ts.map_or(s.clone(), |t| s.ts(t));
    let id = p.open_active(syn_ack);
    p.shutdown(id);
    p.expect().is_fin();
    p.send(with(seg().seq(1).ack(2).fin()));
    p.expect().is_ack().ack(2);
    assert_eq!(p.state(id), StateName::TimeWait);
    (p, id)
}

/// RFC 9293 §3.10.7.4, TIME-WAIT: a repeated FIN is acknowledged again and restarts 2 MSL.
//= rfc9293 MUST-13 test
#[test]
fn fin_in_time_wait_is_acknowledged_and_restarts_the_time() {
    let (mut p, _) = in_time_wait(seg().mss(1460));
    p.at(50_000);
    p.send(seg().seq(1).ack(2).fin());
    p.expect().is_ack().seq(2).ack(2);
    p.at(109_000);
    assert_eq!(p.stack.time_waits(), 1);
    p.at(111_000);
    assert_eq!(p.stack.time_waits(), 0);
}

/// RFC 9293 §3.10.7.4: the checks of number, timestamp and ACK bit come before the rule for TIME-WAIT. A FIN that is
/// not the peer's is answered, but does not restart 2 MSL.
//= rfc9293 MUST-13 test
#[test]
fn a_fin_that_is_not_the_peers_does_not_restart_the_time() {
    let plain = || (seg().mss(1460), seg().seq(1).ack(2).fin());
    let (_, own) = plain();
    let stamped = own.clone().ts(1_000);
    let cases = [
        (plain().0, own.clone().seq(2), "the next number"),
        (plain().0, own.clone().seq(0), "the number before"),
        (plain().0, own.clone().seq(0x4000_0000), "any number"),
        (plain().0, seg().seq(1).fin(), "without ACK"),
        (plain().0.ts(1_000), stamped.clone().ts(999), "an old timestamp"),
        (plain().0.ts(1_000), own, "no timestamp"),
    ];
    for (syn_ack, fin, what) in cases {
        let (mut p, _) = in_time_wait(syn_ack);
        p.at(50_000);
        p.send(fin);
        p.expect().is_ack().seq(2).ack(2);
        p.at(58_000);
        assert_eq!(p.stack.time_waits(), 1, "{what}");
        p.at(62_000);
        assert_eq!(p.stack.time_waits(), 0, "{what}");
    }
    // The peer's own FIN restarts it, with a newer timestamp or the same.
    for fin in [stamped.clone(), stamped.ts(9_000)] {
        let (mut p, _) = in_time_wait(seg().mss(1460).ts(1_000));
        p.at(50_000);
        p.send(fin);
        p.expect().is_ack().seq(2).ack(2);
        p.at(109_000);
        assert_eq!(p.stack.time_waits(), 1);
    }
}

/// A restarted record does not keep other records beyond their time.
#[test]
fn restarted_time_waits_do_not_hold_up_others() {
    let mut p = Peer::new();
    p.port = crate::peer::PORT;
    let mut ports = Vec::new();
    for _ in 0..3 {
        let id = p.open_active(seg().mss(1460));
        p.shutdown(id);
        p.expect().is_fin();
        p.send(seg().seq(1).ack(2).fin());
        p.expect().is_ack();
        ports.push(p.local_port);
        p.release(id);
    }
    p.at(30_000);
    // The first two end later now; the third still ends at 60 s.
    for port in &ports[..2] {
        p.local_port = *port;
        p.send(seg().seq(1).ack(2).fin());
    }
    p.at(61_000);
    assert_eq!(p.stack.time_waits(), 2);
    p.at(91_000);
    assert_eq!(p.stack.time_waits(), 0);
}

/// RFC 1337 §3, fix 1: a RST does not end TIME-WAIT. Old ACKs and data do not either, and are answered.
#[test]
fn time_wait_survives_resets_and_old_segments() {
    let (mut p, _) = in_time_wait(seg().mss(1460));
    p.send(seg().seq(2).rst());
    p.send(seg().seq(2).ack(2).rst());
    p.quiet();
    p.send(seg().seq(1).ack(1).data(b"old"));
    p.expect().is_ack().seq(2).ack(2);
    assert_eq!(p.stack.time_waits(), 1);
}

/// A client whose SYN is answered with an ACK of an old connection resets that connection, and sends its SYN again
/// (RFC 9293 §3.5.1). If the RST were ignored, the client would wait until the TIME-WAIT is over.
#[test]
fn a_reset_behind_a_refused_syn_ends_time_wait() {
    let mut p = Peer::new();
    let listener = p.listen();
    let id = p.open_passive(listener, seg().mss(1460));
    p.shutdown(id);
    p.expect().is_fin();
    p.send(seg().seq(1).ack(2).fin());
    p.expect().is_ack();
    // Without a SYN before it, a RST may be the answer to our ACK of an old duplicate (RFC 1337).
    p.send(seg().seq(2).rst());
    let old = p.isn;
    p.isn = old.wrapping_sub(100_000);
    p.send(seg().syn().mss(1460));
    assert_eq!(p.expect().is_ack().raw_ack.get(), old.wrapping_add(2));
    for wrong in [100_001, 100_003] {
        p.send(seg().seq(wrong).rst());
    }
    p.send(seg().syn().mss(1460));
    p.expect().is_ack();
    assert_eq!(p.stack.time_waits(), 1, "not exactly the next number");
    p.send(seg().seq(100_002).rst());
    p.quiet();
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack().ack(1);
    assert_eq!(p.stack.time_waits(), 0);
}

/// A SYN with FIN opens nothing, so it must not end a TIME-WAIT either.
#[test]
fn a_syn_with_fin_does_not_end_time_wait() {
    let (mut p, _) = in_time_wait(seg().mss(1460));
    p.send(seg().seq(1_000).syn().fin());
    p.expect().is_ack();
    assert_eq!(p.stack.time_waits(), 1);
}

/// RFC 6191 §2 and RFC 9293 §3.6.1 (MAY-2): which SYN takes the place of a TIME-WAIT.
//= rfc9293 SHLD-4 test
#[test]
fn time_wait_is_reopened_by_a_newer_syn() {
    // (timestamps before, ISN ahead of the old numbers, timestamp of the SYN, taken)
    let rows = [
        (false, true, None, true),
        (false, false, None, false),
        (true, false, Some(1_001), true),
        (true, true, Some(1_000), true),
        (true, false, Some(1_000), false),
        // An old SYN whose number is higher by chance.
        (true, true, Some(999), false),
        (true, true, None, true),
        (true, false, None, false),
    ];
    for (n, (before, ahead, now, taken)) in rows.into_iter().enumerate() {
        let mut p = Peer::new();
        let listener = p.listen();
        let with = |s: crate::peer::Seg, t: Option<u32>| t.map_or(s.clone(), |t| s.ts(t));
        let old = before.then_some(1_000);
        let id = p.open_passive(listener, with(seg().mss(1460), old));
        p.shutdown(id);
        p.expect().is_fin();
        let last = p.stack.info(id).unwrap();
        p.send(with(seg().seq(1).ack(2).fin(), old));
        let end = p.expect().is_ack().raw_seq;
        assert_eq!(last.state, StateName::FinWait1);
        let isn = p.isn;
        p.isn = if ahead { isn.wrapping_add(100_000) } else { isn.wrapping_sub(100_000) };
        p.send(with(seg().syn().mss(1460), now));
        if taken {
            let syn_ack = p.expect().syn_ack().ack(1);
            // RFC 9293 §3.6.1: the new ISN is larger than any number of the old connection.
            assert!(syn_ack.raw_seq.gt(end), "row {n}");
            assert_eq!(p.stack.time_waits(), 0, "row {n}");
            p.send(with(seg().seq(1).ack(1), now));
            p.accept(listener);
        } else {
            let ack = p.expect().is_ack();
            assert_eq!(ack.raw_ack.get(), isn.wrapping_add(2), "row {n}");
            assert_eq!(p.stack.time_waits(), 1, "row {n}");
        }
    }
}

/// The table has two places, so two of four records are evicted.
#[test]
fn time_wait_table_is_bounded() {
    let mut p = Peer::with(|c| c.limits.time_wait = 2);
    for _ in 0..4 {
        let id = p.open_active(seg().mss(1460));
        p.shutdown(id);
        p.drain();
        p.send(seg().seq(1).ack(2).fin());
        p.drain();
        p.release(id);
    }
    assert_eq!((p.stack.time_waits(), p.stack.connections()), (2, 0));
    assert_eq!(p.stack.counters().time_waits_evicted, 2);
}

/// After a release FIN-WAIT-2 ends by itself (Linux: 60 s), without a RST.
#[test]
fn fin_wait_2_times_out_after_release() {
    let (mut p, id) = open();
    p.release(id);
    p.expect().is_fin();
    p.at(1);
    p.send(seg().seq(1).ack(2));
    p.at(59_000);
    assert_eq!(p.stack.connections(), 1);
    p.at(61_000);
    assert_eq!(p.stack.connections(), 0);
    p.quiet();
    // A peer that still sends learns that the connection is gone.
    p.send(seg().seq(1).ack(2).data(b"late"));
    p.expect().is_rst().seq(2);
}

/// RFC 9293 §3.6.1, RFC 2525 §2.17: a close that throws data away is a reset.
//= rfc9293 SHLD-3 test
#[test]
fn release_with_unread_data_resets() {
    let (mut p, id) = open();
    p.send(seg().seq(1).ack(1).data(b"unread"));
    p.release(id);
    p.expect().is_rst().seq(1);
    p.quiet();
    assert_eq!((p.stack.connections(), p.stack.buffer_bytes()), (0, 0));
}

/// The same is true when data arrives after the release. A FIN without data is taken in order.
//= rfc9293 SHLD-3 test
#[test]
fn data_after_release_resets() {
    let (mut p, id) = open();
    p.release(id);
    p.expect().is_fin().seq(1);
    p.send(seg().seq(1).ack(2).data(b"nobody reads this"));
    p.expect().is_rst().seq(2);
    assert_eq!(p.stack.connections(), 0);
    p.quiet();
    let (mut p, id) = open();
    p.release(id);
    p.expect().is_fin();
    p.send(seg().seq(1).ack(2).fin());
    p.expect().is_ack().ack(2);
    assert_eq!((p.stack.connections(), p.stack.time_waits()), (0, 1));
}

/// A peer whose FIN was lost expects the number before it, and believes no other reset (RFC 5961 §3.2).
//= rfc9293 SHLD-3 test
#[test]
fn data_after_a_lost_fin_resets_where_the_peer_is() {
    let (mut p, id) = open();
    p.release(id);
    p.expect().is_fin().seq(1);
    p.send(seg().seq(1).ack(1).data(b"nobody reads this"));
    assert_eq!(p.expect().is_rst().seq(1).flags, Flags::RST);
    assert_eq!(p.stack.connections(), 0);
    p.quiet();
}

/// RFC 9293 §3.10.5: ABORT sends a RST that the peer believes, with the next number that the peer expects.
#[test]
fn abort_resets() {
    let (mut p, id) = open();
    p.write(id, b"abc");
    p.expect();
    p.abort(id);
    p.expect().is_rst().seq(4).ack(1);
    assert_eq!(p.reason(id), Some(CloseReason::Aborted));
    assert_eq!(p.stack.write(id, b"x", p.now), Err(IoError::Closed(CloseReason::Aborted)));
    p.send(seg().seq(1).ack(4));
    p.expect().is_rst().seq(4);
    p.release(id);
    assert_eq!(p.stack.connections(), 0);
}

/// This also holds after a timeout took SND.NXT back: a RST below the peer's edge would be ignored.
#[test]
fn abort_after_a_timeout_resets_at_the_highest_number_sent() {
    let (mut p, id) = open();
    p.write(id, &[b'a'; 1460]);
    p.write(id, &[b'b'; 1460]);
    p.drain();
    p.at(250);
    p.expect().seq(1).len(1460);
    p.abort(id);
    p.expect().is_rst().seq(2921);
}

/// An abort before the SYN-ACK sends nothing (RFC 9293 §3.10.5, SYN-SENT).
#[test]
fn abort_in_syn_sent_is_silent() {
    let mut p = Peer::new();
    let id = p.connect(b"x", false);
    p.expect().is_syn();
    p.abort(id);
    p.quiet();
    // The late SYN-ACK finds no connection.
    p.send(seg().syn().ack(1).mss(1460));
    p.expect().is_rst().seq(1);
    p.release(id);
    assert_eq!(p.stack.connections(), 0);
}

/// RFC 9293 §3.10.7.4: a RST in every synchronised state frees everything.
//= rfc9293 MUST-12 test
//= rfc5961 3.2-a test
#[test]
fn rst_ends_every_state() {
    for state in ["established", "fin-wait-1", "fin-wait-2", "close-wait", "closing", "last-ack"] {
        let (mut p, id) = open();
        let mut next = 1;
        match state {
            "fin-wait-1" => p.shutdown(id),
            "fin-wait-2" => {
                p.shutdown(id);
                p.send(seg().seq(1).ack(2));
            }
            "close-wait" => p.send(seg().seq(1).ack(1).fin()),
            "closing" => {
                p.shutdown(id);
                p.send(seg().seq(1).ack(1).fin());
            }
            "last-ack" => {
                p.send(seg().seq(1).ack(1).fin());
                p.shutdown(id);
            }
            _ => {}
        }
        if ["close-wait", "closing", "last-ack"].contains(&state) {
            next = 2;
        }
        p.drain();
        p.send(seg().rst().seq(next));
        assert_eq!(p.reason(id), Some(CloseReason::Reset), "{state}");
        p.quiet();
        p.release(id);
        assert_eq!((p.stack.connections(), p.stack.buffer_bytes()), (0, 0), "{state}");
    }
}

/// A listener that is removed resets the children that were not accepted, whatever their state.
#[test]
fn a_closed_listener_resets_its_children() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    p.flow(crate::peer::CLIENT_PORT + 1, 9);
    p.send(seg().syn().mss(1460));
    p.expect().syn_ack();
    p.send(seg().seq(1).ack(1));
    p.stack.unlisten(listener, p.now);
    let resets = p.drain();
    assert_eq!(resets.len(), 2);
    assert!(resets.into_iter().all(|r| r.is_rst().seq == 1));
    assert_eq!(p.stack.connections(), 0);
    p.send(seg().syn().mss(1460));
    p.expect().is_rst();
}
