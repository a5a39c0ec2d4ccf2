//! The options of sealed first flights.

use super::ServeError;
use crate::error::Error;
use firstflight::credential::asap::Identity;
use firstflight_daemon::Hangup;
use firstflight_redis::RedisStore;
use firstflight_tls::{FollowedSeals, SealFiles, SealServer, SealSettings, ServedName};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The options of sealed first flights.
#[derive(clap::Args)]
pub struct Seal {
    /// Take sealed first flights (docs/sealed.md) with the keys in this file, which `firstflight seal keygen` makes. Read
    /// again when it changes, and after SIGHUP; once more for a further public name
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    seal: Vec<PathBuf>,
    /// Name that is served with the keys, beside their public name. With several files, NAME@PUBLIC says with whose keys
    #[arg(long, value_name = "NAME[@PUBLIC]", requires = "seal")]
    seal_name: Vec<ServedName>,
    /// TCP port as clients see it, if it is not the one that is listened on
    #[arg(long, value_name = "N", requires = "seal", value_parser = clap::value_parser!(u16).range(1..))]
    seal_port: Option<u16>,
    /// Sealed first flights without a certificate (ASAP) that are opened each second; more are rejected, and their clients
    /// go on in ordinary TLS [default: 2000]
    #[arg(long, value_name = "N", requires = "seal")]
    seal_openings: Option<NonZeroU32>,
}

/// What the run table is.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Nothing ran before at a server with these keys.
    pub first_start: bool,
    /// Other servers of these names have a memory of their own.
    pub per_site: bool,
}

/// Keys that were read, and where they come from.
pub struct Prepared {
    files: SealFiles,
    settings: SealSettings,
    reload: Hangup,
}

impl Seal {
    /// Whether there are keys.
    pub const fn is_wanted(&self) -> bool {
        !self.seal.is_empty()
    }

    /// Reads the keys. `None` without any. `listened` is the port of the server.
    ///
    /// # Errors
    /// When a file cannot be used, or the options do not go together.
    pub fn prepare(&self, listened: u16, memory: Memory) -> Result<Option<Prepared>, Error> {
        if self.seal.is_empty() {
            return Ok(None);
        }
        let mut files = SealFiles::open(&self.seal).map_err(ServeError::Seal)?;
        self.seal_name.iter().try_for_each(|name| files.serve(name)).map_err(ServeError::Seal)?;
        let mut settings = SealSettings::new(self.seal_port.unwrap_or(listened));
        settings.openings = self.seal_openings;
        (settings.first_start, settings.per_site) = (memory.first_start, memory.per_site);
        let reload = Hangup::new().map_err(Error::Runtime)?;
        Ok(Some(Prepared { files, settings, reload }))
    }
}

impl Prepared {
    /// The identities that the credential blocks in front of flights may be signed for.
    pub fn identities(&self) -> Vec<Identity> {
        self.files.identities(self.settings.port).collect()
    }

    /// The server's side. With `store` all members of a farm share its memory of the requests that ran.
    ///
    /// # Errors
    /// When the operating system has no random numbers.
    pub fn server(self, store: Option<&Arc<RedisStore>>) -> Result<(SealServer, Followed), Error> {
        let Self { files, mut settings, reload } = self;
        settings.table = store.map(|store| Arc::clone(store) as _);
        let (server, follower) = files.server(settings).map_err(Error::Random)?;
        Ok((server, Followed::new(follower.follow(), reload)))
    }
}

/// A task that reads the files again after SIGHUP. It ends when this is dropped.
pub struct Followed(JoinHandle<()>);

impl Followed {
    fn new(followed: FollowedSeals, mut reload: Hangup) -> Self {
        Self(tokio::spawn(async move {
            loop {
                reload.asked().await;
                followed.read_again();
            }
        }))
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.0.abort();
    }
}
