//! What is in a flight: foreign ClientHellos, blocks, names, keys.

use super::{ATTACKER, Block, Did, Host, VICTIM, needs, whole};
use crate::bind::Bind;
use crate::commitment::is_taken;
use crate::defence::Defence;
use crate::fixtures::{BOTH, COMPLETE, NOW, Parts, hello, keys, name, rng};
use crate::flight::Flight;
use crate::keys::SealKey;
use crate::plain::{Inner, Rid};
use crate::record::{Entry, Record};
use crate::run::admission::BlockState;
use crate::seal::{OpenError, SealError, Target, seal};
use firstflight_credential::asap::Identity;

/// Anybody can seal: `hello` with any parts to `entry`.
fn sealed(hello: &[u8], parts: &Parts<'_>, entry: &Entry) -> Flight {
    let public_name = name(parts.public_name);
    let to = Target { entry, public_name: &public_name, port: parts.port };
    let Parts { rid, bind, t_ms, flags, request, .. } = *parts;
    seal(&Inner { rid, bind, t_ms, flags, hello, request }, &to, 1024, &mut rng(5)).unwrap()
}

/// CVE-2009-3555 again: the victim connects to the server with this ClientHello, and its Finished confirms a request of
/// the attacker.
#[test]
fn a_foreign_hello_with_a_request_of_the_attacker() {
    needs(Defence::Digest, || {
        let victim = Parts::new(b"GET /account", COMPLETE);
        let attacker = Parts::new(b"DELETE /account", COMPLETE);
        let mut host = Host::new();
        let Did::Waits(waiting, request) =
            host.connect(whole(&sealed(&victim.hello(), &attacker, &attacker.entry)), BlockState::None)
        else {
            return false;
        };
        host.finish(&waiting) && request == b"DELETE /account"
    });
}

/// An ordinary ClientHello of a client that does not seal.
#[test]
fn an_ordinary_hello_is_never_taken() {
    let parts = Parts::new(b"DELETE /", BOTH);
    for names in [vec![], vec![b"h2".to_vec()], vec![b"h2".to_vec(), b"http/1.1".to_vec()]] {
        let hello = hello(super::NAME, &names);
        let did = Host::new().connect(whole(&sealed(&hello, &parts, &parts.entry)), BlockState::None);
        assert!(matches!(did, Did::Rejected));
    }
}

/// The client believed a forged key. Its owner opens the flight and forwards the ClientHello in clear to the real
/// server, so that the client's later bytes become the first ones.
#[test]
fn a_hello_forwarded_in_clear_by_the_owner_of_a_forged_key() {
    let parts = Parts::new(b"POST", COMPLETE);
    let mut names = Vec::new();
    let _ = parts.with(|draft, parts| {
        names = draft.alpn().to_vec();
        let hello = hello(parts.server, draft.alpn());
        draft.seal(&hello, &name(parts.server), &parts.plan(hello.len()), &mut rng(1)).unwrap()
    });
    needs(Defence::ReservedNames, || Host::clear(&names));
    // A server that does not know flights ignores the names, or answers with an alert. The client looks as well.
    needs(Defence::Selection, || is_taken(None, b"http/1.1"));
    needs(Defence::Selection, || is_taken(Some(b"http/1.1"), b"http/1.1"));
}

/// The same, sealed again to the real key: the digest was made for the forged one.
#[test]
fn a_flight_to_a_forged_key_sealed_again_to_the_real_one() {
    needs(Defence::DigestCoversInfo, || {
        let forged =
            Entry::x25519(keys().record(NOW).unwrap().entries()[0].key_id(), &[7; 32], NOW as u32 + 60);
        let victim = Parts { entry: forged, ..Parts::new(b"GET", BOTH) };
        let again = sealed(&victim.hello(), &victim, &Parts::new(b"", BOTH).entry);
        Host::new().connect(whole(&again), BlockState::None).ran()
    });
}

/// Bytes that move from one field to another change the digest, as does every field. (There is no variant without a
/// defence: every field before the request has a fixed length.)
#[test]
fn different_parts_have_different_digests() {
    let base = Parts::new(b"GET", BOTH);
    let digest = |parts: &Parts<'_>| {
        let hello = parts.hello();
        *crate::Hello::parse(&hello).unwrap().digest
    };
    let others = [
        Parts { rid: Rid([8; 16]), ..base.clone() },
        Parts { bind: VICTIM.bind(), ..base.clone() },
        Parts { t_ms: base.t_ms + 1, ..base.clone() },
        Parts { flags: COMPLETE, ..base.clone() },
        Parts { request: b"GE", ..base.clone() },
        Parts { request: b"GET\0", ..base.clone() },
        Parts { port: 444, ..base.clone() },
        Parts { public_name: "www.example.net", ..base.clone() },
        Parts { entry: Entry::x25519(base.entry.key_id(), base.entry.key().unwrap(), 1), ..base.clone() },
    ];
    let mut all: Vec<_> = others.iter().map(digest).chain([digest(&base)]).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), others.len() + 1);
}

/// An eavesdropper puts the victim's ciphertext under a block of its own, for which the replay guard sees a new client.
#[test]
fn the_same_ciphertext_under_another_block() {
    let flight = Parts { bind: VICTIM.bind(), ..Parts::new(b"POST", COMPLETE) }.flight(&mut rng(1));
    needs(Defence::Bind, || Host::new().connect(whole(&flight), ATTACKER.accepted(100)).ran());
    // Also a ciphertext that came without a block.
    let flight = Parts::new(b"POST", COMPLETE).flight(&mut rng(1));
    needs(Defence::Bind, || Host::new().connect(whole(&flight), ATTACKER.accepted(100)).ran());
}

/// The victim's bind is public. The attacker's flight with it is under the victim's block if that does not sign `enc`.
#[test]
fn the_victims_bind_in_a_flight_of_the_attacker() {
    let flight = Parts { bind: VICTIM.bind(), ..Parts::new(b"POST evil", COMPLETE) }.flight(&mut rng(1));
    needs(Defence::SignedEnc, || Host::new().connect(whole(&flight), VICTIM.accepted(37)).ran());
    // Without the block it waits for a Finished of the attacker's own.
    assert!(matches!(Host::new().connect(whole(&flight), BlockState::None), Did::Waits(..)));
}

#[test]
fn a_flight_for_another_port() {
    needs(Defence::Port, || {
        let mut host = Host { port: 8443, ..Host::new() };
        host.connect(whole(&Parts::new(b"GET", BOTH).flight(&mut rng(1))), BlockState::None).ran()
    });
}

/// A record for X contains the key of Z. The client of X ends at Z, whose certificate for X would be the default one.
#[test]
fn a_record_for_x_with_the_key_of_z() {
    needs(Defence::Names, || {
        let parts = Parts { server: "x.example", ..Parts::new(b"GET", BOTH) };
        Host::new().connect(whole(&parts.flight(&mut rng(1))), BlockState::None).ran()
    });
}

/// The seal covers the port and not the address. The attacker leads the flight, by DNS or by routing, to the listener of
/// another site of the same operator, which has the same keys and not this name.
#[test]
fn a_flight_at_the_listener_of_another_site() {
    needs(Defence::Names, || {
        let mut other = Host { names: vec!["other.example"], ..Host::new() };
        other.connect(whole(&Parts::new(b"GET", BOTH).flight(&mut rng(1))), BlockState::None).ran()
    });
}

/// A block for one server of the operator, and a ClientHello for another one.
#[test]
fn a_block_for_another_name() {
    needs(Defence::Names, || {
        let other = Bind::new(&VICTIM.client_key, &VICTIM.request_id, &Identity::name("b.example", 443));
        let flight = Parts { bind: other, ..Parts::new(b"POST", COMPLETE) }.flight(&mut rng(1));
        let identity = Identity::name("b.example", 443);
        Host::new()
            .connect(whole(&flight), BlockState::Accepted { bind: other, identity, signed_len: 99 })
            .ran()
    });
}

/// Followers that are cut or changed: the tag fails. The request is lost, and nothing runs.
#[test]
fn followers_cut_or_changed() {
    let flight = Parts { bind: VICTIM.bind(), ..Parts::new(&[b'x'; 2000], COMPLETE) }.flight(&mut rng(1));
    let bytes = whole(&flight);
    let mut host = Host::new();
    for cut in [1, 37, 38, 1000, bytes.len() - 1] {
        assert!(matches!(host.connect(&bytes[..cut], VICTIM.accepted(1000)), Did::Closed), "waits for more");
        let mut changed = bytes.to_vec();
        changed[cut..].fill(0);
        assert!(!host.connect(&changed, VICTIM.accepted(1000)).ran());
    }
    assert!(host.table.is_empty());
    assert!(host.connect(bytes, VICTIM.accepted(1000)).ran());
}

/// A key, or an enc, of low order: the shared secret would be zero, and anybody could open the flight. (There is no variant
/// without the defence, which is HPKE's own.)
#[test]
fn a_key_or_an_enc_of_low_order() {
    let low = [[0; 32], {
        let mut one = [0; 32];
        one[0] = 1;
        one
    }];
    for point in low {
        let parts = Parts::new(b"GET", BOTH);
        let (hello, public) = (parts.hello(), name(super::NAME));
        let entry = Entry::x25519(parts.entry.key_id(), &point, parts.entry.not_after());
        let to = Target { entry: &entry, public_name: &public, port: 443 };
        let Parts { rid, bind, t_ms, flags, request, .. } = parts;
        let inner = Inner { rid, bind, t_ms, flags, hello: &hello, request };
        assert_eq!(seal(&inner, &to, 1024, &mut rng(1)).unwrap_err(), SealError::BadKey);
        let mut bytes = whole(&Parts::new(b"GET", BOTH).flight(&mut rng(1))).to_vec();
        bytes[6..38].copy_from_slice(&point);
        let flight = Flight::parse(&bytes).unwrap();
        assert_eq!(keys().open(&flight, 443, NOW).unwrap_err(), OpenError::Forged);
    }
}

#[test]
fn padding_carries_nothing() {
    needs(Defence::Padding, || {
        let parts = Parts::new(b"GET", BOTH);
        let hello = parts.hello();
        let inner = Inner {
            rid: parts.rid,
            bind: parts.bind,
            t_ms: parts.t_ms,
            flags: BOTH,
            hello: &hello,
            request: b"GET",
        };
        let mut plain = inner.emit(inner.len() + 8).unwrap().to_vec();
        *plain.last_mut().unwrap() = 1;
        Inner::parse(&plain).is_ok()
    });
}

/// An attacker publishes an old key that was stolen, or a key that is valid for years.
#[test]
fn a_key_that_is_over_or_lasts_too_long() {
    for not_after in [NOW - 1, NOW + 48 * 3600 + 1] {
        needs(Defence::NotAfter, || {
            let key = SealKey::from_bytes(&[8; 32]).unwrap().public();
            let entry = Entry::x25519(std::num::NonZeroU8::MIN, &key, not_after as u32);
            Record::new(vec![entry], name(super::NAME)).unwrap().usable(NOW).is_some()
        });
    }
}

/// A block accepted for the right client is what makes a request run that is not replayable.
#[test]
fn an_honest_request_under_a_block_runs() {
    let block: Block = VICTIM;
    let flight = Parts { bind: block.bind(), ..Parts::new(b"POST", COMPLETE) }.flight(&mut rng(1));
    assert!(Host::new().connect(whole(&flight), block.accepted(38)).ran());
}
