//! How late packets of a real-time pair arrive: `cargo run --profile dist -p firstflight-link --example path_accuracy`.
//!
//! Measured on a 2-core virtual machine (AMD EPYC, 2.6 GHz, Linux 6.18), in microseconds after the exact time
//! (the wake-up of a tokio runtime on another thread included):
//!
//! | packets | median | 90 % | 99 % |
//! |---|---|---|---|
//! | 50 ms path, one at a time | 26 | 32 | 76 |
//! | 5 ms path, one at a time | 16 | 23 | 69 |
//! | 5 ms path, one each ms | 7 | 10 | 46 |
//! | 5 ms path, one each 100 µs | 4 | 7 | 42 |

use std::future::poll_fn;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use firstflight_link::path::PathConfig;
use firstflight_link::{Link, MemoryLink, real_time_pair};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    println!("lateness in µs, the wake-up of a tokio runtime on another thread included");
    report("50 ms, one at a time", Duration::from_millis(50), 50, None)?;
    report("5 ms, one at a time", Duration::from_millis(5), 400, None)?;
    report("5 ms, one each ms", Duration::from_millis(5), 1000, Some(Duration::from_millis(1)))?;
    report("5 ms, one each 100 µs", Duration::from_millis(5), 10_000, Some(Duration::from_micros(100)))
}

/// Sends `count` packets, each `gap` or each when the last has arrived, and prints how late they were.
fn report(what: &str, delay: Duration, count: usize, gap: Option<Duration>) -> Result<(), Failure> {
    let config = PathConfig::with_delay(delay);
    let (mut near, far) = real_time_pair(config.clone(), config, 1)?;
    let origin = Instant::now();
    let (ready, arrived) = std::sync::mpsc::channel();
    let receiver = std::thread::spawn(move || receive(far, origin, delay, count, &ready));
    for _ in 0..count {
        let mut cx = Context::from_waker(Waker::noop());
        let now = u64::try_from(origin.elapsed().as_nanos())?;
        let _ = near.poll_send(&mut cx, &now.to_be_bytes());
        match gap {
            Some(gap) => {
                let next = origin + Duration::from_nanos(now) + gap;
                while Instant::now() < next {
                    std::thread::sleep(next.saturating_duration_since(Instant::now()));
                }
            }
            None => arrived.recv()?,
        }
    }
    let mut late = receiver.join().map_err(|_| "the receiver failed")??;
    late.sort_unstable();
    let at = |percent: usize| late.get(late.len() * percent / 100).map_or(0, |late| late / 1000);
    println!("{what:24} median {:4}  90 % {:4}  99 % {:4}", at(50), at(90), at(99));
    Ok(())
}

/// Receives on a tokio runtime, as applications do. Returns the lateness of each packet in ns.
fn receive(
    mut link: MemoryLink,
    origin: Instant,
    delay: Duration,
    count: usize,
    arrived: &std::sync::mpsc::Sender<()>,
) -> Result<Vec<u64>, std::io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let mut buf = vec![0; link.mtu()];
        let mut late = Vec::with_capacity(count);
        while late.len() < count {
            poll_fn(|cx| link.poll_recv(cx, &mut buf)).await?;
            let mut sent = [0; 8];
            sent.copy_from_slice(&buf[..8]);
            let due = Duration::from_nanos(u64::from_be_bytes(sent)) + delay;
            late.push(origin.elapsed().saturating_sub(due).as_nanos() as u64);
            let _ = arrived.send(());
        }
        Ok(late)
    })
}
