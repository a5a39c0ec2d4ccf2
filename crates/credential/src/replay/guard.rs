//! What a replay guard is asked, and what it answers.

use crate::flight::{FirstFlight, JobRequest};
use core::hash::Hasher;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Clock;
use siphasher::sip128::{Hasher128, SipHasher24};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// How long a copy of an accepted first flight can arrive, and how copies are stamped. All stamps are
/// milliseconds of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// How much older than the clock a stamp may be. An entry is kept for this time after its stamp.
    pub past: Duration,
    /// How far ahead of the clock a stamp may be.
    pub future: Duration,
    /// How much later than the original's stamp a copy's stamp may be: zero if the stamp is signed, `past` if
    /// the stamp is the time of arrival.
    pub spread: Duration,
}

impl Window {
    /// For ASAP's requests, whose stamp is signed: at most a minute old, and at most ten seconds ahead.
    pub const REQUESTS: Self =
        Self { past: Duration::from_secs(60), future: Duration::from_secs(10), spread: Duration::ZERO };

    /// For copies that the network makes. They are stamped when they arrive, within 2 MSL = 120 s (RFC 9293
    /// §3.4.2) of the original.
    pub const NETWORK: Self =
        Self { past: Duration::from_secs(120), future: Duration::ZERO, spread: Duration::from_secs(120) };

    /// How far above the clock's value stamps may already have been accepted by a process whose memory is
    /// lost.
    pub(crate) fn reach(&self) -> Duration {
        self.future.max(self.spread)
    }
}

/// Identifies an accepted first flight: a keyed hash, and the client prefix. With the prefix, a flood of one
/// client does not cost other clients their entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayId {
    /// The hash.
    pub id: u128,
    /// The client's prefix, hashed.
    pub partition: u16,
}

/// The answer of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded {
    /// The id was not set before, and is set now. Each id gets this answer once.
    New,
    /// The id was set before, or may have been.
    Seen,
    /// The guard has no memory of that time.
    Floor,
    /// The store must decide: ask it with this job.
    Ask(JobRequest),
}

/// The store of a farm is not told of a first flight that is refused: [`ReplayGuard::report`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreported;

/// Remembers the accepted first flights. The shards of a server may share one guard, and a farm may share a
/// remote one.
///
/// # Correctness
/// `Seen` and `Floor` may be false, which costs a round trip. `New` must never be false: an id gets it at
/// most once within the window, whatever happens to the guard's memory.
pub trait ReplayGuard: Send + Sync {
    /// Sets `id` if it was not set, atomically. `stamp_ms` and `now_ms` are of the same clock.
    ///
    /// If the stamp is the time of arrival, an id that is refused because of the floor is set too: the client
    /// sends its data by an ordinary handshake, and the stamp of a later copy is above the floor.
    fn test_and_set(&self, id: ReplayId, stamp_ms: u64, now_ms: u64) -> Guarded;

    /// Like [`ReplayGuard::test_and_set`], for a first flight that is refused and whose credential was not verified.
    /// Anybody can make such ones, so a guard that asks a store does so for a bounded number of them.
    ///
    /// # Errors
    /// When this one is beyond that number. A copy may be accepted by another member of the farm, so the data must not
    /// be taken by an ordinary handshake, unless the client knows.
    fn report(&self, id: ReplayId, stamp_ms: u64, now_ms: u64) -> Result<Guarded, Unreported> {
        Ok(self.test_and_set(id, stamp_ms, now_ms))
    }

    /// The probable answer of [`ReplayGuard::test_and_set`], without a change of the guard. It saves the
    /// verification of requests that were seen before. `New` is no promise.
    fn look_up(&self, _id: ReplayId, _stamp_ms: u64, _now_ms: u64) -> Guarded {
        Guarded::New
    }

    /// Whether `id` is set, whatever its stamp, the floor and the clock are. It may be forgotten after its window, and a false
    /// yes is possible. A guard that asks a store does not know.
    fn is_set(&self, _id: ReplayId) -> bool {
        false
    }

    /// Tells the guard the wall clock by which a request is about to be judged. Returns the guard's time, Unix
    /// milliseconds, by which the request may be too late. This time does not go back when the clock does.
    /// The floor rises when the clock goes back by more than a second, and when its uncertainty was above
    /// [`Window::future`] and no longer is.
    fn observe(&self, clock: &Clock) -> u64;

    /// Refuses all stamps up to `floor_ms` (Unix milliseconds) from now on. The floor never decreases.
    fn raise_floor(&self, floor_ms: u64);

    /// The id of the thing that `key` identifies, for a client.
    fn id_of(&self, client: IpAddr, key: &[u8]) -> ReplayId;

    /// The id of a SYN. Every copy that the network makes has the same id, and another SYN has it only by a
    /// negligible chance.
    fn id(&self, first: &FirstFlight<'_>) -> ReplayId;

    /// Whether it asks the shared store of a farm: [`JobRequest::GuardSet`].
    fn needs_store(&self) -> bool {
        false
    }
}

/// The key of a guard's hash. Members of a farm that share a guard share it.
#[derive(Clone)]
pub struct GuardKey([u8; 16]);

impl GuardKey {
    /// A key of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The id of a SYN: four-tuple, initial sequence number and payload.
    pub(crate) fn id(&self, first: &FirstFlight<'_>) -> ReplayId {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        for ip in [first.flow.client, first.flow.server] {
            hasher.write_u128(match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
                IpAddr::V6(ip) => ip.to_bits(),
            });
        }
        let (client, server) = first.ports;
        hasher.write_u64(u64::from(client) << 48 | u64::from(server) << 32 | u64::from(first.isn.get()));
        hasher.write(first.payload);
        ReplayId { id: hasher.finish128().as_u128(), partition: self.partition(first.flow.client) }
    }

    /// The id of the thing that `key` identifies.
    pub(crate) fn id_of(&self, client: IpAddr, key: &[u8]) -> ReplayId {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        // Separates these inputs from those of SYNs.
        hasher.write_u8(1);
        hasher.write(key);
        ReplayId { id: hasher.finish128().as_u128(), partition: self.partition(client) }
    }

    /// The partition of a client's prefix.
    fn partition(&self, client: IpAddr) -> u16 {
        let mut hasher = siphasher::sip::SipHasher13::new_with_key(&self.0);
        hasher.write_u64(crate::pending::prefix(client));
        hasher.finish() as u16
    }
}

/// Whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl core::fmt::Debug for GuardKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("GuardKey(..)")
    }
}

impl Drop for GuardKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for GuardKey {}
