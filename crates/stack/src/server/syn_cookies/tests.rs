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

#[test]
fn remembers_the_last_ones_as_long_as_they_live() {
    let mut answered = CookieAnswered::default();
    let at = |s| Instant::from_secs(s);
    for n in 0..MOST_ANSWERED as u64 {
        assert!(answered.note(n, SeqNum::new(n as u32), at(n)));
    }
    assert!(answered.has(0, SeqNum::new(0), at(127)));
    assert!(!answered.has(0, SeqNum::new(1), at(127)), "another cookie");
    assert!(!answered.has(1, SeqNum::new(0), at(127)), "another flow");
    assert!(!answered.has(0, SeqNum::new(0), at(128)), "too old");
    assert!(!answered.note(99, SeqNum::new(99), at(100)), "one that lives made way");
    assert!(!answered.has(0, SeqNum::new(0), at(100)));
    assert!(answered.has(99, SeqNum::new(99), at(100)));
    assert!(answered.note(100, SeqNum::new(100), at(1000)), "those that made way were over");
    assert_eq!(answered.sent.len(), 1);
}
