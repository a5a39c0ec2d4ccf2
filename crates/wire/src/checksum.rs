//! The Internet checksum (RFC 1071).

use core::net::IpAddr;

/// A running one's complement sum.
///
/// Words are added in the machine's byte order and swapped once at the end: the sum of swapped words
/// is the swapped sum (RFC 1071 §2 (B)). An odd number of bytes so far is remembered, so data may be
/// added in pieces of any length.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    /// Native-endian sum, folded to less than 2³⁶ after every addition, so that it cannot overflow.
    sum: u64,
    /// An odd number of bytes was added: the next byte is the low half of a word.
    odd: bool,
}

impl Sum {
    /// The sum of no data.
    pub const EMPTY: Self = Self { sum: 0, odd: false };

    /// Adds bytes behind those added before.
    #[inline]
    pub fn add_bytes(&mut self, data: &[u8]) {
        self.append(sum_native(data), data.len() % 2 == 1);
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

    /// The checksum field's value. Over data that contain a right checksum it is zero.
    #[inline]
    #[must_use]
    pub fn finish(self) -> u16 {
        !u16::from_be(fold16(self.sum))
    }

    /// Whether the data, their checksum field included, are as they were sent.
    #[inline]
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.finish() == 0
    }

    #[inline]
    fn append(&mut self, sum: u64, odd: bool) {
        // At an odd offset the high and low bytes have changed places (RFC 1071 §2 (B)).
        let sum = if self.odd { u64::from(fold16(sum).swap_bytes()) } else { fold64(sum) };
        self.sum = fold64(self.sum) + sum;
        self.odd ^= odd;
    }
}

/// The sum of `data`.
#[inline]
#[must_use]
pub fn sum(data: &[u8]) -> Sum {
    Sum { sum: fold64(sum_native(data)), odd: data.len() % 2 == 1 }
}

/// The sum of 20 bytes, for headers: no loop, no vectors.
#[inline(always)]
pub(crate) fn sum_of(header: &[u8; 20]) -> Sum {
    let (words, _) = header.as_chunks::<4>();
    Sum { sum: fold64(words.iter().map(|w| u64::from(u32::from_ne_bytes(*w))).sum()), odd: false }
}

/// The sum of the pseudo-header of TCP, UDP and ICMPv6: of 12 bytes for IPv4 (RFC 9293 §3.1), of 40
/// for IPv6 (RFC 8200 §8.1). `len` is the length of the transport header and payload, bytes.
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

/// The sum of a word's halves: at most 2³³ − 2, and congruent modulo 2¹⁶ − 1.
#[inline]
const fn fold64(word: u64) -> u64 {
    (word & 0xffff_ffff) + (word >> 32)
}

#[inline]
const fn fold16(sum: u64) -> u16 {
    let sum = fold64(fold64(sum));
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Bytes that one round of the wide loop takes.
const BLOCK: usize = 64;

/// The sum of native-endian words; an odd last byte counts as the first of its word.
///
/// The lanes of the wide loop are 64 bits wide and take 32-bit halves, so no carry can be lost below
/// 2³² rounds, and the compiler turns them into vector registers.
#[inline]
fn sum_native(data: &[u8]) -> u64 {
    let mut low = [0u64; BLOCK / 8];
    let mut high = [0u64; BLOCK / 8];
    let (blocks, mut rest) = data.as_chunks::<BLOCK>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for ((low, high), word) in low.iter_mut().zip(&mut high).zip(words) {
            let word = u64::from_ne_bytes(*word);
            *low += word & 0xffff_ffff;
            *high += word >> 32;
        }
    }
    let mut sum = 0;
    if !blocks.is_empty() {
        sum = low.iter().sum::<u64>() + high.iter().sum::<u64>();
    }
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        sum += fold64(u64::from_ne_bytes(*word));
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<4>() {
        sum += u64::from(u32::from_ne_bytes(*word));
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<2>() {
        sum += u64::from(u16::from_ne_bytes(*word));
        rest = after;
    }
    if let Some(last) = rest.first() {
        sum += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    sum
}

#[cfg(test)]
mod tests;
