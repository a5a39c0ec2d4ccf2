//! Writes and reads every message. No bytes make the reader panic, and it accepts only what the writer writes.

use super::*;
use crate::ParseError;
use crate::asap::{CertificateFlags, VerifierId, context};
use alloc::vec::Vec;
use proptest::prelude::*;

/// A certificate whose verifier id, key and signature consist of this byte.
fn body(byte: u8) -> CertificateBody {
    let flags = CertificateFlags::new(3, true, true).unwrap();
    CertificateBody::new(VerifierId([byte; 4]), [byte; 32], 1_767_225_600, 1800, flags, [byte; 64]).unwrap()
}

fn challenges() -> impl Strategy<Value = Challenge> {
    (1u8.., any::<u32>(), any::<[u8; 16]>()).prop_map(|(key, time, mac)| Challenge { key, time, mac })
}

fn token_lists() -> impl Strategy<Value = Tokens> {
    proptest::collection::btree_map(1u16.., (any::<u8>(), any::<u32>(), any::<[u8; 16]>()), 0..=Tokens::MAX)
        .prop_map(|map| {
            let mut tokens = Tokens::NONE;
            for (number, (key, time, mac)) in map {
                let vantage = VantageId::new(number).unwrap();
                assert!(tokens.push(Token { vantage, key, time, mac }));
            }
            tokens
        })
}

fn addresses() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        (any::<[u8; 4]>(), any::<u16>()).prop_map(SocketAddr::from),
        (any::<u128>(), any::<u16>())
            .prop_map(|(ip, port)| { SocketAddr::new(IpAddr::V6((ip | 1 << 127).into()), port) }),
    ]
}

fn requests() -> impl Strategy<Value = Request> {
    (
        any::<[u8; 8]>(),
        any::<[u8; 32]>(),
        any::<u32>(),
        proptest::option::of(challenges()),
        token_lists(),
        proptest::option::of(any::<u8>()),
        any::<bool>(),
        any::<u8>(),
    )
        .prop_map(|(id, key, wished, challenge, tokens, old, padded, byte)| {
            let old = old.map(body);
            let transaction = TransactionId(id);
            let mut request = Request::new(transaction, key, wished, challenge, tokens, old, padded);
            request.signature = [byte; 64];
            if let Some(old) = &mut request.old {
                old.signature = [byte ^ 0xff; 64];
            }
            request
        })
}

fn messages() -> impl Strategy<Value = Message> {
    let id = || any::<[u8; 8]>().prop_map(TransactionId);
    prop_oneof![
        requests().prop_map(Message::Request),
        (id(), any::<[u8; 32]>(), proptest::option::of(challenges()), any::<bool>()).prop_map(
            |(id, key, challenge, padded)| {
                Message::VantageRequest(VantageRequest::new(id, key, challenge, padded))
            }
        ),
        (id(), proptest::option::of(challenges()), any::<[u8; 8]>()).prop_map(|(id, challenge, nonce)| {
            Message::ProbeRequest(ProbeRequest::new(id, challenge, nonce))
        }),
        (id(), any::<[u8; 8]>())
            .prop_map(|(transaction, nonce)| Message::Probe(Probe { transaction, nonce })),
        (id(), challenges(), addresses(), any::<u32>()).prop_map(|(transaction, challenge, seen, time)| {
            Message::Challenge(ChallengeMessage { transaction, challenge, seen, time })
        }),
        (id(), addresses(), any::<u8>()).prop_map(|(transaction, seen, byte)| {
            Message::Certificate(CertificateMessage { transaction, seen, certificate: body(byte) })
        }),
        (id(), 0..Reason::ALL.len(), 1u16.., any::<u32>()).prop_map(
            |(transaction, reason, vantage, retry_after)| {
                let reason = Reason::ALL[reason];
                let vantage = if reason.is_about_a_token() { VantageId::new(vantage) } else { None };
                Message::Refused(Refused { transaction, reason, vantage, retry_after })
            }
        ),
        (id(), token_lists()).prop_map(|(transaction, tokens)| {
            let plain = Token { vantage: VantageId::new(1).unwrap(), key: 0, time: 0, mac: [0; 16] };
            let token = tokens.iter().next().copied().unwrap_or(plain);
            Message::Token(TokenMessage { transaction, token })
        }),
    ]
}

proptest! {
    #[test]
    fn a_message_comes_back(message in messages()) {
        let bytes = message.to_bytes();
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
        prop_assert_eq!(usize::from(u16::from_be_bytes([bytes[4], bytes[5]])), bytes.len());
    }

    /// If the reader accepts changed bytes, writing the message gives exactly these bytes: it ignores none of
    /// them.
    #[test]
    fn a_changed_message_is_refused_or_another(message in messages(), at: prop::sample::Index, change in 1u8..) {
        let mut bytes = message.to_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        if let Ok(other) = Message::parse(&bytes) {
            prop_assert_ne!(other, message);
            prop_assert_eq!(&other.to_bytes()[..], &bytes[..]);
        }
    }

    #[test]
    fn a_cut_message_is_refused(message in messages(), at: prop::sample::Index) {
        let bytes = message.to_bytes();
        prop_assert!(Message::parse(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes: Vec<u8>, kind in 0u8..9, good: bool) {
        if good {
            bytes.resize(bytes.len().max(MESSAGE_HEADER_LEN), 0);
            let len = (bytes.len() as u16).to_be_bytes();
            bytes[..8].copy_from_slice(&[0xff, 0x56, 0x11, kind, len[0], len[1], 0, 0]);
        }
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert_eq!(&message.to_bytes()[..], &bytes[..]);
        }
    }

    /// The signed input contains everything in front of the first signature, and no part of the signatures.
    #[test]
    fn what_is_signed_is_what_stands_in_front_of_the_signatures(request in requests(), key: [u8; 32]) {
        let input = request.signing_input(&key);
        let bytes = request.to_bytes();
        let signed = request.length() - if request.old.is_some() { 128 } else { 64 };
        prop_assert_eq!(&input.as_slice()[..32], &context("firstflight ASAP v1 VREQ")[..]);
        prop_assert_eq!(&input.as_slice()[32..64], &key[..]);
        prop_assert_eq!(&input.as_slice()[64..], &bytes[..signed]);
        prop_assert_eq!(&bytes[signed..signed + 64], &request.signature[..]);
    }
}

fn id() -> TransactionId {
    TransactionId([1, 2, 3, 4, 5, 6, 7, 8])
}

/// Checks the lengths and offsets of the specification.
#[test]
fn lengths_and_places() {
    let plain = Request::new(id(), [7; 32], 0x0102_0304, None, Tokens::NONE, None, true);
    let bytes = plain.to_bytes();
    assert_eq!(bytes.len(), REQUEST_MIN_UDP);
    assert_eq!(bytes[..16], [0xff, 0x56, 0x11, 1, 1, 64, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bytes[16..48], [7; 32]);
    assert_eq!(bytes[48..56], [1, 2, 3, 4, 0, 0, 0, 0]);
    assert!(bytes[56..].iter().all(|byte| *byte == 0));

    let mut tokens = Tokens::NONE;
    for number in 1..=7 {
        let vantage = VantageId::new(number).unwrap();
        assert!(tokens.push(Token { vantage, key: 1, time: 2, mac: [3; 16] }));
    }
    let more = Token { vantage: VantageId::new(8).unwrap(), key: 1, time: 2, mac: [3; 16] };
    assert!(!tokens.push(more));
    let longest = Request::new(id(), [7; 32], 1, None, tokens, Some(body(1)), true);
    assert_eq!(longest.to_bytes().len(), 485);
    assert_eq!(Request::new(id(), [7; 32], 1, None, Tokens::NONE, None, false).to_bytes().len(), 144);
    assert_eq!(VantageRequest::new(id(), [7; 32], None, true).to_bytes().len(), REQUEST_MIN_UDP);

    let seen: SocketAddr = "192.0.2.1:4433".parse().unwrap();
    let certificate = CertificateMessage { transaction: id(), seen, certificate: body(1) }.to_bytes();
    assert_eq!(certificate.len(), 145);
    assert_eq!(certificate[16..20], [4, 0, 0x11, 0x51]);
    assert_eq!(certificate[20..36], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
    let vantage = VantageId::new(258);
    let refused =
        Refused { transaction: id(), reason: Reason::TokenWrong, vantage, retry_after: 5 }.to_bytes();
    assert_eq!(refused[16..], [10, 0, 1, 2, 0, 0, 0, 5]);
}

/// A message with an extra part or of an unknown kind is malformed.
#[test]
fn what_this_version_does_not_have_is_malformed() {
    let token = Token { vantage: VantageId::new(1).unwrap(), key: 1, time: 2, mac: [3; 16] };
    let good = TokenMessage { transaction: id(), token }.to_bytes().to_vec();
    for (at, value) in [
        (0, 0),
        (1, 0x46),
        (2, 0x12),
        (2, 0x21),
        (3, 0),
        (3, 7),
        (3, 8),
        (5, 41),
        (6, 1),
        (7, 1),
        (17, 0),
        (19, 1),
    ] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(matches!(Message::parse(&bad), Err(ParseError::Malformed(_))), "byte {at} is {value}");
    }
    let mut long = good.clone();
    long.push(0);
    long[5] = 41;
    assert_eq!(Message::parse(&long), Err(ParseError::Malformed("length of a verifier message")));
}

#[test]
fn tokens_stand_in_order_and_once() {
    let token = |number| Token { vantage: VantageId::new(number).unwrap(), key: 1, time: 2, mac: [3; 16] };
    let mut tokens = Tokens::NONE;
    assert!(tokens.is_empty());
    assert!(tokens.push(token(3)));
    assert!(!tokens.push(token(3)));
    assert!(!tokens.push(token(2)));
    assert!(tokens.push(token(9)));
    assert_eq!(tokens.len(), 2);
    assert_eq!(tokens.get(VantageId::new(9).unwrap()), Some(&token(9)));
    assert_eq!(tokens.get(VantageId::new(4).unwrap()), None);
}

#[test]
fn reasons_keep_their_numbers() {
    for (number, reason) in (1..).zip(Reason::ALL) {
        assert_eq!(*reason as u8, number);
        assert_eq!(Reason::from_u8(number), Some(*reason));
    }
    assert_eq!(Reason::from_u8(0), None);
    assert_eq!(Reason::from_u8(15), None);
}

/// Every request that a client sends in a datagram is for a verifier. No other message is, no request for TCP, and none with
/// another beginning or length.
#[test]
fn datagrams_for_a_verifier_are_told_from_others() {
    let request = VantageRequest::new(id(), [7; 32], None, true).to_bytes();
    assert!(is_for_verifier(&request));
    assert!(is_for_verifier(&ProbeRequest::new(id(), None, [1; 8]).to_bytes()));
    assert!(!is_for_verifier(&VantageRequest::new(id(), [7; 32], None, false).to_bytes()));
    for at in 0..6 {
        for bit in 0..8 {
            let mut other = request.to_vec();
            other[at] ^= 1 << bit;
            // Types 1 and 7 differ from type 5 in one bit each.
            let another_type = at == 3 && [1, 7].contains(&other[3]);
            assert_eq!(is_for_verifier(&other), another_type, "byte {at}, bit {bit}");
        }
    }
    for len in [0, 1, 5, 6, request.len() - 1] {
        assert!(!is_for_verifier(&request[..len]), "{len}");
    }
    let mut longer = request.to_vec();
    longer.push(0);
    assert!(!is_for_verifier(&longer));
    // As long as it says, but longer than a message.
    let mut longest = request.to_vec();
    longest.resize(MESSAGE_MAX + 1, 0);
    longest[4..6].copy_from_slice(&(MESSAGE_MAX as u16 + 1).to_be_bytes());
    assert!(!is_for_verifier(&longest));
    for kind in [0, 2, 3, 4, 6, 8, 9] {
        let mut other = request.to_vec();
        other[3] = kind;
        assert!(!is_for_verifier(&other), "type {kind}");
    }
}
