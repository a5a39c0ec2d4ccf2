//! The address lookup that runs next to the first flight, and the retry when it fails.

use super::DnsPath;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// How long the address question gets to be sent before the names of a first flight. Libraries first open a socket
/// and then ask in their own task.
const LEAD: Duration = Duration::from_millis(1);
/// How many turns other tasks get before that pause. If the application carries the names itself, there is no pause.
const TURNS: usize = 32;
/// The pause before the address is queried again. After it, a limit of a few answers per second permits some again.
const PAUSE: Duration = Duration::from_millis(500);

impl DnsPath {
    /// Waits until the address question should have been sent, so that a resolver that answers only a few questions
    /// of one client answers this one. Waits no longer when the addresses are `found`.
    pub(super) async fn lead(&self, found: impl Future<Output = ()>) {
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
            () = found => {}
            () = lead => {}
        }
    }

    /// Returns the addresses in `found`. If there are none, asks once more after a pause, because the names of a
    /// first flight may have used up the client's rate limit at the resolver. If no such names were sent in the last
    /// minute, it neither pauses nor asks again.
    pub(crate) async fn or_ask_again<F>(
        &self,
        found: io::Result<Vec<IpAddr>>,
        lookup: &(impl Fn() -> F + Sync),
    ) -> io::Result<Vec<IpAddr>>
    where
        F: Future<Output = io::Result<Vec<IpAddr>>> + Send,
    {
        let found = not_empty(found);
        if found.is_ok() || !self.has_asked() {
            return found;
        }
        self.0.time.sleep(PAUSE).await;
        not_empty(lookup().await)
    }

    fn has_asked(&self) -> bool {
        let inner = &self.0;
        inner.manners().has_asked(inner.network(), inner.resolver.ip(), inner.now())
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
