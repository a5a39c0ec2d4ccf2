use super::*;
use alloc::vec::Vec;

fn ms(n: u64) -> Instant {
    Instant::from_millis(n)
}

#[test]
fn each_byte_is_reported_when_it_leaves_and_when_it_is_acknowledged() {
    let mut stamps = Stamps::default();
    assert!(stamps.watch(10) && stamps.watch(10) && stamps.watch(20));
    assert!(!stamps.sent(9, Some(ms(1))));
    assert!(stamps.sent(15, Some(ms(2))));
    assert!(!stamps.sent(15, Some(ms(3))));
    assert!(!stamps.sent(20, None));
    assert!(!stamps.acknowledged(9, ms(4)));
    assert!(stamps.acknowledged(20, ms(5)));
    let got: Vec<_> = core::iter::from_fn(|| stamps.take()).map(|s| (s.offset, s.milestone, s.at)).collect();
    let acknowledged = Milestone::Acknowledged;
    assert_eq!(got, [(10, Milestone::Sent, ms(2)), (10, acknowledged, ms(5)), (20, acknowledged, ms(5))]);
}

#[test]
fn times_that_nobody_takes_are_bounded() {
    let mut stamps = Stamps::default();
    for offset in 0..1000 {
        stamps.watch(offset);
        stamps.sent(offset, Some(ms(offset)));
        stamps.acknowledged(offset, ms(offset));
    }
    assert_eq!(stamps.stamps.len(), 2 * MOST);
    assert!(!stamps.watch(1000));
    stamps.take();
    stamps.take();
    assert!(stamps.watch(1000));
}
