//! Keys that the members of a farm derive from one secret (8.5).

use crate::defence::{Defence, on};
use crate::keys::{KeySet, SealKey};
use crate::name::HostName;
use core::fmt;
use core::num::NonZeroU8;
use firstflight_wire::asap::context;
use hmac::{Hmac, KeyInit, Mac};
use rand_core::CryptoRng;
use sha2::Sha256;
use zeroize::Zeroizing;

const KEY: [u8; 32] = context("firstflight seal v1 farm key");
const TICKET: [u8; 32] = context("firstflight seal v1 farm ticket");
const NEXT: [u8; 32] = context("firstflight seal v1 farm next");

/// A farm's secret: a chain that goes forward only. Every member that has it derives the same keys, a new one for each
/// period.
#[derive(Clone)]
pub struct Farm {
    name: HostName,
    period: u32,
    ttl: u32,
    index: u64,
    chain: Zeroizing<[u8; 32]>,
}

/// Why there is no such farm: the caller, or the file, is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FarmError {
    /// The period is not 3600 to 86,400 seconds.
    #[error("a period has 3600 to 86400 seconds")]
    Period,
    /// Clients would not use the key. A caller with a single key returns it; a farm's times are limited by the others.
    #[error("period and TTL together are at most 48 h")]
    Ttl,
    /// More keys would have to open at once than a set holds.
    #[error("the TTL of a farm's record is at most the period of its keys")]
    TtlAbovePeriod,
}

/// Why a farm gives no keys now: the clock is at fault, or the file is old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainFault {
    /// The secret is of a later period than the clock shows.
    #[error(
        "the clock shows a time before the secret's: set the clock, or copy the secret of another member"
    )]
    Behind,
    /// The secret is of a much earlier period.
    #[error("the secret is {0} periods old: check the clock, or make a new secret")]
    TooFar(u64),
}

impl Farm {
    /// The default period, seconds.
    pub const PERIOD: u32 = 86_400;
    /// How long before its period a key opens, seconds.
    pub const LEAD: u64 = 300;
    /// The most periods that are skipped at once.
    pub const MOST_STEPS: u64 = 400;

    /// A farm with a new secret that begins at `now`, Unix seconds. `ttl` is that of the records, seconds.
    ///
    /// # Errors
    /// [`FarmError`].
    pub fn generate(
        name: HostName,
        period: u32,
        ttl: u32,
        now: u64,
        rng: &mut impl CryptoRng,
    ) -> Result<Self, FarmError> {
        let mut chain = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut *chain);
        Self::new(name, period, ttl, now / u64::from(period.max(1)), chain)
    }

    /// The farm whose chain at period `index` is `chain`.
    ///
    /// # Errors
    /// [`FarmError`].
    pub fn new(
        name: HostName,
        period: u32,
        ttl: u32,
        index: u64,
        chain: Zeroizing<[u8; 32]>,
    ) -> Result<Self, FarmError> {
        if !(3600..=86_400).contains(&period) {
            return Err(FarmError::Period);
        }
        // A key opens from LEAD before its period until TTL + GRACE behind it. So with TTL <= period at most 4 keys open at
        // a time, as many as a set holds. Clients use a key for at most 2 periods, which are 48 h.
        if ttl > period && on(Defence::FarmTtl) {
            return Err(FarmError::TtlAbovePeriod);
        }
        Ok(Self { name, period, ttl, index, chain })
    }

    /// The public name.
    #[must_use]
    pub const fn name(&self) -> &HostName {
        &self.name
    }

    /// The period, seconds.
    #[must_use]
    pub const fn period(&self) -> u32 {
        self.period
    }

    /// The TTL of the records, seconds.
    #[must_use]
    pub const fn ttl(&self) -> u32 {
        self.ttl
    }

    /// The period of the secret that is held.
    #[must_use]
    pub const fn index(&self) -> u64 {
        self.index
    }

    /// The secret. Use it only for key files.
    #[must_use]
    pub const fn chain(&self) -> &Zeroizing<[u8; 32]> {
        &self.chain
    }

    /// Destroys the secrets that are not needed any more at `now`, Unix seconds: it keeps that of the oldest key that
    /// opens. Returns whether it changed; then the file is written again. Do not call it while the clock may be wrong by
    /// more than five minutes.
    ///
    /// # Errors
    /// [`ChainFault`]. Then nothing changes.
    pub fn advance(&mut self, now: u64) -> Result<bool, ChainFault> {
        let oldest = self.oldest(now);
        let steps = oldest.saturating_sub(self.index);
        if steps > Self::MOST_STEPS {
            return Err(ChainFault::TooFar(steps));
        }
        for _ in 0..steps {
            self.step();
        }
        Ok(steps > 0)
    }

    /// The keys that open at `now`, Unix seconds, and that of the next period shortly before it.
    ///
    /// # Errors
    /// [`ChainFault`].
    pub fn keys(&self, now: u64) -> Result<KeySet, ChainFault> {
        let (current, last) = (self.period_of(now), self.period_of(now.saturating_add(Self::LEAD)));
        if last < self.index {
            return Err(ChainFault::Behind);
        }
        let mut keys = KeySet::new(self.name.clone());
        let mut here = self.clone();
        here.advance(now)?;
        let mut ahead = None;
        while here.index <= last {
            let (id, key, not_after) = here.key();
            if here.index > current {
                ahead = Some((id, key, not_after));
            } else {
                // Numbers differ, and there is room: at most four of 255 periods open.
                let _ = keys.add(id, key, not_after, now);
            }
            here.step();
        }
        if let Some((id, key, not_after)) = ahead {
            keys.add_unpublished(id, key, not_after, now);
        }
        Ok(keys)
    }

    /// The secret from which the farm derives ticket keys in the period of the secret that is held, or a later one.
    ///
    /// # Errors
    /// [`ChainFault`].
    pub fn ticket_secret(&self, index: u64) -> Result<Zeroizing<[u8; 32]>, ChainFault> {
        let steps = index.checked_sub(self.index).ok_or(ChainFault::Behind)?;
        if steps > Self::MOST_STEPS {
            return Err(ChainFault::TooFar(steps));
        }
        let mut here = self.clone();
        for _ in 0..steps {
            here.step();
        }
        Ok(mac(&here.chain, &TICKET, here.index))
    }

    fn period_of(&self, now: u64) -> u64 {
        now / u64::from(self.period)
    }

    /// The oldest period whose key opens.
    fn oldest(&self, now: u64) -> u64 {
        // Key i opens while now < (i + 1) · period + TTL + grace.
        let longer = u64::from(self.ttl) + KeySet::GRACE;
        now.saturating_sub(longer) / u64::from(self.period)
    }

    fn key(&self) -> (NonZeroU8, SealKey, u32) {
        let id = NonZeroU8::MIN.saturating_add((self.index % 255) as u8);
        let not_after =
            (self.index + 1).saturating_mul(u64::from(self.period)).saturating_add(u64::from(self.ttl));
        let key = SealKey::derive(&mac(&self.chain, &KEY, self.index));
        (id, key, u32::try_from(not_after).unwrap_or(u32::MAX))
    }

    fn step(&mut self) {
        self.chain = mac(&self.chain, &NEXT, self.index + 1);
        self.index += 1;
    }
}

fn mac(key: &[u8; 32], context: &[u8; 32], index: u64) -> Zeroizing<[u8; 32]> {
    // A key shorter than a block is padded with zeros (RFC 2104).
    let mut block = Zeroizing::new([0; 64]);
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    let mac = Hmac::<Sha256>::new((&*block).into()).chain_update(context).chain_update(index.to_be_bytes());
    Zeroizing::new(mac.finalize().into_bytes().into())
}

impl fmt::Debug for Farm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, period, ttl, index, chain: _ } = self;
        write!(f, "Farm({name}, period {period} s, TTL {ttl} s, from {index})")
    }
}

#[cfg(test)]
mod tests;
