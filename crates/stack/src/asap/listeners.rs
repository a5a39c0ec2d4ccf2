//! Listeners that take certificates, and those of the same port that take none, or fewer.

use crate::config::ListenConfig;
use crate::env::Env;
use crate::event::ListenerId;
use crate::flows::slot::Slot;
use crate::server::Server;
use crate::server::listeners::Listeners;
use crate::server::syn::Syn;
use alloc::sync::Arc;
use alloc::vec::Vec;
use firstflight_credential::asap::{AsapPolicy, TrustStore};
use firstflight_credential::{Policies, invalidate};
use firstflight_wire::Instant;
use firstflight_wire::asap::{BLOCK_LEN, Block, Reply, Status};
use firstflight_wire::tcp::{Options, Segment};

impl Listeners {
    /// A listener with this configuration begins.
    pub(crate) fn begins(&self, env: &mut Env, config: &ListenConfig) {
        let Some(policy) = &config.asap else { return };
        policy.key(env.random.next_u64());
        if self.refused_before(config.local.port(), policy) {
            policy.close(&env.clock);
        }
    }

    /// A listener with this configuration is gone.
    pub(crate) fn ended(&self, env: &Env, gone: &ListenConfig, now: Instant) {
        if gone.asap.is_none() {
            // Another listener of this port may accept requests that this one refused.
            let clock = env.clock_at(now);
            self.policies(gone.local.port()).for_each(|policy| policy.close(&clock));
        }
    }

    /// Whether a listener of this port may have refused first flights that one with `policy` accepts: a listener there
    /// takes no certificates, or fewer, or one was removed.
    fn refused_before(&self, port: u16, policy: &AsapPolicy) -> bool {
        let refuses = |other: &AsapPolicy| policy.admits_more_than(other);
        self.left.contains(&port)
            || self.of_port(port).any(|listener| listener.config.asap.as_ref().is_none_or(refuses))
    }

    /// The certificate policies of this port's listeners.
    pub(crate) fn policies(&self, port: u16) -> impl Iterator<Item = &AsapPolicy> {
        self.of_port(port).filter_map(|listener| listener.config.asap.as_ref())
    }
}

impl Server {
    /// See [`Stack::set_trust`](crate::Stack::set_trust).
    pub(crate) fn set_trust(
        &mut self,
        env: &Env,
        id: ListenerId,
        trust: Arc<TrustStore>,
        now: Instant,
    ) -> bool {
        let clock = env.clock_at(now);
        let listener = self.listeners.get_mut(id);
        let Some(policy) = listener.and_then(|listener| listener.config.asap.as_mut()) else {
            return false;
        };
        policy.set_trust(trust, &clock);
        self.asap.shard.trust_changed();
        true
    }

    /// Whether this listener's guard remembers the SYN's request: [`AsapPolicy::remembers`].
    pub(crate) fn remembers(&self, syn: &Syn<'_>) -> bool {
        let policy = self.listeners.at(syn.listener).and_then(|listener| listener.config.asap.as_ref());
        policy.is_some_and(|policy| policy.remembers(&syn.first_flight(None)))
    }

    /// Whether a SYN that meets this child brings a block whose request the guard remembers, and the SYN-ACK answers another
    /// SYN. Then a copy of the request ran on another connection, and who sent it may also have opened this one in the
    /// client's name: on TCP over IP the client takes its SYN-ACK for one whose reply was removed on the path, and sends
    /// the data again (`docs/spec/asap.md` 6.5). In UDP it does not, and its block may come more than once.
    pub(crate) fn ran_elsewhere(&self, child: &Slot, segment: &Segment<'_>, now: Instant) -> bool {
        let Slot { key, hash, ref conn, .. } = *child;
        let Some(options) = conn.syn_ack_options().filter(|_| !key.is_carried()) else { return false };
        let block = segment.payload.first_chunk::<BLOCK_LEN>().and_then(|bytes| Block::parse(bytes).ok());
        let Some(block) = block.filter(|_| segment.seq == conn.peer_isn()) else { return false };
        let reply = Options::parse(options, true).asap().and_then(Reply::parse);
        // A refusal of this block: the SYN has come twice. Without a tag it was refused before it was read.
        let is_own = |reply: Reply| reply.tag == [0; 2] || block.request.request_id.starts_with(&reply.tag);
        if reply.is_some_and(|reply| reply.status != Status::Capable && is_own(reply)) {
            return false;
        }
        self.listeners
            .find(&key)
            .is_some_and(|listener| self.remembers(&Syn { listener, key, hash, segment, above: None, now }))
    }

    /// Whether another listener of the port remembers it, in a guard in which this listener has not looked.
    pub(crate) fn remembers_beside(&self, syn: &Syn<'_>) -> bool {
        let Some(listener) = self.listeners.at(syn.listener) else { return false };
        let first = syn.first_flight(None);
        let looked = listener.config.asap.as_ref().filter(|own| own.is_for(&first));
        // What is there may be what this listener has set.
        let other = |policy: &&AsapPolicy| looked.is_none_or(|own| !Arc::ptr_eq(&own.guard, &policy.guard));
        self.listeners.policies(syn.key.local_port()).filter(other).any(|policy| policy.remembers(&first))
    }

    /// This listener has refused a credential block. Invalidates the block for the other listeners of the port that
    /// admit more: a copy may go to another address, or come when this listener is gone. False as in
    /// [`Self::invalidate`].
    pub(crate) fn invalidate_beside(&mut self, env: &mut Env, syn: &Syn<'_>) -> bool {
        let clock = env.clock_at(syn.now);
        let Some(listener) = self.listeners.at(syn.listener) else { return true };
        let own = listener.config.asap.as_ref();
        let first = syn.first_flight(None);
        let more = |policy: &&AsapPolicy| own.is_none_or(|own| policy.admits_more_than(own));
        let policies = self.listeners.policies(syn.key.local_port()).filter(more);
        let jobs: Vec<_> = policies
            .map(|policy| invalidate(Policies { fast_open: None, asap: Some(policy) }, &first, &clock, false))
            .collect();
        let mut told = true;
        for job in jobs {
            told &= job.is_ok_and(|job| self.tell(job));
        }
        told
    }
}
