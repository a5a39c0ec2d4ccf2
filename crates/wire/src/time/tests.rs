use super::Instant;
use core::time::Duration;

#[test]
fn units() {
    assert_eq!(Instant::from_secs(2), Instant::from_millis(2_000));
    assert_eq!(Instant::from_millis(2), Instant::from_micros(2_000));
    assert_eq!(Instant::from_micros(2), Instant::from_nanos(2_000));
    let t = Instant::from_nanos(1_999_999);
    assert_eq!((t.as_nanos(), t.as_micros(), t.as_millis()), (1_999_999, 1_999, 1));
}

#[test]
fn arithmetic_saturates() {
    let t = Instant::from_millis(5);
    assert_eq!(t + Duration::from_millis(3), Instant::from_millis(8));
    assert_eq!(t - Duration::from_millis(3), Instant::from_millis(2));
    assert_eq!(t - Duration::from_millis(6), Instant::ZERO);
    assert_eq!(Instant::FAR_FUTURE + Duration::from_nanos(1), Instant::FAR_FUTURE);
    assert_eq!(t + Duration::MAX, Instant::FAR_FUTURE);
    assert_eq!(Instant::FAR_FUTURE - Duration::MAX, Instant::ZERO);
    assert_eq!(Instant::from_secs(u64::MAX), Instant::FAR_FUTURE);
    assert_eq!(t - Instant::from_millis(2), Duration::from_millis(3));
    assert_eq!(Instant::from_millis(2) - t, Duration::ZERO);
}
