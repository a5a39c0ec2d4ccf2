//! A certificate for each server that `get` visits.

use super::record::Published;
use super::target::{Host, Target};
use crate::error::Error;
use crate::output;
use firstflight::credential::asap::{ClientCertificate, Identity, PrivateKey, PublicKey};
use firstflight::{Certified, ConnectConfig, Endpoint, FirstFlight};
use firstflight_verifier::client::{Dial, Dialled, Duplex, Route, obtain_by};
use firstflight_verifier::{Group, IssuerAddress, Patience, Site, Wanted, secure_rng};
use firstflight_wire::asap::VerifierId;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where certificates come from.
#[derive(Clone, clap::Args)]
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

/// What is known of certificates: one for each site, as a key that is shown to one is shown to no other. Some may come
/// while fetches are under way.
#[derive(Default)]
pub struct Certifieds {
    issuer: Option<VerifierId>,
    /// `--asap-known`.
    known: bool,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    certificates: HashMap<Site, Arc<ClientCertificate>>,
    /// Sites that do not trust the verifier, of which the user knows.
    distrusting: HashSet<Site>,
}

impl Certifieds {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.lock().certificates.is_empty()
    }

    /// What to show to `target`'s server, which publishes this; `udp`: over UDP.
    pub fn of(&self, target: &Target, published: Option<&Published>, udp: bool) -> Option<Certified> {
        let certificate = self.lock().certificates.get(&target.site()).cloned()?;
        self.is_trusted_by(target, published).then(|| Certified {
            now: certificate.obtained(),
            certificate,
            identity: target.identity(),
            known: self.known || published.is_some_and(|p| if udp { p.udp_port.is_some() } else { p.on_ip }),
            once: false,
            mss: published.map(|published| published.mss),
        })
    }

    /// False if the server publishes that it trusts other verifiers only. Then there is one message for the user.
    fn is_trusted_by(&self, target: &Target, published: Option<&Published>) -> bool {
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

impl Certificates {
    /// No certificates yet.
    ///
    /// # Errors
    /// When the options contradict each other.
    pub fn none(&self) -> Result<Certifieds, Error> {
        let issuer = self.issuer()?.map(|issuer| issuer.id());
        Ok(Certifieds { issuer, known: self.asap_known, held: Mutex::default() })
    }

    /// One certificate for each site that does not have one, into `all`: over UDP from the system's address, else from
    /// the engine's own, by TCP. `published` says what a server publishes, if that is known.
    ///
    /// # Errors
    /// When the options make no sense, or the verifier gives none.
    pub async fn obtain(
        &self,
        endpoint: &Endpoint,
        udp: bool,
        targets: &[Target],
        published: impl Fn(&Target) -> Option<Published>,
        all: &Certifieds,
    ) -> Result<(), Error> {
        let Some(issuer) = self.issuer()? else { return Ok(()) };
        let route = if udp { Route::System } else { Route::Streams(Arc::new(Through(endpoint.clone()))) };
        for target in targets {
            let site = target.site();
            let held = all.lock().certificates.contains_key(&site);
            if held || !all.is_trusted_by(target, published(target).as_ref()) {
                continue;
            }
            let key = PrivateKey::generate(&mut secure_rng().map_err(Error::Random)?);
            let wished = u32::try_from(self.certificate_for.as_secs()).unwrap_or(u32::MAX);
            let wanted = Wanted { key, wished, old: None };
            let certificate = obtain_by(&route, &issuer, wanted, &Patience::default())
                .await
                .map_err(|error| Error::Certificate(error.to_string()))?;
            all.lock().certificates.insert(site, Arc::new(certificate));
        }
        Ok(())
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
