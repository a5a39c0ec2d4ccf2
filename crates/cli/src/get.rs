//! `firstflight get`: fetches URLs, with the request in the SYN when a cookie is known.

mod ask;
mod certificates;
mod error;
mod fetch;
mod kept;
mod memory;
mod report;
mod seal;
mod via_dns;

pub use error::GetError;

use crate::error::Error;
use crate::file_sink::is_stdout;
use crate::network::Capture;
use crate::network::Network;
use crate::output;
use crate::span::{self, LONGEST, MS, SECONDS};
use ask::{Ask, Target};
use certificates::{Carrier, Certificates, Told};
use clap::ArgGroup;
use fetch::{Errand, fetch};
use firstflight::credential::NetworkId;
use firstflight::link::UdpLink;
use firstflight::record::Names;
use firstflight::{Authority, Client, ClientBuilder, Endpoint, InsideLookups};
use firstflight_http::url::HttpUrl;
use firstflight_verifier::IssuerAddress;
use kept::Kept;
use memory::Memory;
pub use memory::NetworkChoice;
use report::{Begun, Print};
use std::io::IsTerminal as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Fetch http:// and https:// URLs, and print how long each took and why
///
/// A measuring tool: it prints a line about each fetch, with times, the outcome of the first flight and its reason, and not the
/// body. -o - prints the body, as curl does; -H, -X, -L, -I, -k and --cacert are curl's, too.
///
/// Uses the system's sockets, and needs no privileges: the kernel's TCP with Fast Open, and UDP for servers that take
/// certificates (--verifier). Every fetch is a separate connection: the first one to a server gets its cookie, and the
/// next ones carry their request in the SYN. If the path drops that SYN, a GET is sent again from another port.
///
/// With --tun or --udp it uses a TCP engine of its own: on a TUN device (needs root or CAP_NET_ADMIN; the kernel has
/// --host-ip on it, the client has --ip), or in UDP datagrams only. With --xdp the engine connects from the host's own
/// addresses by a network card, from 256 local ports that it holds.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("link").args(["tun", "udp", "xdp"]))]
#[command(group = ArgGroup::new("certified").args(["verifier", "certificate"]))]
#[command(group = ArgGroup::new("with_effect").args(["upload", "method"]).multiple(true))]
#[command(after_help = "\
Examples:
  firstflight get http://www.example.com/ --repeat 2
  firstflight get https://www.example.com/ --repeat 2
  firstflight get https://www.example.com/ --seal dns
  firstflight get -L -o - -H 'Accept: text/plain' https://www.example.com/
  firstflight get http://www.example.com/ --cache servers.json --json
  firstflight get http://10.9.0.1:8000/ --tun ff1 --host-ip 10.9.0.1/24 --ip 10.9.0.2 --repeat 3
  firstflight get 'http://[fd09::1]/' --tun ff1 --host-ip fd09::1/64 --ip fd09::2 --json
  firstflight get 'http://[fe80::1%25eth0]:8080/'
  firstflight get http://10.9.0.1/big -o big --tun ff1 --host-ip 10.9.0.1/24 --ip 10.9.0.2
  firstflight get http://192.0.2.1:8080/ --udp --verifier 192.0.2.9:4500 --verifier-key KEY --verify-first
  firstflight get http://www.example.com:8080/ --udp --dns 192.0.2.53:53 --verifier 192.0.2.9:4500 --verifier-key KEY
  firstflight get http://www.example.com:8080/ --udp --via-dns --dns 192.0.2.53:53 --cache cache.json \
    --verifier 192.0.2.9:4500 --verifier-key KEY --second-verifier 192.0.2.10:4500 --verify-first --repeat 2
  firstflight get http://10.9.0.1/ --cache cookies.json --tun ff1 --host-ip 10.9.0.1/24 --ip 10.9.0.2

For servers beyond this machine the kernel must forward: sysctl net.ipv4.ip_forward=1, and a route back.
The system's resolver looks names up; of several addresses the first that answers is taken (RFC 8305).
Nothing waits for a verifier, unless --verify-first asks for it: the first fetches go without its certificate.
Times count from the start of the command for the first fetch, with the lookup of the name and what was waited for.
Exit code 0 only if every fetch got a status of 200 to 299.")]
pub struct Args {
    /// What to fetch: http:// or https:// and an address or a name, as https://www.example.com/ or http://[fd09::1]/
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    #[command(flatten)]
    network: Network,
    /// Use an engine that speaks TCP in UDP datagrams only
    #[arg(long)]
    udp: bool,
    /// UDP port of the servers [default: the port in the URL]
    #[arg(long, value_name = "N", requires = "udp", value_parser = clap::value_parser!(u16).range(1..))]
    udp_port: Option<u16>,
    /// Ask this resolver for names, and whether their servers take certificates (HTTPS records) [default: the
    /// system's resolver; with --tun or --udp for addresses only]
    #[arg(long, value_name = "ADDR:PORT")]
    dns: Option<SocketAddr>,
    #[command(flatten)]
    via: via_dns::Options,
    #[command(flatten)]
    certificates: Certificates,
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    ask: Ask,
    /// Trust the certificate authorities in this PEM file for https:// [default: those of the system]
    #[arg(long, visible_alias = "cacert", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    seal: seal::Seal,
    /// Fetch every URL this often
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Fetches at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    parallel: u16,
    /// Wait this long after each fetch; a number without a unit is milliseconds
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = span::or_bare(MS, Duration::ZERO..=LONGEST))]
    interval: Duration,
    /// Ordinary handshakes only
    #[arg(long)]
    no_fast_open: bool,
    /// Print one JSON object for each fetch
    #[arg(long)]
    json: bool,
    /// Write the body into this file; - writes it to standard output, and the reports to stderr
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Send this file with PUT instead of fetching
    #[arg(long, value_name = "FILE")]
    upload: Option<PathBuf>,
    /// The request may be executed twice: let its beginning ride in the SYN, as a GET does
    #[arg(long, requires = "with_effect")]
    replay_safe: bool,
    /// Give a fetch up after this, up to 1day; a number without a unit is seconds
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span::or_bare(SECONDS, LEAST..=DAY))]
    timeout: Duration,
}

#[cfg(test)]
#[path = "get/tests.rs"]
mod tests;

/// Limits of --timeout.
const LEAST: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);
/// How long the first fetch waits for verifiers, with `--verify-first`.
const VERIFY_FIRST: Duration = Duration::from_secs(5);
/// How long connections may take to close at the end.
const GRACE: Duration = Duration::from_secs(2);

/// Runs the command.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    let asked = Instant::now();
    let targets = args.targets()?;
    let by_engine = args.network.has_device() || args.udp;
    if !by_engine && args.network.records() {
        return Err(crate::network::NetworkError::NothingToRecord.into());
    }
    // What is wrong with the options is said before there is a device.
    args.check_files().await?;
    args.memory.check()?;
    let issuer = args.certificates.issuer()?;
    let tls = args.tls(&targets)?;
    let mut builder = Client::builder();
    let (engine, network);
    if by_engine {
        let started = args.start_engine(&targets).await?;
        builder = started.configure(builder, &args);
        network = started.network;
        engine = Some((started.endpoint, started.capture));
        if let Some(inside) = started.inside {
            builder = builder.inside_lookups(inside);
        }
    } else {
        network = args.memory.network(args.certificates.wanted()).await;
        builder = args.memory.configure(builder, network);
        engine = None;
    }
    let servers: Vec<_> = targets.iter().map(|target| target.url.server().clone()).collect();
    builder = builder.fast_open(!args.no_fast_open);
    if let Some(issuer) = issuer.clone() {
        builder = args.certificates.configure(builder, issuer, &servers, args.carrier());
    }
    let kept = args.certificates.kept(&servers, network)?;
    if let Some(kept) = &kept {
        builder = args.certificates.show(builder, kept, &servers, args.carrier());
    }
    match args.dns.filter(|_| !args.via.wanted()) {
        Some(at) => {
            let names = Names::at(at).map_err(|error| GetError::Resolver(at, error))?;
            builder = builder.resolver(names);
        }
        None if by_engine && !args.via.wanted() => builder = builder.no_resolver(),
        None => {}
    }
    let client = builder.build().map_err(Error::Cache)?;
    if args.certificates.verify_first() {
        args.prepare(&client, &servers).await;
    }
    let errand = Arc::new(Errand {
        client: client.clone(),
        tls,
        by_engine,
        udp: (args.udp && !args.via.wanted()).then_some(args.udp_port),
        ask: args.ask.clone(),
        replay_safe: args.replay_safe || args.ask.is_safe(args.upload.is_some()),
        output: args.output.clone(),
        upload: args.upload.clone(),
        timeout: args.timeout,
        told: Arc::new(Told::new(
            issuer.as_ref().map(IssuerAddress::id).or(kept.as_ref().map(Kept::verifier)),
        )),
    });
    let all = Arc::new(args.queue(targets.into(), asked));
    args.fetch_all(&all, &errand).await;
    // Who knows curl waits for the body.
    if std::io::stdout().is_terminal() && args.output.is_none() && !args.print().aside && !args.json {
        output::aside(&"(get measures; -o - prints the body)");
    }
    drop(errand);
    client.close().await;
    if let Some(kept) = kept {
        kept.end().await;
    }
    if let Some((endpoint, capture)) = engine {
        endpoint.shutdown(GRACE).await;
        capture.finish()?;
    }
    Ok(all.exit_code())
}

/// An engine of this command's own.
struct Started {
    endpoint: Endpoint,
    capture: Capture,
    network: NetworkId,
    inside: Option<InsideLookups>,
}

impl Started {
    fn configure(&self, builder: ClientBuilder, args: &Args) -> ClientBuilder {
        let builder = args.memory.configure(builder, self.network);
        let endpoint = self.endpoint.clone();
        match args.udp {
            true => builder.engine_in_udp(endpoint, args.udp_port),
            false => builder.engine(endpoint),
        }
    }
}

/// The fetches to do.
struct Queue {
    rounds: usize,
    targets: Arc<[Target]>,
    /// When the command was started.
    asked: Instant,
    /// Whether the first fetches have waited for verifiers.
    waited: bool,
    next: AtomicUsize,
    failed: AtomicBool,
}

impl Queue {
    /// 1 if a fetch failed.
    fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(self.failed.load(Ordering::Relaxed)))
    }

    fn take(&self) -> Option<&Target> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let round = index.checked_div(self.targets.len())?;
        if round >= self.rounds {
            return None;
        }
        self.targets.get(index % self.targets.len())
    }
}

/// Fetches one URL after the other until none is left. For the first fetch, the user's request is the start of the
/// command.
async fn work(queue: Arc<Queue>, errand: Arc<Errand>, interval: Duration, print: Print) {
    let mut first = true;
    while let Some(target) = queue.take() {
        let is_first = std::mem::take(&mut first);
        if !is_first && !interval.is_zero() {
            tokio::time::sleep(interval).await;
        }
        let mut begun = Begun::now();
        if is_first {
            begun = Begun { asked: queue.asked, waited: queue.waited, ..begun };
        }
        let succeeded = follow(&errand, target, begun, print).await;
        if !succeeded {
            queue.failed.store(true, Ordering::Relaxed);
        }
    }
}

/// Fetches a URL, and with `-L` what its redirects lead to. Whether the last fetch succeeded.
async fn follow(errand: &Errand, first: &Target, begun: Begun, print: Print) -> bool {
    let mut report = fetch(errand, first, begun).await;
    let (mut target, mut errand) = (first.clone(), errand.clone());
    for _ in 0..ask::REDIRECTS {
        let next = errand.ask.follows().then(|| ask::next(&target, &report)).flatten();
        let Some(next) = next else { break };
        report.print(print);
        target = match next {
            Ok(next) if next.url.is_tls() && errand.tls.is_none() => {
                output::complain(&format_args!(
                    "{}: no certificate authorities for it: name some with --cacert",
                    next.url
                ));
                return false;
            }
            Ok(next) => next,
            Err(why) => {
                output::complain(&format_args!("{}: {why}", target.url));
                return false;
            }
        };
        errand = errand.after(report.status);
        report = fetch(&errand, &target, Begun::now()).await;
    }
    let led_on = errand.ask.follows() && ask::next(&target, &report).is_some();
    report.print(print);
    if led_on {
        output::complain(&format_args!("{}: more than {} redirects", first.url, ask::REDIRECTS));
    }
    report.succeeded() && !led_on
}

impl Args {
    /// What TLS trusts, if a URL needs it.
    fn tls(&self, targets: &[Target]) -> Result<Option<firstflight_tls::Connector>, GetError> {
        let seal = self.seal.client(targets, self.dns)?;
        let wanted = targets.iter().any(|target| target.url.is_tls());
        if self.ca_file.is_none() && !wanted && !self.ask.follows() {
            return Ok(None);
        }
        let builder = firstflight_tls::Connector::builder().http1();
        let builder = seal.into_iter().fold(builder, firstflight_tls::ConnectorBuilder::seal);
        let builder = match &self.ca_file {
            Some(file) => builder.ca_file(file).map_err(GetError::Tls)?,
            None if self.ask.insecure() => builder.trust_any_certificate(),
            None => builder,
        };
        match builder.build() {
            Ok(connector) => Ok(Some(connector)),
            // Only a redirect could need it.
            Err(_) if !wanted => Ok(None),
            Err(error) => Err(GetError::Tls(error)),
        }
    }

    fn queue(&self, targets: Arc<[Target]>, asked: Instant) -> Queue {
        Queue {
            rounds: self.repeat as usize,
            targets,
            asked,
            waited: self.certificates.verify_first(),
            next: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// Does all the fetches of the queue.
    async fn fetch_all(&self, all: &Arc<Queue>, errand: &Arc<Errand>) {
        let interval = self.interval;
        let mut workers = JoinSet::new();
        for _ in 0..self.parallel {
            workers.spawn(work(Arc::clone(all), Arc::clone(errand), interval, self.print()));
        }
        while let Some(ended) = workers.join_next().await {
            if ended.is_err() {
                all.failed.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Waits for certificates and, if requests travel inside lookups, for what the verifiers say and the servers publish.
    async fn prepare(&self, client: &Client, servers: &[Authority]) {
        let began = Instant::now();
        let records = async {
            let mut asking = JoinSet::new();
            for server in servers.iter().filter(|_| self.via.wanted()) {
                let (client, server) = (client.clone(), server.clone());
                asking.spawn(async move { client.look_up(server).await.is_ok() });
            }
            while asking.join_next().await.is_some() {}
        };
        let records = tokio::time::timeout(VERIFY_FIRST, records);
        let (ready, _) = tokio::join!(client.prepare(VERIFY_FIRST), records);
        // A failure has been told.
        if !ready && began.elapsed() >= VERIFY_FIRST {
            let limit = VERIFY_FIRST.as_secs();
            output::complain(&format_args!("no certificate within {limit} s: fetching without"));
        }
    }

    /// Starts the engine that the options ask for.
    async fn start_engine(&self, targets: &[Target]) -> Result<Started, Error> {
        self.network.validate()?;
        let card = self.network.connect_by_card()?;
        let own = card.as_ref().map_or_else(|| self.network.addresses(), |(card, _)| card.addresses());
        for address in targets.iter().filter_map(|target| target.url.server().address()).filter(|_| !self.udp)
        {
            can_reach(own, address)?;
        }
        let network = self.memory.network(self.via.wanted() || self.certificates.is_kept()).await;
        let (udp, inside) = match (self.udp, self.certificates.verifier().filter(|_| self.via.wanted())) {
            (false, _) => (None, None),
            (true, None) => {
                let known: Vec<_> =
                    targets.iter().filter_map(|target| target.url.server().address()).collect();
                (Some(UdpLink::client(&known).map_err(GetError::UdpClient)?), None)
            }
            (true, Some(verifier)) => {
                let mut link = UdpLink::client(&[verifier]).map_err(|error| Error::Udp(verifier, error))?;
                let inside = self.via.inside(verifier, self.dns)?.through(&mut link);
                (Some(link), Some(inside))
            }
        };
        let (endpoint, capture) = self.network.start(network, udp, card)?;
        Ok(Started { endpoint, capture, network, inside })
    }

    /// By what first flights travel to servers that are known to take certificates.
    fn carrier(&self) -> Carrier {
        match (self.udp, self.network.has_device()) {
            (true, _) => Carrier::Udp(self.udp_port),
            (false, true) => Carrier::Ip,
            (false, false) => Carrier::Udp(None),
        }
    }

    fn targets(&self) -> Result<Vec<Target>, GetError> {
        let parse = |text: &String| match text.parse::<HttpUrl>() {
            Ok(url) => Ok(url.into()),
            Err(error) => Err(GetError::Url(text.clone(), error)),
        };
        self.urls.iter().map(parse).collect()
    }

    fn print(&self) -> Print {
        Print { json: self.json, aside: self.ask.head() || self.output.as_deref().is_some_and(is_stdout) }
    }

    /// Checks before anything is sent whether the files can be used.
    async fn check_files(&self) -> Result<(), Error> {
        if let Some(path) = &self.output {
            if self.urls.len() > 1 || self.repeat > 1 {
                return Err(GetError::OutputForMany.into());
            }
            if !is_stdout(path) {
                let mut options = tokio::fs::OpenOptions::new();
                let open = options.write(true).create(true).truncate(false).open(path);
                open.await.map_err(|error| Error::Output(path.clone(), error))?;
            }
        }
        if let Some(path) = &self.upload {
            let open = firstflight_http::directory::FileBody::open(path);
            open.await.map_err(|error| GetError::Upload(path.clone(), error))?;
        }
        Ok(())
    }
}

/// Whether an engine with these addresses can connect to `remote`.
fn can_reach(own: &[IpAddr], remote: SocketAddr) -> Result<(), GetError> {
    if own.contains(&remote.ip()) {
        return Err(GetError::FetchFromSelf(remote.ip()));
    }
    match own.iter().any(|own| own.is_ipv4() == remote.is_ipv4()) {
        true => Ok(()),
        false => Err(GetError::NoRoute(remote)),
    }
}
