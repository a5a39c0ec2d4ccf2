//! Certificates, requests, and listeners that accept them.

use crate::attack::world::spoof;
use firstflight_credential::asap::{
    AsapPolicy, ClientCertificate, GuardDomain, Identity, PrivateKey, TrustStore, Trusted, address_tag,
    certify,
};
use firstflight_credential::{PendingLimit, Quarantine, ReplayGuard};
use firstflight_stack::{Certified, ConnectConfig};
use firstflight_wire::Instant;
use firstflight_wire::asap::{
    AsapOption, BLOCK_LEN, Block, CertificateBody, CertificateFlags, Encapsulation, RequestCertificate,
    RequestInput, certificate_input,
};
use firstflight_wire::tcp::{OptionBytes, OptionsBuf};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;
use sha2::{Digest, Sha256};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Duration of a first certificate, seconds (asap.md, 5.6).
pub const LASTS: u32 = 1800;

/// The verifier that servers trust.
pub fn verifier() -> PrivateKey {
    PrivateKey::from_seed(&[1; 32])
}

/// The server's identity.
pub fn identity() -> Identity {
    Identity::name("www.example.com", 80)
}

/// A key derived from `random`.
pub fn key(random: &mut ChaCha20Rng) -> PrivateKey {
    PrivateKey::generate(random)
}

/// A certificate by [`verifier`] that reaches the client at `address` at `now`, which is `unix_s` on the verifier's
/// clock. It lasts `lasts` seconds and was seen from `vantage` points.
pub fn certificate(
    key: PrivateKey,
    address: IpAddr,
    (now, unix_s): (Instant, u64),
    (lasts, vantage): (u32, u8),
) -> Option<ClientCertificate> {
    let verifier = verifier();
    let flags = CertificateFlags::new(vantage, true, false)?;
    let body = certify(&verifier, &key.public(), address, u32::try_from(unix_s).ok()?, lasts, flags)?;
    ClientCertificate::new(body, verifier.public(), address, key, now)
}

/// A policy that accepts certificates by [`verifier`], which it trusts as its `own` or as a foreign one.
pub fn policy(own: bool, guard: Arc<dyn ReplayGuard>, pending: &Arc<PendingLimit>) -> Option<AsapPolicy> {
    let trusted = Trusted { own, ..Trusted::new(verifier().public()) };
    Some(AsapPolicy {
        trust: Arc::new(TrustStore::new([trusted]).ok()?),
        identities: [identity()].into(),
        guard,
        domain: GuardDomain::All,
        pending: Arc::clone(pending),
        relayed: None,
        quarantine: Quarantine::Accepted,
    })
}

/// Settings to connect with `certificate` to a server that is known to accept it.
pub fn connect(certificate: &Arc<ClientCertificate>, now: Instant) -> ConnectConfig {
    let certificate = Arc::clone(certificate);
    let asap = Certified {
        certificate,
        now,
        identity: identity(),
        known: true,
        once: false,
        mss: None,
        request_id: None,
    };
    ConnectConfig::default().asap(Some(asap)).replay_safe(true)
}

/// SHA-256 of a certificate, computed as if it were valid for `address`.
pub fn digest(body: &CertificateBody, address: IpAddr) -> [u8; 32] {
    let input = certificate_input(body, verifier().public().as_bytes(), address);
    Sha256::new_with_prefix(input).chain_update(body.signature).finalize().into()
}

/// A request that any holder of `key` can make, not only an honest client.
#[derive(Debug)]
pub struct Forge<'a> {
    /// The certificate in the request.
    pub body: CertificateBody,
    /// The digest of the certificate that is signed.
    pub digest: [u8; 32],
    /// The key that signs.
    pub key: &'a PrivateKey,
    /// The address in the request.
    pub address: IpAddr,
    /// The time of the request, Unix milliseconds.
    pub requested_ms: u64,
    /// Zeros after the block, bytes.
    pub padding: usize,
}

impl Forge<'_> {
    /// The block before `data`, padding included.
    pub fn block(&self, data: &[u8], random: &mut ChaCha20Rng) -> Vec<u8> {
        let request_id = random.next_u64().to_be_bytes();
        let len = BLOCK_LEN + self.padding;
        let input = RequestInput {
            encapsulation: Encapsulation::Ip,
            relayed: false,
            address: self.address,
            identity: *identity().digest(),
            block_len: len as u32,
            data_len: data.len() as u32,
            data_digest: Sha256::digest(data).into(),
            requested_ms: self.requested_ms,
            request_id,
            certificate: self.digest,
        };
        let signature = self.key.sign(&input.to_bytes());
        let mut block = unsigned(self.body, self.address, self.requested_ms, request_id, signature);
        block.resize(len, 0);
        block
    }
}

/// A block with an arbitrary `signature`, which costs its sender nothing.
pub fn unsigned(
    certificate: CertificateBody,
    address: IpAddr,
    requested_ms: u64,
    request_id: [u8; 8],
    signature: [u8; 64],
) -> Vec<u8> {
    let request = RequestCertificate {
        address_tag: address_tag(address),
        identity_tag: identity().tag(),
        requested_ms,
        request_id,
        signature,
    };
    Block { certificate, request }.to_bytes().to_vec()
}

/// A SYN with `block` before `data`, from any address, with as few options as possible.
pub fn syn(from: SocketAddr, to: IpAddr, isn: u32, block: &[u8], data: &[u8]) -> Vec<u8> {
    let mut options = OptionsBuf::new();
    let fits = options.mss(1460);
    debug_assert!(fits, "4 bytes of 40");
    syn_with(options, from, to, isn, block, data)
}

/// Like [`syn`], with other options in addition to ASAP's.
pub fn syn_with(
    mut options: OptionsBuf,
    from: SocketAddr,
    to: IpAddr,
    isn: u32,
    block: &[u8],
    data: &[u8],
) -> Vec<u8> {
    let option = OptionBytes::from(AsapOption::Block { long_reply: true, len: block.len() as u16 });
    let fits = options.raw(option.as_slice());
    debug_assert!(fits, "8 bytes of 40");
    spoof(from, to, isn, &mut options, &[block, data].concat())
}
