//! The tests count false "seen" answers, which are allowed, and search for false "new" answers, which are
//! not.

use super::*;
use alloc::vec::Vec;
use core::time::Duration;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::thread;

/// The window of signed requests: stamps are at most 60 s old and at most 10 s ahead.
const SIGNED: Window =
    Window { past: Duration::from_secs(60), future: Duration::from_secs(10), spread: Duration::ZERO };
const START: u64 = 1_000_000;
/// The first stamp above the floor of a start, for all windows.
const OPEN: u64 = START + 120_001;

fn table(window: Window, bytes: usize) -> ReplayTable {
    ReplayTable::new(GuardKey::from_bytes([7; 16]), window, bytes, START)
}

/// An id that is well mixed, like a keyed hash.
fn id(n: u64, client: u16) -> ReplayId {
    let mix = |salt: u64| {
        let mut x = n.wrapping_add(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    ReplayId { id: u128::from(mix(1)) << 64 | u128::from(mix(2)), partition: client }
}

#[test]
fn the_same_id_is_new_once() {
    let table = table(SIGNED, 0);
    assert_eq!(table.test_and_set(id(1, 1), OPEN, OPEN), Guarded::New);
    for later in [0, 1, 1000, 60_000] {
        assert_eq!(table.test_and_set(id(1, 1), OPEN, OPEN + later), Guarded::Seen, "{later} ms later");
    }
    assert_eq!(table.test_and_set(id(1, 1), OPEN, OPEN + 60_001), Guarded::Floor, "its stamp is too old now");
    assert_eq!(table.test_and_set(id(2, 1), OPEN + 60_001, OPEN + 60_001), Guarded::New);
}

#[test]
fn a_stamp_outside_the_window_is_not_taken() {
    let table = table(SIGNED, 0);
    assert_eq!(table.test_and_set(id(1, 1), OPEN + 10_001, OPEN), Guarded::Floor);
    assert_eq!(table.test_and_set(id(1, 1), OPEN + 10_000, OPEN), Guarded::New);
    assert_eq!(
        table.test_and_set(id(1, 1), OPEN + 10_000, OPEN + 70_000),
        Guarded::Seen,
        "kept past + future"
    );
}

/// The process before may have accepted stamps up to its clock plus the time that a stamp may be ahead.
#[test]
fn after_a_start_it_is_closed_as_far_as_stamps_reach() {
    let signed = table(SIGNED, 0);
    assert_eq!(signed.test_and_set(id(1, 1), START + 10_000, START), Guarded::Floor);
    assert_eq!(signed.test_and_set(id(1, 1), START + 10_001, START + 1), Guarded::New);
    let network = table(Window::NETWORK, 0);
    assert_eq!(network.test_and_set(id(1, 1), START + 120_000, START + 120_000), Guarded::Floor);
    assert_eq!(network.test_and_set(id(2, 1), START + 120_001, START + 120_001), Guarded::New);
}

#[test]
fn a_clock_set_back_closes_it_until_the_old_time_is_passed() {
    let table = table(SIGNED, 0);
    assert_eq!(table.test_and_set(id(1, 1), OPEN, OPEN), Guarded::New);
    assert_eq!(table.test_and_set(id(2, 1), OPEN - 500, OPEN - 500), Guarded::New, "half a second is jitter");
    let back = OPEN - 30_000;
    assert_eq!(table.test_and_set(id(3, 1), back, back), Guarded::Floor);
    assert_eq!(table.test_and_set(id(3, 1), OPEN + 10_000, OPEN + 10_000), Guarded::Floor);
    assert_eq!(table.test_and_set(id(1, 1), OPEN, OPEN + 10_000), Guarded::Floor);
    assert_eq!(table.test_and_set(id(3, 1), OPEN + 10_001, OPEN + 10_001), Guarded::New);
}

#[test]
fn a_clock_set_forward_and_back_gives_nothing_twice() {
    let table = table(SIGNED, 0);
    assert_eq!(table.test_and_set(id(1, 1), OPEN, OPEN), Guarded::New);
    let ahead = OPEN + 3_600_000;
    assert_eq!(table.test_and_set(id(2, 1), ahead, ahead), Guarded::New);
    assert_eq!(table.test_and_set(id(1, 1), OPEN, OPEN + 1000), Guarded::Floor);
    assert_eq!(table.test_and_set(id(2, 1), ahead, ahead + 20_000), Guarded::Floor);
    assert_eq!(table.test_and_set(id(3, 1), ahead + 20_000, ahead + 20_000), Guarded::New);
}

/// After a leap second or a step of NTP, a stamp can be in the window again although its entry was forgotten
/// before the step.
#[test]
fn a_clock_set_back_a_little_gives_nothing_twice() {
    for back in [1, 200, 500, 900, 1000, 1001, 60_000] {
        let table = table(SIGNED, 0);
        assert_eq!(table.test_and_set(id(1, 1), OPEN, OPEN), Guarded::New);
        // An entry may live a step longer than its window. This id is of the same partition, so it clears the
        // same buckets.
        let over = OPEN + 60_000 + table.step_ms + 1;
        assert_eq!(table.test_and_set(id(2, 1), over, over), Guarded::New);
        let now = over - back;
        assert_eq!(table.look_up(id(1, 1), OPEN, now), Guarded::Floor, "{back} ms back");
        assert_eq!(table.test_and_set(id(1, 1), OPEN, now), Guarded::Floor, "{back} ms back");
        // The table has forgotten nothing newer, so a small step closes nothing.
        let fresh = if back <= 1000 { Guarded::New } else { Guarded::Floor };
        assert_eq!(table.test_and_set(id(3, 1), now, now), fresh, "{back} ms back");
        assert_eq!(table.test_and_set(id(2, 1), over, now), if back <= 1000 { Guarded::Seen } else { fresh });
    }
}

/// Each step is small.
#[test]
fn many_small_steps_back_give_nothing_twice() {
    let table = table(SIGNED, 0);
    assert_eq!(table.test_and_set(id(1, 1), OPEN, OPEN), Guarded::New);
    let over = OPEN + 60_000 + table.step_ms + 1;
    assert_eq!(table.test_and_set(id(2, 1), over, over), Guarded::New);
    for n in 1..100 {
        let now = over - n * 900;
        assert_eq!(table.test_and_set(id(1, 1), OPEN, now), Guarded::Floor, "{n} steps");
    }
}

#[test]
fn a_floor_that_was_raised_stays() {
    let table = table(SIGNED, 0);
    table.raise_floor(OPEN + 10_000);
    table.raise_floor(OPEN);
    for stamp in [OPEN - 1000, OPEN + 10_000] {
        assert_eq!(table.look_up(id(1, 1), stamp, OPEN + 5000), Guarded::Floor);
        assert_eq!(table.test_and_set(id(1, 1), stamp, OPEN + 5000), Guarded::Floor);
    }
    assert_eq!(table.test_and_set(id(1, 1), OPEN + 10_001, OPEN + 5000), Guarded::New);
}

#[test]
fn one_clients_flood_raises_its_own_floor_only() {
    // The table has 64 buckets, so a partition can fill 2 of them.
    let table = table(SIGNED, 0);
    let mut quiet = Vec::new();
    for n in 0..100 {
        let client = 300 + n as u16 * 7;
        if table.test_and_set(id(n, client), OPEN, OPEN) == Guarded::New {
            quiet.push((n, client));
        }
    }
    assert_eq!(quiet.len(), 100);
    for n in 0..10_000u64 {
        let now = OPEN + 1 + n;
        let _ = table.test_and_set(id(1_000_000 + n, 5), now, now);
    }
    let now = OPEN + 20_000;
    assert!(table.floor(5) > OPEN, "the flood lost entries, and its floor rose");
    for (n, client) in quiet {
        assert!(table.floor(client) < OPEN, "partition {client}");
        assert_eq!(table.test_and_set(id(n, client), OPEN, now), Guarded::Seen, "still remembered");
    }
}

/// Stamps are stored modulo 65,536 steps (about twenty minutes for signed stamps, an hour for the network's
/// copies). An entry from an old flood must not count as one far in the future, because the floor would then
/// refuse everything below it.
#[test]
fn a_flood_of_long_ago_raises_no_floor() {
    for window in [SIGNED, Window::NETWORK] {
        for minutes in 6..120 {
            let table = table(window, 0);
            for n in 0..500 {
                table.test_and_set(id(n, 1), OPEN, OPEN);
            }
            let now = OPEN + minutes * 60_000;
            for n in 1000..1010 {
                table.test_and_set(id(n, 1), now, now);
            }
            let ahead = table.floor(1).saturating_sub(now);
            assert!(ahead <= millis(window.reach()) + 2000, "{ahead} ms after {minutes} minutes, {window:?}");
        }
    }
}

/// With the documented size, no entry is forgotten too early at that rate.
#[test]
fn the_documented_memory_is_enough_for_the_rate() {
    for (window, rate) in [(SIGNED, 1000), (Window::NETWORK, 500)] {
        let bytes = ReplayTable::bytes_for(rate, &window);
        let lasts = (window.past + window.future).as_secs();
        let per = bytes as f64 / (rate * lasts) as f64;
        assert!((10.0..10.5).contains(&per), "{per} bytes for each entry");
        let table = table(window, bytes);
        assert!(table.bytes() <= bytes + 16_384);
        let (mut now, mut refused) = (OPEN, 0);
        for n in 0..rate * lasts * 2 {
            now = OPEN + n * 1000 / rate;
            let client = (n.wrapping_mul(0x9e37_79b9) >> 7) as u16;
            refused += u32::from(table.test_and_set(id(n, client), now, now) != Guarded::New);
        }
        assert_eq!(refused, 0, "of {} in {lasts} s windows, now {now}", rate * lasts * 2);
    }
}

#[test]
fn of_copies_on_several_threads_one_is_new() {
    let table = table(SIGNED, 1 << 20);
    let copies: Vec<Vec<Guarded>> = thread::scope(|scope| {
        let run = || (0..50_000).map(|n| table.test_and_set(id(n, n as u16), OPEN, OPEN)).collect();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for n in 0..50_000 {
        let new = copies.iter().filter(|thread| thread[n] == Guarded::New).count();
        assert_eq!(new, 1, "id {n}");
    }
}

/// Copies are stamped when they arrive. A first flight whose stamp is below the floor is executed after the
/// ordinary handshake, and the stamp of its next copy is above the floor.
#[test]
fn what_the_floor_refused_is_not_new_above_it() {
    let table = table(Window::NETWORK, 0);
    assert_eq!(table.test_and_set(id(1, 1), START + 119_000, START + 119_000), Guarded::Floor);
    assert_eq!(table.test_and_set(id(1, 1), OPEN + 1000, OPEN + 1000), Guarded::Seen);
    assert_eq!(table.test_and_set(id(2, 1), OPEN + 1000, OPEN + 1000), Guarded::New);
}

proptest! {
    /// For any input in any order, with a clock that jumps and a table that is far too small: an id that was
    /// new is never new again while its stamp could be accepted.
    #[test]
    fn never_new_twice(
        steps in proptest::collection::vec((0u64..400, -15_000i64..15_000, 0u64..3_000), 1..2_000),
        jumps in proptest::collection::vec((0usize..2_000, -100_000i64..100_000), 0..4),
    ) {
        let table = table(SIGNED, 0);
        let mut now = OPEN;
        let mut accepted: BTreeMap<u64, u64> = BTreeMap::new();
        for (at, (n, ahead, passed)) in steps.into_iter().enumerate() {
            now += passed;
            for (_, jump) in jumps.iter().filter(|jump| jump.0 == at) {
                now = now.saturating_add_signed(*jump);
            }
            // A signed stamp is the same in every copy.
            let stamp = *accepted.get(&n).unwrap_or(&now.saturating_add_signed(ahead));
            match table.test_and_set(id(n, n as u16 % 6), stamp, now) {
                Guarded::New => prop_assert!(accepted.insert(n, stamp).is_none(), "{n} twice"),
                Guarded::Seen | Guarded::Floor => {}
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }

    /// The clock goes forward, or back by a second or more, while copies of all requests come at any time. A model that
    /// forgets nothing says what may be new. If the clock never goes back by more than a second, no id in the
    /// window is refused because of a floor, which shows that the table does accept requests.
    #[test]
    fn a_clock_that_walks_gives_nothing_twice(
        steps in proptest::collection::vec(
            (0u64..60, -59_000i64..10_000, prop_oneof![
                8 => 0i64..20_000,
                3 => -1000i64..0,
                1 => -120_000i64..0,
            ]),
            1..600,
        ),
        small in any::<bool>(),
    ) {
        let table = table(SIGNED, 1 << 16);
        let (mut now, mut latest, mut stepped) = (OPEN, OPEN, false);
        let mut stamps: BTreeMap<u64, u64> = BTreeMap::new();
        let mut executed = std::collections::BTreeSet::new();
        table.test_and_set(id(1000, 1000), OPEN, OPEN);
        for (n, ahead, walk) in steps {
            now = now.saturating_add_signed(if small { walk.max(-1000) } else { walk });
            stepped |= now + 1000 < latest;
            latest = latest.max(now);
            let stamp = *stamps.entry(n).or_insert(now.saturating_add_signed(ahead));
            let in_window = stamp + 60_000 >= latest && stamp <= now + 10_000;
            match table.test_and_set(id(n, n as u16 % 6), stamp, now) {
                Guarded::New => prop_assert!(in_window && executed.insert(n), "{n} twice, or outside the window"),
                Guarded::Seen => prop_assert!(executed.contains(&n), "{n} was never there"),
                Guarded::Floor => prop_assert!(stepped || !in_window, "{n} is in the window"),
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
