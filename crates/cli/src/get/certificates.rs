//! A certificate for each server that `get` visits.

use super::GetError;
use super::kept::Kept;
use crate::output;
use crate::span;
use firstflight::credential::asap::PublicKey;
use firstflight::credential::{NetworkId, Outcome, Reason};
use firstflight::record::Published;
use firstflight::{Authority, Client, ClientBuilder};
use firstflight_http::url::HttpUrl;
use firstflight_verifier::{Group, IssuerAddress, PoolConfig, Site};
use firstflight_wire::asap::VerifierId;
use firstflight_wire::carrier::BASE_MSS;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The source of certificates.
#[derive(Clone, clap::Args)]
pub struct Certificates {
    /// Get a certificate from this verifier, for first flights at the first contact (ASAP). No fetch waits for it:
    /// until it has arrived, fetches use none
    #[arg(long, value_name = "ADDR:PORT", requires = "verifier_key")]
    verifier: Option<SocketAddr>,
    /// Show the certificate in this file (certificate get -o writes one), which is then for this site only; it is renewed in
    /// place when that is due
    #[arg(long, value_name = "FILE", conflicts_with_all = ["verifier", "via_dns"])]
    certificate: Option<PathBuf>,
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
    #[arg(long, requires = "certified")]
    asap_known: bool,
    /// The servers execute a request with a certificate at most once (serve --replays at-most-once). An upload without
    /// --replay-safe may then be sent in the SYN
    #[arg(long, requires = "certified", conflicts_with = "via_dns")]
    asap_once: bool,
    /// Before the first fetch, wait for the certificates and, with --via-dns, for what the servers publish and
    /// whether unknown servers can reach this client; at most five seconds. The wait counts as part of the first
    /// fetch
    #[arg(long, requires = "verifier")]
    verify_first: bool,
}

impl Certificates {
    /// The verifier's address, if there is one.
    pub const fn verifier(&self) -> Option<SocketAddr> {
        self.verifier
    }

    /// Whether there are certificates, so that it matters on which network this host is.
    pub const fn wanted(&self) -> bool {
        self.verifier.is_some() || self.certificate.is_some()
    }

    /// Whether the certificate is in a file.
    pub const fn is_kept(&self) -> bool {
        self.certificate.is_some()
    }

    /// The certificate in a file, if one is to be shown to these servers.
    ///
    /// # Errors
    /// When it cannot be used for them here and now.
    pub fn kept(&self, servers: &[Authority], network: NetworkId) -> Result<Option<Kept>, GetError> {
        self.certificate.as_ref().map(|path| Kept::open(path, servers, network)).transpose()
    }

    /// Gives a client a certificate in a file.
    pub fn show(
        &self,
        builder: ClientBuilder,
        kept: &Kept,
        servers: &[Authority],
        carrier: Carrier,
    ) -> ClientBuilder {
        kept.show(builder, &self.known(servers, carrier, kept.verifier()), self.asap_once)
    }

    /// What the servers are known to publish.
    fn known(&self, servers: &[Authority], carrier: Carrier, id: VerifierId) -> Vec<(Authority, Published)> {
        let record = |server: &Authority| match carrier {
            Carrier::Ip => Published::on_ip(BASE_MSS, &[id]),
            Carrier::Udp(port) => Published::in_udp(port.unwrap_or(server.port()), BASE_MSS, &[id]),
        };
        let known = servers.iter().filter(|_| self.asap_known);
        known.filter_map(|server| Some((server.clone(), record(server)?))).collect()
    }

    /// Whether the first fetch waits for the verifiers.
    pub const fn verify_first(&self) -> bool {
        self.verify_first
    }

    /// How long certificates should last, seconds.
    pub fn wished(&self) -> u32 {
        u32::try_from(self.certificate_for.as_secs()).unwrap_or(u32::MAX)
    }

    /// Gives a client the options and the verifier ([`Certificates::issuer`]). `servers` are those of the URLs.
    pub fn configure(
        &self,
        builder: ClientBuilder,
        issuer: IssuerAddress,
        servers: &[Authority],
        carrier: Carrier,
    ) -> ClientBuilder {
        let id = issuer.id();
        let sites: HashSet<_> = servers.iter().map(|server| server.host().to_string()).collect();
        let fresh = sites.len().clamp(1, PoolConfig::default().fresh);
        let mut builder = builder
            .verifier(issuer)
            .certificates(PoolConfig { fresh, wished: self.wished(), ..PoolConfig::default() })
            .servers_run_once(self.asap_once);
        for (server, record) in self.known(servers, carrier, id) {
            builder = builder.record(server, record);
        }
        builder
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

/// By what first flights with certificates travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// In IP packets.
    Ip,
    /// In UDP datagrams to this port of the servers, or to that of the URL.
    Udp(Option<u16>),
}

/// What the user is told once.
pub struct Told {
    issuer: Option<VerifierId>,
    /// It was said that nothing comes back in UDP.
    silence: AtomicBool,
    sites: Mutex<HashSet<(Site, &'static str)>>,
}

impl Told {
    /// With certificates by this verifier.
    pub fn new(issuer: Option<VerifierId>) -> Self {
        Self { issuer, silence: AtomicBool::new(false), sites: Mutex::default() }
    }

    /// Whether it was not said yet that nothing comes back in UDP.
    pub fn is_first_silence(&self) -> bool {
        !self.silence.swap(true, Ordering::Relaxed)
    }

    /// After a visit whose first flight had this outcome: tells why the site gets no certificate.
    pub fn note(&self, client: &Client, url: &HttpUrl, outcome: Outcome) {
        let Some(issuer) = self.issuer else { return };
        let at = url.host_field();
        if let Some(published) = client.published(url.server())
            && !published.verifiers.contains(&issuer)
        {
            let trusts: Vec<_> = published.verifiers.iter().map(ToString::to_string).collect();
            let trusts = if trusts.is_empty() { "nobody".to_owned() } else { trusts.join(", ") };
            self.once(
                url,
                "trust",
                &format_args!(
                    "{at} does not trust verifier {issuer}, but {trusts}: going without a certificate"
                ),
            );
        }
        if outcome.reason() == Some(Reason::AddressMismatch) {
            self.once(
                url,
                "address",
                &format_args!("{at} sees another address than the verifier: going without a certificate"),
            );
        }
    }

    fn once(&self, url: &HttpUrl, subject: &'static str, text: &dyn std::fmt::Display) {
        let site = Site::new(&url.server().host().to_string());
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if sites.insert((site, subject)) {
            output::complain(text);
        }
    }
}
