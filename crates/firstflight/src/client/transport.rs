//! What carries the attempts of a race: the kernel's TCP with UDP beside it, or an engine.

mod driver;
#[cfg(feature = "engine")]
pub(crate) mod engine;
pub(crate) mod kernel;
#[cfg(feature = "asap")]
pub(crate) mod udp_beside_tcp;

pub(crate) use driver::{Finish, RaceLost, run};

use super::race::{Address, AttemptOffer, Candidate, Failure, Finish as Won, Number, Setup};
use crate::attempts::FailedAttempt;
use crate::stream::Stream;
use firstflight_credential::{Outcome, Reason};
use firstflight_wire::Instant;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

/// What carries the attempts of one race.
pub(crate) trait Transports: Sync {
    /// What a first attempt carries.
    type Cargo: Send;
    /// An attempt. Dropping it closes it.
    type Attempt: Attempt;

    /// What does not change during the race.
    fn setup(&self) -> Setup;

    /// What can be had apart from ordinary attempts.
    fn offer(&self) -> Option<AttemptOffer>;

    /// The time.
    fn now(&self) -> Instant;

    /// The output of `turn`, or `None` if it takes longer than `time`.
    fn timeout<F: Future + Send>(
        &self,
        time: Duration,
        turn: F,
    ) -> impl Future<Output = Option<F::Output>> + Send;

    /// The addresses in the order in which they are tried.
    fn order(&self, addresses: &[SocketAddr]) -> Vec<Address>;

    /// Makes what a first attempt carries.
    fn make(&self, number: Number, candidate: Candidate) -> io::Result<Self::Cargo>;

    /// Begins an attempt, an ordinary one without cargo. If its SYN has not left with the call, [`Event::Begun`] follows.
    /// The error says whether the SYN was to be more than an ordinary one.
    fn begin(
        &self,
        number: Number,
        candidate: Candidate,
        cargo: Option<Self::Cargo>,
    ) -> Result<(Self::Attempt, Option<SentSyn>), (bool, io::Error)>;

    /// Whether the host is still on the network on which the race began.
    fn is_on_same_network(&self) -> bool;

    /// Remembers what the race taught, sends the rest of the data to the winner, and returns its stream. `unclear`: the
    /// server at another address may have executed the data. The error says whether the data must not run twice.
    fn deliver(
        &self,
        won: &Won,
        winner: Self::Attempt,
        unclear: bool,
    ) -> impl Future<Output = Result<Stream, (FailedAttempt, bool)>> + Send;
}

/// An attempt of a race.
pub(crate) trait Attempt: Send {
    /// What happens to it next. After [`Event::Established`] and [`Event::Failed`] nothing does.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event>;

    /// The server's addresses have come, or an error. An attempt that began without one need not wait for their lookup.
    fn handle_addresses(&mut self, _: Option<&io::Error>) {}

    /// Sends a copy of what left inside the lookup to this address. False if it cannot be sent.
    fn send_direct(&mut self, _: SocketAddr) -> bool {
        false
    }

    /// Closes it. Says how it failed if its server may have executed its data.
    fn close(self) -> Option<FailedAttempt>;
}

/// What happens to an attempt.
#[derive(Debug)]
#[allow(dead_code, reason = "some happen inside lookups only")]
pub(crate) enum Event {
    /// Its SYN has left.
    Begun(SentSyn),
    /// The copy that went to the address directly was refused.
    DirectRefused,
    /// The handshake is complete.
    Established,
    /// There is no connection. The attempt is told in the race's error, unless another one to the same address follows.
    Failed(Failure, Option<FailedAttempt>),
}

/// A SYN that has left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentSyn {
    /// It was more than an ordinary one.
    pub asks: bool,
    /// It had data.
    pub left: bool,
}

/// Whether an attempt failed by a RST, an ICMP error or a filter of this host.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable,
        PermissionDenied,
    };
    let kinds = [
        ConnectionRefused,
        ConnectionReset,
        ConnectionAborted,
        HostUnreachable,
        NetworkUnreachable,
        PermissionDenied,
    ];
    kinds.contains(&error.kind())
}

pub(crate) const fn failure(remote: SocketAddr, outcome: Outcome, error: io::Error) -> FailedAttempt {
    let may_have_run = matches!(outcome, Outcome::Handshake(Reason::Unknown));
    FailedAttempt { remote, outcome, error, may_have_run }
}

/// The outcome of an attempt that failed: unclear if data may be at the server.
pub(crate) const fn unclear_if(left: bool) -> Outcome {
    if left { Outcome::Handshake(Reason::Unknown) } else { Outcome::Undecided }
}
