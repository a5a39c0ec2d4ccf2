//! The client's side of connections whose first flight travels inside the lookup of the server's address
//! (`docs/spec/dns-path.md`). Such a connection is *in-lookup*.
//!
//! Such a connection is in SYN-SENT and has no server yet. Its key has its own ports, the port that it wants, and
//! an unspecified remote address. It keeps that key until one of two things happens: a server proves that it
//! received the first flight ([`Stack::expect_answer`]), or the address is known and the direct copy leaves
//! ([`Stack::send_direct`]). The first of the two wins. If both copies reach one server, the server treats them as
//! one SYN.

use crate::addresses::possible_source;
use crate::asap::in_lookup::{Expected, InLookup};
use crate::asap::option;
use crate::client::Client;
use crate::client::connect::ConnectError;
use crate::config::{Certified, ConnectConfig};
use crate::event::ConnId;
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::flows::slot::{Beginning, Fallback, OpeningSide, Owner, PendingConnect, SentAsapOption};
use crate::flows::table::Table;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use firstflight_credential::Outcome;
use firstflight_credential::asap::ReplyKey;
use firstflight_tcp::{CloseReason, StateName, SynPlan};
use firstflight_wire::Instant;
use firstflight_wire::asap::{AsapOption, BLOCK_LEN, Encapsulation, Hint, Reply, Status};
use firstflight_wire::tcp::{Flags, OptionBytes, Segment};

/// A connect carried in a lookup, and its SYN for the lookup to carry.
#[derive(Debug)]
pub struct InLookupSyn {
    /// The connection.
    pub id: ConnId,
    /// The SYN with block and data, as in a datagram of the encapsulation. The block is signed for delivery by a front.
    pub segment: Vec<u8>,
    /// Bytes of the data that the connection took.
    pub taken: usize,
}

/// The data of a connect carried in a lookup.
#[derive(Debug, Clone, Copy)]
pub struct FirstData<'a> {
    bytes: &'a [u8],
    carried: usize,
}

impl<'a> FirstData<'a> {
    /// All of these bytes ride in the SYN.
    #[must_use]
    pub const fn whole(bytes: &'a [u8]) -> Self {
        Self { bytes, carried: bytes.len() }
    }

    /// The first `carried` of these bytes ride in the SYN. If there are fewer, all of them do. The rest follows the direct
    /// copy's SYN, or the answer to the other copy. Both copies are one SYN, so the direct one carries exactly the same bytes.
    #[must_use]
    pub const fn part(bytes: &'a [u8], carried: usize) -> Self {
        Self { bytes, carried }
    }

    fn carried(&self) -> &'a [u8] {
        self.bytes.get(..self.carried).unwrap_or(self.bytes)
    }
}

/// The key of a connection without a server between these ports.
fn anywhere(key: &FlowKey) -> FlowKey {
    let local = key.local();
    let wild = FlowKey::new(local, SocketAddr::new(unspecified(local.ip()), key.remote_port()));
    if key.is_carried() { wild.carried(key.outer_local(), 0) } else { wild }
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

impl Client {
    /// See [`Stack::connect_in_lookup`](crate::Stack::connect_in_lookup).
    pub(crate) fn connect_in_lookup(
        &mut self,
        flows: &mut Flows,
        port: u16,
        data: FirstData<'_>,
        config: &ConnectConfig,
        now: Instant,
    ) -> Result<InLookupSyn, ConnectError> {
        if config.encapsulation.is_none() || flows.encapsulation.is_none() {
            return Err(ConnectError::NoEncapsulation);
        }
        self.begin_in_lookup(flows, port, data, config, now)
    }

    /// See [`Stack::lab_connect_in_lookup_on_ip`](crate::Stack::lab_connect_in_lookup_on_ip).
    #[cfg(feature = "lab")]
    pub(crate) fn lab_connect_in_lookup_on_ip(
        &mut self,
        flows: &mut Flows,
        port: u16,
        data: FirstData<'_>,
        config: &ConnectConfig,
        now: Instant,
    ) -> Result<InLookupSyn, ConnectError> {
        self.begin_in_lookup(flows, port, data, &ConnectConfig { encapsulation: None, ..config.clone() }, now)
    }

    fn begin_in_lookup(
        &mut self,
        flows: &mut Flows,
        port: u16,
        data: FirstData<'_>,
        config: &ConnectConfig,
        now: Instant,
    ) -> Result<InLookupSyn, ConnectError> {
        let certified = config.asap.clone().ok_or(ConnectError::NoCertificate)?;
        if port == 0 || config.encapsulation == Some(0) {
            return Err(ConnectError::BadRemote);
        }
        if flows.is_full() {
            return Err(ConnectError::TooManyConnections);
        }
        let remote = SocketAddr::new(unspecified(certified.certificate.address()), port);
        let nowhere =
            ConnectConfig { encapsulation: config.encapsulation.map(|_| 0), ..ConnectConfig::default() };
        let local = self.local_end(flows, remote, &nowhere)?;
        let mut key = FlowKey::new(local, remote);
        if let (Some(encapsulation), Some(_)) = (&flows.encapsulation, config.encapsulation) {
            key = key.carried(encapsulation.port, 0);
        }
        let carried = data.carried();
        let random = || flows.env.random.next_u64().to_be_bytes();
        let request_id = certified.request_id.unwrap_or_else(random);
        let Certified { certificate, identity, now: certified_at, .. } = &certified;
        let block = if key.is_carried() {
            certificate.request_by_front(identity, carried, request_id, *certified_at)
        } else {
            certificate.request(Encapsulation::Ip, identity, carried, request_id, *certified_at)
        };
        let mut tcp = firstflight_tcp::Config::clone(config.tcp.as_ref().unwrap_or(&flows.env.tcp));
        // The SYN has no room for timestamps, and both copies are one SYN.
        tcp.set_timestamps(false);
        let [a, b, ..] = request_id;
        let pending = PendingConnect {
            network: flows.env.config.network_of(&key),
            form: firstflight_wire::tcp::FastOpenForm::Standard,
            fast_open: false,
            bare: false,
            cookie: None,
            cookie_age: None,
            asap_option: Some(SentAsapOption {
                identity: identity.clone(),
                tag: Ok([a, b]),
                distrusted: None,
            }),
            certified_for: Some(certified.certificate.address()),
            // Only data that may run twice travels inside lookups.
            at_most_once: false,
            first_rtt: false,
            plain: None,
            awaited: true,
            answered_at: Instant::FAR_FUTURE,
            fallback: Fallback::default(),
        };
        let plan = SynPlan {
            options: OptionBytes::from(AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 }),
            preamble: block.to_bytes().to_vec(),
            data_limit: carried.len() as u32,
            follow: option::follow(config, &key, None),
            elsewhere: true,
            ..SynPlan::default()
        };
        let ends = flows.env.endpoints(&key, None, now);
        let hash = flows.table.hasher.hash(&key);
        let (tcp, owner) = (Arc::new(tcp), Owner::Application);
        let with = Beginning { ends, key: &key, hash, owner, outcome: Outcome::Undecided, now };
        let mut taken = 0;
        let index = flows.insert(Some(&tcp), with, |slot, pool| {
            taken = slot.conn.open_active(plan, data.bytes, pool);
            slot.pending = Some(Box::new(pending));
            slot.side = OpeningSide::Client;
        });
        let slot = flows.table.slots.get(index).ok_or(ConnectError::TooManyConnections)?;
        let mut segment = alloc::vec![0; 60 + BLOCK_LEN + carried.len()];
        let len = slot.conn.copy_syn(&mut segment).unwrap_or_default();
        segment.truncate(len);
        let (outer, data) = (config.encapsulation, Box::from(carried));
        let in_lookup =
            InLookup { index, certified, request_id, data, outer, answer: Expected::Nothing, refused: None };
        self.in_lookup.insert(key, in_lookup);
        flows.env.journal.counters.active_opens += 1;
        flows.touched(index);
        Ok(InLookupSyn { id: flows.table.id(index), segment, taken })
    }

    /// See [`Stack::expect_answer`](crate::Stack::expect_answer).
    pub(crate) fn expect_answer(&mut self, table: &mut Table, id: ConnId, key: ReplyKey) -> bool {
        self.in_lookup_mut(table, id).map(|in_lookup| in_lookup.answer = Expected::Proof(key)).is_some()
    }

    /// See [`Stack::lab_expect_unproved_answer`](crate::Stack::lab_expect_unproved_answer).
    #[cfg(feature = "lab")]
    pub(crate) fn lab_expect_unproved_answer(&mut self, table: &mut Table, id: ConnId) -> bool {
        self.in_lookup_mut(table, id).map(|in_lookup| in_lookup.answer = Expected::LabNumbers).is_some()
    }

    /// See [`Stack::send_direct`](crate::Stack::send_direct).
    pub(crate) fn send_direct(
        &mut self,
        flows: &mut Flows,
        id: ConnId,
        server: IpAddr,
        now: Instant,
    ) -> Result<(), ConnectError> {
        let Some(slot) = flows.table.slot(id) else { return Ok(()) };
        let wild = anywhere(&slot.key);
        if slot.conn.state() != StateName::SynSent || slot.key != wild {
            return Ok(());
        }
        let Some(in_lookup) = self.in_lookup.get(&wild).filter(|in_lookup| in_lookup.index == id.index)
        else {
            return Ok(());
        };
        let mut key = FlowKey::new(wild.local(), SocketAddr::new(server, wild.remote_port()));
        if let (true, Some(outer)) = (wild.is_carried(), in_lookup.outer) {
            key = key.carried(wild.outer_local(), outer);
        }
        let ourselves = flows.env.is_ours(server) && key.outer_local() == key.outer_remote();
        let across = server.is_ipv4() != wild.local_ip().is_ipv4();
        if across || ourselves || !possible_source(server) {
            return Err(ConnectError::BadRemote);
        }
        if flows.table.find(&key).is_some()
            || flows.table.time_wait.find(flows.table.hasher.hash(&key)).is_some()
        {
            return Err(ConnectError::LocalInUse);
        }
        let Certified { certificate, identity, now: at, .. } = &in_lookup.certified;
        let block = certificate
            .request(key.encapsulation(), identity, &in_lookup.data, in_lookup.request_id, *at)
            .to_bytes();
        let timeout = self.credentials.syn_timeout(flows.env.config.network_of(&key), server, now);
        if let Some(in_lookup) = self.in_lookup.get_mut(&wild) {
            in_lookup.refused = None;
        }
        flows.rekey(id.index, &key, true, now);
        if let Some(slot) = flows.table.slots.get_mut(id.index) {
            slot.conn.release_syn(&block, Some(timeout));
        }
        flows.touched(id.index);
        Ok(())
    }

    /// See [`Stack::direct_refused`](crate::Stack::direct_refused).
    #[must_use]
    pub(crate) fn direct_refused(&self, table: &Table, id: ConnId) -> Option<CloseReason> {
        let wild = anywhere(&table.slot(id)?.key);
        self.in_lookup.get(&wild).filter(|in_lookup| in_lookup.index == id.index)?.refused
    }

    /// The direct copy of connection `index` failed. If the answer to another copy may come, the connection waits
    /// for it instead of being closed. False if there is no other copy.
    pub(crate) fn hold_in_lookup(
        &mut self,
        flows: &mut Flows,
        index: u32,
        why: CloseReason,
        now: Instant,
    ) -> bool {
        let Some(slot) = flows.table.slots.get_mut(index) else { return false };
        let wild = anywhere(&slot.key);
        let Some(in_lookup) = self.in_lookup.get_mut(&wild).filter(|in_lookup| in_lookup.index == index)
        else {
            return false;
        };
        if slot.key == wild || matches!(in_lookup.answer, Expected::Nothing) || !slot.conn.hold_syn() {
            return false;
        }
        in_lookup.refused = Some(why);
        flows.rekey(index, &wild, true, now);
        flows.touched(index);
        true
    }

    /// Returns the connection, carried in a lookup, that `segment` of no known flow answers with a proof, and binds
    /// it to its server.
    pub(crate) fn answers_in_lookup(
        &mut self,
        flows: &mut Flows,
        key: &FlowKey,
        segment: &Segment<'_>,
        now: Instant,
    ) -> Option<u32> {
        let wanted = Flags::SYN.union(Flags::ACK);
        if !segment.flags.contains(wanted) || segment.flags.intersects(Flags::RST.union(Flags::FIN)) {
            return None;
        }
        let in_lookup = self.in_lookup.get(&anywhere(key))?;
        let slot = flows.table.slots.get(in_lookup.index)?;
        let report = slot.conn.syn_ack_report(segment).filter(|report| report.acked == report.carried)?;
        let reply = segment.options.asap().and_then(Reply::parse)?;
        let tag = slot.pending.as_ref()?.asap_option.as_ref()?.tag.ok()?;
        if report.carried == 0 || reply.status != Status::Accepted || reply.tag != tag {
            return None;
        }
        let server = SocketAddr::new(key.remote_ip(), key.outer_remote());
        let proved = match (&in_lookup.answer, reply.hint) {
            (Expected::Proof(expected), Hint::Proof(proof)) => {
                expected.verifies(server, segment.seq, reply.status, &proof)
            }
            #[cfg(feature = "lab")]
            (Expected::LabNumbers, _) => true,
            _ => false,
        };
        let index = in_lookup.index;
        if !proved {
            return None;
        }
        if let Some(slot) = flows.table.slots.get_mut(index) {
            // The direct copy went to another address.
            slot.conn.forget_followers();
        }
        flows.rekey(index, key, true, now);
        flows.env.journal.counters.in_lookup_answered += 1;
        Some(index)
    }

    /// Whether `segment`, which belongs to no known flow, may be data of an answer whose SYN-ACK is late or lost. Such
    /// a segment is dropped, as in SYN-SENT (RFC 9293 §3.10.7.3, fifth step). A RST would end the connection at a
    /// server that has executed the request, and put the client's key on the block list there (`docs/spec/asap.md`
    /// §7.8).
    pub(crate) fn overtakes_answer(&self, table: &mut Table, key: &FlowKey, segment: &Segment<'_>) -> bool {
        let others = Flags::SYN.union(Flags::RST);
        let in_lookup =
            self.in_lookup.get(&anywhere(key)).and_then(|in_lookup| table.slots.get(in_lookup.index));
        in_lookup.is_some_and(|slot| {
            let sent = slot.conn.variables();
            let acknowledges = segment.ack.gt(sent.snd_una) && sent.snd_nxt.ge(segment.ack);
            segment.flags.contains(Flags::ACK) && !segment.flags.intersects(others) && acknowledges
        })
    }

    /// Connection `index` is no longer carried in a lookup: it has a server now, or is over.
    pub(crate) fn forget_in_lookup(&mut self, key: &FlowKey, index: u32) {
        let wild = anywhere(key);
        if self.in_lookup.get(&wild).is_some_and(|in_lookup| in_lookup.index == index) {
            self.in_lookup.remove(&wild);
        }
    }

    fn in_lookup_mut(&mut self, table: &mut Table, id: ConnId) -> Option<&mut InLookup> {
        let wild = anywhere(&table.slot(id)?.key);
        self.in_lookup.get_mut(&wild).filter(|in_lookup| in_lookup.index == id.index)
    }
}
