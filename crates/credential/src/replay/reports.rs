//! How often a member of a farm reports first flights whose credentials it did not verify (`docs/spec/asap.md` §7.4).

use super::guard::ReplayId;
use core::sync::atomic::{AtomicU64, Ordering};

/// Time in which a report becomes possible, milliseconds, for all clients and for one group of prefixes.
const EVERY_MS: u64 = 5;
const EVERY_MS_OF_GROUP: u64 = 100;
/// Reports that are possible at once.
const AT_ONCE: u64 = 256;
const AT_ONCE_OF_GROUP: u64 = 32;
/// Groups of client prefixes. An attacker at one address uses up what one group has.
const GROUPS: usize = 256;

/// The bound of such reports. All listeners of a process share it, because they share the memory for what the process owes
/// the store.
#[derive(Debug)]
pub(super) struct Reports {
    all: Tokens,
    groups: [Tokens; GROUPS],
}

/// A bucket of tokens: the moment at which it is full, if nothing is taken until then, Unix milliseconds.
#[derive(Debug)]
struct Tokens(AtomicU64);

impl Tokens {
    /// Takes one, if there is one. They arrive every `every_ms`, and the bucket holds `most`.
    fn take(&self, now_ms: u64, every_ms: u64, most: u64) -> bool {
        let depth = every_ms.saturating_mul(most);
        let took = |full_at: u64| {
            // If the clock was set back, the bucket counts as empty.
            let missing = full_at.saturating_sub(now_ms).min(depth).saturating_add(every_ms);
            (missing <= depth).then(|| now_ms.saturating_add(missing))
        };
        let full_at = match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, took) {
            Ok(_) => return true,
            Err(full_at) => full_at,
        };
        if full_at > now_ms.saturating_add(depth) {
            let empty = now_ms.saturating_add(depth);
            // If another thread was faster, it did the same.
            let _ = self.0.compare_exchange(full_at, empty, Ordering::Relaxed, Ordering::Relaxed);
        }
        false
    }
}

impl Reports {
    /// The most reports in `seconds`.
    #[must_use]
    pub(super) const fn most_in(seconds: u64) -> usize {
        (AT_ONCE + seconds * 1000 / EVERY_MS) as usize
    }

    pub(super) const fn new() -> Self {
        Self { all: Tokens(AtomicU64::new(0)), groups: [const { Tokens(AtomicU64::new(0)) }; GROUPS] }
    }

    /// Whether one more report is possible about a first flight of this client.
    pub(super) fn take(&self, id: ReplayId, now_ms: u64) -> bool {
        let group = self.groups.get(usize::from(id.partition) % GROUPS);
        group.is_some_and(|group| group.take(now_ms, EVERY_MS_OF_GROUP, AT_ONCE_OF_GROUP))
            && self.all.take(now_ms, EVERY_MS, AT_ONCE)
    }
}

#[cfg(test)]
mod tests;
