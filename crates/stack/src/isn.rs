//! Initial sequence numbers (RFC 6528) and timestamp offsets (RFC 7323 §5.4).

use core::fmt;
use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use firstflight_wire::{Instant, SeqNum};
use siphasher::sip::SipHasher24;
use zeroize::Zeroize;

/// Hashes for initial sequence numbers and timestamps under one secret.
///
/// `Debug` does not show the secret; dropping erases it.
pub struct IsnGenerator {
    secret: [u8; 16],
}

impl IsnGenerator {
    /// A generator under 16 unpredictable bytes.
    #[must_use]
    pub fn new(secret: [u8; 16]) -> Self {
        Self { secret }
    }

    /// The initial sequence number of a connection (RFC 6528 §3): a clock of 4 µs plus a keyed hash
    /// of both ends. A later incarnation of the same pair begins later in the sequence space, and
    /// who is not on the path cannot guess it.
    #[must_use]
    pub fn isn(&self, local: SocketAddr, remote: SocketAddr, now: Instant) -> SeqNum {
        let ticks = now.as_nanos() / 4_000;
        let mut hasher = keyed(&self.secret, Purpose::Isn);
        write_socket(&mut hasher, local);
        write_socket(&mut hasher, remote);
        SeqNum::new((hasher.finish() as u32).wrapping_add(ticks as u32))
    }

    /// What to add to the timestamp clock towards `remote`: timestamps then tell nobody how long
    /// this machine runs (RFC 7323 §5.4 and §7). One value for a pair of addresses, not for a
    /// connection, so that timestamps keep growing from one incarnation to the next.
    #[must_use]
    pub fn timestamp_offset(&self, local: IpAddr, remote: IpAddr) -> u32 {
        let mut hasher = keyed(&self.secret, Purpose::Timestamp);
        write_ip(&mut hasher, local);
        write_ip(&mut hasher, remote);
        hasher.finish() as u32
    }
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

/// What a hash is for: the first byte of its input, so that one secret may serve several purposes.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Isn = 1,
    Timestamp = 2,
    Port = 3,
    CookieFlow = 4,
    CookieCheck = 5,
}

/// SipHash-2-4 under `secret`, begun with the purpose.
pub(crate) fn keyed(secret: &[u8; 16], purpose: Purpose) -> SipHasher24 {
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write(&[purpose as u8]);
    hasher
}

/// Family and address: no two addresses have the same bytes.
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

/// Address and port; flow label and scope do not count.
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

    fn end(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ticks_every_four_microseconds_and_wraps() {
        let generator = IsnGenerator::new([7; 16]);
        let (a, b) = (end("192.0.2.1:80"), end("198.51.100.2:40000"));
        let at = |us: u64| generator.isn(a, b, Instant::from_nanos(us * 1000));
        assert_eq!(at(3), at(0));
        assert_eq!(at(4) - at(0), 1);
        assert_eq!(at(4_000_000) - at(0), 1_000_000);
        let round = 4u64 << 32;
        assert_eq!(at(round + 8) - at(0), 2);
        let later = Instant::from_nanos(0) + Duration::from_micros(400);
        assert_eq!(generator.isn(a, b, later) - at(0), 100);
    }

    #[test]
    fn depends_on_every_part_and_on_the_secret() {
        let now = Instant::from_millis(5);
        let one = IsnGenerator::new([7; 16]);
        let two = IsnGenerator::new([8; 16]);
        let (a, b) = (end("192.0.2.1:80"), end("198.51.100.2:40000"));
        let mapped = end("[::ffff:192.0.2.1]:80");
        let seen: BTreeSet<u32> = [
            one.isn(a, b, now),
            two.isn(a, b, now),
            one.isn(b, a, now),
            one.isn(mapped, b, now),
            one.isn(end("192.0.2.2:80"), b, now),
            one.isn(end("192.0.2.1:81"), b, now),
            one.isn(a, end("198.51.100.3:40000"), now),
            one.isn(a, end("198.51.100.2:40001"), now),
        ]
        .into_iter()
        .map(SeqNum::get)
        .collect();
        assert_eq!(seen.len(), 8);
        assert_eq!(
            one.isn(a, b, now),
            IsnGenerator::new([7; 16]).isn(a, b, now)
        );
    }

    #[test]
    fn timestamp_offset_belongs_to_the_pair_of_addresses() {
        let generator = IsnGenerator::new([7; 16]);
        let (a, b) = (end("192.0.2.1:80").ip(), end("198.51.100.2:1").ip());
        let offset = generator.timestamp_offset(a, b);
        assert_eq!(offset, generator.timestamp_offset(a, b));
        assert_ne!(offset, generator.timestamp_offset(b, a));
        assert_ne!(
            offset,
            generator.timestamp_offset(a, end("198.51.100.3:1").ip())
        );
        assert_ne!(offset, IsnGenerator::new([9; 16]).timestamp_offset(a, b));
    }

    #[test]
    fn debug_keeps_the_secret() {
        assert_eq!(
            format!("{:?}", IsnGenerator::new([0xab; 16])),
            "IsnGenerator(secret)"
        );
    }
}
