#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use firstflight::credential::Serial;

fn redeem(counter: u64) -> JobRequest {
    JobRequest::Redeem { serial: Serial::new(1, counter).unwrap(), flight: None }
}

#[test]
fn what_was_settled_goes_and_what_came_meanwhile_stays() {
    let mut owed = UnreportedQuestions::default();
    owed.add(redeem(1));
    owed.add(JobRequest::Activate { serial: Serial::new(1, 9).unwrap() });
    let told = owed.clone();
    owed.add(redeem(2));
    owed.settle(&told);
    assert_eq!(owed.requests().collect::<Vec<_>>(), [&redeem(2)]);
    // A second report of the same questions removes nothing more.
    owed.settle(&told);
    assert_eq!(owed.requests().collect::<Vec<_>>(), [&redeem(2)]);
}

#[test]
fn memory_is_bounded_and_too_many_are_not_forgotten() {
    let mut owed = UnreportedQuestions::default();
    for counter in 1..=2 * MOST as u64 {
        owed.add(redeem(counter));
        assert!(owed.requests().count() <= MOST);
    }
    assert!(owed.is_too_many() && owed.holds(&redeem(1)));
    let told = owed.clone();
    owed.settle(&told);
    assert!(owed.is_empty());
    // Too many were added since the copy, so a further report is needed.
    let told = owed.clone();
    (0..=MOST as u64).for_each(|counter| owed.add(redeem(counter + 1)));
    owed.settle(&told);
    assert!(owed.is_too_many());
}

/// Blocks that nobody signed, as many as once made a farm begin a new memory.
#[test]
fn a_flood_of_strangers_begins_no_new_memory() {
    let guard_set = |n: u32, checked| {
        let key = [[0; 12].as_slice(), &n.to_be_bytes()].concat().try_into().unwrap();
        JobRequest::GuardSet { key, keep_ms: 1, ahead_ms: 0, reach_ms: 1, unix_ms: Some(1), checked }
    };
    for mut owed in [UnreportedQuestions::default(), UnreportedQuestions::of_many()] {
        owed.add(guard_set(7, true));
        (0..113_800).for_each(|n| owed.add(guard_set(n, false)));
        assert!(!owed.is_too_many());
        assert!(owed.requests().count() <= 1 + RemoteGuard::MOST_REPORTS);
        // The newest ones, and what a client with a certificate asked.
        assert!(owed.holds(&guard_set(113_799, false)) && owed.holds(&guard_set(113_750, true)));
        assert!(owed.holds(&guard_set(7, true)) && !owed.holds(&guard_set(8, false)));
        // Told are those that were there.
        let told = owed.clone();
        owed.add(guard_set(113_800, false));
        owed.settle(&told);
        assert_eq!(owed.requests().collect::<Vec<_>>(), [&guard_set(113_800, false)]);
    }
    assert_eq!(RemoteGuard::MOST_REPORTS, 14_856);
}

/// A slow store takes them in parts. What it has taken is not owed any more, and what came meanwhile is.
#[test]
fn what_is_owed_is_reported_in_parts() {
    let guard_set = |n: u16, checked| {
        let key = [[0; 14].as_slice(), &n.to_be_bytes()].concat().try_into().unwrap();
        JobRequest::GuardSet { key, keep_ms: 1, ahead_ms: 0, reach_ms: 1, unix_ms: Some(1), checked }
    };
    let mut owed = UnreportedQuestions::default();
    (0..5_000).for_each(|n| owed.add(guard_set(n, false)));
    (0..100).for_each(|n| owed.add(guard_set(n, true)));
    let told = owed.clone();
    let mut parts = told.parts();
    let first = parts.next().unwrap();
    assert_eq!(first.requests().count(), PART + 100);
    owed.settle(&first);
    owed.add(guard_set(6_000, true));
    assert_eq!(owed.requests().count(), 5_000 - PART + 1);
    assert!(!owed.holds(&guard_set(0, false)) && owed.holds(&guard_set(4_999, false)));
    for part in parts {
        assert!(part.requests().count() <= PART);
        owed.settle(&part);
    }
    assert_eq!(owed.requests().collect::<Vec<_>>(), [&guard_set(6_000, true)]);
    assert_eq!(UnreportedQuestions::default().parts().count(), 1);
}

/// A recorded first flight that comes again and again.
#[test]
fn the_same_question_is_owed_once() {
    let mut owed = UnreportedQuestions::default();
    (0..2 * MOST).for_each(|_| owed.add(redeem(1)));
    assert_eq!(owed.requests().count(), 1);
    assert!(!owed.is_too_many());
}

/// A first flight that was refused after a new memory began must not be accepted in the new memory
/// either.
#[test]
fn what_came_while_a_memory_was_begun_anew_is_owed_to_the_new_one() {
    let mut owed = UnreportedQuestions::default();
    (0..=MOST as u64).for_each(|counter| owed.add(redeem(counter + 1)));
    let told = owed.clone();
    let late = redeem(1 << 30);
    owed.add(late);
    owed.settle(&told);
    assert!(!owed.is_too_many());
    assert!(owed.holds(&late), "a copy of this one would be accepted");
    assert_eq!(owed.requests().collect::<Vec<_>>(), [&late]);
}
