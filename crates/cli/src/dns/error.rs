//! Why a front does not run.

use crate::key_fault::KeyFault;
use firstflight_dns::front::NearestError;
use firstflight_dns::service::ServiceError;
use firstflight_dns::{BootError, ForwardError, FrontError, KeyFileError, Name, ZoneError};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Why `dns` stopped.
#[derive(Debug)]
pub enum DnsError {
    /// There is neither an option nor a subcommand, or nothing to serve.
    Nothing,
    /// The numbers of zones and origins, given by these options, differ.
    Origins { options: (&'static str, &'static str), counts: (usize, usize) },
    /// The server, which is its own front, has no IPv4 address.
    NoAddress(IpAddr),
    /// A zone file cannot be read.
    ReadZone(PathBuf, io::Error),
    /// A zone file is not a valid file of its zone.
    Zone(PathBuf, Box<(Name, ZoneError)>),
    /// A key file, or the path for a new one.
    Key(KeyFault),
    /// A table of prefixes cannot be read.
    ReadNearest(PathBuf, io::Error),
    /// A table of prefixes is not valid.
    Nearest(PathBuf, NearestError),
    /// It is unknown when the front was last started.
    State(PathBuf, BootError),
    /// The configuration of the front is not valid.
    Front(Box<FrontError>),
    /// The configuration of the zone's other fronts is not valid.
    Forward(ForwardError),
    /// Another front is at an address that cannot be reached from `listen`.
    ForwardTo { to: SocketAddr, listen: SocketAddr },
    /// Each `--relay` uses a number, counting up from `--front-id`, and there are too few numbers.
    FrontId { first: u16, relays: usize },
    /// There is no such user.
    NoUser(String),
    /// Privileges cannot be dropped.
    Become(String, io::Error),
    /// The sockets cannot be served.
    Service(ServiceError),
    /// The system's random source failed.
    Random(io::Error),
}

impl DnsError {
    /// A key file cannot be used.
    pub fn unusable(path: &Path, error: KeyFileError) -> Self {
        Self::Key(KeyFault::Unusable(path.to_owned(), error, "firstflight dns keygen"))
    }

    /// A new key file was not written.
    pub fn not_written(path: &Path, error: io::Error) -> Self {
        Self::Key(KeyFault::not_written(path, error))
    }

    /// Returns 2 for errors that the user can correct, 1 for failures at run time.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Random(_) | Self::Service(ServiceError::System(_)) => ExitCode::from(1),
            _ => ExitCode::from(2),
        }
    }
}

impl fmt::Display for DnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => {
                f.write_str("say what to serve, with --zone FILE --origin NAME, --carriage-zone NAME or both")
            }
            Self::Origins { options: (zone, origin), counts: (zones, origins) } => write!(
                f,
                "{zones} --{zone} and {origins} --{origin}: give each zone file the name that it begins at, in the same order"
            ),
            Self::NoAddress(seen_as) => write!(
                f,
                "fragments are answered with an IPv4 address, and {seen_as} is none: give one with --carriage-address"
            ),
            Self::ReadZone(path, error) => write!(f, "cannot read the zone file {}: {error}", path.display()),
            Self::Zone(path, wrong) => {
                let (origin, error) = &**wrong;
                let path = error.place.as_ref().and_then(|place| place.file.as_ref()).unwrap_or(path);
                let separator = if error.place.is_some() { ", " } else { ": " };
                write!(f, "the zone file {} for {origin}{separator}{error}", path.display())
            }
            Self::Key(fault) => fault.fmt(f),
            Self::ReadNearest(path, error) => write!(f, "cannot read --nearest {}: {error}", path.display()),
            Self::Nearest(path, error) => write!(f, "--nearest {}: {error}", path.display()),
            Self::State(path, error) => write!(f, "the state file {} {error}", path.display()),
            Self::Front(error) => error.fmt(f),
            Self::Forward(error) => error.fmt(f),
            Self::ForwardTo { to, listen } => write!(
                f,
                "--forward-to {to} cannot be reached from --forward-listen {listen}: give the address and port of another name server, both IPv4 or both IPv6"
            ),
            Self::FrontId { first, relays } => write!(
                f,
                "--front-id {first} leaves no numbers up to 65535 for {relays} --relay, which take one each: give a smaller one"
            ),
            Self::NoUser(name) => write!(f, "there is no user {name:?}: make one, or leave --user out"),
            Self::Become(name, error) => {
                write!(f, "cannot become {name}: {error}; start as root, or leave --user out")
            }
            Self::Service(error) => error.fmt(f),
            Self::Random(error) => write!(f, "the system gives no random numbers: {error}"),
        }
    }
}

impl std::error::Error for DnsError {}
