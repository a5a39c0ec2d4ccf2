//! The signatures of a first flight: what is to be verified, and how, one by one or many together.

use super::budget::AsapShard;
use super::certificate::CertificateDigest;
use super::keys::PublicKey;
use super::policy::Refused;
use super::trust::BeforeAck;
use crate::replay::ReplayId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use ed25519_zebra::{Signature, VerificationKeyBytes, batch};
use firstflight_wire::asap::{Status, VerifierId};
use firstflight_wire::{Clock, Instant};
use rand_core::CryptoRng;

/// The most requests verified together.
pub const BATCH: usize = 64;

/// A first flight that is right as far as can be seen without its signatures. It goes to whoever verifies and
/// comes back with a verdict.
pub struct Candidate {
    pub(super) certificate_input: [u8; 124],
    pub(super) certificate_signature: [u8; 64],
    pub(super) verifier: PublicKey,
    pub(super) verifier_id: VerifierId,
    pub(super) per_second: Option<u32>,
    pub(super) request_input: [u8; 170],
    pub(super) request_signature: [u8; 64],
    pub(super) client_key: PublicKey,
    pub(super) digest: CertificateDigest,
    /// The certificate was verified before.
    pub(super) known: bool,
    /// The request may go into a batch.
    pub(super) batch: bool,
    pub(super) generation: u64,
    pub(super) replay: ReplayId,
    pub(super) stamp_ms: u64,
    /// The certificate's end, Unix seconds.
    pub(super) ends: u64,
    pub(super) client: IpAddr,
    pub(super) prefix: u64,
    /// A front handed it over.
    pub(super) relayed: bool,
    pub(super) tag: [u8; 2],
    pub(super) before_ack: BeforeAck,
    /// The same for a request that comes straight from its client.
    pub(super) before_ack_direct: BeforeAck,
    pub(super) request_id: [u8; 8],
}

impl Candidate {
    /// How much may be sent before the client's ACK, once it is accepted.
    #[must_use]
    pub const fn before_ack(&self) -> BeforeAck {
        self.before_ack
    }

    /// Of a request that a front handed over: its id, and how much may be sent before the client's ACK once a copy
    /// of it has come from the client's address. Only who signed the request and who opened it know the id.
    #[must_use]
    pub fn direct_copy(&self) -> Option<([u8; 8], BeforeAck)> {
        self.relayed.then_some((self.request_id, self.before_ack_direct))
    }

    /// How many signatures it has to be verified.
    #[must_use]
    pub const fn signatures(&self) -> u8 {
        if self.known { 1 } else { 2 }
    }

    /// First two bytes of the request's id, for the reply.
    #[must_use]
    pub const fn tag(&self) -> [u8; 2] {
        self.tag
    }

    /// The client's key and when its certificate ends (Unix seconds), for [`AsapShard::bar`].
    #[must_use]
    pub const fn client(&self) -> (&[u8; 32], u64) {
        (self.client_key.as_bytes(), self.ends)
    }

    /// Whether what spoke for it when it was examined still does: while it waits for a verdict the trust store may
    /// change, which revokes at once, or its key or address be barred.
    ///
    /// # Errors
    /// What the client is told.
    pub fn stands(&self, shard: &AsapShard, clock: &Clock) -> Result<(), Refused> {
        if self.generation != shard.generation() {
            return Err(Refused::new(Status::UnknownVerifier, self.tag));
        }
        if shard.is_barred(self.client_key.as_bytes(), self.client, clock.mono) {
            return Err(Refused::new(Status::Barred, self.tag));
        }
        Ok(())
    }

    fn certificate_is_good(&self) -> bool {
        self.known || self.verifier.verifies(&self.certificate_input, &self.certificate_signature)
    }

    fn request_is_good(&self) -> bool {
        self.client_key.verifies(&self.request_input, &self.request_signature)
    }

    fn item(&self) -> batch::Item {
        let key = VerificationKeyBytes::from(*self.client_key.as_bytes());
        (key, Signature::from_bytes(&self.request_signature), &self.request_input).into()
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate")
            .field("client", &self.client)
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

/// What verifying said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// Both signatures are right.
    Good,
    /// The verifier did not sign the certificate.
    BadCertificate,
    /// The client did not sign the request.
    BadRequest,
}

/// Verifies what came together; the verdicts are in the order of `candidates`. It touches nothing that is
/// shared, so it may run anywhere.
///
/// Single and batched verification agree on every input (ZIP 215). Only requests under certificates that are
/// good go into a batch, and a batch that fails is halved until the wrong ones are found. `rng` must be fit
/// for secrets: who can foresee its numbers can make wrong signatures that a batch takes.
pub fn verify(candidates: &[Box<Candidate>], rng: &mut impl CryptoRng) -> Vec<Verified> {
    let mut verdicts: Vec<Verified> = candidates
        .iter()
        .map(|candidate| {
            if !candidate.certificate_is_good() {
                Verified::BadCertificate
            } else if candidate.batch || candidate.request_is_good() {
                Verified::Good
            } else {
                Verified::BadRequest
            }
        })
        .collect();
    let together: Vec<usize> = (0..candidates.len())
        .filter(|&at| {
            verdicts.get(at) == Some(&Verified::Good) && candidates.get(at).is_some_and(|c| c.batch)
        })
        .collect();
    for part in together.chunks(BATCH) {
        bisect(candidates, part, &mut verdicts, rng);
    }
    verdicts
}

/// Finds the wrong ones of `part`.
fn bisect(
    candidates: &[Box<Candidate>],
    part: &[usize],
    verdicts: &mut [Verified],
    rng: &mut impl CryptoRng,
) {
    let of = |at: &usize| candidates.get(*at);
    let good = match part {
        [] => return,
        [one] => of(one).is_some_and(|candidate| candidate.request_is_good()),
        _ => {
            let mut batch = batch::Verifier::new();
            part.iter().filter_map(of).for_each(|candidate| batch.queue(candidate.item()));
            batch.verify(&mut *rng).is_ok()
        }
    };
    match part {
        _ if good => {}
        [one] => {
            if let Some(verdict) = verdicts.get_mut(*one) {
                *verdict = Verified::BadRequest;
            }
        }
        _ => {
            let (left, right) = part.split_at(part.len() / 2);
            bisect(candidates, left, verdicts, rng);
            bisect(candidates, right, verdicts, rng);
        }
    }
}

impl AsapShard {
    /// Learns from what was verified together.
    pub fn learn(&mut self, candidates: &[Box<Candidate>], verdicts: &[Verified], now: Instant) {
        // Under a wrong certificate no request is looked at, neither alone nor with others.
        let batched = candidates
            .iter()
            .zip(verdicts)
            .filter(|(candidate, verdict)| candidate.batch && **verdict != Verified::BadCertificate);
        let (count, failed) = batched.fold((0, false), |(count, failed), (_, verdict)| {
            (count + 1, failed || *verdict == Verified::BadRequest)
        });
        if count > 1 {
            self.note_batch(failed, now);
        }
        for (candidate, verdict) in candidates.iter().zip(verdicts) {
            match verdict {
                Verified::BadCertificate if candidate.relayed => continue,
                Verified::BadCertificate => {
                    // Anybody can put this key into a wrong certificate: it is not to blame.
                    self.suspect(candidate.prefix, now);
                    continue;
                }
                // Whoever has seen a certificate can ask for such a name, without being at its address.
                Verified::BadRequest if candidate.relayed => {}
                Verified::BadRequest => self.failed(*candidate.client_key.as_bytes(), candidate.prefix, now),
                Verified::Good => {}
            }
            if !candidate.known && candidate.generation == self.generation() {
                self.remember(candidate.digest, candidate.ends);
            }
        }
    }
}

#[cfg(test)]
mod tests;
