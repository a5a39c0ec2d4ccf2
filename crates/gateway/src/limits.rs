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
pub(crate) struct ClientPermit {
    clients: Clients,
    client: IpAddr,
    connections: usize,
    bytes: u64,
    _request: Option<OwnedSemaphorePermit>,
}

impl ClientPermit {
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
    ) -> Option<ClientPermit> {
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
                Some(ClientPermit { clients: self.clone(), client, connections, bytes, _request: None })
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
    pub(crate) fn connection(&self, client: IpAddr, most: usize) -> Option<ClientPermit> {
        self.with(client, 0, |share| (share.connections < most).then_some((1, 0)))
    }

    /// A place for a request of this client, once it has fewer than `most` under way.
    pub(crate) async fn request(&self, client: IpAddr, most: usize) -> Option<ClientPermit> {
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
    pub(crate) fn reserve(&self, client: IpAddr, wanted: u64, least: u64, most: u64) -> Option<ClientPermit> {
        self.with(client, 0, |share| {
            let left = most.saturating_sub(share.bytes);
            Some((0, wanted.min(left / 2).max(least)))
        })
    }
}

impl Drop for ClientPermit {
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
mod tests;
