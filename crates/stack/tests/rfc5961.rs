//! Blind attackers (RFC 5961): what off-path segments can and cannot do.

use crate::peer::{Peer, Seg, seg};
use firstflight_stack::{CloseReason, ConnId, StateName};

/// The n-th segment of a flood.
type Flood = fn(u32) -> Seg;

/// The peer has sent 10 bytes and the stack 10, all acknowledged: both next numbers are 11.
fn open() -> (Peer, ConnId) {
    let mut p = Peer::new();
    let id = p.open_active(seg().mss(1460));
    p.send(seg().seq(1).ack(1).bytes(10));
    assert_eq!(p.read(id).len(), 10);
    p.write(id, &[b'y'; 10]);
    p.expect().seq(1).ack(11).len(10);
    p.send(seg().seq(11).ack(11));
    p.quiet();
    (p, id)
}

/// RFC 5961 §3.2, 2: the RST has exactly the next number.
//= rfc5961 3.2-a test
#[test]
fn rst_at_the_edge_resets() {
    let (mut p, id) = open();
    p.send(seg().seq(11).rst());
    assert_eq!(p.reason(id), Some(CloseReason::Reset));
    p.quiet();
}

/// RFC 9293 §3.10.7.4: a reset ends the connection, and a pending acknowledgement is dropped with it.
//= rfc5961 3.2-a test
#[test]
fn a_reset_takes_the_pending_acknowledgement_with_it() {
    let (mut p, id) = open();
    p.deliver(seg().seq(21).ack(11).bytes(10));
    p.deliver(seg().seq(11).rst());
    p.pump();
    p.quiet();
    assert_eq!(p.reason(id), Some(CloseReason::Reset));
}

/// RFC 5961 §3.2, 3: in the window, but not at its edge: challenge ACK.
//= rfc5961 3.2-b 3.2-c test
#[test]
fn rst_in_the_window_is_challenged() {
    let (mut p, id) = open();
    for seq in [12, 1_000, 60_000] {
        p.send(seg().seq(seq).rst());
        p.expect().is_ack().seq(11).ack(11).empty();
    }
    assert_eq!(p.state(id), StateName::Established);
}

/// RFC 5961 §3.2, 1: outside the window: no answer.
//= rfc5961 3.2-d test
#[test]
fn rst_outside_the_window_is_dropped() {
    let (mut p, id) = open();
    for seq in [10, 0, 0x4000_0000, 0x8000_0000, 10_u32.wrapping_sub(0x1000)] {
        p.send(seg().seq(seq).rst());
        p.send(seg().seq(seq).ack(11).rst());
    }
    p.quiet();
    assert_eq!(p.state(id), StateName::Established);
}

/// RFC 5961 §3.2, 1: only the number counts, even if the segment's text reaches into the window.
#[test]
fn text_on_a_rst_does_not_bring_it_into_the_window() {
    let (mut p, id) = open();
    p.send(seg().seq(5).bytes(100).rst());
    p.send(seg().seq(10).syn().fin().ack(11).rst());
    p.quiet();
    // Nor does text bring a RST out of the window.
    p.send(seg().seq(11).bytes(100).rst());
    assert_eq!(p.reason(id), Some(CloseReason::Reset));
}

/// RFC 9293 §3.10.7.4, fifth step: only a segment that acknowledges SND.UNA or more updates the window.
#[test]
fn an_old_acknowledgement_does_not_tell_the_window() {
    let (mut p, id) = open();
    p.send(seg().seq(11).ack(11).win(20_000).data(b"a"));
    p.send(seg().seq(12).ack(1).win(0).data(b"b"));
    p.drain();
    p.write(id, &[b'y'; 1_000]);
    p.expect().seq(11).len(1_000);
}

/// RFC 5961 §5.2: MAX.SND.WND is the largest window of all, including that of the SYN.
#[test]
fn the_window_of_the_syn_counts_for_old_acknowledgements() {
    let mut p = Peer::new();
    let listener = p.listen();
    p.send(seg().syn().mss(1460).win(60_000));
    p.expect().syn_ack();
    p.send(seg().seq(1).ack(1).win(100));
    let id = p.accept(listener);
    p.send(seg().seq(1).ack(1_u32.wrapping_sub(59_999)).win(100).data(b"old but fine"));
    assert_eq!(p.read(id), b"old but fine");
}

/// RFC 5961 §4.2: every SYN is challenged, whatever its number, and so is every SYN-ACK.
//= rfc5961 4.2-a 4.2-b test
#[test]
fn syn_is_challenged_whatever_its_number() {
    let (mut p, id) = open();
    for seq in [0, 10, 11, 12, 0x7000_0000] {
        p.pass(1_100);
        p.send(seg().seq(seq).syn());
        p.expect().is_ack().seq(11).ack(11).empty();
        p.send(seg().seq(seq).syn().ack(11));
        p.expect().is_ack().seq(11).ack(11).empty();
    }
    assert_eq!(p.state(id), StateName::Established);
}

/// RFC 5961 §5.2: SND.UNA − MAX.SND.WND ≤ SEG.ACK ≤ SND.NXT, else the data is not taken.
//= rfc5961 5.2-a 5.2-b test
#[test]
fn data_with_an_ack_too_old_or_too_new_is_challenged() {
    let (mut p, id) = open();
    let oldest = 11_u32.wrapping_sub(65_000);
    for ack in [12, 0x7000_0000, oldest.wrapping_sub(1)] {
        p.send(seg().seq(11).ack(ack).data(b"injected"));
        p.expect().is_ack().seq(11).ack(11).empty();
    }
    assert_eq!(p.read(id), b"");
    p.send(seg().seq(11).ack(oldest).data(b"old but fine"));
    assert_eq!(p.read(id), b"old but fine");
}

/// RFC 9293 §3.10.7.4: a segment without ACK, RST and SYN is dropped.
#[test]
fn data_without_ack_is_dropped() {
    let (mut p, id) = open();
    p.send(seg().seq(11).data(b"no ack"));
    p.quiet();
    assert_eq!(p.read(id), b"");
}

/// RFC 5961 §7 and §10: a flood gets few answers, counted separately for each connection (CVE-2016-5696: a global
/// count is a side channel).
//= rfc5961 7-a test
#[test]
fn challenges_are_limited_per_connection_and_second() {
    let floods: [(&str, Flood); 4] = [
        ("rst", |n| seg().seq(100 + n).rst()),
        ("syn", |n| seg().seq(1_000 + n).syn()),
        ("old syn", |n| seg().seq(n % 5).syn()),
        ("ack", |n| seg().seq(11).ack(0x1000 + n)),
    ];
    for (name, flood) in floods {
        let (mut p, _) = open();
        p.pass(2_000);
        let mut answers = 0;
        for n in 0..100 {
            p.send(flood(n));
            answers += p.drain().len();
        }
        assert!((1..=10).contains(&answers), "{name}: {answers} answers");
        p.pass(1_001);
        p.send(flood(0));
        assert_eq!(p.drain().len(), 1, "{name}: another second");
    }
}

/// An established connection accepts nothing with numbers outside the window (RFC 9293 §3.10.7.4).
#[test]
fn data_outside_the_window_is_not_taken() {
    let (mut p, id) = open();
    for seq in [0x4000_0000, 0x8000_0000, 11_u32.wrapping_sub(0x10_0000)] {
        p.send(seg().seq(seq).ack(11).data(b"nowhere"));
        p.expect().is_ack().seq(11).ack(11);
    }
    assert_eq!(p.read(id), b"");
}

/// RFC 9293 §3.10.7.4: of a segment across the left edge, the new part is accepted.
#[test]
fn overlapping_data_is_trimmed() {
    let (mut p, id) = open();
    p.send(seg().seq(6).ack(11).data(b"ooooonew"));
    assert_eq!(p.read(id), b"new");
    p.drain();
    // Accepted data does not change, whatever comes later with the same numbers.
    p.send(seg().seq(20).ack(11).data(b"first"));
    p.send(seg().seq(18).ack(11).data(b"abSECOND"));
    p.send(seg().seq(14).ack(11).data(b"1234"));
    let got = p.read(id);
    assert_eq!((got.len(), &got[..6], &got[11..]), (12, &b"1234ab"[..], &b"D"[..]));
}

/// RFC 9293 §3.10.7.4: RCV.NXT advances over all received text, also when one segment covers several holes.
#[test]
fn text_over_several_holes_is_acknowledged_with_all_behind_it() {
    let (mut p, id) = open();
    p.send(seg().seq(13).ack(11).data(b"cd"));
    p.send(seg().seq(17).ack(11).data(b"ghij"));
    p.drain();
    p.send(seg().seq(11).ack(11).data(b"abcdefgh"));
    p.expect().is_ack().ack(21).sack(&[]);
    assert_eq!(p.read(id), b"abcdefghij");
}
