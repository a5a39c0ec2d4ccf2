use super::*;
use crate::fixtures::{V4, V6, ci, dns_path, key, rng, zone};
use crate::keys::DnsPathKeys;
use proptest::prelude::*;

fn keys() -> DnsPathKeys {
    DnsPathKeys::new(dns_path().key_id, key())
}

#[test]
fn what_was_sealed_opens_at_every_length() {
    let keys = keys();
    for address in [V4, V6] {
        for len in 0..=ConnectionInfo::max_data(address) {
            let data: Vec<u8> = (0..len as u8).collect();
            let mut rng = rng(len as u64);
            let ci = ci(address, &data, &mut rng);
            let (sealed, reply) = seal(&ci, &dns_path(), &mut rng).unwrap();
            assert_eq!(sealed.as_slice().len(), ci.wire_len() + 49);
            let mut buffer = OpenBuffer::new();
            let (opened, opened_reply) = keys.open(zone(), &sealed, 0, &mut buffer).unwrap();
            assert_eq!(opened, ci);
            assert_eq!(*opened_reply.to_bytes(), *reply.to_bytes());
        }
    }
}

#[test]
fn a_seal_is_for_one_key_and_one_zone() {
    let mut rng = rng(1);
    let (sealed, _) = seal(&ci(V4, b"GET", &mut rng), &dns_path(), &mut rng).unwrap();
    let mut buffer = OpenBuffer::new();
    let other = Zone::new(b"\x01g\x03xyz\x03com\x00").unwrap();
    assert_eq!(keys().open(other, &sealed, 0, &mut buffer).unwrap_err(), OpenError::Forged);
    let another = DnsPathKeys::new(dns_path().key_id, DnsPathKey::from_bytes(&[6; 32]).unwrap());
    assert_eq!(another.open(zone(), &sealed, 0, &mut buffer).unwrap_err(), OpenError::Forged);
    let renamed = DnsPathKeys::new(4.try_into().unwrap(), key());
    assert_eq!(renamed.open(zone(), &sealed, 0, &mut buffer).unwrap_err(), OpenError::UnknownKey);
    // The number of the key is authenticated.
    let mut bytes = sealed.as_slice().to_vec();
    bytes[0] = 4;
    let sealed = Sealed::new(&bytes).unwrap();
    assert_eq!(renamed.open(zone(), &sealed, 0, &mut buffer).unwrap_err(), OpenError::Forged);
}

#[test]
fn any_changed_bit_is_noticed() {
    let mut rng = rng(2);
    let (sealed, _) = seal(&ci(V4, b"GET", &mut rng), &dns_path(), &mut rng).unwrap();
    let keys = keys();
    for at in 0..sealed.as_slice().len() {
        let mut bytes = sealed.as_slice().to_vec();
        bytes[at] ^= 1;
        let error = keys.open(zone(), &Sealed::new(&bytes).unwrap(), 0, &mut OpenBuffer::new()).unwrap_err();
        assert_eq!(error, if at == 0 { OpenError::UnknownKey } else { OpenError::Forged }, "{at}");
    }
}

#[test]
fn two_seals_of_the_same_are_not_the_same() {
    let mut rng = rng(3);
    let ci = ci(V4, b"GET", &mut rng);
    let (one, reply) = seal(&ci, &dns_path(), &mut rng).unwrap();
    let (two, other) = seal(&ci, &dns_path(), &mut rng).unwrap();
    assert_ne!(one, two);
    assert_ne!(*reply.to_bytes(), *other.to_bytes());
}

/// RFC 9180 §7.1.4: an all-zero shared secret is refused.
#[test]
fn keys_of_small_order_are_refused() {
    let mut rng = rng(4);
    let ci = ci(V4, b"GET", &mut rng);
    let mut one = [0; 32];
    one[0] = 1;
    for bad in [[0; 32], one] {
        let to = DnsPathParam { key: bad, ..dns_path() };
        assert_eq!(seal(&ci, &to, &mut rng).unwrap_err(), SealError::BadKey);
        let mut bytes = seal(&ci, &dns_path(), &mut rng).unwrap().0.as_slice().to_vec();
        bytes[1..33].copy_from_slice(&bad);
        let sealed = Sealed::new(&bytes).unwrap();
        let error = keys().open(zone(), &sealed, 0, &mut OpenBuffer::new()).unwrap_err();
        assert_eq!(error, OpenError::Forged);
    }
}

#[test]
fn what_does_not_fit_is_not_sealed() {
    let mut rng = rng(5);
    for (address, most) in [(V4, 135), (V6, 123)] {
        let data = vec![0; most + 1];
        assert!(seal(&ci(address, &data[..most], &mut rng), &dns_path(), &mut rng).is_ok());
        let error = seal(&ci(address, &data, &mut rng), &dns_path(), &mut rng).unwrap_err();
        assert_eq!(error, SealError::TooLong);
    }
    let mapped = "::ffff:192.0.2.1".parse().unwrap();
    let error = seal(&ci(mapped, b"", &mut rng), &dns_path(), &mut rng).unwrap_err();
    assert_eq!(error, SealError::Address);
    assert!(Sealed::new(&[0; Sealed::MIN - 1]).is_none() && Sealed::new(&[0; Sealed::MIN]).is_some());
    assert!(Sealed::new(&[0; Sealed::MAX + 1]).is_none() && Sealed::new(&[0; Sealed::MAX]).is_some());
}

#[test]
fn no_secret_is_printed() {
    let text = format!("{:?} {:?} {:?}", key(), keys(), OpenBuffer::new());
    assert!(text.starts_with("DnsPathKey(..) DnsPathKeys") && !text.contains("5, 5"), "{text}");
}

proptest! {
    #[test]
    fn no_bytes_open(bytes in proptest::collection::vec(any::<u8>(), Sealed::MIN..=Sealed::MAX)) {
        let mut bytes = bytes;
        bytes[0] = 3;
        let sealed = Sealed::new(&bytes).unwrap();
        prop_assert_eq!(keys().open(zone(), &sealed, 0, &mut OpenBuffer::new()).unwrap_err(), OpenError::Forged);
    }
}
