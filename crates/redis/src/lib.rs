//! The store that the servers of a farm share, in Redis 6.2 or later (or Valkey).
//!
//! A first flight that one server took is not taken by another, and a one-time cookie that one server
//! granted is good at every other one, once. All members of a farm have the same keys
//! ([`GuardKey`](firstflight::credential::GuardKey), [`OneTimeKeys`](firstflight::credential::OneTimeKeys)),
//! the same [`Options::prefix`], and issuer numbers of their own.
//!
//! # When Redis forgets
//! A Redis that restarts, is emptied or is replaced by a replica may have lost what it acknowledged
//! (replication is asynchronous, also with `WAIT`). So every question is one `MULTI` that also asks who
//! answers: the process (`run_id`), its line of replication (`master_replid`) and a random number among
//! the data. If any of them is another one than before, the memory counts as begun at that moment: guarded
//! first flights fall back until no copy of an older one can be under way, and one-time cookies of before
//! are worthless, because their names in Redis contain the memory's. The same is so for a member that starts.
//! A server that may throw keys away (`maxmemory-policy` other than `noeviction`) is refused.
//!
//! Redis is never waited for longer than [`Options::within`]. Without an answer the handshake is an ordinary
//! one, and while the connection is lost nobody waits at all; it is made anew in the background. What could
//! not be asked meanwhile is made up for before the next question: a recorded SYN that was refused is not good
//! later.
//!
//! ```no_run
//! # async fn start(config: firstflight::Config, link: impl firstflight::link::Link + 'static)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use firstflight_redis::{Options, RedisStore};
//! let store = RedisStore::connect("redis://10.1.0.1:6379/2", Options::default()).await?;
//! let endpoint = firstflight::Endpoint::with_store(config, link, std::sync::Arc::new(store));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod connection;
mod error;
mod memory;
mod owed;

pub use error::ConnectError;

use connection::Connection;
use error::Failure;
use firstflight::credential::{JobRequest, JobResult, Reason, Serial};
use firstflight::{Answer, SharedStore, StoreError};
use memory::Memories;
use owed::Owed;
use redis::{Client, Cmd, IntoConnectionInfo};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long a cookie that was shown is remembered: longer than its activation can be late, which a client
/// or a slow network may hold back as long as a handshake lasts.
const USED_LIVES: Duration = Duration::from_secs(3600);
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);
/// For one attempt to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// Settings of a [`RedisStore`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Begins the name of every key. Members of one farm have the same, other users of the same Redis others.
    pub prefix: String,
    /// How long an unused one-time cookie is good.
    pub cookie_lifetime: Duration,
    /// How long an answer may take; below the endpoint's own limit (20 ms), so that this one is told.
    pub within: Duration,
}

impl Default for Options {
    /// `firstflight`, a day, 18 ms.
    fn default() -> Self {
        Self {
            prefix: "firstflight".to_owned(),
            cookie_lifetime: Duration::from_secs(86_400),
            within: Duration::from_millis(18),
        }
    }
}

/// A [`SharedStore`] in Redis. Dropped, it closes its connection.
#[derive(Debug)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    client: Client,
    options: Options,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` while the store is lost.
    connection: Option<Connection>,
    memories: Memories,
    owed: Owed,
    /// A task is connecting.
    connecting: bool,
    /// A task makes up for what is owed, on the connection that is there.
    settling: bool,
}

impl RedisStore {
    /// Connects to the Redis at `url`: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]` or
    /// `redis+unix:///PATH`. If nobody answers there, says so in the log and tries on in the background.
    ///
    /// # Errors
    /// When the URL is none, Redis refuses the user, or may throw keys away.
    pub async fn connect(url: &str, options: Options) -> Result<Self, ConnectError> {
        let info = url.into_connection_info().map_err(ConnectError::Url)?;
        // Without this the last packet of a question waits for the acknowledgement of the one before.
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(tcp)).map_err(ConnectError::Url)?;
        let inner = Inner { client, options, state: Mutex::default() };
        let store = Self(Arc::new(inner));
        match store.0.attempt().await {
            Ok(()) => {}
            Err(failure) => match failure.into_mistake() {
                Ok(mistake) => return Err(mistake),
                Err(failure) => store.0.lost(None, &failure),
            },
        }
        Ok(store)
    }

    /// Whether it can be asked right now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.0.lock().connection.is_some()
    }

    /// Whether it has still to be told of first flights that were refused without asking it.
    #[must_use]
    pub fn owes(&self) -> bool {
        !self.0.lock().owed.is_empty()
    }
}

impl SharedStore for RedisStore {
    fn ask(&self, request: JobRequest) -> Answer<'_> {
        Box::pin(self.0.answer(request))
    }

    fn missed(&self, request: JobRequest) {
        self.0.missed(request);
    }
}

/// A question's command, and how its reply reads.
struct Question {
    command: Cmd,
    /// With the floor of the memory that answered.
    read: fn(Option<&str>) -> JobResult,
    /// How far after the beginning of a memory the first flight is stamped, and must be: milliseconds.
    ahead_ms: u64,
    reach_ms: u64,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Too many questions are open: made up for beside them, by one task.
    fn missed(self: &Arc<Self>, request: JobRequest) {
        let mut state = self.lock();
        state.owed.add(request);
        let begin = state.connection.is_some() && !state.settling;
        if begin {
            state.settling = true;
            drop(state);
            tokio::spawn(Arc::clone(self).settle());
        }
    }

    async fn settle(self: Arc<Self>) {
        loop {
            let (connection, owed) = {
                let mut state = self.lock();
                let owed = state.owed.clone();
                match state.connection.clone() {
                    Some(connection) if !owed.is_empty() => (connection, owed),
                    // A new connection begins with what is owed.
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
        let connection = {
            let mut state = self.lock();
            let Some(connection) = state.connection.clone() else {
                state.owed.add(request);
                return Err(StoreError::Unreachable);
            };
            connection
        };
        let question = self.question(request, &connection).ok_or(StoreError::Unsupported)?;
        let reply = timeout(self.options.within, connection.ask(&question.command)).await;
        let reply = reply.unwrap_or(Err(Failure::TimedOut)).map_err(|failure| {
            self.lock().owed.add(request);
            self.lost(Some(&connection), &failure);
            failure.as_store_error()
        })?;
        // Also what is refused here was set: it is on its way by the ordinary handshake, and copies of it may
        // come after the floor.
        let now = Instant::now() + Duration::from_millis(question.ahead_ms);
        if question.reach_ms > 0 && now <= connection.since + Duration::from_millis(question.reach_ms) {
            return Ok(JobResult::Refuse(Reason::GuardFloor));
        }
        Ok((question.read)(reply.as_deref()))
    }

    fn question(&self, request: JobRequest, connection: &Connection) -> Option<Question> {
        let prefix = &self.options.prefix;
        Some(match request {
            JobRequest::GuardSet { key, keep_ms, ahead_ms, reach_ms } => {
                let key = u128::from_be_bytes(key);
                let mut command = set(format!("{prefix}:seen:{key:032x}"), "1", keep_ms);
                command.arg("NX");
                let read = |reply: Option<&str>| match reply {
                    Some(_) => JobResult::Accept,
                    None => JobResult::Refuse(Reason::Replay),
                };
                Question { command, read, ahead_ms, reach_ms }
            }
            JobRequest::Redeem { serial } => {
                // `used` whatever was there: see the rules of `SharedStore`.
                let mut command = set(self.cookie(connection, serial), "used", millis(USED_LIVES));
                command.arg("GET");
                let read = |reply: Option<&str>| match reply {
                    Some("active") => JobResult::Accept,
                    Some(_) => JobResult::Refuse(Reason::Replay),
                    None => JobResult::Refuse(Reason::NotActive),
                };
                Question { command, read, ahead_ms: 0, reach_ms: 0 }
            }
            JobRequest::Activate { serial } => {
                let lifetime = millis(self.options.cookie_lifetime);
                let mut command = set(self.cookie(connection, serial), "active", lifetime);
                command.arg("NX");
                Question { command, read: |_| JobResult::Accept, ahead_ms: 0, reach_ms: 0 }
            }
            _ => return None,
        })
    }

    /// The name of a one-time cookie. A cookie of another memory has another name: nothing that came back from
    /// a disk or a replica is taken for good.
    fn cookie(&self, connection: &Connection, serial: Serial) -> String {
        format!("{}:{}:cookie:{:016x}", self.options.prefix, connection.identity, serial.get())
    }

    /// One attempt to connect.
    async fn attempt(&self) -> Result<(), Failure> {
        let opened = timeout(CONNECT_WITHIN, self.open()).await;
        let mut connection = opened.unwrap_or(Err(Failure::TimedOut))?;
        let rest = {
            let mut state = self.lock();
            connection.since = state.memories.met(&connection.identity, Instant::now());
            state.connection = Some(connection.clone());
            state.owed.clone()
        };
        // What was refused since: with others' questions from here on, or there would always be one more.
        timeout(CONNECT_WITHIN, self.make_up(&connection, rest)).await.unwrap_or(Err(Failure::TimedOut))
    }

    async fn open(&self) -> Result<Connection, Failure> {
        let mut connection = Connection::open(&self.client, &self.options.prefix).await?;
        let owed = self.lock().owed.clone();
        if owed.is_too_many() {
            connection.begin_anew().await?;
        }
        self.make_up(&connection, owed).await?;
        Ok(connection)
    }

    /// Tells the store what it could not be asked.
    async fn make_up(&self, connection: &Connection, owed: Owed) -> Result<(), Failure> {
        let questions = owed.requests().iter().filter_map(|&request| self.question(request, connection));
        connection.tell(questions.map(|question| question.command)).await?;
        self.lock().owed.settle(&owed);
        Ok(())
    }

    /// The connection is of no use any more: nobody is made to wait for it, and another one is made.
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
    /// Questions that were open when a connection broke end later than it.
    fn is_current(&self, connection: &Connection) -> bool {
        self.connection.as_ref().is_some_and(|current| current.number == connection.number)
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
                inner.lock().connecting = false;
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

fn set(key: String, value: &str, lasts_ms: u64) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(key).arg(value).arg("PX").arg(lasts_ms.max(1));
    command
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the client: its address may hold a password.
        f.debug_struct("RedisStore").field("options", &self.options).finish_non_exhaustive()
    }
}
