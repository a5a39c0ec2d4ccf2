//! Parts of messages.

use crate::asap::numbered::numbered;
use crate::asap::{context, mapped};
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU16;

const CHALLENGE: [u8; 32] = context("firstflight ASAP v1 CHAL");
const TOKEN: [u8; 32] = context("firstflight ASAP v1 VTOK");

/// A client's random number for one request. Retransmissions and all answers have the same number, so a host
/// that cannot read the request cannot answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransactionId(pub [u8; 8]);

/// The number of a vantage point in its group, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VantageId(pub NonZeroU16);

impl VantageId {
    /// `None` for 0.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for VantageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A verifier's value with which a client proves that it is at its address. Only that verifier understands it.
/// 24 zero bytes mean that there is no challenge yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Challenge {
    /// The number of the verifier's key.
    pub key: u8,
    /// When it was made, seconds of a clock of the verifier.
    pub time: u32,
    /// First bytes of HMAC-SHA-256 over [`Challenge::input`].
    pub mac: [u8; 16],
}

impl Challenge {
    /// Length in a message, bytes.
    pub const LEN: usize = 24;

    /// The authenticated input. `class` is the type of the message that the challenge is for, so that a
    /// challenge for a token is not valid for a certificate.
    #[must_use]
    pub fn input(
        class: u8,
        time: u32,
        client: SocketAddr,
        key: &[u8; 32],
        transaction: TransactionId,
    ) -> [u8; 95] {
        let mut input = [0; 95];
        input[..32].copy_from_slice(&CHALLENGE);
        input[32] = class;
        input[33..37].copy_from_slice(&time.to_be_bytes());
        input[37..53].copy_from_slice(&mapped(client.ip()));
        input[53..55].copy_from_slice(&client.port().to_be_bytes());
        input[55..87].copy_from_slice(key);
        input[87..].copy_from_slice(&transaction.0);
        input
    }
}

/// Omits the code, because it lets a client pass.
impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenge").field("key", &self.key).field("time", &self.time).finish_non_exhaustive()
    }
}

/// A vantage point's statement, for the issuing verifier, that it has seen the client at its address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The vantage point.
    pub vantage: VantageId,
    /// The number of the vantage point's key.
    pub key: u8,
    /// When it was made, Unix seconds.
    pub time: u32,
    /// First bytes of HMAC-SHA-256 over [`Token::input`].
    pub mac: [u8; 16],
}

impl Token {
    /// Length in a message, bytes.
    pub const LEN: usize = 24;

    /// The authenticated input. The key for the code is the one that the vantage point shares with the issuing
    /// verifier.
    #[must_use]
    pub fn input(vantage: VantageId, time: u32, client: IpAddr, key: &[u8; 32]) -> [u8; 86] {
        let mut input = [0; 86];
        input[..32].copy_from_slice(&TOKEN);
        input[32..34].copy_from_slice(&vantage.get().to_be_bytes());
        input[34..38].copy_from_slice(&time.to_be_bytes());
        input[38..54].copy_from_slice(&mapped(client));
        input[54..].copy_from_slice(key);
        input
    }
}

/// Omits the code, as for a challenge.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vantage, key, time, mac: _ } = self;
        f.debug_struct("Token")
            .field("vantage", vantage)
            .field("key", key)
            .field("time", time)
            .finish_non_exhaustive()
    }
}

/// The tokens of a request: one for each vantage point, in ascending order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    places: [Option<Token>; Self::MAX],
}

impl Tokens {
    /// The largest number of tokens: a certificate can count as many vantage points beside its issuer.
    pub const MAX: usize = 7;
    /// No tokens.
    pub const NONE: Self = Self { places: [None; Self::MAX] };

    /// Adds a token; false if its number is not higher than those before, or if there is no room.
    pub fn push(&mut self, token: Token) -> bool {
        let last = self.iter().last().map(|last| last.vantage);
        if last.is_some_and(|last| last >= token.vantage) {
            return false;
        }
        match self.places.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(token);
                true
            }
            None => false,
        }
    }

    /// All tokens.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.places.iter().flatten()
    }

    /// The token of this vantage point.
    #[must_use]
    pub fn get(&self, vantage: VantageId) -> Option<&Token> {
        self.iter().find(|token| token.vantage == vantage)
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are no tokens.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.places[0].is_none()
    }
}

numbered! {
    /// Why a verifier refuses.
    pub enum Reason {
        RateLimited = 1 "rate-limited" "too many requests came from the client's network"
        Overloaded = 2 "overloaded" "the verifier has no time for signatures now"
        Address = 3 "address" "the verifier certifies no such address"
        UnsoundKey = 4 "unsound-key" "the client's key is none that can be certified"
        BadSignature = 5 "bad-signature" "the request is for another key than this verifier's: compare the verifier key that the client was given"
        OldCertificate = 6 "old-certificate" "the old certificate is not valid now, not this verifier's or for another address, or its key did not sign"
        NotAVantagePoint = 7 "not-a-vantage-point" "the verifier gives no tokens"
        NotAnIssuer = 8 "not-an-issuer" "the verifier gives tokens only"
        TokenMissing = 9 "token-missing" "a vantage point's token is missing"
        TokenWrong = 10 "token-wrong" "a vantage point's token is wrong, or for another client or address"
        TokenExpired = 11 "token-expired" "a vantage point's token is too old, or from the future"
        TokenUnknown = 12 "token-unknown" "a token is of no vantage point that the verifier knows"
        TooShort = 13 "too-short" "the verifier certifies for no time as short as was wished"
        NoProbe = 14 "no-probe" "the verifier has no second address of the client's family to send a probe from"
    }
}

impl Reason {
    /// Whether the reason is about a vantage point's token.
    #[must_use]
    pub const fn is_about_a_token(self) -> bool {
        matches!(self, Self::TokenMissing | Self::TokenWrong | Self::TokenExpired | Self::TokenUnknown)
    }
}
