//! What outlives a connection: the store of a farm, one-time cookies, and seal keys.

use crate::config::{self, Config, Listener, Store};
use crate::error::GatewayError;
use firstflight::Endpoint;
use firstflight::credential::{OneTimeCookies, ReplayGuard, ReplayTable, Replays, Window};
use firstflight::serial_file::{SerialFile, SerialFileError};
use firstflight_redis::{Access, FarmKeys, Options, RedisStore};
use firstflight_tls::{
    FollowedSeals, SealFileError, SealFiles, SealServer, SealSettings, ServerCertificates,
};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use toml::Spanned;

/// What all listeners share.
#[derive(Debug, Default)]
pub(crate) struct Farm {
    store: Option<Arc<RedisStore>>,
    keys: Option<FarmKeys>,
    cookies: Option<Arc<OneTimeCookies>>,
    /// The file of the cookies.
    state: Option<PathBuf>,
}

impl Farm {
    /// Opens the files, and connects to the store.
    /// Errors: when a file cannot be used, or the store refuses.
    pub(crate) async fn open(config: &Config) -> Result<Self, GatewayError> {
        let keys = config.store.as_ref().map(keys).transpose()?;
        let state = config.one_time.as_ref().map(|one_time| one_time.get_ref().state.clone());
        let cookies = match &config.one_time {
            Some(one_time) => {
                let config::OneTime { state, issuer } = one_time.get_ref();
                let fail = |error| GatewayError::OneTime(state.clone(), error);
                let shared = keys.as_ref().map(FarmKeys::one_time);
                let file = SerialFile::open(state, issuer.unwrap_or_default(), shared).map_err(fail)?;
                Some(Arc::new(file.cookies().map_err(fail)?))
            }
            None => None,
        };
        let store = match &config.store {
            Some(store) => match connect(store.get_ref(), keys.as_ref(), config).await {
                Ok(store) => Some(store),
                Err(error) => {
                    Self { cookies, state, ..Self::default() }.close().await;
                    return Err(error);
                }
            },
            None => None,
        };
        Ok(Self { store, keys, cookies, state })
    }

    /// How often a first flight of this listener runs.
    /// Errors: when the system gives no random numbers.
    pub(crate) fn replays(&self, listener: &Listener) -> Result<Replays, GatewayError> {
        Ok(match (listener.replays.get_ref(), &self.keys) {
            (config::Replays::Allow, _) => Replays::Allow,
            (config::Replays::AtMostOnce, _) => Replays::AtMostOnce,
            (config::Replays::NoDuplicates, Some(keys)) => Replays::NoDuplicates(Arc::new(keys.guard())),
            (config::Replays::NoDuplicates, None) => {
                let key = firstflight::random_guard_key().map_err(GatewayError::Random)?;
                let bytes = usize::from(listener.replay_memory.get()) << 20;
                // The engine's clock starts at this value, later than this moment.
                let table = ReplayTable::new(key, Window::NETWORK, bytes, Endpoint::BEGINNING_MS);
                Replays::NoDuplicates(Arc::new(table))
            }
        })
    }

    /// What remembers requests with certificates for all members of the farm, if the listener asks them.
    pub(crate) fn request_guard(&self, listener: &Listener) -> Option<Arc<dyn ReplayGuard>> {
        let keys = self.keys.as_ref().filter(|_| !listener.per_site)?;
        Some(Arc::new(keys.request_guard()))
    }

    /// The cookies of this listener, if it grants such ones.
    pub(crate) fn cookies(&self, listener: &Listener) -> Option<Arc<OneTimeCookies>> {
        self.cookies.clone().filter(|_| *listener.one_time.get_ref())
    }

    /// The memory of the farm.
    pub(crate) const fn store(&self) -> Option<&Arc<RedisStore>> {
        self.store.as_ref()
    }

    /// Leaves the farm in order. Call it when nobody asks any more.
    pub(crate) async fn close(self) {
        if let Some(store) = self.store {
            store.close().await;
        }
        drop(self.cookies);
        if let Some(state) = self.state {
            SerialFile::released(&state).await;
        }
    }
}

fn keys(store: &Spanned<Store>) -> Result<FarmKeys, GatewayError> {
    let path = &store.get_ref().keys;
    FarmKeys::read(path).map_err(|error| GatewayError::FarmKeys(path.clone(), error))
}

fn access(store: &Store) -> Access {
    Access {
        login: store.login.clone(),
        authorities: store.ca.clone(),
        certificate: store.chain.clone().zip(store.key.clone()),
    }
}

/// The file with the note that this member owes the store nothing.
fn state(store: &Store, config: &Config) -> Option<PathBuf> {
    let beside = || Some(config.one_time.as_ref()?.get_ref().state.with_added_extension("store"));
    store.state.clone().or_else(beside)
}

async fn connect(
    store: &Store,
    keys: Option<&FarmKeys>,
    config: &Config,
) -> Result<Arc<RedisStore>, GatewayError> {
    let state = state(store, config);
    let forgets = state.is_none();
    let keys = keys.map(FarmKeys::fingerprint);
    let options =
        Options { prefix: store.prefix.clone(), state, access: access(store), keys, ..Options::default() };
    let connected = RedisStore::connect(store.redis.get_ref(), options).await.map_err(GatewayError::Store)?;
    if forgets {
        tracing::warn!("store: without state each start of this gateway begins a new memory in the store");
    }
    Ok(Arc::new(connected))
}

/// What would keep a gateway with this configuration from its farm. Nothing is asked, changed or locked.
pub(crate) async fn check(config: &Config) -> Vec<GatewayError> {
    let mut errors = Vec::new();
    if let Some(store) = &config.store {
        errors.extend(keys(store).err());
        let store = store.get_ref();
        let checked = RedisStore::check(store.redis.get_ref(), access(store)).await;
        errors.extend(checked.err().map(GatewayError::Store));
        let kept = state(store, config).map_or(Ok(()), |path| RedisStore::check_state(&path));
        errors.extend(kept.err().map(GatewayError::Store));
    }
    if let Some(one_time) = config.one_time.as_ref().map(Spanned::get_ref) {
        let checked = SerialFile::check(&one_time.state, one_time.issuer.unwrap_or_default());
        let fail = |error: SerialFileError| GatewayError::OneTime(one_time.state.clone(), error);
        errors.extend(checked.err().map(fail));
    }
    errors.extend(check_seals(config));
    errors
}

/// What is wrong with the files of seal keys. No file is changed.
///
/// Each listener remembers the requests that ran. So two listeners may have keys of one name only if they ask the same store.
/// Otherwise each of them would run a copy.
pub(crate) fn check_seals(config: &Config) -> Vec<GatewayError> {
    let (mut errors, mut others) = (Vec::new(), HashMap::new());
    let mut named: Vec<(&Listener, Vec<String>)> = Vec::new();
    for listener in &config.listeners {
        let name = listener.name.get_ref();
        let read = match files(listener, |paths| SealFiles::look(paths)) {
            Ok(read) => read,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        for public in read.iter().flat_map(SealFiles::public_names).filter(|_| config.store.is_none()) {
            if let Some(other) = others.insert(public.to_string(), name) {
                errors.push(GatewayError::SharedSeal(name.clone(), public.to_string(), other.clone()));
            }
        }
        if let Some(files) = read.filter(|_| listener.takes_certificates()) {
            // The blocks in front of sealed requests are signed for these.
            let names: Vec<_> = sealed_identities(listener, &files, own_port(listener)).collect();
            for (other, theirs) in named.iter().filter(|(other, _)| !config.may_share_names(listener, other))
            {
                if let Some(shared) = names.iter().find(|shared| theirs.contains(shared)) {
                    let other = other.name.get_ref().clone();
                    errors.push(GatewayError::SharedName(name.clone(), shared.clone(), other));
                }
            }
            named.push((listener, names));
        }
    }
    errors
}

fn own_port(listener: &Listener) -> u16 {
    let addresses = listener.address.get_ref().iter().copied().chain(listener.engine_addresses());
    addresses.map(|at| at.port()).next().unwrap_or_default()
}

/// The identities of sealed requests, as `NAME:PORT`.
fn sealed_identities(listener: &Listener, files: &SealFiles, port: u16) -> impl Iterator<Item = String> {
    let port = listener.seal.as_ref().and_then(|seal| seal.get_ref().port).unwrap_or(port);
    files.names().map(move |name| format!("{name}:{port}"))
}

/// What is sealed in vain at a listener whose certificates are those of `served`. Errors of reading are told elsewhere.
pub(crate) fn seal_problems(listener: &Listener, served: &ServerCertificates) -> Vec<String> {
    let (Ok(Some(files)), name) = (files(listener, |paths| SealFiles::look(paths)), listener.name.get_ref())
    else {
        return Vec::new();
    };
    // A public name only hides the others, unless there are none.
    let publics: Vec<_> = files.public_names().collect();
    let hides = files.names().any(|name| !publics.contains(&name));
    let meant = files.names().filter(|name| !hides || !publics.contains(name));
    let without = meant.filter(|name| !served.are_for(name.as_str())).map(|served| {
        format!(
            "listener {name}: seal: no certificate is for {served}, so no sealed request for it is taken: add one that has this name"
        )
    });
    let asks = listener.tls.as_ref().is_some_and(|tls| tls.get_ref().client_ca.is_some());
    let waits = asks.then(|| {
        format!(
            "listener {name}: seal: with client_ca every sealed request waits for its client's certificate, so it is as late as \
             one in TLS alone: [listener.seal] only hides names here"
        )
    });
    without.chain(waits).collect()
}

/// Sealed first flights of a listener.
#[derive(Debug)]
pub(crate) struct Sealing {
    pub(crate) server: SealServer,
    pub(crate) followed: FollowedSeals,
}

/// The files of a listener's seal keys.
fn files(
    listener: &Listener,
    open: impl FnOnce(&[PathBuf]) -> Result<SealFiles, SealFileError>,
) -> Result<Option<SealFiles>, GatewayError> {
    let Some(seal) = listener.seal.as_ref().map(Spanned::get_ref) else { return Ok(None) };
    let fail = |error| GatewayError::Seal(listener.name.get_ref().clone(), error);
    let mut files = open(seal.keys.get_ref()).map_err(fail)?;
    seal.names.iter().try_for_each(|name| files.serve(name)).map_err(fail)?;
    Ok(Some(files))
}

impl Sealing {
    /// Reads the keys of a listener, and follows them. With them come the identities that the credential blocks in front of
    /// flights may be signed for, as `NAME:PORT`.
    /// Errors: when a file cannot be used.
    pub(crate) fn open(
        listener: &Listener,
        port: u16,
        farm: &Farm,
        first_start: bool,
    ) -> Result<Option<(Self, Vec<String>)>, GatewayError> {
        let Some(files) = files(listener, |paths| SealFiles::open(paths))? else { return Ok(None) };
        let seal = listener.seal.as_ref().map(Spanned::get_ref);
        let mut settings = SealSettings::new(seal.and_then(|seal| seal.port).unwrap_or(port));
        settings.openings = seal.and_then(|seal| seal.openings);
        (settings.first_start, settings.per_site) = (first_start && listener.first_start, listener.per_site);
        settings.table = farm.store().map(|store| Arc::clone(store) as _);
        let names = sealed_identities(listener, &files, port).collect();
        let (server, follower) = files.server(settings).map_err(GatewayError::Random)?;
        Ok(Some((Self { server, followed: follower.follow() }, names)))
    }
}
