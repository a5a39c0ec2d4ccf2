//! Connections to backends that belong to one client, because it logs in on them (NTLM, Negotiate).

use crate::backend::{Backend, Lease, RequestConnection, Sender, Service};
use std::sync::{Arc, Mutex, PoisonError};

/// How many a client's connection has. Each is for another backend or service.
const MOST: usize = 8;

/// Those of one connection of a client with HTTP/1. They end with it.
#[derive(Clone, Default)]
pub(super) struct Logins(Arc<Mutex<Vec<Login>>>);

type Login = (Sender, Arc<Backend>);

impl Logins {
    /// The connection on which the client logs in to this service.
    pub(super) async fn take(&self, service: &Service) -> Option<RequestConnection> {
        let (mut sender, backend) = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let here =
                |backend: &Arc<Backend>| service.backends().iter().any(|one| Arc::ptr_eq(one, backend));
            let at = all.iter().position(|(_, backend)| here(backend))?;
            all.swap_remove(at)
        };
        // The last response has just ended. If the backend has ended the connection, the login begins again.
        sender.is_ready().await.then(|| RequestConnection { sender, lease: Lease::new(&backend), kept: true })
    }

    /// The connection is the client's from now on.
    pub(super) fn put(&self, sender: Sender, backend: &Arc<Backend>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.remove(0);
        }
        all.push((sender, Arc::clone(backend)));
    }
}
