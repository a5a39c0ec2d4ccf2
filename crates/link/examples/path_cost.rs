//! The cost of a packet through the in-memory path: `cargo run --profile dist -p firstflight-link --example
//! path_cost`.
//!
//! The reference, in the same run and in turn, is a bare queue: copy the packet into a recycled buffer, push, pop.
//! Only the ratio counts.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

use firstflight_link::path::{Path, PathConfig, PathError};
use firstflight_wire::Instant as PathInstant;

const PACKETS: u64 = 2_000_000;
const ROUNDS: usize = 7;
/// Packets in flight at a time.
const WINDOW: u64 = 64;

fn main() -> Result<(), PathError> {
    let perfect = PathConfig::with_delay(Duration::from_nanos(WINDOW * 100));
    let rate = perfect.clone().rate_bits_per_s(Some(100_000_000_000));
    let rough = rate
        .clone()
        .loss(0.01)
        .reorder(0.01)
        .reorder_delay(Duration::from_nanos(2000))
        .duplicate(0.01)
        .corrupt(0.01)
        .jitter(Duration::from_nanos(500));
    println!("ns for a packet, median of {ROUNDS} rounds, {WINDOW} packets in flight");
    for (name, config) in [("delay", perfect), ("delay, rate", rate), ("everything", rough)] {
        for length in [40, 1500] {
            let mut times: [Vec<f64>; 2] = Default::default();
            for _ in 0..ROUNDS {
                times[0].push(bare_queue(length));
                times[1].push(through(&config, length)?);
            }
            let [bare, path] = times.map(median);
            println!("{name:12} {length:5} B: {path:6.1}  bare queue {bare:6.1}  ratio {:.2}", path / bare);
        }
    }
    Ok(())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn through(config: &PathConfig, length: usize) -> Result<f64, PathError> {
    let mut path = Path::new(config.clone(), 1)?;
    let packet = vec![0x45; length];
    let start = Instant::now();
    for number in 0..PACKETS {
        let now = PathInstant::from_nanos(number * 100);
        path.send(now, black_box(&packet));
        while let Some(arrived) = path.poll_deliver(now) {
            path.recycle(black_box(arrived));
        }
    }
    Ok(start.elapsed().as_nanos() as f64 / PACKETS as f64)
}

fn bare_queue(length: usize) -> f64 {
    let packet = vec![0x45; length];
    let mut queue: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
    let mut free: Vec<Vec<u8>> = Vec::new();
    let start = Instant::now();
    for number in 0..PACKETS {
        let mut buffer = free.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(black_box(&packet));
        queue.push_back((number + WINDOW, buffer));
        while let Some((_, arrived)) = queue.pop_front_if(|(at, _)| *at <= number) {
            free.push(black_box(arrived));
        }
    }
    start.elapsed().as_nanos() as f64 / PACKETS as f64
}
