//! What the servers of a farm know together: which first flights were taken, which one-time cookies used.

mod memory;

pub use memory::MemoryStore;

use crate::credential::{JobRequest, JobResult};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// The answer of a [`SharedStore`], to be awaited. If it is dropped before it is ready, the store may have done what
/// was asked or not; [`SharedStore::missed`] then reports the question.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<JobResult, StoreError>> + Send + 'a>>;

/// A store that several servers ask, so that a first flight is taken once by all of them together.
///
/// # Correctness
/// `Accept` must be true: of all who ask the same thing, whichever server they ask from and whatever
/// happens to the store's memory, at most one is told it. Everything else (a refusal, an error, no answer
/// in time) costs a client one round trip. So a store that may have lost what it acknowledged refuses:
///
/// - [`JobRequest::GuardSet`]: `Accept` if the id was not set, and keeps it for `keep_ms`. A memory that begins
///   at some moment refuses as long as now and `ahead_ms` do not lie more than `reach_ms` after it. With `unix_ms`
///   the id is kept until the store's clock shows `unix_ms + keep_ms`, and the question is refused if
///   that clock differs from `unix_ms` by more than
///   [`RemoteGuard::CLOCKS_APART`](crate::credential::RemoteGuard::CLOCKS_APART): members whose clocks differ by more
///   cannot know which stamps the other one accepts.
/// - [`JobRequest::Redeem`]: `Accept` if the serial was activated and never shown before. A serial that is shown
///   before it is activated is used up too: what came with it is on its way by the ordinary handshake, and
///   a copy of that SYN must find nothing good.
/// - [`JobRequest::Activate`]: nobody reads the answer. A lost activation costs the cookie.
///
/// The first poll of the answers is in the order of the questions. They are polled by a task of their own,
/// never under a lock of the endpoint.
pub trait SharedStore: Send + Sync {
    /// Answers a question of a listener. If the answer is an error, the store itself treats the question as
    /// [`SharedStore::missed`].
    fn ask(&self, request: JobRequest) -> Answer<'_>;

    /// Reports a question that was not asked because too many are open, or whose answer was not waited for. Its first
    /// flight was refused, and its data comes by the ordinary handshake. So its id or cookie must be used up before
    /// anything else is accepted. Called under the endpoint's lock, and when a task ends: it must not wait, and must
    /// not panic outside a runtime.
    fn missed(&self, request: JobRequest);
}

/// Why a store gives no answer. Each one becomes an ordinary handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be reached, or broke off.
    Unreachable,
    /// It was too late.
    TimedOut,
    /// It may forget what it was told; whoever configured it is at fault.
    Unfit,
    /// It cannot answer such a question.
    Unsupported,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "the shared store cannot be reached",
            Self::TimedOut => "the shared store gave no answer in time",
            Self::Unfit => "the shared store may forget what it was told",
            Self::Unsupported => "the shared store cannot answer such a question",
        })
    }
}

impl Error for StoreError {}

/// What became of the questions to the shared store. All fields only grow.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct StoreCounters {
    /// Questions handed to it.
    pub asked: u64,
    /// First flights it let through.
    pub accepted: u64,
    /// First flights it refused: seen before, not good, or in a time of which it has no memory.
    pub refused: u64,
    /// One-time cookies made good.
    pub activated: u64,
    /// Questions without an answer in time.
    pub timed_out: u64,
    /// Questions that failed otherwise.
    pub failed: u64,
    /// Questions not asked, because too many were open.
    pub turned_away: u64,
}
