//! Why a front does not run.

use crate::error::{CommandError, Renamed};
use firstflight_daemon::{ExitKind, KeyFault, UserError};
use firstflight_dns::KeyFileError;
use firstflight_dns::front::NearestError;
use firstflight_dns::service::{Fault, SetUpError};
use std::io;
use std::path::{Path, PathBuf};

/// Why `dns` stopped.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// There is neither an option nor a subcommand, or nothing to serve.
    #[error("say what to serve, with --zone FILE --origin NAME, --dns-path-zone NAME or both")]
    Nothing,
    /// An option has another name now.
    #[error(transparent)]
    Renamed(#[from] Renamed),
    /// The numbers of zones and origins, given by these options, differ.
    #[error(
        "{} --{} and {} --{}: give each zone file the name that it begins at, in the same order",
        .counts.0, .options.0, .counts.1, .options.1
    )]
    Origins { options: (&'static str, &'static str), counts: (usize, usize) },
    /// The front cannot be set up.
    #[error("{}", set_up(.0))]
    SetUp(#[from] SetUpError),
    /// A key file, or the path for a new one.
    #[error("{0}")]
    Key(KeyFault),
    /// A table of prefixes cannot be read.
    #[error("cannot read --nearest {0}: {1}")]
    ReadNearest(PathBuf, io::Error),
    /// A table of prefixes is not valid.
    #[error("--nearest {0}: {1}")]
    Nearest(PathBuf, NearestError),
    /// The user of `--user`.
    #[error("--user: {}{}", .0, user_advice(.0))]
    User(UserError),
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
}

impl CommandError for DnsError {
    fn exit_kind(&self) -> ExitKind {
        match self {
            Self::SetUp(error) => match error.fault() {
                Fault::Address(error) => ExitKind::of_address(error),
                Fault::File(error) => ExitKind::of_file(error),
                Fault::Passing => ExitKind::Failure,
                _ => ExitKind::Mistake,
            },
            Self::Random(_) => ExitKind::Failure,
            Self::ReadNearest(_, error) => ExitKind::of_file(error),
            Self::Key(error) => error.exit_kind(),
            Self::User(error) => error.exit_kind(),
            _ => ExitKind::Mistake,
        }
    }
}

/// The message about a front that cannot be set up, with the options that say otherwise.
fn set_up(error: &SetUpError) -> String {
    match error {
        SetUpError::ForwardTo { to, listen } => format!(
            "--forward-to {to} cannot be reached from --forward-listen {listen}: give the address and port of another name \
             server, both IPv4 or both IPv6"
        ),
        SetUpError::FrontId { first, servers } => format!(
            "--front-id {first} leaves no numbers up to 65535 for {servers} --relay, which take one each: give a smaller one"
        ),
        error => error.to_string(),
    }
}

/// What to do about a user that the process cannot become.
const fn user_advice(error: &UserError) -> &'static str {
    match error {
        UserError::NoUser(_) => ": make one, or leave --user out",
        _ => "; start as root, or leave --user out",
    }
}
