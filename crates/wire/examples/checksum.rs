//! How fast the checksum is with vectors and by words, in turn, for packets of several lengths:
//! `cargo run --profile dist -p firstflight-wire --features std --example checksum`.

use firstflight_wire::checksum::{Sum, sum, sum_by_words};
use std::hint::black_box;
use std::time::Instant;

/// Rounds, the medians of which are shown. The two take turns in each.
const ROUNDS: usize = 31;
/// Bytes of one round.
const BYTES: usize = 20_000_000;

/// Nanoseconds of one sum.
fn time(sum: impl Fn(&[u8]) -> Sum, data: &[u8]) -> f64 {
    let count = BYTES / data.len();
    let began = Instant::now();
    for _ in 0..count {
        black_box(sum(black_box(data)));
    }
    began.elapsed().as_nanos() as f64 / count as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    println!("| bytes | with vectors, ns | by words, ns | ratio |");
    println!("|---|---|---|---|");
    for len in [40, 300, 576, 1460, 8960, 65_000] {
        let data: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
        assert_eq!(sum(&data).finish(), sum_by_words(&data).finish());
        let (mut vectors, mut words): (Vec<_>, Vec<_>) =
            (0..ROUNDS).map(|_| (time(sum, &data), time(sum_by_words, &data))).unzip();
        let (vectors, words) = (median(&mut vectors), median(&mut words));
        println!("| {len} | {vectors:.1} | {words:.1} | {:.2} |", words / vectors);
    }
}
