use super::*;
use proptest::prelude::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The instant `n` milliseconds after the start.
fn at(n: u64) -> Instant {
    Instant::from_millis(n)
}

#[test]
fn a_short_path_holds_little() {
    let mut rtt = RttEstimator::new();
    assert_eq!(rtt.most_under_way(), u32::MAX);
    rtt.sample(ms(100), at(100));
    assert_eq!(rtt.most_under_way(), 500_000_000);
    rtt.sample(Duration::from_micros(20), at(200));
    assert_eq!(rtt.most_under_way(), 100_000);
    // A queue does not make it longer.
    rtt.sample(ms(100), at(300));
    assert_eq!(rtt.most_under_way(), 100_000);
    rtt.sample(Duration::from_secs(100), at(200_000));
    assert_eq!(rtt.most_under_way(), 100_000);
    rtt.sample(Duration::from_secs(100), at(2_000_000));
    assert_eq!(rtt.most_under_way(), u32::MAX);
}

#[test]
fn stays_small_and_constants_agree() {
    assert!(size_of::<RttEstimator>() <= 24);
    assert_eq!(micros(MIN_RTO), MIN_US);
    assert_eq!(micros(MAX_RTO), MAX_US);
    assert_eq!(micros(INITIAL_RTO), INITIAL_US);
}

//= rfc6298 2.1-a test
#[test]
fn begins_with_one_second() {
    let rtt = RttEstimator::new();
    assert_eq!((rtt.rto(), rtt.srtt(), rtt.min_rtt()), (ms(1000), None, None));
}

/// RFC 6298 §2.2, §2.3, computed by hand.
//= rfc6298 2.2-a 2.3-a 2.3-b 2.3-c 2.3-d test
#[test]
fn first_and_second_sample() {
    let mut rtt = RttEstimator::new();
    rtt.sample(ms(400), at(400));
    assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(ms(400)), ms(200)));
    assert_eq!(rtt.rto(), ms(400 + 4 * 200));
    rtt.sample(ms(240), at(800));
    assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(ms(380)), ms(190)));
    assert_eq!(rtt.rto(), ms(380 + 4 * 190));
    assert_eq!(rtt.min_rtt(), Some(ms(240)));
}

//= rfc6298 2.4-a 4-a test
#[test]
fn a_steady_path_keeps_the_floor_above_its_round_trip() {
    let mut rtt = RttEstimator::new();
    for n in 1..=200 {
        rtt.sample(ms(190), at(190 * n));
    }
    let rto = rtt.rto();
    assert!(rto >= ms(389) && rto <= ms(391), "{rto:?}");
    assert!(rtt.rttvar() < ms(1));
}

//= rfc6298 5.5-a test
#[test]
fn backs_off_to_the_maximum_and_back() {
    let mut rtt = RttEstimator::new();
    let mut seen = std::vec::Vec::new();
    for _ in 0..300 {
        seen.push(rtt.rto().as_secs());
        rtt.backoff();
    }
    assert_eq!(seen[..9], [1, 2, 4, 8, 16, 32, 64, 120, 120]);
    assert_eq!(rtt.rto(), MAX_RTO);
    rtt.reset_backoff();
    assert_eq!(rtt.rto(), ms(1000));
    rtt.backoff();
    rtt.sample(ms(100), at(1));
    assert_eq!(rtt.rto(), ms(300), "a sample ends the backoff");
}

#[test]
fn initial_timeout_is_clamped_and_yields_to_a_sample() {
    let mut rtt = RttEstimator::new();
    rtt.set_initial(ms(3000));
    rtt.backoff();
    assert_eq!(rtt.rto(), ms(6000));
    rtt.set_initial(ms(1));
    assert_eq!(rtt.rto(), MIN_RTO);
    rtt.set_initial(Duration::MAX);
    assert_eq!(rtt.rto(), MAX_RTO);
    rtt.sample(Duration::ZERO, at(1));
    rtt.set_initial(ms(3000));
    assert_eq!((rtt.rto(), rtt.srtt()), (MIN_RTO, Some(Duration::ZERO)));
}

/// RFC 7323 §4.2: a hundred samples in a round trip do not make RTTVAR decay a hundred times as fast.
//= rfc7323 4.2-a test
#[test]
fn the_variation_falls_once_in_a_round_trip() {
    let (mut often, mut once) = (RttEstimator::new(), RttEstimator::new());
    for rtt in [&mut often, &mut once] {
        rtt.sample(ms(400), at(0));
    }
    for round in 1..=5 {
        for n in 0..100 {
            often.sample(ms(400), at(400 * round + 4 * n));
        }
        once.sample(ms(400), at(400 * round));
        assert_eq!(often.rto(), once.rto());
    }
    often.sample(ms(1000), at(2400));
    assert!(often.rttvar() > ms(150), "and rises at once");
    assert!(often.srtt().unwrap() > ms(470));
}

/// RFC 8985 §6.2: when the path becomes longer, the old minimum expires.
//= rfc8985 6.2-a test
#[test]
fn the_smallest_is_forgotten_in_minutes() {
    let mut rtt = RttEstimator::new();
    rtt.sample(ms(10), at(0));
    for s in 1..300 {
        rtt.sample(ms(80), at(1000 * s));
        assert_eq!(rtt.min_rtt(), Some(ms(10)), "{s} s");
    }
    rtt.sample(ms(90), at(301_000));
    assert_eq!(rtt.min_rtt(), Some(ms(80)));
    rtt.note_min_between(at(301_001 - 70), at(301_001));
    rtt.note_min_between(at(1_000_000 - 100), at(1_000_000));
    assert_eq!(rtt.min_rtt(), Some(ms(100)), "after a long silence at once");
}

proptest! {
    /// For any samples the timeout lies within its bounds and above the smoothed time, and SRTT follows the
    /// exact recurrence to a few microseconds.
    //= rfc6298 1-a test
    #[test]
    fn any_samples(samples in prop::collection::vec(0u64..200_000_000, 1..60)) {
        let mut rtt = RttEstimator::new();
        let mut exact: Option<f64> = None;
        for us in samples {
            rtt.sample(Duration::from_micros(us), at(1));
            let us = us.min(120_000_000) as f64;
            let e = exact.map_or(us, |e| e * 7.0 / 8.0 + us / 8.0);
            exact = Some(e);
            let srtt = rtt.srtt().unwrap();
            prop_assert!((srtt.as_micros() as f64 - e).abs() <= 2.0);
            prop_assert!(rtt.rto() >= MIN_RTO && rtt.rto() <= MAX_RTO);
            prop_assert!(rtt.rto() >= srtt);
            prop_assert!(rtt.min_rtt().unwrap() <= srtt + Duration::from_micros(1));
        }
    }
}
