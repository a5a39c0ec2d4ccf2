//! SYN cookies: a listener under attack keeps no half-open connection. What it needs to know comes back in the
//! client's acknowledgement (RFC 4987 §3.6).
//!
//! The cookie is the SYN-ACK's sequence number:
//!
//! ```text
//!  31        27 26     24 23                         0
//! +------------+---------+----------------------------+
//! | time mod 32| MSS     | keyed hash                 |
//! +------------+---------+----------------------------+
//! ```
//!
//! The time is in units of 64 s, and the MSS is an index into a table. The upper 8 bits are masked with a second
//! hash of the flow, so that an attacker must guess them, too.

use crate::flow::FlowKey;
use crate::isn::{Purpose, keyed, write_socket};
use core::fmt;
use core::hash::Hasher;
use firstflight_wire::{Instant, SeqNum};
use zeroize::Zeroize;

/// One unit of the cookie's clock, in ns.
const PERIOD_NS: u64 = 64_000_000_000;
/// A cookie is valid in the unit in which it was made and for this number of further units: 64 to 128 s.
const MAX_AGE: u32 = 1;
const HASH_MASK: u32 = 0x00ff_ffff;

/// Segment sizes that a cookie can carry over IPv4, ascending: the smallest size that is accepted, the default of
/// RFC 9293 §3.7.1, tunnels, PPPoE, Ethernet.
const MSS_V4: [u16; 8] = [88, 536, 1200, 1360, 1400, 1440, 1452, 1460];
/// Like [`MSS_V4`], over IPv6: 1220 fits its minimum MTU (RFC 8200 §5); the last is for jumbo frames.
const MSS_V6: [u16; 8] = [88, 536, 1220, 1340, 1380, 1432, 1440, 8940];
/// Like [`MSS_V4`], in UDP: the base datagram, and the room on some links (last: Ethernet with IPv6 and IPv4).
const MSS_CARRIED: [u16; 8] = [88, 536, 1176, 1232, 1336, 1376, 1428, 1448];

/// Makes and checks SYN cookies under one secret.
///
/// `Debug` does not show the secret; dropping erases it.
pub(crate) struct SynCookies {
    secret: [u8; 16],
}

impl SynCookies {
    /// Cookies under 16 unpredictable bytes.
    #[must_use]
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self { secret }
    }

    /// The sequence number of the SYN-ACK that answers a SYN with number `peer_isn` and the MSS
    /// option `mss` (bytes). The cookie carries the largest size of its table that is not above
    /// `mss`, or the smallest of the table.
    #[must_use]
    pub(crate) fn make(&self, key: &FlowKey, peer_isn: SeqNum, mss: u16, now: Instant) -> SeqNum {
        let above = table(key).iter().filter(|&&size| size <= mss).count();
        let index = above.saturating_sub(1) as u32;
        let period = now.as_nanos() / PERIOD_NS;
        let flow = self.flow(key, peer_isn);
        let open = ((period as u32 & 31) << 3) | index;
        SeqNum::new(((open ^ mask(flow)) << 24) | self.tag(flow, period, index))
    }

    /// The MSS in bytes if `cookie` was made for this flow and `peer_isn` in this or the previous
    /// period of 64 s. For a client's ACK, `cookie` is its acknowledgement number minus one and
    /// `peer_isn` its sequence number minus one.
    ///
    /// A guess succeeds with probability 2⁻²⁸: the caller should check only while cookies are in use
    /// or were so recently.
    #[must_use]
    pub(crate) fn check(&self, key: &FlowKey, peer_isn: SeqNum, cookie: SeqNum, now: Instant) -> Option<u16> {
        let flow = self.flow(key, peer_isn);
        let open = (cookie.get() >> 24) ^ mask(flow);
        let (made, index) = (open >> 3, open & 7);
        let current = now.as_nanos() / PERIOD_NS;
        let age = (current as u32).wrapping_sub(made) & 31;
        if age > MAX_AGE {
            return None;
        }
        let period = current.checked_sub(u64::from(age))?;
        // Numbers on the wire are no secret, and a difference of 24 bits has no early exit.
        let difference = (cookie.get() & HASH_MASK) ^ self.tag(flow, period, index);
        if difference != 0 {
            return None;
        }
        table(key).get(index as usize).copied()
    }

    /// The peer's UDP port is part of the hash: a cookie is not valid for another port.
    fn flow(&self, key: &FlowKey, peer_isn: SeqNum) -> u64 {
        let mut hasher = keyed(&self.secret, Purpose::CookieFlow);
        write_socket(&mut hasher, key.local());
        write_socket(&mut hasher, key.remote());
        hasher.write(&key.outer_remote().to_be_bytes());
        hasher.write(&peer_isn.get().to_be_bytes());
        hasher.finish()
    }

    /// The 24 bits that nobody can compute without the secret.
    fn tag(&self, flow: u64, period: u64, index: u32) -> u32 {
        let mut hasher = keyed(&self.secret, Purpose::CookieCheck);
        hasher.write(&flow.to_be_bytes());
        hasher.write(&period.to_be_bytes());
        hasher.write(&index.to_be_bytes());
        hasher.finish() as u32 & HASH_MASK
    }
}

impl fmt::Debug for SynCookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SynCookies(secret)")
    }
}

impl Drop for SynCookies {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

fn table(key: &FlowKey) -> &'static [u16; 8] {
    match key {
        _ if key.is_carried() => &MSS_CARRIED,
        _ if key.local_ip().is_ipv4() => &MSS_V4,
        _ => &MSS_V6,
    }
}

/// The mask of time and MSS: 8 bits of the flow's hash.
fn mask(flow: u64) -> u32 {
    (flow >> 56) as u32
}

/// Low bits of a SYN-ACK's timestamp that carry options, as in Linux: 4 window scale, 1 SACK, 1
/// reserved (zero).
const TS_BITS: u32 = 6;
const TS_MASK: u32 = (1 << TS_BITS) - 1;
/// "No window scale option."
const NO_SCALE: u32 = 15;
const SACK: u32 = 1 << 4;

/// The timestamp of a SYN-ACK that carries a cookie: `ts` with the peer's window scale (0–14,
/// larger counts as 14, RFC 7323 §2.3) and SACK-permitted in its low 6 bits.
///
/// It is less than 64 ticks older than `ts` and never newer, so later timestamps do not run backwards (RFC 7323
/// §5.2 would drop them).
#[must_use]
pub(crate) fn encode_ts(ts: u32, wscale: Option<u8>, sack: bool) -> u32 {
    let scale = wscale.map_or(NO_SCALE, |scale| u32::from(scale.min(14)));
    let options = scale | if sack { SACK } else { 0 };
    let with = (ts & !TS_MASK) | options;
    if options > ts & TS_MASK { with.wrapping_sub(1 << TS_BITS) } else { with }
}

/// Window scale and SACK-permitted from the echo of a timestamp of [`encode_ts`]. Trust it only together with a
/// valid cookie: the echo itself is not authenticated, but a client that alters it harms only its own connection.
#[must_use]
pub(crate) fn decode_ts(echo: u32) -> (Option<u8>, bool) {
    let scale = echo & 15;
    ((scale != NO_SCALE).then_some(scale as u8), echo & SACK != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;
    use std::format;

    const SECRET: [u8; 16] = [7; 16];

    fn v4() -> FlowKey {
        FlowKey::new("192.0.2.1:80".parse().unwrap(), "198.51.100.2:40000".parse().unwrap())
    }

    fn v6() -> FlowKey {
        FlowKey::new("[2001:db8::1]:80".parse().unwrap(), "[2001:db8::2]:40000".parse().unwrap())
    }

    fn seconds(s: u64) -> Instant {
        Instant::from_millis(s * 1000)
    }

    #[test]
    fn lives_for_this_and_the_next_period() {
        let cookies = SynCookies::new(SECRET);
        let key = v4();
        for made in [0u64, 63, 64, 64 * 31, 64 * 32 + 5, 64 * 100_000 + 63] {
            let cookie = cookies.make(&key, SeqNum::new(9), 1460, seconds(made));
            let period = made / 64 * 64;
            for at in [made, period + 63, period + 64, period + 127] {
                assert_eq!(cookies.check(&key, SeqNum::new(9), cookie, seconds(at)), Some(1460));
            }
            // Also after a full turn of the five bits.
            for at in [period + 128, period + 64 * 32, period + 64 * 33, period + 64 * 64] {
                assert_eq!(cookies.check(&key, SeqNum::new(9), cookie, seconds(at)), None, "{made} {at}");
            }
            if period > 0 {
                assert_eq!(cookies.check(&key, SeqNum::new(9), cookie, seconds(period - 1)), None);
            }
        }
    }

    #[test]
    fn mss_is_rounded_down_to_the_table() {
        let cookies = SynCookies::new(SECRET);
        let carried = |key: FlowKey, mss| {
            let cookie = cookies.make(&key, SeqNum::new(1), mss, seconds(1));
            cookies.check(&key, SeqNum::new(1), cookie, seconds(1)).unwrap()
        };
        assert_eq!(
            [0, 88, 535, 536, 1399, 1459, 1460, 9000].map(|m| carried(v4(), m)),
            [88, 88, 88, 536, 1360, 1452, 1460, 1460]
        );
        assert_eq!(
            [1219, 1220, 1439, 1440, 8939, 65_535].map(|m| carried(v6(), m)),
            [536, 1220, 1432, 1440, 1440, 8940]
        );
        assert_eq!(
            [1175, 1176, 1428, 1460].map(|m| carried(v4().carried(4433, 5000), m)),
            [536, 1176, 1428, 1448]
        );
        assert!(MSS_V4.is_sorted() && MSS_V6.is_sorted() && MSS_CARRIED.is_sorted());
    }

    #[test]
    fn belongs_to_one_flow_one_syn_and_one_secret() {
        let cookies = SynCookies::new(SECRET);
        let key = v4();
        let isn = SeqNum::new(77);
        let cookie = cookies.make(&key, isn, 1460, seconds(5));
        let check = |key: FlowKey, i| cookies.check(&key, i, cookie, seconds(5));
        let other = |l: &str, r: &str| FlowKey::new(l.parse().unwrap(), r.parse().unwrap());
        assert_eq!(check(key, isn), Some(1460));
        assert_eq!(check(FlowKey::new(key.remote(), key.local()), isn), None);
        assert_eq!(check(other("192.0.2.1:81", "198.51.100.2:40000"), isn), None);
        assert_eq!(check(other("192.0.2.3:80", "198.51.100.2:40000"), isn), None);
        assert_eq!(check(other("192.0.2.1:80", "198.51.100.2:40001"), isn), None);
        assert_eq!(check(other("192.0.2.1:80", "198.51.100.3:40000"), isn), None);
        assert_eq!(check(key, SeqNum::new(78)), None);
        assert_eq!(check(key.carried(4433, 5000), isn), None, "nor in UDP");
        assert_eq!(SynCookies::new([8; 16]).check(&key, isn, cookie, seconds(5)), None);
        let outer = key.carried(4433, 5000);
        let cookie = cookies.make(&outer, isn, 1176, seconds(5));
        let check = |key: FlowKey| cookies.check(&key, isn, cookie, seconds(5));
        assert_eq!(check(outer), Some(1176));
        assert_eq!((check(key.carried(4433, 5001)), check(key)), (None, None), "nor behind another port");
    }

    #[test]
    fn upper_bits_differ_between_flows() {
        let cookies = SynCookies::new(SECRET);
        let key = v4();
        let upper: std::collections::BTreeSet<u32> =
            (0..64).map(|isn| cookies.make(&key, SeqNum::new(isn), 1460, seconds(5)).get() >> 24).collect();
        assert!(upper.len() > 32, "{}", upper.len());
    }

    #[test]
    fn debug_keeps_the_secret() {
        assert_eq!(format!("{:?}", SynCookies::new([0xab; 16])), "SynCookies(secret)");
    }

    proptest! {
        #[test]
        fn round_trip(isn: u32, mss: u16, ns: u64, wait in 0u64..64_000_000_000, six: bool) {
            let cookies = SynCookies::new(SECRET);
            let key = if six { v6() } else { v4() };
            let now = Instant::from_nanos(ns);
            let cookie = cookies.make(&key, SeqNum::new(isn), mss, now);
            let later = now + Duration::from_nanos(wait);
            let got = cookies.check(&key, SeqNum::new(isn), cookie, later);
            prop_assert!(got.is_some_and(|got| got <= mss.max(88)));
        }

        /// One flipped bit is enough.
        #[test]
        fn altered_cookies_fail(isn: u32, bit in 0u32..32, period in 2u64..1000) {
            let cookies = SynCookies::new(SECRET);
            let key = v4();
            let now = seconds(period * 64);
            let cookie = cookies.make(&key, SeqNum::new(isn), 1460, now).get();
            let altered = SeqNum::new(cookie ^ (1 << bit));
            prop_assert_eq!(cookies.check(&key, SeqNum::new(isn), altered, now), None);
        }

        #[test]
        fn timestamps_carry_options_and_never_run_ahead(ts: u32, scale in prop::option::of(0u8..=14), sack: bool) {
            let encoded = encode_ts(ts, scale, sack);
            prop_assert_eq!(decode_ts(encoded), (scale, sack));
            prop_assert!(ts.wrapping_sub(encoded) < 64);
        }
    }

    #[test]
    fn a_scale_beyond_the_standard_counts_as_fourteen() {
        assert_eq!(decode_ts(encode_ts(1000, Some(200), true)), (Some(14), true));
        assert_eq!(decode_ts(encode_ts(0, None, false)), (None, false));
    }
}
