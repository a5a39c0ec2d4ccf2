//! What drives the [racer](Race): it begins attempts, waits for them, and closes them.

use super::{Attempt, Event, SentSyn, Transports, failure, is_refusal};
use crate::attempts::{ConnectAnyError, FailedAttempt};
use crate::client::race::{Action, Candidate, Failure, Finish as Won, Number, Race, Syn};
use crate::stream::Stream;
use firstflight_credential::{Outcome, Reason};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

/// The winner.
pub(crate) struct Finish {
    pub stream: Stream,
    pub won: Won,
    /// When the first SYN of all attempts had left.
    pub departed: Instant,
}

/// Why a race has no winner.
pub(crate) struct RaceLost {
    pub error: ConnectAnyError,
    /// Why there are no addresses.
    #[allow(dead_code, reason = "only a lookup that carries data is a part of a race")]
    pub lookup: Option<io::Error>,
    /// Data that must not run twice left with one of the attempts.
    pub once: bool,
}

/// Runs a race to `addresses`, best one first, which may come later. Data that must not run twice leaves by one attempt only.
pub(crate) async fn run<T: Transports>(
    transports: &T,
    addresses: impl Future<Output = io::Result<Vec<SocketAddr>>> + Send,
) -> Result<Finish, RaceLost> {
    let mut driver = Driver::new(transports);
    driver.run(pin!(addresses)).await
}

struct Driver<'t, T: Transports> {
    transports: &'t T,
    racer: Race,
    /// What the next attempt carries.
    cargo: Option<T::Cargo>,
    /// Oldest first.
    running: Vec<Running<T::Attempt>>,
    /// The attempt whose handshake is complete.
    winner: Option<T::Attempt>,
    failed: Vec<FailedAttempt>,
    /// The servers of attempts that lost and may have executed the data.
    unclear: Vec<SocketAddr>,
    /// The addresses have come.
    known: bool,
    /// Why there are none.
    lookup: Option<io::Error>,
    /// When the first SYN of all attempts had left.
    departed: Option<Instant>,
}

struct Running<A> {
    number: Number,
    attempt: A,
}

/// What happens next.
enum DriverTurn {
    Addresses(io::Result<Vec<SocketAddr>>),
    /// To the attempt in this place.
    Attempt(usize, Event),
}

impl<'t, T: Transports> Driver<'t, T> {
    fn new(transports: &'t T) -> Self {
        let mut racer = Race::new(transports.setup(), transports.now());
        if let Some(offer) = transports.offer() {
            racer.handle_offer(offer);
        }
        Self {
            transports,
            racer,
            cargo: None,
            running: Vec::new(),
            winner: None,
            failed: Vec::new(),
            unclear: Vec::new(),
            known: false,
            lookup: None,
            departed: None,
        }
    }

    async fn run<F>(&mut self, mut addresses: Pin<&mut F>) -> Result<Finish, RaceLost>
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>> + Send,
    {
        // What is known is known before the first attempt.
        let known = poll_fn(|cx| Poll::Ready(addresses.as_mut().poll(cx))).await;
        if let Poll::Ready(found) = known {
            self.handle_addresses(found);
        }
        loop {
            while let Some(action) = self.racer.poll_action(self.transports.now()) {
                match action {
                    Action::Make(number, candidate) => self.make(number, candidate),
                    Action::Begin(number, candidate) => self.begin(number, candidate),
                    Action::Direct(number, remote) => self.send_direct(number, remote),
                    Action::Abort(number) => self.abort(number),
                    Action::Won(won) => return self.deliver(won).await,
                    Action::Lost { once } => return Err(self.lost(once)),
                }
            }
            let now = self.transports.now();
            let due = self.racer.poll_timeout().map(|due| due.saturating_since(now));
            let transports = self.transports;
            let turn = poll_fn(|cx| self.poll_turn(cx, addresses.as_mut()));
            let turn = match due {
                None => Some(turn.await),
                Some(due) => transports.timeout(due, turn).await,
            };
            match turn {
                None => self.racer.handle_timeout(self.transports.now()),
                Some(DriverTurn::Addresses(found)) => self.handle_addresses(found),
                Some(DriverTurn::Attempt(at, event)) => self.handle(at, event),
            }
        }
    }

    fn poll_turn<F>(&mut self, cx: &mut Context<'_>, addresses: Pin<&mut F>) -> Poll<DriverTurn>
    where
        F: Future<Output = io::Result<Vec<SocketAddr>>>,
    {
        for (at, running) in self.running.iter_mut().enumerate() {
            if let Poll::Ready(event) = running.attempt.poll(cx) {
                return Poll::Ready(DriverTurn::Attempt(at, event));
            }
        }
        match self.known {
            true => Poll::Pending,
            false => addresses.poll(cx).map(DriverTurn::Addresses),
        }
    }

    fn handle_addresses(&mut self, found: io::Result<Vec<SocketAddr>>) {
        self.known = true;
        let error = found.as_ref().err();
        self.running.iter_mut().for_each(|running| running.attempt.handle_addresses(error));
        let found = found.unwrap_or_else(|error| {
            self.lookup = Some(error);
            Vec::new()
        });
        let order = self.transports.order(&found);
        self.racer.handle_addresses(&order, false, self.transports.now());
    }

    fn make(&mut self, number: Number, candidate: Candidate) {
        match self.transports.make(number, candidate) {
            Ok(cargo) => {
                self.cargo = Some(cargo);
                self.racer.handle_made(number);
            }
            Err(error) => {
                self.failed.extend(candidate.remote.map(|remote| failure(remote, Outcome::Undecided, error)));
                self.racer.handle_not_made(number, self.transports.now());
            }
        }
    }

    fn begin(&mut self, number: Number, candidate: Candidate) {
        let cargo = self.cargo.take().filter(|_| candidate.syn == Syn::First);
        match self.transports.begin(number, candidate, cargo) {
            Ok((attempt, begun)) => {
                self.running.push(Running { number, attempt });
                begun.into_iter().for_each(|begun| self.handle_begun(number, begun));
            }
            Err((asked, error)) => {
                // A filter of this host, for example.
                let failed = Failure { asked, refused: is_refusal(&error), may_have_run: false };
                if !(failed.asked && failed.refused) {
                    let told = candidate.remote.map(|remote| failure(remote, Outcome::Undecided, error));
                    self.failed.extend(told);
                }
                self.racer.handle_failed(number, failed, self.transports.now());
            }
        }
    }

    fn handle_begun(&mut self, number: Number, begun: SentSyn) {
        self.departed = self.departed.or_else(|| Some(Instant::now()));
        self.racer.handle_begun(number, begun.asks, begun.left, self.transports.now());
    }

    fn send_direct(&mut self, number: Number, remote: SocketAddr) {
        // The certificate of one network is not shown on another.
        let here = self.transports.is_on_same_network();
        let running = self.running.iter_mut().find(|running| running.number == number).filter(|_| here);
        if !running.is_some_and(|running| running.attempt.send_direct(remote)) {
            self.racer.handle_direct_refused(number, self.transports.now());
        }
    }

    /// Closes an attempt that lost, or whose place is taken.
    fn abort(&mut self, number: Number) {
        let Some(at) = self.running.iter().position(|running| running.number == number) else { return };
        let closed = self.running.remove(at).attempt.close();
        match &self.winner {
            None => self.failed.extend(closed),
            Some(_) => self.unclear.extend(closed.map(|failed| failed.remote)),
        }
    }

    fn handle(&mut self, at: usize, event: Event) {
        let Some(number) = self.running.get(at).map(|running| running.number) else { return };
        let now = self.transports.now();
        match event {
            Event::Begun(begun) => self.handle_begun(number, begun),
            Event::DirectRefused => self.racer.handle_direct_refused(number, now),
            Event::Established => {
                if !self.transports.is_on_same_network() {
                    self.racer.handle_network_changed();
                }
                self.racer.handle_established(number);
                self.winner = Some(self.running.remove(at).attempt);
            }
            Event::Failed(failure, told) => {
                self.running.remove(at);
                self.failed.extend(told);
                self.racer.handle_failed(number, failure, now);
            }
        }
    }

    fn lost(&mut self, once: bool) -> RaceLost {
        let error = ConnectAnyError { attempts: std::mem::take(&mut self.failed) };
        RaceLost { error, lookup: self.lookup.take(), once }
    }

    /// Remembers what was learnt, sends the rest of the data to the winner, and returns the stream.
    async fn deliver(&mut self, won: Won) -> Result<Finish, RaceLost> {
        let Some(winner) = self.winner.take() else { return Err(self.lost(false)) };
        let unknown = Outcome::Handshake(Reason::Unknown);
        let failed = self.failed.iter().filter(|failed| failed.outcome == unknown);
        let mut others = failed.map(|failed| failed.remote).chain(self.unclear.iter().copied());
        // The winner itself answers for its server.
        let unclear = others.any(|remote| Some(remote) != won.candidate.remote);
        let stream = match self.transports.deliver(&won, winner, unclear).await {
            Ok(stream) => stream,
            // The data may already be on its way to this address, so no other address may get it.
            Err((failed, once)) => {
                self.failed.push(failed);
                return Err(self.lost(once));
            }
        };
        let departed = self.departed.unwrap_or_else(Instant::now);
        Ok(Finish { stream, won, departed })
    }
}
