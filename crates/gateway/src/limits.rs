//! What one client may have of a listener: connections, requests at one time, and memory.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What clients have: an IPv4 address, or an IPv6 /64, is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clients(Arc<Mutex<HashMap<IpAddr, Share>>>);

/// What one client has. It is there as long as the client has anything.
#[derive(Debug)]
struct Share {
    /// Places and reservations that refer to this.
    held: usize,
    connections: usize,
    requests: Arc<Semaphore>,
    bytes: u64,
}

/// Something that a client has, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    clients: Clients,
    client: IpAddr,
    connections: usize,
    bytes: u64,
    _request: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// Bytes that are reserved.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The part of an address that is one client.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) >> 64 << 64).into(),
        v4 => v4,
    }
}

impl Clients {
    /// Does `work` with the client's share. If it returns a place, the share counts it.
    fn with(
        &self,
        client: IpAddr,
        requests: usize,
        work: impl FnOnce(&mut Share) -> Option<(usize, u64)>,
    ) -> Option<Place> {
        let client = client_of(client);
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let share = shares.entry(client).or_insert_with(|| Share {
            held: 0,
            connections: 0,
            requests: Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS))),
            bytes: 0,
        });
        match work(share) {
            Some((connections, bytes)) => {
                share.held += 1;
                share.connections += connections;
                share.bytes += bytes;
                Some(Place { clients: self.clone(), client, connections, bytes, _request: None })
            }
            None => {
                if share.held == 0 {
                    shares.remove(&client);
                }
                None
            }
        }
    }

    /// A place for a connection of this client, if it has fewer than `most`.
    pub(crate) fn connection(&self, client: IpAddr, most: usize) -> Option<Place> {
        self.with(client, 0, |share| (share.connections < most).then_some((1, 0)))
    }

    /// A place for a request of this client, once it has fewer than `most` under way.
    pub(crate) async fn request(&self, client: IpAddr, most: usize) -> Option<Place> {
        let mut requests = None;
        let mut place = self.with(client, most, |share| {
            // Whoever came first, for a connection perhaps, did not know how many, and a reload may have changed it.
            if share.requests.available_permits() == 0 && Arc::strong_count(&share.requests) == 1 {
                share.requests = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
            }
            requests = Some(Arc::clone(&share.requests));
            Some((0, 0))
        })?;
        // Nobody closes it.
        place._request = Some(requests?.acquire_owned().await.ok()?);
        Some(place)
    }

    /// Reserves up to `wanted` bytes for a connection of this client: half of what is left of `most`, but never less than
    /// `least`.
    pub(crate) fn reserve(&self, client: IpAddr, wanted: u64, least: u64, most: u64) -> Option<Place> {
        self.with(client, 0, |share| {
            let left = most.saturating_sub(share.bytes);
            Some((0, wanted.min(left / 2).max(least)))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut shares = self.clients.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get_mut(&self.client) {
            share.held -= 1;
            share.connections -= self.connections;
            share.bytes -= self.bytes;
            if share.held == 0 {
                shares.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_is_an_address_or_a_network_of_its_own() {
        let clients = Clients::default();
        let held: Vec<_> = (0..2).map(|_| clients.connection(ip("192.0.2.1"), 2).unwrap()).collect();
        assert!(clients.connection(ip("192.0.2.1"), 2).is_none());
        assert!(clients.connection(ip("::ffff:192.0.2.1"), 2).is_none());
        assert!(clients.connection(ip("192.0.2.2"), 2).is_some());
        let six = clients.connection(ip("2001:db8::1"), 1).unwrap();
        assert!(clients.connection(ip("2001:db8::2"), 1).is_none());
        assert!(clients.connection(ip("2001:db8:0:1::1"), 1).is_some());
        drop((held, six));
        assert!(clients.connection(ip("192.0.2.9"), 0).is_none());
        assert!(clients.0.lock().unwrap().is_empty(), "nothing is kept of clients that left");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_limit_wait_for_the_others_of_their_client() {
        let clients = Clients::default();
        let connection = clients.connection(ip("192.0.2.1"), 9).unwrap();
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(clients.request(ip("192.0.2.1"), 3).await.unwrap());
        }
        let soon = Duration::from_secs(1);
        assert!(timeout(soon, clients.request(ip("192.0.2.1"), 3)).await.is_err());
        assert!(timeout(soon, clients.request(ip("192.0.2.2"), 3)).await.is_ok(), "another client waits");
        let waiting = clients.clone();
        let waiting = tokio::spawn(async move { waiting.request(ip("192.0.2.1"), 3).await });
        tokio::task::yield_now().await;
        held.pop();
        assert!(waiting.await.unwrap().is_some());
        drop((held, connection));
        assert!(clients.0.lock().unwrap().is_empty());
    }

    #[test]
    fn each_connection_of_a_client_gets_less_memory() {
        let clients = Clients::default();
        let (wanted, least, most) = (16 << 20, 65_535, 64 << 20);
        let held: Vec<_> =
            (0..100).map(|_| clients.reserve(ip("192.0.2.1"), wanted, least, most).unwrap()).collect();
        assert_eq!((held[0].bytes(), held[1].bytes(), held[99].bytes()), (wanted, wanted, least));
        let all: u64 = held.iter().map(Place::bytes).sum();
        assert!(all <= most + 100 * least, "{all}");
        assert_eq!(clients.reserve(ip("192.0.2.2"), wanted, least, most).unwrap().bytes(), wanted);
        drop(held);
        assert!(clients.0.lock().unwrap().is_empty());
    }
}
