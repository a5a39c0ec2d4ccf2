//! Why a command cannot do what was asked. Every message is one line and says what to do.

use crate::asap::InspectError;
use crate::dns::DnsError;
use crate::explain::OpenError;
use crate::get::target::TargetError;
use crate::key_fault;
use crate::serve::replays::ReplayError;
use crate::verifier::VerifierError;
use firstflight::CacheError;
use firstflight::ListenError;
use firstflight::credential::asap::TrustError;
use firstflight::credential::{ClockError, KeyParseError, ScheduleError};
use firstflight::keys::KeyFileError;
use firstflight::link::memory::MemoryLinkError;
use firstflight::link::{PcapWriterError, TunError};
use firstflight::trust::TrustFileError;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Why a command stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither a TUN device nor UDP was chosen. Contains the name of the option for UDP.
    #[error(
        "choose a link: {0} (UDP, which needs no privileges) or --tun NAME --host-ip CIDR --ip ADDR (a TUN device)"
    )]
    NoLink(&'static str),
    /// The TUN device cannot be created.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// `--ip` lies in none of the `--host-ip` networks.
    #[error(
        "--ip {0} is in no --host-ip network: give both in the same one, as in --host-ip 10.9.0.1/24 --ip 10.9.0.2"
    )]
    OutsideSubnet(IpAddr),
    /// `--ip` is the kernel's own address.
    #[error("--ip {0} is the kernel's address (--host-ip): choose another one of its network")]
    SameAddress(IpAddr),
    /// `--ip` is the network's or the broadcast address.
    #[error("--ip {0} is its network's own or broadcast address: choose another one of the network")]
    NotAHost(IpAddr),
    /// Listening failed.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, ListenError),
    /// More verifiers than a record has room for.
    #[error("a record names {0} verifiers at most: leave some out")]
    TooManyVerifiers(usize),
    /// The named resolver cannot be used.
    #[error("cannot use the resolver {0}: {1}")]
    Resolver(SocketAddr, io::Error),
    /// There is no second verifier, or it has the same address or is of another family.
    #[error("--second-verifier: name a verifier at another address of the same family than --verifier")]
    ReachPair,
    /// The system's resolver is not at a loopback address.
    #[error(
        "the system's resolver is not at a loopback address: name one with --dns, if it may be asked in clear"
    )]
    NoStub,
    /// The file of what is remembered about lookups.
    #[error("cannot use {}: {}; choose another --dns-memory", .0.display(), one_line(.1))]
    DnsMemory(PathBuf, io::Error),
    /// The UDP socket cannot be used.
    #[error("cannot use UDP {0}: {1}")]
    Udp(SocketAddr, io::Error),
    /// There are no sockets for a client over UDP.
    #[error("cannot use UDP: {0}")]
    UdpClient(io::Error),
    /// The file of keys shared with fronts.
    #[error("key file {0} {1}")]
    RelayKey(PathBuf, firstflight_dns::KeyFileError),
    /// Clients do not see the address that `--udp` names.
    #[error(
        "--udp {0} is all addresses: say with --relay-seen-as ADDR:PORT which one clients are answered from"
    )]
    RelaySeenAs(SocketAddr),
    /// The file of trusted verifiers.
    #[error("{}: {}", .0.display(), one_line(.1))]
    TrustFile(PathBuf, Box<TrustFileError>),
    /// The text is not the name of a server.
    #[error("{0}: an identity is a host name, or one with a port, as www.example.com:8080")]
    Identity(String),
    /// The server listens on all addresses and has no name.
    #[error("a server at every address is called by a name: say --identity NAME, or name one address")]
    NoIdentity,
    /// A verifier's address without its key, or an invalid key.
    #[error("{0}")]
    VerifierOption(String),
    /// The trusted verifiers contradict each other.
    #[error("{0}")]
    Trust(TrustError),
    /// There is no clock for certificates.
    #[error("the system has no clock for certificates: {0}")]
    NoClock(io::Error),
    /// `--metrics` cannot be listened on.
    #[error("--metrics {0}: {1}; give an address of this machine and a port that is free")]
    Metrics(SocketAddr, io::Error),
    /// `--root` does not exist or cannot be read.
    #[error("cannot serve {0}: {1}; name a readable directory with --root")]
    Root(PathBuf, io::Error),
    /// `--root` is a file.
    #[error("--root {0} is not a directory: name the one that holds the files")]
    RootNotDirectory(PathBuf),
    /// The text is not a key.
    #[error("{0}: {1}")]
    Key(&'static str, KeyParseError),
    /// The key file cannot be read or is not valid.
    #[error("{}", key_fault::unusable(.0, .1, "firstflight keys new -o FILE"))]
    KeyFile(PathBuf, KeyFileError),
    /// The clock is not accurate enough for a key schedule.
    #[error("{0}")]
    Clock(ClockError),
    /// The key schedule cannot be created.
    #[error("{0}")]
    Schedule(ScheduleError),
    /// `keys` was given a file that holds neither keys nor secrets.
    #[error("{0} holds neither cookie keys nor a farm secret: make one with `firstflight keys new`")]
    NotKeys(PathBuf),
    /// `keys schedule` was given a file without a farm secret.
    #[error(
        "{0} holds cookie keys, which no schedule changes: name a farm secret (`firstflight keys new --secret`)"
    )]
    NoSecret(PathBuf),
    /// `keys new -o` names a file that exists.
    #[error("{0} exists already, and its secret would be lost: choose another -o, or remove it")]
    KeyExists(PathBuf),
    /// The requested limit of executions of a first flight is not possible.
    #[error("{0}")]
    Replays(ReplayError),
    /// An error of a verifier or of a request to one.
    #[error("{0}")]
    Verifier(VerifierError),
    /// An error of the name server.
    #[error("{0}")]
    Dns(DnsError),
    /// A URL that cannot be fetched.
    #[error("{0:?}: {1}")]
    Target(String, TargetError),
    /// The resolver has no address for a name.
    #[error("cannot look up {0}: {1}; check the name, or write the server's address")]
    Lookup(String, io::Error),
    /// There is no `--ip` of the server's family.
    #[error("no route to {}: give an {} --ip (and --host-ip), such as {}", .0, family(.0).0, family(.0).1)]
    NoRoute(SocketAddr),
    /// The server is this engine itself.
    #[error("{0} is this command's own --ip: fetch from another address")]
    FetchFromSelf(IpAddr),
    /// `-o` was given for more than one fetch.
    #[error("-o takes one body: give one URL and no --repeat, or leave -o out")]
    OutputForMany,
    /// The file of `-o` cannot be written.
    #[error("cannot write {0}: {1}; choose another -o")]
    Output(PathBuf, io::Error),
    /// The file of `--upload` cannot be read.
    #[error("cannot read {0}: {1}; choose another --upload")]
    Upload(PathBuf, io::Error),
    /// The cache of cookies cannot be used.
    #[error("{}{}", .0, cache_advice(.0))]
    Cache(CacheError),
    /// The capture cannot be written.
    #[error("--pcap {0}: {1}")]
    Pcap(PathBuf, PcapWriterError),
    /// The picture of the demonstration cannot be written.
    #[error("cannot write {}: {}; choose another --timeline", .0.display(), .1)]
    Timeline(PathBuf, io::Error),
    /// The object to inspect is not an object of ASAP.
    #[error("{0}")]
    Inspect(InspectError),
    /// The file to explain is not a capture.
    #[error("{0}: {1}")]
    Capture(PathBuf, OpenError),
    /// The emulated path cannot be created.
    #[error("{0}")]
    Path(MemoryLinkError),
    /// The system's random source failed.
    #[error("the system gives no random numbers: {0}")]
    Random(io::Error),
    /// There is no runtime or no signal handler.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
    /// A visit of the demonstration failed.
    #[error("the visit {0:?} failed: {1}")]
    Demo(&'static str, io::Error),
    /// A visit of the demonstration took too long.
    #[error("the visit {:?} was not over after {} s: try less --loss or --rtt", .0, .1.as_secs())]
    DemoTimeout(&'static str, Duration),
}

impl Error {
    /// Returns 2 for errors that the user can correct, 1 for failures at run time.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Verifier(error) => error.exit_code(),
            Self::Dns(error) => error.exit_code(),
            Self::Lookup(..)
            | Self::Random(_)
            | Self::NoClock(_)
            | Self::Runtime(_)
            | Self::Demo(..)
            | Self::DemoTimeout(..) => ExitCode::from(1),
            _ => ExitCode::from(2),
        }
    }
}

/// What to do about a cache that cannot be used.
fn cache_advice(error: &CacheError) -> &'static str {
    match error {
        CacheError::Missing(_) => ": `get --cache` makes one",
        CacheError::Invalid(..) => "; remove or rename it",
        _ => "; name a file in a directory of yours",
    }
}

/// The name of the address family, and an address of it as an example.
fn family(remote: &SocketAddr) -> (&'static str, &'static str) {
    if remote.is_ipv4() { ("IPv4", "10.9.0.2") } else { ("IPv6", "fd09::2") }
}

/// An error's text without its line breaks.
fn one_line(error: &dyn fmt::Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
