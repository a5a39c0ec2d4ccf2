//! The behaviour of the congestion control algorithms on a bottleneck of 10 Mbit/s with a round-trip time of 40 ms:
//! NewReno, CUBIC and BBR alone, with another flow of the same algorithm, and side by side. `firstflight-lab
//! congestion` prints the table.

use crate::flows::{Flows, Seen, bottleneck};
use crate::pair::{End, Pair};
use firstflight_link::path::PathConfig;
use firstflight_stack::ConnectConfig;
use firstflight_tcp::congestion::Algorithm;
use std::time::Duration;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// One flow, after its start.
fn alone(path: PathConfig, algorithm: Algorithm) -> Seen {
    let mut flows = Flows::new(path, 1, false);
    flows.start(algorithm);
    flows.run(secs(5));
    flows.run(secs(25))
}

/// Two flows. The second starts two seconds after the first. Measured after both have adapted to each other.
fn together(path: PathConfig, seed: u64, [first, second]: [Algorithm; 2]) -> Seen {
    let mut flows = Flows::new(path, seed, false);
    flows.start(first);
    flows.run(secs(2));
    flows.start(second);
    flows.run(secs(10));
    flows.run(secs(60))
}

#[test]
fn each_fills_the_pipe_and_bbr_leaves_its_queue_short() {
    for quarters in [4, 16] {
        let [newreno, cubic, bbr] = Algorithm::ALL.map(|algorithm| alone(bottleneck(quarters), algorithm));
        for seen in [&newreno, &cubic, &bbr] {
            assert!(seen.total() >= 8.5, "{seen:?}");
        }
        assert!(bbr.queue * 2 < cubic.queue, "{bbr:?} {cubic:?}");
        assert!(bbr.queue * 2 < newreno.queue, "{bbr:?} {newreno:?}");
    }
}

#[test]
fn a_buffer_of_a_quarter_of_the_product_is_enough_for_bbr() {
    let bbr = alone(bottleneck(1), Algorithm::Bbr);
    assert!(bbr.total() >= 8.5, "{bbr:?}");
}

#[test]
fn one_per_cent_of_random_loss_costs_bbr_little() {
    let clean = alone(bottleneck(4), Algorithm::Bbr).total();
    let lossy = Algorithm::ALL.map(|a| alone(bottleneck(4).loss(0.01), a).total());
    let [newreno, cubic, bbr] = lossy;
    assert!(bbr >= clean * 0.7, "{bbr} of {clean}");
    assert!(cubic < clean * 0.7 && newreno < cubic, "{lossy:?}");
}

#[test]
fn two_of_a_kind_share_evenly() {
    for algorithm in Algorithm::ALL {
        for quarters in [1, 4, 16] {
            for seed in 1..=3 {
                let seen = together(bottleneck(quarters), seed, [algorithm; 2]);
                assert!(seen.fairness() >= 0.9, "{algorithm}, {quarters}/4, seed {seed}: {seen:?}");
                // An algorithm that halves its window needs a buffer to fill the pipe.
                if quarters > 1 || algorithm != Algorithm::NewReno {
                    assert!(seen.total() >= 8.5, "{algorithm}, {quarters}/4, seed {seed}: {seen:?}");
                }
            }
        }
    }
}

#[test]
fn neither_bbr_nor_cubic_starves_beside_the_other() {
    for quarters in [1, 4, 16] {
        for order in [[Algorithm::Bbr, Algorithm::Cubic], [Algorithm::Cubic, Algorithm::Bbr]] {
            let seen = together(bottleneck(quarters), 1, order);
            assert!(seen.rates.iter().all(|rate| *rate >= 2.0), "{order:?}, {quarters}/4: {seen:?}");
        }
    }
}

#[test]
fn a_path_that_becomes_longer_is_learnt_by_probe_rtt() {
    let mut flows = Flows::new(bottleneck(4), 1, false);
    flows.start(Algorithm::Bbr);
    flows.run(secs(8));
    for path in [&mut flows.pair.wire.a_to_b, &mut flows.pair.wire.b_to_a] {
        path.config_mut().delay = Duration::from_millis(80);
    }
    flows.run(secs(1));
    let before = flows.run(secs(4));
    assert!(before.total() < 7.0, "two of the old products are half of one: {before:?}");
    flows.run(secs(15));
    let after = flows.run(secs(10));
    assert!(after.total() >= 8.5, "{after:?}");
}

#[test]
fn a_path_that_becomes_shorter_keeps_no_queue() {
    for seed in 1..=4 {
        let path = bottleneck(16).delay(Duration::from_millis(80));
        let mut flows = Flows::new(path, seed, false);
        flows.start(Algorithm::Bbr);
        flows.run(secs(8));
        for path in [&mut flows.pair.wire.a_to_b, &mut flows.pair.wire.b_to_a] {
            path.config_mut().delay = Duration::from_millis(20);
        }
        // For 60 ms, packets from before and after the change arrive side by side. That is more than the
        // bottleneck's rate, and the bandwidth filter keeps it for two cycles of probing (draft-ietf-ccwg-bbr
        // §5.5.6).
        flows.run(secs(9));
        let after = flows.run(secs(10));
        assert!(after.total() >= 8.5 && after.queue < Duration::from_millis(20), "{seed}: {after:?}");
    }
}

#[test]
fn bbr_finds_what_becomes_free_and_gives_back_what_is_gone() {
    let mut flows = Flows::new(bottleneck(16), 1, false);
    flows.start(Algorithm::Bbr);
    flows.run(secs(8));
    flows.pair.wire.a_to_b.config_mut().rate_bits_per_s = Some(40_000_000);
    flows.run(secs(8));
    let more = flows.run(secs(5));
    assert!(more.total() >= 34.0, "{more:?}");
    flows.pair.wire.a_to_b.config_mut().rate_bits_per_s = Some(5_000_000);
    flows.run(secs(15));
    let less = flows.run(secs(10));
    assert!(less.total() >= 4.25 && less.queue < Duration::from_millis(80), "{less:?}");
}

#[test]
fn a_loss_in_the_round_trip_after_a_loss_does_not_open_the_window() {
    // Two round trips of queue: losses are repaired while new ones happen.
    let path = bottleneck(4).delay(Duration::from_millis(50)).queue_bytes(125_000);
    let mut flows = Flows::new(path, 1, false);
    flows.start(Algorithm::Cubic);
    flows.run(secs(8));
    for _ in 0..400 {
        flows.run(Duration::from_millis(125));
        // Path and buffer hold 250,000 bytes.
        assert!(flows.cwnd(0) <= 260_000, "{} bytes at {:?}", flows.cwnd(0), flows.pair.now);
    }
}

/// When the segments with data of the first two windows were sent, relative to the first of each.
fn departures(pacing: bool) -> [Vec<Duration>; 2] {
    let path = PathConfig::with_delay(Duration::from_millis(50));
    let mut pair = Pair::new(path, 1, false, |config, _| config.tcp.set_pacing(pacing));
    pair.listen(None);
    let (address, now) = (pair.server_addr(), pair.now);
    let (id, _) = pair.client.connect(address, b"", &ConnectConfig::default(), now).unwrap();
    pair.connected(id);
    pair.keep_log = true;
    pair.client.write(id, &[7; 43_000], pair.now).unwrap();
    pair.idle(Duration::from_millis(190));
    let client = pair.log.iter().filter(|(_, end, packet)| *end == End::Client && packet.len() > 500);
    let times: Vec<_> = client.map(|(at, ..)| *at).collect();
    assert_eq!(times.len(), 30);
    let (first, second) = times.split_at(10);
    [first, second].map(|times| times.iter().map(|at| *at - times[0]).collect())
}

/// As in Linux: a short answer waits for nothing but its window. Its receiver acknowledges every second segment, so the
/// rest leaves in pairs.
#[test]
fn the_first_window_leaves_at_once_and_the_next_one_within_half_of_the_round_trip() {
    let [first, second] = departures(false);
    assert!(first.iter().chain(&second).all(Duration::is_zero), "{first:?} {second:?}");
    let [first, second] = departures(true);
    assert!(first.iter().all(Duration::is_zero), "{first:?}");
    // Twice the window in 100 ms is a pair every 5 ms. After the pause, the first pair is late by half of that.
    let last = second[19];
    assert!(last.abs_diff(Duration::from_micros(42_500)) <= Duration::from_millis(2), "{second:?}");
    let gaps: Vec<_> = second.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.iter().step_by(2).all(Duration::is_zero), "{gaps:?}");
    assert!(gaps[3..].iter().step_by(2).all(|gap| *gap >= Duration::from_millis(4)), "{gaps:?}");
}

#[test]
fn pacing_fills_the_pipe_as_well() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let mut flows = Flows::new(bottleneck(4), 1, true);
        flows.start(algorithm);
        flows.run(secs(5));
        let seen = flows.run(secs(25));
        assert!(seen.total() >= 8.5, "{algorithm}: {seen:?}");
    }
}

#[test]
fn the_timer_wheel_does_not_limit_the_rate() {
    // A segment of 1,500 bytes takes 12 µs, a tick of the wheel half a millisecond.
    let path = PathConfig::default()
        .delay(Duration::from_millis(5))
        .rate_bits_per_s(Some(1_000_000_000))
        .queue_bytes(1_250_000);
    let mut flows = Flows::with(path, 1, |tcp| {
        tcp.set_send_buffer(8 << 20);
        tcp.set_receive_buffer(8 << 20);
    });
    flows.start(Algorithm::Bbr);
    flows.run(secs(1));
    let seen = flows.run(secs(1));
    assert!(seen.total() >= 850.0, "{seen:?}");
}
