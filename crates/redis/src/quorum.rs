//! The lease of a master that replicas may replace: `docs/farm-masters.md` has the rule, and the argument for it.

use crate::error::Failure;
use crate::memory::field;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// How old the newest byte that the replicas confirmed may be. A new memory's floor is higher by the same time.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// How often a member writes, so that the master's offset grows.
pub(crate) const BEAT: Duration = Duration::from_millis(250);
/// The longest lag that the master may allow its replicas.
const LONGEST_LAG: u64 = 10;
/// The shortest time between two offsets that are remembered.
const APART: Duration = Duration::from_millis(50);

/// What the members know about the confirmations of one master's replicas.
#[derive(Debug)]
pub(crate) struct Quorum {
    /// How many replicas must confirm, W.
    needed: usize,
    /// When a question was sent, and the offset in its answer. The offsets grow.
    offsets: VecDeque<(Instant, u64)>,
    /// The replicas followed the master after this moment.
    followed: Option<Instant>,
}

impl Quorum {
    /// The rule for a master with this configuration, which has `replicas` replicas by what others know.
    pub(crate) fn new(to_write: u64, max_lag: u64, replicas: usize) -> Result<Self, Failure> {
        let needed = usize::try_from(to_write).unwrap_or(usize::MAX);
        if needed == 0 || max_lag == 0 || max_lag > LONGEST_LAG || replicas > needed.saturating_mul(2) {
            return Err(Failure::FewReplicas { needed: replicas.div_ceil(2).max(1), to_write, max_lag });
        }
        Ok(Self { needed, offsets: VecDeque::new(), followed: None })
    }

    /// Takes the answer `info` to a question that was sent at `sent`. An error if it does not follow from this and earlier
    /// answers that the replicas followed the master at a moment after `now` - [`LEASE`].
    pub(crate) fn heard(&mut self, info: &str, sent: Instant, now: Instant) -> Result<(), Failure> {
        let offset = field(info, "master_repl_offset").and_then(|offset| offset.parse::<u64>().ok());
        let offset = offset.ok_or(Failure::NoInfo)?;
        let mut confirmed: Vec<Option<u64>> = info.lines().filter_map(confirmed).collect();
        if confirmed.len() > self.needed.saturating_mul(2) {
            return Err(Failure::MoreReplicas(confirmed.len()));
        }
        confirmed.sort_unstable_by(|one, two| two.cmp(one));
        if let Some(reached) = confirmed.get(self.needed - 1).copied().flatten() {
            // Everything beyond such an offset was written after its question was sent.
            let beyond = self.offsets.iter().rev().find(|(_, offset)| reached > *offset);
            self.followed = self.followed.max(beyond.map(|(sent, _)| *sent));
        }
        self.remember(sent, offset, now);
        match self.followed {
            Some(followed) if now.saturating_duration_since(followed) <= LEASE => Ok(()),
            _ => Err(Failure::NoLease),
        }
    }

    /// Questions can be answered in another order than they were remembered: keep times and offsets growing.
    fn remember(&mut self, sent: Instant, offset: u64, now: Instant) {
        while self.offsets.front().is_some_and(|(sent, _)| now.saturating_duration_since(*sent) > LEASE) {
            self.offsets.pop_front();
        }
        let later = |(last_sent, last_offset): &(Instant, u64)| {
            sent.saturating_duration_since(*last_sent) >= APART && offset > *last_offset
        };
        if self.offsets.back().is_none_or(later) {
            self.offsets.push_back((sent, offset));
        }
    }

    /// W, for `WAIT`.
    pub(crate) const fn needed(&self) -> usize {
        self.needed
    }
}

/// The line of a replica in `INFO replication`. `Some(None)` if it has not caught up yet.
fn confirmed(line: &str) -> Option<Option<u64>> {
    let (number, values) = line.strip_prefix("slave")?.split_once(':')?;
    if number.is_empty() || !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let value =
        |name: &str| values.trim().split(',').find_map(|value| value.strip_prefix(name)?.strip_prefix('='));
    Some((value("state") == Some("online")).then(|| value("offset")?.parse().ok()).flatten())
}

/// How often a replica began to follow this server: a part of its identity.
pub(crate) fn joins(info: &str) -> Option<String> {
    let count = |name| field(info, name)?.parse::<u64>().ok();
    Some(format!("-{:x}.{:x}", count("sync_full")?, count("sync_partial_ok")?))
}

#[cfg(test)]
#[path = "quorum/tests/simulated.rs"]
mod simulated;
#[cfg(test)]
mod tests;
