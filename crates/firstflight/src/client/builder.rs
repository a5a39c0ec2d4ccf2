//! Settings of a client.

#[cfg(feature = "asap")]
use super::Authority;
#[cfg(feature = "asap")]
use super::asap::{Asap, Settings};
use super::by_engine::ByEngine;
use super::network::Networks;
use super::{Client, SWITCH, Shared};
use crate::cache::{CacheError, CredentialCache};
use crate::kernel::Kernel;
use crate::lookup::Lookups;
use firstflight_credential::NetworkId;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Settings of a [`Client`].
///
/// ```no_run
/// # fn build() -> Result<firstflight::Client, firstflight::CacheError> {
/// firstflight::Client::builder().cache("/var/cache/example/servers.json").build()
/// # }
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct ClientBuilder {
    cache: Option<PathBuf>,
    pub(super) network: Option<NetworkId>,
    private: bool,
    off: bool,
    plain: bool,
    pub(super) by_engine: Option<ByEngine>,
    #[cfg(feature = "asap")]
    pub(super) asap: Settings,
    #[cfg(feature = "asap")]
    pub(super) names: Option<Arc<crate::record::Names>>,
}

impl ClientBuilder {
    /// Keeps what is learnt about servers in this file (mode 0600) for later runs. Several programs can use one file.
    pub fn cache(mut self, path: impl Into<PathBuf>) -> Self {
        self.cache = Some(path.into());
        self
    }

    /// The network that this host is on. By default the client finds out ([`crate::network_id`]), and looks again every
    /// few seconds while it connects. What is learnt on one network is not used on another.
    pub const fn network(mut self, network: NetworkId) -> Self {
        self.network = Some(network);
        self
    }

    /// Uses nothing that links this host's visits: no cookies, which the kernel would show from any network, and no
    /// cache file. Certificates are used, each for one site on one network.
    pub const fn private(mut self, private: bool) -> Self {
        self.private = private;
        self
    }

    /// Whether cookies are used, which they are by default.
    pub const fn fast_open(mut self, wanted: bool) -> Self {
        self.plain = !wanted;
        self
    }

    /// Switches first flights off: every connect is an ordinary handshake on the kernel's TCP. `FIRSTFLIGHT=off` in the
    /// environment does the same.
    pub const fn off(mut self, off: bool) -> Self {
        self.off = off;
        self
    }

    /// Obtains certificates from this verifier, ahead of the connects that use them.
    #[cfg(feature = "asap")]
    pub fn verifier(mut self, verifier: firstflight_verifier::IssuerAddress) -> Self {
        self.asap.issuers.push(verifier);
        self
    }

    /// How many certificates are kept ready, and how long they should last.
    #[cfg(feature = "asap")]
    pub const fn certificates(mut self, pool: firstflight_verifier::PoolConfig) -> Self {
        self.asap.pool = pool;
        self
    }

    /// Keeps the certificates and their keys in this file (mode 0600), so that a program's first connect has one.
    #[cfg(feature = "asap")]
    pub fn certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.asap.file = Some(path.into());
        self
    }

    /// Asks this resolver, in place of the system's, for addresses and for what servers publish (HTTPS records).
    #[cfg(feature = "asap")]
    pub fn resolver(mut self, resolver: crate::record::Names) -> Self {
        self.names = Some(Arc::new(resolver));
        self
    }

    /// Asks no resolver what servers publish. Only what [`ClientBuilder::record`] says is known.
    #[cfg(feature = "asap")]
    pub const fn no_resolver(mut self) -> Self {
        self.asap.no_records = true;
        self
    }

    /// What `server` publishes, for example because it belongs to the same operator. The resolver is not asked about it.
    #[cfg(feature = "asap")]
    pub fn record(mut self, server: Authority, record: crate::record::Published) -> Self {
        self.asap.records.push((server, record));
        self
    }

    /// The servers execute a request with a certificate at most once. Data that must not run twice may then ride in the
    /// SYN with a certificate ([`Certified::once`](crate::Certified::once)).
    #[cfg(feature = "asap")]
    pub const fn servers_run_once(mut self, once: bool) -> Self {
        self.asap.once = once;
        self
    }

    /// Makes the client.
    ///
    /// # Errors
    /// When the cache file cannot be used.
    pub fn build(mut self) -> Result<Client, CacheError> {
        let path = self.cache.take().filter(|_| !self.private && !self.is_off());
        #[cfg(feature = "asap")]
        self.asap.cache.clone_from(&path);
        let cache = path.map(CredentialCache::open).transpose()?;
        Ok(self.assemble(cache))
    }

    /// Makes a client that has no cache file.
    pub(super) fn without_files(self) -> Client {
        self.assemble(None)
    }

    fn is_off(&self) -> bool {
        self.off || std::env::var_os(SWITCH).is_some_and(|value| value.eq_ignore_ascii_case("off"))
    }

    fn assemble(self, cache: Option<CredentialCache>) -> Client {
        let off = self.is_off();
        let kernel = Kernel::on(self.network.unwrap_or(NetworkId::UNKNOWN));
        let cookies = !self.private && !self.plain && !off;
        #[cfg(feature = "asap")]
        let asap = (!off && !self.asap.issuers.is_empty()).then(|| {
            Asap::new(self.asap, self.names.clone(), self.network, cookies, &kernel, self.by_engine.clone())
        });
        let networks = match (self.network, off) {
            (Some(_), _) | (_, true) => Networks::Fixed,
            (None, false) => Networks::Found(Mutex::default()),
        };
        let cache = match (cache, &self.by_engine, self.network) {
            (Some(cache), Some(engine), _) => {
                engine.use_cache(cache);
                None
            }
            (Some(cache), None, Some(_)) => {
                kernel.use_cache(cache);
                None
            }
            (cache, _, _) => cache,
        };
        let shared = Shared {
            kernel,
            fast_open: cookies,
            by_engine: self.by_engine,
            networks,
            lookups: Lookups::system(super::ADDRESSES_KEPT),
            cache: Mutex::new(cache),
            #[cfg(feature = "asap")]
            asap,
            #[cfg(feature = "asap")]
            names: self.names,
        };
        Client { shared: Arc::new(shared), tcp_only: false }
    }
}
