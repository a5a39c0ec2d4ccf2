//! `firstflight doctor`: what this machine, this network and servers do with first flights.

use crate::error::Error;
use crate::get::GetError;
use crate::host_port::HostPort;
use crate::output;
use firstflight::record::Names;
use firstflight_doctor::{Data, Doctor, Server, Verdict};
use firstflight_http::url::{HttpUrl, UrlError, is_one_host};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Find out what this machine, this network and servers do with first flights
///
/// The last line about a server says what first flights gain there, and what to change. Each other line has a verdict, and if it is not
/// ok, what to do about it. Everything works without root; the firewall's
/// rules show to root only. Nothing is changed on this machine, but the kernel keeps the cookies that servers grant.
///
/// A server gets at most ten connections. Some of them carry data in the SYN: a HEAD request on the ports 80, 8000,
/// 8008, 8080, 8081, 8088 and 8888, and an empty line on others. It may arrive twice, as all data in SYNs. If first
/// flights fail, SYNs with small hop limits show how far the option gets.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight doctor                                      this machine
  firstflight doctor https://www.example.com/             and whether first flights help at this server
  firstflight doctor www.example.com:80 192.0.2.1:443     and these servers
  firstflight doctor --verifier 192.0.2.9:4433            and UDP, translators and the clock, as a verifier sees them
  firstflight doctor --xdp eth0                           and whether serve --xdp can use this network card
  firstflight doctor --json 192.0.2.1:6379 --no-data      JSON, and no data to the server

Exit code 0 if there is no problem (there may be warnings), 1 if there is one, 2 if an option or argument is wrong.
docs/guide/doctor.md explains each finding.")]
pub struct Args {
    /// Servers to visit: an address or a name, and a port; or a URL
    #[arg(value_name = "HOST:PORT|URL", value_parser = server)]
    servers: Vec<HostPort>,
    /// Ask this verifier in UDP: it says which address it sees, and what time it is; may be repeated
    #[arg(long, value_name = "ADDR:PORT")]
    verifier: Vec<SocketAddr>,
    /// Ask this resolver for names and their HTTPS records [default: the system's resolver]
    #[arg(long, value_name = "ADDR:PORT")]
    dns: Option<SocketAddr>,
    /// Say what `serve --xdp` could do with this network card
    #[arg(long, value_name = "DEVICE")]
    xdp: Option<String>,
    /// Data for the SYNs to all servers. \r and \n stand for the ends of lines. The server may execute it twice
    #[arg(long, value_name = "TEXT", conflicts_with = "no_data", value_parser = text)]
    send: Option<String>,
    /// Send no data in SYNs: only ask for cookies
    #[arg(long)]
    no_data: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// When a person is told that something goes on.
const LONG: Duration = Duration::from_millis(500);

/// Parses a server. Port 0 and addresses of no or several hosts are mistakes.
fn server(text: &str) -> Result<HostPort, String> {
    let at = match text.split_once("://") {
        Some(_) => of_url(text)?,
        None => text.parse()?,
    };
    match &at {
        HostPort::Address(address) if !is_one_host(address.ip()) => {
            return Err("name the address of one host".to_owned());
        }
        at if port(at) == 0 => return Err("name a port from 1 to 65535".to_owned()),
        _ => {}
    }
    Ok(at)
}

/// The server of a URL.
fn of_url(text: &str) -> Result<HostPort, String> {
    let url: HttpUrl = text.parse().map_err(|error: UrlError| error.to_string())?;
    let server = url.server();
    let named = || HostPort::Name(server.host().to_string(), server.port());
    Ok(server.address().map_or_else(named, HostPort::Address))
}

const fn port(at: &HostPort) -> u16 {
    match at {
        HostPort::Address(address) => address.port(),
        HostPort::Name(_, port) => *port,
    }
}

/// Parses the data of `--send`.
fn text(text: &str) -> Result<String, &'static str> {
    match text {
        "" => Err("write some data, or use --no-data"),
        text => Ok(text.replace("\\r", "\r").replace("\\n", "\n")),
    }
}

/// Runs the command.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    let resolver = |at| Names::at(at).map_err(|error| GetError::Resolver(at, error));
    let names = args.dns.map(resolver).transpose()?;
    let progress = progress(args.servers.len() + args.verifier.len());
    let report = doctor(&args, names).examine_with(|| progress.inc(1)).await;
    progress.finish_and_clear();
    if args.json {
        output::json(&report);
    } else {
        output::line(&report);
    }
    Ok(ExitCode::from(u8::from(report.verdict() == Verdict::Problem)))
}

/// What the options ask for.
fn doctor(args: &Args, names: Option<Names>) -> Doctor {
    let data = match &args.send {
        _ if args.no_data => Data::Nothing,
        Some(text) => Data::Bytes(text.as_bytes().to_vec()),
        None => Data::Usual,
    };
    let mut doctor = Doctor::new().data(data);
    for at in &args.servers {
        doctor = doctor.server(match at {
            HostPort::Address(address) => Server::Address(*address),
            HostPort::Name(name, port) => Server::Name(name.clone(), *port),
        });
    }
    for at in &args.verifier {
        doctor = doctor.verifier(*at);
    }
    if let Some(names) = names {
        doctor = doctor.names(names);
    }
    match &args.xdp {
        Some(device) => doctor.card(device),
        None => doctor,
    }
}

/// A line on stderr for a person, if it takes long.
fn progress(subjects: usize) -> ProgressBar {
    let bar = match ProgressStyle::with_template("{spinner} visiting servers and verifiers: {pos} of {len}") {
        Ok(style) if subjects > 0 => {
            ProgressBar::with_draw_target(Some(subjects as u64), ProgressDrawTarget::hidden())
                .with_style(style)
        }
        _ => return ProgressBar::hidden(),
    };
    let shown = bar.downgrade();
    tokio::spawn(async move {
        tokio::time::sleep(LONG).await;
        if let Some(bar) = shown.upgrade() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(100));
        }
    });
    bar
}

#[cfg(test)]
mod tests;
