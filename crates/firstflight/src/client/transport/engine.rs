//! Attempts by an engine: on IP, or in UDP.

use super::{Attempt, Event, SentSyn, Transports, failure, is_refusal, unclear_if};
use crate::attempts::{FailedAttempt, interleave};
use crate::client::race::{
    ATTEMPT_DELAY, Address, AttemptOffer, Candidate, Failure, Finish as Won, Number, Setup, Syn, Transport,
};
use crate::endpoint::Endpoint;
use crate::first_flight::Flights;
use crate::memory::history::HistoryWay;
use crate::shared::Shared;
use crate::stream::{EngineStream, Stream, first_data};
use crate::time::Time;
use firstflight_credential::asap::Identity;
use firstflight_credential::{NetworkId, Outcome, Reason};
use firstflight_stack::{Certified, ConnectConfig};
use firstflight_wire::Instant;
use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

pub(crate) struct EngineTcp<'a> {
    endpoint: &'a Endpoint,
    pub(crate) flights: Flights<'a>,
    /// Settings of the first attempt. Others use neither Fast Open nor a certificate.
    pub(crate) config: ConnectConfig,
    /// The network on which the race begins.
    network: NetworkId,
    time: Time,
    /// What is offered apart from ordinary attempts, if it is beside another TCP.
    pub(crate) offer: Option<AttemptOffer>,
    /// Where the race takes place, when its addresses are known.
    place: OnceLock<AttemptPlace<'a>>,
}

struct AttemptPlace<'a> {
    shard: &'a Arc<Shared>,
    several: bool,
}

/// What a first attempt carries.
pub(crate) struct Cargo<'a> {
    config: ConnectConfig,
    /// The data; `None` if it is made after the handshake.
    data: Option<Cow<'a, [u8]>>,
}

/// The data of an attempt, and how much of it the engine has taken.
type Given<'a> = (Cow<'a, [u8]>, usize);

/// An attempt whose SYN has left.
pub(crate) struct EngineAttempt<'a> {
    number: Number,
    remote: SocketAddr,
    /// `None` once it is handed over.
    stream: Option<EngineStream>,
    /// The data, if it was made for the SYN, and how much of it the engine has taken.
    given: Option<Given<'a>>,
    in_udp: bool,
}

impl<'a> EngineTcp<'a> {
    pub(crate) fn new(endpoint: &'a Endpoint, config: ConnectConfig, flights: Flights<'a>) -> Self {
        let inner = endpoint.shared.lock();
        let (network, time) = (inner.stack.config().network, inner.time.clone());
        drop(inner);
        let (offer, place) = (None, OnceLock::new());
        Self { endpoint, flights, config, network, time, offer, place }
    }

    fn shard(&self) -> &'a Arc<Shared> {
        self.place.get().map_or(&self.endpoint.shared, |place| place.shard)
    }

    /// Whether the SYN of the first attempt may be more than an ordinary one.
    const fn asks(config: &ConnectConfig) -> bool {
        config.fast_open || config.asap.is_some()
    }

    fn are_replayable(&self) -> bool {
        self.flights.are_replayable(self.config.asap.is_some())
    }

    /// Settings of an attempt at `remote`. A server of the other family sees another address of this host.
    fn config_for(&self, remote: SocketAddr) -> ConnectConfig {
        let mut config = self.config.clone();
        config.local = config.local.filter(|local| local.is_ipv4() == remote.is_ipv4());
        let fits = |asap: &Certified| asap.certificate.address().is_ipv4() == remote.is_ipv4();
        config.asap = config.asap.filter(fits);
        config
    }

    /// The settings of an ordinary attempt.
    fn plain(&self, remote: SocketAddr, reason: Reason) -> ConnectConfig {
        // If nothing was wanted, the caller says why.
        let reason = if Self::asks(&self.config) { Some(reason) } else { self.config.held_back };
        self.config_for(remote).fast_open(false).asap(None).held_back(reason)
    }

    fn remember(&self, won: &Won) {
        let (Some(place), Some(winner)) = (self.place.get(), won.candidate.remote) else { return };
        let mut inner = place.shard.lock();
        let (network, now) = (inner.stack.config().network, inner.now());
        for remote in &won.earlier {
            inner.history().lost(HistoryWay::new(network, *remote, self.config.encapsulation), now);
        }
        inner.history().won(&HistoryWay::new(network, winner, self.config.encapsulation));
    }
}

impl<'a> Transports for EngineTcp<'a> {
    type Cargo = Cargo<'a>;
    type Attempt = EngineAttempt<'a>;

    fn setup(&self) -> Setup {
        let once = !self.are_replayable();
        // An engine sends its SYN again by itself, as an ordinary one if the first was more.
        Setup { tcp_once: once, udp_once: once, repeats_itself: true, attempt_delay: ATTEMPT_DELAY }
    }

    fn offer(&self) -> Option<AttemptOffer> {
        self.offer
    }

    fn now(&self) -> Instant {
        self.time.now()
    }

    fn timeout<F: Future + Send>(
        &self,
        time: Duration,
        turn: F,
    ) -> impl Future<Output = Option<F::Output>> + Send {
        self.time.timeout(time, turn)
    }

    fn order(&self, addresses: &[SocketAddr]) -> Vec<Address> {
        let Some(first) = addresses.first() else { return Vec::new() };
        let place = self.place.get_or_init(|| {
            let shard = self.endpoint.shard_for(self.config.local, *first);
            AttemptPlace { shard, several: addresses.iter().any(|other| other != first) }
        });
        let mut inner = place.shard.lock();
        let (network, now) = (inner.stack.config().network, inner.now());
        let history = inner.history();
        let slow = |remote: &SocketAddr| {
            history.is_slow(&HistoryWay::new(network, *remote, self.config.encapsulation), now)
        };
        let (last, first): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(slow);
        let order = [interleave(&first), interleave(&last)].concat();
        order.into_iter().map(|remote| Address { remote, delay: None }).collect()
    }

    fn make(&self, number: Number, candidate: Candidate) -> io::Result<Cargo<'a>> {
        let remote = candidate.remote.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut config = self.config_for(remote);
        let wanted = Self::asks(&self.config);
        if wanted && !Self::asks(&config) {
            config.held_back = config.held_back.or(Some(Reason::NoCredential));
        }
        let replayable = self.flights.are_replayable(config.asap.is_some());
        config.replay_safe = replayable;
        if let (Some(name), Some(certified)) = (self.flights.block_name(), &mut config.asap) {
            // The server's own name is hidden.
            certified.identity = Identity::name(name, remote.port());
        }
        // The server at one address may have executed it when another one answers first.
        let confined = !replayable && self.place.get().is_some_and(|place| place.several);
        if confined && wanted {
            config.held_back = config.held_back.or(Some(Reason::NotReplaySafe));
        }
        // Without a first flight the data is sent to the winner alone.
        let needed = !confined && wanted;
        let data = needed.then(|| self.flights.by_engine(number, self.network, &mut config)).transpose()?;
        Ok(Cargo { config, data })
    }

    fn begin(
        &self,
        number: Number,
        candidate: Candidate,
        cargo: Option<Cargo<'a>>,
    ) -> Result<(EngineAttempt<'a>, Option<SentSyn>), (bool, io::Error)> {
        // What keeps a SYN from leaving is of this host.
        let here = |error: io::Error| (false, error);
        let remote = candidate.remote.ok_or_else(|| here(io::ErrorKind::AddrNotAvailable.into()))?;
        let Cargo { config, data } = match (candidate.syn, cargo) {
            (Syn::First, Some(cargo)) => cargo,
            (Syn::First, None) => Cargo { config: self.config_for(remote), data: None },
            (Syn::Plain(reason), _) => Cargo { config: self.plain(remote, reason), data: None },
        };
        let asks = candidate.syn == Syn::First && Self::asks(&config);
        let mut config = Cow::Owned(config);
        let first = first_data(&mut config, data.as_deref().unwrap_or_default());
        let (stream, taken) = EngineStream::open(self.shard(), remote, first, &config).map_err(here)?;
        let given = data.map(|data| (data, taken));
        let in_udp = candidate.transport == Transport::Udp;
        let attempt = EngineAttempt { number, remote, stream: Some(stream), given, in_udp };
        Ok((attempt, Some(SentSyn { asks, left: taken > 0 })))
    }

    fn is_on_same_network(&self) -> bool {
        self.shard().lock().stack.config().network == self.network
    }

    async fn deliver(
        &self,
        won: &Won,
        mut winner: EngineAttempt<'a>,
        unclear: bool,
    ) -> Result<Stream, (FailedAttempt, bool)> {
        self.remember(won);
        let (remote, number) = (winner.remote, winner.number);
        let once = !self.are_replayable();
        let fail = |left, error| (failure(remote, unclear_if(left), error), once);
        let gone = || fail(false, io::ErrorKind::NotConnected.into());
        let (mut stream, given) = winner.take_parts().ok_or_else(gone)?;
        // An ordinary attempt makes its data now.
        let (data, taken) = match given {
            Some(given) => given,
            None => {
                let mut plain = ConnectConfig::default().encapsulation(self.config.encapsulation);
                let made = self.flights.by_engine(number, self.network, &mut plain);
                (made.map_err(|error| fail(unclear, error))?, 0)
            }
        };
        match stream.write_all(data.get(taken..).unwrap_or_default()).await {
            Ok(()) => {
                let elsewhere = unclear.then_some(Outcome::Handshake(Reason::Unknown));
                Ok(Stream::from(stream).told(elsewhere))
            }
            Err(error) => Err(fail(!data.is_empty(), error)),
        }
    }
}

impl<'a> EngineAttempt<'a> {
    /// The stream, and the data with how much of it was taken.
    fn take_parts(&mut self) -> Option<(EngineStream, Option<Given<'a>>)> {
        Some((self.stream.take()?, self.given.take()))
    }

    fn taken(&self) -> usize {
        self.given.as_ref().map_or(0, |(_, taken)| *taken)
    }

    /// The outcome of its data. An attempt without data cannot have caused an execution.
    fn outcome(&self) -> Outcome {
        match (&self.given, &self.stream) {
            (Some((data, _)), Some(stream)) if !data.is_empty() => stream.outcome(),
            _ => Outcome::Undecided,
        }
    }
}

impl Attempt for EngineAttempt<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let Some(stream) = &self.stream else { return Poll::Pending };
        let error = match ready!(stream.poll_handshake_confirmed(cx)) {
            Ok(()) => return Poll::Ready(Event::Established),
            Err(error) => error,
        };
        let refused = is_refusal(&error);
        // On IP, an ordinary SYN has followed one that was more and was refused.
        let failed = Failure { asked: self.in_udp, refused, may_have_run: self.taken() > 0 };
        let told = failure(self.remote, self.outcome(), error);
        // The outcome may have another reason: the answer made no sense, or the engine has stopped.
        let told = FailedAttempt { may_have_run: told.may_have_run || failed.may_have_run, ..told };
        Poll::Ready(Event::Failed(failed, Some(told)))
    }

    fn close(self) -> Option<FailedAttempt> {
        let stream = self.stream.as_ref()?;
        stream.abort();
        // Its handshake may have been completed meanwhile.
        let complete = stream.info().is_some_and(|info| info.confirmed);
        let left = self.outcome() == unclear_if(true) || (complete && self.taken() > 0);
        let late = io::ErrorKind::TimedOut.into();
        left.then(|| failure(self.remote, unclear_if(true), late))
    }
}

/// A peer that answers later gets a RST.
impl Drop for EngineAttempt<'_> {
    fn drop(&mut self) {
        self.stream.as_ref().into_iter().for_each(EngineStream::abort);
    }
}
