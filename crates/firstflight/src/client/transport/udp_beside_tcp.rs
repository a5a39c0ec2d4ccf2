//! UDP beside the kernel's TCP.

pub(crate) mod either;

use super::kernel::KernelTcp;
use super::{SentSyn, Transports};
use crate::attempts::FailedAttempt;
use crate::client::race::{Address, AttemptOffer, Candidate, Finish as Won, Number, Setup, Transport};
use crate::stream::Stream;
use either::Either;
use firstflight_wire::Instant;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The kernel's TCP, and what is offered in UDP.
pub(crate) struct Beside<'a, U> {
    pub tcp: KernelTcp<'a>,
    pub udp: U,
}

type KernelCargo<'a> = <KernelTcp<'a> as Transports>::Cargo;
type KernelAttempt<'a> = <KernelTcp<'a> as Transports>::Attempt;

impl<'a, U: Transports> Transports for Beside<'a, U> {
    type Cargo = Either<KernelCargo<'a>, U::Cargo>;
    type Attempt = Either<KernelAttempt<'a>, U::Attempt>;

    fn setup(&self) -> Setup {
        Setup { udp_once: self.udp.setup().udp_once, ..self.tcp.setup() }
    }

    fn offer(&self) -> Option<AttemptOffer> {
        self.udp.offer()
    }

    fn now(&self) -> Instant {
        self.tcp.now()
    }

    fn timeout<F: Future + Send>(
        &self,
        time: Duration,
        turn: F,
    ) -> impl Future<Output = Option<F::Output>> + Send {
        self.tcp.timeout(time, turn)
    }

    fn order(&self, addresses: &[SocketAddr]) -> Vec<Address> {
        self.tcp.order(addresses)
    }

    fn make(&self, number: Number, candidate: Candidate) -> io::Result<Self::Cargo> {
        match candidate.transport {
            Transport::Tcp => self.tcp.make(number, candidate).map(Either::One),
            Transport::Udp => self.udp.make(number, candidate).map(Either::Other),
        }
    }

    fn begin(
        &self,
        number: Number,
        candidate: Candidate,
        cargo: Option<Self::Cargo>,
    ) -> Result<(Self::Attempt, Option<SentSyn>), (bool, io::Error)> {
        let (kernel, udp) = match cargo {
            Some(Either::One(cargo)) => (Some(cargo), None),
            Some(Either::Other(cargo)) => (None, Some(cargo)),
            None => (None, None),
        };
        match candidate.transport {
            Transport::Tcp => {
                let (attempt, begun) = self.tcp.begin(number, candidate, kernel)?;
                Ok((Either::One(attempt), begun))
            }
            Transport::Udp => {
                let (attempt, begun) = self.udp.begin(number, candidate, udp)?;
                Ok((Either::Other(attempt), begun))
            }
        }
    }

    fn is_on_same_network(&self) -> bool {
        self.tcp.is_on_same_network()
    }

    async fn deliver(
        &self,
        won: &Won,
        winner: Self::Attempt,
        unclear: bool,
    ) -> Result<Stream, (FailedAttempt, bool)> {
        match winner {
            Either::One(attempt) => self.tcp.deliver(won, attempt, unclear).await,
            Either::Other(attempt) => {
                let stream = self.udp.deliver(won, attempt, unclear).await?;
                if let (Some(remote), Some(info)) = (won.candidate.remote, stream.info())
                    && info.handshake_retransmits == 0
                    && let (Some(rtt), Some(var)) = (info.rtt, info.rtt_var)
                    && self.tcp.is_here(won)
                {
                    self.tcp.kernel.memory().learn_rtt(remote.ip(), rtt, var);
                }
                Ok(stream)
            }
        }
    }
}
