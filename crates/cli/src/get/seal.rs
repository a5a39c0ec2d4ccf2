//! Sealed requests of `get`: where keys come from, and what is sealed.

use super::GetError;
use super::ask::Target;
use crate::output;
use firstflight::Host;
use firstflight::record::Names;
use firstflight_seal::{KeySource, Record, Trust};
use firstflight_tls::{DnsKeys, SealClient};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// How much longer than that of the addresses the lookup of a key may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest file of a record, bytes.
const LONGEST: u64 = 64 * 1024;

/// Options for sealed requests.
#[derive(clap::Args)]
pub struct Seal {
    /// Seal the first request to the server's key, so that it is encrypted at the first contact and answered after one
    /// round trip (docs/sealed.md). The key is in this file, as `firstflight asap record --seal-key` prints it, or it is
    /// looked up in the server's HTTPS record (dns; write ./dns for a file of this name)
    #[arg(long, value_name = "FILE|dns")]
    seal: Option<Source>,
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

/// Where keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Dns,
    File(PathBuf),
}

impl FromStr for Source {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "dns" { Self::Dns } else { Self::File(text.into()) })
    }
}

impl Seal {
    /// What seals, if the options ask for it. `dns` is the resolver that the user named.
    ///
    /// # Errors
    /// When the file cannot be used, or no URL can be sealed.
    pub fn client(
        &self,
        targets: &[Target],
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
        match source {
            Source::File(path) => {
                let record = read(path)?;
                for &server in &servers {
                    client = client.record(server.clone(), record.clone(), KeySource::Configuration);
                }
            }
            Source::Dns => client = client.dns(DnsKeys::new(self.names(dns)?).patience(PATIENCE)),
        }
        if self.seal_hide {
            self.warn_of_lookups(&servers, dns)?;
            client = servers.iter().fold(client, |client, server| client.hide((*server).clone()));
        }
        Ok(Some(client))
    }

    fn names(&self, dns: Option<SocketAddr>) -> Result<Names, GetError> {
        match dns {
            Some(at) => {
                let names = Names::at(at).map_err(|error| GetError::Resolver(at, error))?;
                Ok(names.trust_ad(self.trust_ad))
            }
            None => Names::system().map_err(GetError::SystemResolver),
        }
    }

    fn warn_of_lookups(
        &self,
        servers: &[&firstflight::Authority],
        dns: Option<SocketAddr>,
    ) -> Result<(), GetError> {
        let named = servers.iter().any(|server| matches!(server.host(), Host::Name(_)));
        if named && !self.names(dns)?.are_local() {
            output::complain(
                &"--seal-hide: the resolver is on another host, so lookups in clear may tell the names to others",
            );
        }
        Ok(())
    }
}

/// The record in a file.
fn read(path: &Path) -> Result<Record, GetError> {
    let text = fs::metadata(path)
        .and_then(|about| match about.len() {
            0..=LONGEST => fs::read(path),
            _ => Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too long")),
        })
        .map_err(|error| GetError::SealFile(path.to_owned(), error))?;
    let text = String::from_utf8_lossy(&text);
    Record::in_zone_text(&text).map_err(|error| GetError::SealRecord(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_is_a_word_and_anything_else_a_file() {
        assert_eq!("dns".parse(), Ok(Source::Dns));
        assert_eq!("./dns".parse(), Ok(Source::File("./dns".into())));
    }
}
