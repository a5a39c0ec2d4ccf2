//! Tickets that every member of a farm can read, without a store.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use firstflight::Time;
use rustls::server::ProducesTickets;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use zeroize::Zeroizing;

const KEY_LABEL: &[u8] = b"firstflight tls ticket key";
const NEXT_LABEL: &[u8] = b"firstflight tls ticket next";
/// Epochs that are skipped at most. It is a week of the shortest period.
const SKIPPED: u64 = 7 * 24 * 60;
/// The longest ticket that is opened, bytes.
const LONGEST: usize = 65_535;
const EPOCH_LEN: usize = 8;

/// Makes tickets that resume a session at every member of a farm. They do not allow early data: rustls takes it only for
/// sessions of a [`SessionStore`](crate::SessionStore), because a ticket like these can be used often (RFC 8446 §8.1).
///
/// **Keys.** Each period has its own secret. The key of a period is HKDF-Expand of its secret with `firstflight tls ticket
/// key`, the next secret with `firstflight tls ticket next` (RFC 5869, SHA-256), and then the secret is deleted. So who
/// steals a member's memory cannot read tickets, and what they protect, of periods before the last one. That holds only if
/// the first secret is deleted everywhere: keep [`FarmTickets::state`] in place of it.
///
/// A ticket is accepted in its period and the next one. Members' clocks may differ by a period.
pub struct FarmTickets {
    inner: Mutex<Ratchet>,
    period: Duration,
    time: Time,
}

struct Ratchet {
    epoch: u64,
    /// The secret of this epoch.
    secret: Zeroizing<[u8; 32]>,
    /// The key of the epoch before.
    previous: Option<LessSafeKey>,
}

/// 32 bytes of output.
struct Len;

impl KeyType for Len {
    fn len(&self) -> usize {
        32
    }
}

impl fmt::Debug for FarmTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarmTickets").field("epoch", &self.lock().epoch).finish_non_exhaustive()
    }
}

impl FarmTickets {
    /// The shortest period.
    pub const MIN_PERIOD: Duration = Duration::from_secs(60);

    /// Tickets by `secret`, which is that of period number `epoch`; the number is Unix time divided by the period. A period
    /// below [`FarmTickets::MIN_PERIOD`] counts as that; use a day.
    ///
    /// If more than a week of the shortest period has passed since `epoch`, the secret counts as that of the present.
    #[must_use]
    pub fn new(secret: &[u8; 32], epoch: u64, period: Duration, time: Time) -> Self {
        let ratchet = Ratchet { epoch, secret: Zeroizing::new(*secret), previous: None };
        Self { inner: Mutex::new(ratchet), period: period.max(Self::MIN_PERIOD), time }
    }

    /// The number of the present period, and its secret. Store it in place of an older one, which must be deleted.
    #[must_use]
    pub fn state(&self) -> (u64, Zeroizing<[u8; 32]>) {
        let ratchet = self.current();
        (ratchet.epoch, ratchet.secret.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Ratchet> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ratchet in the present period.
    fn current(&self) -> MutexGuard<'_, Ratchet> {
        let now = self.time.unix().as_secs() / self.period.as_secs().max(1);
        let mut ratchet = self.lock();
        if now.saturating_sub(ratchet.epoch) > SKIPPED {
            ratchet.epoch = now;
            ratchet.previous = None;
        }
        while ratchet.epoch < now {
            ratchet.previous = key(&ratchet.secret);
            ratchet.secret = expand(&ratchet.secret, NEXT_LABEL);
            ratchet.epoch += 1;
        }
        ratchet
    }

    fn sealed(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let ratchet = self.current();
        let (epoch, key) = (ratchet.epoch.to_be_bytes(), key(&ratchet.secret)?);
        drop(ratchet);
        let mut nonce = [0; NONCE_LEN];
        firstflight::random_bytes(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce_used, Aad::from(epoch), &mut sealed).ok()?;
        Some([&epoch[..], &nonce, &sealed].concat())
    }

    fn opened(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        if ticket.len() > LONGEST {
            return None;
        }
        let (epoch, rest) = ticket.split_first_chunk::<EPOCH_LEN>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let number = u64::from_be_bytes(*epoch);
        let mut plain = sealed.to_vec();
        let ratchet = self.current();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = if number == ratchet.epoch {
            key(&ratchet.secret)?.open_in_place(nonce, Aad::from(*epoch), &mut plain)
        } else if Some(number) == ratchet.epoch.checked_sub(1) {
            ratchet.previous.as_ref()?.open_in_place(nonce, Aad::from(*epoch), &mut plain)
        } else if Some(number) == ratchet.epoch.checked_add(1) {
            // Of a member whose clock is ahead.
            key(&expand(&ratchet.secret, NEXT_LABEL))?.open_in_place(nonce, Aad::from(*epoch), &mut plain)
        } else {
            return None;
        };
        let length = opened.ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

fn expand(secret: &[u8; 32], label: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut out = Zeroizing::new([0; 32]);
    let labels = [label];
    let filled =
        Prk::new_less_safe(HKDF_SHA256, secret).expand(&labels, Len).and_then(|okm| okm.fill(&mut *out));
    match filled {
        Ok(()) => out,
        Err(_) => unreachable!("32 bytes are fewer than 255 hashes (RFC 5869 §2.3)"),
    }
}

fn key(secret: &[u8; 32]) -> Option<LessSafeKey> {
    let key = expand(secret, KEY_LABEL);
    UnboundKey::new(&AES_256_GCM, &*key).ok().map(LessSafeKey::new)
}

impl ProducesTickets for FarmTickets {
    fn enabled(&self) -> bool {
        true
    }

    /// A period: a ticket is accepted for one or two of them. At most a week (RFC 8446 §4.6.1).
    fn lifetime(&self) -> u32 {
        u32::try_from(self.period.as_secs()).unwrap_or(u32::MAX).min(7 * 24 * 60 * 60)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.sealed(plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.opened(ticket)
    }
}

#[cfg(test)]
mod tests;
