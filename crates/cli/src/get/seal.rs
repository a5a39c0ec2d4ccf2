//! Sealed requests of `get`: where keys come from, and what is sealed.

use super::GetError;
use super::target::Target;
use crate::output;
use firstflight::Host;
use firstflight::record::Names;
use firstflight_seal::{KeySource, Record, Trust};
use firstflight_tls::{DnsKeys, SealClient};
use std::fs;
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
        let targets = targets.iter().filter(|target| target.tls);
        let servers: Vec<_> = targets.map(|target| &target.server).collect();
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
    let fail = |fault| GetError::SealRecord(path.to_owned(), fault);
    let text = fs::metadata(path)
        .and_then(|about| match about.len() {
            0..=LONGEST => fs::read(path),
            _ => Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "it is too long")),
        })
        .map_err(|error| fail(RecordFault::Unreadable(error)))?;
    parse(&String::from_utf8_lossy(&text)).map_err(fail)
}

/// What is wrong with a file of `--seal`.
#[derive(Debug, thiserror::Error)]
pub enum RecordFault {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// It is the server's file.
    #[error("has the server's secret keys: give what `firstflight asap record --seal-key` prints of it")]
    Secret,
    /// There is no parameter in it.
    #[error("has no key65301=\"…\": give what `firstflight asap record --seal-key` prints")]
    None,
    /// The parameter is not valid.
    #[error("has a key65301 that is not valid: {0}")]
    Invalid(String),
}

/// The record in the presentation format of zone files, as `asap record` prints it (RFC 9460 §2.1). There may be other text
/// around it.
fn parse(text: &str) -> Result<Record, RecordFault> {
    if text.starts_with("firstflight seal ") {
        return Err(RecordFault::Secret);
    }
    let start = format!("key{}=", Record::KEY);
    let (_, value) = text.split_once(&start).ok_or(RecordFault::None)?;
    let bytes =
        presented(value).ok_or_else(|| RecordFault::Invalid("write it as zone files do".to_owned()))?;
    Record::parse(&bytes).map_err(|error| RecordFault::Invalid(error.to_string()))
}

/// The bytes of a value in presentation format, quoted or not (RFC 9460 appendix A).
fn presented(text: &str) -> Option<Vec<u8>> {
    let (quoted, text) = match text.strip_prefix('"') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    loop {
        match rest.next() {
            Some(b'"') if quoted => return Some(bytes),
            None if quoted => return None,
            None => return Some(bytes),
            Some(byte) if !quoted && byte.is_ascii_whitespace() => return Some(bytes),
            Some(b'\\') => bytes.push(escaped(&mut rest)?),
            Some(byte) => bytes.push(byte),
        }
    }
}

/// The octet behind a backslash: three digits, or the character itself.
fn escaped(rest: &mut std::str::Bytes<'_>) -> Option<u8> {
    let first = rest.next()?;
    if !first.is_ascii_digit() {
        return Some(first);
    }
    let digits = [first, rest.next()?, rest.next()?];
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstflight_seal::Entry;
    use std::fmt::Write;
    use std::num::NonZeroU8;

    fn record() -> Record {
        let entry = Entry::x25519(NonZeroU8::MIN, &[7; 32], 1_900_000_000);
        Record::new(vec![entry], "public.example".parse().unwrap()).unwrap()
    }

    fn written(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "\\{byte:03}").unwrap();
            text
        })
    }

    #[test]
    fn a_record_is_read_as_it_is_printed_and_in_a_zone() {
        let value = written(&record().to_bytes());
        for text in [
            format!("key65301=\"{value}\"\n"),
            format!("key65301={value}"),
            format!("www 300 IN HTTPS 1 . key65300=\"\\001\" key65301=\"{value}\" ; c\n"),
        ] {
            assert_eq!(parse(&text).unwrap(), record(), "{text}");
        }
        assert_eq!(presented("\"a\\\"b\\065\" c").unwrap(), b"a\"bA");
    }

    #[test]
    fn what_is_no_record_says_why() {
        let value = written(&record().to_bytes());
        let fault = |text: &str| parse(text).unwrap_err().to_string();
        assert!(fault("firstflight seal keys, version 1\n").contains("secret"));
        assert!(fault("nothing").contains("asap record --seal-key"));
        assert!(fault(&format!("key65301=\"{value}")).contains("zone files"));
        assert!(fault("key65301=\"\\999\"").contains("zone files"));
        assert!(fault("key65301=\"\\001\\000\"").contains("not valid"));
        assert!(fault("key65301=\"\\002\\000\\001\"").contains("another version"));
    }

    #[test]
    fn dns_is_a_word_and_anything_else_a_file() {
        assert_eq!("dns".parse(), Ok(Source::Dns));
        assert_eq!("./dns".parse(), Ok(Source::File("./dns".into())));
    }
}
