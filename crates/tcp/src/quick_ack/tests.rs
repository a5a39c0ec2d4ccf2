use super::*;

const QUICK: u32 = 16;
const DELAY: Duration = Duration::from_millis(40);
const RTO: u64 = 200_000_000;

#[test]
fn the_first_acknowledgements_do_not_wait() {
    let mut quick = QuickAck::default();
    for _ in 0..QUICK {
        quick.data(Instant::from_millis(1), RTO, || 44, QUICK);
        assert!(quick.is_quick());
        quick.acked();
    }
    quick.data(Instant::from_millis(1), RTO, || 44, QUICK);
    assert!(!quick.is_quick());
}

#[test]
fn a_small_window_is_acknowledged_quickly_at_least_twice() {
    let mut quick = QuickAck::default();
    quick.data(Instant::ZERO, RTO, || 1, QUICK);
    quick.acked();
    assert!(quick.is_quick());
    quick.acked();
    assert!(!quick.is_quick());
}

#[test]
fn they_begin_again_after_a_pause() {
    let mut quick = QuickAck::default();
    quick.data(Instant::ZERO, RTO, || 4, QUICK);
    (0..2).for_each(|_| quick.acked());
    quick.data(Instant::from_millis(200), RTO, || 4, QUICK);
    assert!(!quick.is_quick());
    quick.data(Instant::from_millis(401), RTO, || 4, QUICK);
    assert!(quick.is_quick());
}

#[test]
fn a_request_is_no_answer_to_the_handshake() {
    let at = Instant::from_millis;
    let mut quick = QuickAck::default();
    // The request waited for the SYN-ACK, or left in the SYN: no data has come yet.
    quick.answered(at(20), DELAY);
    quick.data(at(40), RTO, || 44, QUICK);
    assert!(quick.is_quick(), "the response's first segments are acknowledged at once");
}

#[test]
fn answers_take_acknowledgements_along() {
    let mut quick = QuickAck::default();
    quick.data(Instant::ZERO, RTO, || 44, QUICK);
    quick.answered(Instant::from_millis(40), DELAY);
    assert!(quick.is_quick());
    quick.answered(Instant::from_millis(39), DELAY);
    assert!(!quick.is_quick());
    quick.trouble(44, QUICK);
    assert!(quick.is_quick());
}
