//! Every length and overlap up to some steps, beside copies byte by byte.
extern crate std;

use super::*;
use std::vec::Vec;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

#[test]
fn copies_are_as_if_by_way_of_another_place() {
    // Up to five steps, and each way that two places overlap by.
    const MOST: usize = 5 * STEP + 20;
    for len in (0..=MOST).chain([1000, 4096, 4097]) {
        let span = 2 * len + 40;
        let distances: Vec<usize> = match len {
            0..=140 => (0..=len + 20).collect(),
            _ => [0, 1, 15, 16, 17, 63, 64, 65, 128, len - 1, len, len + 1].into(),
        };
        for distance in distances {
            for (from, to) in [(0, distance), (distance, 0), (3, 3 + distance), (5 + distance, 5)] {
                let mut memory = pattern(span);
                let mut wanted = memory.clone();
                wanted.copy_within(from..from + len, to);
                let at = memory.as_mut_ptr();
                // SAFETY: both places are within the memory: at most `5 + len + 20 + len` bytes of it are used.
                unsafe { copy(at.add(to), at.add(from), len) };
                assert!(memory == wanted, "{len} bytes from {from} to {to}");
            }
        }
    }
}

#[test]
fn nothing_beside_the_place_is_written() {
    for len in 0..=300 {
        let from = pattern(len);
        let mut to = std::vec![0xaa; len + 32];
        // SAFETY: the place has `len` bytes, and 16 on both sides.
        unsafe { copy(to.as_mut_ptr().add(16), from.as_ptr(), len) };
        assert!(to[..16].iter().chain(&to[16 + len..]).all(|byte| *byte == 0xaa), "{len}");
        assert_eq!(to[16..16 + len], from);
    }
}

#[test]
fn comparisons_find_the_first_difference() {
    for len in 0..=100 {
        let left = pattern(len);
        // SAFETY: both have `len` bytes.
        let compared = |right: &[u8]| unsafe { compare(left.as_ptr(), right.as_ptr(), len) };
        assert_eq!(compared(&left), Ordering::Equal);
        for first in 0..len {
            for change in [1_u8, 0x7f, 0x80, 0xff] {
                let mut right = left.clone();
                right[first] = right[first].wrapping_add(change);
                // What comes behind does not count.
                for byte in &mut right[first + 1..] {
                    *byte = byte.wrapping_sub(change);
                }
                assert_eq!(compared(&right), left.as_slice().cmp(right.as_slice()), "{first} of {len}");
            }
        }
    }
}
