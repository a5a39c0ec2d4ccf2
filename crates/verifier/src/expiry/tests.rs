use super::*;
use proptest::prelude::*;

#[test]
fn a_refresh_at_the_end_doubles_and_one_at_once_does_not() {
    const DAY: u32 = 86_400;
    assert_eq!(duration(DAY, DAY, 1800, 0), 1800);
    assert_eq!(duration(DAY, DAY, 1800, 899), 1800);
    assert_eq!(duration(DAY, DAY, 1800, 1800), 3600);
    assert_eq!(duration(600, DAY, 1800, 1800), 600);
    assert_eq!(duration(u32::MAX, DAY, 1800, u32::MAX), DAY);
    assert_eq!(seen_for(1000, 970, 1800), 10);
    assert_eq!(seen_for(1000, 990, 1800), 0);
    assert_eq!(seen_for(1000, 2000, 1800), 0);
    assert_eq!(seen_for(1000, 970, 60), 25);
    assert_eq!([60, 120, 239, 240, DAY].map(backdated), [5, 10, 19, 20, 20]);
}

/// A client's certificates, each made from the one before: `(made, valid_from, ends)`.
fn history(arrived: u32, first: u32, steps: &[(u16, u8)], seen: fn(u32, u32, u32) -> u32) -> Vec<(u32, u32)> {
    let mut now = arrived;
    let (mut valid_from, mut lasts) = (0, 0);
    let mut ends = now;
    let mut made = Vec::new();
    for (number, &(wait, back)) in steps.iter().enumerate() {
        // Refresh anywhere in the rest of the certificate's time, often at its very end.
        now += (u64::from(ends - now) * u64::from(wait) / u64::from(u16::MAX)) as u32;
        let seen = if number == 0 { 0 } else { seen(now, valid_from, lasts) };
        lasts = duration(u32::MAX, (1 << 24) - 1, first, seen);
        valid_from = now - u32::from(back) % (backdated(lasts) + 1);
        ends = valid_from + lasts;
        made.push((now - arrived, ends - arrived));
        if ends <= now {
            break;
        }
    }
    made
}

fn steps() -> impl Strategy<Value = Vec<(u16, u8)>> {
    let wait = prop_oneof![any::<u16>(), Just(u16::MAX), Just(0)];
    proptest::collection::vec((wait, any::<u8>()), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// The promise: a client that leaves at T is certified until at most 2 T + first, whenever it
    /// refreshed. T is the time of its last refresh, because it cannot refresh after it left.
    #[test]
    fn who_leaves_is_certified_until_twice_as_long(steps in steps(), first in SHORTEST..100_000) {
        for (left, ends) in history(1_767_225_600, first, &steps, seen_for) {
            prop_assert!(ends <= 2 * left + first, "left at {left}, certified until {ends}");
        }
    }
}

/// The test above can fail: it does if the time is counted from the beginning of the certificate.
#[test]
fn counted_from_a_backdated_beginning_the_promise_breaks() {
    let steps = [(0, 20), (u16::MAX, 20), (u16::MAX, 0)];
    let naive = |now: u32, valid_from: u32, _: u32| now - valid_from;
    let made = history(1_767_225_600, 1800, &steps, naive);
    assert!(made.iter().any(|(left, ends)| *ends > 2 * left + 1800), "{made:?}");
    let made = history(1_767_225_600, 1800, &steps, seen_for);
    assert!(made.iter().all(|(left, ends)| *ends <= 2 * left + 1800), "{made:?}");
}
