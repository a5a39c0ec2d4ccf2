use std::net::IpAddr;
use std::time::Duration;

use firstflight_wire::{Instant, ip};
use proptest::prelude::*;

use super::*;

mod chance;

const MS: u64 = 1_000_000;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Takes all packets out, in order, each with its time of arrival.
fn drain(path: &mut Path) -> Vec<(u64, Vec<u8>)> {
    let mut trace = Vec::new();
    while let Some(arrival) = path.next_arrival() {
        let packet = path.poll_deliver(arrival).unwrap();
        trace.push((arrival.as_nanos(), packet));
    }
    trace
}

/// Sends `count` packets that carry their number, one each `gap` ns.
fn send_numbered(path: &mut Path, count: u32, gap: u64) {
    for number in 0..count {
        path.send(at(u64::from(number) * gap), &number.to_be_bytes());
    }
}

fn number_of(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet.try_into().unwrap())
}

fn rough() -> PathConfig {
    PathConfig {
        delay: Duration::from_millis(20),
        jitter: Duration::from_millis(3),
        rate_bits_per_s: Some(10_000_000),
        queue_bytes: 200,
        loss: 0.1,
        loss_burst: 2.0,
        corrupt_bits: 8,
        reorder: 0.1,
        reorder_delay: Duration::from_millis(5),
        duplicate: 0.1,
        corrupt: 0.1,
        mtu: 1500,
        fragments: false,
    }
}

#[test]
fn default_is_a_perfect_wire() {
    let mut path = Path::new(PathConfig::default(), 1).unwrap();
    assert_eq!(path.next_arrival(), None);
    path.send(at(7), b"one");
    path.send(at(7), b"two");
    assert_eq!(path.next_arrival(), Some(at(7)));
    assert_eq!(path.poll_deliver(at(6)), None);
    assert_eq!(path.poll_deliver(at(7)).unwrap(), b"one");
    assert_eq!(path.poll_deliver(at(7)).unwrap(), b"two");
    assert_eq!(path.poll_deliver(at(7)), None);
    let counters = path.counters();
    assert_eq!((counters.sent, counters.delivered), (2, 2));
}

#[test]
fn same_seed_same_trace_other_seed_other_trace() {
    let run = |seed| {
        let mut path = Path::new(rough(), seed).unwrap();
        send_numbered(&mut path, 2000, MS / 20);
        (drain(&mut path), path.counters())
    };
    assert_eq!(run(42), run(42));
    assert_ne!(run(42), run(43));
}

#[test]
fn both_directions_have_their_own_chance() {
    let mut duplex = Duplex::symmetric(rough(), 5).unwrap();
    send_numbered(&mut duplex.a_to_b, 500, MS);
    send_numbered(&mut duplex.b_to_a, 500, MS);
    let first = duplex.next_arrival().unwrap();
    assert_eq!(Some(first), duplex.a_to_b.next_arrival().min(duplex.b_to_a.next_arrival()));
    assert_ne!(drain(&mut duplex.a_to_b), drain(&mut duplex.b_to_a));
    assert_eq!(duplex.next_arrival(), None);
}

/// Switching one impairment on while the path runs does not change what the others decide.
#[test]
fn impairments_draw_independently_of_each_other() {
    let lost = |corrupt_from: u32| {
        let config = PathConfig { loss: 0.3, ..PathConfig::default() };
        let mut path = Path::new(config, 9).unwrap();
        let mut lost = Vec::new();
        for number in 0..1000u32 {
            if number == corrupt_from {
                let config = path.config_mut();
                config.corrupt = 0.5;
                config.jitter = Duration::from_millis(1);
            }
            let before = path.counters().lost;
            path.send(at(u64::from(number)), b"packet");
            lost.push(path.counters().lost > before);
        }
        lost
    };
    assert_eq!(lost(0), lost(1000));
    assert_eq!(lost(500), lost(1000));
}

/// A stretch without impairments makes no draws, and the packets after it still have the fates that they
/// would have had.
#[test]
fn perfect_stretch_does_not_shift_later_draws() {
    let lost = |perfect: std::ops::Range<u32>| {
        let mut path = Path::new(PathConfig::default(), 3).unwrap();
        let mut lost = Vec::new();
        for number in 0..600u32 {
            path.config_mut().loss = if perfect.contains(&number) { 0.0 } else { 0.4 };
            let before = path.counters().lost;
            path.send(at(0), b"packet");
            lost.push(path.counters().lost > before);
        }
        lost
    };
    let (with, without) = (lost(100..300), lost(0..0));
    assert!(with[100..300].iter().all(|lost| !lost));
    assert_eq!(with[300..], without[300..]);
    assert_eq!(with[..100], without[..100]);
}

#[test]
fn rate_spaces_packets_exactly() {
    // At 3 Gbit/s, 100 bytes take 266 2/3 ns. The thirds must not get lost.
    let config = PathConfig {
        delay: Duration::from_millis(1),
        rate_bits_per_s: Some(3_000_000_000),
        ..PathConfig::default()
    };
    let mut path = Path::new(config, 1).unwrap();
    for _ in 0..3 {
        path.send(at(1000), &[0; 100]);
    }
    path.send(at(5000), &[0; 100]);
    let arrivals: Vec<u64> = drain(&mut path).iter().map(|(at, _)| at - MS).collect();
    assert_eq!(arrivals, [1266, 1533, 1800, 5266]);
}

#[test]
fn full_queue_drops_the_tail() {
    // 8 Mbit/s: one byte each microsecond. One packet is being sent, two may wait.
    let config = PathConfig { rate_bits_per_s: Some(8_000_000), queue_bytes: 200, ..PathConfig::default() };
    let mut path = Path::new(config, 1).unwrap();
    for _ in 0..5 {
        path.send(at(0), &[0; 100]);
    }
    assert_eq!(path.counters().queue_dropped, 2);
    // At 99.999 µs both still wait. At 100 µs the second begins and makes room for exactly one.
    path.send(at(99_999), &[0; 100]);
    assert_eq!(path.counters().queue_dropped, 3);
    path.send(at(100_000), &[0; 100]);
    path.send(at(100_000), &[0; 100]);
    assert_eq!(path.counters().queue_dropped, 4);
    let arrivals: Vec<u64> = drain(&mut path).into_iter().map(|(at, _)| at).collect();
    assert_eq!(arrivals, [100_000, 200_000, 300_000, 400_000]);
}

#[test]
fn the_queue_says_how_long_it_takes() {
    let config = PathConfig { rate_bits_per_s: Some(8_000_000), ..PathConfig::default() };
    let mut path = Path::new(config, 1).unwrap();
    assert_eq!(path.queueing_delay(at(5)), Duration::ZERO);
    path.send(at(0), &[0; 100]);
    path.send(at(0), &[0; 100]);
    assert_eq!(path.queueing_delay(at(0)), Duration::from_micros(200));
    assert_eq!(path.queueing_delay(at(150_000)), Duration::from_micros(50));
    assert_eq!(path.queueing_delay(at(MS)), Duration::ZERO);
}

#[test]
fn idle_bottleneck_takes_a_packet_without_any_queue() {
    let config = PathConfig { rate_bits_per_s: Some(8_000_000), queue_bytes: 0, ..PathConfig::default() };
    let mut path = Path::new(config, 1).unwrap();
    path.send(at(0), &[0; 100]);
    path.send(at(0), &[0; 100]);
    path.send(at(100_000), &[0; 100]);
    assert_eq!(path.counters().queue_dropped, 1);
    assert_eq!(drain(&mut path).len(), 2);
}

#[test]
fn mtu_is_the_largest_packet_carried() {
    let config = PathConfig { mtu: 100, ..PathConfig::default() };
    let mut path = Path::new(config, 1).unwrap();
    path.send(at(0), &[1; 100]);
    path.send(at(0), &[2; 101]);
    assert_eq!(path.counters().too_big, 1);
    assert_eq!(drain(&mut path), [(0, vec![1; 100])]);
    path.config_mut().mtu = 101;
    path.send(at(1), &[2; 101]);
    assert_eq!(drain(&mut path), [(1, vec![2; 101])]);
}

#[test]
fn a_path_that_fragments_carries_larger_packets() {
    for ip in ["10.0.0.1", "fd00::1"].map(|ip| ip.parse::<IpAddr>().unwrap()) {
        let payload: Vec<u8> = (0..400u16).map(|n| n as u8).collect();
        let header = ip::Header {
            src: ip,
            dst: ip,
            protocol: ip::Protocol::Tcp,
            hop_limit: 9,
            ecn: ip::Ecn::Ce,
            dont_fragment: true,
            identification: 0,
        };
        let mut packet = vec![0; header.len()];
        header.emit(payload.len(), &mut packet).unwrap();
        packet.extend(&payload);
        let config = PathConfig { mtu: 100, fragments: true, ..PathConfig::default() };
        let mut path = Path::new(config, 1).unwrap();
        path.send(at(0), &packet);
        path.send(at(0), &[0; 101]);
        let counters = path.counters();
        let arrived = drain(&mut path);
        assert_eq!((counters.sent, counters.too_big), (2, 1));
        assert_eq!(counters.fragments, arrived.len() as u64 - 1);
        let mut found = vec![0; 400];
        for (index, (_, fragment)) in arrived.iter().enumerate() {
            assert!(fragment.len() <= 100);
            let part = ip::Fragment::parse(fragment).unwrap();
            assert_eq!((part.next, part.hop_limit, part.ecn), (ip::Protocol::Tcp, 9, ip::Ecn::Ce));
            assert_eq!((part.identification, part.more), (0, index + 1 < arrived.len()));
            found[usize::from(part.offset)..part.end()].copy_from_slice(part.payload);
        }
        assert_eq!(found, payload);
        assert_eq!(fragment(&packet, 27, 0), None);
        assert_eq!(fragment(&packet[..10], 100, 0), None);
    }
}

#[test]
fn filter_alters_and_drops() {
    let mut path = Path::new(PathConfig::default(), 1).unwrap();
    path.set_filter(Box::new(|packet| {
        packet.push(b'!');
        if packet.starts_with(b"bad") { FilterVerdict::Drop } else { FilterVerdict::Forward }
    }));
    path.send(at(0), b"bad");
    path.send(at(0), b"good");
    path.clear_filter();
    path.send(at(0), b"bad");
    let packets: Vec<_> = drain(&mut path).into_iter().map(|(_, p)| p).collect();
    assert_eq!(packets, [b"good!".to_vec(), b"bad".to_vec()]);
    assert_eq!(path.counters().filtered, 1);
}

#[test]
fn shorter_delay_lets_later_packets_overtake() {
    let mut path = Path::new(PathConfig::with_delay(Duration::from_millis(50)), 1).unwrap();
    path.send(at(0), b"old route");
    path.config_mut().delay = Duration::from_millis(10);
    path.send(at(1), b"new route");
    let packets: Vec<_> = drain(&mut path).into_iter().map(|(_, p)| p).collect();
    assert_eq!(packets, [b"new route".to_vec(), b"old route".to_vec()]);
}

#[test]
fn buffers_are_reused() {
    let mut path = Path::new(PathConfig::default(), 1).unwrap();
    path.send(at(0), &[1; 1000]);
    let first = path.poll_deliver(at(0)).unwrap();
    let memory = first.as_ptr();
    path.recycle(first);
    path.send(at(0), &[2; 500]);
    let second = path.poll_deliver(at(0)).unwrap();
    assert_eq!(second, [2; 500]);
    assert_eq!(second.as_ptr(), memory);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let refused = |change: fn(&mut PathConfig)| {
        let mut config = PathConfig::default();
        change(&mut config);
        Path::new(config, 1).unwrap_err()
    };
    let error = refused(|c| c.loss = 1.5);
    let expected = PathError::NotAProbability { name: Probability::Loss, value: 1.5 };
    assert_eq!(error, expected);
    assert!(matches!(
        refused(|c| c.corrupt = f64::NAN),
        PathError::NotAProbability { name: Probability::Corrupt, .. }
    ));
    assert_eq!(refused(|c| c.rate_bits_per_s = Some(0)), PathError::ZeroRate);
    assert_eq!(refused(|c| c.mtu = 0), PathError::ZeroMtu);
    assert_eq!(refused(|c| c.loss_burst = 0.5), PathError::NotABurst { packets: 0.5 });
    assert!(matches!(refused(|c| c.loss_burst = f64::NAN), PathError::NotABurst { .. }));
    assert_eq!(refused(|c| c.corrupt_bits = 9), PathError::FlipsOutOfRange { bits: 9 });
    assert_eq!(refused(|c| c.corrupt_bits = 0), PathError::FlipsOutOfRange { bits: 0 });
    assert!(matches!(refused(|c| c.reorder_delay = Duration::MAX), PathError::DelayTooLong { .. }));
}

/// Settings that are changed while the path runs are not validated. Whatever they are, the path continues.
#[test]
fn senseless_settings_in_mid_run_are_tamed() {
    let mut path = Path::new(PathConfig::default(), 1).unwrap();
    *path.config_mut() = PathConfig {
        delay: Duration::MAX,
        jitter: Duration::MAX,
        rate_bits_per_s: Some(0),
        loss: f64::NAN,
        loss_burst: f64::NEG_INFINITY,
        corrupt_bits: 0,
        duplicate: 7.0,
        reorder: f64::INFINITY,
        reorder_delay: Duration::MAX,
        corrupt: -1.0,
        ..PathConfig::default()
    };
    path.send(at(u64::MAX - 1), b"packet");
    path.send(at(u64::MAX - 1), b"packet");
    assert_eq!(path.counters().duplicated, 2);
    assert_eq!(drain(&mut path).len(), 4);
}

prop_compose! {
    fn any_config()(
        delay in 0u64..5_000_000, jitter in 0u64..2_000_000, rate in proptest::option::of(1_000u64..10_000_000_000),
        queue_bytes in 0usize..5_000, loss in 0.0..=1.0, reorder in 0.0..=1.0, reorder_delay in 0u64..5_000_000,
        duplicate in 0.0..=1.0, corrupt in 0.0..=1.0, mtu in 1usize..2000, loss_burst in 1.0..20.0,
        corrupt_bits in 1u8..=8,
    ) -> PathConfig {
        PathConfig {
            delay: Duration::from_nanos(delay), jitter: Duration::from_nanos(jitter), rate_bits_per_s: rate,
            queue_bytes, loss, loss_burst, reorder, reorder_delay: Duration::from_nanos(reorder_delay), duplicate,
            corrupt, corrupt_bits, mtu, fragments: false,
        }
    }
}

proptest! {
    /// No packet appears from nowhere or vanishes uncounted, nothing arrives early, arrivals never go back in time.
    #[test]
    fn packets_are_conserved(
        config in any_config(),
        seed: u64,
        steps in proptest::collection::vec((0u64..1_000_000, 0usize..2100, any::<bool>()), 1..200),
    ) {
        let earliest = config.delay;
        let mut path = Path::new(config, seed).unwrap();
        let (mut now, mut last) = (Instant::ZERO, Instant::ZERO);
        let mut taken = 0u64;
        for (gap, length, take) in steps {
            now += Duration::from_nanos(gap);
            path.send(now, &vec![0; length]);
            while take && path.next_arrival().is_some_and(|next| next <= now) {
                let next = path.next_arrival().unwrap();
                prop_assert!(next >= last && next >= Instant::ZERO + earliest);
                last = next;
                path.poll_deliver(now).unwrap();
                taken += 1;
            }
            if take {
                prop_assert!(path.poll_deliver(now).is_none());
            }
            let c = path.counters();
            let out = c.delivered + c.lost + c.queue_dropped + c.too_big + c.filtered;
            prop_assert_eq!(c.sent + c.duplicated, out + path.in_flight() as u64);
            prop_assert_eq!(c.delivered, taken);
        }
    }
}
