use super::{Sum, pseudo_header, sum, sum_by_words};
use alloc::vec::Vec;
use core::net::IpAddr;
use proptest::prelude::*;

/// RFC 1071 §1, word by word.
fn naive(data: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in data.chunks(2) {
        sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn rfc_1071_example() {
    // RFC 1071 §3: the sum is ddf2.
    assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).finish(), !0xddf2);
}

#[test]
fn extremes() {
    assert_eq!(sum(&[]).finish(), 0xffff);
    assert_eq!(sum(&[0xff; 65_535]).finish(), naive(&[0xff; 65_535]));
    assert_eq!(sum_by_words(&[0xff; 65_535]).finish(), naive(&[0xff; 65_535]));
    assert_eq!(sum_by_words(&[]).finish(), 0xffff);
    assert_eq!(sum(&[0; 1460]).finish(), 0xffff);
    let mut many = Sum::EMPTY;
    for _ in 0..100_000 {
        many = many.combine(sum(&[0xff; 64]));
    }
    assert_eq!(many.finish(), 0);
}

/// Checks every length around those at which the code path changes, at several offsets, with varied data and
/// with all ones, where carries run through whole words.
#[test]
fn every_length_at_every_offset() {
    let noise: Vec<u8> = (0..3000u32).map(|n| ((n * n) >> 3) as u8 | 0x80).collect();
    for data in [noise, alloc::vec![0xff; 3000]] {
        for (len, at) in
            (0..600).chain([1459, 1460, 1461, 2900]).flat_map(|len| (0..9).map(move |at| (len, at)))
        {
            let whole = &data[..at + len];
            let (before, bytes) = whole.split_at(at);
            assert_eq!(sum(bytes).finish(), naive(bytes), "{len} from {at}");
            assert_eq!(sum_by_words(bytes).finish(), naive(bytes), "{len} from {at} by words");
            let mut both = sum(before);
            both.add_bytes(bytes);
            assert_eq!(both.finish(), naive(whole), "{len} behind {at}");
        }
    }
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
#[test]
fn vectors_and_words_have_one_sum() {
    let data: Vec<u8> = (0..3000u32).map(|n| ((n * n) >> 3) as u8 | 0x80).collect();
    let (blocks, _) = data.as_chunks();
    assert_eq!(super::fold16(super::sum_halves(blocks)), super::fold16(super::sum_words(0, blocks)));
}

/// A carry out of each single word, and out of the sum of two blocks.
#[test]
fn every_carry_counts() {
    for at in 0..64 {
        let mut data = [0; 512];
        for (place, byte) in data.iter_mut().enumerate() {
            *byte = if place / 8 == at || place / 8 == (at + 1) % 64 { 0xff } else { 0x80 };
        }
        data[(8 * at + 7) % 512] = 0xfe;
        assert_eq!(sum_by_words(&data).finish(), naive(&data), "word {at}");
        assert_eq!(sum(&data).finish(), naive(&data), "word {at}");
    }
}

#[test]
fn ipv4_header() {
    let mut header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
        0xa8, 0x00, 0xc7,
    ];
    assert!(sum(&header).is_valid());
    header[19] ^= 1;
    assert!(!sum(&header).is_valid());
}

#[test]
fn pseudo_headers_are_their_bytes() {
    let (src, dst) = ([10, 0, 0, 1], [192, 0, 2, 255]);
    let mut bytes = Vec::new();
    bytes.extend(src);
    bytes.extend(dst);
    bytes.extend([0, 6, 0x05, 0xdc]);
    let got = pseudo_header(IpAddr::from(src), IpAddr::from(dst), 6, 1500);
    assert_eq!(got.finish(), naive(&bytes));

    let src: [u8; 16] = core::array::from_fn(|i| 0xf0 + i as u8);
    let dst: [u8; 16] = core::array::from_fn(|i| 7 * i as u8);
    let mut bytes = Vec::new();
    bytes.extend(src);
    bytes.extend(dst);
    bytes.extend([0, 1, 0x05, 0xdc, 0, 0, 0, 58]);
    let got = pseudo_header(IpAddr::from(src), IpAddr::from(dst), 58, 0x105dc);
    assert_eq!(got.finish(), naive(&bytes));
}

proptest! {
    #[test]
    fn as_the_naive_sum(data in proptest::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert_eq!(sum(&data).finish(), naive(&data));
        prop_assert_eq!(sum_by_words(&data).finish(), naive(&data));
    }

    #[test]
    fn in_pieces_of_any_length(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..700), 0..8),
    ) {
        let whole: Vec<u8> = pieces.concat();
        let (mut added, mut combined, mut by_words) = (Sum::EMPTY, Sum::EMPTY, Sum::EMPTY);
        for piece in &pieces {
            added.add_bytes(piece);
            combined = combined.combine(sum(piece));
            by_words = by_words.combine(sum_by_words(piece));
        }
        prop_assert_eq!(by_words.finish(), naive(&whole));
        prop_assert_eq!(added.finish(), naive(&whole));
        prop_assert_eq!(combined.finish(), naive(&whole));
    }

    #[test]
    fn fields_are_their_bytes(before in proptest::collection::vec(any::<u8>(), 0..5), a: u16, b: u32) {
        let mut fields = sum(&before);
        fields.add_u16(a);
        fields.add_u32(b);
        let mut bytes = before;
        bytes.extend(a.to_be_bytes());
        bytes.extend(b.to_be_bytes());
        prop_assert_eq!(fields.finish(), naive(&bytes));
    }
}
