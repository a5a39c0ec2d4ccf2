//! A URL and the addresses of its host, which are looked up when the first fetch needs them.

use super::GetError;
use super::target::{Host, Target};
use crate::error::Error;
use firstflight::record::{Names, Published};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// How names are looked up, and which addresses can be used.
pub struct Lookups {
    /// The resolver that the user named.
    names: Option<Names>,
    /// The engine's addresses, if it has its own. It cannot connect to these addresses, or to another address family.
    own: Option<Vec<IpAddr>>,
    /// Each fetch looks names up (`--via-dns`).
    by_fetch: bool,
}

impl Lookups {
    pub const fn new(names: Option<Names>, own: Option<Vec<IpAddr>>, by_fetch: bool) -> Self {
        Self { names, own, by_fetch }
    }

    /// Whether a lookup also returns what the server publishes.
    pub const fn publish(&self) -> bool {
        self.names.is_some()
    }

    /// Whether each fetch looks names up.
    pub const fn are_by_fetch(&self) -> bool {
        self.by_fetch
    }

    async fn find(&self, target: &Target) -> Result<Target, Error> {
        let mut target = target.clone();
        if self.by_fetch && matches!(target.host, Host::Name(_)) {
            return Ok(target);
        }
        target.resolve(self.names.as_ref()).await?;
        if let Some(own) = &self.own {
            keep_reachable(own, &mut target.addresses)?;
        }
        Ok(target)
    }
}

/// Removes addresses that the engine cannot connect to.
fn keep_reachable(own: &[IpAddr], addresses: &mut Vec<SocketAddr>) -> Result<(), GetError> {
    let Some(&first) = addresses.first() else { return Ok(()) };
    addresses.retain(|remote| {
        let ip = remote.ip();
        !own.contains(&ip) && own.iter().any(|own| own.is_ipv4() == ip.is_ipv4())
    });
    match addresses.is_empty() {
        false => Ok(()),
        true if own.contains(&first.ip()) => Err(GetError::FetchFromSelf(first.ip())),
        true => Err(GetError::NoRoute(first)),
    }
}

/// A URL.
pub struct Place {
    target: Target,
    found: OnceCell<Target>,
    /// The error of a lookup before the first fetch, for the next call of `found`.
    failed: Mutex<Option<Error>>,
}

impl Place {
    /// Parses the URL. An address in it is checked at once.
    ///
    /// # Errors
    /// When the URL is not valid, or the engine cannot connect to its address.
    pub async fn new(url: &str, lookups: &Lookups) -> Result<Self, Error> {
        let target = Target::parse(url).map_err(|error| GetError::Target(url.to_owned(), error))?;
        let place = Self { target, found: OnceCell::new(), failed: Mutex::default() };
        if matches!(place.target.host, Host::Ip(_)) {
            place.found(lookups).await?;
        }
        Ok(place)
    }

    /// The target without looked-up addresses.
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Whether the addresses are known.
    pub fn is_found(&self) -> bool {
        self.found.initialized()
    }

    /// The target with its addresses, which are looked up if they are unknown.
    ///
    /// # Errors
    /// When there are none. The next call then asks again.
    pub async fn found(&self, lookups: &Lookups) -> Result<&Target, Error> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(error) = failed {
            return Err(error);
        }
        self.found.get_or_try_init(|| lookups.find(&self.target)).await
    }

    /// What the server publishes, if the lookup returned it.
    pub async fn published(&self, lookups: &Lookups) -> Option<Published> {
        if self.failed.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return None;
        }
        self.found(lookups).await.ok()?.published.clone()
    }

    /// Looks the addresses up within this time. If none are found, the next call of [`Place::found`] returns the
    /// error.
    pub async fn addresses(&self, lookups: &Lookups, within: Duration) -> &[SocketAddr] {
        let error = match timeout(within, self.found(lookups)).await {
            Ok(Ok(target)) => return &target.addresses,
            Ok(Err(error)) => error,
            Err(_) => Error::Lookup(self.target.authority.clone(), io::ErrorKind::TimedOut.into()),
        };
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        &[]
    }
}
