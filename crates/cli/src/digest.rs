//! SHA-256 of a body, computed while it is read or written.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// Counts and hashes the data that it is given.
pub struct Sum {
    hash: Sha256,
    bytes: u64,
}

impl Sum {
    /// Starts without data.
    pub fn new() -> Self {
        Self { hash: Sha256::new(), bytes: 0 }
    }

    /// Adds the next part.
    pub fn update(&mut self, part: &[u8]) {
        self.hash.update(part);
        self.bytes += part.len() as u64;
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The hash in hexadecimal.
    pub fn hex(self) -> String {
        HEXLOWER.encode(&self.hash.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::Sum;

    /// FIPS 180-4's example "abc".
    #[test]
    fn known_answer() {
        let mut sum = Sum::new();
        sum.update(b"a");
        sum.update(b"bc");
        assert_eq!(sum.bytes(), 3);
        assert_eq!(sum.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
