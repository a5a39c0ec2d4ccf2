//! Why a command cannot do what was asked. Every message is one line and says what to do.

use crate::asap::InspectError;
use crate::dns::DnsError;
use crate::explain::OpenError;
use crate::get::target::TargetError;
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
use firstflight_files::OpenMode;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Why a command stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Neither a TUN device nor UDP was chosen. Contains the name of the option for UDP.
    NoLink(&'static str),
    /// The TUN device cannot be created.
    Tun(TunError),
    /// `--ip` lies in none of the `--host-ip` networks.
    OutsideSubnet(IpAddr),
    /// `--ip` is the kernel's own address.
    SameAddress(IpAddr),
    /// `--ip` is the network's or the broadcast address.
    NotAHost(IpAddr),
    /// Listening failed.
    Listen(SocketAddr, ListenError),
    /// More verifiers than a record has room for.
    TooManyVerifiers(usize),
    /// The named resolver cannot be used.
    Resolver(SocketAddr, io::Error),
    /// There is no second verifier, or it has the same address or is of another family.
    ReachPair,
    /// The system's resolver is not at a loopback address.
    NoStub,
    /// The file of what is remembered about lookups.
    DnsMemory(PathBuf, io::Error),
    /// The UDP socket cannot be used.
    Udp(SocketAddr, io::Error),
    /// There are no sockets for a client over UDP.
    UdpClient(io::Error),
    /// The file of keys shared with fronts.
    RelayKey(PathBuf, firstflight_dns::KeyFileError),
    /// Clients do not see the address that `--udp` names.
    RelaySeenAs(SocketAddr),
    /// The file of trusted verifiers.
    TrustFile(PathBuf, Box<TrustFileError>),
    /// The text is not the name of a server.
    Identity(String),
    /// The server listens on all addresses and has no name.
    NoIdentity,
    /// A verifier's address without its key, or an invalid key.
    VerifierOption(String),
    /// The trusted verifiers contradict each other.
    Trust(TrustError),
    /// There is no clock for certificates.
    NoClock(io::Error),
    /// `--metrics` cannot be listened on.
    Metrics(SocketAddr, io::Error),
    /// `--root` does not exist or cannot be read.
    Root(PathBuf, io::Error),
    /// `--root` is a file.
    RootNotDirectory(PathBuf),
    /// The text is not a key.
    Key(&'static str, KeyParseError),
    /// The key file cannot be read or is not valid.
    KeyFile(PathBuf, KeyFileError),
    /// The clock is not accurate enough for a key schedule.
    Clock(ClockError),
    /// The key schedule cannot be created.
    Schedule(ScheduleError),
    /// `keys` was given a file that holds neither keys nor secrets.
    NotKeys(PathBuf),
    /// `keys schedule` was given a file without a farm secret.
    NoSecret(PathBuf),
    /// `keys new -o` names a file that exists.
    KeyExists(PathBuf),
    /// The requested limit of executions of a first flight is not possible.
    Replays(ReplayError),
    /// An error of a verifier or of a request to one.
    Verifier(VerifierError),
    /// An error of the name server.
    Dns(DnsError),
    /// A URL that cannot be fetched.
    Target(String, TargetError),
    /// The resolver has no address for a name.
    Lookup(String, io::Error),
    /// There is no `--ip` of the server's family.
    NoRoute(SocketAddr),
    /// The server is this engine itself.
    FetchFromSelf(IpAddr),
    /// `-o` was given for more than one fetch.
    OutputForMany,
    /// The file of `-o` cannot be written.
    Output(PathBuf, io::Error),
    /// The file of `--upload` cannot be read.
    Upload(PathBuf, io::Error),
    /// The cache of cookies cannot be used.
    Cache(CacheError),
    /// The capture cannot be written.
    Pcap(PathBuf, PcapWriterError),
    /// The object to inspect is not an object of ASAP.
    Inspect(InspectError),
    /// The file to explain is not a capture.
    Capture(PathBuf, OpenError),
    /// The emulated path cannot be created.
    Path(MemoryLinkError),
    /// The system's random source failed.
    Random(io::Error),
    /// There is no runtime or no signal handler.
    Runtime(io::Error),
    /// A visit of the demonstration failed.
    Demo(&'static str, io::Error),
    /// A visit of the demonstration took too long.
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLink(udp) => write!(
                f,
                "choose a link: {udp} (UDP, which needs no privileges) or --tun NAME --host-ip CIDR --ip ADDR (a TUN device)"
            ),
            Self::Tun(error) => write!(f, "{error}"),
            Self::OutsideSubnet(ip) => write!(
                f,
                "--ip {ip} is in no --host-ip network: give both in the same one, as in --host-ip 10.9.0.1/24 --ip 10.9.0.2"
            ),
            Self::SameAddress(ip) => {
                write!(f, "--ip {ip} is the kernel's address (--host-ip): choose another one of its network")
            }
            Self::NotAHost(ip) => {
                write!(
                    f,
                    "--ip {ip} is its network's own or broadcast address: choose another one of the network"
                )
            }
            Self::TooManyVerifiers(most) => {
                write!(f, "a record names {most} verifiers at most: leave some out")
            }
            Self::Resolver(at, error) => write!(f, "cannot use the resolver {at}: {error}"),
            Self::ReachPair => f.write_str(
                "--second-verifier: name a verifier at another address of the same family than --verifier",
            ),
            Self::NoStub => f.write_str(
                "the system's resolver is not at a loopback address: name one with --dns, if it may be asked in clear",
            ),
            Self::DnsMemory(path, error) => write!(
                f,
                "cannot use {}: {}; choose another --dns-memory",
                path.display(),
                one_line(error)
            ),
            Self::Udp(at, error) => write!(f, "cannot use UDP {at}: {error}"),
            Self::UdpClient(error) => write!(f, "cannot use UDP: {error}"),
            Self::RelayKey(path, error) => write!(f, "key file {} {error}", path.display()),
            Self::RelaySeenAs(udp) => write!(
                f,
                "--udp {udp} is all addresses: say with --relay-seen-as ADDR:PORT which one clients are answered from"
            ),
            Self::TrustFile(path, error) => write!(f, "{}: {}", path.display(), one_line(error)),
            Self::Identity(text) => {
                write!(f, "{text}: an identity is a host name, or one with a port, as www.example.com:8080")
            }
            Self::NoIdentity => f.write_str(
                "a server at every address is called by a name: say --identity NAME, or name one address",
            ),
            Self::VerifierOption(text) => f.write_str(text),
            Self::Trust(error) => write!(f, "{error}"),
            Self::NoClock(error) => write!(f, "the system has no clock for certificates: {error}"),
            Self::Listen(at, error) => write!(f, "cannot listen on {at}: {error}"),
            Self::Metrics(at, error) => {
                write!(f, "--metrics {at}: {error}; give an address of this machine and a port that is free")
            }
            Self::Root(path, error) => {
                write!(f, "cannot serve {}: {error}; name a readable directory with --root", path.display())
            }
            Self::RootNotDirectory(path) => {
                write!(f, "--root {} is not a directory: name the one that holds the files", path.display())
            }
            Self::Key(option, error) => write!(f, "{option}: {error}"),
            Self::KeyFile(path, KeyFileError::Read(error)) => {
                write!(
                    f,
                    "cannot read the key file {}: {error}; make one with `firstflight keys new -o FILE`",
                    path.display()
                )
            }
            Self::KeyFile(path, KeyFileError::Open(mode)) => {
                write!(f, "key file {} {}", path.display(), OpenMode(*mode))
            }
            Self::KeyFile(path, error) => write!(f, "key file {}: {error}", path.display()),
            Self::Clock(error) => write!(f, "{error}"),
            Self::Schedule(error) => write!(f, "{error}"),
            Self::NotKeys(path) => write!(
                f,
                "{} holds neither cookie keys nor a farm secret: make one with `firstflight keys new`",
                path.display()
            ),
            Self::NoSecret(path) => write!(
                f,
                "{} holds cookie keys, which no schedule changes: name a farm secret (`firstflight keys new --secret`)",
                path.display()
            ),
            Self::KeyExists(path) => write!(
                f,
                "{} exists already, and its secret would be lost: choose another -o, or remove it",
                path.display()
            ),
            Self::Replays(error) => error.fmt(f),
            Self::Verifier(error) => error.fmt(f),
            Self::Dns(error) => error.fmt(f),
            Self::Target(url, error) => write!(f, "{url:?}: {error}"),
            Self::Lookup(name, error) => {
                write!(f, "cannot look up {name}: {error}; check the name, or write the server's address")
            }
            Self::NoRoute(remote) => {
                let (family, example) =
                    if remote.is_ipv4() { ("IPv4", "10.9.0.2") } else { ("IPv6", "fd09::2") };
                write!(f, "no route to {remote}: give an {family} --ip (and --host-ip), such as {example}")
            }
            Self::FetchFromSelf(ip) => {
                write!(f, "{ip} is this command's own --ip: fetch from another address")
            }
            Self::OutputForMany => {
                f.write_str("-o takes one body: give one URL and no --repeat, or leave -o out")
            }
            Self::Output(path, error) => {
                write!(f, "cannot write {}: {error}; choose another -o", path.display())
            }
            Self::Upload(path, error) => {
                write!(f, "cannot read {}: {error}; choose another --upload", path.display())
            }
            Self::Cache(error @ CacheError::Missing(_)) => write!(f, "{error}: `get --cache` makes one"),
            Self::Cache(error @ CacheError::Invalid(..)) => write!(f, "{error}; remove or rename it"),
            Self::Cache(error) => write!(f, "{error}; name a file in a directory of yours"),
            Self::Pcap(path, error) => write!(f, "--pcap {}: {error}", path.display()),
            Self::Inspect(error) => error.fmt(f),
            Self::Capture(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Path(error) => write!(f, "{error}"),
            Self::Random(error) => write!(f, "the system gives no random numbers: {error}"),
            Self::Runtime(error) => write!(f, "cannot start: {error}"),
            Self::Demo(mode, error) => write!(f, "the visit {mode:?} failed: {error}"),
            Self::DemoTimeout(mode, after) => {
                write!(
                    f,
                    "the visit {mode:?} was not over after {} s: try less --loss or --rtt",
                    after.as_secs()
                )
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<TunError> for Error {
    fn from(error: TunError) -> Self {
        Self::Tun(error)
    }
}

/// An error's text without its line breaks.
fn one_line(error: &dyn fmt::Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
