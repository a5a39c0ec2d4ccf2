//! A certificate for each server that `get` visits.

use super::GetError;
use crate::output;
use crate::span;
use firstflight::credential::asap::PublicKey;
use firstflight::credential::{NetworkId, Outcome};
use firstflight::record::Published;
use firstflight::{Authority, Client, ClientBuilder, Uncertified};
use firstflight_http::url::HttpUrl;
use firstflight_verifier::{IssuerAddress, KeptCertificate, PoolConfig, Site};
use firstflight_wire::asap::VerifierId;
use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The source of certificates.
#[derive(clap::Args)]
pub struct Certificates {
    /// Get a certificate from this verifier, for first flights at the first contact (ASAP). No fetch waits for it:
    /// until it has arrived, fetches use none
    #[arg(long, value_name = "ADDR:PORT", requires = "verifier_key")]
    pub verifier: Option<SocketAddr>,
    /// Show the certificate in this file (certificate get -o writes one), which is then for this site only; it is renewed in
    /// place when that is due
    #[arg(long, value_name = "FILE", conflicts_with_all = ["verifier", "via_dns"])]
    pub certificate: Option<PathBuf>,
    /// The verifier's public key, 64 hexadecimal digits
    #[arg(long, value_name = "KEY", requires = "verifier")]
    verifier_key: Option<PublicKey>,
    /// File with the verifier's vantage points, all of which must see this client
    #[arg(long, value_name = "FILE", requires = "verifier")]
    group: Option<PathBuf>,
    /// How long the certificate should last
    #[arg(long, value_name = "TIME", default_value = "30m", requires = "verifier", value_parser = span::parse)]
    certificate_for: Duration,
    /// The servers are known to accept certificates; without this option they are asked first
    #[arg(long, requires = "certified")]
    asap_known: bool,
    /// The servers execute a request with a certificate at most once (as a gateway without per_site). An upload without
    /// --replay-safe may then be sent in the SYN
    #[arg(long, requires = "certified", conflicts_with = "via_dns")]
    asap_once: bool,
    /// Before the first fetch, wait for the certificates and, with --via-dns, for what the servers publish and
    /// whether unknown servers can reach this client; at most five seconds. The wait counts as part of the first
    /// fetch
    #[arg(long, requires = "verifier")]
    pub verify_first: bool,
}

impl Certificates {
    /// Whether there are certificates, so that it matters on which network this host is.
    pub const fn wanted(&self) -> bool {
        self.verifier.is_some() || self.certificate.is_some()
    }

    /// The verifier, if there is one.
    ///
    /// # Errors
    /// When its group is not valid.
    pub fn issuer(&self) -> Result<Option<IssuerAddress>, GetError> {
        let (Some(address), Some(key)) = (self.verifier, self.verifier_key) else { return Ok(None) };
        let issuer = IssuerAddress::new(address, key);
        let Some(path) = &self.group else { return Ok(Some(issuer)) };
        issuer.with_group_file(path).map(Some).map_err(|error| GetError::Group(path.clone(), error))
    }

    /// Gives a client the options, and the verifier or the certificate in a file, for visits to these servers from this network.
    /// `record` is what a server publishes that is known to take certificates by a verifier.
    ///
    /// # Errors
    /// When the certificate in the file cannot be used for them here and now.
    pub fn configure(
        &self,
        builder: ClientBuilder,
        issuer: Option<IssuerAddress>,
        servers: &[Authority],
        network: NetworkId,
        record: impl Fn(&Authority, VerifierId) -> Option<Published>,
    ) -> Result<ClientBuilder, GetError> {
        let sites: HashSet<_> = servers.iter().map(|server| Site::new(&server.host().to_string())).collect();
        let (builder, id) = match (issuer, &self.certificate) {
            (Some(issuer), _) => {
                let fresh = sites.len().clamp(1, PoolConfig::default().fresh);
                let wished = u32::try_from(self.certificate_for.as_secs()).unwrap_or(u32::MAX);
                let (id, pool) = (issuer.id(), PoolConfig { fresh, wished, ..PoolConfig::default() });
                (builder.verifier(issuer).certificates(pool), id)
            }
            (None, Some(path)) => {
                let mut sites = sites.iter();
                let (Some(site), None) = (sites.next(), sites.next()) else {
                    return Err(GetError::KeptSites);
                };
                let kept = KeptCertificate::open(path).map_err(GetError::Kept)?;
                let id = kept.verifier().id();
                (builder.kept_certificate(kept, site, network).map_err(GetError::Kept)?, id)
            }
            (None, None) => return Ok(builder),
        };
        let known = servers.iter().filter(|_| self.asap_known);
        let known = known.filter_map(|server| Some((server.clone(), record(server, id)?)));
        let builder = builder.servers_run_once(self.asap_once);
        Ok(known.fold(builder, |builder, (server, record)| builder.record(server, record)))
    }
}

/// Tells once for each site why it gets no certificate.
#[derive(Default)]
pub struct Told(Mutex<HashSet<(Site, Discriminant<Uncertified>)>>);

impl Told {
    /// After a visit whose first flight had this outcome.
    pub fn note(&self, client: &Client, url: &HttpUrl, outcome: Outcome) {
        let Some(why) = client.uncertified(url.server(), outcome) else { return };
        let site = Site::new(&url.server().host().to_string());
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert((site, discriminant(&why))) {
            let at = url.host_field();
            output::complain(&format_args!("{at} {why}: going without a certificate"));
        }
    }
}
