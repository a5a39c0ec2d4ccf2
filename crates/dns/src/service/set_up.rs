//! Why a front cannot be set up.

use super::ServiceError;
use crate::boot_file::BootError;
use crate::forward::ForwardError;
use crate::front::FrontError;
use crate::zone::ZoneError;
use firstflight_files::ReadError;
use firstflight_files::lines::KeyFileError;
use hickory_proto::rr::Name;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Why a front cannot be set up, or what it follows stays as it is. The caller's settings, or the files that they name, are at fault
/// unless [`SetUpError::fault`] says something else.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetUpError {
    /// A zone file cannot be read.
    #[error("cannot read the zone file {0}: {1}")]
    ReadZone(PathBuf, io::Error),
    /// A zone file is not a valid file of its zone.
    #[error("{}", zone_fault(.0, .1))]
    Zone(PathBuf, Box<(Name, ZoneError)>),
    /// A key file cannot be used.
    #[error("key file {path} {1}{advice}", path = .0.display(), advice = key_advice(.1))]
    Key(PathBuf, KeyFileError),
    /// It is unknown when the front was last started.
    #[error("the state file {0} {1}")]
    State(PathBuf, BootError),
    /// A front that sends to servers or other fronts needs a file of its starts.
    #[error("a name server that sends to others needs a file of its starts")]
    NoState,
    /// The zones and the DNS-path zone do not fit together.
    #[error("{0}")]
    Front(Box<FrontError>),
    /// The settings of the zone's other fronts are not valid.
    #[error("{0}")]
    Forward(ForwardError),
    /// Another front is at an address that cannot be reached from `listen`.
    #[error(
        "{to} cannot be reached from {listen}: give the address and port of another name server, both IPv4 or both IPv6"
    )]
    ForwardTo {
        /// The other front.
        to: SocketAddr,
        /// This one's address for other fronts.
        listen: SocketAddr,
    },
    /// Each server uses a number, counting up from that of the front, and there are too few numbers.
    #[error(
        "the number {first} leaves no numbers up to 65535 for {servers} servers, which take one each: give a smaller one"
    )]
    FrontId {
        /// The number of the front.
        first: u16,
        /// How many servers get first flights.
        servers: usize,
    },
    /// The sockets cannot be served.
    #[error("{0}")]
    Service(#[from] ServiceError),
}

/// What decides that a front cannot be set up.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault<'a> {
    /// The text of settings and files: a person has to change it.
    Text,
    /// An address, which may be free or there in a minute.
    Address(&'a io::Error),
    /// A file that cannot be read or written.
    File(&'a io::Error),
    /// Another process, or the system: it may be otherwise in a minute.
    Passing,
}

impl SetUpError {
    /// What decides it.
    #[must_use]
    pub fn fault(&self) -> Fault<'_> {
        match self {
            Self::ReadZone(_, error)
            | Self::State(_, BootError::Io(error))
            | Self::Key(_, KeyFileError::Read(ReadError::Io(error))) => Fault::File(error),
            Self::Service(
                ServiceError::Listen(_, error)
                | ServiceError::ListenForFronts(_, error)
                | ServiceError::ListenForRelays(_, error),
            ) => Fault::Address(error),
            Self::Service(_) | Self::State(_, BootError::Held) => Fault::Passing,
            _ => Fault::Text,
        }
    }
}

/// What to do about a key file that cannot be read.
const fn key_advice(error: &KeyFileError) -> &'static str {
    match error {
        KeyFileError::Read(ReadError::Io(_)) => "; make one with `firstflight dns keygen`",
        _ => "",
    }
}

/// The message about a zone file. The fault may be in a file that it includes.
fn zone_fault(path: &Path, (origin, error): &(Name, ZoneError)) -> String {
    let file = error.place.as_ref().and_then(|place| place.file.as_deref()).unwrap_or(path);
    let separator = if error.place.is_some() { ", " } else { ": " };
    format!("the zone file {} for {origin}{separator}{error}", file.display())
}
