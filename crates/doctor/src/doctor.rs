//! `firstflight doctor`: what this machine, this network and servers do with first flights.

mod asap;
mod card;
mod catalogue;
mod command;
mod gain;
mod hops;
mod http;
mod machine;
mod netstat;
mod network;
mod report;
mod rules;
mod server;
mod tcp_metrics;

use crate::at::At;
use crate::error::Error;
use crate::get::GetError;

use crate::output;
use asap::{Found, look_up};
use catalogue::{Finding, Verdict};
use firstflight::kernel::Setting;
use firstflight::record::Names;
use firstflight_http::url::{HttpUrl, UrlError, is_one_host};
use futures_util::future::join_all;
use gain::Gain;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use network::{Passage, Verifier};
use report::{Group, Line, Report, Subject};
use server::Probe;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

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
    servers: Vec<At>,
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
fn server(text: &str) -> Result<At, String> {
    let at = match text.split_once("://") {
        Some(_) => of_url(text)?,
        None => text.parse()?,
    };
    match &at {
        At::Address(address) if !is_one_host(address.ip()) => {
            return Err("name the address of one host".to_owned());
        }
        at if port(at) == 0 => return Err("name a port from 1 to 65535".to_owned()),
        _ => {}
    }
    Ok(at)
}

/// The server of a URL.
fn of_url(text: &str) -> Result<At, String> {
    let url: HttpUrl = text.parse().map_err(|error: UrlError| error.to_string())?;
    let server = url.server();
    let named = || At::Name(server.host().to_string(), server.port());
    Ok(server.address().map_or_else(named, At::Address))
}

const fn port(at: &At) -> u16 {
    match at {
        At::Address(address) => address.port(),
        At::Name(_, port) => *port,
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
    let report = examine(&args, names.as_ref(), &progress).await;
    progress.finish_and_clear();
    if args.json {
        output::json(&report.document());
    } else {
        output::line(&report);
    }
    Ok(ExitCode::from(u8::from(report.verdict() == Verdict::Problem)))
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

async fn examine(args: &Args, names: Option<&Names>, progress: &ProgressBar) -> Report {
    // The kernel's counters and cookies come first: the visits change them.
    let machine = tokio::task::spawn_blocking(machine::Facts::gather).await.unwrap_or_default();
    let card = args.xdp.clone();
    let card = tokio::task::spawn_blocking(move || card.as_deref().map(card::look)).await;
    let turns = Turns::default();
    let visits = join_all(args.servers.iter().map(|at| async {
        let found = args.visit(at, names, &turns).await;
        progress.inc(1);
        found
    }));
    let asked = join_all(args.verifier.iter().map(|at| async {
        let found = Verifier::ask(*at).await;
        progress.inc(1);
        found
    }));
    let (visited, verifiers) = tokio::join!(visits, asked);
    let visited: Vec<_> = visited.into_iter().flatten().collect();
    let passages: Vec<_> = visited.iter().map(|one| one.passage).collect();
    let differences: Vec<_> = visited.iter().filter_map(|one| one.ahead).collect();
    let mut lines = machine.judge();
    lines.push(network::clock(&verifiers, &differences));
    lines.extend(card.ok().flatten().unwrap_or_default());
    let mut groups = vec![
        Group::new(Subject::Machine, lines),
        Group::new(Subject::Network, network::judge(&verifiers, &passages)),
    ];
    groups.extend(visited.into_iter().map(|one| one.group));
    Report { root: nix::unistd::geteuid().is_root(), groups }
}

/// The servers of one address are visited one after the other, because the kernel has one cookie for all of them.
#[derive(Default)]
struct Turns(Mutex<HashMap<IpAddr, Arc<Mutex<()>>>>);

impl Turns {
    async fn of(&self, address: IpAddr) -> Arc<Mutex<()>> {
        Arc::clone(self.0.lock().await.entry(address).or_default())
    }
}

/// One address of a server, and what it showed of the network and the time.
struct Visited {
    group: Group,
    passage: Passage,
    ahead: Option<i64>,
}

impl Args {
    /// Visits a server: of a name, the first address of each family.
    async fn visit(&self, at: &At, names: Option<&Names>, turns: &Turns) -> Vec<Visited> {
        let (host, named) = match at {
            At::Address(address) => (address.to_string(), None),
            At::Name(name, port) => (format!("{name}:{port}"), Some((name.as_str(), *port))),
        };
        let found = match at {
            At::Address(address) => Ok(Found::address(*address)),
            At::Name(name, port) => look_up(name, *port, names).await,
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                let line = Line::new(Finding::LookupFailed, format_args!("It cannot be looked up: {error}."));
                let gain = Gain::of(std::slice::from_ref(&line), None);
                let subject = Subject::Server(host, None);
                let group = Group { subject, lines: vec![line], gain: Some(gain) };
                return vec![Visited { group, passage: Passage::NotSeen, ahead: None }];
            }
        };
        let mut all = Vec::new();
        for remote in found.first_of_each_family() {
            let turn = turns.of(remote.ip()).await;
            let _turn = turn.lock().await;
            let facts = self.probe(remote, &host).run().await;
            let mut lines = facts.judge();
            lines.extend(asap::judge(named.is_some(), &found, remote).await);
            let subject = Subject::Server(host.clone(), Some(remote.to_string()));
            let gain = Some(Gain::of(&lines, facts.rtt));
            let group = Group { subject, lines, gain };
            all.push(Visited { group, passage: facts.passage(), ahead: facts.ahead });
        }
        all
    }

    fn probe(&self, remote: SocketAddr, host: &str) -> Probe {
        let http = http::is_port(remote.port());
        let request = match &self.send {
            _ if self.no_data => Vec::new(),
            Some(text) => text.as_bytes().to_vec(),
            None if http => http::request(&without_zone(host)),
            None => b"\r\n".to_vec(),
        };
        let client = Setting::read().map_or(cfg!(target_os = "linux"), |setting| setting.client);
        Probe { remote, request, http: http && self.send.is_none(), client }
    }
}

/// A zone means something on this host only, and servers refuse a `Host` with one.
fn without_zone(host: &str) -> String {
    match host.parse() {
        Ok(SocketAddr::V6(v6)) => SocketAddr::new(IpAddr::V6(*v6.ip()), v6.port()).to_string(),
        _ => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_no_zone() {
        assert_eq!(without_zone("[fe80::1%3]:8080"), "[fe80::1]:8080");
        assert_eq!(without_zone("www.example.com:80"), "www.example.com:80");
    }

    #[test]
    fn a_server_is_one_host_and_a_port() {
        assert_eq!(server("192.0.2.1:80"), Ok(At::Address(SocketAddr::from(([192, 0, 2, 1], 80)))));
        assert_eq!(server("www.example.com:443"), Ok(At::Name("www.example.com".into(), 443)));
        assert_eq!(server("https://www.example.com/a?b"), Ok(At::Name("www.example.com".into(), 443)));
        assert_eq!(server("http://[::1]:81/"), Ok(At::Address("[::1]:81".parse().unwrap())));
        for wrong in [
            "192.0.2.1",
            "https://",
            "ftp://a/",
            "http://0.0.0.0/",
            "0.0.0.0:80",
            "[ff02::1]:80",
            "255.255.255.255:80",
            "192.0.2.1:0",
            "a:0",
            ":80",
        ] {
            assert!(server(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn data_may_have_ends_of_lines() {
        assert_eq!(text("PING\\r\\n").as_deref(), Ok("PING\r\n"));
        assert!(text("").is_err());
    }
}
