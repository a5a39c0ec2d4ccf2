//! The store that the servers of a farm share, in Redis 6.2 or later (or Valkey).
//!
//! A first flight that one server accepted is not accepted by another, and a one-time cookie that one server
//! granted is valid once at any of them. All members of a farm have the same keys
//! ([`GuardKey`](firstflight::credential::GuardKey), [`OneTimeKeys`](firstflight::credential::OneTimeKeys)),
//! the same [`Options::prefix`], and issuer numbers of their own. Members with other keys are refused ([`Options::keys`]).
//!
//! # When Redis forgets
//! A Redis that restarts, is emptied or is replaced by a replica may have lost what it acknowledged
//! (replication is asynchronous, also with `WAIT`). So every question is one `MULTI` that also identifies the
//! memory that answers: the process (`run_id`), its line of replication (`master_replid`), how many keys it
//! evicted (`evicted_keys`) and a random number among the data. If any of them differs from before, a new
//! memory begins at that moment: guarded first flights fall back until no copy of an older one can still
//! arrive, and earlier one-time cookies are invalid, because their names in Redis contain the memory's. The
//! same applies to a member that starts. A server that may evict keys (`maxmemory-policy` other than
//! `noeviction`), or does not report its policy, is refused.
//!
//! # When a member forgets
//! A member never waits for Redis longer than [`Options::within`]. Without an answer the handshake is an
//! ordinary one. While the connection is lost, no first flight waits, and the member reconnects in the
//! background. Questions that could not be asked in the meantime are owed: they are reported before the next
//! question, so that a recorded SYN that was refused is not accepted later. Debts are kept in memory only. So
//! a member that starts begins a new memory for the whole farm, unless its predecessor stopped in order:
//! [`RedisStore::close`], [`Options::state`].
//!
//! # What a member knows
//! A repeat of a first flight that the store has answered to this member is refused without a question. Everything else is
//! asked: `docs/farm-limits.md` says why.
//!
//! # When a master is replaced
//! With Redis Sentinel and in Redis Cluster there can be two masters for a while. A member accepts nothing unless the replicas
//! have confirmed a moment ago that they follow the master which answers. In a cluster the keys are in 1,024 cells, each of which is a
//! memory by itself, and most masters must agree on who has a cell. `docs/farm-masters.md` has the rule, and the argument for it.
//!
//! # Sealed requests
//! [`RedisStore::run`] is the strike register of sealed first flights for a farm (`docs/spec/sealed.md`, section 6.6).
//! The same rules hold: without an answer nothing counts as new, and a new memory has a floor.
//!
//! # TLS sessions
//! [`RedisSessions`] keeps the TLS sessions of a farm, so that a client resumes its session at every member.
//!
//! # Clocks
//! If a guard compares signed stamps with the members' wall clocks, each question carries the member's clock. A member
//! whose clock differs from Redis' clock by more than
//! [`RemoteGuard::CLOCKS_APART`](firstflight::credential::RemoteGuard::CLOCKS_APART) is refused.
//!
//! ```no_run
//! # async fn start(config: firstflight::Config, link: impl firstflight::link::Link + 'static)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use firstflight_redis::{Options, RedisStore};
//! use std::sync::Arc;
//! let options = Options { state: Some("/var/lib/server/store".into()), ..Options::default() };
//! let store = Arc::new(RedisStore::connect("redis://10.1.0.1:6379/2", options).await?);
//! let endpoint = firstflight::Endpoint::with_store(config, link, Arc::clone(&store) as _);
//! // … and at the end:
//! endpoint.shutdown(std::time::Duration::from_secs(5)).await;
//! store.close().await;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod address;
mod cells;
mod cluster;
mod connection;
mod dial;
mod doubtful;
mod error;
mod farm_keys;
mod local_replays;
mod map;
mod memory;
mod node;
mod question;
mod quorum;
mod run;
#[cfg(test)]
#[path = "tests/scale/mod.rs"]
mod scale;
mod sentinel;
mod sessions;
mod share;
mod shutdown_proof;
mod unreported;

pub use address::{has_password, has_tls};
pub use dial::Access;
pub use error::{AccessError, ConnectError, StateError};
pub use farm_keys::{FarmKeys, FarmKeysError, KeysFingerprint};
pub use sessions::RedisSessions;

use address::{Address, Target};
use cells::CELLS;
use cluster::Cluster;
use dial::Dialer;
use error::Failure;
use firstflight::credential::JobRequest;
use firstflight::{SharedStore, StoreAnswer};
use quorum::BEAT;
use share::{Past, Share, Source};
use shutdown_proof::ShutdownProof;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Time limit of [`RedisStore::close`], in which open questions end and owed ones are reported.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// How long the start waits for the masters of a cluster.
const CLUSTER_WITHIN: Duration = Duration::from_secs(3);
/// Interval between two checks whether everything has ended.
const CLOSE_EVERY: Duration = Duration::from_millis(2);

/// Settings of a [`RedisStore`].
#[derive(Debug, Clone)]
pub struct Options {
    /// The prefix of every key. Members of one farm use the same prefix, and other users of the same Redis
    /// use other ones.
    pub prefix: String,
    /// How long an unused one-time cookie is valid.
    pub cookie_lifetime: Duration,
    /// How long an answer may take. It is below the endpoint's own limit (20 ms), so that the store itself
    /// reports a timeout.
    pub within: Duration,
    /// This member's own file, in which [`RedisStore::close`] leaves the proof that nothing is owed. A member that
    /// starts without the proof (because it was killed, or has no file) may have refused first flights that the store
    /// does not know of. So it begins a new memory for the whole farm: earlier one-time cookies are invalid, and guards
    /// are closed for a while.
    pub state: Option<PathBuf>,
    /// Files with the user, the password and the certificates.
    pub access: Access,
    /// Names the keys of the farm. The first member leaves it in the store, and members with other keys, with which they
    /// would share nothing, are refused. `None`: nothing is compared.
    pub keys: Option<KeysFingerprint>,
}

impl Default for Options {
    /// `firstflight`, a day, 18 ms, no files, no keys.
    fn default() -> Self {
        Self {
            prefix: "firstflight".to_owned(),
            cookie_lifetime: Duration::from_secs(86_400),
            within: Duration::from_millis(18),
            state: None,
            access: Access::default(),
            keys: None,
        }
    }
}

/// The memories of a store.
struct Shares {
    first: Arc<Share>,
    /// All others, if the store is a cluster.
    more: Vec<Arc<Share>>,
}

impl Shares {
    fn all(&self) -> impl Iterator<Item = &Arc<Share>> {
        std::iter::once(&self.first).chain(&self.more)
    }

    fn of(&self, cell: usize) -> &Arc<Share> {
        cell.checked_sub(1).and_then(|cell| self.more.get(cell)).unwrap_or(&self.first)
    }
}

/// A [`SharedStore`] in Redis. Dropping it closes its connections.
pub struct RedisStore {
    shares: Shares,
    options: Arc<Options>,
    left: Option<ShutdownProof>,
    /// Entries of sealed requests without a block.
    quota: Mutex<run::Quota>,
}

impl RedisStore {
    /// Connects to the Redis at `url`: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, the same with `rediss` (TLS),
    /// `redis+unix:///PATH`, or `redis+sentinel://HOST[:PORT][,HOST[:PORT]]/NAME[/DATABASE]` (with TLS `rediss+sentinel`): the
    /// master of that name, as the sentinels say, or `redis+cluster://HOST[:PORT][,HOST[:PORT]]` (`rediss+cluster`): a cluster,
    /// of which some servers are named. An IPv6 address is in brackets. If there is no answer, it logs that and keeps trying in the
    /// background.
    ///
    /// # Errors
    /// When the URL is invalid, Redis refuses the user or may evict keys, or a file cannot be used.
    pub async fn connect(url: &str, options: Options) -> Result<Self, ConnectError> {
        let address = Address::parse(url).map_err(ConnectError::Url)?;
        let (left, ticket) = take_left(options.state.clone()).await?;
        let past = ticket.clone().map_or(Past::Unknown, Past::Left);
        let options = Arc::new(options);
        let dialer = Dialer::new(&address, options.access.clone());
        let shares = match shares(address.target, dialer, &options, &past).await {
            Ok(shares) => shares,
            Err(mistake) => {
                give_back(left.as_ref(), ticket.as_deref());
                return Err(mistake);
            }
        };
        Ok(Self { shares, options, left, quota: Mutex::default() })
    }

    /// Whether `url` and these files can be used, without asking anybody.
    ///
    /// # Errors
    /// When the URL is invalid, or a file cannot be used.
    pub async fn check(url: &str, access: Access) -> Result<(), ConnectError> {
        let address = Address::parse(url).map_err(ConnectError::Url)?;
        Dialer::new(&address, access).check().await
    }

    /// Whether [`Options::state`] can be this file. It changes nothing, and another process may use the file meanwhile. This
    /// blocks.
    ///
    /// # Errors
    /// As [`RedisStore::connect`] of the file, but for [`StateError::Locked`].
    pub fn check_state(path: &Path) -> Result<(), ConnectError> {
        ShutdownProof::check(path).map_err(|error| ConnectError::State(path.to_owned(), error))
    }

    /// Whether the store can be asked at this moment.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shares.all().all(|share| share.connection().is_some())
    }

    /// Whether first flights that were refused without asking the store must still be reported to it.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.shares.all().any(|share| share.owes())
    }

    /// Leaves the farm: waits for at most two seconds until this is the last reference to the store (a [`RedisSessions`] and
    /// a server with this strike register have one) and everything owed was reported, and then writes the proof of that
    /// to [`Options::state`]. Returns whether that succeeded. If not, or without this call, the next start of this
    /// member begins a new memory for all. Call it when the endpoint has stopped ([`Endpoint::shutdown`](firstflight::Endpoint::shutdown)).
    pub async fn close(self: Arc<Self>) -> bool {
        match timeout(CLOSE_WITHIN, leave(self)).await {
            Ok(Ok(left)) => left,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the next start begins a new memory in the shared store");
                false
            }
            Err(_) => {
                tracing::warn!(
                    "not everything was reported to the store: the next start begins a new memory in it"
                );
                false
            }
        }
    }
}

/// Waits until nothing can be owed any more, and leaves the proof for the next start.
async fn leave(mut store: Arc<RedisStore>) -> Result<bool, Failure> {
    let alone = loop {
        match Arc::try_unwrap(store) {
            Ok(alone) => break alone,
            Err(held) => store = held,
        }
        sleep(CLOSE_EVERY).await;
    };
    let mut connections = Vec::new();
    for share in alone.shares.all() {
        connections.push(loop {
            match share.at_rest() {
                Some(connection) => break connection,
                None => sleep(CLOSE_EVERY).await,
            }
        });
    }
    let Some(file) = &alone.left else { return Ok(false) };
    let ticket = connection::random()? + &connection::random()?;
    let mut leaving = JoinSet::new();
    for connection in connections {
        let ticket = ticket.clone();
        leaving.spawn(async move { connection.leave(&ticket).await });
    }
    while let Some(left) = leaving.join_next().await {
        left.unwrap_or(Err(Failure::TimedOut))?;
    }
    file.put(&ticket).map_err(|error| Failure::Redis(error.into()))?;
    Ok(true)
}

/// Connects to what `target` names.
async fn shares(
    target: Target,
    dialer: Dialer,
    options: &Arc<Options>,
    past: &Past,
) -> Result<Shares, ConnectError> {
    let new = |source, scope| Arc::new(Share::new(source, scope, Arc::clone(options), past.clone()));
    let source = match target {
        Target::One(place) => Source::One(Arc::new(dialer), place),
        Target::Sentinel(places, name) => Source::Sentinel(Arc::new(dialer), places, name),
        Target::Cluster(places) => {
            let (cluster, found) = Cluster::start(dialer, places, options.prefix.clone()).await;
            let settled = match found {
                Ok(()) => cluster.settled(CLUSTER_WITHIN).await,
                Err(failure) => Err(failure),
            };
            if let Err(failure) = settled {
                match failure.into_mistake() {
                    Ok(mistake) => return Err(mistake),
                    Err(failure) => tracing::warn!(%failure, "the shared store is not complete"),
                }
            }
            let share =
                |cell| new(Source::Cell(Arc::clone(&cluster), cell), cells::scope(&options.prefix, cell));
            let shares = Shares { first: share(0), more: (1..CELLS).map(share).collect() };
            let mut connecting = JoinSet::new();
            for share in shares.all().map(Arc::clone) {
                connecting.spawn(async move {
                    let failure = share.attempt().await.err()?;
                    if let Failure::OtherKeys(..) = failure {
                        return Some(failure);
                    }
                    share.lost(None, &failure);
                    None
                });
            }
            let others = connecting.join_all().await.into_iter().flatten().next();
            if let Some(Ok(mistake)) = others.map(Failure::into_mistake) {
                return Err(mistake);
            }
            tokio::spawn(look_after(shares.all().map(Arc::downgrade).collect()));
            return Ok(shares);
        }
    };
    let first = new(source, options.prefix.clone());
    if let Err(failure) = first.attempt().await {
        match failure.into_mistake() {
            Ok(mistake) => return Err(mistake),
            Err(failure) => first.lost(None, &failure),
        }
    }
    Ok(Shares { first, more: Vec::new() })
}

/// Looks after the cells of a cluster until the store is dropped. So a cell that moved is met soon by every member.
async fn look_after(shares: Vec<Weak<Share>>) {
    loop {
        sleep(BEAT).await;
        for share in &shares {
            let Some(share) = share.upgrade() else { return };
            share.look();
        }
    }
}

/// Puts an unused ticket back into the file. Nothing was asked, so nothing is owed.
fn give_back(file: Option<&ShutdownProof>, ticket: Option<&str>) {
    if let (Some(file), Some(ticket)) = (file, ticket)
        && let Err(error) = file.put(ticket)
    {
        tracing::warn!(%error, "the next start begins a new memory in the shared store");
    }
}

/// Opens the state file, and reads what it says about the previous process.
async fn take_left(path: Option<PathBuf>) -> Result<(Option<ShutdownProof>, Option<String>), ConnectError> {
    let Some(path) = path else { return Ok((None, None)) };
    let here = path.clone();
    let taken = tokio::task::spawn_blocking(move || ShutdownProof::take(&here)).await;
    let taken = taken.unwrap_or_else(|error| Err(std::io::Error::other(error).into()));
    let (file, ticket) = taken.map_err(|error| ConnectError::State(path, error))?;
    Ok((Some(file), ticket))
}

impl SharedStore for RedisStore {
    fn ask(&self, request: JobRequest) -> StoreAnswer<'_> {
        Box::pin(self.shares.of(cells::of_request(&request)).answer(request))
    }

    fn missed(&self, request: JobRequest) {
        self.shares.of(cells::of_request(&request)).missed(request);
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Leave out the address, because it may contain a password.
        f.debug_struct("RedisStore").field("options", &self.options).finish_non_exhaustive()
    }
}
