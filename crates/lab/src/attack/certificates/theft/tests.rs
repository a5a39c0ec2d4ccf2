use super::*;

#[test]
fn a_certificate_is_worth_nothing_without_its_address_and_its_key() {
    const SEED: u64 = 1;
    for (name, theft) in Theft::ALL {
        let loot = theft.run(SEED).unwrap();
        println!("seed {SEED}, {name}: {loot:?}");
        if theft == Theft::Honest {
            assert_eq!((loot.accepted, loot.executed), (u64::from(TRIES), TRIES as usize));
            continue;
        }
        assert_eq!((loot.accepted, loot.executed), (0, 0), "{name}");
        // Not more than any SYN draws: six SYN-ACKs of at most 64 bytes.
        assert!(loot.bytes <= u64::from(TRIES) * 6 * 64, "{name}");
    }
}

/// The cache holds the certificate for one address. For another address the server verifies the verifier's
/// signature, which is then wrong. The request's signature is valid there, and would suffice for a cached
/// certificate.
#[test]
fn the_cache_does_not_vouch_for_another_address() {
    let [own, elsewhere] = [Theft::Honest, Theft::Elsewhere].map(|theft| theft.run(1).unwrap());
    assert_eq!(own.signatures, u64::from(TRIES), "one each: cached");
    assert_eq!((elsewhere.signatures, elsewhere.accepted), (u64::from(TRIES), 0));
}
