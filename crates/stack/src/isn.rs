//! Initial sequence numbers (RFC 6528) and timestamp offsets (RFC 7323 §5.4).

use crate::flow::FlowKey;
use core::fmt;
use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use firstflight_wire::{Instant, SeqNum};
use siphasher::sip::{SipHasher13, SipHasher24};
use zeroize::Zeroize;

/// Hashes for initial sequence numbers and timestamps under one secret.
///
/// `Debug` does not show the secret; dropping erases it.
pub(crate) struct IsnGenerator {
    secret: [u8; 16],
}

impl IsnGenerator {
    /// A generator under 16 unpredictable bytes.
    #[must_use]
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self { secret }
    }

    /// The initial numbers of a connection, from one keyed hash of both ends. A later incarnation of the same pair
    /// begins later in the sequence space and continues the same timestamps.
    ///
    /// The peer's UDP port is part of the hash: neighbours behind one address may use the same ports, and must not
    /// learn each other's numbers. Our own UDP port is the same for all connections.
    //= rfc9293 MUST-8 MUST-9 SHLD-1
    //= rfc7323 7-a
    #[inline]
    #[must_use]
    pub(crate) fn initial(&self, key: &FlowKey, now: Instant) -> Initial {
        let hash = hash_flow(&self.secret, Purpose::Isn, key);
        let ticks = (now.as_nanos() / 4_000) as u32;
        Initial { isn: SeqNum::new((hash as u32).wrapping_add(ticks)), ts_offset: (hash >> 32) as u32 }
    }

    pub(crate) fn timestamp(&self, key: &FlowKey, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.initial(key, now).ts_offset)
    }
}

/// The initial numbers of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Initial {
    /// Initial sequence number (RFC 6528 §3): a clock of 4 µs plus the hash. An off-path attacker cannot guess it.
    pub isn: SeqNum,
    /// What to add to the timestamp clock (RFC 7323 §5.4 and §7), so that timestamps do not show how long this
    /// machine has been running.
    pub ts_offset: u32,
}

impl fmt::Debug for IsnGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IsnGenerator(secret)")
    }
}

impl Drop for IsnGenerator {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

/// The purpose of a hash: a byte of its input, so that one secret may serve several purposes.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Isn = 1,
    Port = 3,
    CookieFlow = 4,
    CookieCheck = 5,
}

/// SipHash-1-3 of a purpose and both ends, without our UDP port. Its result lives as long as a connection and is
/// seen once, so the shorter variant, the one of hash tables, is enough. SYN cookies, which anyone may try to
/// forge, use the longer one.
#[inline]
pub(crate) fn hash_flow(secret: &[u8; 16], purpose: Purpose, key: &FlowKey) -> u64 {
    let ([local_high, local], [remote_high, remote], ports) = key.words();
    let rest = (u64::from(purpose as u8) << 48) | (ports & 0xffff_ffff_ffff);
    match key.v4() {
        Some(_) => siphash(secret, [local << 32 | remote], rest),
        None => siphash(secret, [local_high, local, remote_high, remote], rest),
    }
}

/// SipHash-1-3 of whole words and the lower seven bytes of `rest`. The hash takes these bytes together with the
/// length, which tells the families apart.
#[inline(never)]
fn siphash<const W: usize>(secret: &[u8; 16], words: [u64; W], rest: u64) -> u64 {
    let mut hasher = SipHasher13::new_with_key(secret);
    for word in words {
        hasher.write_u64(word);
    }
    hasher.write_u32(rest as u32);
    hasher.write_u16((rest >> 32) as u16);
    hasher.write_u8((rest >> 48) as u8);
    hasher.finish()
}

/// SipHash-2-4 under `secret`, begun with the purpose.
pub(crate) fn keyed(secret: &[u8; 16], purpose: Purpose) -> SipHasher24 {
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write(&[purpose as u8]);
    hasher
}

/// Writes family and address, so that no two addresses give the same bytes.
pub(crate) fn write_ip(hasher: &mut SipHasher24, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            hasher.write(&[4]);
            hasher.write(&ip.octets());
        }
        IpAddr::V6(ip) => {
            hasher.write(&[6]);
            hasher.write(&ip.octets());
        }
    }
}

/// Writes address and port. Flow label and scope are ignored.
pub(crate) fn write_socket(hasher: &mut SipHasher24, end: SocketAddr) {
    write_ip(hasher, end.ip());
    hasher.write(&end.port().to_be_bytes());
}

#[cfg(test)]
mod tests;
