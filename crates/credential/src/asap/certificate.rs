//! Certificates: issued by a verifier, used by a client.

use super::identity::address_tag;
use super::keys::{PrivateKey, PublicKey};
use crate::identity::AcceptedBlock;
use crate::identity::Identity;
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Instant;
use firstflight_wire::asap::{
    BLOCK_LEN, Block, CertificateBody, CertificateFlags, Encapsulation, RequestCertificate, RequestInput,
    certificate_input,
};
use sha2::{Digest, Sha256};

/// SHA-256 of a whole certificate: the signed input and the signature. The input contains the address, the
/// client's key and the verifier's key, so the certificates of two clients never share a digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CertificateDigest(pub(super) [u8; 32]);

impl CertificateDigest {
    /// The digest of `body` for the client at `address`, as issued by the verifier with the key `verifier`.
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

/// Certifies that `client` is at `address` from `valid_from` (Unix seconds) for `duration` seconds. `None` if
/// a certificate cannot express this duration. The caller must have checked that the client is at the
/// address, and that the key [is sound](PublicKey::is_sound).
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

/// A certificate and its private key, as the client holds them.
///
/// The time of a request is counted from the arrival of the certificate, on the monotonic clock. The client's
/// wall clock, and what servers say about theirs, are not used. Otherwise an attacker who could move that
/// clock could make the client sign for a future time, drop the request, and send it at that time.
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
    /// The certificate `body` for `key` by `verifier`, for the client that was seen at `address`. `obtained`
    /// is a time of a monotonic clock that also runs while the machine sleeps. `None` if the certificate is
    /// not for this key, or not signed by the verifier.
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

    /// The signed certificate.
    #[must_use]
    pub const fn body(&self) -> &CertificateBody {
        &self.body
    }

    /// The key of the verifier that signed it.
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

    /// When it arrived.
    #[must_use]
    pub const fn obtained(&self) -> Instant {
        self.obtained
    }

    /// How long it is still valid at `now`.
    #[must_use]
    pub fn remaining(&self, now: Instant) -> Duration {
        self.body.lasts().saturating_sub(now.saturating_since(self.obtained))
    }

    /// The time of a request that is made at `now`, by the verifier's clock, Unix milliseconds.
    #[must_use]
    pub fn requested_ms(&self, now: Instant) -> u64 {
        let passed = now.saturating_since(self.obtained).as_millis() as u64;
        (u64::from(self.body.valid_from) * 1000).saturating_add(passed) & ((1 << 48) - 1)
    }

    /// Signs a request, and returns the block that goes in front of `data` in the SYN. `request_id` is
    /// random, and every copy of one request has this id.
    #[must_use]
    pub fn request(
        &self,
        encapsulation: Encapsulation,
        identity: &Identity,
        data: &[u8],
        request_id: [u8; 8],
        now: Instant,
    ) -> Block {
        self.sign(encapsulation, false, identity, data, request_id, now)
    }

    /// Like [`ClientCertificate::request`], for the copy that goes to the server by a front, in UDP
    /// (`docs/spec/dns-path.md` §3).
    #[must_use]
    pub fn request_by_front(
        &self,
        identity: &Identity,
        data: &[u8],
        request_id: [u8; 8],
        now: Instant,
    ) -> Block {
        self.sign(Encapsulation::Udp, true, identity, data, request_id, now)
    }

    /// What a server sees of the block of a request with this id, if it accepts it.
    #[must_use]
    pub const fn block(&self, identity: &Identity, request_id: [u8; 8]) -> AcceptedBlock {
        AcceptedBlock { client_key: self.body.client_key, request_id, identity: *identity.digest() }
    }

    fn sign(
        &self,
        encapsulation: Encapsulation,
        relayed: bool,
        identity: &Identity,
        data: &[u8],
        request_id: [u8; 8],
        now: Instant,
    ) -> Block {
        let requested_ms = self.requested_ms(now);
        let input = RequestInput {
            encapsulation,
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
