use super::filters::volume;
use super::*;
use crate::congestion::initial_window;

const MSS: u32 = 1000;
/// 1 MB/s.
const MB: u64 = 1_000_000;
const RTT: Duration = Duration::from_millis(40);

/// A path that delivers at the rate given to it, with one sample in each round trip.
struct Path {
    bbr: Bbr,
    now: Instant,
    total: u64,
    rtt: Duration,
    app_limited: bool,
}

impl Path {
    fn new() -> Self {
        let now = Instant::from_secs(1);
        Self { bbr: Bbr::new(MSS, 7), now, total: 0, rtt: RTT, app_limited: false }
    }

    /// A path whose pipe was filled at 1 MB/s, with ProbeBW begun.
    fn filled() -> Self {
        let mut path = Self::new();
        for rate in [MB / 4, MB / 2, MB, MB, MB, MB] {
            path.round(rate);
        }
        assert_eq!(path.bbr.phase, Phase::Drain);
        // Down has nothing to do when the queue is empty.
        path.rest(40_000);
        assert_eq!(path.bbr.phase, Phase::Cruise);
        path
    }

    fn sample(&mut self, rate: u64, in_flight: u32) -> RateSample {
        let bytes = volume(rate, self.rtt) as u32;
        let prior = self.total;
        self.total += u64::from(bytes);
        RateSample {
            now: self.now,
            rate,
            delivered: bytes,
            prior_delivered: Some(prior),
            total: self.total,
            acked: bytes,
            lost: 0,
            lost_now: 0,
            sent_in_flight: in_flight,
            app_limited: self.app_limited,
            rtt: Some(self.rtt),
            srtt: Some(self.rtt),
            in_flight,
            cwnd_limited: false,
            sack: true,
            recovering: false,
        }
    }

    /// Runs a round trip in which the path delivers at `rate`.
    fn round(&mut self, rate: u64) {
        self.rest_at(rate, self.bbr.cwnd);
    }

    /// Runs a round trip at 1 MB/s that leaves `in_flight` bytes in flight.
    fn rest(&mut self, in_flight: u32) {
        self.rest_at(MB, in_flight);
    }

    fn rest_at(&mut self, rate: u64, in_flight: u32) {
        self.now += self.rtt;
        let sample = self.sample(rate, in_flight);
        self.bbr.on_sample(&sample);
    }

    /// Runs round trips until BBR is in `phase`.
    fn until(&mut self, phase: Phase, most: u32) -> u32 {
        for round in 0..most {
            if self.bbr.phase == phase {
                return round;
            }
            let in_flight = self.bbr.bdp(100);
            self.rest(in_flight);
        }
        panic!("{phase:?} is not reached from {:?}", self.bbr.phase);
    }

    fn lose(&mut self, bytes: u32, lost: u32) {
        self.bbr.on_lost(&LostSegment {
            now: self.now,
            bytes,
            in_flight: 50_000,
            lost,
            app_limited: false,
            delivered: self.total,
            sack: true,
        });
    }
}

#[test]
fn startup_grows_as_long_as_the_rate_does() {
    let mut path = Path::new();
    assert_eq!(path.bbr.window(), initial_window(MSS));
    let unknown = path.bbr.pacing_rate;
    for rate in [MB / 8, MB / 4, MB / 2, MB, 2 * MB, 4 * MB] {
        path.round(rate);
        assert_eq!(path.bbr.phase, Phase::Startup);
    }
    assert!(path.bbr.pacing_rate < unknown, "the round-trip time is known now");
    assert_eq!(path.bbr.pacing_rate, 4 * MB * 277 * 99 / 10_000);
    assert!(path.bbr.cwnd >= path.bbr.bdp(200));
}

#[test]
fn three_rounds_without_growth_end_startup() {
    let mut path = Path::new();
    path.round(MB);
    for _ in 0..2 {
        path.round(MB * 6 / 5);
        assert_eq!(path.bbr.phase, Phase::Startup);
    }
    path.round(MB);
    assert_eq!((path.bbr.phase, path.bbr.full_bw_reached), (Phase::Drain, true));
    assert_eq!(path.bbr.pacing_rate, MB * 6 / 5 * 50 * 99 / 10_000);
}

#[test]
fn an_application_that_sends_little_does_not_end_startup() {
    let mut path = Path::new();
    path.round(MB);
    path.app_limited = true;
    for _ in 0..20 {
        path.round(MB / 10);
    }
    assert_eq!(path.bbr.phase, Phase::Startup);
    assert_eq!(path.bbr.max_bw.max(), MB);
    path.round(2 * MB);
    assert_eq!(path.bbr.max_bw.max(), 2 * MB, "more than was known counts all the same");
}

#[test]
fn drain_ends_when_the_queue_is_empty_or_after_three_rounds() {
    for in_flight in [40_000, 80_000] {
        let mut path = Path::filled();
        path.bbr.phase = Phase::Drain;
        path.bbr.drain_start_round = path.bbr.round_count;
        let mut rounds = 0;
        while path.bbr.phase == Phase::Drain {
            path.rest(in_flight);
            rounds += 1;
        }
        assert_eq!(rounds, if in_flight == 40_000 { 1 } else { 4 });
    }
}

#[test]
fn many_losses_in_a_round_of_recovery_end_startup() {
    let mut path = Path::new();
    path.round(MB / 2);
    path.round(MB);
    path.bbr.on_loss_recovery(path.now, 80_000);
    for event in 0..7 {
        path.lose(MSS, 1000 * (event + 1));
        let mut sample = path.sample(MB, 80_000);
        // Still within the round.
        sample.prior_delivered = Some(0);
        sample.lost_now = MSS;
        sample.recovering = true;
        path.bbr.on_sample(&sample);
        assert_eq!(path.bbr.phase, Phase::Startup);
    }
    path.now += RTT;
    let mut sample = path.sample(MB, 80_000);
    (sample.recovering, sample.lost) = (true, 7000);
    path.bbr.on_sample(&sample);
    assert_eq!(path.bbr.phase, Phase::Drain);
    let bound = path.bbr.inflight_longterm;
    assert!(bound >= path.bbr.bdp(100) && bound < UNBOUNDED, "{bound}");
    // The segments had only been late.
    path.bbr.undo();
    assert_eq!((path.bbr.phase, path.bbr.full_bw_reached), (Phase::Startup, false));
    assert_eq!(path.bbr.inflight_longterm, UNBOUNDED);
    path.bbr.undo();
    assert_eq!(path.bbr.phase, Phase::Startup, "there is nothing more to undo");
}

#[test]
fn without_sack_one_loss_is_enough() {
    let mut path = Path::new();
    path.round(MB);
    path.now += RTT;
    let mut sample = path.sample(MB, 80_000);
    (sample.sack, sample.recovering, sample.lost, sample.lost_now) = (false, true, MSS, MSS);
    path.bbr.on_sample(&sample);
    assert_eq!(path.bbr.phase, Phase::Drain);
}

#[test]
fn the_cycle_goes_down_cruise_refill_up() {
    let mut path = Path::filled();
    assert_eq!(path.bbr.pacing_rate, MB * 99 / 100);
    // 40 segments are the bandwidth-delay product, so Reno would need 40 rounds (39 with the random part).
    let waited = path.until(Phase::Refill, 64);
    assert!((37..=41).contains(&waited), "{waited}");
    path.rest(40_000);
    assert_eq!(path.bbr.phase, Phase::Up);
    assert!(path.bbr.is_bw_probe_sample);
    path.rest(50_000);
    assert_eq!(path.bbr.pacing_rate, MB * 125 * 99 / 10_000);
    assert_eq!(path.bbr.cwnd, path.bbr.bdp(225) + path.bbr.aggregation.extra() + 2 * MSS);
    // The rate does not grow, so after three rounds BBR goes down.
    path.until(Phase::Down, 3);
    assert_eq!(path.bbr.pacing_rate, MB * 90 * 99 / 10_000);
    assert_eq!(path.bbr.inflight_longterm, UNBOUNDED, "nothing was lost");
    path.rest(60_000);
    assert_eq!(path.bbr.phase, Phase::Down, "the queue is not empty");
    path.until(Phase::Cruise, 2);
}

#[test]
fn a_rate_that_grew_is_found() {
    let mut path = Path::filled();
    path.until(Phase::Up, 70);
    for rate in [MB * 5 / 4, MB * 3 / 2, MB * 2, MB * 2] {
        path.round(rate);
        assert_eq!(path.bbr.phase, Phase::Up);
    }
    assert_eq!(path.bbr.bw, 2 * MB);
}

#[test]
fn the_largest_rate_is_forgotten_after_two_cycles() {
    let mut path = Path::filled();
    path.round(3 * MB);
    for cycle in 0..3 {
        path.until(Phase::Up, 70);
        path.until(Phase::Down, 5);
        path.rest(40_000);
        assert_eq!(path.bbr.max_bw.max(), if cycle == 0 { 3 * MB } else { MB });
    }
}

#[test]
fn losses_while_probing_bound_what_is_in_flight() {
    let mut path = Path::filled();
    path.until(Phase::Up, 70);
    path.lose(MSS, 1000);
    assert_eq!(path.bbr.phase, Phase::Up, "2 % of 50 segments are one");
    path.lose(MSS, 2000);
    assert_eq!(path.bbr.phase, Phase::Down);
    assert_eq!(path.bbr.inflight_longterm, 49_000);
    assert!(path.bbr.prev_probe_too_high);
    path.lose(MSS, 9000);
    assert_eq!(path.bbr.inflight_longterm, 49_000, "once for a probe");
    path.until(Phase::Cruise, 3);
    path.rest(40_000);
    assert!(path.bbr.cwnd <= 49_000 * 85 / 100 + 1, "room for others: {}", path.bbr.cwnd);
    // The next probe stops where the last one was too much. Nothing is lost, so another one follows at once.
    path.until(Phase::Up, 70);
    path.rest(49_000);
    assert_eq!((path.bbr.phase, path.bbr.prev_probe_precautionary), (Phase::Down, true));
    path.rest(40_000);
    assert_eq!(path.bbr.phase, Phase::Refill);
}

#[test]
fn the_bound_grows_twice_as_fast_in_each_round() {
    let mut path = Path::filled();
    path.until(Phase::Up, 70);
    path.lose(MSS, 2000);
    path.bbr.prev_probe_too_high = false;
    path.until(Phase::Up, 70);
    let mut grown = [0; 4];
    for rise in &mut grown {
        let was = path.bbr.inflight_longterm;
        path.now += RTT;
        for part in 0..10 {
            path.bbr.cwnd = path.bbr.inflight_longterm;
            let mut sample = path.sample(MB, was);
            (sample.cwnd_limited, sample.acked) = (true, was / 10);
            if part > 0 {
                sample.prior_delivered = Some(0);
            }
            path.bbr.on_sample(&sample);
        }
        *rise = (path.bbr.inflight_longterm - was) / MSS;
    }
    assert_eq!(grown, [2, 4, 8, 16]);
    assert_eq!(path.bbr.phase, Phase::Up, "the bound was in the way, so the rate says nothing");
}

#[test]
fn losses_while_cruising_slow_down_to_what_arrives() {
    let mut path = Path::filled();
    path.until(Phase::Cruise, 3);
    let before = path.bbr.cwnd;
    path.lose(MSS, 1000);
    path.rest_at(MB * 9 / 10, 40_000);
    path.rest_at(MB * 9 / 10, 40_000);
    assert_eq!(path.bbr.bw, MB, "the best of the round before");
    path.lose(MSS, 1000);
    path.rest_at(MB * 9 / 10, 40_000);
    path.rest_at(MB * 9 / 10, 40_000);
    assert_eq!(path.bbr.bw, MB * 9 / 10);
    assert!(path.bbr.cwnd < before);
    for _ in 0..4 {
        path.lose(MSS, 1000);
        path.rest_at(MB / 100, 4000);
    }
    assert!(path.bbr.bw >= MB / 100 && path.bbr.cwnd >= MIN_PIPE * MSS);
    path.until(Phase::Refill, 70);
    assert_eq!((path.bbr.bw_shortterm, path.bbr.inflight_shortterm), (ANY_RATE, UNBOUNDED));
}

#[test]
fn a_spurious_loss_in_a_probe_begins_it_again() {
    let mut path = Path::filled();
    path.until(Phase::Up, 70);
    let before = path.bbr.cwnd;
    path.bbr.on_loss_recovery(path.now, 50_000);
    path.lose(MSS, 5000);
    assert_eq!(path.bbr.phase, Phase::Down);
    path.bbr.undo();
    assert_eq!((path.bbr.phase, path.bbr.inflight_longterm), (Phase::Refill, UNBOUNDED));
    assert!(path.bbr.cwnd >= before);
}

#[test]
fn ten_seconds_without_a_smaller_round_trip_ask_for_one() {
    let mut path = Path::filled();
    // The path has become longer: every sample is now 60 ms.
    path.rtt = Duration::from_millis(60);
    let begun = path.now;
    while path.bbr.phase != Phase::ProbeRtt {
        path.rest(60_000);
        assert!(path.now < begun + Duration::from_secs(11));
        if path.bbr.phase != Phase::ProbeRtt {
            assert_eq!(path.bbr.min_rtt, Some(RTT), "it is not believed before");
        }
    }
    assert_eq!(path.bbr.window(), 20_000, "half of the product by the old round-trip time");
    let mut sample = path.sample(MB, 60_000);
    sample.prior_delivered = Some(0);
    assert!(path.bbr.on_sample(&sample), "what is delivered meanwhile says nothing of the path");
    path.rest_at(MB / 3, 20_000);
    let low = path.now;
    while path.bbr.phase == Phase::ProbeRtt {
        path.rest_at(MB / 3, 20_000);
    }
    assert!(path.now - low >= Duration::from_millis(200) && path.now - low < Duration::from_millis(400));
    assert_eq!(path.bbr.phase, Phase::Cruise);
    assert_eq!(path.bbr.min_rtt, Some(Duration::from_millis(60)));
    path.rest(60_000);
    assert_eq!(path.bbr.bw, MB, "and it is as fast as before");
    assert!(path.bbr.window() > 60_000);
}

#[test]
fn a_flow_that_was_idle_does_not_drain_what_is_empty() {
    let mut path = Path::filled();
    path.until(Phase::Cruise, 3);
    path.now += Duration::from_secs(60);
    let departure = Departure { now: path.now, in_flight: 0, app_limited: true, srtt: Some(RTT) };
    path.bbr.on_departure(&departure);
    let window = path.bbr.window();
    path.bbr.on_idle_restart(initial_window(MSS));
    assert_eq!((path.bbr.window(), path.bbr.pacing_rate), (window, MB * 99 / 100));
    path.rtt = Duration::from_millis(50);
    path.rest(10_000);
    assert_ne!(path.bbr.phase, Phase::ProbeRtt);
    assert_eq!(path.bbr.min_rtt, Some(Duration::from_millis(50)));
}

#[test]
fn probe_rtt_that_an_idle_time_ended_is_left_before_the_next_segment() {
    let mut path = Path::filled();
    path.now += Duration::from_secs(11);
    path.rest(10_000);
    assert_eq!(path.bbr.phase, Phase::ProbeRtt);
    path.now += Duration::from_secs(1);
    path.bbr.on_departure(&Departure { now: path.now, in_flight: 0, app_limited: true, srtt: Some(RTT) });
    assert_eq!(path.bbr.phase, Phase::Cruise);
    assert!(path.bbr.window() >= 80_000);
}

#[test]
fn after_a_timeout_one_segment_leaves_and_then_the_window_is_back() {
    let mut path = Path::filled();
    path.until(Phase::Cruise, 3);
    let before = path.bbr.window();
    path.bbr.on_timeout(path.now, before, true, 3000);
    assert_eq!(path.bbr.window(), 4000);
    path.bbr.on_timeout(path.now, before, false, 0);
    assert_eq!(path.bbr.window(), 1000);
    let mut sample = path.sample(MB, 0);
    (sample.acked, sample.prior_delivered) = (0, None);
    path.bbr.on_sample(&sample);
    assert_eq!(path.bbr.window(), 1000, "nothing has arrived");
    path.bbr.on_repaired();
    assert_eq!(path.bbr.window(), before);
}

#[test]
fn flows_do_not_probe_together() {
    let wait = |seed| {
        let mut bbr = Bbr::new(MSS, seed);
        bbr.start_down(Instant::from_secs(1), 0);
        bbr.bw_probe_wait
    };
    let waits: std::vec::Vec<_> = (0..20).map(wait).collect();
    assert!(waits.iter().all(|w| (2000..=3000).contains(&w.as_millis())));
    assert!(waits.iter().any(|w| *w != waits[0]));
}

#[test]
fn the_window_keeps_its_limits_whatever_is_measured() {
    let mut path = Path::new();
    for round in 0..2000u64 {
        path.now += Duration::from_micros(round % 7 * 1000);
        let rate = [0, 1, MB, u64::MAX / 2, 1 << 40][(round % 5) as usize];
        let mut sample = path.sample(rate.min(1 << 33), (round * 7919) as u32);
        (sample.rate, sample.acked) = (rate, u32::MAX);
        (sample.lost, sample.cwnd_limited) = (round as u32 % 3 * 40_000, round % 2 == 0);
        path.bbr.on_sample(&sample);
        if round % 11 == 0 {
            path.lose(u32::MAX, u32::MAX);
        }
        assert!((MSS..=MAX_WINDOW).contains(&path.bbr.window()));
    }
}

#[test]
fn a_mark_is_answered_as_losses_are() {
    let mut path = Path::new();
    path.round(MB / 2);
    path.bbr.on_loss_recovery(path.now, 40_000);
    path.bbr.on_mark(path.now, 40_000);
    path.round(MB / 2);
    assert_eq!(path.bbr.phase, Phase::Drain);
    assert!(path.bbr.inflight_longterm < UNBOUNDED);
    let mut path = Path::filled();
    path.until(Phase::Up, 70);
    path.bbr.on_mark(path.now, 45_000);
    assert_eq!((path.bbr.phase, path.bbr.inflight_longterm), (Phase::Down, 45_000));
    path.rest(30_000);
    assert_eq!(path.bbr.phase, Phase::Cruise);
    for _ in 0..2 {
        path.bbr.on_mark(path.now, 40_000);
        path.rest_at(MB / 2, 30_000);
        path.rest_at(MB / 2, 30_000);
    }
    assert!(path.bbr.bw < MB, "{}", path.bbr.bw);
}
