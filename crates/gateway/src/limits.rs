//! How many connections one client has.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Connections by client: an IPv4 address, or an IPv6 /64.
#[derive(Debug, Clone, Default)]
pub(crate) struct PerClient(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A connection of a client. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    clients: PerClient,
    client: IpAddr,
}

impl PerClient {
    /// A place for a connection of this client, if it has fewer than `most`.
    pub(crate) fn take(&self, client: IpAddr, most: usize) -> Option<Place> {
        let client = match client.to_canonical() {
            IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) >> 64 << 64).into(),
            v4 => v4,
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(client).or_default();
        if *count >= most {
            // There is an entry only for clients with connections.
            if *count == 0 {
                counts.remove(&client);
            }
            return None;
        }
        *count += 1;
        Some(Place { clients: self.clone(), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.clients.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_network_of_its_own() {
        let clients = PerClient::default();
        let ip = |text: &str| text.parse().unwrap();
        let held: Vec<_> = (0..2).map(|_| clients.take(ip("192.0.2.1"), 2).unwrap()).collect();
        assert!(clients.take(ip("192.0.2.1"), 2).is_none());
        assert!(clients.take(ip("::ffff:192.0.2.1"), 2).is_none());
        assert!(clients.take(ip("192.0.2.2"), 2).is_some());
        let six = clients.take(ip("2001:db8::1"), 1).unwrap();
        assert!(clients.take(ip("2001:db8::2"), 1).is_none());
        assert!(clients.take(ip("2001:db8:0:1::1"), 1).is_some());
        drop((held, six));
        assert!(clients.take(ip("192.0.2.9"), 0).is_none());
        assert!(clients.0.lock().unwrap().is_empty(), "nothing is kept of clients that left");
    }
}
