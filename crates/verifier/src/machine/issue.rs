//! Issues a certificate to a client whose address is proved.

use super::{Refusal, Verifier};
use crate::challenge::unix_seconds;
use crate::config::Issuer;
use crate::expiry::{SHORTEST, backdated, duration, seen_for};
use crate::token;
use firstflight_credential::asap::{PublicKey, certify, is_certified};
use firstflight_wire::Clock;
use firstflight_wire::asap::message::{Reason, Renewal, Request};
use firstflight_wire::asap::{CertificateBody, CertificateFlags};
use rand_core::CryptoRng;
use std::net::IpAddr;
use std::time::Duration;

/// How wrong the wall clock may be when a certificate is made: servers take requests that are this much ahead of theirs
/// (`docs/spec/asap.md` §7.5).
const UNCERTAINTY: Duration = Duration::from_secs(10);

impl Verifier {
    /// Certifies a client that was seen at `address`, if all other checks pass.
    pub(super) fn issue(
        &mut self,
        clock: &Clock,
        address: IpAddr,
        request: &Request,
        rng: &mut impl CryptoRng,
    ) -> Result<CertificateBody, Refusal> {
        self.admit(clock, address)?;
        if clock.uncertainty > UNCERTAINTY {
            return Err(Refusal::for_now(Reason::Overloaded, UNCERTAINTY));
        }
        let issuer = self.config.issuer.as_ref().ok_or(Reason::NotAnIssuer)?;
        let now = unix_seconds(clock);
        let client = PublicKey::from_bytes(request.client_key);
        if !client.is_sound() {
            return Err(Reason::UnsoundKey.into());
        }
        token::check(&issuer.group, &request.tokens, address, &request.client_key, now)
            .map_err(|(reason, id)| Refusal { reason, vantage: Some(id), retry_after: 0 })?;
        if request.wished < SHORTEST {
            return Err(Reason::TooShort.into());
        }
        let old = match &request.old {
            Some(renewal) => Some((renewal, signer(issuer, &renewal.certificate, now)?)),
            None => None,
        };

        // One signature to verify and one to make. A refresh has two more to verify.
        let cost = if old.is_some() { 4 } else { 2 };
        let affordable = self.limits.afford(cost, clock.mono);
        affordable.map_err(|wait| Refusal::for_now(Reason::Overloaded, wait))?;
        let input = request.signing_input(issuer.key.public().as_bytes());
        self.counters.signatures_verified += 1;
        if !client.verifies(input.as_slice(), &request.signature) {
            return Err(Reason::BadSignature.into());
        }
        let seen = match old {
            Some((Renewal { certificate, signature }, signer)) => {
                self.counters.signatures_verified += 2;
                let holder = PublicKey::from_bytes(certificate.client_key);
                let good = is_certified(certificate, &signer, address)
                    && holder.is_sound()
                    && holder.verifies(input.as_slice(), signature);
                if !good {
                    return Err(Reason::OldCertificate.into());
                }
                seen_for(now, certificate.valid_from, certificate.duration())
            }
            None => 0,
        };

        let lasts = duration(request.wished, issuer.longest, issuer.first, seen);
        let valid_from = now.saturating_sub(rng.next_u32() % (backdated(lasts) + 1));
        // The issuer counts as one vantage point. The configuration allows at most seven others.
        let vantage = u8::try_from(issuer.group.len() + 1).unwrap_or(u8::MAX);
        let certified = CertificateFlags::new(vantage, true, request.old.is_some())
            .and_then(|flags| certify(&issuer.key, &client, address, valid_from, lasts, flags));
        self.counters.signatures_made += 1;
        certified.ok_or(Refusal::from(Reason::TooShort))
    }
}

/// The issuer's key that an old certificate names, if its times say that it is valid now.
fn signer(issuer: &Issuer, old: &CertificateBody, now: u32) -> Result<PublicKey, Refusal> {
    let mut own = std::iter::once(issuer.key.public()).chain(issuer.retired.iter().copied());
    let signer = own.find(|key| key.id() == old.verifier);
    let valid = old.valid_from <= now && u64::from(now) <= old.ends();
    signer.filter(|_| valid).ok_or(Refusal::from(Reason::OldCertificate))
}
