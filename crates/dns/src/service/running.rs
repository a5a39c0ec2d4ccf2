//! A front whose files are read, and one that runs and follows them.

use super::keys::KeyFiles;
use super::zones::{FollowedZones, ZoneFiles};
use super::{FrontHandle, STREAM_LIMITS, Service, ServiceError, Sockets};
use crate::front::Front;
use crate::relay::Relayed;
use std::future::Future;
use tokio::task::JoinSet;

/// A front whose files are read ([`FrontSettings::open`](super::FrontSettings::open)), without sockets.
pub struct OpenFront {
    pub(super) front: Front,
    pub(super) zones: ZoneFiles,
    pub(super) keys: Option<KeyFiles>,
    pub(super) says: Option<String>,
}

impl OpenFront {
    /// A line that names the DNS-path zone and its public key, in the form that `firstflight asap record` takes. `None`
    /// without a DNS-path zone.
    #[must_use]
    pub fn dns_path(&self) -> Option<&str> {
        self.says.as_deref()
    }

    /// Serves on `sockets`, and relays first flights to the servers of the settings.
    ///
    /// # Errors
    /// [`ServiceError::System`] without a random source.
    pub async fn relay(self, sockets: Sockets) -> Result<FollowingFront, ServiceError> {
        let Self { front, zones, keys, says: _ } = self;
        let service = sockets.serve(front, STREAM_LIMITS).await?;
        Ok(FollowingFront { service, zones, keys })
    }

    /// Serves on `sockets`, and hands first flights to `server`, which must return quickly.
    ///
    /// # Errors
    /// [`ServiceError::System`] without a random source.
    pub fn serve_here(
        self,
        sockets: Sockets,
        server: impl Fn(Relayed<'_>) + Send + Sync + 'static,
    ) -> Result<FollowingFront, ServiceError> {
        let Self { front, zones, keys, says: _ } = self;
        let service = sockets.serve_here(front, STREAM_LIMITS, server)?;
        Ok(FollowingFront { service, zones, keys })
    }
}

/// A front on its sockets, which follows its files while it runs.
pub struct FollowingFront {
    service: Service,
    zones: ZoneFiles,
    keys: Option<KeyFiles>,
}

impl FollowingFront {
    /// A handle to its counts.
    #[must_use]
    pub fn handle(&self) -> FrontHandle {
        self.service.handle()
    }

    /// Asks for the zone files to be read at once.
    #[must_use]
    pub fn zones(&self) -> FollowedZones {
        self.zones.followed()
    }

    /// Answers until `stop` is ready, and then until queries under way are answered. Reads files again when they change. `says` gets
    /// a line for each zone that was read again.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub async fn run(self, says: impl Fn(String) + Send + Sync + 'static, stop: impl Future<Output = ()>) {
        let Self { service, zones, keys } = self;
        // They end when the set is dropped.
        let mut following = JoinSet::new();
        following.spawn(zones.follow(service.handle(), says));
        if let Some(keys) = keys {
            following.spawn(keys.follow(service.handle()));
        }
        service.run(stop).await;
    }
}
