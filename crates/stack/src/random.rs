//! Random numbers from one secret given at the start: SipHash-2-4 in counter mode.

use core::hash::Hasher;
use siphasher::sip::SipHasher24;
use zeroize::Zeroize;

/// Secrets and random numbers of one stack, all from the caller's 32 bytes.
pub(crate) struct Random {
    key: [u8; 16],
    counter: u64,
    /// The unused bytes of a random number for [`Random::next_byte`], and their number.
    spare: (u64, u8),
}

impl core::fmt::Debug for Random {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Random(secret)")
    }
}

impl Drop for Random {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl Random {
    /// A generator from 32 unpredictable bytes.
    #[must_use]
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        let mut key = [0; 16];
        for (half, out) in key.chunks_exact_mut(8).enumerate() {
            let mut hasher = SipHasher24::new_with_key(first_half(secret));
            hasher.write(&secret[16..]);
            hasher.write_u8(half as u8);
            out.copy_from_slice(&hasher.finish().to_le_bytes());
        }
        Self { key, counter: 0, spare: (0, 0) }
    }

    /// The next 64 bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(1);
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u64(self.counter);
        hasher.finish()
    }

    /// The next 8 bits, at an eighth of the work.
    pub(crate) fn next_byte(&mut self) -> u8 {
        if self.spare.1 == 0 {
            self.spare = (self.next_u64(), 8);
        }
        let byte = self.spare.0 as u8;
        self.spare = (self.spare.0 >> 8, self.spare.1 - 1);
        byte
    }

    /// 16 random bytes for an independent secret.
    pub(crate) fn secret(&mut self) -> [u8; 16] {
        let mut out = [0; 16];
        for half in out.chunks_exact_mut(8) {
            half.copy_from_slice(&self.next_u64().to_le_bytes());
        }
        out
    }
}

fn first_half(secret: &[u8; 32]) -> &[u8; 16] {
    secret.first_chunk().unwrap_or(&[0; 16])
}
