//! `firstflight-lab`: benchmarks of the workspace against references measured in the same run, attacks on it in
//! virtual time, experiments on its theory, and a wire for tests on emulated networks.
#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "a program has no public items")]
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod attack;
mod bars;
mod bench;
mod certified;
mod compare;
mod congestion;
mod curves;
mod exchange;
mod figure;
mod gateway;
mod load;
mod lookup;
mod namespaces;
mod networks;
mod output;
mod pages;
mod pair;
mod record;
mod span;
mod steps;
mod table;
mod tls;
mod traffic;
mod transfer;
mod verifiers;
mod wire;

use bench::connections::{self, Connections, peer};
use bench::once::{self, Once};
use bench::{Rounds, bulk, certificates, engine, front, seal, shards, sockets};
use clap::{Parser, Subcommand};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::error::Error;
use std::process::ExitCode;

/// Counts bytes and calls, so that memory per connection is measured and not computed.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Benchmarks of firstflight against references measured in the same run, and attacks on it.
#[derive(Debug, Parser)]
#[command(name = "firstflight-lab")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure, in turn with a reference.
    #[command(subcommand)]
    Bench(Bench),
    /// Attack a server, in virtual time.
    Attack(attack::Attack),
    Compare(compare::Compare),
    /// NewReno, CUBIC and BBR on a bottleneck, in virtual time.
    Congestion(congestion::Congestion),
    /// Visit nginx by unmodified programs, through the proxy and the gateway and without both, in network namespaces.
    Gateway(gateway::Gateway),
    /// Draw the results of `gateway`.
    #[command(hide = true)]
    GatewayPlot(gateway::Plot),
    Load(load::Load),
    /// The client of `load`.
    #[command(hide = true)]
    LoadClient(load::client::AskingClient),
    /// The attacker of `load --flood`.
    #[command(hide = true)]
    LoadFlood(load::flood::Flooding),
    /// Fetch a page whose server's address must be looked up first: the thesis' Figure 7.1, in virtual time.
    Lookup(lookup::Lookup),
    /// Visit servers on networks that interfere with first flights, in network namespaces.
    Networks(networks::Networks),
    Pages(pages::Pages),
    Record(record::Record),
    Steps(steps::Steps),
    /// Visit servers by TLS, with and without a sealed first flight, and count round trips, in network namespaces.
    Tls(tls::Tls),
    /// An end of the wire of `tls`, which starts it.
    #[command(subcommand)]
    TlsEnd(tls::WireEnd),
    /// Make a capture whose requests spend on handshakes what the Fast Open paper reports, for `explain --stats`.
    Traffic(traffic::Traffic),
    Transfer(transfer::Transfer),
    /// Test the theorem on the number of verifiers on random graphs.
    Verifiers(verifiers::Verifiers),
    /// Join two network namespaces with a wire that has delay, rate, loss and more.
    Wire(wire::Wire),
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The TCP engine in memory against smoltcp: connections, bulk, packets, memory.
    Engine(Rounds),
    /// Certificates and requests: issued, signed, verified, accepted, against RSA-1024 by openssl.
    Certificates(Rounds),
    /// A name server's work for first flights in names, against the DNS library alone.
    Front(Rounds),
    /// Sealed first flights against rustls alone: seal, open, both ends; and a server under a flood of them.
    Seal(Rounds),
    /// Connections through `Endpoint`s on one thread, against the stack alone and tokio's loopback TCP.
    Async(Rounds),
    /// Connections through `Endpoint`s with two shards on two processors, against one shard on one.
    Shards(Rounds),
    /// Downloads and uploads by curl through a TUN device, and by a network card, against the kernel's TCP over veth (needs root).
    Bulk(Rounds),
    /// The server of `bench bulk`.
    #[command(hide = true)]
    BulkServer(bulk::Server),
    Connections(Connections),
    Gateway(bench::gateway::Gateway),
    /// One end of `connections`.
    #[command(hide = true)]
    ConnectionsPeer(peer::Peer),
    /// A fixed amount of work and nothing else, for `perf` and `valgrind --tool=callgrind`.
    Once(Once),
    /// How late packets are on `wire`, and how exact its rate is.
    WireAccuracy(wire::accuracy::WireAccuracy),
}

fn main() -> ExitCode {
    let result: Result<String, Box<dyn Error>> = match Arguments::parse().command {
        Command::Bench(Bench::Engine(options)) => engine::run(&options).map_err(Into::into),
        Command::Bench(Bench::Certificates(options)) => certificates::run(&options).map_err(Into::into),
        Command::Bench(Bench::Front(options)) => front::run(&options).map_err(Into::into),
        Command::Bench(Bench::Seal(options)) => seal::run(&options).map_err(Into::into),
        Command::Bench(Bench::Async(options)) => sockets::run(&options).map_err(Into::into),
        Command::Bench(Bench::Shards(options)) => shards::run(&options).map_err(Into::into),
        Command::Bench(Bench::Bulk(options)) => bulk::run(&options).map_err(Into::into),
        Command::Bench(Bench::BulkServer(options)) => bulk::run_server(&options).map_err(Into::into),
        Command::Bench(Bench::Connections(options)) => connections::run(&options).map_err(Into::into),
        Command::Bench(Bench::ConnectionsPeer(options)) => {
            peer::run(&options).map(|()| String::new()).map_err(Into::into)
        }
        Command::Bench(Bench::Gateway(options)) => bench::gateway::run(&options).map_err(Into::into),
        Command::Bench(Bench::Once(options)) => once::run(&options).map_err(Into::into),
        Command::Bench(Bench::WireAccuracy(options)) => wire::accuracy::run(&options).map_err(Into::into),
        Command::Attack(options) => Ok(attack::run(&options)),
        Command::Compare(options) => compare::run(&options).map_err(Into::into),
        Command::Congestion(options) => congestion::run(&options).map_err(Into::into),
        Command::Gateway(options) => gateway::run(&options),
        Command::GatewayPlot(options) => gateway::plot(&options),
        Command::Load(options) => load::run(&options).map_err(Into::into),
        Command::LoadClient(options) => load::client::run(&options).map_err(Into::into),
        Command::LoadFlood(options) => load::flood::run(&options).map_err(Into::into),
        Command::Lookup(options) => lookup::run(&options).map_err(Into::into),
        Command::Networks(options) => networks::run(&options),
        Command::Pages(options) => pages::run(&options).map_err(Into::into),
        Command::Record(options) => record::run(&options),
        Command::Tls(options) => tls::run(&options),
        Command::TlsEnd(options) => tls::end(&options).map_err(|error| -> Box<dyn Error> { error }),
        Command::Traffic(options) => traffic::run(&options).map_err(Into::into),
        Command::Steps(options) => steps::run(&options).map_err(Into::into),
        Command::Transfer(options) => transfer::run(&options).map_err(Into::into),
        Command::Verifiers(options) => verifiers::run(&options).map_err(Into::into),
        Command::Wire(options) => wire::run(&options).map_err(Into::into),
    };
    match result {
        Ok(text) if text.is_empty() => ExitCode::SUCCESS,
        Ok(text) => match output::line(&text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                output::complain(&format_args!("cannot write to stdout: {error}"));
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            output::complain(&error);
            ExitCode::from(2)
        }
    }
}
