//! Why a command cannot do what was asked. Every message is one line and says what to do.
//!
//! The errors of one command are beside the command. This file holds those of several commands.

use crate::asap::AsapError;
use crate::demo::DemoError;
use crate::dns::DnsError;
use crate::explain::ExplainError;
use crate::get::GetError;
use crate::keys::KeysError;
use crate::measure::MeasureError;
use crate::network::NetworkError;
use crate::proxy::ProxyError;
use crate::seal::SealError;
use crate::serve::ServeError;
use crate::verifier::VerifierError;
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

/// Why a command stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of `asap`.
    #[error(transparent)]
    Asap(#[from] AsapError),
    /// An error of the file of `--config`.
    #[error(transparent)]
    Config(#[from] firstflight_daemon::config::ConfigError),
    /// An error of `demo`.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// An error of `explain`.
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// An error of `gateway`.
    #[error(transparent)]
    Gateway(#[from] firstflight_gateway::RunError),
    /// An error of `gateway health`.
    #[error(transparent)]
    Health(#[from] firstflight_gateway::HealthError),
    /// An error of `get`.
    #[error(transparent)]
    Get(#[from] GetError),
    /// An error of `keys`.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// An error of `measure`.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// An error of `proxy`.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// An error of `seal`.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// An error of `test-certificate`.
    #[error(transparent)]
    TestCertificate(#[from] crate::test_certificate::CertificateError),
    /// An error of `--tls-self-signed`.
    #[error(transparent)]
    SelfSigned(#[from] crate::self_signed::SelfSignedError),
    /// `--print-config` with a certificate that ends with the command.
    #[error(
        "--tls-self-signed makes a certificate that ends with the command, so no file can name it: make one that stays with \
         `firstflight test-certificate localhost`, and give --tls-cert localhost.pem --tls-key localhost.key"
    )]
    NothingToPrint,
    /// An error of `serve`.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// An error of the options of links.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// An error of a verifier or of a request to one.
    #[error(transparent)]
    Verifier(#[from] VerifierError),
    /// An error of the name server.
    #[error(transparent)]
    Dns(#[from] DnsError),
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

impl Error {
    /// The exit code: see [`ExitKind`].
    pub fn exit_code(&self) -> ExitCode {
        self.exit_kind().exit_code()
    }

    fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Config(error) => error.exit_kind(),
            Self::Demo(error) => error.exit_kind(),
            Self::Gateway(error) => error.exit_kind(),
            Self::Get(error) => error.exit_kind(),
            Self::Health(error) => error.exit_kind(),
            Self::Verifier(error) => error.exit_kind(),
            Self::Dns(error) => error.exit_kind(),
            Self::Network(error) => error.exit_kind(),
            Self::Proxy(error) => error.exit_kind(),
            Self::Seal(error) => error.exit_kind(),
            Self::SelfSigned(error) => error.exit_kind(),
            Self::TestCertificate(error) => error.exit_kind(),
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
