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

    /// The flow's timestamp at `now`.
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
mod tests {
    use super::*;
    use core::time::Duration;
    use std::collections::BTreeSet;
    use std::format;

    fn flow(local: &str, remote: &str) -> FlowKey {
        FlowKey::new(local.parse().unwrap(), remote.parse().unwrap())
    }

    //= rfc9293 MUST-8 SHLD-1 test
    #[test]
    fn ticks_every_four_microseconds_and_wraps() {
        let generator = IsnGenerator::new([7; 16]);
        let key = flow("192.0.2.1:80", "198.51.100.2:40000");
        let at = |us: u64| generator.initial(&key, Instant::from_nanos(us * 1000)).isn;
        assert_eq!(at(3), at(0));
        assert_eq!(at(4) - at(0), 1);
        assert_eq!(at(4_000_000) - at(0), 1_000_000);
        let round = 4u64 << 32;
        assert_eq!(at(round + 8) - at(0), 2);
        let later = Instant::from_nanos(0) + Duration::from_micros(400);
        assert_eq!(generator.initial(&key, later).isn - at(0), 100);
    }

    //= rfc9293 MUST-9 SHLD-1 test
    //= rfc7323 7-a test
    #[test]
    fn depends_on_every_part_and_on_the_secret() {
        let now = Instant::from_millis(5);
        let one = IsnGenerator::new([7; 16]);
        let two = IsnGenerator::new([8; 16]);
        let (a, b) = ("192.0.2.1:80", "198.51.100.2:40000");
        let key = flow(a, b);
        let all = [
            one.initial(&key, now),
            two.initial(&key, now),
            one.initial(&flow(b, a), now),
            one.initial(&flow("[2001:db8::192.0.2.1]:80", "[2001:db8::198.51.100.2]:40000"), now),
            one.initial(&flow("[::192.0.2.1]:80", "[2001:db8::198.51.100.2]:40000"), now),
            one.initial(&flow("192.0.2.2:80", b), now),
            one.initial(&flow("192.0.2.1:81", b), now),
            one.initial(&flow(a, "198.51.100.3:40000"), now),
            one.initial(&flow(a, "198.51.100.2:40001"), now),
            one.initial(&key.carried(4433, 1), now),
            one.initial(&key.carried(4433, 0x8000), now),
        ];
        assert_eq!(all.iter().map(|i| i.isn.get()).collect::<BTreeSet<_>>().len(), 11);
        assert_eq!(all.iter().map(|i| i.ts_offset).collect::<BTreeSet<_>>().len(), 11);
        assert_eq!(all[0], IsnGenerator::new([7; 16]).initial(&key, now));
        assert_eq!(one.initial(&key.carried(4433, 1), now), one.initial(&key.carried(4434, 1), now));
    }

    /// Compares with the definition of the hash, on the bytes of the whole input.
    #[test]
    fn the_hash_is_siphash_of_one_message() {
        let expected = |message: &[u8]| SipHasher13::new_with_key(&[7; 16]).hash(message);
        let key = flow("192.0.2.1:80", "198.51.100.2:40000").carried(1, 0x1234);
        let message = [2, 100, 51, 198, 1, 2, 0, 192, 0x40, 0x9c, 80, 0, 0x34, 0x12, 3];
        assert_eq!(hash_flow(&[7; 16], Purpose::Port, &key), expected(&message));
        let key = flow("[102:304::8]:80", "[::9]:40000");
        let message = [[0, 0, 0, 0, 4, 3, 2, 1], [8, 0, 0, 0, 0, 0, 0, 0], [0; 8], [9, 0, 0, 0, 0, 0, 0, 0]];
        let message = [message.as_flattened(), &[0x40, 0x9c, 80, 0, 0, 0, 1]].concat();
        assert_eq!(hash_flow(&[7; 16], Purpose::Isn, &key), expected(&message));
    }

    #[test]
    fn a_later_incarnation_keeps_its_timestamp_offset() {
        let generator = IsnGenerator::new([7; 16]);
        let key = flow("192.0.2.1:80", "198.51.100.2:40000");
        let first = generator.initial(&key, Instant::from_secs(1));
        let later = generator.initial(&key, Instant::from_secs(61));
        assert_eq!(first.ts_offset, later.ts_offset);
        assert_eq!(later.isn - first.isn, 15_000_000);
    }

    #[test]
    fn debug_keeps_the_secret() {
        assert_eq!(format!("{:?}", IsnGenerator::new([0xab; 16])), "IsnGenerator(secret)");
    }
}
