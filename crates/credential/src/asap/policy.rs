//! How a listener treats certificates, and the checks of the server. Each check costs less than the next one,
//! and the first failure ends them (`docs/spec/asap.md`).

use super::budget::{AsapShard, Lane};
use super::certificate::CertificateDigest;
use super::identity::address_tag;
use super::keys::PublicKey;
use super::refused::Refused;
use super::trust::{BeforeAck, TrustStore, Trusted};
use super::verify::{Candidate, Verified};
use crate::flight::{Decision, FirstFlight, JobRequest, Offered};
use crate::identity::Identity;
use crate::pending::{PendingLimit, prefix};
use crate::policy::Quarantine;
use crate::replay::guard::millis;
use crate::replay::{Guarded, ReplayGuard, ReplayId, Unreported, Window};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Clock;
use firstflight_wire::asap::{
    AsapOption, Block, Encapsulation, Hint, RequestInput, Status, certificate_input,
};
use sha2::{Digest, Sha256};

/// Limits of first flights that fronts hand over (`docs/spec/dns-path.md` §9): the age of the
/// certificate, the age of the request, and the bytes sent before the client's ACK as a multiple of those
/// received. A client that has left its address can attack the next user of the address for at most an hour,
/// and with little effect.
const RELAYED_AGE: Duration = Duration::from_secs(60 * 60);
const RELAYED_PAST: Duration = Duration::from_secs(30);
const RELAYED_TIMES: u32 = 3;

/// Which servers share the replay guard of an identity. Each guard accepts a request once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GuardDomain {
    /// All servers of the identity share one guard, or there is only one server. Each request is executed at
    /// most once.
    #[default]
    All,
    /// Servers with separate guards share the identity (anycast, several addresses). An eavesdropper can have
    /// a request executed once at each of them, so early data is delivered only as replayable.
    Site,
}

/// How a listener treats certificates. The parts behind an [`Arc`] are shared by its shards.
#[derive(Clone)]
pub struct AsapPolicy {
    /// The trusted verifiers.
    pub trust: Arc<TrustStore>,
    /// The identities by which clients may address this server.
    pub identities: Arc<[Identity]>,
    /// Remembers the accepted requests. Its window is [`Window::REQUESTS`] or wider, and its clock is Unix
    /// time in milliseconds.
    pub guard: Arc<dyn ReplayGuard>,
    /// Which servers share the guard.
    pub domain: GuardDomain,
    /// How many first flights may wait for their client's ACK. The listener's Fast Open policy may share it.
    pub pending: Arc<PendingLimit>,
    /// How many first flights that fronts handed over ([`FirstFlight::relayed`]) may wait for their client's
    /// ACK. No client may have more than 4 of them ([`PendingLimit::with_clients`];
    /// `docs/spec/dns-path.md` §9). `None`: none are accepted.
    pub relayed: Option<Arc<PendingLimit>>,
    /// Which connections that end by RST keep their permit for a while.
    pub quarantine: Quarantine,
}

impl fmt::Debug for AsapPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsapPolicy")
            .field("identities", &self.identities)
            .field("domain", &self.domain)
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

/// First two bytes of a request's id.
const fn tag(block: &Block) -> [u8; 2] {
    let [a, b, ..] = block.request.request_id;
    [a, b]
}

/// The block of a first flight, if it can be read.
fn read(first: &FirstFlight<'_>) -> Option<Block> {
    let Offered::AsapOption(AsapOption::Block { len, .. }, _) = first.offered else { return None };
    Block::parse(first.payload.get(..usize::from(len))?).ok()
}

impl AsapPolicy {
    /// Sets the hash key of the limits' client tables to a random number, so that an attacker cannot choose
    /// addresses that collide in them. The first key stays.
    pub fn key(&self, key: u64) {
        self.pending.key(key);
        if let Some(relayed) = &self.relayed {
            relayed.key(key);
        }
    }

    /// Replaces the trusted verifiers. Those that are new, or may certify more than before, are closed for every request
    /// that is in time now: one of these requests may have been refused because it was not trusted, and executed after
    /// the ordinary handshake that followed. The requests of the other verifiers go on.
    pub fn set_trust(&mut self, trust: Arc<TrustStore>, clock: &Clock) {
        let time = self.guard.observe(clock);
        // When an uncertain clock becomes certain, the guard closes by itself.
        let certain = clock.uncertainty <= Window::REQUESTS.future;
        let floor = if certain { time.saturating_add(millis(Window::REQUESTS.future)) } else { 0 };
        self.trust = Arc::new(trust.in_place_of(&self.trust, floor));
    }

    /// Whether a listener with this policy can accept requests that one with `other` refuses: it trusts more,
    /// or has further identities. The answer may be a false yes, but never a false no.
    #[must_use]
    pub fn admits_more_than(&self, other: &Self) -> bool {
        let named =
            |identity: &Identity| other.identities.iter().any(|known| known.digest() == identity.digest());
        self.trust.admits_more_than(&other.trust) || !self.identities.iter().all(named)
    }

    /// Closes the guard for every request that is in time now. A server calls this when it begins to accept requests
    /// that it refused until now.
    pub fn close(&self, clock: &Clock) {
        let time = self.guard.observe(clock);
        // When an uncertain clock becomes certain, the guard closes by itself.
        if clock.uncertainty <= Window::REQUESTS.future {
            self.guard.raise_floor(time.saturating_add(millis(Window::REQUESTS.future)));
        }
    }

    /// Checks everything but the signatures of a block of `len` bytes at the start of `first`'s payload.
    ///
    /// # Errors
    /// The first check that failed.
    pub fn examine(
        &self,
        first: &FirstFlight<'_>,
        len: u16,
        encapsulation: Encapsulation,
        shard: &mut AsapShard,
        clock: &Clock,
    ) -> Result<Box<Candidate>, Refused> {
        let malformed = Refused::new(Status::Malformed, [0; 2]);
        let (bytes, data) = first.payload.split_at_checked(usize::from(len)).ok_or(malformed)?;
        let block = Block::parse(bytes).map_err(|_| malformed)?;
        let now_s = clock.unix_ms / 1000;
        let guards_ms = self.guard.observe(clock);
        let trusted = self.trusts(&block, first, clock)?;
        let refuse = |status| Refused::new(status, tag(&block));
        let identity = self.identity(&block).ok_or(refuse(Status::WrongIdentity))?;
        self.in_time(&block, trusted, first, clock)?;
        // The store is told of what is refused for a floor. It is told of few blocks whose signatures were not verified,
        // and after a start every honest request is below the floor. So they are verified first, and refused then.
        let first_verified = self.guard.needs_store();
        if self.trust.is_closed(block.certificate.verifier, block.request.requested_ms) && !first_verified {
            return Err(refuse(Status::GuardFloor));
        }
        if guards_ms > clock.unix_ms {
            // The clock went back. A request that was too old before stays too old.
            let latest = Clock { unix_ms: guards_ms, ..*clock };
            self.in_time(&block, trusted, first, &latest).map_err(|_| refuse(Status::GuardFloor))?;
        }
        let replay = self.replay_id(&block, identity, first);
        match self.guard.look_up(replay, block.request.requested_ms, clock.unix_ms) {
            Guarded::Seen => return Err(refuse(Status::Replayed)),
            Guarded::Floor if !first_verified => return Err(refuse(Status::GuardFloor)),
            Guarded::New | Guarded::Ask(_) | Guarded::Floor => {}
        }
        let address = first.flow.client;
        let client_key = PublicKey::from_bytes(block.certificate.client_key);
        let prefix = prefix(address);
        let digest = CertificateDigest::of(&block.certificate, &trusted.key, address);
        let known = shard.knows(&digest, now_s);
        let lane = match (first.relayed, known) {
            (true, _) => Lane::Relayed,
            (false, true) => Lane::Known,
            (false, false) => Lane::New,
        };
        if shard.is_barred(client_key.as_bytes(), address, clock.mono) {
            return Err(refuse(Status::Barred));
        }
        let afforded = shard.afford(lane, prefix, clock.mono);
        afforded.map_err(|reason| refuse(Status::Overloaded).because(reason))?;
        let input = RequestInput {
            encapsulation,
            relayed: first.relayed,
            address,
            identity: *identity.digest(),
            block_len: u32::from(len),
            data_len: data.len() as u32,
            data_digest: Sha256::digest(data).into(),
            requested_ms: block.request.requested_ms,
            request_id: block.request.request_id,
            certificate: digest.0,
        };
        let before_ack_direct = trusted.before_ack(&block.certificate, now_s);
        Ok(Box::new(Candidate {
            certificate_input: certificate_input(&block.certificate, trusted.key.as_bytes(), address),
            certificate_signature: block.certificate.signature,
            verifier: trusted.key,
            verifier_id: block.certificate.verifier,
            per_second: trusted.per_second,
            request_input: input.to_bytes(),
            request_signature: block.request.signature,
            signed_len: data.len() as u32,
            client_key,
            identity: *identity.digest(),
            digest,
            known,
            batch: !first.relayed && shard.may_batch(prefix, clock.mono),
            generation: shard.generation(),
            replay,
            stamp_ms: block.request.requested_ms,
            ends: block.certificate.ends(),
            client: address,
            prefix,
            tag: tag(&block),
            relayed: first.relayed,
            before_ack: if first.relayed { BeforeAck::Times(RELAYED_TIMES) } else { before_ack_direct },
            before_ack_direct,
            request_id: block.request.request_id,
        }))
    }

    /// The entry of the verifier that the certificate names. Also checks that the request is for the address
    /// that the SYN comes from.
    fn trusts(&self, block: &Block, first: &FirstFlight<'_>, clock: &Clock) -> Result<&Trusted, Refused> {
        let now_s = (clock.unix_ms / 1000) as u32;
        let with = |status, hint| Refused { hint, ..Refused::new(status, tag(block)) };
        let Some(trusted) = self.trust.get(block.certificate.verifier) else {
            let hint = self.trust.hint().map_or(Hint::Time(now_s), |id| Hint::Trusts(now_s, id));
            return Err(with(Status::UnknownVerifier, hint));
        };
        if block.request.address_tag != address_tag(first.flow.client) {
            let hint = match first.flow.client {
                IpAddr::V4(address) => Hint::Sees(now_s, address),
                IpAddr::V6(_) => Hint::Time(now_s),
            };
            return Err(with(Status::AddressMismatch, hint));
        }
        Ok(trusted)
    }

    fn identity(&self, block: &Block) -> Option<&Identity> {
        self.identities.iter().find(|identity| identity.tag() == block.request.identity_tag)
    }

    /// Checks the times, the ages and the other limits of the verifier's entry.
    fn in_time(
        &self,
        block: &Block,
        trusted: &Trusted,
        first: &FirstFlight<'_>,
        clock: &Clock,
    ) -> Result<(), Refused> {
        let now_s = clock.unix_ms / 1000;
        let late = |status| Refused { hint: Hint::Time(now_s as u32), ..Refused::new(status, tag(block)) };
        trusted.allows(&block.certificate, first.flow.client, now_s).map_err(late)?;
        let past = if first.relayed { RELAYED_PAST } else { Window::REQUESTS.past };
        let (past, future) = (millis(past), millis(Window::REQUESTS.future));
        let stamp = block.request.requested_ms;
        // A clock with this uncertainty cannot distinguish an old request from a new one.
        let uncertain = millis(clock.uncertainty) > future;
        if uncertain || stamp.saturating_add(past) < clock.unix_ms || stamp > clock.unix_ms + future {
            return Err(late(Status::OutsideWindow));
        }
        let begins = u64::from(block.certificate.valid_from) * 1000;
        if first.relayed && begins.saturating_add(millis(RELAYED_AGE)) < clock.unix_ms {
            return Err(late(Status::Expired));
        }
        if stamp < begins || stamp > block.certificate.ends() * 1000 {
            return Err(late(Status::Expired));
        }
        Ok(())
    }

    /// The id in the replay guard. It is the same for every copy of a request to one identity, whatever the
    /// ports and sequence numbers.
    fn replay_id(&self, block: &Block, identity: &Identity, first: &FirstFlight<'_>) -> ReplayId {
        let mut key = [0; 72];
        let (client, rest) = key.split_at_mut(32);
        let (request, digest) = rest.split_at_mut(8);
        client.copy_from_slice(&block.certificate.client_key);
        request.copy_from_slice(&block.request.request_id);
        digest.copy_from_slice(identity.digest());
        self.guard.id_of(first.flow.client, &key)
    }

    /// Marks a request as used although its data is not accepted. The client sends the data again after an
    /// ordinary handshake, so a copy of this SYN must not be executed when there is room again. Unless they are
    /// `checked`, the signatures are not verified. An attacker who forges requests in a client's name can cost the
    /// client's prefix round trips, but cannot cause an execution.
    pub(crate) fn invalidate(
        &self,
        first: &FirstFlight<'_>,
        clock: &Clock,
        checked: bool,
    ) -> Result<Option<JobRequest>, Unreported> {
        self.guard.observe(clock);
        let Some((replay, stamp)) = self.names(first, clock) else { return Ok(None) };
        let told = match checked {
            true => self.guard.test_and_set(replay, stamp, clock.unix_ms),
            false => self.guard.report(replay, stamp, clock.unix_ms)?,
        };
        Ok(match told {
            Guarded::Ask(job) => Some(job),
            Guarded::New | Guarded::Seen | Guarded::Floor => None,
        })
    }

    /// The id and the stamp of a request that could be accepted, whatever its signatures are.
    fn names(&self, first: &FirstFlight<'_>, clock: &Clock) -> Option<(ReplayId, u64)> {
        let block = read(first)?;
        self.trusts(&block, first, clock).ok()?;
        let replay = self.replay_id(&block, self.identity(&block)?, first);
        Some((replay, block.request.requested_ms))
    }

    /// Whether the block can be read, and is for one of the server's identities.
    #[must_use]
    pub fn is_for(&self, first: &FirstFlight<'_>) -> bool {
        read(first).is_some_and(|block| self.identity(&block).is_some())
    }

    /// Whether the guard remembers the request: a copy from another port was here before, and may have been accepted.
    /// Then no other reason may be said when the block is refused ([`Refused::seen`]). A front's datagram is no copy: its
    /// client also sends the request directly.
    #[must_use]
    pub fn remembers(&self, first: &FirstFlight<'_>) -> bool {
        let set = |block: Block| {
            let identity = self.identity(&block)?;
            Some(self.guard.is_set(self.replay_id(&block, identity, first)))
        };
        !first.relayed && read(first).and_then(set).unwrap_or(false)
    }

    /// The last checks, after the signatures were verified. The request is marked as used atomically, and may
    /// then be accepted.
    pub fn decide(
        &self,
        candidate: &Candidate,
        verified: Verified,
        shard: &mut AsapShard,
        clock: &Clock,
    ) -> Decision<(), Refused> {
        let refuse = |status| Decision::Refuse(Refused::new(status, candidate.tag));
        if verified != Verified::Good {
            return refuse(Status::BadSignature);
        }
        if let Err(refused) = candidate.stands(shard, clock) {
            return Decision::Refuse(refused);
        }
        // The clock may have become uncertain in the meantime. Copies are refused then, and their clients send the data again.
        self.guard.observe(clock);
        if clock.uncertainty > Window::REQUESTS.future {
            return refuse(Status::OutsideWindow);
        }
        // The guard's floor may have risen in the meantime, and a guard with a store does not check its own
        // floor when it asks the store.
        if self.guard.look_up(candidate.replay, candidate.stamp_ms, clock.unix_ms) == Guarded::Floor {
            return refuse(Status::GuardFloor);
        }
        if self.trust.is_closed(candidate.verifier_id, candidate.stamp_ms) {
            return refuse(Status::GuardFloor);
        }
        if !shard.within_rate(candidate.verifier_id, candidate.per_second, clock.mono) {
            return refuse(Status::Overloaded);
        }
        if candidate.relayed && !shard.within_relayed_rate(candidate.prefix, clock.mono) {
            return refuse(Status::Overloaded);
        }
        match self.guard.test_and_set(candidate.replay, candidate.stamp_ms, clock.unix_ms) {
            Guarded::New => Decision::Accept(()),
            Guarded::Ask(job) => Decision::Ask(job),
            Guarded::Seen => refuse(Status::Replayed),
            Guarded::Floor => refuse(Status::GuardFloor),
        }
    }
}
