//! First flights that do not come directly from their client. A front, the name server of a zone, finds them in the
//! names of DNS queries and hands them over (`docs/spec/dns-path.md` section 9).
//!
//! Anyone can query a name. Such a first flight is therefore accepted or dropped silently: an invalid one causes no
//! SYN-ACK, SYN cookie or RST to its alleged client. A dropped one is not used up, because the client also sends
//! the same request directly.

use crate::asap::state::Returned;
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::server::Server;
use crate::server::listeners::ListenerRoom;
use crate::server::syn::Syn;
use core::net::{IpAddr, SocketAddr};
use firstflight_credential::asap::ReplyKey;
use firstflight_credential::{Decision, Work, admit};
use firstflight_wire::Instant;
use firstflight_wire::tcp::{Flags, Segment};

/// A first flight that a front opened.
#[derive(Debug)]
pub struct RelayedFlight<'a> {
    /// The client's address, and its UDP port as the network sees it.
    pub client: SocketAddr,
    /// The address to which the client would have sent it.
    pub server: IpAddr,
    /// The SYN with credential and data, as in a datagram of the encapsulation.
    pub segment: &'a [u8],
    /// The key with which the answer proves that it is one.
    pub key: ReplyKey,
    /// The server's address and UDP port as the client sees them, if a translator in front of the server changes
    /// them. Otherwise they are `server` and the encapsulation's port.
    pub seen_as: Option<SocketAddr>,
}

impl Server {
    /// See [`Stack::handle_relayed`](crate::Stack::handle_relayed).
    pub(crate) fn handle_relayed(&mut self, flows: &mut Flows, now: Instant, flight: RelayedFlight<'_>) {
        flows.env.journal.counters.relayed += 1;
        if self.defer_relayed(flows, now, flight).is_none() {
            flows.env.journal.counters.relayed_dropped += 1;
        }
    }

    fn defer_relayed(&mut self, flows: &mut Flows, now: Instant, flight: RelayedFlight<'_>) -> Option<()> {
        let RelayedFlight { client, server, segment, key: reply_key, seen_as } = flight;
        let port = flows.encapsulation.as_ref()?.port;
        let segment = Segment::parse(segment).ok()?;
        let others = Flags::ACK.union(Flags::RST).union(Flags::FIN);
        if !segment.flags.contains(Flags::SYN) || segment.flags.intersects(others) {
            return None;
        }
        let key =
            FlowKey::of(server, segment.dst_port, client.ip(), segment.src_port).carried(port, client.port());
        let across = client.is_ipv4() != server.is_ipv4();
        if across || segment.src_port == 0 || !flows.env.comes_from_another(&key) {
            return None;
        }
        let hash = flows.table.hasher.hash(&key);
        let taken = flows.table.find(&key).is_some()
            || flows.table.remembered(hash).is_some()
            || flows.table.early_ends.knows(hash, segment.seq)
            || self.deferred.find(&key).is_some();
        let index = self.listeners.find(&key).filter(|_| !taken)?;
        // This is checked again before the request is used up.
        if !ListenerRoom::of(self.listeners.at(index)?, flows, now).takes_relayed() {
            return None;
        }
        let syn = Syn { listener: index, key, hash, segment: &segment, above: None, now };
        let mut first = syn.first_flight(None);
        first.relayed = true;
        if !first.offered.has_block() {
            return None;
        }
        let clock = flows.env.clock_at(now);
        let listener = self.listeners.at(index)?;
        let Decision::Ask(question) = admit(listener.config.policies(), &first, &mut self.asap.shard, &clock)
        else {
            return None;
        };
        if !matches!(question.work, Work::Verify(_)) {
            return None;
        }
        let bytes = self.deferred.room_for(&segment)?;
        let job = self.defer_copy(&syn, bytes, question);
        let seen_as = seen_as.unwrap_or(SocketAddr::new(server, port));
        self.deferred.mark_relayed(job, Returned { key: reply_key, seen_as });
        Some(())
    }
}
