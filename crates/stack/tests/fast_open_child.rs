//! A child that lives before its handshake is complete, packet by packet (RFC 7413 §4.2.2).

use crate::peer::visited::{AFTER, DATA, first_flight, server, server_with, syn};
use crate::peer::{CLIENT_PORT, key, policy, seg};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::{PacketDrop, ResponsePolicy, StateName};
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::tcp::Flags;

// --- answering before the handshake is complete ------------------------------------------------------

/// RFC 7413 §4.2.2: the answer is sent at once, up to the initial window.
//= rfc7413 4.2.2-c test
#[test]
fn the_answer_is_limited_by_the_initial_window() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    p.expect().syn_ack();
    let id = p.accept(listener);
    p.write(id, &[b'a'; 30_000]);
    let got = p.drain();
    assert_eq!(got.iter().map(|g| g.data.len()).sum::<usize>(), 10_000);
    assert!(got.iter().all(|g| g.ack == AFTER && g.flags.contains(Flags::ACK)));
    // The client's ACK of all of it.
    p.send(seg().seq(AFTER).ack(10_001));
    assert_eq!(p.drain()[0].seq, 10_001);
}

/// RFC 7413 §4.2.2: the SYN's window is a limit, too. It is not scaled (RFC 7323 §2.2).
//= rfc7323 2.2-d test
#[test]
fn the_answer_is_limited_by_the_unscaled_window() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie).scale(7).win(3_000));
    p.expect().syn_ack();
    let id = p.accept(listener);
    p.write(id, &[b'a'; 30_000]);
    let early: usize = p.drain().iter().map(|g| g.data.len()).sum();
    assert!(early <= 3_000, "{early}");
    p.send(seg().seq(AFTER).ack(1 + early as u32).win(3_000));
    let then: usize = p.drain().iter().map(|g| g.data.len()).sum();
    assert!(then > 3_000, "{then}");
}

/// RFC 7413 §4.2.2: before the client's ACK, only the SYN-ACK is retransmitted. After it, the data is
/// retransmitted, at the timeout, from the first byte.
#[test]
fn data_is_not_retransmitted_before_the_ack() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    let id = p.accept(listener);
    p.write(id, b"answer");
    let sent = p.sends_at(4_000, &[0, 0, 1_000, 3_000]);
    let data: Vec<&[u8]> = sent.iter().map(|g| g.data.as_slice()).collect();
    assert_eq!(data, [b"", &b"answer"[..], b"", b""]);
    // The second timeout reduces the window to one segment.
    assert_eq!(p.stack.info(id).unwrap().cwnd, 1_000);
    // The ACK acknowledges the SYN only: the answer was lost.
    p.send(seg().seq(AFTER).ack(1));
    p.pass(3_500);
    assert!(p.drain().iter().any(|g| g.seq == 1 && g.data == b"answer"));
}

/// One lost SYN-ACK says little, so the window stays.
#[test]
fn one_timeout_keeps_the_initial_window() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    let id = p.accept(listener);
    p.at(1_500);
    assert_eq!(p.stack.info(id).unwrap().cwnd, 10_000);
}

/// The paper's §3.4.2: at most k times what was received. The SYN-ACK is always sent.
#[test]
fn response_policy_times() {
    let (mut p, listener, cookie) = server_with(|_| {}, |c| c.response = ResponsePolicy::Times(3));
    p.send(first_flight(&cookie));
    let syn_ack = p.expect().syn_ack();
    assert!(syn_ack.data.is_empty());
    let id = p.accept(listener);
    p.write(id, &[b'a'; 30_000]);
    // 20 IP, 20 TCP, 4 MSS, 10 cookie and padding, the data.
    let received = 40 + 16 + DATA.len();
    let early: usize = p.drain().iter().map(|g| g.data.len()).sum();
    assert!(early > 0 && early <= 3 * received, "{early}");
    p.pass(500);
    p.quiet();
    p.send(seg().seq(AFTER).ack(1 + early as u32));
    assert!(p.drain().iter().map(|g| g.data.len()).sum::<usize>() >= 9_000);
}

/// A client has many first flights in progress. Each of the first ones may get an initial window, and each of the
/// others three times what it brought: the client may be an office, or a victim whose cookie was stolen. The ACK
/// removes that limit.
#[test]
fn beyond_its_own_permits_a_client_is_sent_three_times_what_it_sent() {
    let policy = policy(key(1), 256);
    let (mut p, listener, cookie) = server_with(|_| {}, |c| c.fast_open = Some(policy));
    let received = 40 + 16 + DATA.len();
    for n in 0..85 {
        p.flow(CLIENT_PORT + n, 77);
        p.send(first_flight(&cookie));
        p.expect().syn_ack().ack(AFTER);
        let id = p.accept(listener);
        assert_eq!(p.read(id), DATA, "executed at once");
        p.write(id, &[b'a'; 30_000]);
        let early: usize = p.drain().iter().map(|g| g.data.len()).sum();
        if n < 8 {
            assert_eq!(early, 10_000);
        } else {
            assert!(early > 0 && early <= 3 * received, "{early} bytes for the first flight {n}");
            p.send(seg().seq(AFTER).ack(1 + early as u32));
            assert!(p.drain().iter().map(|g| g.data.len()).sum::<usize>() >= 9_000);
            // It would give its permit back, so another one takes it.
            p.flow(CLIENT_PORT + 1000 + n, 77);
            p.send(first_flight(&cookie));
            p.accept(listener);
            p.drain();
        }
    }
    p.flow(CLIENT_PORT + 500, 77);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(1);
    let refused = Outcome::Handshake(Reason::ClientLimit);
    assert_eq!(p.stack.counters().server.count(refused), 1);
}

/// Only the SYN-ACK is sent, not even a FIN.
#[test]
fn response_policy_after_the_handshake() {
    let (mut p, listener, cookie) = server_with(|_| {}, |c| c.response = ResponsePolicy::AfterHandshake);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(AFTER);
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
    p.write(id, b"answer");
    p.shutdown(id);
    p.quiet();
    p.send(seg().seq(AFTER).ack(1));
    p.expect().is_fin().seq(1).data(b"answer");
    assert_eq!(p.state(id), StateName::FinWait1);
}

/// RFC 7413 §4.2.2: answer and FIN may be sent before the ACK. The ACK of the handshake covers them.
#[test]
fn answer_and_fin_before_the_ack() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    p.expect().syn_ack();
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
    p.write(id, b"answer");
    p.shutdown(id);
    let sent = p.drain();
    assert_eq!(sent.iter().map(|g| g.data.len()).sum::<usize>(), 6);
    assert!(sent.last().unwrap().flags.contains(Flags::FIN));
    p.send(seg().seq(AFTER).ack(8));
    assert_eq!(p.state(id), StateName::FinWait2);
    p.send(seg().seq(AFTER).ack(8).fin());
    p.expect().is_ack().seq(8);
    assert_eq!(p.state(id), StateName::TimeWait);
}

/// RFC 9293 §3.5 lets the SYN-ACK carry data. This is off by default, because Linux clients drop it.
//= rfc7413 4.2.2-d test
#[test]
fn data_in_the_syn_ack_if_switched_on() {
    for on in [false, true] {
        let (mut p, listener, cookie) = server_with(|c| c.tcp.set_data_in_syn_ack(on), |_| {});
        p.deliver(first_flight(&cookie));
        let id = p.stack.accept(listener).unwrap();
        p.stack.write(id, b"answer", p.now).unwrap();
        let first = p.expect().syn_ack().ack(AFTER);
        if on {
            assert_eq!(first.data, b"answer");
            p.write(id, b" and");
            p.expect().is_ack().seq(7).data(b" and");
            p.write(id, b" more");
            p.quiet();
            // Its retransmission carries no data, not even what Nagle's algorithm holds back.
            p.at(1_500);
            p.expect().syn_ack().empty();
        } else {
            first.empty();
            p.expect().is_ack().seq(1).data(b"answer");
        }
        p.send(seg().seq(AFTER).ack(7));
        assert_eq!(p.state(id), StateName::Established);
    }
}

// --- the child in SYN-RECEIVED ------------------------------------------------------------------------

/// A duplicate SYN gets the same SYN-ACK; its payload is dropped.
#[test]
fn a_duplicate_syn_delivers_nothing_twice() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    let first = p.expect().syn_ack().ack(AFTER);
    p.send(first_flight(&cookie));
    p.quiet();
    p.at(600);
    p.send(first_flight(&cookie));
    let second = p.expect().syn_ack().ack(AFTER);
    assert_eq!(first.raw_seq, second.raw_seq);
    // A plain SYN, as clients retransmit it.
    p.at(1_150);
    p.drain();
    p.at(1_700);
    p.send(syn());
    p.expect().syn_ack().ack(AFTER);
    let id = p.accept(listener);
    p.nothing_to_accept(listener);
    assert_eq!(p.read(id), DATA);
    assert_eq!(p.stack.info(id).unwrap().totals.bytes_received, DATA.len() as u64);
}

/// The client repeats its data after the handshake, because it did not see our acknowledgement. It is delivered
/// once.
#[test]
fn data_sent_again_with_the_ack_is_not_delivered_twice() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    p.expect().syn_ack();
    p.send(seg().seq(1).ack(1).data(DATA));
    p.expect().is_ack().ack(AFTER);
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
}

/// RFC 9293 §3.10.7.4: FIN with the handshake's ACK, data in between.
#[test]
fn a_fin_with_the_ack_closes_the_child() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    p.expect().syn_ack();
    p.send(seg().seq(AFTER).ack(1).data(b"!").fin());
    p.expect().is_ack().ack(AFTER + 2);
    let id = p.accept(listener);
    assert_eq!(p.state(id), StateName::CloseWait);
    assert_eq!(p.read(id).len(), DATA.len() + 1);
    assert_eq!(p.read_once(id), Ok(0));
}

/// RFC 5961 §3: a RST is accepted exactly at the edge, and challenged elsewhere. Here off-path RSTs are easiest.
//= rfc5961 3.2-a 3.2-b test
#[test]
fn a_reset_must_match_the_edge() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    p.expect().syn_ack();
    p.send(seg().seq(AFTER + 1).rst());
    p.expect().is_ack().ack(AFTER);
    p.send(seg().seq(1).rst());
    p.quiet();
    let id = p.accept(listener);
    assert_eq!(p.state(id), StateName::SynRcvd);
}

/// A listener that closes resets every child that was not accepted.
#[test]
fn a_closed_listener_resets_early_children() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    p.expect().syn_ack();
    p.stack.unlisten(listener, p.now);
    p.expect().is_rst().seq(1).ack(AFTER);
    assert_eq!((p.stack.connections(), p.stack.buffer_bytes()), (0, 0));
}

/// RFC 9293 §3.6.1: a release with the SYN's data unread sends a RST.
#[test]
fn release_with_unread_syn_data_resets() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    p.expect().syn_ack();
    let id = p.accept(listener);
    p.release(id);
    p.expect().is_rst().seq(1).ack(AFTER);
    assert_eq!(p.stack.connections(), 0);
}

/// A hard ICMP error does not take the data from the application: it reads the data first, then the error.
#[test]
fn icmp_errors_leave_the_child_readable() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    let syn_ack = p.expect().syn_ack();
    p.icmp(IcmpErrorKind::PortUnreachable, &syn_ack.packet);
    let id = p.accept(listener);
    assert_eq!(p.read(id), DATA);
    assert_eq!(p.reason(id), Some(firstflight_stack::CloseReason::Unreachable));
    p.release(id);
    p.quiet();
    assert_eq!((p.stack.connections(), p.stack.buffer_bytes()), (0, 0));
}

/// A full accept queue drops the SYN, cookie or not.
#[test]
fn a_full_accept_queue_drops_first_flights() {
    let (mut p, listener, cookie) = server_with(|_| {}, |c| c.backlog = 1);
    p.send(first_flight(&cookie));
    p.expect().syn_ack();
    p.flow(CLIENT_PORT + 1, 5);
    p.send(first_flight(&cookie));
    p.quiet();
    assert_eq!(p.stack.counters().dropped(PacketDrop::AcceptQueueFull), 1);
    p.accept(listener);
    p.nothing_to_accept(listener);
}

/// While a listener sends SYN cookies, and for 10 s after, it accepts no first flight: the stateless answer and a
/// later child would have different ISNs for the same SYN.
#[test]
fn no_first_flight_while_syn_cookies_answer_and_10_s_after() {
    let (mut p, listener, cookie) = server_with(|_| {}, |c| c.syn_backlog = 1);
    p.send(syn());
    p.expect().syn_ack();
    p.flow(CLIENT_PORT + 1, 5);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(1).no_fast_open();
    assert_eq!(p.stack.counters().syn_cookies_sent, 1);
    // There is room in the queue again.
    p.flow(CLIENT_PORT, crate::peer::PEER_ISN);
    p.send(seg().seq(1).ack(1));
    p.accept(listener);
    p.at(9_900);
    p.flow(CLIENT_PORT + 2, 5);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(1).no_fast_open();
    p.send(seg().seq(1).ack(1));
    p.at(10_100);
    p.flow(CLIENT_PORT + 3, 5);
    p.send(first_flight(&cookie));
    p.expect().syn_ack().ack(AFTER);
}

/// The client treats a SYN-ACK as one that left its data out, and sends the data again. That segment is old, but
/// its ACK completes the handshake.
#[test]
fn a_segment_that_repeats_the_syns_data_completes_the_handshake() {
    for (from, to) in [(1, AFTER), (3, AFTER), (1, AFTER - 2)] {
        let (mut p, listener, cookie) = server();
        p.send(first_flight(&cookie));
        p.expect().syn_ack();
        let id = p.accept(listener);
        assert_eq!(p.read(id), DATA);
        p.pass(100);
        let again = &DATA[from as usize - 1..to as usize - 1];
        p.send(seg().seq(from).ack(1).data(again));
        p.expect().is_ack().ack(AFTER).empty();
        assert_eq!(p.state(id), StateName::Established);
        assert!(p.stack.info(id).unwrap().confirmed);
        assert_eq!(p.read(id), b"", "the data is not delivered twice");
        p.write(id, b"answer");
        p.expect().data(b"answer");
        p.send(seg().seq(AFTER).ack(7));
        // No SYN-ACK is retransmitted.
        p.pass(3_000);
        p.quiet();
    }
}

/// Data from before the SYN, or an ACK of something else, does not complete the handshake.
#[test]
fn a_segment_that_only_seems_to_repeat_the_syns_data_completes_nothing() {
    let (mut p, listener, cookie) = server();
    p.send(first_flight(&cookie));
    p.expect().syn_ack();
    let id = p.accept(listener);
    for (seq, ack) in [(0, 1), (1, 2), (1, 0)] {
        p.send(seg().seq(seq).ack(ack).data(&DATA[..1]));
        p.drain();
        assert!(p.stack.info(id).is_none_or(|info| !info.confirmed), "{seq} {ack}");
    }
}
