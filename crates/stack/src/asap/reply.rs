//! What a SYN offers of ASAP, and what the SYN-ACK replies.

use crate::env::Env;
use crate::event::PacketDrop;
use crate::flow::FlowKey;
use crate::server::Server;
use crate::server::admission::Handshake;
use crate::server::syn::Syn;
use core::hint::cold_path;
use firstflight_credential::Offered;
use firstflight_credential::asap::Refused;
use firstflight_wire::asap::{AsapOption, Encapsulation, Hint, Reply, Status};
use firstflight_wire::hint::likely;
use firstflight_wire::tcp::OptionBytes;

impl FlowKey {
    /// How its segments travel.
    #[inline]
    #[must_use]
    pub(crate) fn encapsulation(&self) -> Encapsulation {
        if self.is_carried() { Encapsulation::Udp } else { Encapsulation::Ip }
    }
}

impl Syn<'_> {
    /// Its option.
    #[inline]
    pub(crate) fn offered(&self) -> Offered {
        let Some(option) = self.segment.options.asap() else { return Offered::Nothing };
        cold_path();
        Offered::read(Some(option), self.key.encapsulation())
    }
}

impl Server {
    /// Answers a SYN whose credential block is forged with a SYN cookie, so that the stack keeps no state for it.
    pub(crate) fn answer_forged(&mut self, env: &mut Env, syn: &Syn<'_>, handshake: &Handshake) {
        env.journal.counters.first_flights_refused += 1;
        env.journal.counters.blocks_forged += 1;
        let mut options = OptionBytes::EMPTY;
        self.reply_to(syn, handshake.refused, false, &mut options);
        if let Some(listener) = self.listeners.at_mut(syn.listener) {
            let cookie = self.cookies.send(env, &listener.tcp, syn, &options);
            listener.cookies.answer(syn.hash, cookie, syn.now);
        }
    }

    /// Invalidates the first flight of a SYN that gets a SYN cookie. Returns what the cookie says about its credential block,
    /// if it has one.
    /// Errors: the SYN has no block, and the store cannot be told of its first flight.
    pub(crate) fn refuse_under_pressure(
        &mut self,
        env: &mut Env,
        syn: &Syn<'_>,
    ) -> Result<Option<Refused>, PacketDrop> {
        if !syn.offered().has_block() {
            return if self.invalidate(env, syn, false) { Ok(None) } else { Err(PacketDrop::Unreported) };
        }
        let seen = self.remembers(syn) || self.remembers_beside(syn);
        let told = self.invalidate(env, syn, false);
        let told = self.invalidate_beside(env, syn) && told;
        Ok(Some(Refused::new(Status::Overloaded, [0; 2]).knowing(seen, told)))
    }

    /// Puts the reply of a SYN-ACK to ASAP's option, if there is one, into `options`, which are empty. Every SYN-ACK of the
    /// connection carries it, so that none of them leaves the client in doubt.
    #[inline]
    pub(crate) fn reply_to(
        &self,
        syn: &Syn<'_>,
        refused: Option<Refused>,
        granted: bool,
        options: &mut OptionBytes,
    ) {
        let nothing = refused.is_none() && syn.segment.options.asap().is_none();
        if !likely(nothing)
            && let Some(reply) = self.reply_to_option(syn, refused, granted)
        {
            *options = OptionBytes::from(reply);
        }
    }

    fn reply_to_option(&self, syn: &Syn<'_>, refused: Option<Refused>, granted: bool) -> Option<Reply> {
        let offered = syn.offered();
        if let Some(refused) = refused {
            let long = matches!(offered, Offered::AsapOption(option, _) if option.long_reply());
            // A granted cookie has priority over a hint.
            return Some(refused.reply(long && !granted));
        }
        let capable = self.listeners.at(syn.listener).is_some_and(|l| l.config.asap.is_some());
        let asked = matches!(offered, Offered::AsapOption(AsapOption::Probe { .. }, _)) && capable;
        asked.then_some(Reply { status: Status::Capable, tag: [0; 2], hint: Hint::None })
    }
}
