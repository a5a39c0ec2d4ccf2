use super::*;

const NOW: u64 = 1_800_000_000_000;

fn of(partition: u16) -> ReplayId {
    ReplayId { id: 0, partition }
}

/// How many of 100,000 reports of clients everywhere are possible.
fn flood(reports: &Reports, now_ms: u64) -> usize {
    (0..100_000u32).filter(|n| reports.take(of(*n as u16), now_ms)).count()
}

#[test]
fn a_flood_from_everywhere_has_a_burst_and_a_rate() {
    let reports = Reports::new();
    assert_eq!(flood(&reports, NOW), 256);
    assert_eq!(flood(&reports, NOW + 4), 0);
    assert_eq!(flood(&reports, NOW + 1_000), 200);
    let reports = Reports::new();
    let all: usize = (0..=73_000).map(|ms| flood_of(&reports, NOW + ms)).sum();
    assert!(all <= Reports::most_in(73), "{all}");
    assert!(all > 14_000, "{all}");
}

/// Four a millisecond, from everywhere.
fn flood_of(reports: &Reports, now_ms: u64) -> usize {
    (0..4u64).filter(|n| reports.take(of((now_ms * 4 + n) as u16), now_ms)).count()
}

#[test]
fn one_client_leaves_the_others_their_reports() {
    let reports = Reports::new();
    assert_eq!((0..1_000).filter(|_| reports.take(of(7), NOW)).count(), 32);
    assert!(!reports.take(of(7), NOW + 99) && reports.take(of(7), NOW + 100));
    assert!(reports.take(of(8), NOW));
}

/// A clock that is set back by a year, and stays there, costs no more than the time in which the buckets fill.
#[test]
fn a_clock_that_is_set_back_empties_the_buckets_and_no_more() {
    let reports = Reports::new();
    assert!(flood(&reports, NOW) > 0);
    let year = 365 * 86_400_000;
    assert_eq!(flood(&reports, NOW - year), 0);
    flood(&reports, NOW - year + 3_200);
    assert_eq!(flood(&reports, NOW - year + 6_400), 256);
    // Forward: as if the time had passed.
    assert_eq!(flood(&reports, NOW + year), 256);
}
