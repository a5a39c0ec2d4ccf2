//! Certificates: issued by a verifier, used by a client.

use super::identity::{Identity, address_tag};
use super::keys::{PrivateKey, PublicKey};
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Instant;
use firstflight_wire::asap::{
    BLOCK_LEN, Block, Carrier, CertificateBody, CertificateFlags, RequestCertificate, RequestInput,
    certificate_input,
};
use sha2::{Digest, Sha256};

/// SHA-256 of a whole certificate: what was signed and the signature. It contains the address and the
/// verifier's key, so two clients' certificates never share it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CertificateDigest(pub(super) [u8; 32]);

impl CertificateDigest {
    /// The digest of `body` for the client at `address`, as given by the verifier with `verifier`.
    #[must_use]
    pub fn of(body: &CertificateBody, verifier: &PublicKey, address: IpAddr) -> Self {
        let input = certificate_input(body, verifier.as_bytes(), address);
        Self(Sha256::new_with_prefix(input).chain_update(body.signature).finalize().into())
    }

    /// The digest, as requests sign it.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Debug for CertificateDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateDigest(..)")
    }
}

/// Certifies that `client` is at `address` from `valid_from` (Unix seconds) for `duration` seconds; `None`
/// if that is longer than a certificate can say. The caller has checked that it is so, and that the key
/// [is sound](PublicKey::is_sound).
#[must_use]
pub fn certify(
    verifier: &PrivateKey,
    client: &PublicKey,
    address: IpAddr,
    valid_from: u32,
    duration: u32,
    flags: CertificateFlags,
) -> Option<CertificateBody> {
    let public = verifier.public();
    let mut body =
        CertificateBody::new(public.id(), *client.as_bytes(), valid_from, duration, flags, [0; 64])?;
    body.signature = verifier.sign(&certificate_input(&body, public.as_bytes(), address));
    Some(body)
}

/// Whether `verifier` signed `body` for `address`.
#[must_use]
pub fn is_certified(body: &CertificateBody, verifier: &PublicKey, address: IpAddr) -> bool {
    let input = certificate_input(body, verifier.as_bytes(), address);
    body.verifier == verifier.id() && verifier.verifies(&input, &body.signature)
}

/// A certificate in the hands of its client.
///
/// Its time is counted from the moment it came, on the monotonic clock: the client's wall clock, and what
/// servers say about theirs, have no say in when a request was made. Whoever could move that clock could
/// make the client sign for a moment to come, swallow the request and send it then.
#[derive(Clone)]
pub struct ClientCertificate {
    body: CertificateBody,
    verifier: PublicKey,
    address: IpAddr,
    key: PrivateKey,
    obtained: Instant,
    digest: CertificateDigest,
}

impl ClientCertificate {
    /// The certificate `body` for `key`, by `verifier`, for the client as seen at `address`; `obtained` on a
    /// monotonic clock that runs while the machine sleeps. `None` if it is not this key's or not signed by
    /// the verifier.
    #[must_use]
    pub fn new(
        body: CertificateBody,
        verifier: PublicKey,
        address: IpAddr,
        key: PrivateKey,
        obtained: Instant,
    ) -> Option<Self> {
        let own = body.client_key == *key.public().as_bytes();
        let digest = CertificateDigest::of(&body, &verifier, address);
        (own && is_certified(&body, &verifier, address)).then_some(Self {
            body,
            verifier,
            address,
            key,
            obtained,
            digest,
        })
    }

    /// What the verifier signed.
    #[must_use]
    pub const fn body(&self) -> &CertificateBody {
        &self.body
    }

    /// Who signed it.
    #[must_use]
    pub const fn verifier(&self) -> &PublicKey {
        &self.verifier
    }

    /// The client's address as the verifier saw it.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The client's key.
    #[must_use]
    pub const fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// When it came.
    #[must_use]
    pub const fn obtained(&self) -> Instant {
        self.obtained
    }

    /// How long it is still good at `now`.
    #[must_use]
    pub fn remaining(&self, now: Instant) -> Duration {
        self.body.lasts().saturating_sub(now.saturating_since(self.obtained))
    }

    /// When a request of `now` was made, by the verifier's clock, Unix milliseconds.
    #[must_use]
    pub fn requested_ms(&self, now: Instant) -> u64 {
        let passed = now.saturating_since(self.obtained).as_millis() as u64;
        (u64::from(self.body.valid_from) * 1000).saturating_add(passed) & ((1 << 48) - 1)
    }

    /// Signs a request: the block that goes in front of `data` in the SYN. `request_id` is random, and the
    /// same for every copy of one request.
    #[must_use]
    pub fn request(
        &self,
        carrier: Carrier,
        identity: &Identity,
        data: &[u8],
        request_id: [u8; 8],
        now: Instant,
    ) -> Block {
        self.sign(carrier, false, identity, data, request_id, now)
    }

    /// The same for the copy that goes to the server by a front, in UDP (`docs/spec/dns-carriage.md` §3).
    #[must_use]
    pub fn request_by_front(
        &self,
        identity: &Identity,
        data: &[u8],
        request_id: [u8; 8],
        now: Instant,
    ) -> Block {
        self.sign(Carrier::Udp, true, identity, data, request_id, now)
    }

    fn sign(
        &self,
        carrier: Carrier,
        relayed: bool,
        identity: &Identity,
        data: &[u8],
        request_id: [u8; 8],
        now: Instant,
    ) -> Block {
        let requested_ms = self.requested_ms(now);
        let input = RequestInput {
            carrier,
            relayed,
            address: self.address,
            identity: *identity.digest(),
            block_len: BLOCK_LEN as u32,
            data_len: data.len() as u32,
            data_digest: Sha256::digest(data).into(),
            requested_ms,
            request_id,
            certificate: self.digest.0,
        };
        let request = RequestCertificate {
            address_tag: address_tag(self.address),
            identity_tag: identity.tag(),
            requested_ms,
            request_id,
            signature: self.key.sign(&input.to_bytes()),
        };
        Block { certificate: self.body, request }
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate")
            .field("body", &self.body)
            .field("address", &self.address)
            .field("obtained", &self.obtained)
            .finish_non_exhaustive()
    }
}
