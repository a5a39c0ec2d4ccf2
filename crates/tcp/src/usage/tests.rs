use super::*;

fn seq(n: u32) -> SeqNum {
    SeqNum::new(n)
}

const RTO: u64 = 200_000_000;

#[test]
fn a_full_window_may_grow_all_round_trip_long() {
    let mut usage = Usage::new(seq(0), Instant::ZERO);
    assert!(!usage.allows_growth(10_000, true));
    usage.sent((seq(0), seq(9_000)), 9_000, false, || RTO, Instant::ZERO);
    assert!(usage.allows_growth(10_000, true) && !usage.allows_growth(10_000, false));
    usage.sent((seq(0), seq(10_000)), 10_000, true, || RTO, Instant::ZERO);
    // The acknowledgement makes room in the window that stays unused.
    usage.sent((seq(9_000), seq(10_100)), 1_100, false, || RTO, Instant::ZERO);
    assert!(usage.allows_growth(10_000, false));
    // The next round trip.
    usage.sent((seq(10_100), seq(11_100)), 1_000, false, || RTO, Instant::ZERO);
    assert!(!usage.allows_growth(10_000, true));
}

#[test]
fn what_was_enough_is_told_after_a_timeout() {
    let mut usage = Usage::new(seq(0), Instant::ZERO);
    let at = Instant::from_millis;
    assert_eq!(usage.sent((seq(0), seq(10)), 10, false, || RTO, at(100)), None);
    assert_eq!(usage.sent((seq(0), seq(30)), 30, false, || RTO, at(150)), None);
    assert_eq!(usage.sent((seq(30), seq(50)), 20, false, || RTO, at(200)), Some(30));
    assert_eq!(usage.sent((seq(30), seq(50)), 20, true, || RTO, at(500)), None);
    assert_eq!(usage.sent((seq(30), seq(60)), 5, false, || RTO, at(600)), None);
    assert_eq!(usage.sent((seq(30), seq(70)), 4, false, || RTO, at(700)), Some(5));
}
