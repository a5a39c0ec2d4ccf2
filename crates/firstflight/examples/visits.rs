//! Measures how soon the first byte arrives: `Client` against a plain connect, in the same run. `tests/client/run.py`
//! runs both ends in network namespaces.
//!
//! ```console
//! $ cargo run --release -p firstflight --features asap --example visits -- serve --listen 10.61.0.2:8080
//! $ cargo run --release -p firstflight --features asap --example visits -- client --server 10.61.0.2:8080
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a measurement")]

use clap::{Parser, Subcommand};
use firstflight::credential::asap::{AsapPolicy, GuardDomain, Identity, PrivateKey, TrustStore, Trusted};
use firstflight::credential::{NetworkId, PendingLimit, Quarantine, ReplayTable, Window};
use firstflight::record::Published;
use firstflight::verifier::{Config, Issuer, IssuerAddress, Limits, PoolConfig, Rate, Service, StreamLimits};
use firstflight::{Authority, Client, FirstFlight, Server, Stream};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The server's name. Its addresses are given to the client.
const NAME: &str = "www.example.com";
/// The verifier's key, which both ends know.
const KEY: [u8; 32] = [7; 32];

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve, and certify addresses.
    Serve {
        #[arg(long)]
        listen: Vec<SocketAddr>,
        /// The verifier's address.
        #[arg(long)]
        verifier: Option<SocketAddr>,
    },
    /// Visit servers, and print one JSON object for each sample.
    Client(Visits),
}

#[derive(clap::Args, Clone)]
struct Visits {
    /// The first server's address. Each sample visits a server of its own, at one of the addresses behind it.
    #[arg(long)]
    server: SocketAddr,
    /// An address that does not answer, in front of the server's.
    #[arg(long)]
    dead: Option<SocketAddr>,
    /// The verifier; without it there are no certificates.
    #[arg(long)]
    verifier: Option<SocketAddr>,
    #[arg(long, default_value_t = 10)]
    samples: u32,
    #[arg(long, default_value_t = 10)]
    visits: u32,
    /// Samples at the same time.
    #[arg(long, default_value_t = 32)]
    at_once: usize,
    /// The requests must not run twice.
    #[arg(long)]
    once: bool,
    /// Seconds until a visit is given up.
    #[arg(long, default_value_t = 20)]
    timeout: u64,
}

#[tokio::main]
async fn main() {
    match Arguments::parse().command {
        Command::Serve { listen, verifier } => serve(&listen, verifier).await,
        Command::Client(visits) => client(visits).await,
    }
}

// --- the server ------------------------------------------------------------------------------------

async fn serve(listen: &[SocketAddr], verifier: Option<SocketAddr>) {
    let key = PrivateKey::from_seed(&KEY);
    if let Some(at) = verifier {
        let many = Rate { burst: 100_000, per_minute: 100_000 };
        let limits = Limits::default().v4(many).v6([many; 3]);
        let config = Config::default()
            .issuer(Some(Issuer::new(key.clone())))
            .allowed(vec!["10.0.0.0/8".parse().unwrap(), "127.0.0.0/8".parse().unwrap()])
            .limits(limits);
        let service = Service::bind(config, &[at], StreamLimits::per_client(512)).await.unwrap();
        tokio::spawn(service.run(std::future::pending()));
    }
    let port = listen[0].port();
    // As a server that has run for ten minutes.
    let began = firstflight::unix_ms() - 600_000;
    let guard = ReplayTable::new(firstflight::random_guard_key().unwrap(), Window::REQUESTS, 8 << 20, began);
    let mut trusted = Trusted::new(key.public());
    trusted.per_second = None;
    let policy = AsapPolicy {
        trust: Arc::new(TrustStore::new([trusted]).unwrap()),
        identities: [Identity::name(NAME, port)].into(),
        guard: Arc::new(guard),
        domain: GuardDomain::All,
        pending: Arc::new(PendingLimit::with_clients(4096, 4096)),
        relayed: None,
        quarantine: Quarantine::default(),
    };
    let mut builder = Server::builder().pending(4096).asap(policy);
    for at in listen {
        builder = builder.address(*at);
    }
    let server = builder.bind().unwrap();
    println!("ready, cookies {}, UDP {:?}", server.grants_cookies(), server.udp_port());
    let executed: Arc<Mutex<HashMap<String, u32>>> = Arc::default();
    loop {
        match server.accept().await {
            Ok(stream) => {
                let executed = Arc::clone(&executed);
                tokio::spawn(async move { answer(stream, &executed).await });
            }
            Err(error) => eprintln!("{error}"),
        }
    }
}

async fn answer(mut stream: Stream, executed: &Mutex<HashMap<String, u32>>) -> Option<()> {
    let (mut head, mut buffer) = (Vec::new(), [0; 2048]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer).await.ok()? {
            0 => return None,
            count => head.extend_from_slice(&buffer[..count]),
        }
    }
    let head = String::from_utf8(head).ok()?;
    let path = head.split(' ').nth(1)?;
    let body = if path == "/executed" {
        let executed = executed.lock().unwrap();
        let once = executed.iter().filter(|(path, _)| path.starts_with("/once-")).map(|(_, count)| *count);
        json!({ "once": once.clone().count(), "most": once.max().unwrap_or(0) }).to_string()
    } else {
        *executed.lock().unwrap().entry(path.to_owned()).or_default() += 1;
        "x".repeat(100)
    };
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

// --- the client ------------------------------------------------------------------------------------

async fn client(visits: Visits) {
    let slots = Arc::new(Semaphore::new(visits.at_once));
    let mut running = JoinSet::new();
    for n in 0..visits.samples {
        let slot = Arc::clone(&slots).acquire_owned().await.unwrap();
        let visits = visits.clone();
        running.spawn(async move {
            let sample = sample(&visits, n).await;
            drop(slot);
            println!("{sample}");
        });
    }
    while running.join_next().await.is_some() {}
}

/// The server of a sample. The plain connects have servers of their own, because the kernel remembers servers.
fn server_of(first: SocketAddr, n: u32, plain: bool) -> SocketAddr {
    let IpAddr::V4(ip) = first.ip() else { panic!("give an IPv4 address") };
    let ip = Ipv4Addr::from(u32::from(ip) + n + if plain { 1 << 14 } else { 0 });
    SocketAddr::new(ip.into(), first.port())
}

/// Several visits by one client, and as many plain ones.
async fn sample(visits: &Visits, n: u32) -> Value {
    let at = server_of(visits.server, n, false);
    let server = Authority::new(NAME, at.port()).unwrap();
    let client = new_client(visits, &server).await;
    let addresses: Vec<_> = visits.dead.into_iter().chain([at]).collect();
    let others: Vec<_> = visits.dead.into_iter().chain([server_of(visits.server, n, true)]).collect();
    let plain = Client::builder().off(true).build().unwrap();
    let (mut ours, mut plains) = (Vec::new(), Vec::new());
    for visit in 0..visits.visits {
        let kind = if visits.once { "once-" } else { "" };
        let request = format!("GET /{kind}{n}-{visit} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n");
        ours.push(one(visits, connect(&client, &server, &addresses, &request, visits.once), &request).await);
        let request = request.replace(&format!("GET /{kind}"), "GET /plain-");
        plains.push(match visits.dead {
            None => one(visits, plain_connect(others[0], &request), &request).await,
            Some(_) => one(visits, connect(&plain, &server, &others, &request, false), &request).await,
        });
    }
    json!({ "ours": ours, "plain": plains })
}

async fn new_client(visits: &Visits, server: &Authority) -> Client {
    let mut builder =
        Client::builder().network(NetworkId([1; 16])).servers_run_once(visits.once).no_resolver();
    if let Some(at) = visits.verifier {
        let issuer = IssuerAddress::new(at, PrivateKey::from_seed(&KEY).public());
        let record = Published::in_udp(server.port(), 1200, &[issuer.id()]).unwrap();
        let pool = PoolConfig { fresh: 1, ..PoolConfig::default() };
        builder = builder.verifier(issuer).certificates(pool).record(server.clone(), record);
    }
    let client = builder.build().unwrap();
    if visits.verifier.is_some() {
        // Without one the visits go by the kernel.
        client.prepare(Duration::from_secs(10)).await;
    }
    client
}

/// How a visit went, apart from its times.
#[derive(Default)]
struct How {
    way: &'static str,
    outcome: &'static str,
    reason: &'static str,
    /// The smoothed round-trip time, ms.
    rtt: Option<f64>,
    raced: bool,
    twice: bool,
}

async fn connect(
    client: &Client,
    server: &Authority,
    addresses: &[SocketAddr],
    request: &str,
    once: bool,
) -> Result<(Stream, How), (bool, String)> {
    let first = match once {
        true => FirstFlight::at_most_once(request.as_bytes()),
        false => FirstFlight::safely_replayable(request.as_bytes()),
    };
    let connected = client.connect(server, first).at(addresses).await;
    let stream = connected.map_err(|error| (error.maybe_delivered(), error.to_string()))?;
    let (outcome, race) = (stream.outcome(), stream.race());
    let how = How {
        way: stream.way().as_str(),
        outcome: outcome.as_str(),
        reason: outcome.reason().map_or("", |reason| reason.as_str()),
        rtt: stream.rtt().map(ms),
        raced: race.is_some(),
        twice: race.is_some_and(|race| race.data_left_twice()),
    };
    Ok((stream, how))
}

async fn plain_connect(at: SocketAddr, request: &str) -> Result<(TcpStream, How), (bool, String)> {
    let fail = |error: std::io::Error| (false, error.to_string());
    let mut stream = TcpStream::connect(at).await.map_err(fail)?;
    stream.write_all(request.as_bytes()).await.map_err(fail)?;
    Ok((stream, How { way: "plain", ..How::default() }))
}

/// Connects, and waits for the first byte and the end.
async fn one<S: tokio::io::AsyncRead + Unpin>(
    visits: &Visits,
    connect: impl Future<Output = Result<(S, How), (bool, String)>>,
    request: &str,
) -> Value {
    let began = Instant::now();
    let visit = async {
        let (mut stream, how) = connect.await?;
        let mut buffer = [0; 512];
        let got = stream.read(&mut buffer).await.map_err(|error| (true, error.to_string()))?;
        let first_byte = began.elapsed();
        assert!(got > 0 || request.is_empty(), "the server closed");
        while stream.read(&mut buffer).await.is_ok_and(|got| got > 0) {}
        Ok((first_byte, how))
    };
    match tokio::time::timeout(Duration::from_secs(visits.timeout), visit).await {
        Ok(Ok((first_byte, how))) => json!({
            "ms": ms(first_byte), "way": how.way, "outcome": how.outcome, "reason": how.reason,
            "rtt": how.rtt, "raced": how.raced, "twice": how.twice,
        }),
        Ok(Err((maybe, error))) => {
            json!({ "ms": ms(began.elapsed()), "error": error, "maybe_delivered": maybe })
        }
        Err(_) => json!({ "ms": ms(began.elapsed()), "error": "no answer", "maybe_delivered": true }),
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
