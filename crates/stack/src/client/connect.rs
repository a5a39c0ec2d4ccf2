//! How a connect begins: its addresses and ports, and its SYN.

use crate::addresses::possible_source;
use crate::client::{Client, Intent};
use crate::config::ConnectConfig;
use crate::env::Env;
use crate::event::ConnId;
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::flows::slot::{Beginning, OpeningSide, Owner};
use core::fmt;
use core::hint::cold_path;
use core::net::SocketAddr;
use firstflight_credential::Outcome;
use firstflight_tcp::SynPlan;
use firstflight_wire::Instant;
use firstflight_wire::hint::unlikely;

/// Why a connect was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The stack has no address of the server's family.
    NoAddress,
    /// The server's address or port cannot be connected to.
    BadRemote,
    /// The local address is not ours, or the pair is in use.
    LocalInUse,
    /// Every port to that server is in use.
    NoPorts,
    /// The stack's connection limit is reached.
    TooManyConnections,
    /// The stack has no UDP port to connect from ([`crate::Config::encapsulation`]).
    NoEncapsulation,
    /// The link is a UDP socket, and the server's UDP port is not named ([`ConnectConfig::encapsulation`]).
    NeedsEncapsulation,
    /// The local port belongs to another shard ([`crate::Config::shard`]).
    OtherShard,
    /// A first flight that travels in a lookup needs a certificate to show.
    NoCertificate,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAddress => "no route: the stack has no address of the server's family",
            Self::BadRemote => "that address or port cannot be connected to",
            Self::LocalInUse => "the local address is not ours or in use to that server",
            Self::NoPorts => "every local port to that server is in use",
            Self::TooManyConnections => "the stack's connection limit is reached",
            Self::NoEncapsulation => "the stack has no UDP port to connect from",
            Self::NeedsEncapsulation => "over a UDP socket the server's UDP port has to be named",
            Self::OtherShard => "the local port belongs to another shard",
            Self::NoCertificate => "a first flight that travels in a lookup needs a certificate",
        })
    }
}

impl core::error::Error for ConnectError {}

impl Client {
    /// See [`Stack::connect`](crate::Stack::connect). Returns also whether the connection has notifications.
    pub(crate) fn connect(
        &mut self,
        flows: &mut Flows,
        remote: SocketAddr,
        data: &[u8],
        config: &ConnectConfig,
        now: Instant,
    ) -> Result<(ConnId, usize, bool), ConnectError> {
        let ip = remote.ip();
        // In UDP, a stack on the same host is another one if its UDP port differs.
        let own = flows.encapsulation.as_ref().map(|encapsulation| encapsulation.port);
        let outer = match (own, config.encapsulation) {
            (None, None) => None,
            (Some(_), None)
                if flows.encapsulation.as_ref().is_some_and(|encapsulation| encapsulation.from_socket) =>
            {
                return Err(ConnectError::NeedsEncapsulation);
            }
            (Some(_), None) => None,
            (Some(own), Some(theirs)) => Some((own, theirs)),
            (None, Some(_)) => return Err(ConnectError::NoEncapsulation),
        };
        let ourselves = flows.env.is_ours(ip) && outer.is_none_or(|(own, theirs)| own == theirs);
        let no_port = remote.port() == 0 || config.encapsulation == Some(0);
        //= rfc9293 MUST-46
        if no_port || !possible_source(ip) || flows.env.is_broadcast(ip) || ourselves {
            return Err(ConnectError::BadRemote);
        }
        if flows.is_full() {
            return Err(ConnectError::TooManyConnections);
        }
        let mut key = any_port(&flows.env, remote, config, outer)?;
        let hash = self.choose_port(flows, &mut key, config)?;
        let mut ends = flows.env.endpoints(&key, None, now);
        let mut plan = SynPlan::default();
        let Intent { pending, outcome, path_mss } = self.intend(flows, &mut plan, config, &key, data, now);
        if path_mss < ends.path_mss {
            // A router has reported which size passes.
            ends.probe = [0; 3];
        }
        ends.path_mss = path_mss;
        let mut taken = 0;
        let with = Beginning { ends, key: &key, hash, owner: Owner::Application, outcome, now };
        let index = flows.insert(
            config.tcp.as_ref(),
            with,
            #[inline]
            |slot, pool| {
                taken = slot.conn.open_active(plan, data, pool);
                slot.pending = pending;
                slot.side = OpeningSide::Client;
            },
        );
        self.plan_fallback(&mut flows.table, index, config, data.get(..taken).unwrap_or_default(), now);
        flows.env.journal.counters.active_opens += 1;
        let notifications = outcome != Outcome::Undecided || flows.env.journal.is_tracing();
        Ok((flows.table.id(index), taken, notifications))
    }

    //= rfc9293 MUST-43 MUST-44 MUST-45
    pub(crate) fn local_end(
        &mut self,
        flows: &mut Flows,
        remote: SocketAddr,
        config: &ConnectConfig,
    ) -> Result<SocketAddr, ConnectError> {
        let outer =
            flows.encapsulation.as_ref().map(|encapsulation| encapsulation.port).zip(config.encapsulation);
        let mut key = any_port(&flows.env, remote, config, outer)?;
        self.choose_port(flows, &mut key, config)?;
        Ok(key.local())
    }

    /// Chooses the local port of a flow whose local port is 0. Returns the flow's hash.
    fn choose_port(
        &mut self,
        flows: &mut Flows,
        key: &mut FlowKey,
        config: &ConnectConfig,
    ) -> Result<u64, ConnectError> {
        if let Some(port) = config.local.map(|l| l.port()).filter(|p| *p != 0) {
            *key = key.with_local_port(port);
            let hash = flows.table.hasher.hash(key);
            if unlikely(!flows.env.shard.owns(key)) {
                return Err(ConnectError::OtherShard);
            }
            return if is_taken(flows, key, hash) { Err(ConnectError::LocalInUse) } else { Ok(hash) };
        }
        let random = u32::from(flows.env.random.next_byte());
        let first = self.ports.candidate(key).ok_or(ConnectError::NoPorts)?;
        let port = first.port;
        let chosen = key.with_local_port(port);
        let hash = flows.table.hasher.hash(&chosen);
        if unlikely(
            self.ports.is_reserved(port) || is_taken(flows, &chosen, hash) || !flows.env.shard.suits(&chosen),
        ) {
            return self.choose_free_port(flows, key, random);
        }
        self.ports.choose(first, random);
        *key = chosen;
        Ok(hash)
    }

    /// Like [`Self::choose_port`], if the first port is not free. A separate function, because one loop for both is
    /// slower if many ports are taken.
    #[inline(never)]
    fn choose_free_port(
        &mut self,
        flows: &Flows,
        key: &mut FlowKey,
        random: u32,
    ) -> Result<u64, ConnectError> {
        let (mut hash, mut tried) = (0, 0);
        let most = if flows.env.shard.is_steered(key) { MOST_STEERED } else { usize::MAX };
        let mut port = self.ports.select(key, random, |port| {
            let key = key.with_local_port(port);
            hash = flows.table.hasher.hash(&key);
            tried += 1;
            tried > most || !flows.env.shard.suits(&key) || is_taken(flows, &key, hash)
        });
        if port.is_none() && most < usize::MAX {
            // A packet at another queue is posted to this one.
            port = self.ports.select(key, random, |port| {
                let key = key.with_local_port(port);
                hash = flows.table.hasher.hash(&key);
                is_taken(flows, &key, hash)
            });
        }
        *key = key.with_local_port(port.ok_or(ConnectError::NoPorts)?);
        Ok(hash)
    }
}

#[inline]
fn is_taken(flows: &Flows, key: &FlowKey, hash: u64) -> bool {
    let table = &flows.table;
    table.find_hashed(hash, key).is_some()
        || table.time_wait.find(hash).is_some()
        || flows.env.shard.is_noted_elsewhere(hash)
}

/// Ports that are looked at for one whose answers come to this stack's queue.
const MOST_STEERED: usize = 1024;

/// The flow of a connect, with local port 0. `outer` are the UDP ports.
#[inline(always)]
fn any_port(
    env: &Env,
    remote: SocketAddr,
    config: &ConnectConfig,
    outer: Option<(u16, u16)>,
) -> Result<FlowKey, ConnectError> {
    let same = |ip: &&core::net::IpAddr| ip.is_ipv4() == remote.is_ipv4();
    let ip = match config.local {
        Some(local) if !local.ip().is_unspecified() => {
            if !env.is_ours(local.ip()) || local.is_ipv4() != remote.is_ipv4() {
                return Err(ConnectError::LocalInUse);
            }
            local.ip()
        }
        _ => *env.config.addresses.iter().find(same).ok_or(ConnectError::NoAddress)?,
    };
    let key = FlowKey::of(ip, 0, remote.ip(), remote.port());
    let Some((own, theirs)) = outer else { return Ok(key) };
    cold_path();
    Ok(key.carried(own, theirs))
}
