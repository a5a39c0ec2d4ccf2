use super::*;
use crate::fixtures::{NAME, NOW, flight, id, key, keys, name, rng};

#[test]
fn a_key_opens_an_hour_after_clients_stop_to_use_it() {
    let mut keys = keys();
    let sealed = flight(b"GET", &mut rng(1));
    let end = NOW + 86_400;
    assert!(keys.record(end - 1).is_some() && keys.record(end).is_none());
    assert!(keys.open(&sealed, 443, end + 3599).is_ok());
    assert_eq!(keys.open(&sealed, 443, end + 3600).unwrap_err(), OpenError::UnknownKey);
    assert_eq!(keys.next_end(), Some(end + 3600));
    keys.handle_time(end + 3600);
    assert!(keys.is_empty() && keys.next_end().is_none());
    // The clock goes back: the key is gone.
    assert!(!keys.knows(id(7), NOW));
}

#[test]
fn numbers_that_open_are_not_used_again() {
    let mut keys = KeySet::new(name(NAME));
    keys.add(id(1), key(1), 1000, 0).unwrap();
    assert_eq!(keys.add(id(1), key(2), 2000, 1000), Err(RotateError::IdInUse));
    keys.add(id(1), key(2), 9000, 4600).unwrap();
    for n in 2..=4 {
        keys.add(id(n), key(n), 9000, 4600).unwrap();
    }
    assert_eq!(keys.add(id(5), key(5), 9000, 4600), Err(RotateError::TooMany));
    assert_eq!(keys.record(4600).unwrap().entries()[0].key_id(), id(4));
    assert!(!format!("{keys:?}").contains("0101"));
}
