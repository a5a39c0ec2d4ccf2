//! First flights with a certificate, on the server: from the deferred SYN through the signatures to the child
//! (`docs/spec/asap.md`).

use crate::asap::state::{Certificate, DirectCopy, Vouched};
use crate::env::Env;
use crate::event::{JobId, PacketDrop};
use crate::flows::Flows;
use crate::flows::slot::ShownCertificate;
use crate::flows::table::Table;
use crate::server::Server;
use crate::server::admission::Handshake;
use crate::server::children::Budget;
use crate::server::listeners::ListenerRoom;
use crate::server::syn::Syn;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;
use firstflight_credential::asap::{self, AcceptedBlock, BATCH, BeforeAck, Candidate, Verified};
use firstflight_credential::{Decision, Offered};
use firstflight_tcp::{ChildPlan, CloseReason};
use firstflight_wire::Instant;
use firstflight_wire::asap::{AsapOption, BLOCK_LEN, Block, Hint, Reply, Status};
use firstflight_wire::encapsulation::FOLLOWER_BYTES;
use firstflight_wire::tcp::{OptionBytes, Segment};
use rand_core::CryptoRng;

/// Retransmissions of a SYN-ACK before the client's ACK, if a certificate vouches for the client.
const CERTIFIED_RETRIES: u8 = 2;

/// Like [`CERTIFIED_RETRIES`], if nothing came from the client's address.
const RELAYED_RETRIES: u8 = 1;

/// How many times the bytes received may be sent; `None` if the congestion window alone limits them.
fn times(before_ack: BeforeAck) -> Option<u32> {
    match before_ack {
        BeforeAck::Times(times) => Some(times),
        BeforeAck::InitialWindow => None,
    }
}

/// First flights whose signatures are verified together.
#[derive(Debug)]
#[allow(clippy::vec_box, reason = "they move from queue to queue: 8 bytes, not 800")]
pub struct Verifications {
    ids: Vec<JobId>,
    candidates: Vec<Box<Candidate>>,
}

impl Verifications {
    /// Verifies them. This uses nothing of the stack, so it may run in another thread. `rng` must be fit for
    /// secrets.
    pub fn verify(&self, rng: &mut impl CryptoRng) -> Vec<Verified> {
        asap::verify(&self.candidates, rng)
    }

    /// Number of first flights, at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.ids.len()
    }
}

impl Server {
    /// See [`Stack::poll_verifications`](crate::Stack::poll_verifications).
    pub(crate) fn poll_verifications(&mut self) -> Option<Verifications> {
        let jobs = core::iter::from_fn(|| self.poll_verification()).take(BATCH);
        let (ids, candidates): (Vec<_>, Vec<_>) = jobs.unzip();
        (!ids.is_empty()).then_some(Verifications { ids, candidates })
    }

    /// See [`Stack::handle_verified`](crate::Stack::handle_verified).
    pub(crate) fn handle_verified(
        &mut self,
        flows: &mut Flows,
        done: Verifications,
        verdicts: &[Verified],
        now: Instant,
    ) {
        let pairs = done.candidates.iter().zip(verdicts);
        flows.env.journal.counters.signatures_verified += pairs
            .map(|(candidate, verdict)| match verdict {
                // If the certificate is wrong, the request is not verified.
                Verified::BadCertificate => 1,
                Verified::Good | Verified::BadRequest => u64::from(candidate.signatures()),
            })
            .sum::<u64>();
        self.asap.shard.learn(&done.candidates, verdicts, now);
        for ((id, candidate), verdict) in done.ids.into_iter().zip(done.candidates).zip(verdicts) {
            self.decide(flows, id, candidate, *verdict, now);
        }
    }

    fn decide(
        &mut self,
        flows: &mut Flows,
        id: JobId,
        candidate: Box<Candidate>,
        verified: Verified,
        now: Instant,
    ) {
        let clock = flows.env.clock_at(now);
        let listener = self.deferred.get(id).and_then(|deferred| self.listeners.get(deferred.listener));
        let Some(listener) = listener else { return };
        if self.deferred.is_relayed(id) && !ListenerRoom::of(listener, flows, now).takes_relayed() {
            drop(self.deferred.take(id));
            flows.env.journal.counters.relayed_dropped += 1;
            return;
        }
        let Some(policy) = listener.config.asap.as_ref() else { return };
        let decided = policy.decide(&candidate, verified, &mut self.asap.shard, &clock);
        if let Decision::Ask(job) = decided {
            return self.deferred.ask(id, candidate, job);
        }
        let Some(mut deferred) = self.deferred.take(id) else { return };
        let decision = match decided {
            // The other one may be the client's, and this one forged with its block. An answer would make the client send its
            // data by the handshake, and a copy of its SYN could be accepted later. So it sends its SYN again.
            Decision::Refuse(refused) if refused.is_forged() && deferred.met_another => {
                return flows.env.journal.drop_packet(PacketDrop::Unreported);
            }
            Decision::Refuse(mut refused) => {
                // Its data comes by the ordinary handshake, so no copy may be accepted. Its signatures are right.
                let (reason, grant) = (refused.reason, deferred.grant);
                if !refused.is_forged() {
                    refused = self.refuse_deferred(flows, &deferred, refused, true, now);
                }
                Decision::Refuse(Handshake { reason, grant, refused: Some(refused), repeat: false })
            }
            Decision::Accept(()) | Decision::Ask(_) => Decision::Accept(()),
        };
        if let Some(block) = &mut deferred.block {
            block.candidate = Some(candidate);
        }
        self.resume_with(flows, deferred, decision, now);
    }

    /// Plans the child of a first flight with a certificate.
    pub(crate) fn plan_certified(
        &self,
        env: &Env,
        syn: &Syn<'_>,
        certificate: &Certificate,
        budget: &Budget,
        plan: &mut ChildPlan,
    ) {
        let Certificate { candidate, returned } = certificate;
        plan.pre_ack_budget = budget.bytes(times(candidate.before_ack()));
        if let Offered::AsapOption(AsapOption::Block { len, .. }, _) = syn.offered() {
            plan.skip = u32::from(len);
        }
        plan.retries = if returned.is_some() { RELAYED_RETRIES } else { CERTIFIED_RETRIES };
        let hint = returned
            .as_ref()
            .map_or(Hint::None, |returned| returned.proof(env.endpoints(&syn.key, syn.above, syn.now).isn));
        plan.options = OptionBytes::from(Reply { status: Status::Accepted, tag: candidate.tag(), hint });
    }

    /// Notes that the first flight of a new child came with a certificate. It may send `given` bytes before the client's
    /// ACK, and perhaps more once a copy of the first flight has come from the client.
    pub(crate) fn certified(
        &mut self,
        table: &mut Table,
        child: u32,
        certificate: &Certificate,
        budget: &Budget,
        given: u32,
    ) {
        let candidate = &certificate.candidate;
        let (_, ends) = candidate.client();
        let direct = candidate.direct_copy().map(|(request_id, before_ack)| {
            let more = budget.bytes(times(before_ack)).saturating_sub(given);
            DirectCopy { request_id, more }
        });
        if let Some(slot) = table.slots.get_mut(child) {
            slot.shown = ShownCertificate::Certificate;
            let (block, signed_len) = (candidate.block(), candidate.signed_len());
            self.asap.certified.insert(child, Vouched { block, signed_len, ends, direct, proved: false });
        }
    }

    /// What the block of a child's first flight said, and how many bytes of data it signed, if it had one that was
    /// accepted.
    pub(crate) fn accepted_block(&self, child: u32) -> Option<(AcceptedBlock, u32)> {
        self.asap.certified.get(&child).map(|vouched| (vouched.block, vouched.signed_len))
    }

    /// Handles a SYN for a child whose first flight a front delivered. With the same request id, the SYN is the
    /// client's direct copy: a packet has come from the client's address, so as much may be sent as after any
    /// direct first flight. The signature is not checked. A sender that can sign the copy has also signed the first
    /// flight. A sender that only repeats it knows no more than the client, and the client wants the answer. From then on
    /// segments that follow the SYN are taken: before, a front could let the client's own ones follow a SYN with another
    /// number (`docs/spec/dns-path.md` section 14.1).
    pub(crate) fn contacted(&mut self, table: &mut Table, child: u32, segment: &Segment<'_>) {
        let Some(vouched) = self.asap.certified.get_mut(&child) else { return };
        let block = segment.payload.first_chunk::<BLOCK_LEN>().map(|block| Block::parse(block));
        let Some(direct) = vouched.direct else { return };
        if let Some(Ok(block)) = block
            && block.request.request_id == direct.request_id
        {
            vouched.direct = None;
            if let Some(slot) = table.slots.get_mut(child) {
                slot.conn.raise_budget(direct.more);
                slot.conn.take_followers(segment, FOLLOWER_BYTES);
            }
        }
    }

    /// A child ends. If no ACK ever proved its client's address, and a report from there says that the client asked
    /// for nothing, the certificate no longer vouches for its client.
    pub(crate) fn vouched_for_nothing(&mut self, flows: &mut Flows, child: u32, now: Instant) {
        let reason = flows.table.slots.get_mut(child).and_then(|slot| slot.conn.close_reason());
        if matches!(reason, Some(CloseReason::Reset | CloseReason::Unreachable)) {
            self.disowned(flows, child, now);
        }
        self.asap.certified.remove(&child);
    }

    /// The ACK of a child whose first flight came with a certificate proves its client's address.
    pub(crate) fn proved(&mut self, table: &mut Table, child: u32, now: Instant) {
        let Some(vouched) = self.asap.certified.get_mut(&child) else { return };
        // Nothing is left to be raised.
        (vouched.proved, vouched.direct) = (true, None);
        if let Some(slot) = table.slots.get_mut(child) {
            let address = slot.key.remote_ip();
            self.asap.shard.acknowledged(address, now);
        }
    }

    /// A router or host reports that the client of a child, whose address was not proved, cannot be reached. The
    /// certificate then no longer vouches for its client. The caller decides whether the child continues.
    pub(crate) fn disowned(&mut self, flows: &mut Flows, child: u32, now: Instant) {
        let vouched = self.asap.certified.get(&child).filter(|vouched| !vouched.proved);
        let Some(&Vouched { block, ends, .. }) = vouched else { return };
        let Some(slot) = flows.table.slots.get_mut(child) else { return };
        let address = slot.key.remote_ip();
        let lasts = ends.saturating_mul(1000).saturating_sub(flows.env.clock_at(now).unix_ms);
        self.asap.shard.block(block.client_key, Duration::from_millis(lasts), address, now);
    }
}
