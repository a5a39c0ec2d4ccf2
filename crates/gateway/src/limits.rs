//! What a listener has at one time, and what one client may have of it: connections, requests, and memory.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of places, which a reload may change while they are taken.
#[derive(Debug)]
pub(crate) struct Limit {
    semaphore: Arc<Semaphore>,
    size: Mutex<Size>,
}

#[derive(Debug)]
struct Size {
    most: usize,
    /// Free and taken places: more than `most` until enough of them are given back.
    places: usize,
}

impl Limit {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let most = most.min(Semaphore::MAX_PERMITS);
        let size = Mutex::new(Size { most, places: most });
        Arc::new(Self { semaphore: Arc::new(Semaphore::new(most)), size })
    }

    /// From now on there are `most` places. Who waits for one goes on if there are more than before.
    pub(crate) fn set(&self, most: usize) {
        let mut size = self.size.lock().unwrap_or_else(PoisonError::into_inner);
        size.most = most.min(Semaphore::MAX_PERMITS);
        if size.places < size.most {
            self.semaphore.add_permits(size.most - size.places);
            size.places = size.most;
        } else {
            size.places -= self.semaphore.forget_permits(size.places - size.most);
        }
    }

    /// Waits for a place.
    pub(crate) async fn place(self: Arc<Self>) -> LimitPermit {
        // Nobody closes the semaphore.
        let permit = Arc::clone(&self.semaphore).acquire_owned().await.ok();
        LimitPermit { limit: self, permit }
    }
}

/// A place of a [`Limit`], until it is dropped.
#[derive(Debug)]
pub(crate) struct LimitPermit {
    limit: Arc<Limit>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for LimitPermit {
    fn drop(&mut self) {
        let mut size = self.limit.size.lock().unwrap_or_else(PoisonError::into_inner);
        match self.permit.take() {
            Some(permit) if size.places > size.most => {
                permit.forget();
                size.places -= 1;
            }
            // Under the lock: `set` must see it as free.
            permit => drop(permit),
        }
    }
}

/// What clients have: an IPv4 address, or an IPv6 /64, is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clients(Arc<Mutex<HashMap<IpAddr, Share>>>);

/// What one client has. It is there as long as the client has anything.
#[derive(Debug)]
struct Share {
    /// Places and reservations that refer to this.
    held: usize,
    connections: usize,
    requests: Arc<Limit>,
    bytes: u64,
}

/// Something that a client has, until it is dropped.
#[derive(Debug)]
pub(crate) struct ClientPermit {
    clients: Clients,
    client: IpAddr,
    connections: usize,
    bytes: u64,
    _request: Option<LimitPermit>,
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
            requests: Limit::new(requests),
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
            share.requests.set(most);
            requests = Some(Arc::clone(&share.requests));
            Some((0, 0))
        })?;
        place._request = Some(requests?.place().await);
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
