//! Servers that were asked for a cookie and have granted none so far.

use firstflight_credential::NetworkId;
use firstflight_wire::Instant;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Servers remembered. The one that was asked first is forgotten first.
const CAPACITY: usize = 256;

/// The servers, and when the first connection that asked each of them was complete.
#[derive(Debug, Default)]
pub(crate) struct CookieRequests(VecDeque<(NetworkId, IpAddr, Instant)>);

impl CookieRequests {
    /// A connection whose SYN left at `sent`, and which is complete at `now`, had no cookie and asked for one. Whether an earlier
    /// one, which was complete by then, had asked, too: then the server grants none, or the path removes the option.
    pub(crate) fn again(&mut self, network: NetworkId, server: IpAddr, sent: Instant, now: Instant) -> bool {
        let known = self.0.iter().find(|(net, ip, _)| (*net, *ip) == (network, server));
        if let Some((.., complete)) = known {
            return *complete <= sent;
        }
        if self.0.len() >= CAPACITY {
            self.0.pop_front();
        }
        self.0.push_back((network, server, now));
        false
    }

    /// Whether `server` was asked and has granted none.
    pub(crate) fn contains(&self, network: NetworkId, server: IpAddr) -> bool {
        self.0.iter().any(|(net, ip, _)| (*net, *ip) == (network, server))
    }

    /// There was a cookie for `server`.
    pub(crate) fn granted(&mut self, network: NetworkId, server: IpAddr) {
        self.0.retain(|(net, ip, _)| (*net, *ip) != (network, server));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Forgets what was learnt on `network`.
    pub(crate) fn leave(&mut self, network: NetworkId) {
        self.0.retain(|(known, ..)| *known != network);
    }
}

#[cfg(test)]
mod tests;
