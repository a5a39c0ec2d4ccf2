//! Why a command cannot do what was asked. Every message is one line and says what to do.
//!
//! The errors of one command are beside the command. This file holds those of several commands.

use firstflight::CacheError;
use firstflight::ListenError;
use firstflight::keys::KeyFileError;
use firstflight_daemon::{ExitKind, unusable};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// An option has another name.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} is {1} now: --key is a key itself everywhere, --key-file a file that is read, -o one that is written"
)]
pub struct Renamed(pub &'static str, pub &'static str);

pub trait CommandError: std::error::Error + Send + Sync + 'static {
    /// Whether it is a mistake.
    fn exit_kind(&self) -> ExitKind {
        ExitKind::Mistake
    }
}

/// Why a command stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error that only one command has.
    #[error("{0}")]
    Command(Box<dyn CommandError>),
    /// An error of the file of `--config`.
    #[error(transparent)]
    Config(#[from] firstflight_daemon::config::ConfigError),
    /// `--print-config` with a certificate that ends with the command.
    #[error(
        "--tls-self-signed makes a certificate that ends with the command, so no file can name it: make one that stays with \
         `firstflight test-certificate localhost`, and give --tls-cert localhost.pem --tls-key localhost.key"
    )]
    NothingToPrint,
    /// Listening failed.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, ListenError),
    /// The UDP socket cannot be used.
    #[error("cannot use UDP {0}: {1}")]
    Udp(SocketAddr, io::Error),
    /// The key file cannot be read or is not valid.
    #[error("{}", unusable(.0, .1, "firstflight keys new -o FILE"))]
    KeyFile(PathBuf, KeyFileError),
    /// The file of `-o` cannot be written.
    #[error("cannot write {0}: {1}; choose another -o")]
    Output(PathBuf, io::Error),
    /// The file of a picture cannot be written.
    #[error("cannot write {0}: {1}; choose another --svg")]
    Picture(PathBuf, io::Error),
    /// A manual page cannot be written.
    #[error("cannot write {0}: {1}; choose another --to")]
    Page(PathBuf, io::Error),
    /// `man` is asked for the page of a command that there is not.
    #[error("{0} has no command {1:?}")]
    NoCommand(String, String),
    /// The cache of cookies cannot be used.
    #[error("{}{}", .0, cache_advice(.0))]
    Cache(CacheError),
    /// The system's random source failed.
    #[error("the system gives no random numbers: {0}")]
    Random(io::Error),
    /// There is no runtime or no signal handler.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
}

impl<E: CommandError> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Command(Box::new(error))
    }
}

impl Error {
    /// The exit code: see [`ExitKind`].
    pub fn exit_code(&self) -> ExitCode {
        self.exit_kind().exit_code()
    }

    fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Config(error) => error.exit_kind(),
            Self::Command(error) => error.exit_kind(),
            Self::Udp(_, error) => ExitKind::of_address(error),
            Self::KeyFile(_, error) => ExitKind::of_key_file(error),
            Self::Output(_, error)
            | Self::Picture(_, error)
            | Self::Page(_, error)
            | Self::Cache(CacheError::Read(_, error) | CacheError::Write(_, error)) => {
                ExitKind::of_file(error)
            }
            Self::Random(_) | Self::Runtime(_) => ExitKind::Failure,
            _ => ExitKind::Mistake,
        }
    }
}

/// What to do about a cache that cannot be used.
fn cache_advice(error: &CacheError) -> &'static str {
    match error {
        CacheError::Missing(_) => ": `get --cache` makes one",
        CacheError::Invalid(..) => "; remove or rename it",
        CacheError::Newer(..) => "; name another file, or use that program",
        _ => "; name a file in a directory of yours",
    }
}

/// An error's text without its line breaks.
pub fn one_line(error: &dyn fmt::Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
