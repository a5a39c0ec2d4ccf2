//! Two members of a farm and their Redis.

use super::Redis;
use crate::questions::{ACCEPTED, activate, redeem};
use firstflight::credential::{JobRequest, JobResult};
use firstflight::{SharedStore, StoreError};
use firstflight_redis::{Options, RedisStore};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// With a long time limit: these tests check the answers, not their time.
pub(crate) fn options(state: Option<&Path>) -> Options {
    Options { within: Duration::from_secs(10), state: state.map(Path::to_owned), ..Options::default() }
}

pub(crate) async fn member(redis: &Redis, state: Option<&Path>) -> RedisStore {
    RedisStore::connect(&redis.url(), options(state)).await.unwrap()
}

/// Asks until the member has connected to the memory that answers.
pub(crate) async fn ask(store: &RedisStore, request: JobRequest) -> Result<JobResult, StoreError> {
    while store.ask(activate(1 << 40)).await.is_err() {
        while !store.is_connected() {
            tokio::task::yield_now().await;
        }
    }
    store.ask(request).await
}

/// Two members of one farm, one with a state file at `path` and one without. Cookies 1 to 9 are valid.
pub(crate) struct Farm {
    runtime: Runtime,
    pub redis: Redis,
    pub path: PathBuf,
    other: RedisStore,
}

impl Farm {
    pub(crate) fn start() -> Option<Self> {
        let redis = Redis::start(&[])?;
        let runtime = runtime();
        let other = runtime.block_on(member(&redis, None));
        Some(Self { runtime, path: redis.file("state"), redis, other })
    }

    /// Starts the member with the state file, then activates the cookies.
    pub(crate) fn member(&self, runtime: &Runtime, state: Option<&Path>) -> RedisStore {
        let options = Options { state: state.map(Path::to_owned), ..Options::default() };
        let store = runtime.block_on(RedisStore::connect(&self.redis.url(), options)).unwrap();
        for counter in 1..10 {
            assert_eq!(self.other(activate(counter)), ACCEPTED);
        }
        store
    }

    /// The answer to the other member.
    pub(crate) fn other(&self, request: JobRequest) -> Result<JobResult, StoreError> {
        self.runtime.block_on(ask(&self.other, request))
    }

    /// A member stops in order.
    pub(crate) fn close(&self, runtime: &Runtime, store: RedisStore) -> bool {
        runtime.block_on(Arc::new(store).close())
    }

    /// Lets Redis answer again, and waits until everything owed was reported.
    pub(crate) fn end_of_outage(&self, runtime: &Runtime, store: &RedisStore) {
        self.signal(Signal::SIGCONT);
        runtime.block_on(async {
            while !store.is_connected() || store.owes() {
                tokio::task::yield_now().await;
            }
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.redis.pid()), signal).unwrap();
    }

    /// `store` refuses cookie 1 while Redis does not answer: Redis has not heard of it.
    pub(crate) fn refuse(&self, runtime: &Runtime, store: &RedisStore) {
        self.signal(Signal::SIGSTOP);
        runtime.block_on(async {
            // This question times out. From then on the connection counts as lost.
            assert!(store.ask(redeem(9)).await.is_err());
            assert_eq!(store.ask(redeem(1)).await, Err(StoreError::Unreachable));
        });
        assert!(store.owes());
    }
}

/// A runtime for one process. Dropping it ends its tasks as a kill does.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}
