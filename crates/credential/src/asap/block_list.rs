//! The block list: client keys and addresses that may not use the first flight for a while (`docs/spec/asap.md`, 7.7
//! and 7.8).
//!
//! A RST from the address of an accepted first flight may mean that the sender is not at this address, and
//! that the server sends its response to a victim. One RST puts the key on it. An attacker that had the address
//! before may hold many certificates for it, each with a key of its own, so RSTs for several keys put the
//! address on it as well. The first RST lists the address for zero seconds, because many clients can share one
//! address, and one of them may have reset its own connection.

use crate::lru::Lru;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Instant;

/// A key is barred after this number of wrong requests.
const FAILURES: u8 = 8;
/// How long a key is listed after wrong requests. Also the longest time of an address.
const LONGEST: Duration = Duration::from_secs(60);
/// How long an address is listed after the second key that was reset there. It doubles with each further key.
const SHORTEST: Duration = Duration::from_secs(1);
/// Keys that were reset at an address are counted up to this number. Then the time is [`LONGEST`].
const COUNTED: u8 = 8;
/// Each time this passes without another reset at an address, one reset is forgiven. It is not shorter than
/// [`LONGEST`], or the times would become shorter while the resets continue.
const FORGIVEN: Duration = LONGEST;
/// An ACK for a first flight proves that a client at this address uses first flights, so it also forgives one
/// reset. This happens at most once in this time, so that the ACKs of a busy address do not help a reflection
/// attack to continue.
const FORGIVEN_BY_ACK: Duration = Duration::from_secs(20);

/// The record of a client key.
#[derive(Debug, Clone, Copy)]
struct Key {
    failures: u8,
    until: Instant,
    /// The key is barred for a reset until then.
    reset_until: Instant,
}

/// The record of an address.
#[derive(Debug, Clone, Copy)]
struct Address {
    /// Resets of different keys at this address that are not forgiven.
    resets: u8,
    until: Instant,
    /// When the last reset came.
    last: Instant,
    /// When the last ACK came that forgave a reset.
    acked: Instant,
}

impl Address {
    /// A first flight under another key was reset at this address.
    fn reset(&mut self, now: Instant) {
        let forgiven = (now - self.last).as_secs() / FORGIVEN.as_secs();
        let left = u64::from(self.resets).saturating_sub(forgiven) as u8;
        (self.resets, self.last) = (left.saturating_add(1).min(COUNTED), now);
        let Some(doublings) = self.resets.checked_sub(2) else { return };
        let lasts = SHORTEST.saturating_mul(1 << doublings).min(LONGEST);
        self.until = self.until.max(now + lasts);
    }

    /// The client at this address acknowledged the answer to a first flight.
    fn acknowledged(&mut self, now: Instant) {
        if now - self.acked >= FORGIVEN_BY_ACK {
            self.resets = self.resets.saturating_sub(1);
            self.acked = now;
        }
    }
}

/// The keys and addresses that are remembered, and until when they are listed.
#[derive(Debug)]
pub(super) struct BlockList {
    keys: Lru<[u8; 32], Key>,
    addresses: Lru<IpAddr, Address>,
}

impl BlockList {
    /// No key and no address is barred yet. At most `remembered` keys and as many addresses are remembered.
    pub(super) const fn new(remembered: usize) -> Self {
        Self { keys: Lru::new(remembered), addresses: Lru::new(remembered) }
    }

    /// Whether this key or this address may not use the first flight now.
    pub(super) fn holds(&self, key: &[u8; 32], address: IpAddr, now: Instant) -> bool {
        self.keys.peek(key).is_some_and(|key| key.until.max(key.reset_until) > now)
            || self.addresses.peek(&address).is_some_and(|address| address.until > now)
    }

    /// A first flight under `key` was reset before the ACK of its client. Its certificate is valid for
    /// another `lasts`.
    pub(super) fn reset(&mut self, key: [u8; 32], lasts: Duration, address: IpAddr, now: Instant) {
        if let Some(key) = self.key(key) {
            let again = key.reset_until > now;
            key.reset_until = key.reset_until.max(now + lasts);
            if again {
                // The connections of one key often end together, so they count as one reset.
                return;
            }
        }
        let clean = || Address { resets: 0, until: now, last: now, acked: now };
        if let Some(address) = self.addresses.get_or_insert(address, clean) {
            address.reset(now);
        }
    }

    /// The client at `address` acknowledged the answer to a first flight.
    pub(super) fn acknowledged(&mut self, address: IpAddr, now: Instant) {
        if let Some(address) = self.addresses.peek_mut(&address) {
            address.acknowledged(now);
        }
    }

    /// A signature of a request under `key` was wrong.
    pub(super) fn failed(&mut self, key: [u8; 32], now: Instant) {
        if let Some(key) = self.key(key) {
            key.failures = key.failures.saturating_add(1);
            if key.failures >= FAILURES {
                (key.failures, key.until) = (0, key.until.max(now + LONGEST));
            }
        }
    }

    fn key(&mut self, key: [u8; 32]) -> Option<&mut Key> {
        self.keys.get_or_insert(key, || Key { failures: 0, until: Instant::ZERO, reset_until: Instant::ZERO })
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const START: Instant = Instant::from_secs(1000);
    const OFFICE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const HOUR: Duration = Duration::from_secs(3600);

    fn key(n: u32) -> [u8; 32] {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&n.to_be_bytes());
        key
    }

    /// Whether an unknown key at [`OFFICE`] is not barred.
    fn is_open(block_list: &BlockList, now: Instant) -> bool {
        !block_list.holds(&key(u32::MAX), OFFICE, now)
    }

    #[test]
    fn one_keys_resets_bar_no_neighbour() {
        let mut block_list = BlockList::new(100);
        for n in 0..100 {
            block_list.reset(key(1), HOUR, OFFICE, START + Duration::from_millis(n));
        }
        assert!(block_list.holds(&key(1), OFFICE, START + HOUR / 2));
        assert!(is_open(&block_list, START));
    }

    /// An address is listed for 0, 1, 2, 4, … 60 s.
    #[test]
    fn resets_of_different_keys_bar_the_address_for_longer_and_longer() {
        let mut block_list = BlockList::new(100);
        let mut now = START;
        for (n, lasts) in [0, 1, 2, 4, 8, 16, 32, 60, 60, 60].into_iter().enumerate() {
            assert!(is_open(&block_list, now), "before reset {n}");
            block_list.reset(key(n as u32), HOUR, OFFICE, now);
            let lasts = Duration::from_secs(lasts);
            assert!(
                lasts.is_zero() || !is_open(&block_list, now + lasts - Duration::from_millis(1)),
                "reset {n}"
            );
            assert!(is_open(&block_list, now + lasts), "reset {n}");
            assert!(!block_list.holds(&key(u32::MAX), IpAddr::V4(Ipv4Addr::LOCALHOST), now));
            now += lasts;
        }
    }

    /// How many keys of a reflection attacker are accepted in each of `minutes`, if it makes `tries` attempts
    /// a second. `acks`: honest clients at the address acknowledge their first flights at the same rate.
    fn accepted(block_list: &mut BlockList, minutes: u32, tries: u32, acks: bool) -> alloc::vec::Vec<u32> {
        let mut used = 0;
        let each = |minute: u32| {
            (0..60 * tries)
                .filter(|n| {
                    let now = START + Duration::from_secs(60) * minute + Duration::from_secs(1) * *n / tries;
                    let fresh = key(used);
                    let open = !block_list.holds(&fresh, OFFICE, now);
                    if open {
                        used += 1;
                        block_list.reset(fresh, HOUR, OFFICE, now);
                    }
                    if acks {
                        block_list.acknowledged(OFFICE, now);
                    }
                    open
                })
                .count() as u32
        };
        (0..minutes).map(each).collect()
    }

    #[test]
    fn a_reflector_with_many_keys_gets_seven_responses_and_then_one_a_minute() {
        let counts = accepted(&mut BlockList::new(10_000), 20, 10, false);
        assert_eq!(counts.first(), Some(&7));
        assert!(counts.iter().skip(1).all(|count| *count <= 1), "{counts:?}");
    }

    /// Honest clients at the address do not shorten the time for a reflection attacker.
    #[test]
    fn the_acks_of_a_busy_address_leave_a_reflector_few_responses() {
        let counts = accepted(&mut BlockList::new(10_000), 20, 10, true);
        assert!(counts[0] <= 8 && counts[1..].iter().all(|count| *count <= 4), "{counts:?}");
    }

    #[test]
    fn acks_and_time_forgive() {
        let mut block_list = BlockList::new(100);
        let three = |block_list: &mut BlockList, first: u32, now: Instant| {
            (0..3).for_each(|n| block_list.reset(key(first + n), HOUR, OFFICE, now));
        };
        three(&mut block_list, 0, START);
        assert!(!is_open(&block_list, START + Duration::from_millis(1999)), "2 s after the third key");
        // All resets are forgiven, so the next one counts as the first.
        let later = START + FORGIVEN * 3;
        block_list.reset(key(10), HOUR, OFFICE, later);
        assert!(is_open(&block_list, later));
        let mut block_list = BlockList::new(100);
        three(&mut block_list, 0, START);
        for n in 1..=3 {
            block_list.acknowledged(OFFICE, START + FORGIVEN_BY_ACK * n);
        }
        block_list.reset(key(10), HOUR, OFFICE, START + FORGIVEN_BY_ACK * 4);
        assert!(is_open(&block_list, START + FORGIVEN_BY_ACK * 4));
    }

    #[test]
    fn memory_is_bounded() {
        let mut block_list = BlockList::new(100);
        for n in 0..10_000u32 {
            block_list.reset(key(n), HOUR, Ipv4Addr::from_bits(n).into(), START);
        }
        assert_eq!((block_list.keys.len(), block_list.addresses.len()), (100, 100));
    }
}
