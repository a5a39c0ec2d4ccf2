//! `bench connections`: what a connection costs both ends, in processes of their own on loopback.

mod ends;
mod idle;
mod load;
mod offer;
pub mod peer;
mod process;
mod report;
mod usage;
mod visits;
mod way;

use super::{BenchError, IN_FLIGHT, Rounds, progress};
use clap::Args;
use process::{Cable, Pair, ProcessPlace, Programs, Task, Visits};
use serde_json::json;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;
use way::ConnectWay;

/// What a connection costs: our engine in UDP, the kernel's TCP, TLS and QUIC, in turn.
///
/// Client and server are processes of their own on loopback. A connection is: connect, 100 B request, 300 B response,
/// close. Shows CPU time of both processes, rate and latency with 1 and with 64 in flight, and the memory of idle
/// connections. As root it runs in a network namespace of its own, in which the kernel lets servers use Fast Open.
#[derive(Debug, Args)]
pub struct Connections {
    #[command(flatten)]
    rounds: Rounds,
    /// Only these ways, with commas between them
    #[arg(long, value_name = "WAY", value_delimiter = ',')]
    ways: Vec<ConnectWay>,
    /// Duration of each measurement [default: 1s, with --load 2s; with --quick a fifth]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Addresses of the client, for the engine in UDP; several numbers with commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,64", value_parser = clap::value_parser!(u8).range(1..=254))]
    clients: Vec<u8>,
    /// Measures our engine in UDP a second time with busy polling: its thread stays awake for this long after each packet
    #[arg(long, value_name = "TIME", value_parser = window, conflicts_with = "load")]
    busy_poll: Option<Duration>,
    /// Idle connections of each way; 0 leaves this out. If the limit of open files is lower, several processes share them
    /// [default: 100000, with --quick 300]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=250_000))]
    idle: Option<u32>,
    /// Only what becomes of first flights at 0.25 to 3 times the rate that the server sustains: our engine in UDP, Fast
    /// Open
    #[arg(long)]
    load: bool,
    /// With --load: the server's work for a request, so that the client can offer more than the server sustains
    #[arg(long, value_name = "TIME", default_value = "200us", value_parser = humantime::parse_duration)]
    work: Duration,
    /// With --load: write the shares as SVG
    #[arg(long, value_name = "FILE", requires = "load")]
    plot: Option<PathBuf>,
    /// Another firstflight-lab for both ends, to compare versions
    #[arg(long, value_name = "PATH")]
    peer_bin: Option<PathBuf>,
    /// Another firstflight-lab for the servers
    #[arg(long, value_name = "PATH", conflicts_with = "peer_bin")]
    server_bin: Option<PathBuf>,
    /// Another firstflight-lab for the clients
    #[arg(long, value_name = "PATH", conflicts_with = "peer_bin")]
    client_bin: Option<PathBuf>,
}

/// A window for busy polling.
fn window(text: &str) -> Result<Duration, String> {
    let window = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let whole = window.subsec_nanos() % 1_000 == 0;
    match window.as_micros() {
        1..=1_000_000 if whole => Ok(window),
        _ => Err("whole microseconds between 1us and 1s".to_owned()),
    }
}

#[derive(Debug)]
pub struct Row {
    task: Task,
    in_flight: usize,
    visits: Vec<Visits>,
}

/// Numbers of connections in flight.
const BOTH: [usize; 2] = [1, IN_FLIGHT];
/// Visits before the first measurement: each address has its cookie, and each task of a client its ticket.
const WARM_UP: u64 = 500;

/// Measures and returns the report.
pub fn run(options: &Connections) -> Result<String, BenchError> {
    let own = || env::current_exe().map_err(|error| BenchError::refused("the path of this program", error));
    let given = |end: &Option<PathBuf>| match end.as_ref().or(options.peer_bin.as_ref()) {
        Some(path) => Ok(path.clone()),
        None => own(),
    };
    let programs = Programs { server: given(&options.server_bin)?, client: given(&options.client_bin)? };
    let place = ProcessPlace::new()?;
    let usual = Duration::from_secs(if options.load { 2 } else { 1 });
    let time = options.time.unwrap_or(if options.rounds.quick { usual / 5 } else { usual });
    if options.load {
        return load_curve(options, &place, &programs, time);
    }
    let mut ways = if options.ways.is_empty() { ConnectWay::ALL.to_vec() } else { options.ways.clone() };
    let mut skipped = Vec::new();
    if !place.has_fast_open() {
        skipped = ways.iter().copied().filter(|way| *way == ConnectWay::TcpFastOpen).collect();
        ways.retain(|way| *way != ConnectWay::TcpFastOpen);
    }
    if ways.contains(&ConnectWay::UdpCard) && !place.is_room() {
        skipped.push(ConnectWay::UdpCard);
        ways.retain(|way| *way != ConnectWay::UdpCard);
    }
    if options.busy_poll.is_some() && !ways.iter().any(|way| way.is_ours()) {
        return Err(BenchError::Needs(
            "one of the ways udp-handshake, udp-card, fast-open and asap: --busy-poll is for them",
        ));
    }
    let rows = measure(options, &place, &programs, &ways, time)?;
    let wanted = options.idle.unwrap_or(if options.rounds.quick { 300 } else { 100_000 });
    let mut idle = Vec::new();
    // On a card a connection takes the same memory.
    for way in ways.iter().filter(|way| wanted > 0 && **way != ConnectWay::UdpCard) {
        idle.push(idle::measure(&place, &programs, *way, (wanted, options.rounds.rounds, time))?);
    }
    progress("");
    let results = report::Results { rounds: options.rounds.rounds, rows, idle, skipped };
    Ok(results.report().print(options.rounds.json))
}

/// The rows, in turn.
fn measure(
    options: &Connections,
    place: &ProcessPlace,
    programs: &Programs,
    ways: &[ConnectWay],
    time: Duration,
) -> Result<Vec<Row>, BenchError> {
    let mut pairs = Vec::new();
    for way in ways {
        let clients = if way.is_ours() { options.clients.as_slice() } else { &[1] };
        let busy = options.busy_poll.filter(|_| way.is_ours());
        let windows: Vec<_> = [Duration::ZERO].into_iter().chain(busy).collect();
        for (clients, busy_poll) in
            clients.iter().flat_map(|clients| windows.iter().map(move |w| (clients, w)))
        {
            progress(&format!("{}: start", way.name()));
            let cable = Cable(u8::try_from(pairs.len()).unwrap_or(u8::MAX));
            let task = Task { clients: *clients, busy_poll: *busy_poll, cable, ..Task::new(*way) };
            let mut pair = Pair::start(place, programs, task)?;
            pair.visits(IN_FLIGHT, Duration::ZERO, WARM_UP)?;
            let rows = BOTH.map(|in_flight| Row { task, in_flight, visits: Vec::new() });
            pairs.push((pair, rows));
        }
    }
    for round in 1..=options.rounds.rounds {
        for (pair, rows) in &mut pairs {
            for row in rows {
                progress(&format!("round {round} of {}: {}", options.rounds.rounds, row.task.way.name()));
                row.visits.push(pair.visits(row.in_flight, time, 1)?);
            }
        }
    }
    Ok(pairs.into_iter().flat_map(|(_, rows)| rows).collect())
}

fn load_curve(
    options: &Connections,
    place: &ProcessPlace,
    programs: &Programs,
    time: Duration,
) -> Result<String, BenchError> {
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|error| BenchError::File(path.display().to_string(), error))
    };
    if let Some(path) = &options.plot {
        // Fail now, not after minutes.
        write(path, "")?;
    }
    let patience = Duration::from_secs(if options.rounds.quick { 3 } else { 10 });
    let plan = load::Plan { rounds: options.rounds.rounds, time, work: options.work, patience };
    let curve = load::measure(place, programs, &plan)?;
    progress("");
    if let Some(path) = &options.plot {
        write(path, &curve.svg().map_err(BenchError::Wrong)?)?;
    }
    if options.rounds.json {
        let work = plan.work.as_micros() as u64;
        return Ok(json!({ "rounds": plan.rounds, "work_us": work, "load": curve.json() }).to_string());
    }
    Ok(curve.table(&plan).to_string())
}
