//! Slow start on paths with a bottleneck.

use crate::pair::{End, Pair};
use firstflight_link::path::{Counters, PathConfig};
use firstflight_tcp::congestion::Algorithm;
use std::time::Duration;

/// The cost of a download: virtual time from the SYN to the last byte, and what the path did to the server's
/// packets.
struct Download {
    took: Duration,
    path: Counters,
    resent: u64,
}

/// Downloads `bytes` from the server over `path`.
fn download(
    path: &PathConfig,
    seed: u64,
    bytes: usize,
    tune: impl Fn(&mut firstflight_tcp::Config),
) -> Download {
    let mut pair = Pair::new(path.clone(), seed, false, |config, _: End| tune(&mut config.tcp));
    let listener = pair.listen(None);
    let client = pair.connect(b"request", false);
    let server = pair.accept(listener);
    let (mut written, mut read) = (0, 0);
    let block = vec![7; 65_536];
    let mut out = vec![0; 65_536];
    let limit = Duration::from_secs(600);
    pair.run(limit, |pair| {
        let now = pair.now;
        while written < bytes {
            let n = pair.server.write(server, &block[..block.len().min(bytes - written)], now).unwrap_or(0);
            written += n;
            if n == 0 {
                break;
            }
        }
        while let Ok(n) = pair.client.read(client, &mut out, now) {
            read += n;
            if n == 0 {
                break;
            }
        }
        read == bytes
    });
    Download {
        took: pair.now - firstflight_wire::Instant::ZERO,
        path: pair.wire.b_to_a.counters(),
        resent: pair.server.info(server).unwrap().totals.retransmits.into(),
    }
}

fn bottleneck(mbit: u64, rtt_ms: u64, queue: usize) -> PathConfig {
    PathConfig::with_delay(Duration::from_micros(rtt_ms * 500))
        .rate_bits_per_s(Some(mbit * 1_000_000))
        .queue_bytes(queue)
}

/// The queue is as long as the path, so slow start loses every second segment of hundreds. The receiver keeps all
/// that arrives, so only dropped segments are sent again.
#[test]
fn what_a_queue_dropped_goes_again_and_nothing_else() {
    for (mbit, rtt) in [(20, 100), (100, 20), (10, 200)] {
        let path = bottleneck(mbit, rtt, (mbit * 125 * rtt) as usize);
        let d = download(&path, 1, 5_000_000, |_| {});
        assert!(d.path.queue_dropped > 200, "{} dropped", d.path.queue_dropped);
        assert_eq!(d.resent, d.path.queue_dropped, "{mbit} Mbit/s, {rtt} ms, {:?}", d.took);
    }
}

/// HyStart++ (RFC 9406) notices a queue of two bandwidth-delay products before it is full; NewReno does not check.
/// With HyStart++ nothing is lost, so nothing is sent again, and the download takes no longer.
//= rfc9438 4.10-b test
#[test]
fn cubic_slows_down_when_round_trips_take_longer() {
    for (mbit, rtt) in [(20, 50), (10, 100), (50, 100), (10, 300)] {
        let product = (mbit * 125 * rtt) as usize;
        let path = bottleneck(mbit, rtt, 2 * product);
        let with = |algorithm| download(&path, 1, 15 * product, |config| config.set_congestion(algorithm));
        let (reno, cubic) = (with(Algorithm::NewReno), with(Algorithm::Cubic));
        let (lost, before) = (cubic.path.queue_dropped, reno.path.queue_dropped);
        assert!(2 * lost < before, "{mbit} Mbit/s, {rtt} ms: {lost}, not {before}");
        assert!(cubic.took < reno.took.mul_f64(1.01), "{mbit} Mbit/s, {rtt} ms: {:?}", cubic.took);
    }
}

/// 3.75 MB are in flight on this path. The buffers start with 1 MiB and grow with the window. Without a limit of 8
/// MiB, the download takes as long.
#[test]
fn buffers_grow_as_long_as_the_path_takes_more() {
    let path = bottleneck(100, 300, 3_750_000);
    let grown = download(&path, 1, 10_000_000, |_| {});
    let small = download(&path, 1, 10_000_000, |config| config.set_send_buffer(1 << 20));
    let narrow = download(&path, 1, 10_000_000, |config| config.set_receive_buffer(1 << 20));
    // Eight round trips of slow start from 10 segments, three before it, and what is left at the path's rate.
    assert!(grown.took < Duration::from_secs(4), "{:?}", grown.took);
    for limited in [small, narrow] {
        assert!(
            limited.took > grown.took + Duration::from_secs(1),
            "{:?}, not {:?}",
            limited.took,
            grown.took
        );
    }
}
