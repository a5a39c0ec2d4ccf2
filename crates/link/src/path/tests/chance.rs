//! Tests of the random impairments: loss, reordering, jitter, duplication, corruption.

use super::*;

/// Checks that `hits` of `trials` is within five standard deviations of probability `p`.
fn assert_binomial(hits: u64, trials: u64, p: f64) {
    let mean = trials as f64 * p;
    let deviation = (mean * (1.0 - p)).sqrt();
    let off = (hits as f64 - mean).abs();
    assert!(off <= 5.0 * deviation, "{hits} of {trials}, expected {mean} ± {deviation}");
}

#[test]
fn loss_is_binomial() {
    for p in [0.01, 0.3, 0.9] {
        let config = PathConfig { loss: p, ..PathConfig::default() };
        let mut path = Path::new(config, 77).unwrap();
        send_numbered(&mut path, 20_000, 1);
        assert_binomial(path.counters().lost, 20_000, p);
        let delivered = drain(&mut path).len() as u64;
        assert_eq!(delivered + path.counters().lost, 20_000);
    }
}

/// Which of `count` packets are lost.
fn losses(config: PathConfig, seed: u64, count: u32) -> Vec<bool> {
    let mut path = Path::new(config, seed).unwrap();
    (0..count)
        .map(|number| {
            let before = path.counters().lost;
            path.send(at(u64::from(number)), b"packet");
            path.counters().lost > before
        })
        .collect()
}

#[test]
fn bursts_have_their_mean_length_and_keep_the_share() {
    for (loss, burst) in [(0.01, 5.0), (0.05, 3.0), (0.3, 8.0)] {
        let lost = losses(PathConfig { loss, loss_burst: burst, ..PathConfig::default() }, 6, 400_000);
        let total = lost.iter().filter(|lost| **lost).count() as f64;
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        // Bursts are independent of each other, and their lengths are geometric. Allow five standard
        // deviations of both.
        let length_error = 5.0 * (burst * (burst - 1.0) / bursts).sqrt();
        assert!((total / bursts - burst).abs() < length_error, "{total} in {bursts}, not of {burst}");
        let share_error =
            5.0 * loss * ((2.0 * burst - 1.0) / (bursts * burst)).sqrt().max(1.5 / bursts.sqrt());
        assert!((total / 400_000.0 - loss).abs() < share_error, "{total} of 400,000, not {loss}");
    }
}

#[test]
fn runs_as_long_as_chance_makes_them_are_no_bursts() {
    let with = |loss, loss_burst| losses(PathConfig { loss, loss_burst, ..PathConfig::default() }, 5, 3000);
    assert_eq!(with(0.5, 1.9), with(0.5, 1.0));
    assert_ne!(with(0.5, 2.5), with(0.5, 1.0));
    assert!(with(1.0, 100.0).iter().all(|lost| *lost));
    assert!(with(0.0, 100.0).iter().all(|lost| !lost));
}

/// Packets that a full queue or their size removes do not move the bursts to other packets.
#[test]
fn bursts_hit_the_same_packets_whatever_else_is_dropped() {
    let config = PathConfig { loss: 0.2, loss_burst: 4.0, mtu: 100, ..PathConfig::default() };
    let all = losses(config.clone(), 4, 2000);
    let mut path = Path::new(config, 4).unwrap();
    for (number, lost) in all.iter().enumerate() {
        if number == 1500 {
            // Applying the settings again continues the chain where it was.
            path.config_mut().reorder = 0.5;
        }
        let before = path.counters().lost;
        let large = number % 3 == 0 || (1490..1510).contains(&number);
        path.send(at(0), &[0; 200][..if large { 200 } else { 50 }]);
        assert_eq!(path.counters().lost > before, *lost && !large, "{number}");
    }
}

#[test]
fn certain_loss_and_certain_arrival() {
    for (p, arrive) in [(0.0, 1000), (1.0, 0)] {
        // A jitter makes the path draw for every packet.
        let config = PathConfig { loss: p, jitter: Duration::from_nanos(1), ..PathConfig::default() };
        let mut path = Path::new(config, 1).unwrap();
        send_numbered(&mut path, 1000, 1);
        assert_eq!(drain(&mut path).len(), arrive);
    }
}

#[test]
fn reordering_reorders_exactly_the_packets_held_back() {
    let config = PathConfig {
        delay: Duration::from_millis(10),
        reorder: 0.1,
        reorder_delay: Duration::from_micros(2500),
        ..PathConfig::default()
    };
    let mut path = Path::new(config, 8).unwrap();
    send_numbered(&mut path, 5000, MS);
    let trace = drain(&mut path);
    let held: Vec<u32> = trace
        .iter()
        .filter(|(at, packet)| at - u64::from(number_of(packet)) * MS > 10 * MS)
        .map(|(_, packet)| number_of(packet))
        .collect();
    assert_eq!(held.len() as u64, path.counters().reordered);
    assert_binomial(path.counters().reordered, 5000, 0.1);
    // A packet held back by 2.5 gaps is overtaken by the two that follow, unless they are held back too.
    let order: Vec<u32> = trace.iter().map(|(_, packet)| number_of(packet)).collect();
    for (place, number) in order.iter().enumerate() {
        let overtaken = order[..place].iter().any(|earlier| earlier > number);
        let overtaker = [number + 1, number + 2].iter().any(|next| *next < 5000 && !held.contains(next));
        assert_eq!(overtaken, held.contains(number) && overtaker, "{number}");
    }
}

#[test]
fn jitter_varies_the_delay_within_bounds_and_keeps_order() {
    let config = PathConfig {
        delay: Duration::from_millis(10),
        jitter: Duration::from_millis(4),
        ..PathConfig::default()
    };
    let mut path = Path::new(config, 6).unwrap();
    send_numbered(&mut path, 5000, MS);
    let trace = drain(&mut path);
    let mut extras = Vec::new();
    for (index, (arrival, packet)) in trace.iter().enumerate() {
        assert_eq!(number_of(packet) as usize, index);
        extras.push(arrival - index as u64 * MS - 10 * MS);
    }
    assert!(extras.iter().all(|extra| *extra <= 4 * MS));
    assert!(extras.iter().any(|extra| *extra < MS));
    assert!(extras.iter().any(|extra| *extra > 3 * MS));
}

#[test]
fn duplicates_are_equal_and_counted() {
    let config = PathConfig { duplicate: 0.2, ..PathConfig::default() };
    let mut path = Path::new(config, 4).unwrap();
    send_numbered(&mut path, 5000, 1);
    let mut copies = vec![0u64; 5000];
    for (_, packet) in drain(&mut path) {
        copies[number_of(&packet) as usize] += 1;
    }
    assert!(copies.iter().all(|n| (1..=2).contains(n)));
    let doubled = copies.iter().filter(|n| **n == 2).count() as u64;
    assert_eq!(doubled, path.counters().duplicated);
    assert_binomial(doubled, 5000, 0.2);
}

#[test]
fn corruption_changes_bits_but_not_the_length() {
    let config = PathConfig { corrupt: 1.0, ..PathConfig::default() };
    let mut path = Path::new(config, 12).unwrap();
    let mut places = [false; 64];
    let mut flips_seen = [false; 9];
    for _ in 0..2000 {
        path.send(at(0), &[0x5a; 64]);
        let packet = path.poll_deliver(at(0)).unwrap();
        assert_eq!(packet.len(), 64);
        let flips: u32 = packet.iter().map(|byte| (byte ^ 0x5a).count_ones()).sum();
        assert!((1..=8).contains(&flips), "{flips} bits flipped");
        flips_seen[flips as usize] = true;
        for (place, byte) in packet.iter().enumerate() {
            places[place] |= *byte != 0x5a;
        }
        path.recycle(packet);
    }
    assert_eq!(path.counters().corrupted, 2000);
    assert!(places.iter().all(|hit| *hit), "some bytes are never corrupted");
    assert!(flips_seen[1..].iter().all(|seen| *seen));
}

#[test]
fn a_single_bit_is_flipped_if_no_more_may_be() {
    let config = PathConfig { corrupt: 1.0, corrupt_bits: 1, ..PathConfig::default() };
    let mut path = Path::new(config, 12).unwrap();
    for _ in 0..100 {
        path.send(at(0), &[0; 64]);
        let packet = path.poll_deliver(at(0)).unwrap();
        assert_eq!(packet.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    }
}

#[test]
fn empty_packet_cannot_be_corrupted() {
    let config = PathConfig { corrupt: 1.0, ..PathConfig::default() };
    let mut path = Path::new(config, 12).unwrap();
    path.send(at(0), b"");
    assert_eq!(path.poll_deliver(at(0)).unwrap(), b"");
    assert_eq!(path.counters().corrupted, 0);
}
