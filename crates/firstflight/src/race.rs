//! Connecting to one of several addresses (Happy Eyeballs, RFC 8305).

use crate::attempts::{ConnectAnyError, FailedAttempt, interleave};
use crate::endpoint::Endpoint;
use crate::first_flight::FirstFlight;
use crate::memory::history::Way;
use crate::shared::{Inner, Interest, Shared};
use crate::stream::{EngineStream, Stream, connect, first_data};
use firstflight_credential::{Outcome, Reason};
use firstflight_stack::{Certified, ConnId, ConnectConfig, IoError};
use firstflight_wire::setters;
use std::borrow::Cow;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// RFC 8305 §5: the recommended and the minimum delay between two attempts.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
const MIN_ATTEMPT_DELAY: Duration = Duration::from_millis(10);

/// Settings of [`Endpoint::connect_any`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectAnyConfig {
    /// Settings of the attempts. Only the first attempt uses Fast Open. A local address and a certificate are used
    /// only for addresses of their own family.
    pub connect: ConnectConfig,
    /// How long an attempt may take before the next one starts in parallel. The default is 250 ms; values below 10 ms
    /// count as 10 ms (RFC 8305 §5).
    pub attempt_delay: Duration,
}

setters! {
    ConnectAnyConfig {
        connect: ConnectConfig,
        attempt_delay: Duration,
    }
}

impl Default for ConnectAnyConfig {
    fn default() -> Self {
        Self { connect: ConnectConfig::default(), attempt_delay: ATTEMPT_DELAY }
    }
}

impl Endpoint {
    /// Connects to the first of `addresses` that answers, and sends `first` there (Happy Eyeballs, RFC 8305).
    ///
    /// The caller gives the addresses with the best one first. The attempts alternate between the address families.
    /// The next attempt starts when one fails or when [`ConnectAnyConfig::attempt_delay`] has passed. An address that
    /// failed, or that lost to a later one, is tried after the others for ten minutes on that network (RFC 8305 §4).
    /// So an unreachable first address costs its delay once; after that, the data goes to an address that works. The
    /// first connection whose handshake completes wins. The other attempts are aborted; a peer that answers one of
    /// them gets a RST. [`Stream::peer_addr`] is the winner's address.
    ///
    /// **Which connection gets the data.** Data that is [`FirstFlight::at_most_once`] is sent only on the winner,
    /// after its handshake. It rides in a SYN only if there is one address and the server is known to execute it once
    /// ([`Certified::once`]). Data that is [`FirstFlight::safely_replayable`] rides in the SYN of the *first* attempt,
    /// if Fast Open is requested and a cookie is known. All other attempts are ordinary handshakes without data
    /// ([`Reason::NotFirstAddress`]), because the paper's SYN with data must not be multiplied. If another attempt
    /// wins before the first server has answered, the first server may have executed the data. The data is then sent
    /// again on the winner, which the caller has allowed, and [`Stream::outcome`] is `Handshake(Unknown)`. If the
    /// first attempt is also complete when the winner is chosen, the first attempt wins.
    ///
    /// # Errors
    /// When every attempt has failed; the error contains all their errors. Dropping the future aborts the attempts.
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
        let nowhere = SocketAddr::from(([0; 4], 0));
        let shared = self.shard_for(config.connect.local, addresses.first().copied().unwrap_or(nowhere));
        let mut race = Race::new(shared, first);
        let delay = config.attempt_delay.max(MIN_ATTEMPT_DELAY);
        let order = race.order(addresses, &config.connect);
        race.several = order.len() > 1;
        let mut addresses = order.into_iter().peekable();
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
                match winner.deliver(shared, first).await {
                    Ok(stream) => return Ok(stream),
                    // The data may already be on its way to this address, so no other address may get it.
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

/// Attempts at several addresses. Dropping it aborts those that are under way.
struct Race<'a> {
    shared: &'a Arc<Shared>,
    first: FirstFlight<'a>,
    /// Whether there are several addresses.
    several: bool,
    /// Whether an attempt was started.
    begun: bool,
    running: Vec<Attempt>,
    failed: Vec<FailedAttempt>,
    /// Addresses to which attempts were started, in this order.
    tried: Vec<SocketAddr>,
}

/// An attempt under way.
struct Attempt {
    remote: SocketAddr,
    id: ConnId,
    /// If this attempt was given the data: how many bytes of it were taken.
    given: Option<usize>,
}

/// The result of a turn.
enum Turn {
    Won(Winner),
    /// At least one attempt has failed.
    Failed,
}

/// The attempt that won.
struct Winner {
    attempt: Attempt,
    /// The outcome of the data in another attempt's SYN, if there was any.
    elsewhere: Option<Outcome>,
}

impl<'a> Race<'a> {
    fn new(shared: &'a Arc<Shared>, first: FirstFlight<'a>) -> Self {
        Self {
            shared,
            first,
            several: false,
            begun: false,
            running: Vec::new(),
            failed: Vec::new(),
            tried: Vec::new(),
        }
    }

    /// The order of attempts. Addresses that lost recently come last.
    fn order(&self, addresses: &[SocketAddr], config: &ConnectConfig) -> Vec<SocketAddr> {
        let mut inner = self.shared.lock();
        let (network, now) = (inner.stack.config().network, inner.now());
        let history = inner.history();
        let slow = |remote: &SocketAddr| history.is_slow(&Way::new(network, *remote, config.carrier), now);
        let (last, first): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(slow);
        [interleave(&first), interleave(&last)].concat()
    }

    /// Remembers that `winner` won, and that the attempts that began before it lost.
    fn remember(&self, winner: SocketAddr, config: &ConnectConfig) {
        let mut inner = self.shared.lock();
        let (network, now) = (inner.stack.config().network, inner.now());
        for remote in self.tried.iter().take_while(|remote| **remote != winner) {
            inner.history().lost(Way::new(network, *remote, config.carrier), now);
        }
        inner.history().won(&Way::new(network, winner, config.carrier));
    }

    /// Starts an attempt. The first attempt that starts gets the data, if it may ride in the SYN.
    fn begin(&mut self, remote: SocketAddr, config: &ConnectConfig) {
        let local = config.local.filter(|local| local.is_ipv4() == remote.is_ipv4());
        let wanted = config.fast_open || config.asap.is_some();
        let first = wanted && !self.begun;
        // A server of the other family does not see the address that is certified.
        let fits = |asap: &Certified| asap.certificate.address().is_ipv4() == remote.is_ipv4();
        let asap = config.asap.clone().filter(|asap| first && fits(asap));
        let held_back = match config.held_back {
            _ if wanted && !first => Some(Reason::NotFirstAddress),
            None if first && !config.fast_open && asap.is_none() => Some(Reason::NoCredential),
            held_back => held_back,
        };
        let mut config = config
            .clone()
            .fast_open(config.fast_open && first)
            .asap(asap)
            .replay_safe(self.first.is_replayable())
            .held_back(held_back)
            .local(local);
        // The address that it rides to may have executed it when another one answers first.
        let confined = self.several && !self.first.is_replayable();
        if first && confined {
            config.held_back = config.held_back.or(Some(Reason::NotReplaySafe));
        }
        let mut config = Cow::Owned(config);
        let data = if first && !confined { first_data(&mut config, self.first.data()) } else { &[] };
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

    /// Checks whether an attempt has won or failed. The decision and the abort of the losers happen under one lock,
    /// so that no packet that arrives in between can send the data a second time.
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Turn> {
        let mut inner = self.shared.lock();
        let confirmed = |attempt: &Attempt| inner.stack.info(attempt.id).is_some_and(|info| info.confirmed);
        if let Some(at) = self.running.iter().position(confirmed) {
            let attempt = self.running.swap_remove(at);
            let unclear =
                self.failed.iter().map(|failed| failed.outcome).find(|outcome| is_unclear(*outcome));
            let aborted = self.running.drain(..).map(|loser| (loser.given, abandon(&mut inner, loser.id)));
            // Collect first, so that every loser is aborted.
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
            // An attempt without data cannot have caused an execution.
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

/// Aborts and releases an attempt. Returns the outcome of its first flight.
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
    /// Sends the rest of the data and returns the stream.
    async fn deliver(self, shared: &Arc<Shared>, first: FirstFlight<'_>) -> Result<Stream, FailedAttempt> {
        let Attempt { remote, id, given } = self.attempt;
        let mut stream = EngineStream::opened(shared, id, remote, self.elsewhere);
        let rest = first.data().get(given.unwrap_or(0)..).unwrap_or_default();
        match stream.write_all(rest).await {
            Ok(()) => Ok(stream.into()),
            Err(error) => Err(FailedAttempt { remote, outcome: stream.outcome(), error }),
        }
    }
}
