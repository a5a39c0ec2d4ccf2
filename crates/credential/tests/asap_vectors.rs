//! Compares signatures and digests with the vectors of `docs/spec/asap.md`, which another implementation of
//! Ed25519 made (`tools/asap-vectors`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use data_encoding::HEXLOWER;
use ed25519_zebra::{Signature, VerificationKeyBytes, batch};
use firstflight_credential::asap::{
    ClientCertificate, Identity, PrivateKey, PublicKey, address_tag, certify, is_certified,
};
use firstflight_wire::Instant;
use firstflight_wire::asap::message::Message;
use firstflight_wire::asap::{Block, CertificateFlags, Encapsulation};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::Value;
use std::net::IpAddr;
use std::time::Duration;

fn vectors(name: &str) -> Vec<Value> {
    let path = format!("{}/../wire/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect(&path)).expect(&path);
    let vectors = file["vectors"].as_array().unwrap().clone();
    assert!(vectors.len() > 2);
    vectors.into_iter().inspect(|vector| eprintln!("{}", vector["name"])).collect()
}

fn bytes(vector: &Value, key: &str) -> Vec<u8> {
    let text = vector[key].as_str().unwrap_or_else(|| panic!("{key} of {vector}"));
    HEXLOWER.decode(text.as_bytes()).unwrap()
}

fn array<const N: usize>(vector: &Value, key: &str) -> [u8; N] {
    bytes(vector, key).try_into().unwrap()
}

fn number(vector: &Value, key: &str) -> u64 {
    vector[key].as_u64().unwrap_or_else(|| panic!("{key} of {vector}"))
}

fn identity(vector: &Value) -> Identity {
    let (value, port) = (vector["value"].as_str().unwrap(), number(vector, "port") as u16);
    match number(vector, "kind") {
        1 => Identity::name(value, port),
        _ => Identity::address(value.parse().unwrap(), port),
    }
}

/// The seeds give the same certificate as in the vector, and the same block if this crate can make such a
/// block.
#[test]
fn first_flights_are_signed_the_same() {
    let mut made = 0;
    for vector in vectors("first-flight") {
        let verifier = PrivateKey::from_seed(&array(&vector, "verifier_seed"));
        let client = PrivateKey::from_seed(&array(&vector, "client_seed"));
        assert_eq!(verifier.public().to_string(), vector["verifier_key"]);
        assert_eq!(client.public().to_string(), vector["client_key"]);
        let address: IpAddr = vector["address"].as_str().unwrap().parse().unwrap();
        let flags = CertificateFlags::from_u8(number(&vector, "flags") as u8).unwrap();
        let (from, lasts) = (number(&vector, "valid_from") as u32, number(&vector, "duration") as u32);
        let body = certify(&verifier, &client.public(), address, from, lasts, flags).unwrap();
        assert_eq!(HEXLOWER.encode(&body.to_bytes()), vector["certificate_body"]);
        assert!(is_certified(&body, &verifier.public(), address));

        let block = Block::parse(&bytes(&vector, "block")).unwrap();
        assert_eq!(block.request.address_tag, address_tag(address));
        let (input, signature) = (bytes(&vector, "request_input"), array(&vector, "request_signature"));
        assert!(client.public().verifies(&input, &signature));
        assert_eq!(client.sign(&input), signature);
        // This crate does not make padded or relayed requests here.
        if vector["relayed"] == true || number(&vector, "padding") > 0 {
            continue;
        }
        let passed = number(&vector, "requested_ms") - u64::from(from) * 1000;
        let certificate =
            ClientCertificate::new(body, verifier.public(), address, client, Instant::ZERO).unwrap();
        let again = certificate.request(
            if vector["encapsulation"] == "ip" { Encapsulation::Ip } else { Encapsulation::Udp },
            &identity(&vector["identity"]),
            &bytes(&vector, "data"),
            block.request.request_id,
            Instant::ZERO + Duration::from_millis(passed),
        );
        assert_eq!(HEXLOWER.encode(&again.to_bytes()), vector["block"]);
        made += 1;
    }
    assert_eq!(made, 3);
}

#[test]
fn identities_have_the_same_digests() {
    for vector in vectors("identity") {
        let identity = identity(&vector);
        assert_eq!(HEXLOWER.encode(identity.digest()), vector["digest"]);
        assert_eq!(HEXLOWER.encode(&identity.tag()), vector["tag"]);
    }
}

/// Single and batched verification follow the same rule.
#[test]
fn signatures_are_judged_the_same() {
    for vector in vectors("signature") {
        let (key, message, signature) =
            (array(&vector, "key"), bytes(&vector, "message"), array(&vector, "signature"));
        let public = PublicKey::from_bytes(key);
        assert_eq!(public.verifies(&message, &signature), vector["valid"].as_bool().unwrap());
        assert_eq!(public.is_sound(), vector["sound_key"].as_bool().unwrap());
        for seed in 0..8 {
            let mut batch = batch::Verifier::new();
            batch.queue((VerificationKeyBytes::from(key), Signature::from_bytes(&signature), &message));
            let other = PrivateKey::from_seed(&[9; 32]);
            let good = Signature::from_bytes(&other.sign(b"good"));
            batch.queue((VerificationKeyBytes::from(*other.public().as_bytes()), good, b"good"));
            let valid = batch.verify(ChaCha20Rng::from_seed([seed; 32])).is_ok();
            assert_eq!(valid, vector["valid"], "batch, seed {seed}");
        }
    }
}

/// The key to be certified signs a request to a verifier. For a renewal the old key signs it too.
#[test]
fn requests_to_verifiers_are_signed_the_same() {
    let path = format!("{}/../wire/vectors/message.json", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let seed = |name: &str| PrivateKey::from_seed(&array(&file["client_seeds"], name));
    let (mut requests, mut renewals) = (0, 0);
    for vector in vectors("message") {
        let Ok(Message::Request(request)) = Message::parse(&bytes(&vector, "message")) else { continue };
        let signed = request.signing_input(&array(&file, "verifier_key"));
        let key = if request.old.is_some() { seed("refresh") } else { seed("request") };
        assert_eq!(key.public().as_bytes(), &request.client_key);
        assert_eq!(key.sign(signed.as_slice()), request.signature);
        requests += 1;
        if let Some(old) = request.old {
            let key = PublicKey::from_bytes(old.certificate.client_key);
            assert!(key.verifies(signed.as_slice(), &old.signature));
            renewals += 1;
        }
    }
    assert_eq!((requests, renewals), (4, 1));
}
