//! Tests with signatures on which implementations disagree, and with invalid signatures among many.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use super::super::fixtures::{Flight, NOW, policy, shard};
use super::*;
use alloc::vec;
use curve25519_dalek::constants::{ED25519_BASEPOINT_POINT, EIGHT_TORSION};
use curve25519_dalek::edwards::EdwardsPoint;
use curve25519_dalek::scalar::{Scalar, clamp_integer};
use firstflight_wire::asap::Block;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use sha2::{Digest, Sha512};

/// The order of the group, little-endian. Adding it to S does not change S modulo the order.
const ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

fn rng(n: u8) -> ChaCha20Rng {
    ChaCha20Rng::from_seed([n; 32])
}

/// A signature by the key of `seed` whose R has the component `torsion`. Only the holder of the key can make
/// it.
fn sign_with(seed: &[u8; 32], torsion: EdwardsPoint, message: &[u8]) -> [u8; 64] {
    let hash: [u8; 64] = Sha512::digest(seed).into();
    let (low, prefix) = hash.split_first_chunk::<32>().unwrap();
    let secret = Scalar::from_bytes_mod_order(clamp_integer(*low));
    let public = (ED25519_BASEPOINT_POINT * secret).compress();
    let wide = |parts: &[&[u8]]| {
        let hash = parts.iter().fold(Sha512::new(), |hash, part| hash.chain_update(part));
        Scalar::from_bytes_mod_order_wide(&hash.finalize().into())
    };
    let nonce = wide(&[prefix, message]);
    let r = (ED25519_BASEPOINT_POINT * nonce + torsion).compress();
    let s = nonce + wide(&[r.as_bytes(), public.as_bytes(), message]) * secret;
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(r.as_bytes());
    signature[32..].copy_from_slice(s.as_bytes());
    signature
}

/// The candidate of `flight` with `block`. `together`: it is verified in a batch.
fn candidate(flight: &Flight, block: &Block, together: bool) -> Box<Candidate> {
    let mut candidate = flight.examine(&policy(), block, &mut shard(), NOW).unwrap();
    candidate.batch = together;
    candidate
}

/// The verdict on `signature` alone. Checks that it is the same in many batches with valid ones.
fn verdicts(flight: &Flight, signature: [u8; 64]) -> Verified {
    let block = flight.with_signature(signature);
    let single = verify(&[candidate(flight, &block, false)], &mut rng(0))[0];
    for n in 0..32 {
        let others: Vec<_> = (20..23).map(|n| (Flight::of(n), Flight::of(n).block())).collect();
        let mut together = Vec::from([candidate(flight, &block, true)]);
        together.extend(others.iter().map(|(flight, block)| candidate(flight, block, true)));
        let verdicts = verify(&together, &mut rng(n));
        assert_eq!(verdicts[0], single, "generator {n}");
        assert!(verdicts[1..].iter().all(|verdict| *verdict == Verified::Good), "generator {n}");
    }
    single
}

#[test]
fn single_and_batched_verification_agree_on_a_torsion_component_in_r() {
    let flight = Flight::of(1);
    let input = flight.parts().1.to_bytes();
    assert_eq!(sign_with(&[101; 32], EIGHT_TORSION[0], &input), flight.client.sign(&input), "RFC 8032");
    for torsion in EIGHT_TORSION {
        assert_eq!(verdicts(&flight, sign_with(&[101; 32], torsion, &input)), Verified::Good);
    }
    // Verify many at once, so that their components cannot all cancel.
    let all: Vec<_> = (0..64)
        .map(|n| {
            let flight = Flight::of(n);
            let torsion = EIGHT_TORSION[usize::from(n) % 8];
            let signature = sign_with(&[100 + n; 32], torsion, &flight.parts().1.to_bytes());
            candidate(&flight, &flight.with_signature(signature), true)
        })
        .collect();
    assert!(verify(&all, &mut rng(1)).iter().all(|verdict| *verdict == Verified::Good));
}

#[test]
fn single_and_batched_verification_agree_on_what_is_wrong() {
    let flight = Flight::of(1);
    let right = flight.client.sign(&flight.parts().1.to_bytes());
    assert_eq!(verdicts(&flight, right), Verified::Good);
    // S is not below the order of the group.
    let mut large = right;
    let carry = ORDER.iter().zip(&mut large[32..]).fold(0, |carry, (add, byte)| {
        let sum = u16::from(*byte) + u16::from(*add) + carry;
        *byte = sum as u8;
        sum >> 8
    });
    assert_eq!(carry, 0);
    assert_eq!(verdicts(&flight, large), Verified::BadRequest);
    for at in [0, 31, 32, 63] {
        let mut changed = right;
        changed[at] ^= 0x40;
        assert_eq!(verdicts(&flight, changed), Verified::BadRequest, "byte {at}");
    }
    // R has small order, and S is zero.
    for point in EIGHT_TORSION {
        let mut nothing = [0; 64];
        nothing[..32].copy_from_slice(point.compress().as_bytes());
        assert_eq!(verdicts(&flight, nothing), Verified::BadRequest);
    }
}

/// A careless verifier may certify bytes that are not a key, or a key of small order. Single and batched
/// verification agree on them.
#[test]
fn single_and_batched_verification_agree_on_unsound_keys() {
    for (key, expected) in [
        // Not a point of the curve.
        ([2; 32], Verified::BadRequest),
        // The identity: under it one signature is valid for every message.
        (EIGHT_TORSION[0].compress().to_bytes(), Verified::Good),
    ] {
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(EIGHT_TORSION[0].compress().as_bytes());
        for together in [false, true] {
            let flight = Flight::of(1);
            let mut one = candidate(&flight, &flight.with_signature(signature), together);
            one.client_key = PublicKey::from_bytes(key);
            let other = candidate(&Flight::of(2), &Flight::of(2).block(), together);
            assert_eq!(verify(&[one, other], &mut rng(1)), [expected, Verified::Good]);
        }
    }
}

#[test]
fn a_wrong_one_among_64_is_found_and_no_other_refused() {
    let flights: Vec<_> = (0..64).map(Flight::of).collect();
    for bad in [vec![0], vec![63], vec![31, 32], vec![5, 6, 40], (0..64).collect()] {
        let candidates: Vec<_> = flights
            .iter()
            .enumerate()
            .map(|(n, flight)| {
                let block = if bad.contains(&n) { flight.with_signature([9; 64]) } else { flight.block() };
                candidate(flight, &block, true)
            })
            .collect();
        let found: Vec<usize> = verify(&candidates, &mut rng(1))
            .iter()
            .enumerate()
            .filter(|(_, verdict)| **verdict == Verified::BadRequest)
            .map(|(n, _)| n)
            .collect();
        assert_eq!(found, bad);
    }
}

/// The request under an invalid certificate is not verified, and does not make a batch fail.
#[test]
fn a_wrong_certificate_is_no_part_of_a_batch() {
    let mut forged = Flight::of(1).block();
    forged.certificate.signature[3] ^= 1;
    let candidates =
        [candidate(&Flight::of(1), &forged, true), candidate(&Flight::of(2), &Flight::of(2).block(), true)];
    assert_eq!(verify(&candidates, &mut rng(1)), [Verified::BadCertificate, Verified::Good]);
}

/// A certificate that comes from another address counts as another certificate, even if its bytes are
/// verified for the first.
#[test]
fn a_verified_certificate_is_not_known_from_another_address() {
    let (policy, mut shard) = (policy(), shard());
    let flight = Flight::of(1);
    let candidates = Vec::from([flight.examine(&policy, &flight.block(), &mut shard, NOW).unwrap()]);
    let verdicts = verify(&candidates, &mut rng(1));
    shard.learn(&candidates, &verdicts, NOW);
    // The holder of the key signs a request for the victim's address under the same certificate bytes.
    let victim = Flight { address: [10, 0, 9, 9].into(), request_id: [77; 8], ..flight.clone() };
    let mut input = victim.parts().1;
    let body = flight.block().certificate;
    input.certificate = CertificateDigest::of(&body, &flight.verifier.public(), victim.address).0;
    let mut block = victim.with_signature(flight.client.sign(&input.to_bytes()));
    block.certificate = body;
    let poisoned = victim.examine(&policy, &block, &mut shard, NOW).unwrap();
    assert_eq!(poisoned.signatures(), 2, "not taken from the cache");
    assert_eq!(verify(&[poisoned], &mut rng(1)), [Verified::BadCertificate]);
    let own = Flight { request_id: [78; 8], ..flight };
    assert_eq!(own.examine(&policy, &own.block(), &mut shard, NOW).unwrap().signatures(), 1);
}
