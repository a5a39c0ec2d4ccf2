//! `firstflight demo`: shows what a round trip costs, in one process and without any set-up.

mod certified;
mod clock;
mod error;
mod lookup;
mod overheard;
mod site;
mod table;
mod timeline;
mod tls;
mod world;

pub use error::DemoError;

use crate::error::Error;
use crate::network::Capture;
use crate::output;
use crate::span::{self, MS};
use certified::{DemoCertificate, Wallet};
use clock::DemoClock;
use firstflight::link::PathConfig;
use firstflight::{ConnectConfig, Endpoint, FirstFlight, Stream, Time};
use firstflight_wire::Instant;
use lookup::{LookupCase, Lookups};
use overheard::{Overheard, Spy};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use site::DemoSite;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use timeline::{PacketPlace, Timeline};
use tokio::io::{AsyncRead, AsyncReadExt};
use world::{
    CERTIFICATES, CLIENT, COOKIES, PIECE, SITE, TLS, UDP_PORT, UNKNOWN, Visit, draw, engine, find_blank_line,
};

/// See what a round trip costs: the same page by an ordinary handshake, by Fast Open and by ASAP
///
/// Client and server run in this process, joined by an emulated path. Nothing is sent to any network
/// and no privilege is needed. The client's certificates were obtained before, from verifiers in the same
/// process. Time is virtual: packets take time on the path, computation takes none, and the command does not wait. The
/// same seed gives the same result on every machine.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight demo
  firstflight demo --rtt 250 --loss 2
  firstflight demo --real-time             use the system's clock instead of virtual time
  firstflight demo --json
  firstflight demo --pcap demo.pcapng      then open the file in Wireshark
  firstflight demo --timeline flights.svg  then open the file in a browser")]
pub struct Args {
    /// Round-trip time of the path, 1ms to 10s; a number without a unit is milliseconds
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = span::or_bare(MS, LEAST_RTT..=MOST_RTT))]
    rtt: Duration,
    /// Packets lost in either direction, percent (0 to 50)
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    loss: f64,
    /// Size of the object, bytes (at most 1 GiB)
    #[arg(long, value_name = "BYTES", default_value_t = 11 * 1024, value_parser = clap::value_parser!(u64).range(..=1 << 30))]
    size: u64,
    /// Seed of the losses [default: a random one, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Use the system's clock: wait for every packet, and include the machine's own time
    #[arg(long)]
    real_time: bool,
    /// Print a JSON array instead of a table
    #[arg(long)]
    json: bool,
    /// Record the client's packets into this pcapng file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Draw the packets of the first flights, beside those of a handshake, into this SVG file
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
}

fn percent(text: &str) -> Result<f64, &'static str> {
    let value = text.parse().ok().filter(|value| (0.0..=50.0).contains(value));
    value.ok_or("a number from 0 to 50 belongs here")
}

const LEAST_RTT: Duration = Duration::from_millis(1);
const MOST_RTT: Duration = Duration::from_secs(10);

const REQUEST: &[u8] = b"GET /object HTTP/1.1\r\nHost: 192.0.2.80\r\nConnection: close\r\n\r\n";

/// A visit that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(300);

/// The visits to show, in this order.
const MODES: &[Mode] = &[
    Mode::new("handshake", "ordinary handshake", COOKIES),
    Mode { fast_open: true, ..Mode::new("fast-open-first", "Fast Open, first visit", COOKIES) },
    Mode { fast_open: true, ..Mode::new("fast-open-next", "Fast Open, next visit", COOKIES) },
    Mode {
        asap: Some(DemoCertificate::TRUSTED),
        ..Mode::new("asap-first", "ASAP, first contact", CERTIFICATES)
    },
    Mode {
        asap: Some(DemoCertificate::TRUSTED),
        ..Mode::new("asap-next", "ASAP, next contact", CERTIFICATES)
    },
    Mode {
        asap: Some(DemoCertificate::UNASKED),
        ..Mode::new("asap-unknown", "ASAP, unknown server", UNKNOWN)
    },
    Mode {
        asap: Some(DemoCertificate::STRANGER),
        ..Mode::new("asap-untrusted", "ASAP, not trusted", CERTIFICATES)
    },
    Mode {
        asap: Some(DemoCertificate::REPLAYED),
        ..Mode::new("asap-replayed", "ASAP, replayed", CERTIFICATES)
    },
    Mode::new("udp-handshake", "in UDP: handshake", CERTIFICATES).in_udp(),
    Mode {
        asap: Some(DemoCertificate::TRUSTED),
        ..Mode::new("udp-asap-first", "in UDP: ASAP, first", CERTIFICATES).in_udp()
    },
    Mode {
        asap: Some(DemoCertificate::TRUSTED),
        ..Mode::new("udp-asap-next", "in UDP: ASAP, next", CERTIFICATES).in_udp()
    },
    Mode {
        asap: Some(DemoCertificate::UNASKED),
        ..Mode::new("udp-asap-unknown", "in UDP: unknown server", UNKNOWN).in_udp()
    },
    Mode {
        asap: Some(DemoCertificate::STRANGER),
        ..Mode::new("udp-asap-untrusted", "in UDP: not trusted", CERTIFICATES).in_udp()
    },
    Mode {
        asap: Some(DemoCertificate::REPLAYED),
        ..Mode::new("udp-asap-replayed", "in UDP: replayed", CERTIFICATES).in_udp()
    },
    Mode { learns: true, ..Mode::new("site-first", "site's verifier: 1st visit", SITE[0]).in_udp() },
    Mode {
        asap: Some(DemoCertificate::LEARNT),
        ..Mode::new("site-other", "… its other host, first", SITE[1]).in_udp()
    },
    // The cases of the thesis' Figure 7.1.
    Mode::new("cached-handshake", "name cached: handshake", COOKIES).looked_up(LookupCase::Cached),
    Mode {
        fast_open: true,
        ..Mode::new("cached-fast-open", "… Fast Open", COOKIES).looked_up(LookupCase::Cached)
    },
    Mode {
        asap: Some(DemoCertificate::TRUSTED),
        ..Mode::new("cached-asap", "… ASAP in the SYN", CERTIFICATES).looked_up(LookupCase::Cached)
    },
    Mode {
        asap: Some(DemoCertificate::TRUSTED),
        inside: true,
        ..Mode::new("cached-inside", "… ASAP in the lookup", CERTIFICATES)
            .looked_up(LookupCase::Cached)
            .in_udp()
    },
    Mode::new("near-handshake", "name server near: handshake", COOKIES).looked_up(LookupCase::Near),
    Mode {
        fast_open: true,
        ..Mode::new("near-fast-open", "… Fast Open", COOKIES).looked_up(LookupCase::Near)
    },
    Mode {
        asap: Some(DemoCertificate::TRUSTED),
        ..Mode::new("near-asap", "… ASAP in the SYN", CERTIFICATES).looked_up(LookupCase::Near)
    },
    Mode {
        asap: Some(DemoCertificate::TRUSTED),
        inside: true,
        ..Mode::new("near-inside", "… ASAP in the lookup", CERTIFICATES).looked_up(LookupCase::Near).in_udp()
    },
    Mode::new("far-handshake", "name server far: handshake", COOKIES).looked_up(LookupCase::Far),
    Mode {
        fast_open: true, ..Mode::new("far-fast-open", "… Fast Open", COOKIES).looked_up(LookupCase::Far)
    },
    Mode {
        asap: Some(DemoCertificate::TRUSTED),
        ..Mode::new("far-asap", "… ASAP in the SYN", CERTIFICATES).looked_up(LookupCase::Far)
    },
    Mode {
        asap: Some(DemoCertificate::TRUSTED),
        inside: true,
        ..Mode::new("far-inside", "… ASAP in the lookup", CERTIFICATES).looked_up(LookupCase::Far).in_udp()
    },
    Mode { tls: Some(Session::None), ..Mode::new("tls-handshake", "TLS after a handshake", TLS) },
    Mode {
        asap: Some(DemoCertificate::TRUSTED),
        tls: Some(Session::None),
        ..Mode::new("tls-asap-first", "… hello in the SYN", TLS)
    },
    Mode {
        asap: Some(DemoCertificate::TRUSTED),
        tls: Some(Session::Ticket),
        ..Mode::new("tls-asap-ticket", "… with a ticket", TLS)
    },
];

/// Which session a client of TLS resumes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Session {
    None,
    Ticket,
}

/// One kind of visit.
#[derive(Clone, Copy)]
struct Mode {
    label: &'static str,
    title: &'static str,
    server: SocketAddr,
    fast_open: bool,
    asap: Option<DemoCertificate>,
    udp: bool,
    /// The client gets a certificate of the site's verifier behind it.
    learns: bool,
    /// The server's name is looked up first.
    lookup: Option<LookupCase>,
    /// The request travels inside the lookup.
    inside: bool,
    /// It travels by TLS.
    tls: Option<Session>,
}

impl Mode {
    const fn new(label: &'static str, title: &'static str, server: SocketAddr) -> Self {
        Self {
            label,
            title,
            server,
            fast_open: false,
            asap: None,
            udp: false,
            learns: false,
            lookup: None,
            inside: false,
            tls: None,
        }
    }

    fn config(&self, wallet: &Wallet) -> io::Result<ConnectConfig> {
        let asap = self.asap.map(|shown| wallet.show(shown, self.server)).transpose()?;
        let encapsulation = self.udp.then_some(UDP_PORT);
        Ok(ConnectConfig::default().fast_open(self.fast_open).asap(asap).encapsulation(encapsulation))
    }

    const fn in_udp(self) -> Self {
        Self { udp: true, ..self }
    }

    const fn looked_up(self, case: LookupCase) -> Self {
        Self { lookup: Some(case), ..self }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let clock = DemoClock::new(args.real_time);
    clock.block_on(visit_all(args, &clock))?;
    Ok(ExitCode::SUCCESS)
}

async fn visit_all(args: &Args, clock: &DemoClock) -> Result<(), Error> {
    let seed = match args.seed {
        Some(seed) => seed,
        // 32 bits, which every JSON reader represents exactly. The key of a fresh hasher is different every time.
        None => RandomState::new().build_hasher().finish() & 0xffff_ffff,
    };
    let rtt = args.rtt;
    let path = PathConfig::with_delay(rtt / 2).loss(args.loss / 100.0);
    // The keys are not secret here: they are derived from the seed.
    let mut seeds = ChaCha20Rng::seed_from_u64(seed);
    let (time, (near, far)) = (clock.time(), clock.pair(&path, seed)?);
    let mut timeline = Timeline::create(args.timeline.as_deref(), rtt, &time)?;
    let (near, far) = (timeline.watch(PacketPlace::Client, near), timeline.watch(PacketPlace::Server, far));
    let capture = Capture::in_time(args.pcap.as_deref(), "client", time.clone())?;
    let spy = Arc::new(Spy::default());
    let link = capture.tap(Overheard::new(near, Arc::clone(&spy)));
    let client = Endpoint::in_time(engine(vec![CLIENT], &mut seeds)?, link, &time);
    let site = DemoSite::open(far, args.size, &time, &mut seeds)?;
    let mut wallet = Wallet::new(CLIENT, &time, &mut seeds)?;
    let mut own = ChaCha20Rng::from_seed(draw(&mut seeds));

    let connector = tls::connector(&time).map_err(DemoError::Tls)?;
    let lookups = Lookups::open(&client, wallet.trusted(), site.endpoint(), rtt, timeline.log(), seeds)?;
    let mut visits = Vec::with_capacity(MODES.len());
    for mode in MODES {
        let before = site.executed();
        spy.replays(mode.asap.is_some_and(|shown| shown.replayed));
        timeline.begin(mode.label);
        let visiting = async {
            if let Some(session) = mode.tls {
                return visit_by_tls(&client, mode, &wallet, session, &connector).await;
            }
            visit(&client, mode, &wallet, &lookups).await
        };
        let visit = time
            .timeout(PATIENCE, Box::pin(visiting))
            .await
            .ok_or(DemoError::VisitTimeout(mode.label, PATIENCE))?
            .map_err(|error| DemoError::Visit(mode.label, error))?;
        timeline.end(mode.label);
        if mode.learns {
            wallet.learn(CLIENT, &mut own)?;
        }
        if mode.asap.is_some_and(|shown| shown.replayed) {
            // If the copy were executed, that would have happened by now.
            time.sleep(rtt).await;
        }
        visits.push(Visit {
            mode: mode.label,
            title: mode.title,
            first_byte_ms: output::millis(visit.first_byte),
            first_byte_rtts: (visit.first_byte.div_duration_f64(rtt) * 1e4).round() / 1e4,
            total_ms: output::millis(visit.total),
            bytes: visit.bytes,
            outcome: visit.outcome,
            reason: visit.reason,
            executed: site.executed() - before,
            seed,
        });
    }
    timeline.finish(&visits)?;
    if args.json {
        output::json(&visits);
    } else {
        output::line(&table::Table { rtt, loss: args.loss, seed, visits: &visits });
    }
    // Lets the last FINs arrive, so that the capture contains them.
    client.shutdown(rtt * 2).await;
    Ok(capture.finish()?)
}

/// The measurements of one visit.
struct MeasuredVisit {
    first_byte: Duration,
    total: Duration,
    bytes: u64,
    outcome: &'static str,
    reason: Option<&'static str>,
}

async fn visit(
    client: &Endpoint,
    mode: &Mode,
    wallet: &Wallet,
    lookups: &Lookups,
) -> io::Result<MeasuredVisit> {
    let config = mode.config(wallet)?;
    if let Some(case) = mode.lookup {
        lookups.set(case);
    }
    let first = FirstFlight::safely_replayable(REQUEST);
    let time = client.time();
    let began = time.now();
    let mut stream = if mode.inside {
        lookups.connect(first).await?
    } else {
        if mode.lookup.is_some() {
            lookups.addresses().await?;
        }
        client.connect(mode.server, first, &config).await?
    };
    receive(&mut stream, &time, began).await.map(|received| received.by(&stream))
}

async fn visit_by_tls(
    client: &Endpoint,
    mode: &Mode,
    wallet: &Wallet,
    session: Session,
    connector: &firstflight_tls::Connector,
) -> io::Result<MeasuredVisit> {
    let config = mode.config(wallet)?;
    if session == Session::None {
        connector.forget();
    }
    let time = client.time();
    let began = time.now();
    let first = FirstFlight::safely_replayable(REQUEST);
    let mut stream = tls::connect(connector, client, first, &config).await?;
    receive(&mut stream, &time, began).await.map(|received| received.by(stream.io()))
}

/// How a response was received.
struct ReceivedResponse {
    first_byte: Duration,
    total: Duration,
    bytes: u64,
}

impl ReceivedResponse {
    fn by(self, stream: &Stream) -> MeasuredVisit {
        let Self { first_byte, total, bytes } = self;
        let outcome = stream.outcome();
        let reason = outcome.reason().map(|reason| reason.as_str());
        MeasuredVisit { first_byte, total, bytes, outcome: outcome.as_str(), reason }
    }
}

/// Reads the response, which was asked for when it `began`.
async fn receive<S: AsyncRead + Unpin>(
    stream: &mut S,
    time: &Time,
    began: Instant,
) -> io::Result<ReceivedResponse> {
    let mut buffer = vec![0; PIECE];
    let mut filled = stream.read(&mut buffer).await?;
    let first_byte = time.now() - began;
    let head = loop {
        let read = buffer.get(..filled).unwrap_or_default();
        if let Some(end) = find_blank_line(read) {
            break end;
        }
        let room = buffer.get_mut(filled..).unwrap_or_default();
        let n = stream.read(room).await?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += n;
    };
    let mut bytes = (filled - head) as u64;
    loop {
        match stream.read(&mut buffer).await? {
            0 => break,
            n => bytes += n as u64,
        }
    }
    let total = time.now() - began;
    Ok(ReceivedResponse { first_byte, total, bytes })
}
