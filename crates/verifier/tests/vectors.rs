//! Compares the challenges of verifiers with one key with the vectors of `docs/spec/asap.md`, which another implementation
//! made (`tools/asap-vectors`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use firstflight_credential::asap::PrivateKey;
use firstflight_verifier::{Answer, Config, Issuer, Verifier};
use firstflight_wire::asap::message::Message;
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use serde_json::Value;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

fn bytes(vector: &Value, key: &str) -> Vec<u8> {
    let text = vector[key].as_str().unwrap_or_else(|| panic!("{key} of {vector}"));
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn challenges_follow_from_the_key_and_the_hour() {
    let path = format!("{}/../wire/vectors/message.json", env!("CARGO_MANIFEST_DIR"));
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let first = &file["vectors"][0];
    assert_eq!(first["name"], "request without challenge");
    let request = bytes(first, "message");
    let address = file["address"].as_str().unwrap().parse().unwrap();
    let from = SocketAddr::new(address, file["port"].as_u64().unwrap().try_into().unwrap());
    let vectors = file["derived"].as_array().unwrap();
    assert!(vectors.len() >= 8);
    for vector in vectors {
        let seed = bytes(vector, "seed").try_into().unwrap();
        let issuer = Issuer::new(PrivateKey::from_seed(&seed));
        let config = Config::default().issuer(Some(issuer)).members(Some(NonZeroU16::MIN));
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        let mut verifier = Verifier::new(config, Instant::ZERO, &mut rng).unwrap();
        let unix_ms = vector["time"].as_u64().unwrap() * 1000 + 321;
        let clock = Clock { mono: Instant::from_secs(5), unix_ms, uncertainty: Duration::ZERO };
        let Some(Answer::Reply(answer)) = verifier.handle_datagram(&clock, from, &request, &mut rng) else {
            panic!("no answer: {vector}")
        };
        assert!(matches!(Message::parse(&answer), Ok(Message::Challenge(_))), "{vector}");
        assert_eq!(answer[16..40], bytes(vector, "challenge"), "{vector}");
    }
}
