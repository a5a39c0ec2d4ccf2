//! `bench async`: connections through two `Endpoint`s on one thread, in turn with the raw stack and with tokio's
//! loopback TCP.

pub mod lane;

use super::ours::{self, CLIENT, OpenBy, SERVICE};
use super::{BenchError, Budget, IN_FLIGHT, REQUEST, RESPONSE, Rounds, Sample, World, measure, progress};
use crate::figure::Figure;
use crate::table::{Cell, Column, Report, Table};
use firstflight::{ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, Stream};
use firstflight_credential::{CookieKey, FastOpenPolicy, KeyRing, PendingLimit, Scheme};
use lane::Lane;
use serde_json::json;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

/// Connections of one exchange. They are all closed at its end, so that no timer runs while other worlds work.
const BATCH: u64 = 1024;
/// The system's TCP keeps ports for a second after a connection, so its servers have several addresses.
const ADDRESSES: u8 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// The stack alone.
    Raw,
    /// A task for each connection, at both ends.
    Tasks,
    /// As many tasks as connections are in flight.
    Loops,
    /// tokio's TCP on loopback, a task for each connection.
    Tokio,
}

impl Row {
    const ALL: [Self; 4] = [Self::Raw, Self::Tasks, Self::Loops, Self::Tokio];

    const fn name(self) -> &'static str {
        match self {
            Self::Raw => "the stack alone, Fast Open",
            Self::Tasks => "endpoints, a task for each connection",
            Self::Loops => "endpoints, 64 tasks",
            Self::Tokio => "tokio on loopback TCP, a task for each connection",
        }
    }

    /// Both ends, ready.
    pub fn world(self) -> Result<Box<dyn World>, BenchError> {
        Ok(match self {
            Self::Raw => Box::new(ours::Connections::new(OpenBy::Cookie, 0)?),
            Self::Tasks => Box::new(Sockets::new(self, SocketEnds::engine()?, true)?),
            Self::Loops => Box::new(Sockets::new(self, SocketEnds::engine()?, false)?),
            Self::Tokio => Box::new(Sockets::new(self, SocketEnds::system()?, true)?),
        })
    }
}

/// Measures and returns the report.
pub fn run(options: &Rounds) -> Result<String, BenchError> {
    let time = Duration::from_millis(if options.quick { 100 } else { 500 });
    let mut worlds = Vec::new();
    for row in Row::ALL {
        let mut world = row.world()?;
        measure(world.as_mut(), Budget::time(time / 2))?;
        worlds.push((row, world, Vec::<Sample>::new()));
    }
    for round in 1..=options.rounds {
        for (row, world, samples) in &mut worlds {
            progress(&format!("round {round} of {}: {}", options.rounds, row.name()));
            samples.push(measure(world.as_mut(), Budget::time(time))?);
        }
    }
    progress("");
    let rows: Vec<SocketRow> = worlds.into_iter().map(|(row, _, samples)| (row, samples)).collect();
    let title = format!(
        "Connections on one thread, {} rounds in turn. 64 in flight: connect, 100 B request, 300 B response, close. CPU time of \
         both ends. The engine opens with Fast Open, the system's TCP with its handshake.",
        options.rounds
    );
    let table = Table::of(title, &COLUMNS, &rows, &rows);
    Ok(Report::new(json!({ "rounds": options.rounds })).table("rows", table).print(options.json))
}

/// A row and its rounds.
type SocketRow = (Row, Vec<Sample>);

const COLUMNS: [Column<Vec<SocketRow>, SocketRow>; 4] = [
    Column::new("", "row", |_, (row, _)| row.name().into()),
    Column::new("connections/s", "per_s", |_, (_, samples)| {
        Cell::Quartiles(Figure::of(samples, Sample::per_second), 0)
    }),
    Column::new("of the stack alone", "ratio", |rows, (_, samples)| {
        let raw = rows.iter().find(|(row, _)| *row == Row::Raw);
        raw.map(|(_, raw)| Cell::Median(Figure::ratios(samples, raw, Sample::per_second), 2)).into()
    }),
    Column::new("allocations each", "allocations", |_, (_, samples)| {
        Cell::Median(Figure::of(samples, Sample::allocations_per_unit), 1)
    }),
];

/// A client and a server.
enum SocketEnds {
    Engine { client: Endpoint, server: Endpoint, listener: Listener, config: ConnectConfig },
    System { listener: TcpListener, port: u16, next: AtomicU8 },
}

/// A stream of either kind.
pub trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Bytes for S {}

pub fn wrong(error: io::Error) -> BenchError {
    BenchError::refused("a socket", error)
}

type MadeSockets = (Runtime, SocketEnds);

impl SocketEnds {
    fn runtime() -> Result<Runtime, BenchError> {
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(wrong)
    }

    fn engine() -> Result<MadeSockets, BenchError> {
        let runtime = Self::runtime()?;
        let entered = runtime.enter();
        let (here, there) = Lane::pair();
        let client = Endpoint::new(firstflight::config(vec![CLIENT]).map_err(wrong)?, here);
        let server = Endpoint::new(firstflight::config(vec![SERVICE.ip()]).map_err(wrong)?, there);
        let keys = KeyRing::new(Scheme::Linux, CookieKey::from_bytes([7; 16]));
        let pending = PendingLimit::with_clients(1024, u32::MAX);
        let policy = FastOpenPolicy::new(Arc::new(keys), Arc::new(pending));
        let mut config = ListenConfig::new(SERVICE);
        config.backlog = config.backlog.max(1024);
        config.fast_open = Some(policy);
        let listener = server.listen(config).map_err(|error| BenchError::refused("our listen", error))?;
        let config = ConnectConfig::default().fast_open(true).replay_safe(true);
        drop(entered);
        Ok((runtime, Self::Engine { client, server, listener, config }))
    }

    fn system() -> Result<MadeSockets, BenchError> {
        let runtime = Self::runtime()?;
        let entered = runtime.enter();
        let listener = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        let port = listener.local_addr().map_err(wrong)?.port();
        let listener = TcpListener::from_std(listener).map_err(wrong)?;
        drop(entered);
        Ok((runtime, Self::System { listener, port, next: AtomicU8::new(0) }))
    }

    /// Whether the engines have connections left, apart from those in TIME-WAIT.
    fn are_open(&self) -> bool {
        match self {
            Self::Engine { client, server, .. } => {
                [client, server].iter().any(|end| end.gauges().connections > 0)
            }
            Self::System { .. } => false,
        }
    }

    /// One connection of the client, from the connect to the close.
    async fn visit(&self) -> io::Result<()> {
        match self {
            Self::Engine { client, config, .. } => {
                ask(client.connect(SERVICE, FirstFlight::safely_replayable(&REQUEST), config).await?).await
            }
            Self::System { port, next, .. } => {
                let at = next.fetch_add(1, Ordering::Relaxed) % ADDRESSES;
                let at = SocketAddr::from(([127, 0, 1, at], *port));
                let mut stream = TcpStream::connect(at).await?;
                stream.write_all(&REQUEST).await?;
                ask(stream).await
            }
        }
    }

    /// Accepts one connection and answers it, in a task of its own if `spawn`.
    async fn serve(&self, spawn: bool) -> io::Result<()> {
        match self {
            Self::Engine { listener, .. } => {
                let stream = listener.accept().await?;
                match spawn {
                    true => drop(tokio::spawn(answer::<Stream>(stream))),
                    false => answer(stream).await?,
                }
            }
            Self::System { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                match spawn {
                    true => drop(tokio::spawn(answer(stream))),
                    false => answer(stream).await?,
                }
            }
        }
        Ok(())
    }
}

/// Reads the response and the end.
pub async fn ask(mut stream: impl Bytes) -> io::Result<()> {
    let mut buffer = [0; RESPONSE.len() + 1];
    let mut got = 0;
    loop {
        match stream.read(buffer.get_mut(got..).unwrap_or_default()).await? {
            0 => break,
            more => got += more,
        }
    }
    if buffer.get(..got) != Some(&RESPONSE) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.shutdown().await
}

/// Reads the request, answers, closes, and waits for the client's end.
pub async fn answer<S: Bytes>(mut stream: S) -> io::Result<()> {
    let mut buffer = [0; REQUEST.len()];
    stream.read_exact(&mut buffer).await?;
    if buffer != REQUEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.write_all(&RESPONSE).await?;
    stream.shutdown().await?;
    match stream.read(&mut buffer).await? {
        0 => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Connections through sockets.
struct Sockets {
    row: Row,
    runtime: Runtime,
    shared: Arc<Shared>,
    /// A task for each connection.
    tasks: bool,
}

/// What the tasks share.
struct Shared {
    ends: SocketEnds,
    /// Connections of this batch that were begun.
    begun: AtomicU64,
    /// Connections of this batch that are closed.
    closed: AtomicU64,
    /// Connections closed in all.
    done: AtomicU64,
    /// Why a connection failed.
    failed: Mutex<Option<io::Error>>,
    over: Notify,
}

impl Shared {
    /// One connection of the batch. Returns false if it was the last one to begin.
    async fn one(&self) -> bool {
        let failure = self.ends.visit().await.err();
        if let Some(error) = failure {
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
        let next = self.begun.fetch_add(1, Ordering::Relaxed) < BATCH;
        self.done.fetch_add(1, Ordering::Relaxed);
        if self.closed.fetch_add(1, Ordering::Relaxed) + 1 == BATCH {
            self.over.notify_one();
        }
        next
    }
}

/// A task for one connection, which starts the next one.
fn begin(shared: Arc<Shared>) {
    tokio::spawn(async move {
        if shared.one().await {
            begin(shared);
        }
    });
}

impl Sockets {
    fn new(row: Row, (runtime, ends): MadeSockets, tasks: bool) -> Result<Self, BenchError> {
        let shared = Arc::new(Shared {
            ends,
            begun: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            done: AtomicU64::new(0),
            failed: Mutex::default(),
            over: Notify::new(),
        });
        let servers = if tasks { 1 } else { IN_FLIGHT };
        for _ in 0..servers {
            let shared = Arc::clone(&shared);
            runtime.spawn(async move {
                loop {
                    if let Err(error) = shared.ends.serve(tasks).await {
                        crate::output::complain(&format_args!("the server: {error}"));
                    }
                }
            });
        }
        // The first connection gets the cookie. All others use it.
        runtime.block_on(shared.ends.visit()).map_err(wrong)?;
        Ok(Self { row, runtime, shared, tasks })
    }
}

impl World for Sockets {
    fn name(&self) -> &'static str {
        self.row.name()
    }

    fn exchange(&mut self) -> Result<(), BenchError> {
        let shared = &self.shared;
        shared.begun.store(IN_FLIGHT as u64, Ordering::Relaxed);
        shared.closed.store(0, Ordering::Relaxed);
        self.runtime.block_on(async {
            for _ in 0..IN_FLIGHT {
                let shared = Arc::clone(shared);
                match self.tasks {
                    true => begin(shared),
                    false => drop(tokio::spawn(async move { while shared.one().await {} })),
                }
            }
            shared.over.notified().await;
            // No timer runs while other worlds work.
            while shared.ends.are_open() {
                tokio::task::yield_now().await;
            }
        });
        let failed = shared.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), |error| Err(wrong(error)))
    }

    fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    fn packets(&self) -> u64 {
        match &self.shared.ends {
            SocketEnds::Engine { client, server, .. } => {
                client.counters().packets_in + server.counters().packets_in
            }
            SocketEnds::System { .. } => 0,
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let SocketEnds::Engine { client, server, .. } = &self.shared.ends else { return Ok(()) };
        let (asked, served) = (client.counters(), server.counters());
        if served.first_flights_accepted != self.done() || asked.resets_sent + served.resets_sent > 0 {
            return Err(BenchError::Wrong(format!(
                "{} connections, {} first flights accepted, {} resets",
                self.done(),
                served.first_flights_accepted,
                asked.resets_sent + served.resets_sent
            )));
        }
        Ok(())
    }
}
