//! State that the servers of a farm share: which first flights were accepted, and which one-time cookies were used.

mod memory;

pub use memory::MemoryStore;

use crate::credential::{JobRequest, JobResult};
use std::future::Future;
use std::pin::Pin;

/// The future answer of a [`SharedStore`]. If it is dropped before it is ready, the store may or may not have done
/// what was asked. [`SharedStore::missed`] then reports the question.
pub type StoreAnswer<'a> = Pin<Box<dyn Future<Output = Result<JobResult, StoreError>> + Send + 'a>>;

/// A store that several servers ask, so that all of them together accept a first flight only once.
///
/// # Correctness
/// `Accept` must be true: of all servers that ask the same question, at most one gets `Accept`, whatever happens to
/// the store's memory. Every other result (a refusal, an error, no answer in time) costs a client one round trip. So
/// a store that may have lost what it acknowledged refuses:
///
/// - [`JobRequest::GuardSet`]: `Repeat` if the id was set, whatever follows; else `Accept`. The store keeps the id for `keep_ms`. A store whose
///   memory begins at some moment refuses a new id while now plus `ahead_ms` is at most `reach_ms` after that moment. With
///   `unix_ms` the id is kept until the store's clock shows `unix_ms + keep_ms`, and the question is refused if that
///   clock differs from `unix_ms` by more than
///   [`RemoteGuard::CLOCKS_APART`](crate::credential::RemoteGuard::CLOCKS_APART), because members whose clocks differ
///   by more cannot know which stamps the other member accepts.
/// - [`JobRequest::Redeem`]: `Accept` if the serial was activated and never used before. A serial that is used before
///   it is activated is also used up: its data was already sent by the ordinary handshake, and a copy of that SYN
///   must not find a valid cookie. A serial that was accepted for the same `flight` is a `Repeat`. One that was used
///   by another first flight is [`Reason::Replay`](crate::credential::Reason::Replay): several connections of one
///   client may show one cookie, and each of them has data of its own.
/// - [`JobRequest::Activate`]: the answer is ignored. If an activation is lost, its cookie is not valid.
///
/// The answers are first polled in the order of the questions. A separate task polls them, never under a lock of the
/// endpoint.
pub trait SharedStore: Send + Sync {
    /// Answers a question of a listener. If the answer is an error, the store itself treats the question as
    /// [`SharedStore::missed`].
    fn ask(&self, request: JobRequest) -> StoreAnswer<'_>;

    /// Reports a question that was not asked because too many are open, or whose answer was not awaited. Its first
    /// flight was refused and its data is sent by the ordinary handshake, so its id or cookie must be used up before
    /// anything else is accepted. This is called under the endpoint's lock, and when a task ends: it must not block,
    /// and must not panic outside a runtime.
    fn missed(&self, request: JobRequest);
}

/// Why a store gives no answer. Every error leads to an ordinary handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached, or the connection to it broke.
    #[error("the shared store cannot be reached")]
    Unreachable,
    /// The answer was too late.
    #[error("the shared store gave no answer in time")]
    TimedOut,
    /// The store may forget what it was given. The person who configured it is at fault.
    #[error("the shared store may forget what it was told")]
    Unfit,
    /// The store does not support this question.
    #[error("the shared store cannot answer such a question")]
    Unsupported,
}

/// Counts the results of the questions to the shared store. All fields only grow.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct StoreCounters {
    /// Questions sent to the store.
    pub asked: u64,
    /// First flights that it accepted.
    pub accepted: u64,
    /// First flights that it refused: seen before, not valid, or from a time for which it has no memory.
    pub refused: u64,
    /// One-time cookies that it activated.
    pub activated: u64,
    /// Questions without an answer in time.
    pub timed_out: u64,
    /// Questions that failed otherwise.
    pub failed: u64,
    /// Questions not asked, because too many were open.
    pub turned_away: u64,
}

impl std::ops::AddAssign for StoreCounters {
    fn add_assign(&mut self, other: Self) {
        let Self { asked, accepted, refused, activated, timed_out, failed, turned_away } = other;
        self.asked += asked;
        self.accepted += accepted;
        self.refused += refused;
        self.activated += activated;
        self.timed_out += timed_out;
        self.failed += failed;
        self.turned_away += turned_away;
    }
}
