//! What a SYN-ACK replies to the credentials of the SYN, and what the stack keeps of them.

use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::server::Server;
use crate::server::syn::Syn;
use core::hint::cold_path;
use firstflight_credential::asap::Refused;
use firstflight_credential::{Grant, Offered};
use firstflight_tcp::ChildPlan;
use firstflight_wire::asap::{Carrier, Hint, Offer, Reply, Status};
use firstflight_wire::hint::likely;
use firstflight_wire::tcp::{FastOpen, OptionBytes, Segment};

impl FlowKey {
    /// How its segments travel.
    #[inline]
    #[must_use]
    pub(crate) fn carrier(&self) -> Carrier {
        if self.is_carried() { Carrier::Udp } else { Carrier::Ip }
    }
}

impl Syn<'_> {
    /// Its option.
    #[inline]
    pub(crate) fn offered(&self) -> Offered {
        let Some(option) = self.segment.options.asap() else { return Offered::Nothing };
        cold_path();
        Offered::read(Some(option), self.key.carrier())
    }
}

impl Server {
    /// Answers a SYN whose credential block is forged with a SYN cookie, so that the stack keeps no state for it.
    pub(crate) fn answer_forged(&mut self, flows: &mut Flows, syn: &Syn<'_>, refused: Option<Refused>) {
        flows.env.journal.counters.first_flights_refused += 1;
        flows.env.journal.counters.blocks_forged += 1;
        let reply = self.reply_to(syn, refused, false);
        let options = reply.map_or(OptionBytes::EMPTY, OptionBytes::from);
        if let Some(listener) = self.listeners.at_mut(syn.listener) {
            let cookie = self.cookies.send(&mut flows.env, &listener.tcp, syn, &options);
            listener.cookies.answer(syn.hash, cookie, syn.now);
        }
    }

    /// The reply of a SYN-ACK to ASAP's option. Every SYN-ACK of the connection carries it, so that none of them
    /// leaves the client in doubt.
    #[inline]
    pub(crate) fn reply_to(&self, syn: &Syn<'_>, refused: Option<Refused>, granted: bool) -> Option<Reply> {
        let nothing = refused.is_none() && syn.segment.options.asap().is_none();
        if likely(nothing) { None } else { self.reply_to_offer(syn, refused, granted) }
    }

    fn reply_to_offer(&self, syn: &Syn<'_>, refused: Option<Refused>, granted: bool) -> Option<Reply> {
        let offered = syn.offered();
        if let Some(refused) = refused {
            let long = matches!(offered, Offered::Offer(offer, _) if offer.long_reply());
            // A granted cookie has priority over a hint.
            return Some(refused.reply(long && !granted));
        }
        let capable = self.listeners.at(syn.listener).is_some_and(|l| l.config.asap.is_some());
        let asked = matches!(offered, Offered::Offer(Offer::Probe { .. }, _)) && capable;
        asked.then_some(Reply { status: Status::Capable, tag: [0; 2], hint: Hint::None })
    }

    /// The SYN-ACK's options, if any: the reply, then a granted cookie in the form in which the client asked for
    /// it. A retransmitted SYN-ACK does not carry the cookie (RFC 7413 §4.2.2).
    #[inline(always)]
    pub(crate) fn add_options(
        &mut self,
        flows: &mut Flows,
        plan: &mut ChildPlan,
        segment: &Segment<'_>,
        reply: Option<Reply>,
        grant: Option<Grant>,
    ) {
        if let Some(reply) = reply {
            plan.options = OptionBytes::from(reply);
        }
        let lasting = plan.options.len();
        if let Some(grant) = grant
            && let Some(asked) = segment.options.fast_open()
            && plan.options.append_fast_open(&FastOpen::Cookie(asked.form(), grant.cookie))
        {
            flows.env.journal.counters.cookies_granted += 1;
            plan.once = (plan.options.len() - lasting) as u8;
        }
    }

    /// Keeps the serial of a one-time cookie until the client's ACK makes the cookie valid.
    #[inline(always)]
    pub(crate) fn granted(
        &mut self,
        flows: &mut Flows,
        child: Option<u32>,
        listener: u32,
        grant: Option<Grant>,
    ) {
        let Some((child, serial)) = child.zip(grant.and_then(|grant| grant.serial)) else { return };
        let listener = self.listeners.id(listener);
        if let Some(slot) = flows.table.slots.get_mut(child) {
            slot.granted = true;
            self.grants.insert(child, (listener, serial));
        }
    }

    /// Makes the one-time cookie of `child` valid, because its client has acknowledged.
    pub(crate) fn activate(&mut self, child: u32) {
        let Some((listener, serial)) = self.grants.remove(&child) else { return };
        let policy = self.listeners.get(listener).and_then(|l| l.config.fast_open.as_ref());
        let job = policy.and_then(|policy| policy.verifier.as_ref()).and_then(|v| v.activate(serial));
        self.tell(job);
    }
}
