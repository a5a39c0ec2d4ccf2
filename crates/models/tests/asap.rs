//! What the models of certificates share: a request that a client has signed, and policies that trust its verifier.
//!
//! Signatures are not what is modelled: all copies are copies of an honest request, whose signatures are good.

use firstflight_credential::asap::{
    AsapPolicy, GuardDomain, Identity, PrivateKey, TrustStore, Trusted, address_tag, certify,
};
use firstflight_credential::pending::PendingLimit;
use firstflight_credential::{Claim, FirstFlight, Flow, Offered, Presented, Quarantine, ReplayGuard};
use firstflight_wire::SeqNum;
use firstflight_wire::asap::{
    AsapOption, BLOCK_LEN, Block, CertificateBody, CertificateFlags, Encapsulation, RequestCertificate,
};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

/// The wall clock at the beginning, Unix milliseconds.
pub(super) const BEGIN_MS: u64 = 1_800_000_000_000;
const CLIENT: [u8; 4] = [192, 0, 2, 1];

/// The payload of a SYN with a request that was made this much after the beginning, by its client's clock.
pub(super) fn payload(made_ms: i64) -> Vec<u8> {
    static CERTIFICATE: OnceLock<CertificateBody> = OnceLock::new();
    let address = IpAddr::from(CLIENT);
    let certificate = *CERTIFICATE.get_or_init(|| {
        let (verifier, client) = (PrivateKey::from_seed(&[1; 32]), PrivateKey::from_seed(&[2; 32]));
        let flags = CertificateFlags::new(1, true, false).unwrap();
        let begins = (BEGIN_MS / 1000) as u32 - 600;
        certify(&verifier, &client.public(), address, begins, 1800, flags).unwrap()
    });
    let request = RequestCertificate {
        address_tag: address_tag(address),
        identity_tag: identity().tag(),
        requested_ms: BEGIN_MS.saturating_add_signed(made_ms),
        request_id: [7; 8],
        signature: [0; 64],
    };
    [&Block { certificate, request }.to_bytes()[..], b"POST /order HTTP/1.1\r\n\r\n"].concat()
}

/// The SYN with this payload.
pub(super) fn syn(payload: &[u8]) -> FirstFlight<'_> {
    FirstFlight {
        flow: Flow { client: CLIENT.into(), server: [198, 51, 100, 1].into() },
        ports: (40_000, 80),
        isn: SeqNum::new(7),
        presented: Presented::None,
        claim: Claim::None,
        offered: Offered::AsapOption(
            AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 },
            Encapsulation::Ip,
        ),
        payload,
        relayed: false,
        syn_cookie_pressure: false,
    }
}

/// The client's verifier, or another one.
pub(super) fn trust(right: bool) -> Arc<TrustStore> {
    static STORES: OnceLock<[Arc<TrustStore>; 2]> = OnceLock::new();
    let stores = STORES.get_or_init(|| {
        [3, 1].map(|seed| {
            let key = PrivateKey::from_seed(&[seed; 32]).public();
            Arc::new(TrustStore::new([Trusted::new(key)]).unwrap())
        })
    });
    Arc::clone(&stores[usize::from(right)])
}

pub(super) fn policy(guard: Arc<dyn ReplayGuard>) -> AsapPolicy {
    AsapPolicy {
        trust: trust(true),
        identities: [identity()].into(),
        guard,
        domain: GuardDomain::All,
        pending: permits(),
        relayed: None,
        quarantine: Quarantine::Accepted,
    }
}

/// More permits than are taken. A table of clients is large, so all worlds have one.
pub(super) fn permits() -> Arc<PendingLimit> {
    static PLACES: OnceLock<Arc<PendingLimit>> = OnceLock::new();
    Arc::clone(PLACES.get_or_init(|| Arc::new(PendingLimit::with_clients(u32::MAX, u32::MAX))))
}

pub(super) fn identity() -> Identity {
    Identity::name("www.example.com", 80)
}
