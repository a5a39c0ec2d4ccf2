//! The client of `load`: a process of its own, so that its CPU time is not the server's. It uses the kernel's sockets
//! through crate `kernel`, on one thread.

use super::site::FILES;
use crate::figure::Figure;
use clap::Args;
use firstflight_credential::Reason;
use firstflight_kernel::{Carry, connect};
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// A request without a response after this time counts as failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests under way at a time. Further ones are not begun, and count as failed.
const MOST: usize = 20_000;
/// The shortest sleep of tokio.
const TICK: Duration = Duration::from_millis(1);

/// The client of `load`, which starts it.
#[derive(Debug, Args)]
pub struct AskingClient {
    #[arg(long)]
    at: SocketAddr,
    #[arg(long)]
    file: String,
    #[arg(long)]
    ms: u64,
    /// Requests a second; otherwise a number of them is outstanding
    #[arg(long)]
    rate: Option<u32>,
    #[arg(long, default_value_t = 1)]
    in_flight: u32,
    #[arg(long)]
    fast_open: bool,
    /// The first of the client's addresses
    #[arg(long)]
    from: Option<Ipv4Addr>,
    /// How many there are, one behind the other
    #[arg(long, default_value_t = 1, requires = "from")]
    sources: u32,
}

/// What a client saw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClientView {
    /// Requests that were answered.
    pub answered: f64,
    /// Requests that were not.
    pub failed: f64,
    /// Of those answered, the ones that the server had before the handshake was complete.
    pub early: f64,
    pub wall_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl ClientView {
    /// Responses a second.
    pub fn per_s(&self) -> f64 {
        self.answered * 1e6 / self.wall_us
    }

    fn json(&self) -> Value {
        json!({
            "answered": self.answered, "failed": self.failed, "early": self.early, "wall_us": self.wall_us,
            "p50_us": self.p50_us, "p99_us": self.p99_us,
        })
    }

    /// From the client's output.
    pub fn read(value: &Value) -> Option<Self> {
        let of = |name: &str| value.get(name)?.as_f64();
        Some(Self {
            answered: of("answered")?,
            failed: of("failed")?,
            early: of("early")?,
            wall_us: of("wall_us")?,
            p50_us: of("p50_us")?,
            p99_us: of("p99_us")?,
        })
    }
}

/// Asks, and prints what it saw.
pub fn run(options: &AskingClient) -> io::Result<String> {
    let size = FILES.iter().find(|(name, _)| *name == options.file).map(|(_, size)| *size);
    let unknown = || io::Error::new(io::ErrorKind::InvalidInput, format!("no file {:?}", options.file));
    let plan = Plan {
        at: options.at,
        request: format!("GET /{} HTTP/1.0\r\nHost: load\r\n\r\n", options.file).into(),
        size: size.ok_or_else(unknown)?,
        fast_open: options.fast_open,
        sources: options.from.map(|first| (first, options.sources.max(1))),
        turn: Arc::default(),
    };
    let time = Duration::from_millis(options.ms);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let seen = runtime.block_on(async {
        match options.rate {
            None => closed(&plan, time, options.in_flight).await,
            Some(rate) => open(&plan, time, rate).await,
        }
    })?;
    Ok(seen.json().to_string())
}

/// What to ask for.
#[derive(Debug, Clone)]
struct Plan {
    at: SocketAddr,
    request: Vec<u8>,
    /// Bytes of the file.
    size: usize,
    fast_open: bool,
    /// The first local address, and how many there are.
    sources: Option<(Ipv4Addr, u32)>,
    /// Of the next request.
    turn: Arc<AtomicU32>,
}

impl Plan {
    /// One request on a connection of its own. Returns the time until the response was complete, and whether the server
    /// had the request before the handshake was complete.
    async fn ask(&self) -> io::Result<(Duration, bool)> {
        let since = Instant::now();
        let carry = match self.fast_open {
            true => Carry::Data(&self.request),
            false => Carry::Nothing(Reason::NotRequested),
        };
        let local = self.sources.map(|(first, count)| {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % count;
            SocketAddr::from((Ipv4Addr::from_bits(first.to_bits().wrapping_add(turn)), 0))
        });
        let (mut stream, taken) = connect(self.at, local, carry)?.established().await?;
        if let Some(rest) = self.request.get(taken..).filter(|rest| !rest.is_empty()) {
            stream.write_all(rest).await?;
        }
        let mut response = Vec::with_capacity(self.size + 1024);
        stream.read_to_end(&mut response).await?;
        let took = since.elapsed();
        let body = response.windows(4).position(|end| end == b"\r\n\r\n").map(|at| response.len() - at - 4);
        let good = response.starts_with(b"HTTP/1.") && response.get(8..12) == Some(b" 200");
        if !good || body != Some(self.size) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not the file"));
        }
        Ok((took, stream.outcome().is_accepted()))
    }

    async fn patient(&self) -> io::Result<(Duration, bool)> {
        tokio::time::timeout(PATIENCE, self.ask()).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

#[derive(Debug, Default)]
struct Tally {
    took: Vec<f64>,
    early: u64,
    failed: u64,
    why: Option<io::Error>,
}

impl Tally {
    fn count(&mut self, result: io::Result<(Duration, bool)>) {
        match result {
            Ok((took, early)) => {
                self.took.push(took.as_secs_f64() * 1e6);
                self.early += u64::from(early);
            }
            Err(error) => {
                self.failed += 1;
                self.why = Some(error);
            }
        }
    }

    const fn is_empty(&self) -> bool {
        self.took.is_empty() && self.failed == 0
    }

    fn add(&mut self, other: Self) {
        self.took.extend(other.took);
        self.early += other.early;
        self.failed += other.failed;
        self.why = other.why.or(self.why.take());
    }

    fn seen(self, wall: Duration) -> io::Result<ClientView> {
        if let Some(error) = self.why {
            crate::output::complain(&format_args!(
                "load-client: {} requests failed, the last one: {error}",
                self.failed
            ));
        }
        let answered = self.took.len() as f64;
        if answered == 0.0 {
            return Err(io::Error::other("no response"));
        }
        let times = Figure::new(self.took);
        Ok(ClientView {
            answered,
            failed: self.failed as f64,
            early: self.early as f64,
            wall_us: wall.as_secs_f64() * 1e6,
            p50_us: times.quantile(0.5),
            p99_us: times.quantile(0.99),
        })
    }
}

/// `in_flight` requests outstanding; each of those places asks at least once.
async fn closed(plan: &Plan, time: Duration, in_flight: u32) -> io::Result<ClientView> {
    let since = Instant::now();
    let mut places = JoinSet::new();
    for _ in 0..in_flight.max(1) {
        let plan = plan.clone();
        places.spawn(async move {
            let mut tally = Tally::default();
            while tally.is_empty() || since.elapsed() < time {
                tally.count(plan.patient().await);
            }
            tally
        });
    }
    let mut all = Tally::default();
    while let Some(over) = places.join_next().await {
        all.add(over.map_err(io::Error::other)?);
    }
    all.seen(since.elapsed())
}

/// `rate` requests a second, whatever becomes of the earlier ones.
async fn open(plan: &Plan, time: Duration, rate: u32) -> io::Result<ClientView> {
    let mut tally = Tally::default();
    let mut under_way = JoinSet::new();
    let since = Instant::now();
    let mut begun = 0;
    loop {
        let passed = since.elapsed().min(time);
        let due = (passed.as_secs_f64() * f64::from(rate)) as u64;
        while begun < due {
            begun += 1;
            if under_way.len() >= MOST {
                tally.failed += 1;
                continue;
            }
            let plan = plan.clone();
            under_way.spawn(async move { plan.patient().await });
        }
        while let Some(over) = under_way.try_join_next() {
            tally.count(over.map_err(io::Error::other)?);
        }
        if passed >= time {
            break;
        }
        tokio::time::sleep(TICK).await;
    }
    while let Some(over) = under_way.join_next().await {
        tally.count(over.map_err(io::Error::other)?);
    }
    tally.seen(since.elapsed())
}
