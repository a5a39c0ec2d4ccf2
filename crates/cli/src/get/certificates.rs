//! A certificate for each server that `get` visits.

use super::target::{Host, Target};
use crate::error::Error;
use crate::output;
use firstflight::credential::asap::{Identity, PrivateKey, PublicKey};
use firstflight::{Certified, ConnectConfig, Endpoint, FirstFlight};
use firstflight_verifier::client::{Dial, Dialled, Duplex, Route, obtain_by};
use firstflight_verifier::{Group, IssuerAddress, Patience, Site, Wanted, secure_rng};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where certificates come from.
#[derive(clap::Args)]
pub struct Certificates {
    /// Get a certificate from this verifier, for first flights at the first contact (ASAP)
    #[arg(long, value_name = "ADDR:PORT", requires = "verifier_key")]
    verifier: Option<SocketAddr>,
    /// The verifier's public key, 64 hexadecimal digits
    #[arg(long, value_name = "KEY", requires = "verifier")]
    verifier_key: Option<String>,
    /// File with the verifier's vantage points, all of which must see this client
    #[arg(long, value_name = "FILE", requires = "verifier")]
    group: Option<PathBuf>,
    /// How long the certificate should last
    #[arg(long, value_name = "TIME", default_value = "30m", requires = "verifier", value_parser = humantime::parse_duration)]
    certificate_for: Duration,
    /// The servers are known to take certificates; others are asked first
    #[arg(long, requires = "verifier")]
    asap_known: bool,
}

/// Certificates by site.
pub type Certifieds = HashMap<Site, Certified>;

impl Certificates {
    /// One certificate for each site: a key that is shown to one is shown to no other. Over UDP from the system's
    /// address, else from the engine's own, by TCP.
    pub async fn obtain(
        &self,
        endpoint: &Endpoint,
        udp: bool,
        targets: &[Target],
    ) -> Result<Certifieds, Error> {
        let mut all = HashMap::new();
        let Some(issuer) = self.issuer()? else { return Ok(all) };
        let route = if udp { Route::System } else { Route::Streams(Arc::new(Through(endpoint.clone()))) };
        for target in targets {
            let site = target.site();
            if all.contains_key(&site) {
                continue;
            }
            let published = target.published.as_ref();
            if published.is_some_and(|published| !published.verifiers.contains(&issuer.id())) {
                let trusts: Vec<_> = published
                    .map(|p| p.verifiers.iter().map(ToString::to_string).collect())
                    .unwrap_or_default();
                output::complain(&format_args!(
                    "{} does not trust verifier {}, but {}: going without a certificate",
                    target.authority,
                    issuer.id(),
                    if trusts.is_empty() { "nobody".to_owned() } else { trusts.join(", ") }
                ));
                continue;
            }
            let key = PrivateKey::generate(&mut secure_rng().map_err(Error::Random)?);
            let wished = u32::try_from(self.certificate_for.as_secs()).unwrap_or(u32::MAX);
            let wanted = Wanted { key, wished, old: None };
            let certificate = obtain_by(&route, &issuer, wanted, &Patience::default())
                .await
                .map_err(|error| Error::Certificate(error.to_string()))?;
            let certified = Certified {
                now: certificate.obtained(),
                certificate: Arc::new(certificate),
                identity: target.identity(),
                known: self.asap_known
                    || published.is_some_and(|p| if udp { p.udp_port.is_some() } else { p.on_ip }),
                once: false,
                mss: published.map(|published| published.mss),
            };
            all.insert(site, certified);
        }
        Ok(all)
    }

    /// The verifier, if there is one.
    pub const fn verifier(&self) -> Option<SocketAddr> {
        self.verifier
    }

    fn issuer(&self) -> Result<Option<IssuerAddress>, Error> {
        let (Some(address), Some(key)) = (self.verifier, &self.verifier_key) else { return Ok(None) };
        let fail = |text: String| Error::VerifierOption(text);
        let key: PublicKey = key.parse().map_err(|error| fail(format!("--verifier-key: {error}")))?;
        let mut issuer = IssuerAddress::new(address, key);
        if let Some(path) = &self.group {
            let group = Group::read(path).map_err(|error| fail(format!("{}: {error}", path.display())))?;
            issuer.group = group.addresses();
        }
        Ok(Some(issuer))
    }
}

impl Target {
    /// Whose servers share a key.
    pub fn site(&self) -> Site {
        match &self.host {
            Host::Ip(ip) => Site::new(&ip.to_string()),
            Host::Name(name) => Site::new(name),
        }
    }

    /// What its server is called.
    pub fn identity(&self) -> Identity {
        match &self.host {
            Host::Ip(ip) => Identity::address(*ip, self.port),
            Host::Name(name) => Identity::name(name, self.port),
        }
    }
}

/// Reaches a verifier from the engine's own address.
struct Through(Endpoint);

impl Dial for Through {
    fn dial(&self, to: SocketAddr) -> Dialled<'_> {
        Box::pin(async move {
            let stream = self.0.connect(to, FirstFlight::empty(), &ConnectConfig::default()).await?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}
