use super::*;
use crate::ranges::MAX_RANGES;
use std::vec;

/// Slow start that overshoots loses every second segment of a window.
#[test]
fn behind_hundreds_of_holes_everything_is_kept() {
    let mut pool = Pool::new(16 << 20);
    let mut rcv = Receive::new(SeqNum::new(0), 1 << 20, 5, 1448);
    rcv.window(false);
    for n in 0..300 {
        let seq = SeqNum::new(1 + 1448 * (2 * n + 1));
        assert_eq!(rcv.take(&mut pool, seq, &[0; 1448]), Taken::OutOfOrder, "{n}");
        assert_eq!(rcv.sack_blocks().as_slice()[0], (seq, seq + 1448));
        rcv.acked();
    }
}

/// If a peer makes too many holes, no SACK block reports data that was not kept.
#[test]
fn what_is_not_kept_is_not_reported() {
    let mut pool = Pool::new(16 << 20);
    let mut rcv = Receive::new(SeqNum::new(0), 1 << 20, 5, 1448);
    rcv.window(false);
    for n in 0..MAX_RANGES as u32 {
        assert_eq!(rcv.take(&mut pool, SeqNum::new(2 + 2 * n), &[7]), Taken::OutOfOrder, "{n}");
    }
    rcv.acked();
    let before = rcv.sack_blocks().as_slice().to_vec();
    let beyond = SeqNum::new(2 + 2 * MAX_RANGES as u32);
    assert_eq!(rcv.take(&mut pool, beyond, &[7]), Taken::NoRoom);
    assert_eq!(rcv.sack_blocks().as_slice(), before);
    assert_eq!(rcv.take(&mut pool, SeqNum::new(2), &[7]), Taken::OutOfOrder);
    assert_eq!(rcv.sack_blocks().as_slice()[0], (SeqNum::new(2), SeqNum::new(3)), "that one came twice");
}

/// Sends a quarter of the window, and lets the application read `read` bytes of it.
fn round(rcv: &mut Receive, pool: &mut Pool, now: Instant, read: usize) {
    rcv.acked();
    let block = vec![7; 1 << 18];
    rcv.take(pool, rcv.nxt, &block);
    rcv.read(pool, &mut vec![0; read]);
    rcv.tune(3 << 20, Some(100_000_000), now);
}

#[test]
fn a_peer_that_fills_the_window_gets_a_larger_one() {
    let mut pool = Pool::new(16 << 20);
    let mut rcv = Receive::new(SeqNum::new(0), 3 << 20, 6, 1460);
    let offered = |rcv: &mut Receive| u32::from(rcv.window(false)) << 6;
    assert_eq!(offered(&mut rcv), 1 << 20);
    round(&mut rcv, &mut pool, Instant::from_millis(1000), 1 << 18);
    assert_eq!(offered(&mut rcv), 1 << 20, "how long it took is not known");
    round(&mut rcv, &mut pool, Instant::from_millis(1050), 1 << 18);
    assert_eq!(offered(&mut rcv), 1 << 20, "not a round trip");
    round(&mut rcv, &mut pool, Instant::from_millis(1110), 1 << 18);
    assert_eq!(offered(&mut rcv), 2 << 20);
    for ms in [1210, 1310, 1410, 1510] {
        round(&mut rcv, &mut pool, Instant::from_millis(ms), 1 << 18);
        round(&mut rcv, &mut pool, Instant::from_millis(ms + 1), 1 << 18);
    }
    assert_eq!(offered(&mut rcv), 3 << 20, "and never more");
}

#[test]
fn no_larger_window_for_an_application_that_does_not_read_or_a_peer_that_waits() {
    let mut pool = Pool::new(16 << 20);
    let mut rcv = Receive::new(SeqNum::new(0), 8 << 20, 8, 1460);
    for ms in [1000, 1100, 1200] {
        round(&mut rcv, &mut pool, Instant::from_millis(ms), 0);
    }
    assert_eq!(rcv.limit, 1 << 20);
    rcv.read(&mut pool, &mut vec![0; 1 << 20]);
    for ms in [3000, 6000, 9000] {
        round(&mut rcv, &mut pool, Instant::from_millis(ms), 1 << 18);
    }
    assert_eq!(rcv.limit, 1 << 20, "a quarter of it in three seconds");
}

/// Sequence numbers compare only within 2 GiB, so no distance may be measured from the IRS beyond that.
#[test]
fn what_is_offered_grows_behind_two_gibibytes_too() {
    let mut pool = Pool::new(16 << 20);
    let mut rcv = Receive::new(SeqNum::new(7), 1 << 20, 5, 1448);
    rcv.offer_at_first(65_536);
    rcv.nxt = SeqNum::new(7) + 1 + (1 << 31) + 5;
    rcv.edge = rcv.nxt + 65_536;
    rcv.acked();
    assert_eq!(rcv.take(&mut pool, rcv.nxt, &[0; 1448]), Taken::InOrder(1448));
    assert_eq!(rcv.offer, 65_536 + 2 * 1448);
}

//= rfc9293 SHLD-14 test
#[test]
fn a_syn_ack_sent_again_takes_no_window_back() {
    let mut rcv = Receive::new(SeqNum::new(0), 1 << 20, 5, 1460);
    assert_eq!(rcv.window(true), 0xffff);
    assert_eq!(u32::from(rcv.window(false)) << 5, 1 << 20);
    let offered = rcv.edge;
    assert_eq!(rcv.window(true), 0xffff);
    assert_eq!(rcv.edge, offered);
    assert!(rcv.acceptable(SeqNum::new(500_000), 1000, false));
}

/// RFC 7323 §2.4: a SYN offers at most 65,535 bytes, which are 255 steps of 256 bytes and a remainder.
//= rfc9293 SHLD-14 test
#[test]
fn what_a_syn_offered_is_not_taken_back_for_want_of_a_byte() {
    let mut rcv = Receive::new(SeqNum::new(0), 1 << 16, 8, 1000);
    assert_eq!(rcv.window(true), 0xffff);
    assert_eq!(rcv.window(false), 256);
    // A window smaller than a segment does not open in tiny steps.
    let mut pool = Pool::new(1 << 20);
    let mut out = [0; 255];
    let mut rcv = Receive::new(SeqNum::new(0), 1024, 8, 1000);
    assert_eq!(rcv.take(&mut pool, SeqNum::new(1), &[0; 1000]), Taken::InOrder(1000));
    rcv.acked();
    // Of what the SYN offered, 24 bytes are left.
    assert_eq!(rcv.window(false), 1);
    assert_eq!(rcv.read(&mut pool, &mut out), 255);
    assert_eq!(rcv.window(false), 1);
}

/// Nobody reads. Whatever the scale and the segments, no acknowledgement takes back what an earlier one offered, and at most
/// half more than the limit, and a step, is offered.
//= rfc9293 SHLD-14 test
#[test]
fn the_right_edge_never_moves_left_with_any_scale() {
    for scale in 0..=14 {
        for segment in [1, 100, 255, 536, 1_448, 2 * 1_448, 2_897] {
            let limit = 0x8000 << scale;
            let mut pool = Pool::new(64 << 20);
            let mut rcv = Receive::new(SeqNum::new(0), limit, scale, 1_460);
            rcv.limit = limit;
            rcv.offer = limit;
            rcv.window(true);
            let mut told = 0;
            let (acks, data) = (340, vec![0; segment]);
            for n in 0..acks {
                let room = rcv.edge.distance_from(rcv.nxt) as usize;
                if !matches!(rcv.take(&mut pool, rcv.nxt, &data[..segment.min(room)]), Taken::InOrder(_)) {
                    break;
                }
                let right = rcv.nxt.get() + (u32::from(rcv.window(false)) << scale);
                rcv.acked();
                assert!(right >= told, "{right} after {told}, scale {scale}, ACK {n} of {segment} B");
                told = right;
            }
            assert!(
                told > 1 && told <= 1 + limit + limit / 2 + (1 << scale),
                "{told}, scale {scale}, {segment} B"
            );
        }
    }
}

/// A reader that reads nothing closes the window in the end, with every scale.
//= rfc9293 SHLD-14 test
#[test]
fn a_window_that_nobody_opens_closes_with_any_scale() {
    for scale in 0..=8 {
        let limit = 0x8000 << scale;
        let mut pool = Pool::new(64 << 20);
        let mut rcv = Receive::new(SeqNum::new(0), limit, scale, 1_460);
        (rcv.limit, rcv.offer) = (limit, limit);
        rcv.window(true);
        let data = vec![0; 1_448];
        let mut told = 0;
        loop {
            let window = usize::from(rcv.window(false)) << scale;
            let right = rcv.nxt.get() + window as u32;
            assert!(right >= told, "{right} after {told}, scale {scale}");
            told = right;
            if window == 0 {
                break;
            }
            let taken = rcv.take(&mut pool, rcv.nxt, &data[..window.min(1_448)]);
            assert!(matches!(taken, Taken::InOrder(_)));
            rcv.acked();
        }
        assert!(told <= 1 + limit + limit / 2 + (1 << scale), "{told}, scale {scale}");
    }
}

/// A FIN needs no room in the buffer: its number may be the one just behind the window. Data there is refused.
#[test]
fn a_fin_may_be_the_number_behind_the_window() {
    let mut pool = Pool::new(1 << 20);
    let mut rcv = Receive::new(SeqNum::new(0), 1024, 0, 1000);
    let edge = SeqNum::new(1025);
    assert!(rcv.acceptable(edge, 1, true), "behind what is still under way");
    assert!(!rcv.acceptable(edge, 1, false) && !rcv.acceptable(edge + 1, 1, true));
    assert_eq!(rcv.take(&mut pool, SeqNum::new(1), &[0; 1024]), Taken::InOrder(1024));
    rcv.acked();
    assert_eq!((rcv.nxt, rcv.window(false)), (edge, 0));
    assert!(rcv.acceptable(edge, 1, true), "alone");
    assert!(rcv.acceptable(edge - 100, 101, true), "with text that is there");
    assert!(
        !rcv.acceptable(edge, 1, false) && !rcv.acceptable(edge, 101, true),
        "not with text that does not fit"
    );
    rcv.note_fin(edge);
    assert!(rcv.take_fin() && rcv.finished());
    assert_eq!((rcv.nxt, rcv.window(false), rcv.readable()), (edge + 1, 0, 1024));
}
