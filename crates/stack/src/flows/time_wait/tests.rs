use super::*;

const LASTS: Duration = Duration::from_secs(60);

fn state() -> TimeWait {
    TimeWait { snd_nxt: SeqNum::new(1), rcv_nxt: SeqNum::new(2), ts_recent: 0, timestamps: false }
}

/// The lower bits of a hash are not kept.
fn hash(n: u64) -> u64 {
    n << 16
}

#[test]
fn a_record_is_small_and_keeps_all_of_its_state() {
    assert_eq!(size_of::<Record>(), 20);
    for (timestamps, expires) in [(true, TICKS), (false, TICKS), (true, 0)] {
        let state = TimeWait {
            snd_nxt: SeqNum::new(u32::MAX),
            rcv_nxt: SeqNum::new(0x1234_5678),
            ts_recent: 0x9abc_def0,
            timestamps,
        };
        let tag = Tag::of(0x0123_4567_89ab_cdef);
        let mut record = Record::new(tag, state, expires);
        assert_eq!((record.state(), record.tag(), record.left(expires)), (state, tag, 0));
        assert_eq!(record.left(expires.wrapping_sub(1) & TICKS), 1);
        assert_eq!(record.left(expires.wrapping_add(100) & TICKS), -100);
        record.restart(77);
        assert_eq!((record.state(), record.left(70)), (state, 7));
    }
}

/// The table finds a record by its hash's lower bits and upper seven.
#[test]
fn hashes_differ_where_the_table_looks() {
    let spread = |n: u64| Tag::of(hash(n)).spread();
    for bit in 0..48 {
        assert_ne!(spread(0), spread(1 << bit));
        assert_eq!(spread(1 << bit) >> 57 != 0, bit > 40, "{bit}");
    }
}

#[test]
fn nothing_comes_to_life_again_when_nobody_looked_for_long() {
    let mut table = TimeWaitTable::new(10);
    for (n, gap) in [100u64, 240, 300, 524, 525, 600, 1048, 100_000].into_iter().enumerate() {
        let start = Instant::from_secs(1_000_000 * (n as u64 + 1));
        table.insert(hash(1), state(), start, LASTS);
        table.insert(hash(2), state(), start + Duration::from_secs(gap), LASTS);
        assert_eq!(table.len(), 1, "{gap}");
        table.expire(start + Duration::from_secs(gap + 62));
        assert_eq!((table.len(), table.next_deadline()), (0, None), "{gap}");
    }
}

#[test]
fn none_lasts_longer_than_four_minutes_or_shorter_than_it_should() {
    for (lasts, ends) in [(1, 1), (60, 60), (240, 240), (100_000, 240)] {
        let mut table = TimeWaitTable::new(10);
        let start = Instant::from_millis(777_003);
        table.insert(hash(1), state(), start, Duration::from_secs(lasts));
        table.expire(start + Duration::from_secs(ends) - Duration::from_millis(1));
        assert_eq!(table.len(), 1, "{lasts}");
        table.expire(start + Duration::from_secs(ends));
        table.expire(start + Duration::from_secs(ends) + SWEEP);
        assert_eq!(table.len(), 0, "{lasts}");
    }
}

#[test]
fn the_oldest_make_way_and_restarted_ones_are_the_newest() {
    let mut table = TimeWaitTable::new(3);
    let at = Instant::from_secs;
    for n in 1..=3 {
        assert!(!table.insert(hash(n), state(), at(n), LASTS));
    }
    table.restart(hash(1), at(10), LASTS);
    assert!(table.insert(hash(4), state(), at(11), LASTS));
    assert_eq!([1, 2, 3, 4].map(|n| table.find(hash(n)).is_some()), [true, false, true, true]);
    let tick = Duration::from_nanos(TICK_NS);
    table.expire(at(63) + tick);
    assert_eq!([1, 3, 4].map(|n| table.find(hash(n)).is_some()), [true, false, true]);
    assert!(table.next_deadline().is_some_and(|end| end >= at(70) && end <= at(70) + tick));
    table.remove(hash(1));
    table.expire(at(72));
    assert_eq!((table.len(), table.next_deadline()), (0, None));
    assert!(!table.insert(hash(5), state(), at(80), LASTS));
    assert!(table.find(hash(5)).is_some());
}

#[test]
fn a_full_table_loses_a_sixteenth_and_of_one_moment_the_first() {
    let mut table = TimeWaitTable::new(32);
    let at = Instant::from_secs(5);
    for n in 0..32 {
        assert!(!table.insert(hash(n), state(), at, LASTS));
    }
    assert!(!table.insert(hash(0), state(), at, LASTS), "a flow's own record makes way for nobody");
    assert!(table.insert(hash(32), state(), at, LASTS));
    assert_eq!(table.len(), 31);
    assert_eq!((0..33).filter(|n| table.find(hash(*n)).is_none()).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn of_very_many_of_one_moment_the_first_half_goes_before_the_second() {
    let mut table = TimeWaitTable::new(1 << 12);
    let at = Instant::from_secs(5);
    for n in 0..6000 {
        table.insert(hash(n), state(), at, LASTS);
    }
    // A sixteenth is 256; a second's ticks tell 62 groups of 128 apart.
    let left: Vec<u64> = (0..6000).filter(|n| table.find(hash(*n)).is_some()).collect();
    assert!(left.len() > 3800 && left[0] >= 6000 - 4096 - 128, "{} from {}", left.len(), left[0]);
    assert_eq!(left.last(), Some(&5999));
}

#[test]
fn many_of_one_moment_end_a_second_later_at_most() {
    let mut table = TimeWaitTable::new(1000);
    for n in 0..1000 {
        table.insert(hash(n), state(), Instant::from_secs(5), LASTS);
    }
    table.expire(Instant::from_millis(64_999));
    assert_eq!(table.len(), 1000);
    table.expire(Instant::from_millis(66_016));
    assert_eq!((table.len(), table.next_deadline()), (0, None));
}

#[test]
fn a_peer_that_reopens_its_ports_does_not_grow_it() {
    let mut table = TimeWaitTable::new(1000);
    for n in 0..100_000u64 {
        table.remove(hash(n % 7));
        table.insert(hash(n % 7), state(), Instant::from_millis(n), LASTS);
        assert!(table.len() <= 7 && table.records.capacity() <= 80);
    }
}

#[test]
fn a_record_of_the_same_flow_is_replaced() {
    let mut table = TimeWaitTable::new(10);
    table.insert(hash(1), state(), Instant::ZERO, LASTS);
    table.insert(hash(1), state(), Instant::from_secs(30), LASTS);
    assert_eq!(table.len(), 1);
    table.expire(Instant::from_secs(60));
    assert_eq!(table.len(), 1, "the newer one still lasts");
    table.expire(Instant::from_secs(90));
    assert_eq!(table.len(), 0);
}
