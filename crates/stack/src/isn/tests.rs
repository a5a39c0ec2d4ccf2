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
