//! Attempts on the kernel's TCP, with Fast Open and without.

use super::{Attempt, Event, SentSyn, Transports, failure, is_refusal, unclear_if};
use crate::attempts::FailedAttempt;
use crate::client::race::{
    Address, AttemptOffer, Candidate, Failure, Finish as Won, FirstAttempt, Number, Setup, Syn, Transport,
};
use crate::first_flight::Flights;
use crate::kernel::Kernel;
use crate::stream::{Race, Stream};
use firstflight_credential::{NetworkId, Outcome, Permission, Reason};
use firstflight_kernel::{Carry, ClientFail, Stream as KernelStream, TcpInfo, connect};
use firstflight_wire::Instant;
use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

pub(crate) struct KernelTcp<'a> {
    pub kernel: &'a Kernel,
    pub flights: Flights<'a>,
    /// The network on which the race begins.
    pub network: NetworkId,
    /// Whether the kernel may use Fast Open.
    pub fast_open: bool,
    origin: tokio::time::Instant,
}

/// What an attempt carries.
pub(crate) enum Cargo<'a> {
    Nothing(Reason),
    Request(Reason),
    Data(Cow<'a, [u8]>),
}

impl Cargo<'_> {
    /// What the SYN is to carry, and whether it is more than an ordinary one.
    pub(crate) fn carry(&self) -> (Carry<'_>, bool) {
        match self {
            Self::Nothing(reason) => (Carry::Nothing(*reason), false),
            Self::Request(reason) => (Carry::Request(*reason), true),
            Self::Data(data) => (Carry::Data(data), true),
        }
    }
}

/// Waits for the stream, and how much of the data the server has taken.
type Established = Pin<Box<dyn Future<Output = io::Result<(KernelStream, usize)>> + Send>>;

/// An attempt whose SYN has left.
pub(crate) struct KernelAttempt<'a> {
    number: Number,
    remote: SocketAddr,
    /// The data, if it was needed for the SYN.
    data: Option<Cow<'a, [u8]>>,
    /// How many bytes of the data were taken with the SYN.
    taken: usize,
    /// Its SYN was more than an ordinary one.
    asks: bool,
    /// What was learnt of closed ports on this network is remembered.
    memory: &'a Kernel,
    network: NetworkId,
    established: Established,
    /// The stream, and how much of the data the server has taken.
    connected: Option<(KernelStream, usize)>,
}

impl<'a> KernelTcp<'a> {
    pub(crate) fn new(kernel: &'a Kernel, flights: Flights<'a>, fast_open: bool) -> Self {
        let (network, origin) = (kernel.network(), tokio::time::Instant::now());
        Self { kernel, flights, network, fast_open, origin }
    }

    /// As it was when a connect began at `origin`, on `network`.
    #[cfg(unix)]
    pub(crate) const fn since(
        kernel: &'a Kernel,
        flights: Flights<'a>,
        network: NetworkId,
        origin: tokio::time::Instant,
    ) -> Self {
        Self { kernel, flights, network, fast_open: true, origin }
    }

    /// Whether the kernel may use Fast Open.
    #[cfg(unix)]
    pub(crate) const fn fast_open(mut self, wanted: bool) -> Self {
        self.fast_open = wanted;
        self
    }

    /// What a first attempt carries.
    pub(crate) fn cargo(&self, number: Number, remote: SocketAddr) -> io::Result<Cargo<'a>> {
        let flights = &self.flights;
        if !self.fast_open {
            return Ok(Cargo::Nothing(Reason::NotRequested));
        }
        // A refusal of more than an ordinary SYN would say nothing, and another SYN would have to ask again.
        if self.kernel.memory().was_closed(remote) {
            return Ok(Cargo::Nothing(Reason::FailureMemory));
        }
        let permission = self.kernel.memory().permission(remote.ip());
        Ok(match permission {
            Permission::Nothing => Cargo::Nothing(Reason::FailureMemory),
            Permission::Request => Cargo::Request(Reason::FailureMemory),
            _ if flights.are_empty() => Cargo::Request(Reason::NoData),
            _ if !flights.are_replayable(false) => Cargo::Request(Reason::NotReplaySafe),
            Permission::Everything => Cargo::Data(flights.by_kernel(number, self.network)?),
        })
    }

    /// Whether what is learnt now is of the network on which the race began.
    pub(super) fn is_here(&self, won: &Won) -> bool {
        won.same_network && self.kernel.network() == self.network
    }

    /// Remembers which addresses lost.
    pub(crate) fn remember(&self, won: &Won) {
        if let Some(remote) = won.candidate.remote
            && self.is_here(won)
        {
            self.kernel.memory().raced(remote, &won.earlier);
        }
    }
}

impl<'a> Transports for KernelTcp<'a> {
    type Cargo = Cargo<'a>;
    type Attempt = KernelAttempt<'a>;

    /// The kernel's TCP carries no data that must not run twice with a SYN.
    fn setup(&self) -> Setup {
        Setup::default()
    }

    fn offer(&self) -> Option<AttemptOffer> {
        None
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }

    async fn timeout<F: Future + Send>(&self, time: Duration, turn: F) -> Option<F::Output> {
        tokio::time::timeout(time, turn).await.ok()
    }

    fn order(&self, addresses: &[SocketAddr]) -> Vec<Address> {
        let order = self.kernel.order(addresses);
        let mut memory = self.kernel.memory();
        order.into_iter().map(|remote| Address { remote, delay: memory.race_delay(remote.ip()) }).collect()
    }

    fn make(&self, number: Number, candidate: Candidate) -> io::Result<Cargo<'a>> {
        self.cargo(number, candidate.remote.ok_or(io::ErrorKind::AddrNotAvailable)?)
    }

    fn begin(
        &self,
        number: Number,
        candidate: Candidate,
        cargo: Option<Cargo<'a>>,
    ) -> Result<(KernelAttempt<'a>, Option<SentSyn>), (bool, io::Error)> {
        let remote = candidate.remote.ok_or((false, io::ErrorKind::AddrNotAvailable.into()))?;
        let cargo = match candidate.syn {
            Syn::First => cargo.unwrap_or(Cargo::Nothing(Reason::NotRequested)),
            Syn::Plain(reason) => Cargo::Nothing(reason),
        };
        let (carry, wanted) = cargo.carry();
        let attempt = connect(remote, None, carry).map_err(|error| (wanted, error))?;
        let (asks, taken) = (attempt.asks(), attempt.taken());
        let data = match cargo {
            Cargo::Data(data) => Some(data),
            Cargo::Nothing(_) | Cargo::Request(_) => None,
        };
        let attempt = KernelAttempt {
            number,
            remote,
            data,
            taken,
            asks,
            memory: self.kernel,
            network: self.network,
            established: Box::pin(attempt.established()),
            connected: None,
        };
        Ok((attempt, Some(SentSyn { asks, left: taken > 0 })))
    }

    fn is_on_same_network(&self) -> bool {
        self.kernel.network() == self.network
    }

    async fn deliver(
        &self,
        won: &Won,
        mut winner: KernelAttempt<'a>,
        _: bool,
    ) -> Result<Stream, (FailedAttempt, bool)> {
        self.remember(won);
        let (flights, remote) = (&self.flights, winner.remote);
        let fail = |left, error| (failure(remote, unclear_if(left), error), !flights.are_replayable(false));
        let gone = || fail(false, io::ErrorKind::NotConnected.into());
        let (mut stream, taken) = winner.connected.take().ok_or_else(gone)?;
        // An ordinary attempt makes its data now.
        let data = winner.data.take();
        let data = data.map_or_else(|| flights.by_kernel(winner.number, self.network), Ok);
        let elsewhere = won.first.is_some_and(|first| first.left);
        let data = data.map_err(|error| fail(elsewhere, error))?;
        let (race, elsewhere) = learn(self, won, stream.info().ok().as_ref(), stream.outcome());
        let rest = data.get(taken..).unwrap_or_default();
        match stream.write_all(rest).await {
            Ok(()) => Ok(Stream::raced(stream, race, elsewhere)),
            Err(error) => Err(fail(!data.is_empty(), error)),
        }
    }
}

impl Attempt for KernelAttempt<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let error = match std::task::ready!(self.established.as_mut().poll(cx)) {
            Ok(connected) => {
                self.connected = Some(connected);
                return Poll::Ready(Event::Established);
            }
            Err(error) => error,
        };
        let (failed, told) = fail(self.memory, self.network, self.remote, (self.asks, self.taken > 0), error);
        Poll::Ready(Event::Failed(failed, told))
    }

    fn close(self) -> Option<FailedAttempt> {
        closed(self.remote, self.taken > 0)
    }
}

/// What the failure of an attempt tells, and what its caller gets to know of it. Remembers closed ports. `asks`: its SYN was
/// more than an ordinary one; `left`: with data, which the server may have executed.
pub(crate) fn fail(
    memory: &Kernel,
    network: NetworkId,
    remote: SocketAddr,
    (asks, left): (bool, bool),
    error: io::Error,
) -> (Failure, Option<FailedAttempt>) {
    let refused = is_refusal(&error);
    if !asks && error.kind() == io::ErrorKind::ConnectionRefused {
        let mut memory = memory.memory();
        if memory.network() == network {
            memory.note_closed(remote);
        }
    }
    // An ordinary SYN follows the one that asked, and tells what is wrong.
    let told = !(asks && refused) || left;
    let failed = Failure { asked: asks, refused, may_have_run: left };
    (failed, told.then(|| failure(remote, unclear_if(left), error)))
}

/// How an attempt failed that was closed, if its server may have executed the data.
pub(crate) fn closed(remote: SocketAddr, left: bool) -> Option<FailedAttempt> {
    left.then(|| failure(remote, unclear_if(true), io::ErrorKind::TimedOut.into()))
}

/// Remembers what the kernel's winner tells. Returns what to say of the race, and the outcome of the data if the kernel does
/// not know it: it was in the SYN of an attempt at another address, or the server was asked for a cookie before and granted
/// none.
pub(crate) fn learn(
    tcp: &KernelTcp<'_>,
    won: &Won,
    info: Option<&TcpInfo>,
    outcome: Outcome,
) -> (Option<Race>, Option<Outcome>) {
    let Some(remote) = won.candidate.remote else { return (None, None) };
    let mut memory = tcp.kernel.memory();
    let here = won.same_network && memory.network() == tcp.network;
    if let Some(info) = info.filter(|_| here) {
        memory.learn(remote.ip(), info);
    }
    let now = tcp.now();
    let ago = now.saturating_since(won.began);
    if won.asks {
        let grants_none = match info.filter(|_| here).map(|info| info.client_fail) {
            Some(ClientFail::NoCookie) => memory.asked_again(remote.ip(), ago),
            Some(_) => {
                memory.granted(remote.ip());
                false
            }
            None => false,
        };
        if !here {
            // The host has moved.
        } else if outcome.is_accepted() {
            memory.accepted(remote.ip(), ago);
        } else if info.is_some_and(|info| info.client_fail == ClientFail::SynRetransmitted) {
            // The kernel sent the plain SYN itself.
            memory.lost_race(remote.ip(), ago);
        }
        let told = grants_none && outcome == Outcome::Handshake(Reason::NoCredential);
        return (None, told.then_some(Outcome::Handshake(Reason::PeerWithoutFastOpen)));
    }
    let Some(FirstAttempt { candidate: other, began, left, refused, .. }) = won.first else {
        return (None, None);
    };
    let same = other.remote == Some(remote);
    if here && same && other.transport == Transport::Tcp {
        if refused {
            memory.refused(remote.ip());
        } else if let Some(began) = began
            && ago < won.began.saturating_since(began)
        {
            // Otherwise the plain SYN waited for its answer as long as the other one was given: the path or the server is
            // slow, whatever a SYN carries.
            memory.lost_race(remote.ip(), now.saturating_since(began));
        }
    }
    // Another server may have executed the data.
    let elsewhere = (left && !same).then_some(Outcome::Handshake(Reason::Unknown));
    (Some(Race::new(left)), elsewhere)
}
