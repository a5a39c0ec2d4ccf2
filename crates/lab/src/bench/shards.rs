//! `bench shards`: connections through endpoints with one shard and with two, in turn. Each shard of the client and the
//! shard of the server with the same number are on one pinned thread, joined by a link in memory.

use super::ours::{CLIENT, SERVICE};
use super::sockets::lane::Lane;
use super::sockets::{answer, ask, wrong};
use super::{BenchError, IN_FLIGHT, REQUEST, Rounds, progress};
use crate::figure::Figure;
use crate::table::{Cell, Column, Report, Table};
use firstflight::{
    Config, ConnectConfig, Endpoint, FirstFlight, ListenConfig, Sharding, Workers, link::Link,
};
use firstflight_credential::{CookieKey, FastOpenPolicy, KeyRing, PendingLimit, Scheme};
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// The numbers of shards that are compared.
const SHARDS: [usize; 2] = [1, 2];

/// A count that shares its cache line with no other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// A client and a server with some shards each.
struct Pair {
    workers: Workers,
    client: Endpoint,
    server: Endpoint,
    /// Connections closed, by shard.
    done: Arc<Vec<Count>>,
}

/// A link that is handed over once.
fn once(lane: Lane) -> impl FnMut() -> io::Result<Lane> + Send + 'static {
    let mut lane = Some(lane);
    move || lane.take().ok_or_else(|| io::ErrorKind::NotConnected.into())
}

impl Pair {
    fn new(shards: usize) -> Result<Self, BenchError> {
        let workers = Workers::start(shards).map_err(wrong)?;
        let (here, there): (Vec<_>, Vec<_>) = (0..shards).map(|_| Lane::pair()).unzip();
        debug_assert!(here.iter().all(|lane| lane.mtu() >= 1280));
        // With one secret both ends compute the same owner of a flow, so that a packet comes to the right queue, as from a
        // network card that distributes flows.
        let start = |address, lanes: Vec<Lane>| {
            let config = Config::new(vec![address], [5; 32]);
            Endpoint::sharded(&config, &Sharding::new(&workers), lanes.into_iter().map(once).collect())
        };
        let client = start(CLIENT, here).map_err(wrong)?;
        let server = start(SERVICE.ip(), there).map_err(wrong)?;
        let keys = KeyRing::new(Scheme::Linux, CookieKey::from_bytes([7; 16]));
        let policy =
            FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::with_clients(1024, u32::MAX)));
        let config = ListenConfig::new(SERVICE).fast_open(Some(policy));
        let listener = server.listen(config).map_err(|error| BenchError::refused("our listen", error))?;
        for (index, listener) in listener.split().into_iter().enumerate() {
            let listener = Arc::new(listener);
            for _ in 0..IN_FLIGHT {
                let listener = Arc::clone(&listener);
                workers.spawn(index, async move {
                    while let Ok(stream) = listener.accept().await {
                        // The client sees what went wrong.
                        let _ = answer(stream).await;
                    }
                });
            }
        }
        let done = Arc::new((0..shards).map(|_| Count::default()).collect());
        Ok(Self { workers, client, server, done })
    }

    fn closed(&self) -> u64 {
        self.done.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }

    /// Connections a second, during `time`. The threads are idle before and afterwards.
    fn round(&self, outside: &Runtime, time: Duration) -> Result<f64, BenchError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for shard in 0..self.workers.count() {
            for _ in 0..IN_FLIGHT {
                let (client, done, stop) = (self.client.clone(), Arc::clone(&self.done), Arc::clone(&stop));
                tasks.push(self.workers.spawn(shard, visits(client, done, shard, stop)));
            }
        }
        std::thread::sleep(time / 4);
        let (before, began) = (self.closed(), Instant::now());
        std::thread::sleep(time);
        let rate = (self.closed() - before) as f64 / began.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            outside.block_on(task).map_err(|error| wrong(io::Error::other(error)))?.map_err(wrong)?;
        }
        if self.server.counters().first_flights_accepted == 0 {
            return Err(BenchError::Wrong("no first flight was accepted".to_owned()));
        }
        Ok(rate)
    }

    /// The share of packets that came to the wrong shard.
    fn handed_over(&self) -> f64 {
        let [a, b] = [&self.client, &self.server].map(Endpoint::counters);
        (a.handed_over + b.handed_over) as f64 / (a.packets_in + b.packets_in).max(1) as f64
    }
}

/// One connection after another.
async fn visits(
    client: Endpoint,
    done: Arc<Vec<Count>>,
    shard: usize,
    stop: Arc<AtomicBool>,
) -> io::Result<()> {
    let config = ConnectConfig::default().fast_open(true).replay_safe(true);
    while !stop.load(Ordering::Relaxed) {
        ask(client.connect(SERVICE, FirstFlight::safely_replayable(&REQUEST), &config).await?).await?;
        if let Some(count) = done.get(shard) {
            count.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Measures and returns the report.
pub fn run(options: &Rounds) -> Result<String, BenchError> {
    if Workers::processors() < 2 {
        return Err(BenchError::Needs("two processors"));
    }
    let time = Duration::from_millis(if options.quick { 200 } else { 1000 });
    let outside = tokio::runtime::Builder::new_current_thread().build().map_err(wrong)?;
    let pairs = SHARDS.map(Pair::new);
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..=options.rounds {
        for ((pair, rates), shards) in pairs.iter().zip(&mut rates).zip(SHARDS) {
            let pair = pair.as_ref().map_err(|error| BenchError::Wrong(error.to_string()))?;
            progress(&format!("round {round} of {}: {shards} shards", options.rounds));
            let rate = pair.round(&outside, time)?;
            // The first round warms up.
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    progress("");
    let handed = pairs.iter().flatten().map(Pair::handed_over).fold(0.0, f64::max);
    let title = format!(
        "Connections through endpoints with shards, {} rounds in turn. Each shard of the client shares a pinned thread with one of \
         the server. 64 in flight for each: connect with Fast Open, 100 B request, 300 B response, close. Wall time. At most \
         {:.2} % of the packets came to the wrong shard.",
        options.rounds,
        handed * 100.0,
    );
    let table = Table::of(title, &COLUMNS, &rates, &[0, 1]);
    let facts = json!({ "rounds": options.rounds, "handed_over": handed });
    Ok(Report::new(facts).table("rows", table).print(options.json))
}

/// The rounds' rates for each number of shards, and which of [`SHARDS`].
const COLUMNS: [Column<[Vec<f64>; 2], usize>; 3] = [
    Column::new("shards", "shards", |_, at| SHARDS[*at].into()),
    Column::new("connections/s", "per_s", |rates, at| Cell::Quartiles(Figure::new(rates[*at].clone()), 0)),
    Column::new("of one shard", "ratio", |rates, at| {
        Cell::Quartiles(Figure::ratios(&rates[*at], &rates[0], |rate| *rate), 2)
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The benchmark measures what it says: both shards work, each packet comes to the right one, and every first flight
    /// but those without a cookie is accepted.
    #[test]
    fn both_shards_work_and_no_packet_goes_astray() {
        let outside = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let pair = Pair::new(2).unwrap();
        pair.round(&outside, Duration::from_millis(100)).unwrap();
        assert!(pair.done.iter().all(|count| count.0.load(Ordering::Relaxed) > 0));
        assert!(pair.handed_over() < f64::EPSILON);
        let served = pair.server.counters();
        assert!(served.first_flights_accepted > 0 && served.resets_sent == 0);
    }
}
