//! `firstflight proxy`: connections in one round trip for programs that are not changed.

mod error;
mod file;
mod log;

pub use error::ProxyError;

use crate::error::Error;
use crate::life::Life;
use crate::output;
use crate::span;
use crate::verifier::{AskedVerifier, SiteVerifiersUse, VerifierPlace};
use clap::{Subcommand, ValueEnum};
use firstflight::credential::asap::PublicKey;
use firstflight::record::Names;
use firstflight::{Client, InsideLookups};
use firstflight_daemon::{SignalRequest, Signals, manager, open_files};
use firstflight_proxy::{EarlyData, Proxy, ProxyBuilder, ProxyRules};
use firstflight_verifier::Group;
use ipnet::IpNet;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Run a proxy on this machine, so that unmodified programs connect in one round trip
///
/// Speaks HTTP (CONNECT, and plain http://) and SOCKS5 on one port of the loopback address. What a program sends first, a
/// ClientHello or a GET, leaves in the first packet if the server takes that: with Fast Open (from the second connection
/// on), or with a certificate (--verifier). It needs no privileges. SIGHUP reads the file of --config again; a mistake changes
/// nothing. SIGTERM and SIGINT end it.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  firstflight proxy
  https_proxy=http://127.0.0.1:3128 curl https://www.example.com/
  curl -x socks5h://127.0.0.1:3128 https://www.example.com/
  firstflight proxy --cache servers.json --pac --allow-host www.example.com
  firstflight proxy check proxy.toml && firstflight proxy --config proxy.toml

The program is told yes before the proxy is connected only if the name resolved, a cookie or certificate is at hand, and
the last connect to this server succeeded. Otherwise the proxy connects first and answers truthfully. A failure after an
early yes resets the program's connection.
A browser that uses a proxy for a host has no HTTP/3 and no ECH there: with --pac it uses it only where that pays.")]
pub struct Args {
    /// Read the settings from this file, in TOML: the names of the options with _ in place of -, as pac = true and
    /// allow_host = ["www.example.com"]
    #[arg(long, value_name = "FILE", conflicts_with = "settings")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Check(Check),
}

/// Read a file for --config as the start does, and say what is wrong
///
/// It needs no port, so it runs beside a proxy in service. Exit codes: 0 all is right, 1 something failed that may be otherwise in
/// a minute, 2 a proxy would not start.
#[derive(clap::Args)]
struct Check {
    /// The file, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// The settings, as options and in a file.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args, Deserialize)]
#[group(id = "settings")]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Address and port to listen on; can be repeated [default: 127.0.0.1:3128]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<SocketAddr>,
    /// Allow --listen addresses that other machines reach. Everybody who reaches the proxy can use it: it has no users
    /// and no passwords
    #[arg(long)]
    allow_remote: bool,
    /// Allow programs to reach private networks (10.0.0.0/8, fc00::/7, …) through the proxy. This machine, the local link
    /// and clouds' metadata services stay refused
    #[arg(long)]
    allow_private: bool,
    /// Allow programs to reach this network, whatever it is, this machine too; can be repeated. Services that trust what comes
    /// from this machine can then be reached by all programs that use the proxy
    #[arg(long, value_name = "NET")]
    allow_net: Vec<IpNet>,
    /// Serve a PAC file at /proxy.pac: browsers then use the proxy for hosts that took a first flight, and for those of
    /// --allow-host. Every program of this machine can read it, and see which of these hosts were visited
    #[arg(long)]
    pac: bool,
    /// Name this host in the PAC file; can be repeated
    #[arg(long, value_name = "HOST", requires = "pac")]
    allow_host: Vec<String>,
    /// What becomes of TLS early data behind a ClientHello
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Early::Hold)]
    early_data: Early,
    /// Keep what is learnt about servers in this file for later runs
    #[arg(long, value_name = "FILE")]
    cache: Option<PathBuf>,
    /// Use no cookies of Fast Open
    #[arg(long)]
    no_fast_open: bool,
    /// Ask this resolver for names [default: the system's]
    #[arg(long, value_name = "ADDR:PORT")]
    dns: Option<SocketAddr>,
    /// Get certificates from this verifier, for first flights in UDP (ASAP). A name is looked up each time; the port is 4433 by default
    #[arg(long, value_name = "ADDR:PORT|HOST[:PORT]", requires = "verifier_key")]
    verifier: Option<VerifierPlace>,
    /// The verifier's public key, 64 hexadecimal digits
    #[arg(long, value_name = "KEY", requires = "verifier")]
    verifier_key: Option<String>,
    /// File with the verifier's vantage points, all of which must see this client
    #[arg(long, value_name = "FILE", requires = "verifier")]
    group: Option<PathBuf>,
    /// Which verifiers are used that no option names. With site, the resolver is asked for the HTTPS record of each server, too. All
    /// programs behind the proxy, private windows of browsers, too, then share what is learnt
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = SiteVerifiersUse::Off)]
    found_verifiers: SiteVerifiersUse,
    /// Send requests of plain HTTP that may run twice inside the lookup of the server's address, too, if the server accepts
    /// that and unknown servers can reach this machine. --dns then sees the names of such requests
    #[arg(long, requires_all = ["dns", "verifier", "second_verifier"])]
    via_dns: bool,
    /// Send the first line of requests that are too long for a lookup: servers that prepare then answer sooner
    #[arg(long, requires = "via_dns")]
    first_line: bool,
    /// Another verifier, which reports how it sees this machine, as for `firstflight reach`
    #[arg(long, value_name = "ADDR:PORT", requires = "via_dns")]
    second_verifier: Option<SocketAddr>,
    /// How long connections may go on after SIGTERM; then they are reset
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span::parse)]
    #[serde(deserialize_with = "span::of_text")]
    drain: Duration,
    /// Print one JSON object for each event
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Early {
    /// It waits for the handshake of TCP
    #[default]
    Hold,
    /// It rides where servers execute it at most once: with a certificate
    Once,
    /// It rides always. The network may repeat it, beyond what TLS itself allows
    Replay,
}

impl Settings {
    fn client(&self) -> Result<Client, Error> {
        let mut builder = Client::builder()
            .fast_open(!self.no_fast_open)
            .found_verifiers(self.found_verifiers.into())
            .servers_run_once(matches!(self.early_data, Early::Once));
        if let Some(path) = &self.cache {
            builder = builder.cache(path);
        }
        if let Some(at) = self.dns {
            builder = builder.resolver(Names::at(at).map_err(|error| ProxyError::Resolver(at, error))?);
        }
        if let Some(issuer) = self.issuer()? {
            builder = issuer.configure(builder);
        }
        let first = self.verifier.as_ref().and_then(VerifierPlace::address);
        if let (true, Some(dns), Some(first), Some(second)) =
            (self.via_dns, self.dns, first, self.second_verifier)
        {
            let inside = InsideLookups::new(dns, [first, second]).map_err(ProxyError::ViaDns)?;
            builder = builder.inside_lookups(inside.first_lines(self.first_line));
        }
        builder.build().map_err(Error::Cache)
    }

    /// The proxy's settings, with nothing listening yet.
    fn builder(&self, client: Client) -> Result<ProxyBuilder, ProxyError> {
        let log = log::Log { json: self.json };
        let mut builder = Proxy::builder(client)
            .allow_remote(self.allow_remote)
            .allow_private(self.allow_private)
            .pac(self.pac)
            .drain(self.drain)
            .early_data(match self.early_data {
                Early::Hold => EarlyData::Hold,
                Early::Once => EarlyData::AtMostOnce,
                Early::Replay => EarlyData::Replay,
            })
            .on_event(move |event| log.event(event));
        for at in &self.listen {
            builder = builder.listen(*at);
        }
        for net in &self.allow_net {
            builder = builder.allow_net(*net);
        }
        for host in &self.allow_host {
            builder = builder.allow_host(host).map_err(|_| ProxyError::Host(host.clone()))?;
        }
        Ok(builder)
    }

    fn issuer(&self) -> Result<Option<AskedVerifier>, ProxyError> {
        let (Some(place), Some(key)) = (&self.verifier, &self.verifier_key) else { return Ok(None) };
        let key = key.parse::<PublicKey>().map_err(|error| ProxyError::Key(error.to_string()))?;
        if self.via_dns && place.address().is_none() {
            return Err(ProxyError::NameViaDns);
        }
        let group = match &self.group {
            Some(path) => {
                Group::read(path).map_err(|error| ProxyError::Group(path.clone(), error))?.addresses()
            }
            None => Vec::new(),
        };
        Ok(Some(AskedVerifier { place: place.clone(), key, group }))
    }
}

pub fn event_line(event: &firstflight_proxy::Event) -> String {
    log::line(event)
}

/// Runs the command until a signal arrives.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    if let Some(Command::Check(Check { file })) = &args.command {
        let settings = file::read(file)?;
        settings.check()?;
        output::line(&format_args!("{} is right", file.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let settings = match &args.config {
        Some(path) => file::read(path)?,
        None => args.settings,
    };
    // Each connection of a client needs a descriptor, and one more for the server.
    open_files::raise_to_most();
    let client = settings.client()?;
    let mut signals = Signals::new().map_err(Error::Runtime)?;
    let proxy = settings.builder(client.clone())?.bind().await.map_err(ProxyError::from)?;
    if let Some(at) = proxy.local_addrs().iter().find(|at| !at.ip().is_loopback()) {
        output::complain(&format_args!("everybody who reaches {at} can use this proxy"));
    }
    let life = Life::unobserved();
    life.serving(|| {});
    log::Log { json: settings.json }.listening(&proxy);
    let rules = proxy.rules();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = proxy.run(async { drop(stopped.await) });
    tokio::pin!(running);
    loop {
        tokio::select! {
            () = &mut running => break,
            asked = signals.next() => match (asked, &args.config) {
                (SignalRequest::Reload, Some(path)) => reload(path, &settings, &client, &rules),
                // There is no file.
                (SignalRequest::Reload, None) => {}
                (SignalRequest::End, _) => {
                    life.stopping();
                    drop(stop);
                    break;
                }
            },
        }
    }
    tokio::select! {
        () = running => {}
        // A second signal stops it at once.
        () = signals.end() => {}
    }
    client.close().await;
    Ok(ExitCode::SUCCESS)
}

/// Reads the file again. On an error nothing changes.
fn reload(path: &Path, began: &Settings, client: &Client, rules: &ProxyRules) {
    manager::reloading();
    let new = file::read_again(path, began);
    match new.and_then(|new| Ok(new.builder(client.clone())?)) {
        Ok(builder) => {
            rules.set(builder);
            output::line(&format_args!("{} was read again", path.display()));
        }
        Err(error) => tracing::warn!("the settings stay as they are: {error}"),
    }
    manager::ready();
}
