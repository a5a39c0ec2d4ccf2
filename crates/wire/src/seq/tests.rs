use super::SeqNum;
use proptest::prelude::*;

#[test]
fn comparison_wraps() {
    let (before, after) = (SeqNum::new(u32::MAX), SeqNum::new(3));
    assert!(before.lt(after) && before.le(after) && after.gt(before) && after.ge(before));
    assert!(!before.lt(before) && before.le(before) && before.ge(before));
    assert_eq!((before.min(after), before.max(after)), (before, after));
    assert_eq!(after - before, 4);
    assert_eq!(before - after, -4);
    assert_eq!(after.distance_from(before), 4);
    assert_eq!(before + 4, after);
    assert_eq!(after - 4, before);
}

#[test]
fn windows_are_half_open() {
    let start = SeqNum::new(u32::MAX - 1);
    assert!(start.in_window(start, 4));
    assert!((start + 3).in_window(start, 4));
    assert!(!(start + 4).in_window(start, 4));
    assert!(!(start - 1).in_window(start, 4));
    assert!(!start.in_window(start, 0));
}

proptest! {
    #[test]
    fn order_follows_distance(base: u32, ahead in 1u32..0x8000_0000) {
        let (a, b) = (SeqNum::new(base), SeqNum::new(base) + ahead);
        // At a distance of exactly 2³¹, both are "before" each other. Below that, the order is strict.
        prop_assert!(a.lt(b) && !a.ge(b));
        prop_assert!(b.gt(a) && !b.le(a));
        prop_assert_eq!((a.max(b), b.max(a), a.min(b), b.min(a)), (b, b, a, a));
        prop_assert_eq!(b.distance_from(a), ahead);
    }
}
