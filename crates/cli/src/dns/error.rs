//! Why a front does not run.

use firstflight_daemon::{ExitKind, KeyFault, UserError};
use firstflight_dns::front::NearestError;
use firstflight_dns::service::ServiceError;
use firstflight_dns::{BootError, ForwardError, FrontError, KeyFileError, Name, ZoneError};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Why `dns` stopped.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// There is neither an option nor a subcommand, or nothing to serve.
    #[error("say what to serve, with --zone FILE --origin NAME, --carriage-zone NAME or both")]
    Nothing,
    /// The numbers of zones and origins, given by these options, differ.
    #[error(
        "{} --{} and {} --{}: give each zone file the name that it begins at, in the same order",
        .counts.0, .options.0, .counts.1, .options.1
    )]
    Origins { options: (&'static str, &'static str), counts: (usize, usize) },
    /// The server, which is its own front, has no IPv4 address.
    #[error("fragments are answered with an IPv4 address, and {0} is none: give one with --carriage-address")]
    NoAddress(IpAddr),
    /// A zone file cannot be read.
    #[error("cannot read the zone file {0}: {1}")]
    ReadZone(PathBuf, io::Error),
    /// A zone file is not a valid file of its zone.
    #[error("{}", zone_fault(.0, .1))]
    Zone(PathBuf, Box<(Name, ZoneError)>),
    /// A key file, or the path for a new one.
    #[error("{0}")]
    Key(KeyFault),
    /// A table of prefixes cannot be read.
    #[error("cannot read --nearest {0}: {1}")]
    ReadNearest(PathBuf, io::Error),
    /// A table of prefixes is not valid.
    #[error("--nearest {0}: {1}")]
    Nearest(PathBuf, NearestError),
    /// It is unknown when the front was last started.
    #[error("the state file {0} {1}")]
    State(PathBuf, BootError),
    /// The configuration of the front is not valid.
    #[error("{0}")]
    Front(Box<FrontError>),
    /// The configuration of the zone's other fronts is not valid.
    #[error("{0}")]
    Forward(ForwardError),
    /// Another front is at an address that cannot be reached from `listen`.
    #[error(
        "--forward-to {to} cannot be reached from --forward-listen {listen}: give the address and port of another name server, both IPv4 or both IPv6"
    )]
    ForwardTo { to: SocketAddr, listen: SocketAddr },
    /// Each `--relay` uses a number, counting up from `--front-id`, and there are too few numbers.
    #[error(
        "--front-id {first} leaves no numbers up to 65535 for {relays} --relay, which take one each: give a smaller one"
    )]
    FrontId { first: u16, relays: usize },
    /// The user of `--user`.
    #[error("--user: {}{}", .0, user_advice(.0))]
    User(UserError),
    /// The sockets cannot be served.
    #[error("{0}")]
    Service(ServiceError),
    /// The system's random source failed.
    #[error("the system gives no random numbers: {0}")]
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

    /// Whether it is a mistake.
    pub fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Random(_) | Self::Service(ServiceError::System(_)) | Self::State(_, BootError::Held) => {
                ExitKind::Failure
            }
            Self::Service(ServiceError::Listen(_, error) | ServiceError::ListenForFronts(_, error)) => {
                ExitKind::of_address(error)
            }
            Self::ReadZone(_, error) | Self::ReadNearest(_, error) | Self::State(_, BootError::Io(error)) => {
                ExitKind::of_file(error)
            }
            Self::Key(error) => error.exit_kind(),
            Self::User(error) => error.exit_kind(),
            _ => ExitKind::Mistake,
        }
    }
}

/// What to do about a user that the process cannot become.
const fn user_advice(error: &UserError) -> &'static str {
    match error {
        UserError::NoUser(_) => ": make one, or leave --user out",
        _ => "; start as root, or leave --user out",
    }
}

/// The message about a zone file. The fault may be in a file that it includes.
fn zone_fault(path: &Path, (origin, error): &(Name, ZoneError)) -> String {
    let file = error.place.as_ref().and_then(|place| place.file.as_deref()).unwrap_or(path);
    let separator = if error.place.is_some() { ", " } else { ": " };
    format!("the zone file {} for {origin}{separator}{error}", file.display())
}
