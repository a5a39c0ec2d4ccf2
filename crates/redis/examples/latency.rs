//! How long a question to a store takes, and how many it answers:
//!
//!     cargo run --profile dist -p firstflight-redis --example latency -- URL [OPEN] [COUNT]
//!
//! asks COUNT questions (100,000), OPEN at a time (1), with ids that are new, and prints the times and the share that was
//! accepted. The login is in the file that FIRSTFLIGHT_STORE_LOGIN names, the authorities in that of FIRSTFLIGHT_STORE_CA.
#![allow(clippy::print_stdout, reason = "prints a table")]

use firstflight::SharedStore;
use firstflight::credential::{JobRequest, JobResult};
use firstflight_redis::{Access, Options, RedisStore};
use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

fn question() -> Result<JobRequest, getrandom::Error> {
    let key = (u128::from(getrandom::u64()?) << 64 | u128::from(getrandom::u64()?)).to_be_bytes();
    // Without a floor, which would refuse everything at the start.
    Ok(JobRequest::GuardSet { key, keep_ms: 10_000, ahead_ms: 0, reach_ms: 0, unix_ms: None, checked: true })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let url = arguments.next().ok_or("the first argument is the address of a store")?;
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse::<usize>());
    let (open, count) = (number(1)?, number(100_000)?);
    let file = |name| env::var_os(name).map(Into::into);
    let (login, authorities) = (file("FIRSTFLIGHT_STORE_LOGIN"), file("FIRSTFLIGHT_STORE_CA"));
    let access = Access { login, authorities, certificate: None };
    let prefix = format!("firstflight-latency-{:016x}", getrandom::u64()?);
    let options = Options { prefix, within: Duration::from_secs(1), access, ..Options::default() };
    let store = Arc::new(RedisStore::connect(&url, options).await?);

    let (next, began) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let mut asking = JoinSet::new();
    for _ in 0..open.max(1) {
        let (store, next) = (Arc::clone(&store), Arc::clone(&next));
        asking.spawn(async move {
            let mut times = Vec::new();
            let mut accepted = 0;
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let Ok(question) = question() else { break };
                let asked = Instant::now();
                accepted += usize::from(store.ask(question).await == Ok(JobResult::Accept));
                times.push(asked.elapsed());
            }
            (times, accepted)
        });
    }
    let (mut times, mut accepted) = (Vec::new(), 0);
    while let Some(asked) = asking.join_next().await {
        let (more, accepts) = asked?;
        times.extend(more);
        accepted += accepts;
    }
    let seconds = began.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 1000).copied().unwrap_or_default().as_micros();
    println!("| open | questions/s | accepted | p50, µs | p99, µs | p99.9, µs |\n|---|---|---|---|---|---|");
    let rate = times.len() as f64 / seconds;
    println!(
        "| {open} | {rate:.0} | {accepted} of {} | {} | {} | {} |",
        times.len(),
        at(500),
        at(990),
        at(999)
    );
    Ok(())
}
