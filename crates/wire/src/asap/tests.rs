//! Writes and reads every object, and checks the vector of the specification.

use super::*;
use crate::ParseError;
use crate::tcp::{OptionBytes, Options};
use alloc::vec::Vec;
use core::net::IpAddr;
use data_encoding::HEXLOWER;
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    HEXLOWER.decode(text.as_bytes()).unwrap()
}

const BLOCK: &str = "ff46110034750f988139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394\
6955b900080007087359cbe5314fe2560f1d9c40428932f7231598efdf3b1a7aebf1a0f8504d7c0b50fc63418c2e0992571a6d95\
4d4495fa7729b14a244d79566270b8cdf3423c0ed4e5b4dd5dcf019b76db92600001020304050607318108583b4108566f9141\
534bd5480f311760f44f616ef315efc301cd1fd34ebb33c0afbc49e61c96980e0b998bea91ff7538431c3b16c713343fda9a91bb0f";

const CERTIFICATE_INPUT: &str = "6669727374666c696768742041534150207631205043000000000000000000001108040\
08a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c8139770ea87d175f56a35466c34c7ecccb8d8a91\
b4ee37a25df60f5b8fc9b39400000000000000000000ffffc00002016955b90000000708";

const REQUEST_INPUT: &str = "6669727374666c696768742041534150207631205243000000000000000000000100040000\
000000000000000000ffffc0000201b4dd5dcf6dfb25c3e42a21b424ba4a203f2f81c3ffa749d0a56841d93dcf11a0000000c400\
0000126ec63b40bcbc26b71deda762dfd844f0c7f15410fd084e53085d3dcbc357675f019b76db9260000102030405060\
77b766b7a1a3c9918dca42cddbc53e1a866c27272091cbaacc826684b6d1f67de";

const ADDRESS: &str = "192.0.2.1";

#[test]
fn the_vectors_block() {
    let bytes = hex(BLOCK);
    assert_eq!(bytes.len(), BLOCK_LEN);
    let block = Block::parse(&bytes).unwrap();
    assert_eq!(block.certificate.valid_from, 1_767_225_600);
    assert_eq!(block.certificate.duration(), 1800);
    assert_eq!(block.certificate.ends(), 1_767_227_400);
    assert_eq!(block.certificate.flags.bits(), 8);
    assert_eq!(block.certificate.verifier.0, [0x34, 0x75, 0x0f, 0x98]);
    assert_eq!(block.request.requested_ms, 1_767_225_660_000);
    assert_eq!(block.request.request_id, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(block.to_bytes()[..], bytes[..]);
}

#[test]
fn the_vectors_certificate_input() {
    let block = Block::parse(&hex(BLOCK)).unwrap();
    let key = hex("8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c");
    let input = certificate_input(&block.certificate, &key.try_into().unwrap(), ADDRESS.parse().unwrap());
    assert_eq!(input[..], hex(CERTIFICATE_INPUT)[..]);
}

#[test]
fn the_vectors_request_input() {
    let block = Block::parse(&hex(BLOCK)).unwrap();
    let digest = |text| hex(text).try_into().unwrap();
    let input = RequestInput {
        encapsulation: Encapsulation::Ip,
        relayed: false,
        address: ADDRESS.parse().unwrap(),
        identity: digest("b4dd5dcf6dfb25c3e42a21b424ba4a203f2f81c3ffa749d0a56841d93dcf11a0"),
        block_len: BLOCK_LEN as u32,
        data_len: 18,
        data_digest: digest("6ec63b40bcbc26b71deda762dfd844f0c7f15410fd084e53085d3dcbc357675f"),
        requested_ms: block.request.requested_ms,
        request_id: block.request.request_id,
        certificate: digest("7b766b7a1a3c9918dca42cddbc53e1a866c27272091cbaacc826684b6d1f67de"),
    };
    assert_eq!(input.to_bytes()[..], hex(REQUEST_INPUT)[..]);
    let encapsulations = [(Encapsulation::Ip, true), (Encapsulation::Udp, false), (Encapsulation::Udp, true)];
    let numbers = encapsulations
        .map(|(encapsulation, relayed)| RequestInput { encapsulation, relayed, ..input }.to_bytes()[32]);
    assert_eq!(numbers, [0x81, 2, 0x82]);
}

#[test]
fn the_vectors_option() {
    let option = AsapOption::Block { long_reply: false, len: 196 };
    assert_eq!(OptionBytes::from(option).as_slice(), hex("fd08fa57110000c4"));
}

/// Any change of the magic number, the version, a reserved bit or the padding makes the block malformed.
#[test]
fn what_this_version_does_not_have_is_malformed() {
    let good = hex(BLOCK);
    for (at, bits) in [(0, 0xff), (1, 0xff), (2, 0xff), (3, 0xff), (44, 0b1110_0000)] {
        for bit in (0..8).map(|n| 1 << n).filter(|bit| bits & bit != 0) {
            let mut bad = good.clone();
            bad[at] ^= bit;
            assert!(matches!(Block::parse(&bad), Err(ParseError::Malformed(_))), "byte {at}, bit {bit}");
        }
    }
    let mut padded = good.clone();
    padded.extend([0; 20]);
    assert_eq!(Block::parse(&padded), Block::parse(&good));
    padded[BLOCK_LEN + 7] = 1;
    assert!(matches!(Block::parse(&padded), Err(ParseError::Malformed(_))));
    for len in 0..BLOCK_LEN {
        assert_eq!(Block::parse(&good[..len]), Err(ParseError::Truncated));
    }
}

#[test]
fn offers_of_other_forms_are_none() {
    for data in [
        &[][..],
        &[0x10, 0, 0],
        &[0x10, 0, 0, 0, 0],
        &[0x20, 0, 0, 0],
        &[0x10, 2, 0, 0],
        &[0x10, 0, 0, 1],
        &[0x11, 0, 0, 195],
        &[0x12, 0, 0, 0],
    ] {
        assert_eq!(AsapOption::parse(data), None, "{data:?}");
    }
    assert_eq!(AsapOption::parse(&[0x10, 1, 0, 0]), Some(AsapOption::Probe { long_reply: true }));
    assert_eq!(
        AsapOption::parse(&[0x11, 0, 0, 196]),
        Some(AsapOption::Block { long_reply: false, len: 196 })
    );
}

#[test]
fn statuses_keep_their_numbers() {
    for (number, status) in Status::ALL.iter().enumerate() {
        assert_eq!(*status as usize, number);
        assert_eq!(Status::from_u8(number as u8), Some(*status));
    }
    assert_eq!(Status::ALL.len(), 16);
    assert_eq!(Status::from_u8(16), None);
}

#[test]
fn flags_count_vantage_points_from_one() {
    assert_eq!(CertificateFlags::new(0, false, false), None);
    assert_eq!(CertificateFlags::new(9, false, false), None);
    let flags = CertificateFlags::new(3, true, false).unwrap();
    assert_eq!(flags.bits(), 0b0_1010);
    assert_eq!((flags.vantage(), flags.is_challenged(), flags.is_refreshed()), (3, true, false));
    assert_eq!(CertificateFlags::new(8, false, true).unwrap().bits(), 0b1_0111);
}

fn replies() -> impl Strategy<Value = Reply> {
    let status = (0..Status::ALL.len()).prop_map(|n| Status::ALL[n]);
    (status, any::<[u8; 2]>(), 0..5, any::<u32>(), any::<[u8; 4]>(), any::<[u8; 8]>()).prop_map(
        |(status, tag, hint, time, four, proof)| {
            let hint = match (hint, status) {
                (0, _) => Hint::None,
                (1, _) => Hint::Proof(proof),
                (_, Status::UnknownVerifier) if four != [0; 4] => Hint::Trusts(time, VerifierId(four)),
                (_, Status::AddressMismatch) if four != [0; 4] => Hint::Sees(time, four.into()),
                _ => Hint::Time(time),
            };
            Reply { status, tag, hint }
        },
    )
}

/// The option as the receiver of a SYN finds it.
fn found(bytes: &OptionBytes) -> Vec<u8> {
    Options::parse(bytes.as_slice(), true).asap().unwrap().to_vec()
}

proptest! {
    #[test]
    fn a_reply_comes_back(reply in replies()) {
        let bytes = OptionBytes::from(reply);
        prop_assert_eq!(Reply::parse(&found(&bytes)), Some(reply));
    }

    #[test]
    fn an_offer_comes_back(long_reply: bool, len in 196u16.., probe: bool) {
        let option = if probe { AsapOption::Probe { long_reply } } else { AsapOption::Block { long_reply, len } };
        let bytes = OptionBytes::from(option);
        prop_assert_eq!(bytes.len(), 8);
        prop_assert_eq!(AsapOption::parse(&found(&bytes)), Some(option));
    }

    #[test]
    fn any_option_is_read_or_refused(data: Vec<u8>) {
        let (_, _) = (AsapOption::parse(&data), Reply::parse(&data));
    }

    #[test]
    fn any_block_is_refused_or_comes_back(mut bytes in proptest::collection::vec(any::<u8>(), 0..260), good: bool) {
        if good {
            for (byte, set) in bytes.iter_mut().zip([0xff, 0x46, 0x11, 0]) { *byte = set; }
            if let Some(flags) = bytes.get_mut(44) { *flags &= 0x1f; }
            bytes.iter_mut().skip(BLOCK_LEN).for_each(|byte| *byte = 0);
        }
        match Block::parse(&bytes) {
            Ok(block) => prop_assert_eq!(&block.to_bytes()[..], &bytes[..BLOCK_LEN]),
            Err(_) => prop_assert!(!good || bytes.len() < BLOCK_LEN),
        }
    }

    #[test]
    fn inputs_differ_by_address(a: u32, b: u32) {
        prop_assume!(a != b);
        let block = Block::parse(&hex(BLOCK)).unwrap();
        let input = |ip: u32| certificate_input(&block.certificate, &[7; 32], IpAddr::V4(ip.into()));
        prop_assert_ne!(input(a), input(b));
    }
}
