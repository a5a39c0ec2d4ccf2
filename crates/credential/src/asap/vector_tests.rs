//! Tests with the vector of the specification, which another implementation made, and with keys that must not
//! be certified.

use super::*;
use alloc::string::ToString;
use core::net::IpAddr;
use data_encoding::HEXLOWER;
use firstflight_wire::Instant;
use firstflight_wire::asap::{Block, CertificateFlags, Encapsulation};
use std::{format, time::Duration};

const ADDRESS: &str = "192.0.2.1";

fn certified() -> ClientCertificate {
    let (verifier, client) = (PrivateKey::from_seed(&[1; 32]), PrivateKey::from_seed(&[2; 32]));
    let address: IpAddr = ADDRESS.parse().unwrap();
    let flags = CertificateFlags::new(1, true, false).unwrap();
    let body = certify(&verifier, &client.public(), address, 1_767_225_600, 1800, flags).unwrap();
    ClientCertificate::new(body, verifier.public(), address, client, Instant::ZERO).unwrap()
}

#[test]
fn the_vector() {
    let certificate = certified();
    assert_eq!(
        certificate.verifier().to_string(),
        "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c"
    );
    assert_eq!(
        certificate.key().public().to_string(),
        "8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394"
    );
    let identity = Identity::name("www.example.com", 443);
    assert_eq!(
        HEXLOWER.encode(identity.digest()),
        "b4dd5dcf6dfb25c3e42a21b424ba4a203f2f81c3ffa749d0a56841d93dcf11a0"
    );
    let block = certificate.request(
        Encapsulation::Ip,
        &identity,
        b"GET / HTTP/1.0\r\n\r\n",
        [0, 1, 2, 3, 4, 5, 6, 7],
        Instant::ZERO + Duration::from_secs(60),
    );
    let expected = "ff46110034750f988139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394\
        6955b900080007087359cbe5314fe2560f1d9c40428932f7231598efdf3b1a7aebf1a0f8504d7c0b50fc63418c2e0992\
        571a6d954d4495fa7729b14a244d79566270b8cdf3423c0ed4e5b4dd5dcf019b76db9260000102030405060731810858\
        3b4108566f9141534bd5480f311760f44f616ef315efc301cd1fd34ebb33c0afbc49e61c96980e0b998bea91ff753843\
        1c3b16c713343fda9a91bb0f";
    assert_eq!(HEXLOWER.encode(&block.to_bytes()), expected);
    assert_eq!(Block::parse(&block.to_bytes()), Ok(block));
}

/// The signature covers the address, the verifier and every field.
#[test]
fn a_certificate_is_good_for_one_address_and_verifier() {
    let certificate = certified();
    let (body, verifier) = (*certificate.body(), *certificate.verifier());
    let address: IpAddr = ADDRESS.parse().unwrap();
    assert!(is_certified(&body, &verifier, address));
    for other in ["192.0.2.2", "::ffff:192.0.2.1", "2001:db8::1"] {
        assert!(!is_certified(&body, &verifier, other.parse().unwrap()), "{other}");
    }
    assert!(!is_certified(&body, &PrivateKey::from_seed(&[3; 32]).public(), address));
    let mut bytes = body.to_bytes();
    for at in 0..bytes.len() {
        bytes[at] ^= 1;
        if let Ok(changed) = firstflight_wire::asap::CertificateBody::parse(&bytes) {
            assert!(!is_certified(&changed, &verifier, address), "byte {at}");
        }
        bytes[at] ^= 1;
    }
    let stranger = PrivateKey::from_seed(&[4; 32]);
    assert!(ClientCertificate::new(body, verifier, address, stranger, Instant::ZERO).is_none());
}

#[test]
fn identities_are_names_without_case_and_final_dot() {
    let identity = Identity::name("www.example.com", 443);
    assert_eq!(Identity::name("WWW.Example.COM.", 443), identity);
    assert_ne!(Identity::name("www.example.com", 80), identity);
    assert_ne!(Identity::name("example.com", 443), identity);
    let (v4, v6): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "::ffff:192.0.2.1".parse().unwrap());
    assert_ne!(Identity::address(v4, 443), Identity::address(v6, 443));
}

/// A signature under one of the eight points of small order can be valid for many messages.
#[test]
fn keys_of_small_order_and_odd_encodings_are_not_sound() {
    let mut found = 0;
    for point in curve25519_dalek::constants::EIGHT_TORSION {
        let bytes = point.compress().0;
        assert!(!PublicKey::from_bytes(bytes).is_sound());
        found += 1;
    }
    assert_eq!(found, 8);
    // y = p + 1 is a second, non-canonical encoding of y = 1, the identity.
    let mut odd = [0xff; 32];
    (odd[0], odd[31]) = (0xee, 0x7f);
    assert!(!PublicKey::from_bytes(odd).is_sound());
    assert_eq!("00".repeat(32).parse::<PublicKey>(), Err(NotAKey::Unsound));
    assert_eq!("g0".repeat(32).parse::<PublicKey>(), Err(NotAKey::Digits));
    let key = certified().key().public();
    assert!(key.is_sound());
    assert_eq!(key.to_string().parse(), Ok(key));
}

/// The time of requests starts at the beginning of the certificate and follows the monotonic clock.
#[test]
fn requests_are_stamped_from_the_certificate() {
    let certificate = certified();
    assert_eq!(certificate.requested_ms(Instant::ZERO), 1_767_225_600_000);
    let later = Instant::ZERO + Duration::from_millis(1_234_567);
    assert_eq!(certificate.requested_ms(later), 1_767_226_834_567);
    assert_eq!(certificate.remaining(later), Duration::from_millis(1_800_000 - 1_234_567));
    assert_eq!(certificate.remaining(Instant::from_secs(4000)), Duration::ZERO);
}

#[test]
fn secrets_are_not_printed() {
    let certificate = certified();
    let printed = format!("{certificate:?} {:?}", certificate.key());
    assert!(!printed.contains("020202") && !printed.contains("2, 2, 2"), "{printed}");
}
