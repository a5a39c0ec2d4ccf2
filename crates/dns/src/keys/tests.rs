use super::*;
use crate::fixtures::{V4, ci, rng, zone};
use crate::seal::seal;
use firstflight_wire::asap::DnsPathParam;

fn id(number: u8) -> NonZeroU8 {
    number.try_into().unwrap()
}

fn key(number: u8) -> DnsPathKey {
    DnsPathKey::from_bytes(&[number; 32]).unwrap()
}

fn sealed_to(keys: &DnsPathKeys) -> Sealed {
    let (key_id, key) = keys.current();
    let mut rng = rng(key_id.get().into());
    seal(&ci(V4, b"GET", &mut rng), &DnsPathParam { key_id, key, zone: zone() }, &mut rng).unwrap().0
}

fn opens(keys: &DnsPathKeys, sealed: &Sealed, now: u64) -> bool {
    match keys.open(zone(), sealed, now, &mut OpenBuffer::new()) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, OpenError::UnknownKey);
            false
        }
    }
}

#[test]
fn a_former_key_opens_until_its_end_and_is_destroyed_then() {
    let mut keys = DnsPathKeys::new(id(1), key(1));
    let first = sealed_to(&keys);
    assert_eq!(keys.rotate(id(2), key(2), 1000, 100), Ok(()));
    let second = sealed_to(&keys);
    assert_eq!((keys.current().0, keys.former(), keys.next_end()), (id(2), 1, Some(1000)));
    assert!(opens(&keys, &first, 999) && opens(&keys, &second, 999));
    // The key has ended, but is not destroyed yet, because `handle_time` was not called.
    assert!(!opens(&keys, &first, 1000) && opens(&keys, &second, u64::MAX));
    keys.handle_time(999);
    assert_eq!(keys.former(), 1);
    keys.handle_time(1000);
    assert_eq!((keys.former(), keys.next_end()), (0, None));
    assert!(!opens(&keys, &first, 0));
}

#[test]
fn numbers_are_used_once_at_a_time() {
    let mut keys = DnsPathKeys::new(id(1), key(1));
    assert_eq!(keys.rotate(id(1), key(2), 1000, 0), Err(RotateError::IdInUse));
    keys.rotate(id(2), key(2), 1000, 0).unwrap();
    assert_eq!(keys.rotate(id(1), key(3), 2000, 999), Err(RotateError::IdInUse));
    assert_eq!(keys.rotate(id(1), key(3), 2000, 1000), Ok(()));
    assert_eq!(keys.current(), (id(1), key(3).public()));
}

#[test]
fn former_keys_are_few() {
    let mut keys = DnsPathKeys::new(id(1), key(1));
    for number in 2..10 {
        keys.rotate(id(number), key(number), 1000, 0).unwrap();
    }
    assert_eq!(keys.former(), DnsPathKeys::MAX_FORMER);
    assert_eq!(keys.rotate(id(10), key(10), 1000, 0), Err(RotateError::TooMany));
    assert_eq!(keys.current().0, id(9));
    // A key that ends at once takes no place.
    assert_eq!(keys.rotate(id(10), key(10), 0, 0), Ok(()));
    assert_eq!(keys.former(), DnsPathKeys::MAX_FORMER);
}
