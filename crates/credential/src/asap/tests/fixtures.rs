//! First flights for tests, either valid or with one error.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::flight::Flow;
use crate::flight::{Claim, FirstFlight, Offered, Presented};
use crate::pending::PendingLimit;
use crate::policy::Quarantine;
use crate::replay::{GuardKey, ReplayTable, Window};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::asap::{
    AsapOption, BLOCK_LEN, Block, CertificateFlags, Encapsulation, RequestCertificate, RequestInput,
};
use firstflight_wire::{Clock, Instant, SeqNum};
use sha2::{Digest, Sha256};

/// The server's wall clock, Unix milliseconds.
pub(super) const NOW_MS: u64 = 1_800_000_000_000;
pub(super) const NOW: Instant = Instant::from_secs(1000);

pub(super) fn clock_at(now: Instant) -> Clock {
    Clock { mono: now, unix_ms: NOW_MS + (now - NOW).as_millis() as u64, uncertainty: Duration::ZERO }
}

/// A first flight. Its parts can be changed before it is signed.
#[derive(Clone)]
pub(super) struct Flight {
    pub verifier: PrivateKey,
    pub client: PrivateKey,
    pub address: IpAddr,
    pub valid_from: u32,
    pub duration: u32,
    pub vantage: u8,
    pub identity: Identity,
    pub requested_ms: u64,
    pub request_id: [u8; 8],
    pub padding: usize,
    pub data: Vec<u8>,
}

impl Flight {
    /// A request of client `n` at 10.0.n.1, made now.
    pub(super) fn of(n: u8) -> Self {
        Self {
            verifier: PrivateKey::from_seed(&[1; 32]),
            client: PrivateKey::from_seed(&[100 + n; 32]),
            address: IpAddr::from([10, 0, n, 1]),
            valid_from: (NOW_MS / 1000) as u32 - 60,
            duration: 1800,
            vantage: 1,
            identity: Identity::name("www.example.com", 80),
            requested_ms: NOW_MS,
            request_id: [n; 8],
            padding: 0,
            data: b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        }
    }

    /// Its certificate, and the input that its client signs.
    pub(super) fn parts(&self) -> (firstflight_wire::asap::CertificateBody, RequestInput) {
        let flags = CertificateFlags::new(self.vantage, true, false).unwrap();
        let public = self.client.public();
        let body =
            certify(&self.verifier, &public, self.address, self.valid_from, self.duration, flags).unwrap();
        let digest = CertificateDigest::of(&body, &self.verifier.public(), self.address);
        let input = RequestInput {
            encapsulation: Encapsulation::Ip,
            relayed: false,
            address: self.address,
            identity: *self.identity.digest(),
            block_len: (BLOCK_LEN + self.padding) as u32,
            data_len: self.data.len() as u32,
            data_digest: Sha256::digest(&self.data).into(),
            requested_ms: self.requested_ms,
            request_id: self.request_id,
            certificate: digest.0,
        };
        (body, input)
    }

    /// The block with this signature of the request.
    pub(super) fn with_signature(&self, signature: [u8; 64]) -> Block {
        let request = RequestCertificate {
            address_tag: address_tag(self.address),
            identity_tag: self.identity.tag(),
            requested_ms: self.requested_ms,
            request_id: self.request_id,
            signature,
        };
        Block { certificate: self.parts().0, request }
    }

    pub(super) fn block(&self) -> Block {
        self.with_signature(self.client.sign(&self.parts().1.to_bytes()))
    }

    /// The SYN's payload with `block`.
    pub(super) fn payload(&self, block: &Block) -> Vec<u8> {
        [&block.to_bytes()[..], &alloc::vec![0; self.padding], &self.data].concat()
    }

    /// The SYN with this payload, from the client's address.
    pub(super) fn syn<'a>(&self, payload: &'a [u8]) -> FirstFlight<'a> {
        let option = AsapOption::Block { long_reply: true, len: (BLOCK_LEN + self.padding) as u16 };
        FirstFlight {
            flow: Flow { client: self.address, server: [10, 0, 0, 1].into() },
            ports: (40_000, 80),
            isn: SeqNum::new(7),
            presented: Presented::None,
            claim: Claim::None,
            offered: Offered::AsapOption(option, Encapsulation::Ip),
            payload,
            relayed: false,
            syn_cookie_pressure: false,
        }
    }

    /// Examines the SYN with `block` under `policy`.
    pub(super) fn examine(
        &self,
        policy: &AsapPolicy,
        block: &Block,
        shard: &mut AsapShard,
        now: Instant,
    ) -> Result<Box<Candidate>, Refused> {
        let payload = self.payload(block);
        let len = (BLOCK_LEN + self.padding) as u16;
        policy.examine(&self.syn(&payload), len, Encapsulation::Ip, shard, &clock_at(now))
    }
}

/// A policy that trusts verifier 1, but not as its own, with a guard that started long ago.
pub(super) fn policy() -> AsapPolicy {
    let trusted = Trusted::new(PrivateKey::from_seed(&[1; 32]).public());
    let guard = ReplayTable::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS, 1 << 20, NOW_MS - 600_000);
    AsapPolicy {
        trust: Arc::new(TrustStore::new([trusted]).unwrap()),
        identities: [Identity::name("www.example.com", 80)].into(),
        guard: Arc::new(guard),
        domain: GuardDomain::All,
        pending: Arc::new(PendingLimit::new(256)),
        relayed: None,
        quarantine: Quarantine::Accepted,
    }
}

pub(super) fn shard() -> AsapShard {
    AsapShard::new(BudgetConfig::default())
}
