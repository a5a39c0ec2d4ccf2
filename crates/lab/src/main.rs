//! `firstflight-lab`: benchmarks of the workspace against references measured in the same run.
#![forbid(unsafe_code)]

mod bench;

use bench::engine::{self, Engine};
use bench::once::{self, Once};
use clap::{Parser, Subcommand};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::process::ExitCode;

/// Counts bytes and calls, so that memory per connection is measured and not computed.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Benchmarks of firstflight against references measured in the same run.
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
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The TCP engine in memory against smoltcp: connections, bulk, packets, memory.
    Engine(Engine),
    /// A fixed amount of work and nothing else, for `perf` and `valgrind --tool=callgrind`.
    Once(Once),
}

fn main() -> ExitCode {
    let Command::Bench(bench) = Arguments::parse().command;
    let result = match bench {
        Bench::Engine(options) => engine::run(&options),
        Bench::Once(options) => once::run(&options),
    };
    match result {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("firstflight-lab: {error}");
            ExitCode::from(2)
        }
    }
}
