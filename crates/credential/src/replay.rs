//! Seen before? What keeps a first flight from being executed twice (the Fast Open paper §3.5).
//!
//! A guard remembers what was accepted for as long as a copy of it could be accepted again. It may say
//! "seen" of something new, which costs the client a round trip; it must never say "new" of something it
//! could have seen. So wherever it has no memory (after a start, for what it had to forget, after its clock
//! was set back) it has a *floor*: nothing stamped at or below it is taken.

mod remote;
mod table;
mod time;

pub use remote::RemoteGuard;
pub use table::ReplayTable;

use crate::admission::{FirstFlight, JobRequest};
use core::hash::Hasher;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Clock;
use siphasher::sip128::{Hasher128, SipHasher24};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// How long an accepted thing can come again, and how its copies are stamped. Milliseconds of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// A stamp may be so much older than the clock; an entry is kept so long after its stamp.
    pub past: Duration,
    /// A stamp may be so far ahead of the clock.
    pub future: Duration,
    /// A copy's stamp may be so much later than the original's: zero where the stamp is signed, all of
    /// `past` where it is the time of arrival.
    pub spread: Duration,
}

impl Window {
    /// For copies that the network makes: stamped when they arrive, within 2 MSL = 120 s (RFC 9293
    /// §3.4.2) of the original.
    pub const NETWORK: Self =
        Self { past: Duration::from_secs(120), future: Duration::ZERO, spread: Duration::from_secs(120) };

    /// Above the clock's value, how far stamps may already have been accepted by somebody whose memory is
    /// gone.
    pub(crate) fn reach(&self) -> Duration {
        self.future.max(self.spread)
    }
}

/// Identifies what was accepted: a keyed hash, and the client prefix, so that one client's flood costs
/// the memory of nobody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayId {
    /// The hash.
    pub id: u128,
    /// The client's prefix, hashed.
    pub partition: u16,
}

/// What a guard says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded {
    /// It was not there; it is now. Said once for each id.
    New,
    /// It was there, or could have been.
    Seen,
    /// The guard has no memory of that time.
    Floor,
    /// Somebody else has to say.
    Ask(JobRequest),
}

/// Remembers what was accepted. One guard may be shared by the shards of a server, a remote one by a farm.
///
/// # Correctness
/// `Seen` and `Floor` may be false: they cost a round trip. `New` must not be: the same id within
/// the window gets it at most once, whatever happens to the guard's memory.
pub trait ReplayGuard: Send + Sync {
    /// Sets `id` if it was not set, in one step. `stamp_ms` and `now_ms` are of the same clock.
    ///
    /// Where the stamp is the time of arrival, an id that is refused for the floor is set too: its data comes
    /// by an ordinary handshake, and a later copy lies above the floor.
    fn test_and_set(&self, id: ReplayId, stamp_ms: u64, now_ms: u64) -> Guarded;

    /// What [`ReplayGuard::test_and_set`] would say, as far as it can be seen without setting anything: to
    /// spare work for what was seen. `New` promises nothing.
    fn look_up(&self, _id: ReplayId, _stamp_ms: u64, _now_ms: u64) -> Guarded {
        Guarded::New
    }

    /// Tells the guard the wall clock by which a request is about to be judged. Returns the guard's time, Unix
    /// milliseconds, by which the request may be too late; it does not go back when the clock does. The floor rises
    /// when the clock goes back by more than a second, or was uncertain by more than [`Window::future`] and no longer
    /// is.
    fn observe(&self, clock: &Clock) -> u64;

    /// Refuses all stamps up to `floor_ms` (Unix milliseconds) from now on. The floor never decreases.
    fn raise_floor(&self, floor_ms: u64);

    /// The id of what `key` identifies, of a client.
    fn id_of(&self, client: IpAddr, key: &[u8]) -> ReplayId;

    /// The id of a SYN: the same for every copy of it that the network makes, and, as far as chance goes,
    /// for nothing else.
    fn id(&self, first: &FirstFlight<'_>) -> ReplayId;

    /// Whether it asks a store that a farm shares: [`JobRequest::GuardSet`].
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

    /// The id of what `key` identifies.
    pub(crate) fn id_of(&self, client: IpAddr, key: &[u8]) -> ReplayId {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        // Another domain than that of SYNs.
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
