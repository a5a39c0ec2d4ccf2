//! Decides which connections a listener keeps: a table without sockets and clocks.
//!
//! Holding a connection costs a client nothing, so an attacker can open as many as the listener allows. New clients do
//! not wait for these to end: when a limit is reached, the connection that has been idle for longest is closed.

use crate::stream::StreamLimits;
use ipnet::IpNet;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

/// Prefix lengths of a network: an IPv4 /24, an IPv6 /56, as in the limits of answers.
const NETWORK_BITS: (u8, u8) = (24, 56);
/// Prefix lengths of one client: an IPv4 address, an IPv6 /64.
const CLIENT_BITS: (u8, u8) = (32, 64);

/// The connections of one listener, by an `Id` that the caller chose.
pub(crate) struct Connections<Id> {
    limits: StreamLimits,
    held: HashMap<Id, ConnectionOwner>,
    clients: HashMap<IpAddr, usize>,
    networks: HashMap<IpAddr, usize>,
    /// Counts events. A smaller number is longer ago.
    clock: u64,
}

/// The owner of a connection, and its last activity.
#[derive(Clone, Copy)]
struct ConnectionOwner {
    client: IpAddr,
    network: IpAddr,
    /// When it was made, or when its last whole message came.
    active: u64,
}

impl<Id: Copy + Eq + Hash> Connections<Id> {
    /// An empty table.
    pub(crate) fn new(limits: StreamLimits) -> Self {
        Self { limits, held: HashMap::new(), clients: HashMap::new(), networks: HashMap::new(), clock: 0 }
    }

    /// The number of connections.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Removes and returns the connection that must end to make room for one from `from`, if a limit is
    /// reached.
    ///
    /// A client or a network that has reached its limit loses one of its own connections. If the listener has reached
    /// its limit, the network with the most connections loses one. So an attacker's connections displace each other
    /// before they displace a client that is alone in its network.
    pub(crate) fn make_room(&mut self, from: IpAddr) -> Option<Id> {
        let (client, network) = (prefix(from, CLIENT_BITS), prefix(from, NETWORK_BITS));
        let count = |counts: &HashMap<IpAddr, usize>, of| counts.get(&of).copied().unwrap_or_default();
        let victim = if count(&self.clients, client) >= self.limits.per_client {
            self.oldest(|holder| holder.client == client)
        } else if count(&self.networks, network) >= self.limits.per_network {
            self.oldest(|holder| holder.network == network)
        } else if self.held.len() >= self.limits.connections {
            // Count the new connection too. If its own network is then the largest, it loses one.
            let most = self.networks.values().copied().max().unwrap_or_default();
            let own = count(&self.networks, network) + 1 > most;
            self.oldest(|holder| match own {
                true => holder.network == network,
                false => count(&self.networks, holder.network) == most,
            })
        } else {
            None
        }?;
        self.remove(victim);
        Some(victim)
    }

    fn oldest(&self, of: impl Fn(&ConnectionOwner) -> bool) -> Option<Id> {
        let held = self.held.iter().filter(|(_, holder)| of(holder));
        held.min_by_key(|(_, holder)| holder.active).map(|(&id, _)| id)
    }

    /// Adds a connection from `from`, for which there is room.
    pub(crate) fn add(&mut self, id: Id, from: IpAddr) {
        let (client, network) = (prefix(from, CLIENT_BITS), prefix(from, NETWORK_BITS));
        *self.clients.entry(client).or_default() += 1;
        *self.networks.entry(network).or_default() += 1;
        self.clock += 1;
        self.held.insert(id, ConnectionOwner { client, network, active: self.clock });
    }

    /// Notes that a whole message came on a connection.
    pub(crate) fn active(&mut self, id: Id) {
        if let Some(holder) = self.held.get_mut(&id) {
            self.clock += 1;
            holder.active = self.clock;
        }
    }

    /// Removes a connection that has ended, if it is still in the table.
    pub(crate) fn remove(&mut self, id: Id) {
        let Some(holder) = self.held.remove(&id) else { return };
        for (counts, of) in [(&mut self.clients, holder.client), (&mut self.networks, holder.network)] {
            if let Some(count) = counts.get_mut(&of) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&of);
                }
            }
        }
    }
}

/// The prefix of an address, with the prefix lengths for IPv4 and IPv6.
fn prefix(address: IpAddr, (v4, v6): (u8, u8)) -> IpAddr {
    let address = address.to_canonical();
    let bits = if address.is_ipv4() { v4 } else { v6 };
    // Both lengths are those of an address at most, so there is a network.
    IpNet::new(address, bits).map_or(address, |net| net.network())
}

#[cfg(test)]
mod tests;
