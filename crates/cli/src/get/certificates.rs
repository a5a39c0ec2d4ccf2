//! A certificate for each server that `get` visits.

use super::GetError;
use super::target::{Host, Target};
use crate::output;
use crate::span;
use firstflight::credential::Reason;
use firstflight::credential::asap::{ClientCertificate, Identity, PublicKey};
use firstflight::record::Published;
use firstflight::{Authority, Certified, ClientBuilder};
use firstflight_verifier::{Group, IssuerAddress, PoolConfig, Site};
use firstflight_wire::asap::VerifierId;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Maximum number of addresses remembered for each site that the verifier saw and the server did not. With more,
/// retrying is useless.
const MISMATCHES: usize = 8;

/// The source of certificates.
#[derive(Clone, clap::Args)]
pub struct Certificates {
    /// Get a certificate from this verifier, for first flights at the first contact (ASAP). No fetch waits for it:
    /// until it has arrived, fetches use none
    #[arg(long, value_name = "ADDR:PORT", requires = "verifier_key")]
    verifier: Option<SocketAddr>,
    /// The verifier's public key, 64 hexadecimal digits
    #[arg(long, value_name = "KEY", requires = "verifier")]
    verifier_key: Option<String>,
    /// File with the verifier's vantage points, all of which must see this client
    #[arg(long, value_name = "FILE", requires = "verifier")]
    group: Option<PathBuf>,
    /// How long the certificate should last
    #[arg(long, value_name = "TIME", default_value = "30m", requires = "verifier", value_parser = span::parse)]
    certificate_for: Duration,
    /// The servers are known to accept certificates; without this option they are asked first
    #[arg(long, requires = "verifier")]
    asap_known: bool,
    /// The servers execute a request with a certificate at most once (serve --replays at-most-once). An upload without
    /// --replay-safe may then be sent in the SYN
    #[arg(long, requires = "verifier", conflicts_with = "via_dns")]
    asap_once: bool,
    /// Before the first fetch, wait for the certificates and, with --via-dns, for what the servers publish and
    /// whether unknown servers can reach this client; at most five seconds. The wait counts as part of the first
    /// fetch
    #[arg(long, requires = "verifier")]
    verify_first: bool,
}

impl Certificates {
    /// Starts without certificates.
    ///
    /// # Errors
    /// When the options contradict each other.
    pub fn none(&self) -> Result<Certifieds, GetError> {
        let issuer = self.issuer()?.map(|issuer| issuer.id());
        Ok(Certifieds { issuer, known: self.asap_known, once: self.asap_once, held: Mutex::default() })
    }

    /// The verifier's address, if there is one.
    pub const fn verifier(&self) -> Option<SocketAddr> {
        self.verifier
    }

    /// Whether the first fetch waits for the verifiers.
    pub const fn verify_first(&self) -> bool {
        self.verify_first
    }

    /// How long certificates should last, seconds.
    pub fn wished(&self) -> u32 {
        u32::try_from(self.certificate_for.as_secs()).unwrap_or(u32::MAX)
    }

    /// Gives a client the options. `servers` are those of the URLs.
    ///
    /// # Errors
    /// When the options contradict each other.
    pub fn configure(
        &self,
        builder: ClientBuilder,
        servers: &[Authority],
    ) -> Result<ClientBuilder, GetError> {
        let Some(issuer) = self.issuer()? else { return Ok(builder) };
        let id = issuer.id();
        let mut builder = builder
            .verifier(issuer)
            .certificates(PoolConfig { wished: self.wished(), ..PoolConfig::default() })
            .servers_run_once(self.asap_once);
        for server in servers.iter().filter(|_| self.asap_known) {
            let record = Published::in_udp(server.port(), firstflight_wire::carrier::BASE_MSS, &[id]);
            if let Some(record) = record {
                builder = builder.record(server.clone(), record);
            }
        }
        Ok(builder)
    }

    /// The verifier, if there is one.
    ///
    /// # Errors
    /// When its key or its group is not valid.
    pub fn issuer(&self) -> Result<Option<IssuerAddress>, GetError> {
        let (Some(address), Some(key)) = (self.verifier, &self.verifier_key) else { return Ok(None) };
        let fail = |text: String| GetError::VerifierOption(text);
        let key: PublicKey = key.parse().map_err(|error| fail(format!("--verifier-key: {error}")))?;
        let mut issuer = IssuerAddress::new(address, key);
        if let Some(path) = &self.group {
            let group = Group::read(path).map_err(|error| fail(format!("{}: {error}", path.display())))?;
            issuer.group = group.addresses();
        }
        Ok(Some(issuer))
    }
}

/// The certificates, one for each site, because a key that one site has seen is never used with another. They change
/// while fetches are under way.
#[derive(Default)]
pub struct Certifieds {
    issuer: Option<VerifierId>,
    /// `--asap-known`.
    known: bool,
    /// `--asap-once`.
    once: bool,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    sites: HashMap<Site, Entry>,
    /// Sites that do not trust the verifier, which the user was told about.
    distrusting: HashSet<Site>,
}

/// The certificate of one site.
#[derive(Default)]
struct Entry {
    certificate: Option<Arc<ClientCertificate>>,
    /// Addresses that the verifier saw and the server did not see.
    mismatched: BTreeSet<IpAddr>,
    /// Notified when the server refuses the certificate.
    refused: Arc<Notify>,
}

impl Certifieds {
    /// Certificates by this verifier.
    #[cfg(test)]
    pub fn by(issuer: VerifierId) -> Self {
        Self { issuer: Some(issuer), ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are no certificates.
    pub fn is_empty(&self) -> bool {
        self.lock().sites.values().all(|entry| entry.certificate.is_none())
    }

    /// The certificate for `target`'s server, which publishes `published`; `udp` says whether it is used over UDP. If
    /// there is none, returns the reason, or `None` if none is wanted.
    pub fn of(
        &self,
        target: &Target,
        published: Option<&Published>,
        udp: bool,
    ) -> Result<Certified, Option<Reason>> {
        if self.issuer.is_none() || !self.is_trusted_by(target, published) {
            return Err(None);
        }
        let held = self.lock();
        let entry = held.sites.get(&target.site());
        let Some(certificate) = entry.and_then(|entry| entry.certificate.clone()) else {
            let mismatched = entry.is_some_and(|entry| !entry.mismatched.is_empty());
            return Err(Some(if mismatched { Reason::AddressMismatch } else { Reason::NoCredential }));
        };
        Ok(Certified {
            now: certificate.obtained(),
            certificate,
            identity: target.identity(),
            known: self.known || published.is_some_and(|p| if udp { p.udp_port.is_some() } else { p.on_ip }),
            once: self.once,
            mss: published.map(|published| published.mss),
            request_id: None,
        })
    }

    /// Stores a certificate for a site. Returns false if it is for an address that the site's server does not see;
    /// then the site has no certificate.
    pub fn take(&self, site: &Site, certificate: ClientCertificate) -> bool {
        let mut held = self.lock();
        let entry = held.sites.entry(site.clone()).or_default();
        if entry.mismatched.contains(&certificate.address()) || entry.mismatched.len() >= MISMATCHES {
            entry.certificate = None;
            return false;
        }
        entry.certificate = Some(Arc::new(certificate));
        true
    }

    /// Records that the site's server sees an address other than the certificate's. The certificate is not used there
    /// again.
    pub fn refuse(&self, site: &Site, certificate: &Arc<ClientCertificate>) {
        let mut held = self.lock();
        let Some(entry) = held.sites.get_mut(site) else { return };
        if entry.certificate.take_if(|held| Arc::ptr_eq(held, certificate)).is_some() {
            entry.mismatched.insert(certificate.address());
            entry.refused.notify_one();
        }
    }

    /// Waits until the site's certificate was refused.
    pub async fn refused(&self, site: &Site) {
        let refused = Arc::clone(&self.lock().sites.entry(site.clone()).or_default().refused);
        refused.notified().await;
    }

    /// Returns false if the server publishes that it trusts only other verifiers. Then the user gets one message.
    pub fn is_trusted_by(&self, target: &Target, published: Option<&Published>) -> bool {
        let (Some(issuer), Some(published)) = (self.issuer, published) else { return true };
        let trusted = published.verifiers.contains(&issuer);
        if !trusted && self.lock().distrusting.insert(target.site()) {
            let trusts: Vec<_> = published.verifiers.iter().map(ToString::to_string).collect();
            output::complain(&format_args!(
                "{} does not trust verifier {issuer}, but {}: going without a certificate",
                target.authority,
                if trusts.is_empty() { "nobody".to_owned() } else { trusts.join(", ") }
            ));
        }
        trusted
    }
}

impl Target {
    /// The site, whose servers all get the same key.
    pub fn site(&self) -> Site {
        match &self.host {
            Host::Ip(ip) => Site::new(&ip.to_string()),
            Host::Name(name) => Site::new(name),
        }
    }

    /// The identity of its server.
    pub fn identity(&self) -> Identity {
        match &self.host {
            Host::Ip(ip) => Identity::address(*ip, self.port),
            Host::Name(name) => Identity::name(name, self.port),
        }
    }
}
