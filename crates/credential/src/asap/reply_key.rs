//! A key by which a client recognises the answer to its first flight, if it comes from a server that the
//! client never contacted (`docs/spec/dns-path.md`, section 5).

use core::fmt;
use core::net::SocketAddr;
use firstflight_wire::SeqNum;
use firstflight_wire::asap::{Status, mapped};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// A secret of the client and of the front that opened its seal. Zeroised when dropped, never printed.
#[derive(Clone)]
pub struct ReplyKey(Zeroizing<[u8; Self::LEN]>);

impl ReplyKey {
    /// Length, bytes.
    pub const LEN: usize = 16;

    /// The key of these bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    /// The bytes. They are the secret: use them only in the datagram from the front to the server.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; Self::LEN]> {
        self.0.clone()
    }

    fn code(&self, server: SocketAddr, isn: SeqNum, status: Status) -> Hmac<Sha256> {
        let mut input = [0; 23];
        // A client may see the server's IPv4 address through an IPv6 socket.
        input[..16].copy_from_slice(&mapped(server.ip().to_canonical()));
        input[16..18].copy_from_slice(&server.port().to_be_bytes());
        input[18..22].copy_from_slice(&isn.get().to_be_bytes());
        input[22] = status as u8;
        // Pad the key to a block of the hash: HMAC pads a shorter key with zeros (RFC 2104 §2).
        let mut block = Zeroizing::new([0; 64]);
        block[..Self::LEN].copy_from_slice(&*self.0);
        Hmac::<Sha256>::new((&*block).into()).chain_update(input)
    }

    /// The proof for a SYN-ACK that `server` (its address and UDP port) sends with this status and its own
    /// initial sequence number `isn`: [`Hint::Proof`](firstflight_wire::asap::Hint::Proof).
    #[must_use]
    pub fn proof(&self, server: SocketAddr, isn: SeqNum, status: Status) -> [u8; 8] {
        let code: [u8; 32] = self.code(server, isn, status).finalize().into_bytes().into();
        code.first_chunk().copied().unwrap_or_default()
    }

    /// Whether `proof` is the value of [`ReplyKey::proof`]. Compares in constant time.
    #[must_use]
    pub fn verifies(&self, server: SocketAddr, isn: SeqNum, status: Status, proof: &[u8; 8]) -> bool {
        self.code(server, isn, status).verify_truncated_left(proof).is_ok()
    }
}

impl fmt::Debug for ReplyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplyKey(..)")
    }
}

#[cfg(test)]
mod tests;
