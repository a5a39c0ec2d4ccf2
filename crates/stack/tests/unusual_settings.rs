//! Requirements under settings that other tests of them do not have: IPv6, window scales, timestamps, both roles, all
//! states.

use crate::peer::{CLIENT_PORT, Got, Peer, Seg, seg};
use firstflight_stack::{Config, ConnId, ConnectConfig, ConnectError, StateName};
use firstflight_tcp::Keepalive;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

fn both(tune: impl Fn(&mut Config)) -> [Peer; 2] {
    [Peer::with(&tune), Peer::v6(&tune)]
}

fn keepalive(c: &mut Config) {
    let (idle, interval) = (Duration::from_secs(100), Duration::from_secs(10));
    c.tcp.set_keepalive(Some(Keepalive { idle, interval, probes: 3 }));
}

/// A listener's SYN-ACK, too, has an unscaled window.
//= rfc7323 2.2-d 2.3-a test
#[test]
fn the_window_of_a_syn_ack_is_not_scaled() {
    for mut p in both(|_| {}) {
        p.listen();
        p.send(seg().syn().mss(1460).scale(7));
        assert_eq!(p.expect().syn_ack().win(65_535).scale, Some(8));
    }
}

/// Windows beyond 16 bits: MAX.SND.WND is the window times the scale, with any scale, to the byte.
//= rfc5961 5.2-a test
//= rfc7323 2.3-c 2.3-e test
//= rfc9293 MUST-1 REC-1 test
#[test]
fn a_window_counts_whole_with_any_scale() {
    for scale in 0..=14 {
        for mut p in both(|_| {}) {
            p.window = 65_535;
            let listener = p.listen();
            let id = p.open_passive(listener, seg().mss(1460).scale(scale));
            let oldest = 1_u32.wrapping_sub(65_535 << scale);
            p.send(seg().seq(1).ack(oldest.wrapping_sub(1)).data(b"too old"));
            p.expect().is_ack().ack(1);
            p.send(seg().seq(1).ack(oldest).data(b"old"));
            assert_eq!(p.read(id), b"old", "scale {scale}");
        }
    }
}

/// We want a scale of 16 for that buffer, and both say and use 14.
//= rfc7323 2.3-f 2.3-g test
#[test]
fn our_scale_is_14_at_most() {
    let mut p = Peer::with(|c| c.tcp.set_receive_buffer(u32::MAX));
    p.connect(b"", false);
    assert_eq!(p.expect().is_syn().scale, Some(14));
    p.send(seg().syn().ack(1).mss(1460).scale(0));
    assert_eq!(u32::from(p.expect().is_ack().window) << 14, 1 << 20);
}

/// Retransmissions, probes, and what answers in TIME-WAIT have timestamps, too.
//= rfc7323 3.2-b 3.2-d test
#[test]
fn timestamps_on_segments_of_every_kind() {
    for mut p in both(keepalive) {
        let id = p.open_active(seg().mss(1400).ts(1_000));
        let stamped = |got: Got, echo: u32| assert_eq!(got.ts.map(|ts| ts.echo), Some(echo), "{got:?}");
        p.at(100_100);
        stamped(p.expect().is_ack().seq(0), 1_000);
        p.send(seg().seq(1).ack(1).ts(1_001));
        p.write(id, b"x");
        stamped(p.expect().data(b"x"), 1_001);
        p.pass(350);
        stamped(p.expect().seq(1).data(b"x"), 1_001);
        p.send(seg().seq(1).ack(2).win(0).ts(1_002));
        p.drain();
        p.write(id, b"y");
        p.pass(450);
        stamped(p.expect().is_ack().seq(1).empty(), 1_002);
        p.send(seg().seq(1).ack(2).ts(1_003));
        stamped(p.expect().data(b"y"), 1_003);
        p.send(seg().seq(1).ack(3).ts(1_004));
        p.shutdown(id);
        stamped(p.expect().is_fin(), 1_004);
        for _ in 0..2 {
            p.send(seg().seq(1).ack(4).ts(1_005).fin());
            stamped(p.expect().is_ack().ack(2), 1_005);
            assert_eq!(p.state(id), StateName::TimeWait);
        }
    }
}

/// Not only the RST of an abort has timestamps.
//= rfc7323 3.2-e test
#[test]
fn resets_of_every_kind_carry_timestamps() {
    for mut p in both(|c| c.tcp.set_user_timeout(Some(Duration::from_secs(5)))) {
        let id = p.open_active(seg().mss(1400).ts(1_000));
        p.write(id, b"x");
        p.at(5_100);
        assert!(p.drain().pop().unwrap().is_rst().ts.is_some(), "user timeout");
    }
    for mut p in both(keepalive) {
        p.open_active(seg().mss(1400).ts(1_000));
        p.at(200_000);
        assert!(p.drain().pop().unwrap().is_rst().ts.is_some(), "keepalive");
    }
    for mut p in both(|_| {}) {
        let id = p.open_active(seg().mss(1400).ts(1_000));
        p.send(seg().seq(1).ack(1).ts(1_000).data(b"unread"));
        p.release(id);
        assert!(p.drain().pop().unwrap().is_rst().ts.is_some(), "released");
    }
}

/// SACK blocks are on data as well, and take room there: with timestamps up to 40 bytes.
//= rfc2018 4-c 4-f test
//= rfc9293 MUST-16 test
#[test]
fn full_segments_have_room_for_sack_blocks() {
    for stamped in [false, true] {
        for mut p in both(|_| {}) {
            let with = |s: Seg| if stamped { s.ts(1_000) } else { s };
            let listener = p.listen();
            let id = p.open_passive(listener, with(seg().mss(9_000).sack_ok()));
            for n in 0..5 {
                p.send(with(seg().seq(101 + 200 * n).ack(1).bytes(100)));
            }
            p.drain();
            p.write(id, &[7; 5_000]);
            let sent = p.drain();
            assert!(sent.len() >= 4, "{sent:?}");
            assert!(sent.iter().all(|got| !got.sack.is_empty()), "{sent:?}");
            for got in &sent[..3] {
                assert_eq!(
                    (got.packet.len(), got.sack.len()),
                    (1_500, if stamped { 3 } else { 4 }),
                    "{got:?}"
                );
            }
        }
    }
}

/// The first probe leaves when the window has been closed for a retransmission timeout, neither sooner nor later.
//= rfc9293 SHLD-29 test
#[test]
fn the_first_window_probe_waits_for_a_retransmission_timeout() {
    for rtt in [0, 100, 400] {
        for mut p in both(|_| {}) {
            p.handshake_ms = rtt;
            let listener = p.listen();
            let id = p.open_passive(listener, seg().mss(1_000));
            p.send(seg().seq(1).ack(1).win(0));
            let (now, rto) = (p.ms(), p.stack.info(id).unwrap().rto.as_millis() as u64);
            assert_eq!(rto, 200.max(3 * rtt));
            p.write(id, b"waits");
            p.sends_at(now + rto + 20, &[now + rto]).remove(0).is_ack().seq(0).empty();
        }
    }
}

/// No keepalive probe leaves while data waits for its acknowledgement, or if data came within the interval.
//= rfc9293 MUST-26 test
#[test]
fn keepalive_only_without_data_in_either_direction() {
    for mut p in both(keepalive) {
        let id = p.open_active(seg().mss(1_000));
        p.write(id, b"x");
        p.at(190_000);
        let sent = p.drain();
        assert!(sent.len() > 5 && sent.iter().all(|got| got.data == b"x"), "{sent:?}");
    }
    for mut p in both(keepalive) {
        p.open_active(seg().mss(1_000));
        p.at(60_000);
        p.send(seg().seq(1).ack(1).data(b"x"));
        p.pass(100);
        p.expect().is_ack().seq(1).ack(2);
        p.at(159_000);
        p.quiet();
        p.at(160_500);
        p.expect().is_ack().seq(0).empty();
    }
}

/// A lost SYN-ACK counts like a lost SYN.
//= rfc6298 5.7-a test
#[test]
fn the_timeout_is_three_seconds_after_a_lost_syn_ack() {
    for mut p in both(|_| {}) {
        let listener = p.listen();
        p.send(seg().syn().mss(1_000));
        p.at(1_010);
        assert_eq!(p.drain().len(), 2);
        p.at(1_100);
        p.send(seg().seq(1).ack(1));
        let id = p.accept(listener);
        p.write(id, b"x");
        p.sends_at(5_000, &[1_100, 4_100]);
    }
}

/// Bytes count, not segments: those of two full segments in small ones are acknowledged at once.
//= rfc9293 SHLD-19 test
#[test]
fn two_segments_worth_of_small_ones_is_acknowledged() {
    for mut p in both(|_| {}) {
        let listener = p.listen();
        p.open_passive(listener, seg().mss(1_000));
        for n in 0..19 {
            p.send(seg().seq(1 + 100 * n).ack(1).bytes(100));
        }
        p.quiet();
        p.send(seg().seq(1_901).ack(1).bytes(100));
        p.expect().is_ack().ack(2_001);
    }
}

/// With a window scale and an open window, too, the window moves by segments and not by what was just read.
//= rfc9293 MUST-39 test
#[test]
fn a_scaled_window_does_not_open_by_small_steps() {
    for mut p in both(|c| c.tcp.set_receive_buffer(200_000)) {
        let listener = p.listen();
        let id = p.open_passive(listener, seg().mss(1_000).scale(7));
        let edge = |got: Got| got.ack + (u32::from(got.window) << 2);
        p.send_all((0..10).map(|n| seg().seq(1 + 1_000 * n).ack(1).bytes(1_000)));
        let before = edge(p.drain().pop().unwrap());
        p.stack.read(id, &mut [0; 100], p.now).unwrap();
        p.send(seg().seq(10_001).ack(1).bytes(4));
        p.pass(50);
        assert_eq!(edge(p.expect().ack(10_005)), before);
        p.stack.read(id, &mut [0; 1_000], p.now).unwrap();
        p.send(seg().seq(10_005).ack(1).bytes(4));
        p.pass(50);
        assert_eq!(edge(p.expect().ack(10_009)), before + 1_100);
    }
}

/// A connection in this state, and its next number and the peer's.
fn in_state(mut p: Peer, state: StateName) -> (Peer, ConnId, u32, u32) {
    let id = p.open_active(seg().mss(1_000).ts(1_000));
    let first = matches!(state, StateName::CloseWait | StateName::LastAck);
    if first {
        p.send(seg().seq(1).ack(1).ts(1_000).fin());
    }
    if state != StateName::CloseWait && state != StateName::Established {
        p.shutdown(id);
    }
    match state {
        StateName::FinWait2 => p.send(seg().seq(1).ack(2).ts(1_000)),
        StateName::Closing => p.send(seg().seq(1).ack(1).ts(1_000).fin()),
        _ => {}
    }
    p.drain();
    assert_eq!(p.state(id), state);
    let finished = first || state == StateName::Closing;
    let closed = !matches!(state, StateName::CloseWait | StateName::Established);
    (p, id, 1 + u32::from(closed), 1 + u32::from(finished))
}

/// The checks against blind attackers and PAWS hold in every state, not only in ESTABLISHED.
//= rfc5961 3.2-b 3.2-c 3.2-d 4.2-a 4.2-b 5.2-b test
//= rfc7323 5.3-a test
#[test]
fn attacks_are_challenged_in_every_state() {
    use StateName::{CloseWait, Closing, Established, FinWait1, FinWait2, LastAck};
    for state in [Established, FinWait1, FinWait2, CloseWait, LastAck, Closing] {
        for p in both(|_| {}) {
            let (mut p, id, ours, theirs) = in_state(p, state);
            let forged = [
                seg().seq(theirs + 1).rst(),
                seg().seq(theirs).syn().ts(1_001),
                seg().seq(0x4000_0000).syn().ts(1_001),
                seg().seq(theirs).ack(ours + 1).ts(1_001).fin(),
                seg().seq(theirs).ack(ours).ts(999).fin(),
            ];
            for (n, segment) in forged.into_iter().enumerate() {
                p.pass(10);
                p.drain();
                p.send(segment);
                let got = p.drain();
                assert_eq!(got.len(), 1, "{state:?} {n}: {got:?}");
                got[0].clone().is_ack().seq(ours).ack(theirs).empty();
                assert_eq!(p.state(id), state, "{n}");
            }
            p.send(seg().seq(theirs.wrapping_sub(1)).rst());
            p.quiet();
            assert_eq!(p.state(id), state);
        }
    }
}

/// Also on every IPv6 packet.
//= rfc9293 MUST-49 test
#[test]
fn ipv6_packets_have_the_hop_limit_that_was_set() {
    let mut p = Peer::v6(|c| c.hop_limit = std::num::NonZeroU8::MAX);
    p.send(seg().syn());
    assert_eq!(p.expect().is_rst().packet[7], 255);
    let id = p.open_active(seg().mss(1_000));
    p.write(id, b"x");
    assert_eq!(p.expect().data(b"x").packet[7], 255);
}

/// Over both IP versions, whichever byte of a segment or of its addresses is wrong.
//= rfc9293 MUST-3 test
#[test]
fn no_segment_with_a_wrong_checksum_is_taken() {
    for (mut p, header) in both(|_| {}).into_iter().zip([20, 40]) {
        let listener = p.listen();
        let id = p.open_passive(listener, seg().mss(1_000));
        let right = p.packet(&seg().seq(1).ack(1).data(b"odd"));
        for at in header..right.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 0x10;
            p.inject(&wrong);
            p.quiet();
            assert_eq!(p.read(id), b"", "byte {at}");
        }
        p.inject(&right);
        assert_eq!(p.read(id), b"odd");
    }
}

/// The broadcast addresses of the link's networks, too.
//= rfc9293 MUST-46 test
#[test]
fn nobody_connects_to_the_broadcast_address_of_a_network() {
    let mut p = Peer::with(|c| c.broadcasts = vec!["10.0.0.255".parse().unwrap()]);
    let remote = "10.0.0.255:80".parse().unwrap();
    let refused = p.stack.connect(remote, b"", &ConnectConfig::default(), p.now);
    assert_eq!(refused, Err(ConnectError::BadRemote));
    p.quiet();
}

/// A SYN from a group or from nowhere is ignored over IPv6, too.
//= rfc9293 MUST-63 test
#[test]
fn a_syn_from_an_ipv6_address_that_nobody_has_is_ignored() {
    for source in ["ff02::1", "::", "::1", "fd00::1"] {
        let mut p = Peer::v6(|_| {});
        p.listen();
        p.moves_to(source);
        p.send(seg().syn().mss(1_000));
        p.quiet();
        assert_eq!(p.stack.connections(), 0, "{source}");
    }
}

/// A connect uses no Fast Open unless it is asked to.
//= rfc7413 2-a test
#[test]
fn a_connect_uses_no_fast_open_by_default() {
    for mut p in both(|_| {}) {
        p.port = CLIENT_PORT;
        p.connect_with(b"data", &ConnectConfig::default());
        p.expect().is_syn().empty().no_fast_open();
    }
}

/// What our SYNs announce over IPv6 is 20 bytes less, and so is what we send.
//= rfc9293 MUST-14 MUST-16 MUST-67 SHLD-5 test
#[test]
fn the_mss_of_an_ipv6_link_leaves_room_for_its_header() {
    let mut p = Peer::v6(|_| {});
    p.connect(b"", false);
    assert_eq!(p.expect().is_syn().mss, Some(1_440));
    let mut p = Peer::v6(|_| {});
    let listener = p.listen();
    p.send(seg().syn().mss(9_000));
    assert_eq!(p.expect().syn_ack().mss, Some(1_440));
    p.send(seg().seq(1).ack(1));
    let id = p.accept(listener);
    p.write(id, &[0; 5_000]);
    p.expect().len(1_440);
}

/// The answer to a SYN from this port, whose connection is reset.
fn answer(p: &mut Peer, port: u16) -> Got {
    p.flow(port, 77);
    p.send(seg().syn().mss(1460).ts(1));
    let answer = p.expect().syn_ack();
    p.send(seg().seq(1).rst());
    answer
}

/// The SYN of a connect from this port, which is given up.
fn own_syn(p: &mut Peer, port: u16) -> Got {
    let local = SocketAddr::new(p.local().ip(), port);
    let id = p.connect_with(b"", &ConnectConfig::default().local(Some(local)));
    let syn = p.expect().is_syn();
    p.abort(id);
    p.release(id);
    syn
}

/// Both ends' first numbers and timestamps follow the clock, and are others for another port, address or secret. A SYN
/// cookie is a number of its own kind, with the timestamp of its flow.
//= rfc9293 MUST-8 MUST-9 SHLD-1 test
//= rfc7323 7-a test
#[test]
fn every_handshake_begins_with_numbers_of_clock_flow_and_secret() {
    type Begin = fn(&mut Peer, u16) -> Got;
    for (begin, backlog) in [(answer as Begin, 9), (own_syn, 9), (answer, 0)] {
        let mut seen = Vec::new();
        for secret in [7, 8] {
            for mut p in both(|c| c.secret = [secret; 32]) {
                p.listen_with(|c| c.syn_backlog = backlog);
                let [one, other] = [50_001, 50_002].map(|port| begin(&mut p, port));
                p.pass(40);
                let later = begin(&mut p, 50_001);
                let stamp = |got: &Got| got.ts.unwrap().value;
                if backlog > 0 {
                    let clock = stamp(&later).wrapping_sub(stamp(&one));
                    assert_eq!((later.raw_seq - one.raw_seq, clock), (10_000, 40));
                }
                // The low bits of a SYN cookie's timestamp are the client's options.
                seen.extend([one, other].map(|got| (got.raw_seq, stamp(&got) >> 6)));
            }
        }
        let count = |of: BTreeSet<u32>| of.len();
        assert_eq!(count(seen.iter().map(|seen| seen.0.get()).collect()), 8, "{seen:?}");
        assert_eq!(count(seen.iter().map(|seen| seen.1).collect()), 8, "{seen:?}");
    }
}
