//! Settings of a client.

use super::asap::Settings;
use super::by_engine::ByEngine;
use super::network::Networks;
use super::{Client, SWITCH, Shared, Ways};
use crate::cache::{CacheError, CredentialCache};
use crate::kernel::Kernel;
use crate::lookup::Lookups;
use firstflight_credential::NetworkId;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
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
    kernel_only: bool,
    pub(super) by_engine: Option<ByEngine>,
    pub(super) asap: Settings,
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

    /// Connects by the kernel's TCP only: without certificates, and without an engine.
    pub const fn kernel_only(mut self) -> Self {
        self.kernel_only = true;
        self
    }

    /// Switches first flights off: every connect is an ordinary handshake on the kernel's TCP. `FIRSTFLIGHT=off` in the
    /// environment does the same.
    pub const fn off(mut self, off: bool) -> Self {
        self.off = off;
        self
    }

    /// Makes the client.
    ///
    /// # Errors
    /// When the cache file cannot be used.
    pub fn build(mut self) -> Result<Client, CacheError> {
        self.by_engine = self.by_engine.filter(|_| !self.kernel_only);
        let path = self.cache.take().filter(|_| !self.private && !self.is_off());
        self.asap.keep_in(path.as_ref());
        if let (Some(path), Some(engine)) = (&path, &self.by_engine) {
            engine.use_cache(CredentialCache::open(path)?);
        }
        // An engine learns of addresses. What else there is to learn, the client does.
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

    fn assemble(mut self, cache: Option<CredentialCache>) -> Client {
        let off = self.is_off();
        if self.private || self.by_engine.is_some() {
            self.asap.find_none();
        }
        let kernel = Kernel::on(self.network.unwrap_or(NetworkId::UNKNOWN));
        let cookies = !self.private && !self.plain && !off;
        let resolver = self.asap.resolver();
        let (network, by_engine) = (self.network, self.by_engine.as_ref());
        let asap =
            self.asap.start(network, cookies, &kernel, by_engine).filter(|_| !off && !self.kernel_only);
        let networks = match (self.network, off) {
            (Some(_), _) | (_, true) => Networks::Fixed,
            (None, false) => Networks::Found(Mutex::default()),
        };
        let cache = match (cache, self.network) {
            (Some(cache), Some(_)) => {
                kernel.use_cache(cache);
                None
            }
            (cache, _) => cache,
        };
        let shared = Shared {
            kernel,
            fast_open: cookies,
            by_engine: self.by_engine,
            networks,
            lookups: Lookups::system(super::ADDRESSES_KEPT),
            cache: Mutex::new(cache),
            told_unknown: AtomicBool::new(false),
            asap,
            resolver,
        };
        Client { shared: Arc::new(shared), ways: Ways::All }
    }
}
