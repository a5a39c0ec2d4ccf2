//! Why `get` cannot do what was asked.

use crate::error::CommandError;
use firstflight_daemon::ExitKind;
use firstflight_http::url::UrlError;
use firstflight_seal::RecordFileError;
use firstflight_verifier::{GroupError, KeptError};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Why `get` stopped.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// A URL that cannot be fetched.
    #[error("{0:?}: {1}")]
    Url(String, UrlError),
    /// TLS cannot be used.
    #[error("{0}")]
    Tls(firstflight_tls::ConfigError),
    /// `--seal` without a URL of TLS.
    #[error("--seal is for https:// URLs, and there is none")]
    NothingToSeal,
    /// The file of `--seal` has no record.
    #[error("--seal: {} {}", .0.display(), .1)]
    SealRecord(PathBuf, RecordFileError),
    /// The system's resolver cannot be used.
    #[error("cannot use the system's resolver: {0}; name one with --dns")]
    SystemResolver(io::Error),
    /// `-o` was given for more than one fetch.
    #[error("-o takes one body: give one URL and no --repeat, or leave -o out")]
    OutputForMany,
    /// The file of `--upload` cannot be read.
    #[error("cannot read {0}: {1}; choose another --upload")]
    Upload(PathBuf, io::Error),
    /// The server is this engine itself.
    #[error("{0} is this command's own --ip: fetch from another address")]
    FetchFromSelf(IpAddr),
    /// There is no `--ip` of the server's family.
    #[error("no route to {}: give an {} --ip (and --host-ip), such as {}", .0, family(.0).0, family(.0).1)]
    NoRoute(SocketAddr),
    /// There are no sockets for a client over UDP.
    #[error("cannot use UDP: {0}")]
    UdpClient(io::Error),
    /// The file of `--group` cannot be used.
    #[error("{}: {}", .0.display(), .1)]
    Group(PathBuf, GroupError),
    /// There are not as many keys as verifiers.
    #[error("give a --verifier-key for each --verifier, in the same order")]
    VerifierKeys,
    /// There is no saying whose vantage points they are.
    #[error("--group is about one verifier: give one, or leave it out")]
    GroupOfMany,
    /// The questions about this network are asked at addresses.
    #[error("--verifier: --via-dns needs an address, as 192.0.2.1:4433")]
    NameViaDns,
    /// A certificate in a file cannot be used.
    #[error("{0}")]
    Kept(KeptError),
    /// A key is shown to one site only.
    #[error(
        "--certificate: the URLs are of several sites, and a key is shown to one site only: use --verifier"
    )]
    KeptSites,
    /// The named resolver cannot be used.
    #[error("cannot use the resolver {0}: {1}")]
    Resolver(SocketAddr, io::Error),
    /// The system's resolver is not at a loopback address.
    #[error(
        "the system's resolver is not at a loopback address: name one with --dns, if it may be asked in clear"
    )]
    NoStub,
    /// There is no second verifier, or it has the same address or is of another family.
    #[error("--second-verifier: name a verifier at another address of the same family than --verifier")]
    ReachPair,
}

impl CommandError for GetError {
    fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Kept(KeptError::Read(_, error) | KeptError::Write(_, error)) => ExitKind::of_file(error),
            // The other program ends, the network and the certificate's time are others in a while.
            Self::Kept(KeptError::Held(_)) => ExitKind::Failure,
            _ => ExitKind::Mistake,
        }
    }
}

/// The name of the address family, and an address of it as an example.
fn family(remote: &SocketAddr) -> (&'static str, &'static str) {
    if remote.is_ipv4() { ("IPv4", "10.9.0.2") } else { ("IPv6", "fd09::2") }
}
