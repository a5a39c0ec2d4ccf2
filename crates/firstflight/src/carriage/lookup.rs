//! The lookup of the server's address beside the first flight, and what happens when it fails.

use super::DnsPath;
use firstflight_wire::Instant;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// How long the question for the address has to leave before the names of a first flight. Libraries open a socket first
/// and ask in a task of their own.
const LEAD: Duration = Duration::from_millis(1);
/// How many turns other tasks get before that pause. Where the application carries the names itself, there is no pause.
const TURNS: usize = 32;
/// The pause before the address is asked for once more. A limit of a few answers a second then grants some again.
const PAUSE: Duration = Duration::from_millis(500);

impl DnsPath {
    /// Waits until the question for the address should be on its way: a resolver that answers few questions of one
    /// client then answers that one. Gives what was found meanwhile.
    pub(super) async fn lead<T>(&self, asked: impl Future<Output = T>) -> Option<T> {
        let lead = async {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            if self.0.exchange.is_none() {
                self.0.time.sleep(LEAD).await;
            }
        };
        tokio::select! {
            biased;
            found = asked => Some(found),
            () = lead => None,
        }
    }

    /// The addresses that were `found`. If there are none, asks once more after a pause: the names of a first flight
    /// may have used up what the resolver grants a client. Without such names in the last minute there is no pause
    /// and no other question.
    pub(super) async fn or_ask_again<F>(
        &self,
        found: io::Result<Vec<IpAddr>>,
        lookup: &impl Fn() -> F,
    ) -> io::Result<Vec<IpAddr>>
    where
        F: Future<Output = io::Result<Vec<IpAddr>>>,
    {
        let found = not_empty(found);
        if found.is_ok() || !self.has_asked() {
            return found;
        }
        self.0.time.sleep(PAUSE).await;
        not_empty(lookup().await)
    }

    /// The direct way has failed with `error`. The server may have executed the request that travelled in the lookup, so
    /// its answer is awaited until `until`.
    pub(super) async fn answer_or<T>(
        &self,
        error: io::Error,
        answered: impl Future<Output = io::Result<()>>,
        until: Instant,
    ) -> io::Result<Option<T>> {
        match self.0.time.timeout(until - self.0.time.now(), answered).await {
            Some(Ok(())) => Ok(None),
            Some(Err(_)) | None => Err(error),
        }
    }

    fn has_asked(&self) -> bool {
        let inner = &self.0;
        inner.manners().has_asked(inner.network, inner.resolver.ip(), inner.now())
    }
}

fn not_empty(found: io::Result<Vec<IpAddr>>) -> io::Result<Vec<IpAddr>> {
    match found {
        Ok(found) if found.is_empty() => {
            Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
        }
        found => found,
    }
}
