//! Sealed requests of `get`: where keys come from, and what is sealed.

use super::GetError;
use crate::output;
use firstflight::record::Names;
use firstflight::{Authority, Host};
use firstflight_http::redirect::RedirectHop;
use firstflight_seal::{KeySource, Record, Trust};
use firstflight_tls::{DnsKeys, SealClient};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much longer than that of the addresses the lookup of a key may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Options for sealed requests.
#[derive(clap::Args)]
pub struct Seal {
    /// Seal the first request to the server's key, so that it is encrypted at the first contact and answered after one
    /// round trip (docs/sealed.md). The key is in this file, as `firstflight asap record --seal-key` prints it, or it is
    /// looked up in the server's HTTPS record (dns; write ./dns for a file of this name)
    #[arg(long, value_name = "FILE|dns")]
    seal: Option<PathBuf>,
    /// The requests hold no secret: seal them also to a key that nobody vouches for
    #[arg(long, requires = "seal")]
    seal_any: bool,
    /// Hide the names of the servers: fail where one would be sent in clear. The public name of the key must be another
    #[arg(long, requires = "seal")]
    seal_hide: bool,
    /// --dns validates, and nobody can change answers on the path to it: believe its AD bit
    #[arg(long, requires_all = ["seal", "dns"])]
    trust_ad: bool,
}

/// Whether the keys are in the DNS and not in a file of this name.
fn is_dns(path: &Path) -> bool {
    path.as_os_str() == "dns"
}

impl Seal {
    /// What seals, if the options ask for it. `dns` is the resolver that the user named.
    /// Errors: when the file cannot be used, or no URL can be sealed.
    pub fn client(
        &self,
        targets: &[RedirectHop],
        dns: Option<SocketAddr>,
    ) -> Result<Option<SealClient>, GetError> {
        let Some(source) = &self.seal else { return Ok(None) };
        let targets = targets.iter().filter(|target| target.url.is_tls());
        let servers: Vec<_> = targets.map(|target| target.url.server()).collect();
        if servers.is_empty() {
            return Err(GetError::NothingToSeal);
        }
        let trust = if self.seal_any { Trust::Any } else { Trust::Authenticated };
        let mut client = SealClient::new().trust(trust);
        if is_dns(source) {
            client = client.dns(DnsKeys::new(self.names(dns)?).patience(PATIENCE));
        } else {
            let record = Record::in_zone_file(source);
            let record = record.map_err(|error| GetError::SealRecord(source.clone(), error))?;
            for &server in &servers {
                client = client.record(server.clone(), record.clone(), KeySource::Configuration);
            }
        }
        if self.seal_hide {
            self.warn_of_lookups(&servers, dns)?;
            client = servers.iter().fold(client, |client, server| client.hide((*server).clone()));
        }
        Ok(Some(client))
    }

    fn names(&self, dns: Option<SocketAddr>) -> Result<Names, GetError> {
        match dns {
            Some(at) => Ok(super::names(at)?.trust_ad(self.trust_ad)),
            None => Names::system().map_err(GetError::SystemResolver),
        }
    }

    fn warn_of_lookups(&self, servers: &[&Authority], dns: Option<SocketAddr>) -> Result<(), GetError> {
        let named = servers.iter().any(|server| matches!(server.host(), Host::Name(_)));
        if named && !self.names(dns)?.are_local() {
            output::complain(
                &"--seal-hide: the resolver is on another host, so lookups in clear may tell the names to others",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_is_a_word_and_anything_else_a_file() {
        assert!(is_dns(Path::new("dns")));
        assert!(!is_dns(Path::new("./dns")));
    }
}
