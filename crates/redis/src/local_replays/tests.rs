#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use firstflight::credential::Serial;

fn redeem(counter: u64) -> JobRequest {
    JobRequest::Redeem { serial: Serial::new(1, counter).unwrap(), flight: None }
}

fn holds(known: &LocalReplays, of: u64, request: &JobRequest, now: Instant) -> bool {
    known.answer(of, request, now).is_some()
}

const fn guard(id: u8) -> JobRequest {
    JobRequest::GuardSet { key: [id; 16], keep_ms: 1, ahead_ms: 0, reach_ms: 0, unix_ms: None, checked: true }
}

#[test]
fn for_as_long_as_the_store_keeps_it_and_in_its_memory_only() {
    let start = Instant::now();
    let (at, lasts) = (|s| start + Duration::from_secs(s), Duration::from_secs);
    let mut known = LocalReplays::with_room(8);
    known.add(1, &redeem(1), None, start, lasts(100));
    known.add(1, &guard(1), None, start, lasts(10));
    known.add(1, &JobRequest::Activate { serial: Serial::new(1, 2).unwrap() }, None, start, lasts(100));
    assert!(holds(&known, 1, &redeem(1), at(99)) && holds(&known, 1, &guard(1), at(9)));
    assert!(!holds(&known, 1, &guard(1), at(10)), "behind one that lasts longer");
    assert!(!holds(&known, 1, &redeem(2), at(0)) && !holds(&known, 1, &guard(2), at(0)));
    assert!(!holds(&known, 2, &redeem(1), at(50)), "another memory");
    known.add(1, &guard(1), None, at(20), lasts(10));
    assert!(holds(&known, 1, &guard(1), at(29)), "set again");
    known.add(2, &redeem(3), None, at(29), lasts(71));
    assert!(!holds(&known, 1, &redeem(1), at(50)) && holds(&known, 2, &redeem(3), at(50)));
}

#[test]
fn memory_is_bounded() {
    let start = Instant::now();
    let mut known = LocalReplays::with_room(4);
    for counter in 1..=100 {
        known.add(1, &redeem(counter), None, start, Duration::from_secs(9));
        assert!(known.names.len() <= 4 && known.order.len() <= 4);
    }
    assert!(holds(&known, 1, &redeem(100), start) && !holds(&known, 1, &redeem(96), start));
}

#[test]
fn only_the_first_flight_that_used_a_cookie_is_a_repeat() {
    let start = Instant::now();
    let [one, two] = [1, 2].map(FlightId::new);
    let with = |flight| JobRequest::Redeem { serial: Serial::new(1, 7).unwrap(), flight };
    let other = Some(JobResult::Refuse(Reason::Replay));
    let mut known = LocalReplays::with_room(4);
    known.add(1, &with(Some(two)), Some(one), start, Duration::from_secs(9));
    assert_eq!(known.answer(1, &with(Some(one)), start), Some(JobResult::Repeat));
    assert_eq!(known.answer(1, &with(Some(two)), start), other);
    assert_eq!(known.answer(1, &with(None), start), other, "one that is refused in any case");
    known.add(1, &with(Some(one)), None, start, Duration::from_secs(9));
    assert_eq!(known.answer(1, &with(Some(one)), start), other, "it was not active");
    known.add(1, &guard(1), None, start, Duration::from_secs(9));
    assert_eq!(known.answer(1, &guard(1), start), Some(JobResult::Repeat));
}
