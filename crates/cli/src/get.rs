//! `firstflight get`: fetches URLs, with the request in the SYN when a cookie is known.

mod background;
mod certificates;
mod error;
mod fetch;
mod memory;
mod place;
mod racing;
mod report;
#[cfg(feature = "tls")]
mod seal;
mod supply;
pub mod target;
mod verification;
mod via_dns;

pub use error::GetError;

use crate::error::Error;
use crate::file_sink::is_stdout;
use crate::network::Network;
use crate::output;
use crate::span::{self, LONGEST, MS, SECONDS};
use background::{Background, Beside, VERIFY_FIRST};
use certificates::{Certificates, Certifieds};
use clap::ArgGroup;
use fetch::{Engine, Errand, Means, find_and_fetch};
use firstflight::link::UdpLink;
use firstflight::record::Names;
use firstflight::{Client, Endpoint};
use memory::Memory;
use place::{Lookups, Place};
use report::{Begun, Print};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use supply::Supply;
use tokio::task::JoinSet;
use verification::{Messages, Verification};
use via_dns::ViaDns;

/// Fetch http:// and https:// URLs, with TCP Fast Open and ASAP
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
#[command(after_help = "\
Examples:
  firstflight get http://www.example.com/ --repeat 2
  firstflight get https://www.example.com/ --repeat 2
  firstflight get https://www.example.com/ --seal dns
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
The system's resolver looks names up, once; of several addresses the first that answers is taken (RFC 8305).
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
    /// Trust the certificate authorities in this PEM file for https:// [default: those of the system]
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    #[cfg(feature = "tls")]
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
    /// The upload may be executed twice: let its beginning ride in the SYN, as a GET does
    #[arg(long, requires = "upload")]
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
/// How long connections may take to close at the end.
const GRACE: Duration = Duration::from_secs(2);

/// Runs the command.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    let asked = Instant::now();
    match args.network.has_device() || args.udp {
        true => run_engine(args, asked).await,
        false => run_client(args, asked).await,
    }
}

/// Fetches by the system's sockets.
async fn run_client(args: Args, asked: Instant) -> Result<ExitCode, Error> {
    if args.network.records() {
        return Err(crate::network::NetworkError::NothingToRecord.into());
    }
    // The client looks names up.
    let lookups = Arc::new(Lookups::new(None, None, true));
    let places = args.places(&lookups).await?;
    args.check_files().await?;
    let network = args.memory.network(args.certificates.verifier().is_some()).await;
    let servers: Vec<_> = places.iter().map(|place| place.target().server.clone()).collect();
    let mut builder = args.memory.configure(Client::builder(), network).fast_open(!args.no_fast_open);
    builder = args.certificates.configure(builder, &servers)?;
    let mut plain = Client::builder().network(network).off(true);
    if let Some(at) = args.dns {
        let names = || Names::at(at).map_err(|error| GetError::Resolver(at, error));
        builder = builder.resolver(names()?);
        plain = plain.resolver(names()?);
    }
    let client = builder.build().map_err(Error::Cache)?;
    let plain = plain.build().map_err(Error::Cache)?;
    #[cfg(feature = "tls")]
    let tls = args.tls(&places)?;
    if args.certificates.verify_first() && !client.prepare(VERIFY_FIRST).await {
        output::complain(&format_args!(
            "no certificate within {} s: fetching without",
            VERIFY_FIRST.as_secs()
        ));
    }
    let errand = Arc::new(args.errand(Means::System {
        client: client.clone(),
        plain,
        #[cfg(feature = "tls")]
        tls,
    }));
    let all = Arc::new(args.queue(places, lookups, asked));
    args.fetch_all(&all, &errand).await;
    drop(errand);
    client.close().await;
    Ok(all.exit_code())
}

/// Fetches by an engine of this command's own.
async fn run_engine(args: Args, asked: Instant) -> Result<ExitCode, Error> {
    args.network.validate()?;
    let card = args.network.connect_by_card()?;
    let own = card.as_ref().map_or_else(|| args.network.addresses(), |(card, _)| card.addresses());
    let lookups = args.lookups(own)?;
    let places = args.places(&lookups).await?;
    #[cfg(feature = "tls")]
    if let Some(place) = places.iter().find(|place| place.target().tls) {
        return Err(GetError::TlsByEngine(place.target().url.clone()).into());
    }
    args.check_files().await?;
    let cache = args.memory.open()?;
    let verifiers = args.via()?;
    let certified = Arc::new(args.certificates.none()?);
    let (network, link) = tokio::join!(args.memory.network(args.via.wanted()), async {
        match verifiers {
            Some(([verifier, _], _)) => {
                verification::open(verifier).map(|(link, part)| (Some(link), Some(part)))
            }
            None => Ok((args.udp_link(&places, &lookups).await?, None)),
        }
    });
    let (udp, messages) = link?;
    let (endpoint, capture) = args.network.start(network, udp, card)?;
    args.memory.attach(cache, &endpoint);
    let via = match verifiers {
        Some((verifiers, resolver)) => {
            let v4 = verifiers.iter().all(SocketAddr::is_ipv4);
            let names = via_dns::Memory::open(args.memory.file(), network)?;
            Some(Arc::new(ViaDns::new(&args.via, &endpoint, v4, resolver, network, names)?))
        }
        None => None,
    };
    let beside = Beside { places: &places, lookups: &lookups, via: via.as_ref() };
    let verification = verifiers.map(|(verifiers, _)| verifiers).zip(messages);
    let background = args.begin(&endpoint, &certified, beside, verification).await?;
    let engine = Engine {
        endpoint: endpoint.clone(),
        certified,
        carrier: args.udp.then_some(args.udp_port),
        via: via.clone(),
        said: AtomicBool::new(false),
    };
    let errand = Arc::new(args.errand(Means::Engine(Box::new(engine))));
    let all = Arc::new(args.queue(places, lookups, asked));
    args.fetch_all(&all, &errand).await;
    // The fetches are done, so the background tasks are no longer needed.
    background.end().await;
    if let Some(via) = via {
        via.settled().await;
        via.save()?;
    }
    endpoint.shutdown(GRACE).await;
    capture.finish()?;
    Ok(all.exit_code())
}

/// The fetches to do.
struct Queue {
    rounds: usize,
    places: Arc<[Place]>,
    lookups: Arc<Lookups>,
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

    fn take(&self) -> Option<&Place> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let round = index.checked_div(self.places.len())?;
        if round >= self.rounds {
            return None;
        }
        self.places.get(index % self.places.len())
    }
}

/// Fetches one URL after the other until none is left. For the first fetch, the user's request is the start of the
/// command.
async fn work(queue: Arc<Queue>, errand: Arc<Errand>, interval: Duration, print: Print) {
    let mut first = true;
    while let Some(place) = queue.take() {
        let is_first = std::mem::take(&mut first);
        if !is_first && !interval.is_zero() {
            tokio::time::sleep(interval).await;
        }
        let mut begun = Begun::now();
        if is_first {
            begun = Begun { asked: queue.asked, waited: queue.waited, ..begun };
        }
        let report = find_and_fetch(&errand, place, &queue.lookups, begun).await;
        if !report.succeeded() {
            queue.failed.store(true, Ordering::Relaxed);
        }
        report.print(print);
    }
}

impl Args {
    /// What TLS trusts, if a URL needs it.
    #[cfg(feature = "tls")]
    fn tls(&self, places: &[Place]) -> Result<Option<firstflight_tls::Connector>, GetError> {
        let seal = self.seal.client(places, self.dns)?;
        if self.ca_file.is_none() && !places.iter().any(|place| place.target().tls) {
            return Ok(None);
        }
        let builder = firstflight_tls::Connector::builder().http1();
        let builder = seal.into_iter().fold(builder, firstflight_tls::ConnectorBuilder::seal);
        let builder = match &self.ca_file {
            Some(file) => builder.ca_file(file).map_err(GetError::Tls)?,
            None => builder,
        };
        builder.build().map(Some).map_err(GetError::Tls)
    }

    fn errand(&self, means: Means) -> Errand {
        Errand {
            means,
            fast_open: !self.no_fast_open,
            // GET is a safe method, PUT is not (RFC 9110 §9.2.1, RFC 8470 §4).
            replay_safe: self.replay_safe || self.upload.is_none(),
            output: self.output.clone(),
            upload: self.upload.clone(),
            timeout: self.timeout,
        }
    }

    fn queue(&self, places: Arc<[Place]>, lookups: Arc<Lookups>, asked: Instant) -> Queue {
        Queue {
            rounds: self.repeat as usize,
            places,
            lookups,
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

    /// Starts the background tasks. With `--verify-first`, waits until the verifiers' first results are available or
    /// it has taken too long.
    async fn begin(
        &self,
        endpoint: &Endpoint,
        certified: &Arc<Certifieds>,
        beside: Beside<'_>,
        verification: Option<([SocketAddr; 2], Messages)>,
    ) -> Result<Background, Error> {
        let supply = Supply::new(&self.certificates, endpoint, self.udp, Arc::clone(certified))?;
        let verification = beside.via.zip(verification).map(|(via, (verifiers, messages))| Verification {
            via: Arc::clone(via),
            messages,
            verifiers,
        });
        let first = self.certificates.verify_first();
        let mut background = Background::begin(supply, verification, beside, first);
        if first {
            background.first_results().await;
        }
        Ok(background)
    }

    /// The verifiers and the resolver of `--via-dns`.
    fn via(&self) -> Result<Option<([SocketAddr; 2], SocketAddr)>, Error> {
        let verifier = self.certificates.verifier().filter(|_| self.via.wanted());
        verifier.map(|verifier| Ok((self.via.verifiers(verifier)?, via_dns::resolver(self.dns)?))).transpose()
    }

    fn print(&self) -> Print {
        Print { json: self.json, aside: self.output.as_deref().is_some_and(is_stdout) }
    }

    /// How an engine's names are looked up: by the first fetch of each, or with `--via-dns` by every fetch.
    fn lookups(&self, own: &[IpAddr]) -> Result<Arc<Lookups>, Error> {
        let names = self.dns.filter(|_| !self.via.wanted());
        let names =
            names.map(|at| Names::at(at).map_err(|error| GetError::Resolver(at, error))).transpose()?;
        let own = (!self.udp).then(|| own.to_vec());
        Ok(Arc::new(Lookups::new(names, own, self.via.wanted())))
    }

    /// The URLs to fetch.
    async fn places(&self, lookups: &Lookups) -> Result<Arc<[Place]>, Error> {
        let mut places = Vec::with_capacity(self.urls.len());
        for url in &self.urls {
            places.push(Place::new(url, lookups).await?);
        }
        Ok(places.into())
    }

    /// The sockets for `--udp`. The first name is looked up before, because the link may be bound to the route to its
    /// server.
    async fn udp_link(&self, places: &[Place], lookups: &Lookups) -> Result<Option<UdpLink>, GetError> {
        let Some(first) = places.first().filter(|_| self.udp) else { return Ok(None) };
        let found = first.addresses(lookups, self.timeout).await;
        UdpLink::client(found).map(Some).map_err(GetError::UdpClient)
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
