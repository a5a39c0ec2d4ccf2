//! The Internet checksum (RFC 1071).

use core::net::IpAddr;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
use fearless_simd::{Level, Simd};

/// A running one's complement sum.
///
/// Words are added in the machine's byte order, and the result is swapped once at the end: the sum of swapped
/// words is the swapped sum (RFC 1071 §2 (B)). The sum remembers an odd number of bytes, so data may be added
/// in pieces of any length.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    /// Native-endian sum modulo 2⁶⁴ − 1; 2¹⁶ − 1 divides this modulus.
    sum: u64,
    /// An odd number of bytes was added, so the next byte is the low half of a word.
    odd: bool,
}

impl Sum {
    /// The sum of no data.
    pub const EMPTY: Self = Self { sum: 0, odd: false };

    /// Adds bytes behind those added before.
    #[inline]
    pub fn add_bytes(&mut self, data: &[u8]) {
        // At an odd offset the high and the low byte are swapped (RFC 1071 §2 (B)).
        let turned = if self.odd { 8 } else { 0 };
        self.sum = sum_onto(self.sum.rotate_right(turned), data).rotate_left(turned);
        self.odd ^= data.len() % 2 == 1;
    }

    /// Adds a 16-bit field in network byte order.
    #[inline]
    pub fn add_u16(&mut self, value: u16) {
        self.append(u64::from(value.to_be()), false);
    }

    /// Adds a 32-bit field in network byte order.
    #[inline]
    pub fn add_u32(&mut self, value: u32) {
        self.append(u64::from(value.to_be()), false);
    }

    /// The sum of the data of `self` followed by the data of `other`.
    #[inline]
    #[must_use]
    pub fn combine(mut self, other: Self) -> Self {
        self.append(other.sum, other.odd);
        self
    }

    /// The value for the checksum field. Over data that contains a correct checksum it is zero.
    #[inline]
    #[must_use]
    pub fn finish(self) -> u16 {
        !u16::from_be(fold16(self.sum))
    }

    /// Whether the data, including its checksum field, has a correct checksum.
    #[inline]
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.finish() == 0
    }

    #[inline]
    fn append(&mut self, sum: u64, odd: bool) {
        // At an odd offset the bytes are swapped, as in `add_bytes`.
        let sum = if self.odd { sum.rotate_left(8) } else { sum };
        self.sum = plus(self.sum, sum);
        self.odd ^= odd;
    }
}

/// The sum of `data`.
#[inline]
#[must_use]
pub fn sum(data: &[u8]) -> Sum {
    Sum { sum: sum_onto(0, data), odd: data.len() % 2 == 1 }
}

/// The same as [`sum`], by words of 64 bits, for any processor: what is used where the feature `std` does not find vectors of
/// 32 bytes. It is public to be measured beside those (`examples/checksum.rs`).
#[must_use]
pub fn sum_by_words(data: &[u8]) -> Sum {
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    Sum { sum: sum_rest(sum_pairs(0, blocks), data, rest), odd: data.len() % 2 == 1 }
}

/// The sum of five native-endian words, for headers, without loops, vectors or carries.
#[inline]
pub(crate) fn sum_of(words: [u32; 5]) -> Sum {
    Sum { sum: words.iter().map(|word| u64::from(*word)).sum(), odd: false }
}

/// The sum of the pseudo-header of TCP, UDP and ICMPv6: 12 bytes for IPv4 (RFC 9293 §3.1), 40 bytes for IPv6
/// (RFC 8200 §8.1). `len` is the length of the transport header and the payload, bytes.
#[inline(always)]
#[must_use]
pub fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: u8, len: u32) -> Sum {
    let mut sum = address(src) + address(dst);
    sum += u64::from(u16::from(protocol).to_be()) + u64::from(len.to_be());
    Sum { sum, odd: false }
}

#[inline]
fn address(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => u64::from(u32::from_ne_bytes(ip.octets())),
        IpAddr::V6(ip) => {
            let bits = u128::from_ne_bytes(ip.octets());
            fold64(bits as u64) + fold64((bits >> 64) as u64)
        }
    }
}

/// The sum of a word's halves. It is at most 2³³ − 2 and congruent to the word modulo 2¹⁶ − 1.
#[inline]
const fn fold64(word: u64) -> u64 {
    (word & 0xffff_ffff) + (word >> 32)
}

/// The sum modulo 2⁶⁴ − 1: the carry is added again.
#[inline]
const fn plus(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    // With a carry the sum is at most 2⁶⁴ − 2.
    sum + carry as u64
}

/// `sum` modulo 2¹⁶ − 1. Adding a number to itself with its halves exchanged puts the sum of the halves,
/// including the carry, into the upper half.
#[inline]
pub(crate) const fn fold16(sum: u64) -> u16 {
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Number of bytes for each round of a loop.
const BLOCK: usize = 64;

/// From this number of bytes on, asking the processor for vectors of 32 bytes is worth its cost, and so is a second chain of
/// carries.
const LONG: usize = 384;

/// Adds the native-endian words of `data` to `sum`. An odd last byte counts as the first byte of its word.
#[inline(never)]
fn sum_onto(sum: u64, data: &[u8]) -> u64 {
    // Fast path for a TCP header with timestamps: half of all segments are only that.
    if let Ok(header) = <[u8; 32]>::try_from(data) {
        return sum_words(sum, &[header]);
    }
    if data.len() >= LONG {
        return sum_long(sum, data);
    }
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    sum_rest(sum_words(sum, blocks), data, rest)
}

/// Adds words of 64 bits. Inside a block, the carry of one word is added with the next.
#[inline(always)]
fn sum_words<const LEN: usize>(mut sum: u64, blocks: &[[u8; LEN]]) -> u64 {
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        let mut carry = false;
        for word in words {
            (sum, carry) = sum.carrying_add(u64::from_ne_bytes(*word), carry);
        }
        // After every word, sum and carry together are at most 2⁶⁴ − 1.
        sum += u64::from(carry);
    }
    sum
}

/// Adds `rest`, the last bytes of `data`, which are fewer than a block, to `sum`.
#[inline]
fn sum_rest(mut sum: u64, data: &[u8], mut rest: &[u8]) -> u64 {
    if let Some((words, after)) = rest.split_first_chunk::<32>() {
        (sum, rest) = (sum_words(sum, &[*words]), after);
    }
    if let Some((words, after)) = rest.split_first_chunk::<16>() {
        (sum, rest) = (sum_words(sum, &[*words]), after);
    }
    if let Some((word, after)) = rest.split_first_chunk::<8>() {
        (sum, rest) = (plus(sum, u64::from_ne_bytes(*word)), after);
    }
    match data.last_chunk::<8>() {
        _ if rest.is_empty() => sum,
        // The last bytes are the beginning of a word that continues with zeros.
        Some(last) => {
            let others = 8 * (8 - rest.len() as u32 % 8);
            plus(sum, (u64::from_le_bytes(*last) >> others).to_le())
        }
        None => sum_few(sum, rest),
    }
}

/// Adds fewer than eight bytes, with nothing before them in `data`.
#[inline(never)]
fn sum_few(sum: u64, data: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (place, byte) in word.iter_mut().zip(data) {
        *place = *byte;
    }
    plus(sum, u64::from_ne_bytes(word))
}

#[inline(never)]
fn sum_long(sum: u64, data: &[u8]) -> u64 {
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    sum_blocks(sum_rest(sum, data, rest), blocks)
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
#[inline]
fn sum_blocks(sum: u64, blocks: &[[u8; BLOCK]]) -> u64 {
    match Level::new().as_avx2() {
        Some(avx2) => plus(
            sum,
            avx2.vectorize(
                #[inline(always)]
                || sum_halves(blocks),
            ),
        ),
        None => sum_pairs(sum, blocks),
    }
}

#[cfg(not(all(feature = "std", target_arch = "x86_64")))]
#[inline]
fn sum_blocks(sum: u64, blocks: &[[u8; BLOCK]]) -> u64 {
    sum_pairs(sum, blocks)
}

/// Adds words of 64 bits. Two blocks at a time have a chain of carries each, and the processor follows both at once.
#[inline]
fn sum_pairs(mut sum: u64, blocks: &[[u8; BLOCK]]) -> u64 {
    let (pairs, rest) = blocks.as_chunks::<2>();
    for [one, other] in pairs {
        let (one, other) =
            (sum_words(0, core::slice::from_ref(one)), sum_words(0, core::slice::from_ref(other)));
        sum = plus(sum, plus(one, other));
    }
    sum_words(sum, rest)
}

/// Sums words of 64 bits modulo 2⁶⁴, and beside them the upper halves. The sum of the upper halves shows which
/// part of the first sum came from the lower halves. No carry is needed, so the compiler may use vectors, and a
/// word costs two additions and a shift.
#[cfg(all(feature = "std", target_arch = "x86_64"))]
#[inline]
fn sum_halves(blocks: &[[u8; BLOCK]]) -> u64 {
    let (words, _) = blocks.as_flattened().as_chunks::<8>();
    let (mut wrapped, mut upper) = (0u64, 0u64);
    for word in words {
        let word = u64::from_ne_bytes(*word);
        wrapped = wrapped.wrapping_add(word);
        // No overflow below 2³² words.
        upper = upper.wrapping_add(word >> 32);
    }
    let lower = wrapped.wrapping_sub(upper << 32);
    // 2³² equals 1 modulo 2¹⁶ − 1.
    lower + upper
}

#[cfg(test)]
mod tests;
