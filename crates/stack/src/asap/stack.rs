//! What the stack's caller does with certificates, and with first flights that travel in lookups.

use crate::Stack;
use crate::asap::certificates::Verifications;
use crate::asap::lookup::{FirstData, InLookupSyn};
use crate::asap::relayed::RelayedFlight;
use crate::client::connect::ConnectError;
use crate::config::ConnectConfig;
use crate::event::{ConnId, ListenerId};
use crate::flows::slot::ShownCertificate;
use alloc::sync::Arc;
use core::net::IpAddr;
use firstflight_credential::asap::{AcceptedBlock, ReplyKey, TrustStore, Verified};
use firstflight_tcp::CloseReason;
use firstflight_wire::Instant;

impl Stack {
    // --- servers -----------------------------------------------------------------------------------

    /// Replaces the verifiers that a listener trusts. Every certificate is verified anew from now on, and first
    /// flights that are being verified are refused. If the change admits more than before, requests that were made
    /// before it, or up to ten seconds after it, are refused (`docs/spec/asap.md` §7.10).
    ///
    /// False if there is no such listener, or one that takes no certificates.
    pub fn set_trust(&mut self, id: ListenerId, trust: Arc<TrustStore>, now: Instant) -> bool {
        self.server.set_trust(&self.flows.env, id, trust, now)
    }

    /// What must be verified now, at most [`BATCH`](firstflight_credential::asap::BATCH) first flights. Call it at the
    /// end of a burst of received packets, so that first flights that arrived together are verified together. Pass the
    /// verdicts to [`Stack::handle_verified`]. The SYNs wait until then, but not longer than
    /// [`crate::Limits::deferred_for`].
    pub fn poll_verifications(&mut self) -> Option<Verifications> {
        self.server.poll_verifications()
    }

    /// Takes the verdicts, in the order of [`Verifications::verify`]. Verdicts that come too late change nothing.
    pub fn handle_verified(&mut self, done: Verifications, verdicts: &[Verified], now: Instant) {
        self.server.handle_verified(&mut self.flows, done, verdicts, now);
        self.settle(now);
    }

    /// Takes a first flight from a front that is known to be allowed to deliver it (`firstflight-dns`). It goes
    /// through the listener's admission like one that comes from its client. The listener needs an
    /// [`AsapPolicy::relayed`](firstflight_credential::asap::AsapPolicy::relayed).
    pub fn handle_relayed(&mut self, now: Instant, flight: RelayedFlight<'_>) {
        self.server.handle_relayed(&mut self.flows, now, flight);
        self.settle(now);
    }

    /// What the credential block said with which the first flight of an accepted connection came, and how many bytes of
    /// data its signature covers; `None` if it came without, or the connection is gone.
    #[must_use]
    pub fn accepted_block(&self, id: ConnId) -> Option<(AcceptedBlock, u32)> {
        self.flows.table.slot(id).filter(|slot| slot.shown != ShownCertificate::Nothing)?;
        self.server.accepted_block(id.index)
    }

    // --- clients -----------------------------------------------------------------------------------

    /// Begins a connection to `port` of a server whose address is not known, with `data` as its first flight, and
    /// the certificate of `config.asap` in front of it. Nothing is sent: the returned SYN travels in the lookup.
    /// `config.encapsulation` is the server's UDP port; `config.local` and Fast Open are ignored. What rides in the SYN
    /// must be short, and all of `data` may be executed twice.
    ///
    /// The connection has no timeout. The caller must abort it ([`Stack::abort`]) if the address cannot be found
    /// either.
    ///
    /// # Errors
    /// When there is no certificate to show ([`ConnectError::NoCertificate`]), no address of its family, no
    /// encapsulation or port, or a limit is reached.
    pub fn connect_in_lookup(
        &mut self,
        port: u16,
        data: FirstData<'_>,
        config: &ConnectConfig,
        now: Instant,
    ) -> Result<InLookupSyn, ConnectError> {
        let in_lookup = self.client.connect_in_lookup(&mut self.flows, port, data, config, now);
        self.settle(now);
        in_lookup
    }

    /// Like [`Stack::connect_in_lookup`], with a SYN on IP, signed like one that comes from its client. This is the
    /// thesis' own form, for its experiments. Use it only in a simulator or in a network made for such experiments:
    /// anyone who sees the lookup can answer.
    #[cfg(feature = "lab")]
    pub fn lab_connect_in_lookup_on_ip(
        &mut self,
        port: u16,
        data: FirstData<'_>,
        config: &ConnectConfig,
        now: Instant,
    ) -> Result<InLookupSyn, ConnectError> {
        let in_lookup = self.client.lab_connect_in_lookup_on_ip(&mut self.flows, port, data, config, now);
        self.settle(now);
        in_lookup
    }

    /// From now on, `id` accepts the answer of any server that proves with `key` that it received the first flight.
    /// False if the connection is not, or no longer, carried in a lookup.
    pub fn expect_answer(&mut self, id: ConnId, key: ReplyKey) -> bool {
        self.client.expect_answer(&mut self.flows.table, id, key)
    }

    /// Like [`Stack::expect_answer`], but accepts any server that acknowledges the right numbers. Anyone who has
    /// seen the lookup knows them. This is the thesis' own form, for its experiments. Use it only in a simulator or
    /// in a network made for such experiments.
    #[cfg(feature = "lab")]
    pub fn lab_expect_unproved_answer(&mut self, id: ConnId) -> bool {
        self.client.lab_expect_unproved_answer(&mut self.flows.table, id)
    }

    /// Sends the same SYN to `server`, because its address is now known, under the same request id, signed for this
    /// path. A proved answer of another server is still accepted until this one answers. Does nothing if an answer
    /// came before. If `server` refuses the SYN or cannot be reached, the connection waits for the other copy's
    /// answer as before ([`Stack::direct_refused`]).
    ///
    /// # Errors
    /// [`ConnectError::BadRemote`] for an address that cannot be connected to or is of another family;
    /// [`ConnectError::LocalInUse`] if there is a connection with the same ports. The connection still waits for
    /// the other copy's answer.
    pub fn send_direct(&mut self, id: ConnId, server: IpAddr, now: Instant) -> Result<(), ConnectError> {
        let sent = self.client.send_direct(&mut self.flows, id, server, now);
        self.settle(now);
        sent
    }

    /// Why the direct copy of `id` failed, while the connection waits for the answer to the other copy: a server
    /// may have executed that copy.
    #[must_use]
    pub fn direct_refused(&self, id: ConnId) -> Option<CloseReason> {
        self.client.direct_refused(&self.flows.table, id)
    }
}
