//! Connecting to one of several addresses (Happy Eyeballs, RFC 8305).

use crate::endpoint::Endpoint;
use crate::first_flight::FirstFlight;
use crate::history::Way;
use crate::shared::{Inner, Interest, Shared};
use crate::stream::{Stream, connect, first_data};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::{Certified, ConnId, ConnectConfig, IoError};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// RFC 8305 §5: the recommended delay, and the least one.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
const MIN_ATTEMPT_DELAY: Duration = Duration::from_millis(10);

/// Settings of [`Endpoint::connect_any`].
#[derive(Debug, Clone)]
pub struct ConnectAnyConfig {
    /// Settings of the attempts; only the first one does Fast Open. A local address counts for the attempts
    /// of its family, and so does a certificate.
    pub connect: ConnectConfig,
    /// How long an attempt is waited for before the next one begins beside it: 250 ms, less than 10 ms
    /// counts as 10 ms (RFC 8305 §5).
    pub attempt_delay: Duration,
}

impl Default for ConnectAnyConfig {
    fn default() -> Self {
        Self { connect: ConnectConfig::default(), attempt_delay: ATTEMPT_DELAY }
    }
}

/// An attempt that led to nothing.
#[derive(Debug)]
pub struct FailedAttempt {
    /// Where to.
    pub remote: SocketAddr,
    /// What became of its first flight; with [`Reason::Unknown`] the server may have executed the data.
    pub outcome: Outcome,
    /// Why it failed.
    pub error: io::Error,
}

/// Why there is no connection to any of the addresses.
#[derive(Debug)]
pub struct ConnectAnyError {
    /// All attempts, in the order in which they failed; none if no address was given.
    pub attempts: Vec<FailedAttempt>,
}

impl fmt::Display for ConnectAnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.attempts.is_empty() {
            return f.write_str("no address to connect to");
        }
        for (count, FailedAttempt { remote, error, .. }) in self.attempts.iter().enumerate() {
            let separator = if count > 0 { "; " } else { "" };
            write!(f, "{separator}{remote}: {error}")?;
        }
        Ok(())
    }
}

// Its text has the errors of all attempts, so none of them is its source.
impl std::error::Error for ConnectAnyError {}

/// Of the kind of the first failure.
impl From<ConnectAnyError> for io::Error {
    fn from(error: ConnectAnyError) -> Self {
        let kind = error.attempts.first().map_or(io::ErrorKind::InvalidInput, |first| first.error.kind());
        Self::new(kind, error)
    }
}

impl Endpoint {
    /// Connects to whichever of `addresses` answers first, and sends `first` there (Happy Eyeballs,
    /// RFC 8305). The addresses are the caller's, best one first; they are tried alternating between the
    /// families, the next one as soon as one fails or [`ConnectAnyConfig::attempt_delay`] has passed. An address that
    /// failed, or lost to a later one, is tried after the others for ten minutes on that network (RFC 8305 §4). So a
    /// dead first address costs its delay once, and then the data goes to an address that works. The first connection
    /// whose handshake completes wins, the others are aborted: a peer that answers one of them gets a RST.
    /// [`Stream::peer_addr`] is the winner's address.
    ///
    /// **Which connection gets the data.** Data that is [`FirstFlight::at_most_once`] is sent on the winner
    /// after its handshake, and nowhere else: no attempt can have delivered it before. Data that is
    /// [`FirstFlight::safely_replayable`] rides in the SYN of the *first* attempt, if Fast Open is asked for
    /// and a cookie known; all other attempts are ordinary handshakes without data ([`Reason::NotFirstAddress`]; the
    /// paper's SYN with data must not be multiplied). If another one wins while the first is unanswered, the first
    /// one's server may have executed the data, and it is sent again on the winner, as the caller has said it may be;
    /// [`Stream::outcome`] is then `Handshake(Unknown)`. If the first one is complete at the moment of the
    /// decision, it wins.
    ///
    /// # Errors
    /// When every attempt has failed: all of their errors. Dropping the future aborts the attempts.
    ///
    /// ```
    /// # use firstflight::{ConnectAnyConfig, Endpoint, FirstFlight, Stream};
    /// async fn ask(endpoint: &Endpoint, addresses: &[std::net::SocketAddr]) -> std::io::Result<Stream> {
    ///     let mut config = ConnectAnyConfig::default();
    ///     config.connect.fast_open = true;
    ///     let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
    ///     Ok(endpoint.connect_any(addresses, request, &config).await?)
    /// }
    /// ```
    pub async fn connect_any(
        &self,
        addresses: &[SocketAddr],
        first: FirstFlight<'_>,
        config: &ConnectAnyConfig,
    ) -> Result<Stream, ConnectAnyError> {
        let time = self.time();
        let mut race = Race::new(&self.shared, first);
        let delay = config.attempt_delay.max(MIN_ATTEMPT_DELAY);
        let mut addresses = race.order(addresses, &config.connect).into_iter().peekable();
        while addresses.peek().is_some() || !race.running.is_empty() {
            if let Some(remote) = addresses.next() {
                race.begin(remote, &config.connect);
            }
            if race.running.is_empty() {
                continue;
            }
            let turn = poll_fn(|cx| race.poll(cx));
            let turn = match addresses.peek() {
                Some(_) => time.timeout(delay, turn).await,
                None => Some(turn.await),
            };
            if let Some(Turn::Won(winner)) = turn {
                race.remember(winner.attempt.remote, &config.connect);
                match winner.deliver(&self.shared, first).await {
                    Ok(stream) => return Ok(stream),
                    // The data is on its way there: no other address may get it.
                    Err(failed) => {
                        race.failed.push(failed);
                        break;
                    }
                }
            }
        }
        Err(ConnectAnyError { attempts: std::mem::take(&mut race.failed) })
    }
}

/// Attempts at several addresses. Dropped, it aborts those under way.
struct Race<'a> {
    shared: &'a Arc<Shared>,
    first: FirstFlight<'a>,
    /// An attempt was begun.
    begun: bool,
    running: Vec<Attempt>,
    failed: Vec<FailedAttempt>,
    /// Addresses to which attempts were begun, in this order.
    tried: Vec<SocketAddr>,
}

/// An attempt under way.
struct Attempt {
    remote: SocketAddr,
    id: ConnId,
    /// It is the one that was given the data, and this much of it was taken.
    given: Option<usize>,
}

/// What happened.
enum Turn {
    Won(Winner),
    /// At least one attempt has failed.
    Failed,
}

/// The attempt that won.
struct Winner {
    attempt: Attempt,
    /// What became of the data in another attempt's SYN, if there was any.
    elsewhere: Option<Outcome>,
}

impl<'a> Race<'a> {
    fn new(shared: &'a Arc<Shared>, first: FirstFlight<'a>) -> Self {
        Self { shared, first, begun: false, running: Vec::new(), failed: Vec::new(), tried: Vec::new() }
    }

    /// The order of attempts. Addresses that lost lately come last.
    fn order(&self, addresses: &[SocketAddr], config: &ConnectConfig) -> Vec<SocketAddr> {
        let inner = self.shared.lock();
        let (network, now) = (inner.stack.config().network, inner.now());
        let slow = |remote: &SocketAddr| inner.history.is_slow(&Way::new(network, *remote, config), now);
        let (last, first): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(slow);
        [interleave(&first), interleave(&last)].concat()
    }

    /// Remembers that `winner` won, and that the attempts that began before it lost.
    fn remember(&self, winner: SocketAddr, config: &ConnectConfig) {
        let mut inner = self.shared.lock();
        let (network, now) = (inner.stack.config().network, inner.now());
        for remote in self.tried.iter().take_while(|remote| **remote != winner) {
            inner.history.lost(Way::new(network, *remote, config), now);
        }
        inner.history.won(&Way::new(network, winner, config));
    }

    /// Begins an attempt; the first one that begins gets the data, if it may ride.
    fn begin(&mut self, remote: SocketAddr, config: &ConnectConfig) {
        let local = config.local.filter(|local| local.is_ipv4() == remote.is_ipv4());
        let wanted = config.fast_open || config.asap.is_some();
        let first = wanted && !self.begun;
        // No server of the other family sees the certified address.
        let fits = |asap: &Certified| asap.certificate.address().is_ipv4() == remote.is_ipv4();
        let asap = config.asap.clone().filter(|asap| first && fits(asap));
        let held_back = match config.held_back {
            _ if wanted && !first => Some(Reason::NotFirstAddress),
            None if first && !config.fast_open && asap.is_none() => Some(Reason::NoCredential),
            held_back => held_back,
        };
        let mut config = ConnectConfig {
            fast_open: config.fast_open && first,
            asap,
            replay_safe: self.first.is_replayable(),
            held_back,
            local,
            ..config.clone()
        };
        let data = if first { first_data(&mut config, self.first.data()) } else { &[] };
        let given = !data.is_empty();
        let begun = connect(&mut self.shared.lock(), remote, data, &config);
        match begun {
            Ok((id, taken)) => {
                self.begun = true;
                self.running.push(Attempt { remote, id, given: given.then_some(taken) });
                self.tried.push(remote);
            }
            Err(error) => self.failed.push(FailedAttempt { remote, outcome: Outcome::Undecided, error }),
        }
    }

    /// Looks who has won or failed. A decision, and the end of the losers, happen under one lock: nothing can
    /// arrive in between that would send the data a second time.
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Turn> {
        let mut inner = self.shared.lock();
        let confirmed = |attempt: &Attempt| inner.stack.info(attempt.id).is_some_and(|info| info.confirmed);
        if let Some(at) = self.running.iter().position(confirmed) {
            let attempt = self.running.swap_remove(at);
            let unclear =
                self.failed.iter().map(|failed| failed.outcome).find(|outcome| is_unclear(*outcome));
            let aborted = self.running.drain(..).map(|loser| (loser.given, abandon(&mut inner, loser.id)));
            // Collected first: every loser has to be aborted.
            let aborted: Vec<_> = aborted.collect();
            let given = aborted.into_iter().find(|(given, outcome)| given.is_some() && is_unclear(*outcome));
            let elsewhere = given.map(|(_, outcome)| outcome).or(unclear);
            return Poll::Ready(Turn::Won(Winner { attempt, elsewhere }));
        }
        let before = self.running.len();
        let stopped = inner.check().err().map(|error| error.kind());
        let failed = &mut self.failed;
        self.running.retain(|attempt| {
            let error = match (inner.stack.close_reason(attempt.id), stopped) {
                (Some(reason), _) => inner.io_error(attempt.id, IoError::Closed(reason)),
                (None, Some(kind)) => kind.into(),
                (None, None) => {
                    inner.wait(attempt.id, Interest::Connected, cx);
                    return true;
                }
            };
            let outcome = abandon(&mut inner, attempt.id);
            // Where no data was given, none was executed.
            let outcome = if attempt.given.is_some() { outcome } else { Outcome::Undecided };
            failed.push(FailedAttempt { remote: attempt.remote, outcome, error });
            false
        });
        if self.running.len() < before { Poll::Ready(Turn::Failed) } else { Poll::Pending }
    }
}

impl Drop for Race<'_> {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        for attempt in self.running.drain(..) {
            abandon(&mut inner, attempt.id);
        }
    }
}

/// Aborts an attempt and lets go of it; what became of its first flight.
fn abandon(inner: &mut Inner, id: ConnId) -> Outcome {
    let now = inner.now();
    inner.stack.abort(id, now);
    let outcome = inner.stack.info(id).map_or(Outcome::Undecided, |info| info.outcome);
    inner.stack.release(id, now);
    inner.forget(id);
    inner.kick();
    outcome
}

fn is_unclear(outcome: Outcome) -> bool {
    outcome == Outcome::Handshake(Reason::Unknown)
}

impl Winner {
    /// The stream, with the data on its way.
    async fn deliver(self, shared: &Arc<Shared>, first: FirstFlight<'_>) -> Result<Stream, FailedAttempt> {
        let Attempt { remote, id, given } = self.attempt;
        let mut stream = Stream::opened(shared, id, remote, self.elsewhere);
        let rest = first.data().get(given.unwrap_or(0)..).unwrap_or_default();
        match stream.write_all(rest).await {
            Ok(()) => Ok(stream),
            Err(error) => Err(FailedAttempt { remote, outcome: stream.outcome(), error }),
        }
    }
}

/// RFC 8305 §4: alternating between the families, beginning with that of the first address; the order
/// within a family stays. What is there twice counts once.
fn interleave(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let leading_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (mut leading, mut other) = (Vec::new(), Vec::new());
    for address in addresses {
        let family = if address.is_ipv4() == leading_v4 { &mut leading } else { &mut other };
        if !family.contains(address) {
            family.push(*address);
        }
    }
    let mut order = Vec::with_capacity(leading.len() + other.len());
    let mut other = other.into_iter();
    for address in leading {
        order.push(address);
        order.extend(other.next());
    }
    order.extend(other);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate_and_keep_their_order() {
        let all = |list: &[&str]| list.iter().map(|a| a.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let given = all(&["[fd::1]:1", "[fd::2]:1", "[fd::1]:1", "[fd::3]:1", "1.1.1.1:1", "1.1.1.2:1"]);
        let wanted = all(&["[fd::1]:1", "1.1.1.1:1", "[fd::2]:1", "1.1.1.2:1", "[fd::3]:1"]);
        assert_eq!(interleave(&given), wanted);
        let v4_first = all(&["1.1.1.1:1", "[fd::1]:1", "[fd::2]:1"]);
        assert_eq!(interleave(&v4_first), v4_first);
        assert_eq!(interleave(&[]), []);
    }
}
