//! `firstflight get`: fetches URLs, with the request in the SYN when a cookie is known.

mod ask;
mod certificates;
mod error;
mod fetch;
mod memory;
mod report;
mod seal;
mod via_dns;

pub use error::GetError;

use crate::error::Error;
use crate::file_sink::{FileSink, is_stdout};
use crate::network::{Capture, Network, NetworkError};
use crate::output;
use crate::span::{self, LONGEST, MS, SECONDS};
use ask::Ask;
use certificates::Certificates;
use clap::ArgGroup;
use fetch::{Errand, fetch};
use firstflight::credential::NetworkId;
use firstflight::link::UdpLink;
use firstflight::record::{Names, Published};
use firstflight::{Authority, Client, ClientBuilder, Endpoint};
use firstflight_http::redirect::{self, RedirectHop};
use firstflight_http::url::HttpUrl;
use firstflight_wire::asap::VerifierId;
use firstflight_wire::encapsulation::BASE_MSS;
use memory::Memory;
use report::{FetchStart, Report};
use std::io::IsTerminal as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
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
    let args = Arc::new(args);
    let targets = args.targets()?;
    if !args.by_engine() && args.network.records() {
        return Err(NetworkError::NothingToRecord.into());
    }
    // What is wrong with the options is said before there is a device.
    args.check_files().await?;
    args.memory.check()?;
    let issuers = args.certificates.issuers()?;
    if args.via.via_dns && args.certificates.verifier().is_none() {
        return Err(GetError::NameViaDns.into());
    }
    let tls = args.tls(&targets)?;
    let servers: Vec<_> = targets.iter().map(|target| target.url.server().clone()).collect();
    let mut builder = Client::builder().fast_open(!args.no_fast_open);
    let network = args.memory.network(args.needs_network()).await;
    let mut engine = None;
    if args.by_engine() {
        let (by_engine, endpoint, capture) = args.start_engine(builder, network, &servers)?;
        (builder, engine) = (by_engine, Some((endpoint, capture)));
    }
    builder = args.memory.configure(builder, network);
    let record = |server: &Authority, verifiers: &[VerifierId]| args.record(server, verifiers);
    builder = args.certificates.configure(builder, &issuers, &servers, network, record)?;
    let client = args.resolver(builder)?.build().map_err(Error::Cache)?;
    if args.certificates.verify_first {
        args.prepare(&client, &servers).await;
    }
    let errand = Arc::new(Errand {
        client: client.clone(),
        tls,
        ask: args.ask.clone(),
        replay_safe: args.replay_safe || args.ask.is_safe(args.upload.is_some()),
        told: Arc::default(),
        silence: Arc::default(),
        args: Arc::clone(&args),
    });
    let whole = fetch_all(errand, targets, asked).await;
    // Who knows curl waits for the body.
    if std::io::stdout().is_terminal() && args.output.is_none() && !args.aside() && !args.json {
        output::aside(&"(get measures; -o - prints the body)");
    }
    client.close().await;
    if let Some((endpoint, capture)) = engine {
        endpoint.shutdown(GRACE).await;
        capture.finish()?;
    }
    Ok(ExitCode::from(u8::from(!whole)))
}

/// Does all the fetches. Whether every one succeeded.
async fn fetch_all(errand: Arc<Errand>, targets: Vec<RedirectHop>, asked: Instant) -> bool {
    let rounds = 0..errand.args.repeat;
    let queue = Arc::new(Mutex::new(rounds.flat_map(move |_| targets.clone())));
    let mut workers = JoinSet::new();
    for _ in 0..errand.args.parallel {
        workers.spawn(work(Arc::clone(&errand), Arc::clone(&queue), asked));
    }
    let mut whole = true;
    while let Some(ended) = workers.join_next().await {
        whole &= ended.unwrap_or(false);
    }
    whole
}

/// Fetches one URL after the other until none is left. For the first fetch, the user's request is the start of the
/// command. Whether every fetch succeeded.
async fn work(
    errand: Arc<Errand>,
    queue: Arc<Mutex<impl Iterator<Item = RedirectHop>>>,
    asked: Instant,
) -> bool {
    let args = &errand.args;
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (mut first, mut whole) = (true, true);
    while let Some(target) = next() {
        if !first && !args.interval.is_zero() {
            tokio::time::sleep(args.interval).await;
        }
        let mut begun = FetchStart::now();
        if std::mem::take(&mut first) {
            begun = FetchStart { asked, waited: args.certificates.verify_first, ..begun };
        }
        whole &= follow(&errand, &target, begun).await;
    }
    whole
}

/// Fetches a URL, and with `-L` what its redirects lead to. Whether the last fetch succeeded.
async fn follow(errand: &Errand, first: &RedirectHop, begun: FetchStart) -> bool {
    let print = |report: &Report| report.print(errand.args.json, errand.args.aside());
    let mut report = fetch(errand, first, begun).await;
    let (mut target, mut errand) = (first.clone(), errand.clone());
    for _ in 0..redirect::LIMIT {
        let Some(next) = errand.ask.next(&target, &report) else { break };
        print(&report);
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
        report = fetch(&errand, &target, FetchStart::now()).await;
    }
    let led_on = errand.ask.next(&target, &report).is_some();
    print(&report);
    if led_on {
        output::complain(&format_args!("{}: more than {} redirects", first.url, redirect::LIMIT));
    }
    report.succeeded() && !led_on
}

impl Args {
    /// Whether an engine that the options name carries everything.
    const fn by_engine(&self) -> bool {
        self.network.has_device() || self.udp
    }

    /// `Some` if only TCP in UDP is used, to this port or, if `None`, to the one that the server publishes, or that of the URL.
    /// A request that also travels inside a lookup may wait for the resolver, so then it is `None`.
    fn only_udp(&self) -> Option<Option<u16>> {
        (self.udp && !self.via.via_dns).then_some(self.udp_port)
    }

    /// Whether it matters on which network this host is, even without a cache.
    const fn needs_network(&self) -> bool {
        match self.by_engine() {
            true => self.via.via_dns || self.certificates.certificate.is_some(),
            false => self.certificates.wanted(),
        }
    }

    /// What TLS trusts, if a URL needs it.
    fn tls(&self, targets: &[RedirectHop]) -> Result<Option<firstflight_tls::Connector>, GetError> {
        let seal = self.seal.client(targets, self.dns)?;
        let wanted = targets.iter().any(|target| target.url.is_tls());
        if self.ca_file.is_none() && !wanted && !self.ask.follow {
            return Ok(None);
        }
        let builder = firstflight_tls::Connector::builder().http1();
        let builder = seal.into_iter().fold(builder, firstflight_tls::ConnectorBuilder::seal);
        let builder = match &self.ca_file {
            Some(file) => builder.ca_file(file).map_err(GetError::Tls)?,
            None if self.ask.insecure => builder.trust_any_certificate(),
            None => builder,
        };
        match builder.build() {
            Ok(connector) => Ok(Some(connector)),
            // Only a redirect could need it.
            Err(_) if !wanted => Ok(None),
            Err(error) => Err(GetError::Tls(error)),
        }
    }

    /// Which resolver the client asks.
    fn resolver(&self, builder: ClientBuilder) -> Result<ClientBuilder, GetError> {
        match self.dns {
            // Requests inside lookups name it.
            _ if self.via.via_dns => Ok(builder),
            Some(at) => Ok(builder.resolver(names(at)?)),
            None if self.by_engine() => Ok(builder.no_resolver()),
            None => Ok(builder),
        }
    }

    /// Waits for certificates and, if requests travel inside lookups, for what the verifiers say and the servers publish.
    async fn prepare(&self, client: &Client, servers: &[Authority]) {
        let began = Instant::now();
        let ready = client.prepare_for(servers, VERIFY_FIRST).await;
        // A failure has been told.
        if !ready && began.elapsed() >= VERIFY_FIRST {
            let limit = VERIFY_FIRST.as_secs();
            output::complain(&format_args!("no certificate within {limit} s: fetching without"));
        }
    }

    /// Starts the engine that the options ask for, for connects to these servers from this network, and has the client use it.
    fn start_engine(
        &self,
        mut builder: ClientBuilder,
        network: NetworkId,
        servers: &[Authority],
    ) -> Result<(ClientBuilder, Endpoint, Capture), Error> {
        self.network.validate()?;
        let card = self.network.connect_by_card()?;
        let own = card.as_ref().map_or_else(|| self.network.addresses(), |(card, _)| card.addresses());
        let known: Vec<_> = servers.iter().filter_map(Authority::address).collect();
        let udp = match self.certificates.verifier().filter(|_| self.via.via_dns) {
            _ if !self.udp => {
                known.iter().try_for_each(|&address| can_reach(own, address))?;
                None
            }
            Some(verifier) => {
                let mut link = UdpLink::client(&[verifier]).map_err(|error| Error::Udp(verifier, error))?;
                builder = builder.inside_lookups(self.via.inside(verifier, self.dns)?.through(&mut link));
                Some(link)
            }
            None => Some(UdpLink::client(&known).map_err(GetError::UdpClient)?),
        };
        let (endpoint, capture) = self.network.start(network, udp, card)?;
        let builder = match self.udp {
            true => builder.engine_in_udp(endpoint.clone(), self.udp_port),
            false => builder.engine(endpoint.clone()),
        };
        Ok((builder, endpoint, capture))
    }

    /// What a server publishes that is known to take certificates by these verifiers.
    fn record(&self, server: &Authority, verifiers: &[VerifierId]) -> Option<Published> {
        match self.network.has_device() && !self.udp {
            true => Published::on_ip(BASE_MSS, verifiers),
            false => Published::in_udp(self.udp_port.unwrap_or(server.port()), BASE_MSS, verifiers),
        }
    }

    fn targets(&self) -> Result<Vec<RedirectHop>, GetError> {
        let parse = |text: &String| {
            let url = text.parse::<HttpUrl>();
            url.map(RedirectHop::from).map_err(|error| GetError::Url(text.clone(), error))
        };
        self.urls.iter().map(parse).collect()
    }

    /// Whether the reports leave stdout to what the server sends.
    fn aside(&self) -> bool {
        self.ask.head || self.output.as_deref().is_some_and(is_stdout)
    }

    /// Checks before anything is sent whether the files can be used.
    async fn check_files(&self) -> Result<(), Error> {
        if let Some(path) = &self.output {
            if self.urls.len() > 1 || self.repeat > 1 {
                return Err(GetError::OutputForMany.into());
            }
            FileSink::check(path).map_err(|error| Error::Output(path.clone(), error))?;
        }
        if let Some(path) = &self.upload {
            let open = firstflight_http::directory::FileBody::open(path);
            open.await.map_err(|error| GetError::Upload(path.clone(), error))?;
        }
        Ok(())
    }
}

/// The resolver that the user named.
fn names(at: SocketAddr) -> Result<Names, GetError> {
    Names::at(at).map_err(|error| GetError::Resolver(at, error))
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
