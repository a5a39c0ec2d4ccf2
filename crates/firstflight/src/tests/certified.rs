//! A server that takes first flights from fronts, and a client's certificate.
#![allow(clippy::unwrap_used, dead_code, reason = "tests")]

use firstflight::credential::asap::{
    AsapPolicy, ClientCertificate, GuardDomain, Identity, PrivateKey, TrustStore, Trusted, certify,
};
use firstflight::credential::{PendingLimit, Quarantine, ReplayTable, Window};
use firstflight::{Certified, ConnectConfig};
use firstflight_wire::Instant;
use firstflight_wire::asap::CertificateFlags;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

pub(crate) const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(crate) const PORT: u16 = 80;

pub(crate) fn identity() -> Identity {
    Identity::name("www.example.com", PORT)
}

/// Trusts `verifier`. The replay guard behaves as if it had started ten minutes ago.
pub(crate) fn policy(verifier: &PrivateKey) -> AsapPolicy {
    let now = firstflight::unix_ms();
    let key = firstflight::random_guard_key().unwrap();
    AsapPolicy {
        trust: Arc::new(TrustStore::new([Trusted::new(verifier.public())]).unwrap()),
        identities: [identity()].into(),
        guard: Arc::new(ReplayTable::new(key, Window::REQUESTS, 1 << 20, now - 600_000)),
        domain: GuardDomain::All,
        pending: Arc::new(PendingLimit::new(64)),
        relayed: Some(Arc::new(PendingLimit::with_clients(64, 4))),
        quarantine: Quarantine::Accepted,
    }
}

/// Settings for a connection to [`identity`] at this UDP port, with `certificate` for its first flight.
pub(crate) fn connect_config(certificate: &Arc<ClientCertificate>, encapsulation: u16) -> ConnectConfig {
    let certified = Certified {
        certificate: Arc::clone(certificate),
        now: Instant::ZERO,
        identity: identity(),
        known: true,
        once: false,
        mss: None,
        request_id: None,
    };
    ConnectConfig::default().asap(Some(certified)).encapsulation(Some(encapsulation))
}

/// The client's certificate. It begins `age` seconds ago and was obtained at `obtained` on the client's clock.
pub(crate) fn certificate(verifier: &PrivateKey, age: u32, obtained: Instant) -> ClientCertificate {
    let key = PrivateKey::from_seed(&[2; 32]);
    let flags = CertificateFlags::new(1, true, false).unwrap();
    let begins = (firstflight::unix_ms() / 1000) as u32 - age;
    let body = certify(verifier, &key.public(), LOCAL, begins, 1800, flags).unwrap();
    ClientCertificate::new(body, verifier.public(), LOCAL, key, obtained).unwrap()
}
