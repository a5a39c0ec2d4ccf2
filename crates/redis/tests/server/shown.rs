//! First flights that are shown to two members, and how often they are accepted.

use firstflight::SharedStore;
use firstflight::credential::{JobRequest, JobResult};
use firstflight_redis::{Options, RedisStore};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Copies of a first flight arrive within this time in these tests, milliseconds.
pub(crate) const REACH: u64 = 500;
/// When they arrive.
pub(crate) const LATER: Duration = Duration::from_millis(200);

pub(crate) fn options() -> Options {
    Options { within: Duration::from_millis(300), ..Options::default() }
}

pub(crate) fn guard(id: u32) -> JobRequest {
    let mut key = [0; 16];
    key[..4].copy_from_slice(&id.wrapping_mul(0x9e37_79b1).to_be_bytes());
    JobRequest::GuardSet { key, keep_ms: 60_000, ahead_ms: 0, reach_ms: REACH, unix_ms: None, checked: true }
}

pub(crate) async fn member(url: &str) -> RedisStore {
    let store = RedisStore::connect(url, options()).await.unwrap();
    connected(&store).await;
    store
}

pub(crate) async fn connected(store: &RedisStore) {
    while !store.is_connected() {
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn is_accepted(store: &RedisStore, request: JobRequest) -> bool {
    store.ask(request).await == Ok(JobResult::Accept)
}

/// What became of first flights that were shown to two members at once, and to both again a little later.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub next: u32,
    pub by_one: u32,
    pub by_other: u32,
    pub copies: u32,
    pub twice: u32,
    /// When a first flight was shown, its id, and how often it was accepted then.
    recent: VecDeque<(Instant, u32, u32)>,
}

impl Shown {
    /// Shows a new first flight to both members every few milliseconds, until `end` says that it is enough.
    pub(crate) async fn until(
        &mut self,
        one: &RedisStore,
        other: &RedisStore,
        mut end: impl FnMut(&Self) -> bool,
    ) {
        while !end(self) {
            self.next += 1;
            let (id, at) = (self.next, Instant::now());
            let (here, there) = tokio::join!(is_accepted(one, guard(id)), is_accepted(other, guard(id)));
            self.by_one += u32::from(here);
            self.by_other += u32::from(there);
            self.twice += u32::from(here && there);
            self.recent.push_back((at, id, u32::from(here) + u32::from(there)));
            self.show_again(one, other).await;
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Copies arrive later, but within [`REACH`].
    async fn show_again(&mut self, one: &RedisStore, other: &RedisStore) {
        while let Some((at, id, accepted)) = self.recent.pop_front_if(|(at, ..)| at.elapsed() > LATER) {
            if at.elapsed() > 2 * LATER {
                continue;
            }
            let (here, there) = tokio::join!(is_accepted(one, guard(id)), is_accepted(other, guard(id)));
            let copies = u32::from(here) + u32::from(there);
            self.copies += 1;
            // One that was refused everywhere was executed after its handshake, and its copy is another matter.
            self.twice += u32::from(accepted > 0 && copies > 0);
        }
    }

    pub(crate) async fn for_a_while(&mut self, one: &RedisStore, other: &RedisStore, seconds: u64) {
        let ends = Instant::now() + Duration::from_secs(seconds);
        self.until(one, other, |_| Instant::now() >= ends).await;
    }
}
