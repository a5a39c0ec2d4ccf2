//! Tests of a shared guard's questions, with clocks that differ.
#![allow(clippy::panic, reason = "tests")]

use super::*;

const STAMP: u64 = 1_800_000_000_000;

/// The fields `keep_ms`, `ahead_ms`, `reach_ms` and `unix_ms` of the question about [`STAMP`].
fn asked(window: Window, now_ms: u64) -> (u64, i64, u64, Option<u64>) {
    let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), window);
    let id = guard.id_of(IpAddr::from([10, 0, 0, 1]), b"request");
    match guard.test_and_set(id, STAMP, now_ms) {
        Guarded::Ask(JobRequest::GuardSet { keep_ms, ahead_ms, reach_ms, unix_ms, .. }) => {
            (keep_ms, ahead_ms, reach_ms, unix_ms)
        }
        other => panic!("{other:?}"),
    }
}

/// Whichever member asks, the id is kept until the same moment of the store's clock. That is later than the last moment
/// at which any member may accept the stamp.
#[test]
fn a_signed_stamp_is_kept_as_long_as_any_clock_takes_it() {
    let apart = millis(RemoteGuard::CLOCKS_APART);
    for now in [STAMP - 10_000, STAMP, STAMP + 1, STAMP + 59_999] {
        let (keep, _, _, clock) = asked(Window::REQUESTS, now);
        assert_eq!(clock.map(|clock| clock + keep), Some(STAMP + 60_000 + apart), "{now}");
    }
}

/// A stamp in the past must not count as the present, because it may lie below the floor.
#[test]
fn a_stamp_of_the_past_is_told_as_one() {
    let reach = 10_000 + 3 * millis(RemoteGuard::CLOCKS_APART);
    assert_eq!(asked(Window::REQUESTS, STAMP + 5_000), (56_000, -5_000, reach, Some(STAMP + 5_000)));
    assert_eq!(asked(Window::REQUESTS, STAMP - 3_000), (64_000, 3_000, reach, Some(STAMP - 3_000)));
}

/// Guards of one process share the bound, and each has a floor of its own.
#[test]
fn reports_are_few_and_questions_are_not() {
    let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS);
    let beside = guard.beside(Window::REQUESTS);
    let id = |n: u32| guard.id_of(IpAddr::from(n.to_be_bytes()), b"request");
    let reported = (0..10_000).filter(|n| {
        let guard = if n % 2 == 0 { &guard } else { &beside };
        match guard.report(id(*n), STAMP, STAMP) {
            Ok(Guarded::Ask(JobRequest::GuardSet { checked, .. })) => !checked,
            Err(Unreported) => false,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(reported.count(), 256);
    let asks = |n: &u32| {
        matches!(
            guard.test_and_set(id(*n), STAMP, STAMP),
            Guarded::Ask(JobRequest::GuardSet { checked: true, .. })
        )
    };
    assert_eq!((0..10_000).filter(asks).count(), 10_000);
    // What no member accepts needs no report.
    assert_eq!(guard.report(id(1), STAMP, STAMP + 60_000), Ok(Guarded::Floor));
    beside.raise_floor(STAMP);
    assert_eq!(beside.look_up(id(1), STAMP, STAMP), Guarded::Floor);
    assert_eq!(guard.look_up(id(1), STAMP, STAMP), Guarded::New);
}

/// The time of arrival comes from the member's own clock.
#[test]
fn a_stamp_of_arrival_needs_no_clock() {
    assert_eq!(asked(Window::NETWORK, STAMP), (120_000, 0, 120_000, None));
}

/// An attacker can write any time into an unsigned block. A store that evicts no entries would keep its id
/// for thousands of years.
#[test]
fn a_stamp_far_ahead_is_not_for_the_store() {
    let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS);
    let id = guard.id_of(IpAddr::from([10, 0, 0, 1]), b"request");
    // The last stamp is the largest one that fits into a block.
    for ahead in [12_001, 3_600_000, (1 << 48) - 1 - STAMP] {
        assert_eq!(guard.test_and_set(id, STAMP + ahead, STAMP), Guarded::Floor, "{ahead}");
    }
    // A member whose clock is ahead may accept it now.
    for ahead in [10_000, 12_000] {
        assert!(matches!(guard.test_and_set(id, STAMP + ahead, STAMP), Guarded::Ask(_)), "{ahead}");
    }
}
