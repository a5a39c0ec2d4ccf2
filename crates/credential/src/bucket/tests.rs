use super::*;

const NOW: Instant = Instant::from_secs(1000);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_burst_and_then_a_rate() {
    let mut bucket = Bucket::FULL;
    let mut taken = |now| (0..100).take_while(|_| bucket.take(SECOND, 10 * SECOND, now).is_ok()).count();
    assert_eq!(taken(NOW), 10);
    assert_eq!(taken(NOW + Duration::from_millis(999)), 0);
    assert_eq!(taken(NOW + SECOND), 1);
    assert_eq!(taken(NOW + Duration::from_millis(3500)), 2);
    assert_eq!(taken(NOW + 1000 * SECOND), 10);
}

#[test]
fn what_is_refused_takes_nothing_and_says_how_long_to_wait() {
    let mut bucket = Bucket::FULL;
    assert_eq!(bucket.take(3 * SECOND, 4 * SECOND, NOW), Ok(()));
    assert_eq!(bucket.take(3 * SECOND, 4 * SECOND, NOW), Err(2 * SECOND));
    assert_eq!(bucket.missing(NOW), 3 * SECOND);
    assert_eq!(bucket.take(3 * SECOND, 4 * SECOND, NOW + 2 * SECOND), Ok(()));
    assert_eq!(bucket.take(Duration::MAX, SECOND, NOW), Err(Duration::MAX - SECOND));
}
