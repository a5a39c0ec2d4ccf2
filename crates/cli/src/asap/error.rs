//! Why `asap` cannot do what was asked.

use super::inspect::InspectError;
use crate::error::CommandError;
use crate::seal::SealError;
use crate::verifier::VerifierPlace;

/// Why `asap` stopped.
#[derive(Debug, thiserror::Error)]
pub enum AsapError {
    /// The object to inspect is not an object of ASAP.
    #[error("{0}")]
    Inspect(InspectError),
    /// The seal keys cannot be published.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Certificates are accepted nowhere.
    #[error("say where certificates of these verifiers are accepted: --ip, --udp-port N or both")]
    NoEncapsulation,
    /// Clients would not ask a verifier.
    #[error(
        "clients do not ask {0}: take a name with a dot, and port 443 or one from 1024 that no well-known service has"
    )]
    NotAsked(VerifierPlace),
    /// The names of verifiers and vantage points do not fit.
    #[error("the names are too long, or a verifier or vantage point is there twice: leave some out")]
    Names,
    /// Verifiers without keys.
    #[error("say --verifier-key for each --verifier, in the same order")]
    VerifierKeys,
    /// More verifiers than a record has room for.
    #[error("a record names {0} verifiers at most: leave some out")]
    TooManyVerifiers(usize),
}

impl CommandError for AsapError {}
