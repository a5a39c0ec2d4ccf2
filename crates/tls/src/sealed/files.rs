//! Seal keys in files: which names are served with them, and how changes are followed.

use super::server::{SealServer, locked};
use firstflight::credential::asap::Identity;
use firstflight_files::{FileStamp, LastProblem, ReadError, check_writable};
use firstflight_seal::{ChainFault, HostName, KeyFile, KeyFileError, KeySet, SharedStrikeRegister};
use std::fmt;
use std::io;
use std::num::{NonZeroU8, NonZeroU32};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How often a farm's keys are derived again, seconds. A key opens five minutes before its period.
const FARM_EVERY: u64 = 60;

/// Why files of seal keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealFileError {
    /// The key file cannot be read, or is none.
    #[error("{}", unusable(.0, .1))]
    Unusable(PathBuf, KeyFileError),
    /// The farm's secret gives no keys now.
    #[error("key file {path}: {fault}", path = .0.display(), fault = .1)]
    Chain(PathBuf, ChainFault),
    /// No key of the file may be published any more.
    #[error(
        "the keys of {path} are over: make a new one with `firstflight seal keygen --after {path} -o NEW`",
        path = .0.display()
    )]
    Over(PathBuf),
    /// The file has keys of another public name than before.
    #[error("{path} has keys of another public name than {name}: start the server again", path = .0.display(), name = .1)]
    OtherName(PathBuf, HostName),
    /// The file of a farm's secret cannot be replaced.
    #[error(
        "cannot replace {path}: {error}; a farm's secret is replaced in each period, so its directory needs to be writable \
         for the server, as /var/lib/firstflight-gateway is for the service",
        path = .0.display(),
        error = .1
    )]
    Stays(PathBuf, io::Error),
    /// Two files with keys of one public name.
    #[error("two files have keys of {0}: give one of them")]
    Twice(HostName),
    /// Too many files.
    #[error("{0} files, and keys of {most} public names at most", most = SealServer::MOST_NAMES)]
    TooMany(usize),
    /// It is not clear which keys a name is served with.
    #[error("name {0}: there are keys of several public names: write {0}@PUBLIC")]
    Which(HostName),
    /// No file has keys of this public name.
    #[error("name {0}@{1}: no file has keys of {1}")]
    NoKeys(HostName, HostName),
    /// No file was named.
    #[error("name a file with seal keys")]
    None,
}

fn unusable(path: &Path, error: &KeyFileError) -> String {
    let advice = match error {
        KeyFileError::Read(ReadError::Io(_)) => {
            "; make one with `firstflight seal keygen --name NAME -o FILE`, or, in a farm, copy another member's"
        }
        _ => "",
    };
    format!("key file {} {error}{advice}", path.display())
}

/// A name that is served with sealed flights, and the public name of the keys that it is served with, where there are
/// several. As text `NAME` or `NAME@PUBLIC`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedName {
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

/// What a server does with the keys of files.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct SealSettings {
    /// TCP port as clients see it.
    pub port: u16,
    /// Flights without an accepted block that are opened each second. `None` is the default of
    /// [`SealServerBuilder::openings`](crate::SealServerBuilder::openings).
    pub openings: Option<NonZeroU32>,
    /// Nothing ran before at a server with these keys.
    pub first_start: bool,
    /// Other servers of these names have a memory of their own.
    pub per_site: bool,
    /// The memory that all members of a farm share.
    pub table: Option<Arc<dyn SharedStrikeRegister>>,
}

impl SealSettings {
    /// For a server that clients see at this TCP port.
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self { port, ..Self::default() }
    }
}

/// Files of seal keys that were read, one for each public name, and the names that are served with them.
#[derive(Debug)]
pub struct SealFiles {
    sources: Vec<Source>,
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
    seen: FileStamp,
    /// The minute in which a farm's keys were derived.
    minute: u64,
    problem: LastProblem,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("path", &self.path).field("names", &self.names).finish_non_exhaustive()
    }
}

fn now() -> u64 {
    firstflight::unix_ms() / 1000
}

/// Whether a file with a farm's secret is replaced when its period has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forward {
    /// The secret goes forward in the file, so that the earlier ones are destroyed.
    File,
    /// In memory only.
    Memory,
}

/// The keys in a file.
fn read(path: &Path, now: u64, forward: Forward) -> Result<(KeyFile, KeySet), SealFileError> {
    let mut file = KeyFile::read(path).map_err(|error| SealFileError::Unusable(path.to_owned(), error))?;
    let chain = |fault| SealFileError::Chain(path.to_owned(), fault);
    if let KeyFile::Farm(farm) = &mut file
        && farm.advance(now).map_err(chain)?
        && forward == Forward::File
    {
        file.replace(path).map_err(|error| SealFileError::Stays(path.to_owned(), error))?;
    }
    let keys = file.keys(now).map_err(chain)?;
    match keys.is_empty() {
        false => Ok((file, keys)),
        true => Err(SealFileError::Over(path.to_owned())),
    }
}

impl SealFiles {
    /// Reads the files, and serves their public names. This blocks.
    ///
    /// # Errors
    /// When one of them cannot be used, or two have the same public name. The file of a farm's secret must be writable.
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, SealFileError> {
        Self::read(paths, Forward::File)
    }

    /// Like [`SealFiles::open`], to see whether that would do: it changes no file.
    ///
    /// # Errors
    /// As [`SealFiles::open`].
    pub fn look<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, SealFileError> {
        Self::read(paths, Forward::Memory)
    }

    fn read<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        forward: Forward,
    ) -> Result<Self, SealFileError> {
        let mut sources: Vec<Source> = Vec::new();
        for path in paths {
            let source = Source::open(path.as_ref(), forward)?;
            if sources.iter().any(|other| other.public == source.public) {
                return Err(SealFileError::Twice(source.public));
            }
            sources.push(source);
        }
        match sources.len() {
            0 => Err(SealFileError::None),
            count if count > SealServer::MOST_NAMES => Err(SealFileError::TooMany(count)),
            _ => Ok(Self { sources }),
        }
    }

    /// Serves this name, too.
    ///
    /// # Errors
    /// When it is not clear with which keys.
    pub fn serve(&mut self, served: &ServedName) -> Result<(), SealFileError> {
        let source = match (&served.public, self.sources.as_mut_slice()) {
            (None, [only]) => only,
            (None, _) => return Err(SealFileError::Which(served.name.clone())),
            (Some(public), sources) => sources
                .iter_mut()
                .find(|source| source.public == *public)
                .ok_or_else(|| SealFileError::NoKeys(served.name.clone(), public.clone()))?,
        };
        if !source.names.contains(&served.name) {
            source.names.push(served.name.clone());
        }
        Ok(())
    }

    /// The identities that the credential blocks in front of flights may be signed for, at this TCP port.
    pub fn identities(&self, port: u16) -> impl Iterator<Item = Identity> + '_ {
        self.names().map(move |name| Identity::name(name.as_str(), port))
    }

    /// The public names of the keys.
    pub fn public_names(&self) -> impl Iterator<Item = &HostName> {
        self.sources.iter().map(|source| &source.public)
    }

    /// All names that are served.
    pub fn names(&self) -> impl Iterator<Item = &HostName> {
        self.sources.iter().flat_map(|source| &source.names)
    }

    /// The server's side, and what follows the files.
    ///
    /// # Errors
    /// When the operating system has no random numbers.
    pub fn server(self, settings: SealSettings) -> io::Result<(SealServer, SealFollower)> {
        let Self { mut sources } = self;
        let SealSettings { port, openings, first_start, per_site, table } = settings;
        let mut each = sources.iter();
        let first = each.next().ok_or(io::ErrorKind::NotFound)?;
        let mut builder = SealServer::builder(first.keys.clone(), port).serves(first.names.clone());
        for source in each {
            builder = builder.and_keys(source.keys.clone(), source.names.clone());
        }
        // The members of a farm without a common store have a memory each.
        let apart = table.is_none() && sources.iter().any(|source| source.is_farm);
        builder = builder.first_start(first_start).several_tables(per_site || apart);
        if let Some(openings) = openings {
            builder = builder.openings(openings);
        }
        if let Some(table) = table {
            builder = builder.shared_table(table);
        }
        let server = builder.build()?;
        for source in &mut sources {
            source.use_from_now_on(current(&source.keys));
            source.keys = KeySet::new(source.public.clone());
        }
        let follower = SealFollower { sources, server: server.clone() };
        Ok((server, follower))
    }
}

impl Source {
    fn open(path: &Path, forward: Forward) -> Result<Self, SealFileError> {
        // Before the file is read, so that no change is missed.
        let seen = FileStamp::at(path);
        let (file, keys) = read(path, now(), forward)?;
        let is_farm = matches!(file, KeyFile::Farm(_));
        if is_farm {
            // Found now, and not when the first period ends.
            check_writable(path).map_err(|error| SealFileError::Stays(path.to_owned(), error))?;
        }
        warn_unpublished(path, &keys);
        let public = file.name().clone();
        Ok(Self {
            path: path.to_owned(),
            names: vec![public.clone()],
            public,
            keys,
            is_farm,
            current: None,
            // A farm's file may have been written.
            seen: if is_farm { FileStamp::at(path) } else { seen },
            minute: now() / FARM_EVERY,
            problem: LastProblem::default(),
        })
    }

    /// Looks at the file, and gives changed keys to `server`. `again`: also if it looks unchanged.
    fn look(&mut self, server: &SealServer, again: bool) {
        let minute = now() / FARM_EVERY;
        let due = self.is_farm && minute != self.minute;
        if !self.seen.may_have_changed(&self.path) && !due && !again {
            return;
        }
        let found = FileStamp::at(&self.path);
        let changed = again || !found.is_same_version(&self.seen);
        match self.read_again(server, changed) {
            Ok(Read { count, current }) => {
                if changed {
                    tracing::info!("{} has {} seal keys of {}", self.path.display(), count, self.public);
                }
                self.use_from_now_on(current);
                // The file of a farm may have been written.
                self.seen = if self.is_farm { FileStamp::at(&self.path) } else { found };
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
        #[cfg(feature = "metrics")]
        crate::metrics::seal_key(&name, before, current);
        if let (Some(_), Some(current)) = (before, current) {
            tracing::info!(target: "firstflight::keys", "clients of {name} are told to use seal key {current} now");
        }
    }

    fn read_again(&mut self, server: &SealServer, changed: bool) -> Result<Read, SealFileError> {
        let (file, keys) = read(&self.path, now(), Forward::File)?;
        if *file.name() != self.public {
            return Err(SealFileError::OtherName(self.path.clone(), self.public.clone()));
        }
        self.is_farm = matches!(file, KeyFile::Farm(_));
        if changed {
            warn_unpublished(&self.path, &keys);
        }
        let read = Read { count: keys.len(), current: current(&keys) };
        server.set_keys(keys);
        Ok(read)
    }
}

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

/// Gives changed keys to a server.
#[derive(Debug)]
pub struct SealFollower {
    sources: Vec<Source>,
    server: SealServer,
}

impl SealFollower {
    /// Looks at the files once, and gives changed keys to the server. `again`: also if they look unchanged. A line in the log
    /// says what is not right. This blocks.
    pub fn look(&mut self, again: bool) {
        self.sources.iter_mut().for_each(|source| source.look(&self.server, again));
        // This destroys the keys that have ended.
        drop(self.server.records());
    }

    /// Looks at the files each second in a task.
    ///
    /// # Panics
    /// Outside a tokio runtime with time.
    #[must_use]
    pub fn follow(self) -> FollowedSeals {
        let again = Arc::new(Notify::new());
        let task = tokio::spawn(run(self, Arc::clone(&again)));
        FollowedSeals { task, again }
    }
}

async fn run(follower: SealFollower, asked: Arc<Notify>) {
    let follower = Arc::new(Mutex::new(follower));
    loop {
        let again = tokio::select! {
            () = tokio::time::sleep(EVERY) => false,
            () = asked.notified() => true,
        };
        let follower = Arc::clone(&follower);
        // It fails only when the runtime shuts down.
        if tokio::task::spawn_blocking(move || locked(&follower).look(again)).await.is_err() {
            return;
        }
    }
}

/// Files that a task follows. It ends when this is dropped: a shared memory waits for all that have it.
#[derive(Debug)]
pub struct FollowedSeals {
    task: JoinHandle<()>,
    again: Arc<Notify>,
}

impl FollowedSeals {
    /// Has all files read again soon, whether they look changed or not.
    pub fn read_again(&self) {
        self.again.notify_one();
    }
}

impl Drop for FollowedSeals {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests;
