//! Challenges. A client that sends one back has received it at its address. The verifier keeps no state for
//! them.

use crate::mac::MacKey;
use firstflight_credential::asap::PrivateKey;
use firstflight_wire::asap::context;
use firstflight_wire::asap::message::{Challenge, TransactionId};
use firstflight_wire::{Clock, Instant};
use rand_core::CryptoRng;
use std::net::SocketAddr;
use std::time::Duration;

/// How long a challenge is valid, seconds.
pub const CHALLENGE_LASTS: u32 = 10;
/// How long a key is used to make challenges.
const TURN: Duration = Duration::from_secs(HOUR as u64);
const HOUR: u32 = 60 * 60;
/// The clocks of verifiers with one key may differ by this much, seconds: twice what a member's clock may differ from the
/// farm's (`docs/spec/asap.md` §7.5).
const AHEAD: u32 = 2;
/// Context of the keys that follow from a verifier's key (`docs/spec/asap.md` §1.3).
const CONTEXT: [u8; 32] = context("firstflight ASAP v1 CKEY");

/// What a challenge is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChallengeSubject<'a> {
    /// The type of the message that it is for.
    pub(crate) class: u8,
    pub(crate) client: SocketAddr,
    pub(crate) key: &'a [u8; 32],
    pub(crate) transaction: TransactionId,
}

impl ChallengeSubject<'_> {
    fn input(&self, time: u32) -> [u8; 95] {
        Challenge::input(self.class, time, self.client, self.key, self.transaction)
    }
}

#[derive(Debug)]
pub(crate) enum ChallengeKeys {
    Own(OwnKeys),
    Shared(SharedKeys),
}

impl ChallengeKeys {
    /// Keys of this process only.
    pub(crate) fn own(now: Instant, rng: &mut impl CryptoRng) -> Self {
        Self::Own(OwnKeys { number: 1, current: MacKey::generate(rng), previous: None, since: now })
    }

    /// The keys of all verifiers that certify with `key`.
    pub(crate) fn shared(key: &PrivateKey) -> Self {
        Self::Shared(SharedKeys { seed: MacKey::new(*key.to_seed()) })
    }

    /// Replaces the current key if it is due.
    pub(crate) fn turn(&mut self, now: Instant, rng: &mut impl CryptoRng) {
        if let Self::Own(keys) = self {
            keys.turn(now, rng);
        }
    }

    pub(crate) fn make(&self, asking: &ChallengeSubject<'_>, clock: &Clock) -> Challenge {
        match self {
            Self::Own(keys) => keys.make(asking, clock.mono),
            Self::Shared(keys) => keys.make(asking, unix_seconds(clock)),
        }
    }

    pub(crate) fn is_good(
        &self,
        challenge: &Challenge,
        asking: &ChallengeSubject<'_>,
        clock: &Clock,
    ) -> bool {
        match self {
            Self::Own(keys) => keys.is_good(challenge, asking, clock.mono),
            Self::Shared(keys) => keys.is_good(challenge, asking, unix_seconds(clock)),
        }
    }
}

/// The keys of a verifier that is alone. They are random, with a new one each hour. The previous key stays valid, for
/// challenges that are on their way when the key changes.
#[derive(Debug)]
pub(crate) struct OwnKeys {
    /// Never 0, so that a challenge is never all zero.
    number: u8,
    current: MacKey,
    previous: Option<MacKey>,
    since: Instant,
}

impl OwnKeys {
    fn turn(&mut self, now: Instant, rng: &mut impl CryptoRng) {
        if now.saturating_since(self.since) < TURN {
            return;
        }
        let new = MacKey::generate(rng);
        self.previous = Some(std::mem::replace(&mut self.current, new));
        self.number = self.number.checked_add(1).unwrap_or(1);
        self.since = now;
    }

    fn make(&self, asking: &ChallengeSubject<'_>, now: Instant) -> Challenge {
        let time = seconds(now);
        Challenge { key: self.number, time, mac: self.current.code(&asking.input(time)) }
    }

    fn is_good(&self, challenge: &Challenge, asking: &ChallengeSubject<'_>, now: Instant) -> bool {
        // The age is that of the monotonic clock, so setting the wall clock does not extend a challenge.
        let Some(age) = seconds(now).checked_sub(challenge.time) else { return false };
        let key = if challenge.key == self.number {
            Some(&self.current)
        } else if challenge.key.checked_add(1).unwrap_or(1) == self.number {
            self.previous.as_ref()
        } else {
            None
        };
        age <= CHALLENGE_LASTS
            && key.is_some_and(|key| key.verifies(&asking.input(challenge.time), &challenge.mac))
    }
}

/// The keys of verifiers that certify with one key. A key follows from that one and the hour in which the challenge is made.
#[derive(Debug)]
pub(crate) struct SharedKeys {
    seed: MacKey,
}

impl SharedKeys {
    /// The key of the hour of `time`, Unix seconds, and its number, which is never 0.
    fn key(&self, time: u32) -> (u8, MacKey) {
        let hour = time / HOUR;
        let mut input = [0; 36];
        input[..32].copy_from_slice(&CONTEXT);
        input[32..].copy_from_slice(&hour.to_be_bytes());
        ((hour % 255 + 1) as u8, self.seed.derive(&input))
    }

    fn make(&self, asking: &ChallengeSubject<'_>, now: u32) -> Challenge {
        let (number, key) = self.key(now);
        Challenge { key: number, time: now, mac: key.code(&asking.input(now)) }
    }

    fn is_good(&self, challenge: &Challenge, asking: &ChallengeSubject<'_>, now: u32) -> bool {
        let times = now.saturating_sub(CHALLENGE_LASTS)..=now.saturating_add(AHEAD);
        if !times.contains(&challenge.time) {
            return false;
        }
        let (number, key) = self.key(challenge.time);
        challenge.key == number && key.verifies(&asking.input(challenge.time), &challenge.mac)
    }
}

/// Whole seconds. 32 bits last for 136 years.
fn seconds(now: Instant) -> u32 {
    u32::try_from(now.as_millis() / 1000).unwrap_or(u32::MAX)
}

/// Unix seconds in 32 bits, which last until 2106.
pub(crate) fn unix_seconds(clock: &Clock) -> u32 {
    u32::try_from(clock.unix_ms / 1000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
