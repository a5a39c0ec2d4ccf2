//! The strike register of sealed first flights that the members of a farm share (`docs/spec/sealed.md`, section 6.6).

use crate::node::{Reply, millis};
use crate::question::Question as Asked;
use crate::share::{QuestionResult, Share};
use crate::{RedisStore, cells};
use firstflight::credential::JobRequest;
use firstflight_seal::{
    MemoryRegister, Question, RegisterAnswer, RegisterFuture, RegisterLimits, SharedStrikeRegister,
};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How far the floor of a new memory is above its beginning: the window of t, and a minute for the members' clocks.
const REACH: Duration = Duration::from_secs(360);
/// How far a member's clock may be from Redis' for an early run. A member whose clock has gone back would take a request
/// for a new one that ran and was forgotten.
const CLOCKS_APART: Duration = Duration::from_secs(60);
/// The quota is counted in minutes, as many as an entry lives and one that has begun.
const MINUTES: usize = 16;

impl RedisStore {
    /// Tests whether a sealed request is in the strike register of the farm, and puts it there. Give the answer to
    /// [`Asked::answered`](firstflight_seal::EarlyCandidate::answered) or
    /// [`Waiting::answered`](firstflight_seal::Waiting::answered). While the store is lost the answer is
    /// [`RegisterAnswer::Unavailable`] at once, and the request is reported to the store later.
    pub async fn run(&self, question: &Question) -> RegisterAnswer {
        let Question { rid, t_ms, now_ms, early, with_block } = *question;
        let in_quota = !with_block;
        if in_quota && self.quota().is_full(Instant::now()) {
            return RegisterAnswer::Full;
        }
        let request = JobRequest::GuardSet {
            key: rid.table_key(),
            keep_ms: millis(MemoryRegister::LIFETIME),
            ahead_ms: t_ms.cast_signed().saturating_sub(now_ms.cast_signed()),
            // After Finished presence alone decides.
            reach_ms: if early { millis(REACH) } else { 0 },
            // Entries live from their insertion. The member's clock is compared below.
            unix_ms: None,
            checked: true,
        };
        let read = |asked: &Asked, reply: &Reply, at, since| {
            let apart = reply.store_ms.is_none_or(|ms| ms.abs_diff(now_ms) > millis(CLOCKS_APART));
            // First of all: an entry of another connection is not this one's, also below the floor.
            Some(match (Asked::was_new(reply), early && apart || asked.is_below_floor(at, since)) {
                (false, _) => RegisterAnswer::Seen,
                (true, true) => RegisterAnswer::Floor { set: true },
                (true, false) => RegisterAnswer::New,
            })
        };
        let share = self.shares.of(cells::of_request(&request));
        let waited_for = WaitedFor(share, Some(request));
        let heard = share.hear(request, read).await;
        waited_for.ends();
        let answer = match heard {
            Ok(QuestionResult::Reply(answer)) => answer,
            Ok(QuestionResult::Known(_)) => RegisterAnswer::Seen,
            Err(_) => RegisterAnswer::Unavailable,
        };
        if in_quota && matches!(answer, RegisterAnswer::New | RegisterAnswer::Floor { .. }) {
            self.quota().count();
        }
        answer
    }
}

impl RedisStore {
    fn quota(&self) -> MutexGuard<'_, Quota> {
        self.quota.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedStrikeRegister for RedisStore {
    fn test_and_set(&self, question: &Question) -> RegisterFuture<'_> {
        let question = *question;
        Box::pin(async move { self.run(&question).await })
    }
}

/// A question whose answer is waited for. If nobody waits any more, the server may run the request without an entry, so the
/// store gets the question later.
struct WaitedFor<'a>(&'a Arc<Share>, Option<JobRequest>);

impl WaitedFor<'_> {
    fn ends(mut self) {
        self.1 = None;
    }
}

impl Drop for WaitedFor<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.1 {
            self.0.missed(request);
        }
    }
}

/// How many entries this member makes without an accepted block.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    minutes: [usize; MINUTES],
    /// The first minute, and how many have passed.
    began: Option<Instant>,
    minute: u64,
}

impl Quota {
    /// Whether no entry is left at `now`.
    fn is_full(&mut self, now: Instant) -> bool {
        let began = *self.began.get_or_insert(now);
        let minute = now.saturating_duration_since(began).as_secs() / 60;
        for passed in (self.minute + 1..=minute).take(MINUTES) {
            *self.of(passed) = 0;
        }
        self.minute = self.minute.max(minute);
        self.minutes.iter().sum::<usize>() >= RegisterLimits::default().without_block
    }

    /// An entry was made.
    fn count(&mut self) {
        *self.of(self.minute) += 1;
    }

    fn of(&mut self, minute: u64) -> &mut usize {
        let [first, rest @ ..] = &mut self.minutes;
        match (minute % MINUTES as u64) as usize {
            0 => first,
            at => rest.get_mut(at - 1).unwrap_or(first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_quota_for_fifteen_minutes() {
        let (start, most) = (Instant::now(), RegisterLimits::default().without_block);
        let at = |s| start + Duration::from_secs(s);
        let mut quota = Quota::default();
        let mut take = |s| {
            let full = quota.is_full(at(s));
            if !full {
                quota.count();
            }
            !full
        };
        assert!((0..most).all(|n| take(n as u64 % 60)));
        assert!(!take(60) && !take(900));
        assert!(take(960));
        assert!((1..most).all(|_| take(960)) && !take(961));
        assert!(take(1_000_000));
    }
}
