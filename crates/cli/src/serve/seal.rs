//! Sealed first flights of `serve`: the key files, the names that are served with them, and how changes are followed.

use super::ServeError;
use crate::error::Error;
use crate::seal::SealError;
use firstflight::credential::asap::Identity;
use firstflight_daemon::Hangup;
use firstflight_files::{LastProblem, Seen, check_writable};
use firstflight_redis::RedisStore;
use firstflight_seal::{HostName, KeyFile, KeySet};
use firstflight_tls::SealServer;
use std::num::{NonZeroU8, NonZeroU32};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How often a farm's keys are derived again, seconds. A key opens five minutes before its period.
const FARM_EVERY: u64 = 60;

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

/// A name, and the public name of the keys that it is served with.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServedName {
    name: HostName,
    public: Option<HostName>,
}

impl FromStr for ServedName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, public) = match text.split_once('@') {
            Some((name, public)) => (name, Some(public.parse()?)),
            None => (text, None),
        };
        Ok(Self { name: name.parse()?, public })
    }
}

/// Why the options do not go together.
#[derive(Debug, thiserror::Error)]
pub enum SealOptions {
    /// Two files with keys of one public name.
    #[error("--seal: two files have keys of {0}: give one of them")]
    Twice(HostName),
    /// Too many files.
    #[error("--seal: {0} files, and keys of {most} public names at most", most = SealServer::MOST_NAMES)]
    TooMany(usize),
    /// It is not clear which keys a name is served with.
    #[error("--seal-name {0}: there are keys of several public names: write {0}@PUBLIC")]
    Which(HostName),
    /// No file has keys of this public name.
    #[error("--seal-name {0}@{1}: no --seal file has keys of {1}")]
    NoKeys(HostName, HostName),
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
    sources: Vec<Source>,
    port: u16,
    openings: Option<NonZeroU32>,
    memory: Memory,
    reload: Hangup,
}

/// A file of keys.
struct Source {
    path: PathBuf,
    public: HostName,
    names: Vec<HostName>,
    /// The keys, until the server has them. A copy here would outlive them.
    keys: KeySet,
    is_farm: bool,
    /// The number of the key that clients are told to use.
    current: Option<NonZeroU8>,
    seen: Seen,
    /// The minute in which a farm's keys were derived.
    minute: u64,
    problem: LastProblem,
}

fn now() -> u64 {
    firstflight::unix_ms() / 1000
}

/// The keys in a file. The secret of a farm goes forward, so that the earlier ones are destroyed.
fn read(path: &Path, now: u64) -> Result<(KeyFile, KeySet), SealError> {
    let mut file = KeyFile::read(path).map_err(|error| SealError::Unusable(path.to_owned(), error))?;
    let chain = |fault| SealError::Chain(path.to_owned(), fault);
    if let KeyFile::Farm(farm) = &mut file
        && farm.advance(now).map_err(chain)?
    {
        file.replace(path).map_err(|error| SealError::Stays(path.to_owned(), error))?;
    }
    let keys = file.keys(now).map_err(chain)?;
    match keys.is_empty() {
        false => Ok((file, keys)),
        true => Err(SealError::Over(path.to_owned())),
    }
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
        let mut sources: Vec<Source> = Vec::new();
        for path in &self.seal {
            // Before the file is read, so that no change is missed.
            let seen = Seen::at(path);
            let (file, keys) = read(path, now())?;
            if matches!(file, KeyFile::Farm(_)) {
                // Found now, and not when the first period ends.
                check_writable(path).map_err(|error| SealError::Stays(path.clone(), error))?;
            }
            let public = file.name().clone();
            if sources.iter().any(|source| source.public == public) {
                return Err(ServeError::Seal(SealOptions::Twice(public)).into());
            }
            let is_farm = matches!(file, KeyFile::Farm(_));
            let source = Source {
                path: path.clone(),
                names: vec![public.clone()],
                public,
                current: None,
                keys,
                is_farm,
                // A farm's file may have been written.
                seen: if is_farm { Seen::at(path) } else { seen },
                minute: now() / FARM_EVERY,
                problem: LastProblem::default(),
            };
            warn_unpublished(path, &source.keys);
            sources.push(source);
        }
        if sources.len() > SealServer::MOST_NAMES {
            return Err(ServeError::Seal(SealOptions::TooMany(sources.len())).into());
        }
        for served in &self.seal_name {
            served.add_to(&mut sources).map_err(ServeError::Seal)?;
        }
        let (port, openings) = (self.seal_port.unwrap_or(listened), self.seal_openings);
        let reload = Hangup::new().map_err(Error::Runtime)?;
        Ok(Some(Prepared { sources, port, openings, memory, reload }))
    }
}

impl ServedName {
    fn add_to(&self, sources: &mut [Source]) -> Result<(), SealOptions> {
        let source = match (&self.public, sources) {
            (None, [only]) => only,
            (None, _) => return Err(SealOptions::Which(self.name.clone())),
            (Some(public), sources) => sources
                .iter_mut()
                .find(|source| source.public == *public)
                .ok_or_else(|| SealOptions::NoKeys(self.name.clone(), public.clone()))?,
        };
        if !source.names.contains(&self.name) {
            source.names.push(self.name.clone());
        }
        Ok(())
    }
}

impl Source {
    /// Looks at the file, and gives changed keys to `server`. `again`: also if it looks unchanged.
    fn look(&mut self, server: &SealServer, again: bool) {
        let minute = now() / FARM_EVERY;
        let due = self.is_farm && minute != self.minute;
        if !self.seen.may_have_changed(&self.path) && !due && !again {
            return;
        }
        let found = Seen::at(&self.path);
        let news = again || !found.is_same_version(&self.seen);
        match self.read_again(server, news) {
            Ok(Read { count, current }) => {
                if news {
                    tracing::info!("{} has {} seal keys of {}", self.path.display(), count, self.public);
                }
                self.use_from_now_on(current);
                // The file of a farm may have been written.
                self.seen = if self.is_farm { Seen::at(&self.path) } else { found };
                self.minute = minute;
                self.problem.over();
            }
            // The file counts as not seen, so it is read again until it is right.
            Err(error) => {
                if again {
                    // Every question gets an answer.
                    self.problem.over();
                }
                if let Some(message) = self.problem.new_message(&error) {
                    tracing::warn!("the seal keys stay as they are: {message}");
                }
            }
        }
    }

    /// Says which key clients are told to use, if it is another one than before.
    fn use_from_now_on(&mut self, current: Option<NonZeroU8>) {
        let before = std::mem::replace(&mut self.current, current);
        if before == current {
            return;
        }
        let name = self.public.to_string();
        firstflight_tls::metrics::seal_key(&name, before, current);
        if let (Some(_), Some(current)) = (before, current) {
            tracing::info!(target: "firstflight::keys", "clients of {name} are told to use seal key {current} now");
        }
    }

    fn read_again(&mut self, server: &SealServer, news: bool) -> Result<Read, SealError> {
        let (file, keys) = read(&self.path, now())?;
        if *file.name() != self.public {
            return Err(SealError::OtherName(self.path.clone(), self.public.clone()));
        }
        self.is_farm = matches!(file, KeyFile::Farm(_));
        if news {
            warn_unpublished(&self.path, &keys);
        }
        let read = Read { count: keys.len(), current: current(&keys) };
        server.set_keys(keys);
        Ok(read)
    }
}

/// What was read.
struct Read {
    count: usize,
    current: Option<NonZeroU8>,
}

/// The number of the key that clients are told to use.
fn current(keys: &KeySet) -> Option<NonZeroU8> {
    Some(keys.record(now())?.entries().first()?.key_id())
}

fn warn_unpublished(path: &Path, keys: &KeySet) {
    if keys.record(now()).is_none() {
        tracing::warn!("{}: clients use none of these seal keys any more: make a new one", path.display());
    }
}

impl Prepared {
    /// The identities that the credential blocks in front of flights may be signed for.
    pub fn identities(&self) -> Vec<Identity> {
        let names = self.sources.iter().flat_map(|source| &source.names);
        names.map(|name| Identity::name(name.as_str(), self.port)).collect()
    }

    /// The server's side. With `store` all members of a farm share its memory of the requests that ran.
    ///
    /// # Errors
    /// When the operating system has no random numbers.
    pub fn server(self, store: Option<&Arc<RedisStore>>) -> Result<(SealServer, Following), Error> {
        let Self { mut sources, port, openings, memory, reload } = self;
        let mut each = sources.iter();
        let Some(first) = each.next() else {
            return Err(Error::Random(std::io::ErrorKind::NotFound.into()));
        };
        let mut builder = SealServer::builder(first.keys.clone(), port).serves(first.names.clone());
        for source in each {
            builder = builder.and_keys(source.keys.clone(), source.names.clone());
        }
        // The members of a farm without a common store have a memory each.
        let apart = store.is_none() && sources.iter().any(|source| source.is_farm);
        builder = builder.first_start(memory.first_start).several_tables(memory.per_site || apart);
        if let Some(openings) = openings {
            builder = builder.openings(openings);
        }
        if let Some(store) = store {
            builder = builder.shared_table(Arc::clone(store) as _);
        }
        let server = builder.build().map_err(Error::Random)?;
        for source in &mut sources {
            source.use_from_now_on(current(&source.keys));
            source.keys = KeySet::new(source.public.clone());
        }
        let following = Following { sources, server: server.clone(), reload };
        Ok((server, following))
    }
}

/// Follows the files.
pub struct Following {
    sources: Vec<Source>,
    server: SealServer,
    reload: Hangup,
}

/// A task that follows the files. It ends when this is dropped: a store waits for all that have it.
pub struct Followed(JoinHandle<()>);

impl Drop for Followed {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Following {
    /// Follows them in a task.
    pub fn start(self) -> Followed {
        Followed(tokio::spawn(self.run()))
    }

    async fn run(self) {
        let Self { mut sources, server, mut reload } = self;
        loop {
            let again = tokio::select! {
                () = tokio::time::sleep(EVERY) => false,
                () = reload.asked() => true,
            };
            let server = server.clone();
            let looked = tokio::task::spawn_blocking(move || {
                sources.iter_mut().for_each(|source| source.look(&server, again));
                // This destroys the keys that have ended.
                drop(server.records());
                sources
            });
            // It fails only when the runtime shuts down.
            let Ok(back) = looked.await else { return };
            sources = back;
        }
    }
}

#[cfg(test)]
#[path = "seal_tests.rs"]
mod tests;
