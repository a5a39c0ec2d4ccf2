//! A certificate for each server that `get` visits.

use super::GetError;
use crate::output;
use crate::span;
use crate::verifier::{AskedVerifier, SiteVerifiersUse, VerifierPlace};
use firstflight::credential::asap::PublicKey;
use firstflight::credential::{NetworkId, Outcome};
use firstflight::record::Published;
use firstflight::{Authority, Client, ClientBuilder, Uncertified};
use firstflight_http::url::HttpUrl;
use firstflight_verifier::{Group, KeptCertificate, PoolConfig, PoolSite};
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
    /// until it has arrived, fetches use none. A name is looked up each time (the port is 4433 by default). May be repeated,
    /// with a --verifier-key for each
    #[arg(long, value_name = "ADDR:PORT|HOST[:PORT]", requires = "verifier_key")]
    verifier: Vec<VerifierPlace>,
    /// Show the certificate in this file (certificate get -o writes one), which is then for this site only; it is renewed in
    /// place when that is due
    #[arg(long, value_name = "FILE", conflicts_with_all = ["verifier", "via_dns"])]
    pub certificate: Option<PathBuf>,
    /// The verifier's public key, 64 hexadecimal digits; of several verifiers in the same order
    #[arg(long, value_name = "KEY", requires = "verifier")]
    verifier_key: Vec<PublicKey>,
    /// Which verifiers are used that no option names. They are asked after a fetch, over UDP, for later fetches of this command
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = SiteVerifiersUse::Site)]
    found_verifiers: SiteVerifiersUse,
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
        !self.verifier.is_empty() || self.certificate.is_some()
    }

    /// The first verifier's address, if it is one and no name.
    pub fn verifier(&self) -> Option<SocketAddr> {
        self.verifier.first().and_then(VerifierPlace::address)
    }

    /// The verifiers.
    /// Errors: when the group is not valid, or there are not as many keys as verifiers.
    pub fn issuers(&self) -> Result<Vec<AskedVerifier>, GetError> {
        if self.verifier.len() != self.verifier_key.len() {
            return Err(GetError::VerifierKeys);
        }
        if self.group.is_some() && self.verifier.len() > 1 {
            return Err(GetError::GroupOfMany);
        }
        let group = match &self.group {
            Some(path) => {
                Group::read(path).map_err(|error| GetError::Group(path.clone(), error))?.addresses()
            }
            None => Vec::new(),
        };
        let both = self.verifier.iter().zip(&self.verifier_key);
        let issuer = |(place, key): (&VerifierPlace, &PublicKey)| AskedVerifier {
            place: place.clone(),
            key: *key,
            group: group.clone(),
        };
        Ok(both.map(issuer).collect())
    }

    /// Gives a client the options, and the verifiers or the certificate in a file, for visits to these servers from this network.
    /// `record` is what a server publishes that is known to take certificates by these verifiers.
    /// Errors: when the certificate in the file cannot be used for them here and now.
    pub fn configure(
        &self,
        builder: ClientBuilder,
        issuers: &[AskedVerifier],
        servers: &[Authority],
        network: NetworkId,
        record: impl Fn(&Authority, &[VerifierId]) -> Option<Published>,
    ) -> Result<ClientBuilder, GetError> {
        let builder = builder.found_verifiers(self.found_verifiers.into());
        let sites: HashSet<_> =
            servers.iter().map(|server| PoolSite::new(&server.host().to_string())).collect();
        let (builder, ids) = match (issuers, &self.certificate) {
            ([_, ..], _) => {
                let fresh = sites.len().clamp(1, PoolConfig::default().fresh);
                let wished = u32::try_from(self.certificate_for.as_secs()).unwrap_or(u32::MAX);
                let builder = issuers.iter().fold(builder, |builder, issuer| issuer.configure(builder));
                let ids: Vec<_> = issuers.iter().map(|issuer| issuer.key.id()).collect();
                (builder.certificates(PoolConfig { fresh, wished, ..PoolConfig::default() }), ids)
            }
            ([], Some(path)) => {
                let mut sites = sites.iter();
                let (Some(site), None) = (sites.next(), sites.next()) else {
                    return Err(GetError::KeptSites);
                };
                let kept = KeptCertificate::open(path).map_err(GetError::Kept)?;
                let id = kept.verifier().id();
                (builder.kept_certificate(kept, site, network).map_err(GetError::Kept)?, vec![id])
            }
            ([], None) => return Ok(builder),
        };
        let known = servers.iter().filter(|_| self.asap_known);
        let known = known.filter_map(|server| Some((server.clone(), record(server, &ids)?)));
        let builder = builder.servers_run_once(self.asap_once);
        Ok(known.fold(builder, |builder, (server, record)| builder.record(server, record)))
    }
}

/// Tells once for each site why it gets no certificate.
#[derive(Default)]
pub struct ToldOnce(Mutex<HashSet<(PoolSite, Discriminant<Uncertified>)>>);

impl ToldOnce {
    /// After a visit whose first flight had this outcome.
    pub fn note(&self, client: &Client, url: &HttpUrl, outcome: Outcome) {
        let Some(why) = client.uncertified(url.server(), outcome) else { return };
        let site = PoolSite::new(&url.server().host().to_string());
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert((site, discriminant(&why))) {
            let at = url.host_field();
            output::complain(&format_args!("{at} {why}: going without a certificate"));
        }
    }
}
