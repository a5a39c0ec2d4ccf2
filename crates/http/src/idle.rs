//! Connections to a server that are kept for further requests.

use hyper::client::conn::http1;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A connection that can be kept.
pub trait Kept {
    /// It can never have another request.
    fn is_closed(&self) -> bool;
    /// It can have one now. One that still ends its last request is ready a moment later.
    fn is_ready(&self) -> bool;
}

impl<B> Kept for http1::SendRequest<B> {
    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }

    fn is_ready(&self) -> bool {
        Self::is_ready(self)
    }
}

/// The idle connections to one server. The one that was used last is taken first: it is the least likely to be closed.
pub struct Idle<T>(Mutex<Vec<(T, Instant)>>);

impl<T> fmt::Debug for Idle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle").finish_non_exhaustive()
    }
}

impl<T> Default for Idle<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Kept> Idle<T> {
    /// A connection that is ready, and has been idle for less than `within`.
    pub fn take(&self, within: Duration) -> Option<T> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = idle.len();
        while at > 0 {
            at -= 1;
            let (connection, since) = idle.get(at)?;
            if connection.is_closed() || since.elapsed() >= within {
                idle.remove(at);
            } else if connection.is_ready() {
                return Some(idle.remove(at).0);
            }
        }
        None
    }

    /// Keeps a connection, and at most `most`. The one that has been idle for longest goes.
    pub fn put(&self, connection: T, most: usize) {
        if connection.is_closed() {
            return;
        }
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= most && !idle.is_empty() {
            idle.remove(0);
        }
        if idle.len() < most {
            idle.push((connection, Instant::now()));
        }
    }

    /// Closes the one that has been idle for longest. Returns false if there is none.
    pub fn close_one(&self) -> bool {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.is_empty() {
            return false;
        }
        idle.remove(0);
        true
    }

    /// Closes connections that have been idle for this long.
    pub fn close_idle(&self, within: Duration) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(connection, since)| !connection.is_closed() && since.elapsed() < within);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
