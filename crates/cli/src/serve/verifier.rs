//! How `serve` is its own verifier.

use super::ServeError;
use crate::error::Error;
use crate::verifier::VerifierError;
use firstflight::OwnVerifier;
use firstflight_verifier::metrics::Publisher;
use firstflight_verifier::{Config, CounterHandle, Issuer, VerifierKeys};
use ipnet::IpNet;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;

/// Options of a server that is its own verifier.
#[derive(clap::Args)]
pub struct Verifies {
    /// Be a verifier, too: certify clients in the server's UDP port, with the key in this file (verifier keygen -o makes
    /// one), and take their certificates
    ///
    /// Clients name the server's address and UDP port as their verifier. Their next request is in the first packet. The
    /// server trusts its own key, with or without --trust.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["no_cookie", "tun", "xdp"])]
    verifier: Option<PathBuf>,
    /// With --verifier: certify addresses of this prefix although they are not global, as 10.0.0.0/8; may be repeated
    #[arg(long, value_name = "PREFIX", requires = "verifier")]
    verifier_allow: Vec<IpNet>,
    /// With --verifier: the number of servers that have the key, such as the members of a farm; each takes its part of the
    /// limits. More than one need --per-site
    #[arg(long, value_name = "N", requires = "verifier", default_value = "1")]
    verifier_members: NonZeroU16,
}

impl Verifies {
    /// The verifier, if there is to be one. `others` are UDP ports of other protocols, and `own` is the server's, if it is known.
    /// `per_site` says that other servers do not know what this one took.
    pub fn prepare(
        &self,
        own: Option<SocketAddr>,
        others: &[SocketAddr],
        per_site: bool,
    ) -> Result<Option<OwnVerifier>, Error> {
        let Some(path) = &self.verifier else { return Ok(None) };
        if self.verifier_members.get() > 1 && !per_site {
            return Err(ServeError::VerifierMembers.into());
        }
        if let Some(own) = own
            && let Some(other) = others.iter().find(|other| overlap(own, **other))
        {
            return Err(ServeError::VerifierPort(*other).into());
        }
        let keys = VerifierKeys::read(path);
        let VerifierKeys { key, retired } =
            keys.map_err(|error| Error::Verifier(VerifierError::unusable(path, error)))?;
        let config = Config::default()
            .issuer(Some(Issuer { retired, ..Issuer::new(key) }))
            .allowed(self.verifier_allow.clone())
            .limits(OwnVerifier::limits())
            .members(Some(self.verifier_members));
        Ok(Some(OwnVerifier::with_config(config).map_err(ServeError::OwnVerifier)?))
    }

    /// Whether there is to be one.
    pub const fn wanted(&self) -> bool {
        self.verifier.is_some()
    }
}

/// Whether these are one UDP port.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && (any || one.ip() == other.ip())
}

/// The line that says whom clients can ask.
pub fn says(verifier: &OwnVerifier) -> String {
    let key = verifier.key();
    format!("verifier {}, key {key}", key.id())
}

/// Publishes the verifier's counts.
pub fn publisher(verifier: &OwnVerifier) -> Publisher {
    let verifier = verifier.clone();
    Publisher::new(CounterHandle::new(move || verifier.counters()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn one_port_has_one_protocol() {
        for (one, other, same) in [
            ("192.0.2.1:53", "192.0.2.1:53", true),
            ("0.0.0.0:53", "192.0.2.1:53", true),
            ("192.0.2.1:53", "[::]:53", true),
            ("192.0.2.1:53", "192.0.2.2:53", false),
            ("192.0.2.1:53", "192.0.2.1:54", false),
        ] {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!((overlap(one, other), overlap(other, one)), (same, same));
        }
    }
}
