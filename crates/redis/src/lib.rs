//! The store that the servers of a farm share, in Redis 6.2 or later (or Valkey).
//!
//! A first flight that one server accepted is not accepted by another, and a one-time cookie that one server
//! granted is valid once at any of them. All members of a farm have the same keys
//! ([`GuardKey`](firstflight::credential::GuardKey), [`OneTimeKeys`](firstflight::credential::OneTimeKeys)),
//! the same [`Options::prefix`], and issuer numbers of their own.
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
//! # Sealed requests
//! [`RedisStore::run`] is the run table of sealed first flights for a farm (`docs/spec/sealed.md`, section 6.6). The same
//! rules hold: without an answer nothing counts as new, and a new memory has a floor.
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
mod connection;
mod dial;
mod error;
mod left;
mod memory;
mod owed;
mod question;
mod quorum;
mod run;
mod sentinel;
mod sessions;

pub use address::has_password;
pub use dial::Access;
pub use error::{AccessError, ConnectError, StateError};
pub use sessions::RedisSessions;

use address::{Address, Target};
use connection::{Connection, Reply};
use dial::{CONNECT_WITHIN, Dialer, Server};
use error::Failure;
use firstflight::credential::{JobRequest, JobResult, Reason};
use firstflight::{Answer, SharedStore, StoreError};
use left::LeftFile;
use memory::Memories;
use owed::Owed;
use question::Question;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);
/// Time limit of [`RedisStore::close`], in which open questions end and owed ones are reported.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
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
}

impl Default for Options {
    /// `firstflight`, a day, 18 ms, no files.
    fn default() -> Self {
        Self {
            prefix: "firstflight".to_owned(),
            cookie_lifetime: Duration::from_secs(86_400),
            within: Duration::from_millis(18),
            state: None,
            access: Access::default(),
        }
    }
}

/// A [`SharedStore`] in Redis. Dropping it closes its connection.
#[derive(Debug)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    target: Target,
    dialer: Arc<Dialer>,
    options: Options,
    left: Option<LeftFile>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` while the store is lost.
    connection: Option<Connection>,
    memories: Memories,
    owed: Owed,
    past: Past,
    /// A task is connecting.
    connecting: bool,
    /// A task reports the owed questions on the current connection.
    settling: bool,
    /// Entries of sealed requests without a block.
    quota: run::Quota,
}

/// What the previous process of this member may owe.
#[derive(Debug, Clone, Default)]
enum Past {
    /// It may owe anything, because nothing is known of it.
    #[default]
    Unknown,
    /// It owes nothing, if the store confirms this ticket.
    Left(String),
    /// Settled: the store confirmed it, or a new memory has begun.
    Settled,
}

impl RedisStore {
    /// Connects to the Redis at `url`: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, the same with `rediss` (TLS),
    /// `redis+unix:///PATH`, or `redis+sentinel://HOST[:PORT][,HOST[:PORT]]/NAME[/DATABASE]` (with TLS `rediss+sentinel`): the
    /// master of that name, as the sentinels say. An IPv6 address is in brackets. If there is no answer, it logs that and keeps trying in the
    /// background.
    ///
    /// # Errors
    /// When the URL is invalid, Redis refuses the user or may evict keys, or a file cannot be used.
    pub async fn connect(url: &str, options: Options) -> Result<Self, ConnectError> {
        let address = Address::parse(url).map_err(ConnectError::Url)?;
        let dialer = Arc::new(Dialer::new(&address, options.access.clone()));
        let (left, past) = take_left(options.state.clone()).await?;
        let state = Mutex::new(State { past, ..State::default() });
        let inner = Inner { target: address.target, dialer, options, left, state };
        let store = Self(Arc::new(inner));
        match store.0.attempt().await {
            Ok(()) => {}
            Err(failure) => match failure.into_mistake() {
                Ok(mistake) => {
                    store.0.give_back();
                    return Err(mistake);
                }
                Err(failure) => store.0.lost(None, &failure),
            },
        }
        Ok(store)
    }

    /// Whether the store can be asked at this moment.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.0.lock().connection.is_some()
    }

    /// Whether first flights that were refused without asking the store must still be reported to it.
    #[must_use]
    pub fn owes(&self) -> bool {
        !self.0.lock().owed.is_empty()
    }

    /// Leaves the farm: waits for at most two seconds until this is the last reference to the store (a [`RedisSessions`] and
    /// a server with this run table have one) and everything owed was reported, and then writes the proof of that to [`Options::state`]. Returns whether that succeeded. If not,
    /// or without this call, the next start of this member begins a new memory for all. Call it when the endpoint has
    /// stopped ([`Endpoint::shutdown`](firstflight::Endpoint::shutdown)).
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
            Ok(alone) => break alone.0,
            Err(held) => store = held,
        }
        sleep(CLOSE_EVERY).await;
    };
    loop {
        let connection = {
            let state = alone.lock();
            state.connection.clone().filter(|_| state.owed.is_empty() && !state.connecting)
        };
        if let Some(connection) = connection {
            let Some(file) = &alone.left else { return Ok(false) };
            file.put(&connection.leave().await?).map_err(|error| Failure::Redis(error.into()))?;
            return Ok(true);
        }
        sleep(CLOSE_EVERY).await;
    }
}

/// Opens the state file, and reads what it says about the previous process.
async fn take_left(path: Option<PathBuf>) -> Result<(Option<LeftFile>, Past), ConnectError> {
    let Some(path) = path else { return Ok((None, Past::Unknown)) };
    let here = path.clone();
    let taken = tokio::task::spawn_blocking(move || LeftFile::take(&here)).await;
    let taken = taken.unwrap_or_else(|error| Err(std::io::Error::other(error).into()));
    let (file, ticket) = taken.map_err(|error| ConnectError::State(path, error))?;
    Ok((Some(file), ticket.map_or(Past::Unknown, Past::Left)))
}

impl SharedStore for RedisStore {
    fn ask(&self, request: JobRequest) -> Answer<'_> {
        Box::pin(self.0.answer(request))
    }

    fn missed(&self, request: JobRequest) {
        self.0.missed(request);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an unused ticket back into the file. Nothing was asked, so nothing is owed.
    fn give_back(&self) {
        if let (Some(file), Past::Left(ticket)) = (&self.left, &self.lock().past)
            && let Err(error) = file.put(ticket)
        {
            tracing::warn!(%error, "the next start begins a new memory in the shared store");
        }
    }

    /// Notes a question that was not asked, or whose answer was not waited for. One task reports all of them.
    fn missed(self: &Arc<Self>, request: JobRequest) {
        let mut state = self.lock();
        state.owed.add(request);
        self.begin_to_settle(state);
    }

    /// Starts the task that reports what is owed, unless it runs already or cannot report now.
    fn begin_to_settle(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        // Without a runtime the process is ending, and the next start finds no proof that nothing is owed.
        if !state.settling
            && state.can_settle()
            && let Ok(runtime) = Handle::try_current()
        {
            state.settling = true;
            drop(state);
            runtime.spawn(Arc::clone(self).settle());
        }
    }

    async fn settle(self: Arc<Self>) {
        loop {
            let (connection, owed) = {
                let mut state = self.lock();
                let owed = state.owed.clone();
                match state.connection.clone() {
                    Some(connection) if state.can_settle() => (connection, owed),
                    // A new connection first reports what is owed. Questions that were added in the meantime
                    // are reported after that.
                    _ => {
                        state.settling = false;
                        return;
                    }
                }
            };
            let told = match owed.is_too_many() {
                true => Err(Failure::TimedOut),
                false => timeout(CONNECT_WITHIN, self.make_up(&connection, owed))
                    .await
                    .unwrap_or(Err(Failure::TimedOut)),
            };
            if let Err(failure) = told {
                self.lost(Some(&connection), &failure);
            }
        }
    }

    async fn answer(self: &Arc<Self>, request: JobRequest) -> Result<JobResult, StoreError> {
        let read = |question: &Question, reply: &Reply, asked, since| question.answer(reply, asked, since);
        // The store may not know that this id or cookie is used up, but the data is sent by the ordinary
        // handshake.
        Ok(self.hear(request, read).await?.unwrap_or(JobResult::Refuse(Reason::Replay)))
    }

    /// Asks, and returns what `read` makes of the reply. `None` if the question is owed: then its id is used up.
    async fn hear<T>(
        self: &Arc<Self>,
        request: JobRequest,
        read: impl FnOnce(&Question, &Reply, Instant, Instant) -> Option<T>,
    ) -> Result<Option<T>, StoreError> {
        let connection = {
            let mut state = self.lock();
            let Some(connection) = state.connection.clone() else {
                state.owed.add(request);
                return Err(StoreError::Unreachable);
            };
            if state.owed.holds(&request) {
                return Ok(None);
            }
            connection
        };
        let question = self.question(request, &connection).ok_or(StoreError::Unsupported)?;
        let asked = Instant::now();
        let reply = timeout(self.options.within, connection.ask(&question.command)).await;
        let answer = reply
            .unwrap_or(Err(Failure::TimedOut))
            .and_then(|reply| read(&question, &reply, asked, connection.since).ok_or(Failure::NoInfo));
        answer.map(Some).map_err(|failure| {
            self.lock().owed.add(request);
            self.lost(Some(&connection), &failure);
            failure.as_store_error()
        })
    }

    fn question(&self, request: JobRequest, connection: &Connection) -> Option<Question> {
        Question::new(request, &self.options.prefix, connection, self.options.cookie_lifetime)
    }

    /// One attempt to connect.
    async fn attempt(self: &Arc<Self>) -> Result<(), Failure> {
        // Sentinels are asked first, and may name several masters.
        let within = if matches!(self.target, Target::One(_)) { CONNECT_WITHIN } else { 3 * CONNECT_WITHIN };
        let opened = timeout(within, self.open()).await;
        let mut connection = opened.unwrap_or(Err(Failure::TimedOut))?;
        let rest = {
            let mut state = self.lock();
            if state.owed.is_too_many() {
                // Too many were added since the check in `open`. The next attempt begins a new memory.
                return Err(Failure::TimedOut);
            }
            connection.since = state.memories.met(&connection.identity, Instant::now());
            state.connection = Some(connection.clone());
            state.owed.clone()
        };
        // Report the questions that were missed since `open`. Other questions are allowed from here on, or
        // new missed ones could delay the connection without end.
        let told = timeout(CONNECT_WITHIN, self.make_up(&connection, rest)).await;
        let told = told.unwrap_or(Err(Failure::TimedOut));
        let mut state = self.lock();
        if told.is_err() && state.is_current(&connection) {
            // No question uses this connection any more. The next attempt makes another one.
            state.connection = None;
        }
        drop(state);
        if told.is_ok() && connection.has_lease() {
            tokio::spawn(keep_lease(Arc::downgrade(self), connection));
        }
        told
    }

    /// Connects to the server, or to the master that the sentinels name.
    async fn find(&self) -> Result<Connection, Failure> {
        let prefix = &self.options.prefix;
        match &self.target {
            Target::One(place) => {
                Connection::open(self.dialer.connect(place, Server::Redis).await?, prefix, None).await
            }
            Target::Sentinel(places, name) => {
                let known = sentinel::ask(&self.dialer, places, name).await?;
                let mut last = Failure::NoMaster;
                for master in &known.masters {
                    let opened = async {
                        let link = self.dialer.connect(master, Server::Redis).await?;
                        Connection::open(link, prefix, Some(known.replicas)).await
                    };
                    match timeout(CONNECT_WITHIN, opened).await.unwrap_or(Err(Failure::TimedOut)) {
                        Ok(connection) => return Ok(connection),
                        Err(failure) => last = failure,
                    }
                }
                Err(last)
            }
        }
    }

    async fn open(&self) -> Result<Connection, Failure> {
        let mut connection = self.find().await?;
        let (owed, past) = {
            let state = self.lock();
            (state.owed.clone(), state.past.clone())
        };
        let is_unknown = match past {
            Past::Settled => false,
            Past::Left(ticket) => !connection.come_back(&ticket).await?,
            Past::Unknown => true,
        };
        if owed.is_too_many() || is_unknown && !connection.is_fresh {
            connection.begin_anew().await?;
        }
        self.lock().past = Past::Settled;
        self.make_up(&connection, owed).await?;
        Ok(connection)
    }

    /// Reports to the store the questions that could not be asked.
    async fn make_up(&self, connection: &Connection, owed: Owed) -> Result<(), Failure> {
        let questions = owed.requests().iter().filter_map(|&request| self.question(request, connection));
        connection.tell(questions.map(|question| question.command)).await?;
        self.lock().owed.settle(&owed);
        Ok(())
    }

    /// Drops a connection that failed, so that no first flight waits for it, and starts to reconnect.
    fn lost(self: &Arc<Self>, which: Option<&Connection>, failure: &Failure) {
        let mut state = self.lock();
        if state.connecting || which.is_some_and(|which| !state.is_current(which)) {
            return;
        }
        state.connection = None;
        state.connecting = true;
        drop(state);
        tracing::warn!(%failure, "the shared store is lost: first flights take the ordinary handshake");
        tokio::spawn(reconnect(Arc::downgrade(self)));
    }
}

impl State {
    /// Whether something is owed that can be reported on the current connection. While a task is connecting, that task
    /// reports it.
    const fn can_settle(&self) -> bool {
        self.connection.is_some() && !self.connecting && !self.owed.is_empty()
    }

    /// Whether `connection` is the current one. Questions that were open when a connection broke end after it
    /// was replaced.
    fn is_current(&self, connection: &Connection) -> bool {
        self.connection.as_ref().is_some_and(|current| current.number == connection.number)
    }
}

/// Keeps the lease of a master while `connection` is used, also without questions: a master that was replaced is noticed.
async fn keep_lease(store: Weak<Inner>, connection: Connection) {
    loop {
        sleep(quorum::BEAT).await;
        let Some(inner) = store.upgrade() else { return };
        if !inner.lock().is_current(&connection) {
            return;
        }
        let beat = timeout(CONNECT_WITHIN, connection.beat()).await;
        if let Err(failure) = beat.unwrap_or(Err(Failure::TimedOut)) {
            inner.lost(Some(&connection), &failure);
            return;
        }
    }
}

/// Tries until it is connected, or the store is gone.
async fn reconnect(store: Weak<Inner>) {
    let began = Instant::now();
    let mut told = false;
    loop {
        let Some(inner) = store.upgrade() else { return };
        match inner.attempt().await {
            Ok(()) => {
                let mut state = inner.lock();
                state.connecting = false;
                inner.begin_to_settle(state);
                let after_ms = began.elapsed().as_millis() as u64;
                tracing::warn!(after_ms, "the shared store answers again");
                return;
            }
            Err(failure) if failure.is_lasting() && !told => {
                told = true;
                tracing::error!(%failure, "the shared store cannot be used");
            }
            Err(failure) => tracing::debug!(%failure, "no shared store yet"),
        }
        drop(inner);
        sleep(RETRY).await;
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Leave out the dialer, because its address may contain a password.
        f.debug_struct("RedisStore").field("options", &self.options).finish_non_exhaustive()
    }
}
