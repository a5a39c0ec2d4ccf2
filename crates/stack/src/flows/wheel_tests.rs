use super::*;
use core::time::Duration;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::vec;

const TICK: u64 = 1 << TICK_SHIFT;

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

fn drain(wheel: &mut TimerWheel, now: Instant) -> Vec<u32> {
    core::iter::from_fn(|| wheel.pop_expired(now)).collect()
}

#[test]
fn a_timer_fires_at_its_tick_and_not_before() {
    let mut wheel = TimerWheel::new(at(0));
    for ns in [1, TICK, TICK + 1, 63 * TICK, 64 * TICK, 1_000_000_000, 3_600_000_000_000] {
        let due = ns.div_ceil(TICK) * TICK;
        let mut wheel = wheel.clone();
        wheel.schedule(3, at(ns));
        assert_eq!(drain(&mut wheel, at(due - 1)), vec![]);
        assert_eq!(wheel.next_deadline(), Some(at(due)), "exact when it is near");
        assert_eq!(drain(&mut wheel, at(due)), vec![3]);
        assert!(wheel.is_empty());
        assert_eq!(wheel.next_deadline(), None);
    }
    wheel.schedule(1, at(0));
    assert_eq!(wheel.next_deadline(), Some(at(0)));
    assert_eq!(drain(&mut wheel, at(0)), vec![1], "the past is due at once");
}

#[test]
fn an_expedited_timer_comes_earlier_and_never_later() {
    let mut wheel = TimerWheel::new(at(0));
    wheel.expedite(7, at(50 * TICK));
    wheel.expedite(7, at(60 * TICK));
    wheel.expedite(8, at(50 * TICK));
    wheel.expedite(8, at(40 * TICK));
    assert_eq!(wheel.len(), 2);
    assert_eq!(drain(&mut wheel, at(40 * TICK)), vec![8]);
    assert_eq!(drain(&mut wheel, at(50 * TICK)), vec![7]);
    wheel.expedite(7, at(55 * TICK));
    wheel.cancel(7);
    wheel.expedite(7, at(70 * TICK));
    assert_eq!(drain(&mut wheel, at(69 * TICK)), vec![]);
    assert_eq!(drain(&mut wheel, at(70 * TICK)), vec![7], "what is over or cancelled is scheduled anew");
}

#[test]
fn moving_and_cancelling() {
    let mut wheel = TimerWheel::new(at(0));
    wheel.schedule(7, at(10 * TICK));
    wheel.schedule(7, at(5000 * TICK));
    wheel.schedule(8, at(10 * TICK));
    assert_eq!(wheel.len(), 2);
    assert_eq!(drain(&mut wheel, at(20 * TICK)), vec![8]);
    wheel.schedule(7, at(30 * TICK));
    wheel.cancel(7);
    wheel.cancel(7);
    wheel.cancel(1_000_000);
    wheel.schedule(u32::MAX, at(0));
    assert!(wheel.is_empty());
    assert_eq!(drain(&mut wheel, Instant::FAR_FUTURE), vec![]);
}

#[test]
fn the_order_is_that_of_ticks_then_of_scheduling() {
    let mut wheel = TimerWheel::new(at(0));
    for (id, tick) in [(0, 100_000), (1, 5), (2, 70), (3, 5), (4, 5), (5, 4096)] {
        wheel.schedule(id, at(tick * TICK));
    }
    wheel.cancel(3);
    assert_eq!(drain(&mut wheel, at(1_000_000 * TICK)), vec![1, 4, 2, 5, 0]);
}

#[test]
fn the_far_future_is_not_a_special_case() {
    let mut wheel = TimerWheel::new(Instant::FAR_FUTURE);
    wheel.schedule(0, Instant::FAR_FUTURE);
    assert_eq!(wheel.next_deadline(), Some(Instant::FAR_FUTURE));
    let mut wheel = TimerWheel::new(at(0));
    wheel.schedule(0, Instant::FAR_FUTURE);
    wheel.schedule(1, at(u64::MAX - TICK));
    assert!(wheel.next_deadline().is_some_and(|at| at <= Instant::FAR_FUTURE));
    assert_eq!(drain(&mut wheel, Instant::FAR_FUTURE), vec![1], "the last tick never ends");
    assert_eq!(wheel.len(), 1);
}

#[test]
fn a_jump_of_a_century_costs_slots_not_ticks() {
    let mut wheel = TimerWheel::new(at(0));
    let century = 100 * 365 * 86_400 * 1_000_000_000u64;
    wheel.schedule(9, at(century));
    let mut wakes = 0;
    let mut fired = None;
    while let Some(deadline) = wheel.next_deadline() {
        wakes += 1;
        fired = wheel.pop_expired(deadline).map(|id| (id, deadline));
    }
    assert!(wakes <= LEVELS, "{wakes}");
    assert_eq!(fired, Some((9, at(century.div_ceil(TICK) * TICK))));
}

/// A simple and slow model of the wheel.
#[derive(Default)]
struct Model {
    timers: BTreeMap<u32, u64>,
}

impl Model {
    fn due(&mut self, now: u64) -> BTreeSet<u32> {
        let due: BTreeSet<u32> =
            self.timers.iter().filter(|(_, at)| at.div_ceil(TICK) <= now / TICK).map(|(id, _)| *id).collect();
        self.timers.retain(|id, _| !due.contains(id));
        due
    }
}

#[derive(Debug, Clone)]
enum Action {
    Schedule(u32, u64),
    Cancel(u32),
    Advance(u64),
    /// Advance to the deadline that the wheel reports.
    Sleep,
}

/// Distances of every magnitude, so that every level is used.
fn distance() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0u32..60).prop_map(|(bits, shift)| bits >> 5 >> shift)
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0u32..40, distance()).prop_map(|(id, d)| Action::Schedule(id, d)),
        1 => (0u32..40).prop_map(Action::Cancel),
        2 => distance().prop_map(|d| Action::Advance(d >> 6)),
        2 => Just(Action::Sleep),
    ]
}

proptest! {
    #[test]
    fn behaves_like_a_map(start in distance(), actions in prop::collection::vec(action(), 1..200)) {
        let mut now = start;
        let mut wheel = TimerWheel::new(at(now));
        let mut model = Model::default();
        for action in actions {
            match action {
                Action::Schedule(id, distance) => {
                    // Some of them are in the past.
                    let when = now.saturating_add(distance).saturating_sub(3 * TICK);
                    wheel.schedule(id, at(when));
                    model.timers.insert(id, when);
                }
                Action::Cancel(id) => {
                    wheel.cancel(id);
                    model.timers.remove(&id);
                }
                Action::Advance(distance) => now = now.saturating_add(distance),
                Action::Sleep => now = now.max(wheel.next_deadline().map_or(now, Instant::as_nanos)),
            }
            if matches!(action, Action::Advance(_) | Action::Sleep) {
                let fired = drain(&mut wheel, at(now));
                prop_assert_eq!(fired.len(), fired.iter().collect::<BTreeSet<_>>().len());
                prop_assert_eq!(fired.into_iter().collect::<BTreeSet<_>>(), model.due(now));
            }
            check(&wheel, &model, now)?;
        }
    }

    /// A caller that wakes only at the deadline misses nothing, fires nothing early, and wakes for a timer at most
    /// once a level.
    #[test]
    fn sleeping_to_the_deadline_is_enough(
        start in distance(),
        distances in prop::collection::vec(distance(), 1..60),
    ) {
        let mut wheel = TimerWheel::new(at(start));
        let mut pending = BTreeMap::new();
        for (id, distance) in distances.iter().enumerate() {
            let when = start.saturating_add(*distance).min(u64::MAX - TICK);
            wheel.schedule(id as u32, at(when));
            pending.insert(id as u32, when);
        }
        let mut wakes = 0;
        while let Some(deadline) = wheel.next_deadline() {
            wakes += 1;
            prop_assert!(wakes <= LEVELS * distances.len());
            for id in drain(&mut wheel, deadline.max(at(start))) {
                let when = at(pending.remove(&id).unwrap());
                prop_assert!(when <= deadline.max(at(start)));
                prop_assert!(deadline <= when + Duration::from_nanos(TICK));
            }
        }
        prop_assert!(pending.is_empty());
    }
}

/// The deadline is not late, and lists, bitmaps and counts agree.
fn check(wheel: &TimerWheel, model: &Model, now: u64) -> Result<(), TestCaseError> {
    prop_assert_eq!(wheel.len(), model.timers.len());
    let next = model.timers.values().map(|at| at.div_ceil(TICK)).min();
    match (wheel.next_deadline(), next) {
        (Some(deadline), Some(next)) => {
            prop_assert!(deadline.as_nanos() <= next.saturating_mul(TICK).max(now))
        }
        (None, None) => {}
        other => prop_assert!(false, "{:?}", other),
    }
    let mut seen = BTreeSet::new();
    for list in 0..LISTS {
        let head = wheel.head(list);
        if list < DUE {
            prop_assert_eq!(wheel.occupied[list / SLOTS] >> (list % SLOTS) & 1 == 1, head != NIL);
        }
        let mut id = head;
        while id != NIL {
            let node = wheel.nodes[id as usize];
            prop_assert!(seen.insert(id), "in two lists");
            prop_assert_eq!(node.list(), Some(list));
            prop_assert_eq!(wheel.nodes[node.next as usize].prev, id);
            id = if node.next == head { NIL } else { node.next };
        }
    }
    prop_assert!(seen.iter().eq(model.timers.keys()));
    Ok(())
}
