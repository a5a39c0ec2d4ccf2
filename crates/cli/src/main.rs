//! The `firstflight` command. Each subcommand has its own file.
#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "a program has no public items")]

mod asap;
mod cache;
mod card;
mod certificate;
mod completions;
mod demo;
mod diagnostics;
mod digest;
mod dns;
mod doctor;
mod error;
mod explain;
#[cfg(test)]
mod file_keys;
mod file_sink;
mod gateway;
mod get;
mod host_port;
mod keys;
mod life;
mod man;
mod measure;
mod network;
mod network_id;
mod output;
mod picture;
mod proxy;
mod reach;
mod run;
mod runtime;
mod seal;
mod self_signed;
mod serve;
mod span;
mod subnet;
mod test_certificate;
mod utc;
mod verifier;
mod written;

#[cfg(target_env = "musl")]
use firstflight_musl as _;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use error::Error;
use firstflight_daemon::{ExitKind, process};
use runtime::{block_on, block_on_threads};
use std::io::Write;
use std::process::ExitCode;

/// That of musl maps and unmaps memory for each request.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// TCP in user space that opens connections in one round trip (TCP Fast Open, RFC 7413).
#[derive(Parser)]
#[command(name = "firstflight", version = env!("FIRSTFLIGHT_VERSION"), propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    /// Show more on stderr: -v the engine's events, -vv everything [default: what RUST_LOG sets, else warnings]
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  firstflight demo                       see what a round trip costs (no root needed)
  firstflight serve ./site               a directory, with Fast Open
  sudo firstflight get http://10.9.0.1:8000/ --tun ff1 --host-ip 10.9.0.1/24 --ip 10.9.0.2
  firstflight explain trace.pcapng       what Fast Open did in a capture, and why
  firstflight doctor https://www.example.com/  whether first flights help there, and what to change
  firstflight run -- curl http://www.example.com/  a program's connections through a proxy of its own

Environment: RUST_LOG sets the levels on stderr for each target, for example warn,firstflight_stack=debug; -v has \
precedence. Each log statement writes at most ten lines at once, then one a second; DEBUG and TRACE are not limited.

Exit codes: 0 all went well, 1 something failed on the way or may be otherwise in a minute (an address in use, a full
disk), 2 the text of options or files is wrong.";

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Serve(Box<serve::Args>),
    Gateway(gateway::Args),
    Get(get::Args),
    Proxy(Box<proxy::Args>),
    Run(run::Args),
    Explain(explain::Args),
    Doctor(doctor::Args),
    Measure(measure::Args),
    Cache(cache::Args),
    Asap(asap::Args),
    Keys(keys::Args),
    Verifier(verifier::Args),
    Certificate(certificate::Args),
    Reach(reach::Args),
    Dns(dns::Args),
    Seal(seal::Args),
    TestCertificate(test_certificate::Args),
    Completions(completions::Args),
    Man(man::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return say_usage(&error),
    };
    process::set_build(process::Build {
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("FIRSTFLIGHT_BUILT_FROM"),
    });
    let _diagnostics = diagnostics::Diagnostics::start(cli.verbose);
    let code = match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            output::complain(&error);
            error.exit_code()
        }
    };
    whole(code)
}

/// The exit code of a command whose output is whole, as far as stdout took it. Otherwise a script would go on with a part.
fn whole(code: ExitCode) -> ExitCode {
    match output::failed() {
        Some(error) => {
            output::complain(&format_args!("cannot write the output: {error}"));
            if code == ExitCode::SUCCESS { ExitKind::Failure.exit_code() } else { code }
        }
        None => code,
    }
}

fn run(command: Command) -> Result<ExitCode, Error> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Serve(args) => block_on_threads(serve::threads(&args), serve::run(*args)),
        Command::Gateway(args) => block_on_threads(gateway::threads(&args), gateway::run(args)),
        Command::Get(args) => block_on(get::run(args)),
        Command::Proxy(args) => block_on(proxy::run(*args)),
        Command::Run(args) => block_on(run::run(args)),
        Command::Keys(args) => block_on(keys::run(args)),
        Command::Verifier(args) => block_on(verifier::run(args)),
        Command::Certificate(args) => block_on(certificate::run(args)),
        Command::Reach(args) => block_on(reach::run(args)),
        Command::Doctor(args) => block_on(doctor::run(args)),
        Command::Measure(args) => block_on(measure::run(args)),
        Command::Dns(args) => block_on(dns::run(args)),
        Command::Explain(args) => explain::run(&args),
        Command::Asap(args) => asap::run(&args).map_err(Error::from),
        Command::Seal(args) => seal::run(&args),
        Command::TestCertificate(args) => test_certificate::run(&args),
        Command::Cache(args) => cache::run(args).map(|()| ExitCode::SUCCESS),
        Command::Man(args) => man::run(&args, Cli::command()).map(|()| ExitCode::SUCCESS),
        Command::Completions(args) => {
            completions::run(&args, Cli::command());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints clap's messages: help unchanged, a mistake as one line.
fn say_usage(error: &clap::Error) -> ExitCode {
    use ErrorKind as Kind;
    if matches!(
        error.kind(),
        Kind::DisplayHelp | Kind::DisplayVersion | Kind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        if error.use_stderr() {
            // There is no other place to say it.
            let _ = error.print();
            return ExitCode::from(2);
        }
        output::note(error.print().and_then(|()| std::io::stdout().flush()));
        return whole(ExitCode::SUCCESS);
    }
    let text = error.render().to_string();
    if let (Kind::UnknownArgument, Some(option)) = (error.kind(), error.get(ContextKind::InvalidArg))
        && text.contains("Usage: firstflight serve ")
    {
        output::complain(&serve::no_option(option));
        return ExitCode::from(2);
    }
    let lines = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    output::complain(&format_args!("{line} (see --help)"));
    ExitCode::from(2)
}
