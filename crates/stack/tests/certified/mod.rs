//! Verifiers, certificates and listeners that take them.
#![allow(dead_code, reason = "each test file uses its part")]

use firstflight_credential::asap::{
    AsapPolicy, ClientCertificate, GuardDomain, Identity, PrivateKey, TrustStore, Trusted, certify,
};
use firstflight_credential::{GuardKey, PendingLimit, Quarantine, ReplayTable, Window};
use firstflight_stack::Certified;
use firstflight_wire::Instant;
use firstflight_wire::asap::{AsapOption, BLOCK_LEN, CertificateFlags, Encapsulation};
use firstflight_wire::tcp::OptionBytes;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The wall clock when a [`Pair`](crate::pair::Pair) begins, Unix milliseconds.
pub(crate) const NOW_MS: u64 = 1_800_000_000_000;
/// When the server's guard began: long enough ago to remember everything.
pub(crate) const GUARD_MS: u64 = NOW_MS - 600_000;

pub(crate) fn verifier(n: u8) -> PrivateKey {
    PrivateKey::from_seed(&[n; 32])
}

pub(crate) fn identity() -> Identity {
    Identity::name("www.example.com", 80)
}

/// Certifies the client at `address` for half an hour from the pair's beginning.
pub(crate) fn certificate(by: u8, client: u8, address: IpAddr) -> ClientCertificate {
    certificate_from(by, client, address, (NOW_MS / 1000) as u32)
}

pub(crate) fn certificate_from(by: u8, client: u8, address: IpAddr, valid_from: u32) -> ClientCertificate {
    certificate_with(by, client, address, valid_from, 1800, 1)
}

pub(crate) fn certificate_with(
    by: u8,
    client: u8,
    address: IpAddr,
    valid_from: u32,
    duration: u32,
    vantage: u8,
) -> ClientCertificate {
    let (verifier, key) = (verifier(by), PrivateKey::from_seed(&[client; 32]));
    let flags = CertificateFlags::new(vantage, true, false).unwrap();
    let body = certify(&verifier, &key.public(), address, valid_from, duration, flags).unwrap();
    ClientCertificate::new(body, verifier.public(), address, key, Instant::ZERO).unwrap()
}

/// What a SYN carries for one request: its option, its payload.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub option: Vec<u8>,
    pub payload: Vec<u8>,
}

/// The request number `id` with `data` to the usual server, `ms` after the certificate came.
pub(crate) fn request(certificate: &ClientCertificate, id: u8, data: &[u8], ms: u64) -> Request {
    request_to(&identity(), certificate, id, data, ms)
}

pub(crate) fn request_to(
    to: &Identity,
    certificate: &ClientCertificate,
    id: u8,
    data: &[u8],
    ms: u64,
) -> Request {
    let now = Instant::ZERO + Duration::from_millis(ms);
    let block = certificate.request(Encapsulation::Ip, to, data, [id; 8], now);
    let option = AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 };
    Request {
        option: OptionBytes::from(option).as_slice().to_vec(),
        payload: [&block.to_bytes()[..], data].concat(),
    }
}

/// A connect with `certificate` to a server that is known to take it.
pub(crate) fn certified(certificate: ClientCertificate, now: Instant) -> Certified {
    Certified {
        certificate: Arc::new(certificate),
        now,
        identity: identity(),
        known: true,
        once: false,
        mss: None,
        request_id: None,
    }
}

/// A listener's policy that trusts these verifiers as its own.
pub(crate) fn policy(verifiers: &[u8]) -> AsapPolicy {
    let trusted = verifiers.iter().map(|n| Trusted { own: true, ..Trusted::new(verifier(*n).public()) });
    AsapPolicy {
        trust: Arc::new(TrustStore::new(trusted).unwrap()),
        identities: [identity()].into(),
        guard: Arc::new(ReplayTable::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS, 1 << 20, GUARD_MS)),
        domain: GuardDomain::All,
        pending: Arc::new(PendingLimit::new(256)),
        relayed: None,
        quarantine: Quarantine::Accepted,
    }
}
