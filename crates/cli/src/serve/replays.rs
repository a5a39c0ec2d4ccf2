//! How often one first flight may be executed, on one server or on a farm.

use clap::ValueEnum;
use firstflight::Endpoint;
use firstflight::credential::{
    self, FastOpenPolicy, OneTimeCookies, PolicyError, ReplayGuard, ReplayTable, Window,
};
use firstflight::serial_file::{SerialFile, SerialFileError};
use firstflight_daemon::ExitKind;
use firstflight_redis::{Access, ConnectError, FarmKeys, FarmKeysError, Options, RedisStore};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often one first flight may be executed.
#[derive(clap::Args)]
pub struct Replays {
    /// How often the data of one SYN may be accepted before the handshake
    ///
    /// `allow`: as often as it arrives. `no-duplicates`: once, if the network copies it within two minutes; accepts
    /// no data in SYNs for the first two minutes after the start. `at-most-once`: once, even if an attacker records
    /// and replays it; needs --one-time.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Level::Allow, conflicts_with = "no_fast_open")]
    replays: Level,
    /// Memory of --replays no-duplicates without --store, MiB: 1 for each 870 first flights a second
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    replay_memory: u16,
    /// Grant cookies that are valid for one connection each
    #[arg(long, requires = "one_time_state", conflicts_with_all = ["no_fast_open", "no_cookie"])]
    one_time: bool,
    /// File with this server's state of one-time cookies, created if it does not exist
    #[arg(long, value_name = "FILE", requires = "one_time")]
    one_time_state: Option<PathBuf>,
    /// Number of this server in its farm [default: 0]
    #[arg(long, value_name = "N", requires = "one_time")]
    issuer: Option<u16>,
    /// Redis that a farm shares: redis://HOST[:PORT][/DATABASE], redis+unix:///PATH, by Sentinel
    /// redis+sentinel://HOST[:PORT][,HOST[:PORT]]/NAME, a cluster redis+cluster://HOST[:PORT][,HOST[:PORT]]; with TLS rediss://,
    /// rediss+sentinel:// or rediss+cluster://
    #[arg(long, value_name = "URL", requires = "store_keys")]
    store: Option<String>,
    /// File with the lines `user NAME` (may be left out) and `password TEXT`, mode 0600, for --store; for
    /// sentinels also `sentinel-user` and `sentinel-password`. Read again for each connection
    #[arg(long, value_name = "FILE", requires = "store")]
    store_login: Option<PathBuf>,
    /// PEM file with the authorities for the certificate of --store, with TLS [default: those of the operating system]
    #[arg(long, value_name = "FILE", requires = "store")]
    store_ca: Option<PathBuf>,
    /// PEM file with the certificate that this server shows to --store, with TLS
    #[arg(long, value_name = "FILE", requires_all = ["store", "store_cert_key"])]
    store_cert: Option<PathBuf>,
    /// PEM file with the private key of --store-cert, mode 0600
    #[arg(long, value_name = "FILE", requires = "store_cert")]
    store_cert_key: Option<PathBuf>,
    /// File with the keys that a farm shares with its store: 96 hexadecimal digits (openssl rand -hex 48)
    #[arg(long, value_name = "FILE", requires = "store")]
    store_keys: Option<PathBuf>,
    /// File in which this server notes, when it stops, that it owes the store nothing [default: FILE.store, if
    /// --one-time-state FILE is given]
    ///
    /// A server that starts without this note (because it was killed, or no file is configured) begins a new memory in
    /// the store. On the whole farm, earlier one-time cookies are then invalid, and no-duplicates refuses first flights
    /// for two minutes.
    #[arg(long, value_name = "FILE", requires = "store")]
    store_state: Option<PathBuf>,
    /// Prefix of the farm's keys in Redis
    #[arg(long, value_name = "TEXT", default_value = "firstflight", requires = "store")]
    store_prefix: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    Allow,
    NoDuplicates,
    AtMostOnce,
}

/// Why the requested setting is not possible. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// `at-most-once` with cookies that are valid for days.
    #[error(
        "--replays at-most-once needs --one-time: a plain cookie can be replayed for as long as its key lives"
    )]
    NeedsOneTime,
    /// There is a store, but no option that asks it.
    #[error(
        "--store is not asked anything: add --replays no-duplicates, --one-time or --seal, or leave it out"
    )]
    IdleStore,
    /// Without an issuer number, two members could issue the same serial.
    #[error("--one-time with --store needs --issuer: another number on every member of the farm")]
    NeedsIssuer,
    /// Other users of the machine see the arguments of a process.
    #[error(
        "--store contains a password, which `ps` shows to others: put it into a file, --store-login FILE"
    )]
    PasswordShown,
    /// The policy is not valid for another reason.
    #[error("{0}")]
    Policy(PolicyError),
    /// The state file of one-time cookies cannot be used.
    #[error("--one-time-state {0}: {1}")]
    State(PathBuf, SerialFileError),
    /// The shared keys cannot be read, or other users can read them, or the file has something else.
    #[error("--store-keys {0} {1}")]
    Keys(PathBuf, FarmKeysError),
    /// The system's random source failed.
    #[error("the system gives no random numbers: {0}")]
    Random(io::Error),
    /// The address cannot be one of a store.
    #[error("--store: {0}")]
    Store(ConnectError),
}

impl ReplayError {
    /// Whether it is a mistake. A store that refuses, and a process that has the file, may change their minds.
    pub fn exit_kind(&self) -> ExitKind {
        ExitKind::of_passing(match self {
            Self::Random(_) => true,
            Self::State(_, error) => error.may_pass(),
            Self::Store(error) => error.may_pass(),
            Self::Keys(_, error) => error.may_pass(),
            Self::NeedsOneTime
            | Self::IdleStore
            | Self::NeedsIssuer
            | Self::PasswordShown
            | Self::Policy(_) => false,
        })
    }
}

impl Replays {
    /// Completes `policy`. Does nothing without Fast Open. `sealing`: the store has the run table of sealed first flights.
    pub fn prepare(&self, policy: Option<&mut FastOpenPolicy>, sealing: bool) -> Result<(), ReplayError> {
        self.check(sealing)?;
        let Some(policy) = policy else { return Ok(()) };
        let read =
            |path: &PathBuf| FarmKeys::read(path).map_err(|error| ReplayError::Keys(path.clone(), error));
        let farm = self.store_keys.as_ref().map(read).transpose()?;
        if self.one_time {
            policy.verifier = Some(Arc::new(self.cookies(farm.as_ref())?));
        }
        policy.replays = match self.replays {
            Level::Allow => credential::Replays::Allow,
            Level::AtMostOnce => credential::Replays::AtMostOnce,
            Level::NoDuplicates => credential::Replays::NoDuplicates(self.guard(farm.as_ref())?),
        };
        policy.validate().map_err(ReplayError::Policy)
    }

    /// Whether the same first flight may be executed as often as it arrives.
    pub fn allows_copies(&self) -> bool {
        self.replays == Level::Allow
    }

    /// Connects to the shared store, if one is configured.
    pub async fn store(&self) -> Result<Option<Arc<RedisStore>>, ReplayError> {
        let Some(url) = &self.store else { return Ok(None) };
        let beside = || Some(self.one_time_state.as_ref()?.with_added_extension("store"));
        let state = self.store_state.clone().or_else(beside);
        let forgets = state.is_none();
        let options =
            Options { prefix: self.store_prefix.clone(), state, access: self.access(), ..Options::default() };
        let store = RedisStore::connect(url, options).await.map_err(ReplayError::Store)?;
        if forgets {
            tracing::warn!(
                "without --store-state each start of this server begins a new memory in the store"
            );
        }
        Ok(Some(Arc::new(store)))
    }

    fn access(&self) -> Access {
        let (certificate, key) = (self.store_cert.clone(), self.store_cert_key.clone());
        Access {
            login: self.store_login.clone(),
            authorities: self.store_ca.clone(),
            certificate: certificate.zip(key),
        }
    }

    /// Checks what clap cannot report clearly enough.
    fn check(&self, sealing: bool) -> Result<(), ReplayError> {
        if self.replays == Level::AtMostOnce && !self.one_time {
            return Err(ReplayError::NeedsOneTime);
        }
        if self.store.as_deref().is_some_and(firstflight_redis::has_password) {
            return Err(ReplayError::PasswordShown);
        }
        if self.store.is_some() && !self.one_time && self.replays == Level::Allow && !sealing {
            return Err(ReplayError::IdleStore);
        }
        if self.store.is_some() && self.one_time && self.issuer.is_none() {
            return Err(ReplayError::NeedsIssuer);
        }
        Ok(())
    }

    fn cookies(&self, farm: Option<&FarmKeys>) -> Result<OneTimeCookies, ReplayError> {
        let path = self.one_time_state.as_deref().unwrap_or(Path::new(""));
        let fail = |error| ReplayError::State(path.to_owned(), error);
        let shared = farm.map(FarmKeys::one_time);
        let file = SerialFile::open(path, self.issuer.unwrap_or_default(), shared).map_err(fail)?;
        file.cookies().map_err(fail)
    }

    fn guard(&self, farm: Option<&FarmKeys>) -> Result<Arc<dyn ReplayGuard>, ReplayError> {
        if let Some(farm) = farm {
            return Ok(Arc::new(farm.guard()));
        }
        let key = firstflight::random_guard_key().map_err(ReplayError::Random)?;
        let bytes = usize::from(self.replay_memory) << 20;
        // The engine's clock starts at this value, later than this moment.
        let start = Endpoint::BEGINNING_MS;
        Ok(Arc::new(ReplayTable::new(key, Window::NETWORK, bytes, start)))
    }
}
