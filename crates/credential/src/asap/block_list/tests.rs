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
