//! Challenges. A client that sends one back has received it at its address. The verifier keeps no state for
//! them.

use crate::mac::MacKey;
use firstflight_wire::Instant;
use firstflight_wire::asap::message::{Challenge, TransactionId};
use rand_core::CryptoRng;
use std::net::SocketAddr;
use std::time::Duration;

/// How long a challenge is valid, seconds.
pub const CHALLENGE_LASTS: u32 = 10;
/// How long a key is used to make challenges.
const TURN: Duration = Duration::from_secs(60 * 60);

/// What a challenge is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    /// The type of the message that it is for.
    pub(crate) class: u8,
    pub(crate) client: SocketAddr,
    pub(crate) key: &'a [u8; 32],
    pub(crate) transaction: TransactionId,
}

impl Asking<'_> {
    fn input(&self, time: u32) -> [u8; 95] {
        Challenge::input(self.class, time, self.client, self.key, self.transaction)
    }
}

/// The keys of challenges. They are random and of this process only, with a new one each hour. The previous
/// key stays valid, for challenges that are on their way when the key changes.
#[derive(Debug)]
pub(crate) struct ChallengeKeys {
    /// Never 0, so that a challenge is never all zero.
    number: u8,
    current: MacKey,
    previous: Option<MacKey>,
    since: Instant,
}

impl ChallengeKeys {
    pub(crate) fn new(now: Instant, rng: &mut impl CryptoRng) -> Self {
        Self { number: 1, current: MacKey::generate(rng), previous: None, since: now }
    }

    /// Replaces the current key if it is due.
    pub(crate) fn turn(&mut self, now: Instant, rng: &mut impl CryptoRng) {
        if now.saturating_since(self.since) < TURN {
            return;
        }
        let new = MacKey::generate(rng);
        self.previous = Some(std::mem::replace(&mut self.current, new));
        self.number = self.number.checked_add(1).unwrap_or(1);
        self.since = now;
    }

    pub(crate) fn make(&self, asking: &Asking<'_>, now: Instant) -> Challenge {
        let time = seconds(now);
        Challenge { key: self.number, time, mac: self.current.code(&asking.input(time)) }
    }

    pub(crate) fn is_good(&self, challenge: &Challenge, asking: &Asking<'_>, now: Instant) -> bool {
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

/// Whole seconds. 32 bits last for 136 years.
fn seconds(now: Instant) -> u32 {
    u32::try_from(now.as_millis() / 1000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    const KEY: [u8; 32] = [7; 32];

    fn asking(client: &str) -> Asking<'static> {
        Asking { class: 1, client: client.parse().unwrap(), key: &KEY, transaction: TransactionId([1; 8]) }
    }

    #[test]
    fn a_challenge_is_good_for_ten_seconds_and_for_what_it_was_made() {
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        let at = Instant::from_secs(1000);
        let keys = ChallengeKeys::new(at, &mut rng);
        let asked = asking("192.0.2.1:5000");
        let challenge = keys.make(&asked, at);
        for (after, good) in [(0, true), (10, true), (11, false), (4000, false)] {
            assert_eq!(keys.is_good(&challenge, &asked, at + Duration::from_secs(after)), good, "{after} s");
        }
        assert!(!keys.is_good(&challenge, &asked, at - Duration::from_secs(1)));
        let other_key = [8; 32];
        for other in [
            asking("192.0.2.2:5000"),
            asking("192.0.2.1:5001"),
            Asking { class: 5, ..asked },
            Asking { key: &other_key, ..asked },
            Asking { transaction: TransactionId([2; 8]), ..asked },
        ] {
            assert!(!keys.is_good(&challenge, &other, at), "{other:?}");
        }
        let mut wrong = challenge;
        wrong.mac[15] ^= 1;
        assert!(!keys.is_good(&wrong, &asked, at));
        assert!(!keys.is_good(&Challenge { time: challenge.time + 1, ..challenge }, &asked, at));
        assert!(!ChallengeKeys::new(at, &mut rng).is_good(&challenge, &asked, at), "another process");
    }

    #[test]
    fn a_challenge_outlives_one_turn_of_the_key() {
        let mut rng = ChaCha20Rng::from_seed([2; 32]);
        let mut keys = ChallengeKeys::new(Instant::ZERO, &mut rng);
        let asked = asking("[2001:db8::1]:5000");
        for hour in 1..600 {
            let before = Instant::from_secs(hour * 3600 - 1);
            keys.turn(before, &mut rng);
            let challenge = keys.make(&asked, before);
            let after = Instant::from_secs(hour * 3600);
            keys.turn(after, &mut rng);
            assert_ne!(keys.make(&asked, after).key, challenge.key);
            assert!(keys.is_good(&challenge, &asked, after), "hour {hour}");
            // Another key with the same number.
            let other = ChallengeKeys { number: keys.number, ..ChallengeKeys::new(after, &mut rng) };
            assert!(!other.is_good(&challenge, &asked, after));
        }
    }
}
