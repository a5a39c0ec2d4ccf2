use super::*;

#[test]
fn two_slots_forget_what_is_older() {
    let mut slots = TwoSlots::default();
    slots.take(7u64);
    slots.take(5);
    assert_eq!(slots.max(), 7);
    slots.advance();
    slots.take(3);
    assert_eq!(slots.max(), 7);
    slots.advance();
    assert_eq!(slots.max(), 3);
    slots.advance();
    assert_eq!(slots.max(), 0);
}

#[test]
fn what_comes_at_the_expected_rate_is_no_aggregation() {
    let mut aggregation = Aggregation::default();
    for ms in 1..1000 {
        aggregation.acked(1000, 1_000_000, 1 << 20, Instant::from_millis(ms));
    }
    assert!(aggregation.extra() <= 1000, "{}", aggregation.extra());
}

#[test]
fn what_comes_at_once_is() {
    let mut aggregation = Aggregation::default();
    for burst in 1..20 {
        for _ in 0..20 {
            aggregation.acked(1000, 1_000_000, 1 << 20, Instant::from_millis(burst * 20));
        }
    }
    assert!((19_000..=21_000).contains(&aggregation.extra()), "{}", aggregation.extra());
    for _ in 0..2 * Aggregation::SLOT {
        aggregation.round(true);
    }
    assert_eq!(aggregation.extra(), 0);
    aggregation.restart(Instant::from_secs(1));
    aggregation.acked(30_000, 1_000_000, 12_000, Instant::from_secs(1));
    assert_eq!(aggregation.extra(), 12_000, "never more than the window");
    aggregation.round(false);
    aggregation.round(false);
    assert_eq!(aggregation.extra(), 0, "in Startup only the last round counts");
}

#[test]
fn dice_follow_from_the_seed() {
    let rolls = |seed| {
        let mut dice = Dice::new(seed);
        [(); 8].map(|()| dice.below(1000))
    };
    assert_eq!(rolls(1), rolls(1));
    assert_ne!(rolls(1), rolls(2));
    assert!(rolls(3).iter().all(|roll| *roll < 1000));
}

#[test]
fn volumes_do_not_overflow() {
    assert_eq!(volume(1_250_000, Duration::from_millis(40)), 50_000);
    assert_eq!(volume(u64::MAX, Duration::from_secs(120)), u64::MAX);
}
