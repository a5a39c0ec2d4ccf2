//! The signatures of a first flight, and how they are verified: one by one, or in batches.

use super::budget::AsapShard;
use super::certificate::CertificateDigest;
use super::keys::PublicKey;
use super::refused::Refused;
use super::trust::BeforeAck;
use crate::identity::AcceptedBlock;
use crate::replay::ReplayId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use ed25519_zebra::{Signature, VerificationKeyBytes, batch};
use firstflight_wire::asap::{Status, VerifierId};
use firstflight_wire::{Clock, Instant};
use rand_core::CryptoRng;

/// The most requests in one batch.
pub const BATCH: usize = 64;

/// A first flight that passed all checks except those of its signatures. The driver verifies it and returns
/// it with a verdict.
pub struct Candidate {
    pub(super) certificate_input: [u8; 124],
    pub(super) certificate_signature: [u8; 64],
    pub(super) verifier: PublicKey,
    pub(super) verifier_id: VerifierId,
    pub(super) per_second: Option<u32>,
    pub(super) request_input: [u8; 170],
    pub(super) request_signature: [u8; 64],
    /// D of the request.
    pub(super) signed_len: u32,
    pub(super) client_key: PublicKey,
    /// Digest of the identity that the request is for.
    pub(super) identity: [u8; 32],
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
    /// Like `before_ack`, for a copy of the request that comes directly from the client.
    pub(super) before_ack_direct: BeforeAck,
    pub(super) request_id: [u8; 8],
}

impl Candidate {
    /// How much may be sent before the client's ACK, if the first flight is accepted.
    #[must_use]
    pub const fn before_ack(&self) -> BeforeAck {
        self.before_ack
    }

    /// For a request that a front handed over: its id, and how much may be sent before the client's ACK after
    /// a copy of the request has come from the client's address. Only the client that signed the request and
    /// the front that opened it know the id.
    #[must_use]
    pub fn direct_copy(&self) -> Option<([u8; 8], BeforeAck)> {
        self.relayed.then_some((self.request_id, self.before_ack_direct))
    }

    /// How many of its signatures must be verified.
    #[must_use]
    pub const fn signatures(&self) -> u8 {
        if self.known { 1 } else { 2 }
    }

    /// First two bytes of the request's id, for the reply.
    #[must_use]
    pub const fn tag(&self) -> [u8; 2] {
        self.tag
    }

    /// The client's key and when its certificate ends (Unix seconds), for [`AsapShard::block`].
    #[must_use]
    pub const fn client(&self) -> (&[u8; 32], u64) {
        (self.client_key.as_bytes(), self.ends)
    }

    /// What the block says of its client's request. It is true once the signatures are verified.
    #[must_use]
    pub const fn block(&self) -> AcceptedBlock {
        AcceptedBlock {
            client_key: *self.client_key.as_bytes(),
            request_id: self.request_id,
            identity: self.identity,
        }
    }

    /// Checks that it is still valid after verification. In the meantime the trust store may have changed,
    /// which revokes at once, or the key or the address may have been barred.
    ///
    /// # Errors
    /// The refusal, with the status for the client.
    pub fn stands(&self, shard: &AsapShard, clock: &Clock) -> Result<(), Refused> {
        if self.generation != shard.generation() {
            return Err(Refused::new(Status::UnknownVerifier, self.tag));
        }
        if shard.is_barred(self.client_key.as_bytes(), self.client, clock.mono) {
            return Err(Refused::new(Status::Barred, self.tag));
        }
        Ok(())
    }

    /// D: how many bytes of data the block's signature covers. What followed the SYN is not among them.
    #[must_use]
    pub const fn signed_len(&self) -> u32 {
        self.signed_len
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

/// The result of the verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// Both signatures are valid.
    Good,
    /// The verifier did not sign the certificate.
    BadCertificate,
    /// The client did not sign the request.
    BadRequest,
}

/// Verifies all `candidates`. The verdicts are in the same order. The function uses no shared state, so it
/// may run on any thread.
///
/// Single and batched verification agree on every input (ZIP 215). Only requests under valid certificates go
/// into a batch. A batch that fails is halved until the invalid requests are found. `rng` must be fit for
/// secrets: an attacker who can predict its numbers can make invalid signatures that a batch accepts.
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

/// Finds the invalid requests of `part`.
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
    /// Updates the shard's memory with the verdicts on `candidates`, which were verified together.
    pub fn learn(&mut self, candidates: &[Box<Candidate>], verdicts: &[Verified], now: Instant) {
        // Under an invalid certificate the request is not verified, neither alone nor in a batch.
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
                    // An attacker can put any key into an invalid certificate, so the key is not blamed.
                    self.suspect(candidate.prefix, now);
                    continue;
                }
                // Anyone who has seen a certificate can send a DNS lookup with it, without being at its
                // address. So neither the key nor the prefix is blamed.
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
