use super::*;

fn ms(n: u64) -> Instant {
    Instant::from_millis(n)
}

/// One segment every 10 ms.
const SLOW: Pace = Pace { rate: 100_000, mss: 1000, together: 1, longest: Duration::from_millis(100) };

#[test]
fn two_segments_leave_together_then_one_in_its_time() {
    let mut pacer = Pacer::default();
    for _ in 0..2 {
        assert_eq!(pacer.holds(ms(100)), None);
        pacer.sent(1000, Some(SLOW), ms(100));
    }
    assert_eq!(pacer.holds(ms(100)), Some(ms(110)));
    assert_eq!(pacer.holds(ms(110)), None);
    pacer.sent(1000, Some(SLOW), ms(110));
    assert_eq!(pacer.holds(ms(110)), Some(ms(120)));
}

#[test]
fn segments_that_leave_together_are_followed_by_all_their_gaps() {
    let pairs = Pace { together: 2, ..SLOW };
    let mut pacer = Pacer::default();
    for at in [100, 110, 130, 150] {
        for _ in 0..2 {
            assert_eq!(pacer.holds(ms(at)), None);
            pacer.sent(1000, Some(pairs), ms(at));
        }
        // After a pause, the first of the pair is late by its gap.
        let next = if at == 100 { 110 } else { at + 20 };
        assert_eq!(pacer.holds(ms(at)), Some(ms(next)));
        assert_eq!(pacer.holds(ms(at + 1)), Some(ms(next)), "a burst is over when time passes");
    }
    // Half of a pair leaves no right to another one later.
    pacer.sent(1000, Some(pairs), ms(170));
    assert_eq!(pacer.holds(ms(171)), Some(ms(180)));
}

#[test]
fn the_first_segments_have_no_pace() {
    let mut pacer = Pacer::default();
    assert_eq!((0..100).filter(|_| pacer.begins()).count(), 10);
}

#[test]
fn a_timer_that_is_late_costs_no_rate() {
    // 12.5 MB/s: a segment of 1,250 bytes takes 100 µs, and the timer fires every 0.6 ms.
    let pace = Pace { rate: 12_500_000, mss: 1250, together: 1, longest: Duration::from_secs(1) };
    let (mut pacer, mut sent) = (Pacer::default(), 0);
    for call in 0..10_000 {
        let now = Instant::from_micros(1_000_000 + call * 600);
        while pacer.holds(now).is_none() {
            pacer.sent(1250, Some(pace), now);
            sent += 1;
        }
    }
    assert!((60_000..60_030).contains(&sent), "{sent}");
}

#[test]
fn an_idle_time_is_not_made_up_for() {
    let mut pacer = Pacer::default();
    pacer.sent(1000, Some(SLOW), ms(100));
    let mut burst = 0;
    while pacer.holds(ms(50_000)).is_none() {
        pacer.sent(1000, Some(SLOW), ms(50_000));
        burst += 1;
    }
    assert_eq!(burst, 2);
}

#[test]
fn no_gap_is_longer_than_asked_for() {
    let mut pacer = Pacer::default();
    let crawl = Pace { rate: 1, ..SLOW };
    for _ in 0..3 {
        pacer.sent(1000, Some(crawl), ms(100));
    }
    assert!(pacer.holds(ms(100)).unwrap() <= ms(300));
    pacer.release();
    assert_eq!(pacer.holds(ms(100)), None);
    pacer.sent(1000, None, ms(100));
    assert_eq!(pacer.holds(ms(100)), None);
}

#[test]
fn a_window_goes_out_within_its_round_trip() {
    let srtt = Duration::from_millis(100);
    assert_eq!(rate_of_window(10_000, u32::MAX, srtt), 200_000);
    assert_eq!(rate_of_window(10_000, 10_000, srtt), 120_000);
    assert!(rate_of_window(1 << 30, 1, Duration::ZERO) > 1 << 40);
}
