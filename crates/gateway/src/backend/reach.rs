//! From a backend's name to a connection of TCP: its addresses, and the one of them that answers.

use super::dial::is_shortage;
use firstflight::{Authority, Client, ClientError, FirstFlight, Lookups, Stream};
use nix::errno::Errno;
use std::io;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long the addresses of a name are used while its lookups fail: a day, as RFC 8767 §5 advises.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Finds and connects to backends. What is learnt of names and addresses serves all that a clone of it reaches.
#[derive(Debug, Clone)]
pub(super) struct Reach {
    client: Client,
    lookups: Lookups,
}

impl Reach {
    pub(super) fn of_process() -> Self {
        static OF_PROCESS: LazyLock<Reach> = LazyLock::new(|| Reach::new(Lookups::system(KEPT)));
        OF_PROCESS.clone()
    }

    pub(super) fn new(lookups: Lookups) -> Self {
        // Ordinary connects: backends are near, and have no certificates. It fails only with a file, which there is not.
        let client = Client::builder().off(true).build().unwrap_or_default().tcp_only();
        Self { client, lookups }
    }

    /// Connects to `at`, a name or an address and a port. The addresses of a name race (RFC 8305), and those that lost are
    /// tried last for ten minutes. The caller gives up `within` this time.
    pub(super) async fn connect(&self, at: &str, turn: &AddressTurn, within: Duration) -> io::Result<Stream> {
        let mut addresses = self.addresses(at, within).await?;
        turn.apply(&mut addresses);
        let under_way = turn.begin();
        // Some names are none of a server's to the library, and the system finds them all the same.
        let server = at.parse().ok().or_else(|| addresses.first().copied().map(Authority::from));
        let server = server.ok_or(io::ErrorKind::NotFound)?;
        let connecting = self.client.connect(&server, FirstFlight::empty()).at(addresses);
        let result = connecting.await;
        under_way.ended();
        result.map_err(why)
    }

    async fn addresses(&self, at: &str, within: Duration) -> io::Result<Vec<SocketAddr>> {
        if let Ok(literal) = at.parse() {
            return Ok(vec![literal]);
        }
        let parts = at.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
        let (name, port) = parts.ok_or(io::ErrorKind::InvalidInput)?;
        // Most of the time is for the connect.
        self.lookups.addresses(name, port, Lookups::PATIENCE.min(within / 4)).await
    }
}

/// With which of its addresses a name begins. A connect that is given up before it ends has taught nothing of the addresses,
/// so the next one begins with another one: those behind the first come to their turn however short the time is.
#[derive(Debug, Default)]
pub(super) struct AddressTurn(AtomicUsize);

impl AddressTurn {
    fn apply(&self, addresses: &mut [SocketAddr]) {
        if let Some(by) = self.0.load(Ordering::Relaxed).checked_rem(addresses.len()) {
            addresses.rotate_left(by);
        }
    }

    const fn begin(&self) -> UnderWay<'_> {
        UnderWay { turn: self, over: false }
    }
}

/// A connect. Dropped before it is over, it passes the turn on.
struct UnderWay<'a> {
    turn: &'a AddressTurn,
    over: bool,
}

impl UnderWay<'_> {
    fn ended(mut self) {
        self.over = true;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.turn.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Why there is no connection. It is a shortage of this machine only if no address could be tried for want of something.
fn why(error: ClientError) -> io::Error {
    let ClientError::Connect { error: mut lost, .. } = error else { return error.into() };
    // Local ports run out for each address.
    for attempt in &mut lost.attempts {
        if attempt.error.raw_os_error() == Some(Errno::EAGAIN as i32) {
            attempt.error = Errno::EADDRNOTAVAIL.into();
        }
    }
    match lost.attempts.iter().all(|attempt| is_shortage(&attempt.error)) || lost.attempts.len() == 1 {
        true => lost.attempts.pop().map_or_else(|| io::ErrorKind::NotFound.into(), |attempt| attempt.error),
        false => lost.into(),
    }
}

#[cfg(test)]
mod tests;
