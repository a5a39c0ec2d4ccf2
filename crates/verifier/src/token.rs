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
mod tests {
    use super::*;

    const NOW: u32 = 1_767_225_600;
    const CLIENT: [u8; 32] = [9; 32];

    fn id(number: u16) -> VantageId {
        VantageId::new(number).unwrap()
    }

    fn group() -> Vec<GroupMember> {
        let member = |number: u8| GroupMember {
            id: id(number.into()),
            name: format!("v{number}"),
            keys: vec![TokenKey::new(1, [number; 32]), TokenKey::new(2, [number + 100; 32])],
        };
        vec![member(1), member(2), member(3)]
    }

    fn address() -> IpAddr {
        "192.0.2.1".parse().unwrap()
    }

    /// The tokens of all members, changed by `change`.
    fn tokens(change: impl Fn(&mut Token)) -> Tokens {
        let mut all = Tokens::NONE;
        for member in group() {
            let mut token = member.keys[0].token(member.id, NOW, address(), &CLIENT);
            change(&mut token);
            assert!(all.push(token));
        }
        all
    }

    #[test]
    fn all_tokens_are_demanded_and_the_one_that_fails_is_named() {
        let checked = |tokens: &Tokens| check(&group(), tokens, address(), &CLIENT, NOW);
        assert_eq!(checked(&tokens(|_| {})), Ok(()));
        assert_eq!(checked(&Tokens::NONE), Err((Reason::TokenMissing, id(1))));
        let mut two = Tokens::NONE;
        tokens(|_| {})
            .iter()
            .filter(|token| token.vantage != id(2))
            .for_each(|token| assert!(two.push(*token)));
        assert_eq!(checked(&two), Err((Reason::TokenMissing, id(2))));
        let lying = tokens(|token| token.mac[3] ^= u8::from(token.vantage == id(3)));
        assert_eq!(checked(&lying), Err((Reason::TokenWrong, id(3))));
        let dated = tokens(|token| token.time += u32::from(token.vantage == id(2)));
        assert_eq!(checked(&dated), Err((Reason::TokenWrong, id(2))));
        let renumbered = tokens(|token| token.key = 2);
        assert_eq!(checked(&renumbered), Err((Reason::TokenWrong, id(1))));
        // Without a group no token is expected.
        let unexpected = check(&[], &tokens(|_| {}), address(), &CLIENT, NOW);
        assert_eq!(unexpected, Err((Reason::TokenUnknown, id(1))));
    }

    #[test]
    fn a_token_is_for_one_client_at_one_address_for_a_minute() {
        let good = tokens(|_| {});
        for (after, result) in [(0, Ok(())), (60, Ok(())), (61, Err((Reason::TokenExpired, id(1))))] {
            assert_eq!(check(&group(), &good, address(), &CLIENT, NOW + after), result, "{after} s");
        }
        assert_eq!(check(&group(), &good, address(), &CLIENT, NOW - 5), Ok(()));
        let early = check(&group(), &good, address(), &CLIENT, NOW - 6);
        assert_eq!(early, Err((Reason::TokenExpired, id(1))));
        let elsewhere = check(&group(), &good, "192.0.2.2".parse().unwrap(), &CLIENT, NOW);
        assert_eq!(elsewhere, Err((Reason::TokenWrong, id(1))));
        let of_another = check(&group(), &good, address(), &[8; 32], NOW);
        assert_eq!(of_another, Err((Reason::TokenWrong, id(1))));
    }

    #[test]
    fn a_key_may_be_replaced() {
        let member = &group()[0];
        let token = member.keys[1].token(member.id, NOW, address(), &CLIENT);
        let mut tokens = Tokens::NONE;
        assert!(tokens.push(token));
        assert_eq!(check(&group()[..1], &tokens, address(), &CLIENT, NOW), Ok(()));
    }
}
