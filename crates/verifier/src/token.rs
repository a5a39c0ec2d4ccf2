//! Vantage tokens. With a token, which the client carries, a vantage point confirms that it has seen the
//! client at its address.
//!
//! Each vantage point sends its token to the client's address itself. So an attacker who wants a certificate
//! for an address must see the packets that all of them send there.

use crate::mac::MacKey;
use firstflight_wire::asap::message::{Reason, Token, Tokens, VantageId};
use rand_core::CryptoRng;
use std::net::IpAddr;

/// How long a token is valid, seconds.
pub const TOKEN_LASTS: u32 = 60;
/// How far a vantage point's clock may be ahead of the issuer's, seconds.
const TOKEN_AHEAD: u32 = 5;

/// The secret that only a vantage point and the issuing verifier share. Its number distinguishes it from the
/// previous one during a replacement.
#[derive(Debug, Clone)]
pub struct TokenKey {
    number: u8,
    key: MacKey,
}

impl TokenKey {
    /// The key with this number.
    #[must_use]
    pub fn new(number: u8, bytes: [u8; 32]) -> Self {
        Self { number, key: MacKey::new(bytes) }
    }

    /// A new key.
    #[must_use]
    pub fn generate(number: u8, rng: &mut impl CryptoRng) -> Self {
        Self { number, key: MacKey::generate(rng) }
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u8 {
        self.number
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        self.key.bytes()
    }

    /// The token of vantage point `vantage` for the client with key `key` at address `client`, made at `time`
    /// (Unix seconds).
    #[must_use]
    pub fn token(&self, vantage: VantageId, time: u32, client: IpAddr, key: &[u8; 32]) -> Token {
        let mac = self.key.code(&Token::input(vantage, time, client, key));
        Token { vantage, key: self.number, time, mac }
    }

    fn made(&self, token: &Token, client: IpAddr, key: &[u8; 32]) -> bool {
        let input = Token::input(token.vantage, token.time, client, key);
        token.key == self.number && self.key.verifies(&input, &token.mac)
    }
}

/// A vantage point as its issuer knows it.
#[derive(Debug, Clone)]
pub struct GroupMember {
    /// Its number.
    pub id: VantageId,
    /// A name for people.
    pub name: String,
    /// The keys. The vantage point may use any of them.
    pub keys: Vec<TokenKey>,
}

/// Checks that `tokens` has a valid one of every member, for this client at this address. The error names the
/// vantage point whose token fails.
pub(crate) fn check(
    group: &[GroupMember],
    tokens: &Tokens,
    client: IpAddr,
    key: &[u8; 32],
    now: u32,
) -> Result<(), (Reason, VantageId)> {
    for token in tokens.iter() {
        if !group.iter().any(|member| member.id == token.vantage) {
            return Err((Reason::TokenUnknown, token.vantage));
        }
    }
    for member in group {
        let fail = |reason| Err((reason, member.id));
        let Some(token) = tokens.get(member.id) else { return fail(Reason::TokenMissing) };
        if !member.keys.iter().any(|known| known.made(token, client, key)) {
            return fail(Reason::TokenWrong);
        }
        let good = token.time.saturating_sub(TOKEN_AHEAD)..=token.time.saturating_add(TOKEN_LASTS);
        if !good.contains(&now) {
            return fail(Reason::TokenExpired);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
