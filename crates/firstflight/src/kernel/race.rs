//! Attempts that race: with Fast Open and without, to one address or several.

use super::Kernel;
use crate::client::race::{
    Action, Address, Candidate, Failure, Finish as Won, First, Number, Race as Racer, Setup, Syn, Transport,
};
use crate::first_flight::Flights;
#[cfg(feature = "asap")]
use crate::kernel::carried::{Carried, Opened};
use crate::race::{ConnectAnyError, FailedAttempt};
use crate::stream::{Race, Stream};
use firstflight_credential::{NetworkId, Outcome, Permission, Reason};
use firstflight_kernel::{Carry, ClientFail, Stream as KernelStream, connect};
use firstflight_wire::Instant as Moment;
use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout_at};

/// What a race is about.
pub(crate) struct Course<'a> {
    pub kernel: &'a Kernel,
    /// The servers' addresses, best one first.
    pub addresses: &'a [SocketAddr],
    pub flights: Flights<'a>,
    /// The network on which it begins.
    pub network: NetworkId,
    /// Whether the kernel may use Fast Open.
    pub fast_open: bool,
    /// An attempt in UDP that begins before the kernel's.
    #[cfg(feature = "asap")]
    pub carried: Option<Carried<'a>>,
}

/// What an attempt on the kernel's TCP carries.
enum Cargo<'a> {
    Nothing(Reason),
    Request(Reason),
    Data(Cow<'a, [u8]>),
}

/// An attempt under way.
struct Running<'a> {
    number: Number,
    remote: SocketAddr,
    /// The data, if it was needed for the SYN.
    data: Option<Cow<'a, [u8]>>,
    /// How many bytes of the data were taken with the SYN.
    taken: usize,
    /// Its SYN was more than an ordinary one.
    asks: bool,
    /// The data may be executed twice.
    replayable: bool,
    established: Pin<Box<dyn Future<Output = Established> + Send>>,
}

/// The stream, and how much of the data left with its SYN; or the outcome of the first flight, and why there is no
/// stream.
type Established = Result<(Connected, usize), (Outcome, io::Error)>;

/// A connection whose handshake is complete.
pub(crate) enum Connected {
    Kernel(KernelStream),
    #[cfg(feature = "asap")]
    Carried(crate::stream::EngineStream),
}

impl<'a> Course<'a> {
    /// The addresses in their order, each with the time that a first attempt is given.
    fn order(&self) -> Vec<Address> {
        let order = self.kernel.order(self.addresses);
        let mut memory = self.kernel.memory();
        order.into_iter().map(|remote| Address { remote, delay: memory.race_delay(remote.ip()) }).collect()
    }

    /// What a first attempt on the kernel's TCP carries.
    fn cargo(&self, number: Number, remote: SocketAddr) -> io::Result<Cargo<'a>> {
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

    /// Sends the SYN of an attempt on the kernel's TCP. The error says whether the SYN was more than an ordinary one.
    fn begin(
        &self,
        number: Number,
        remote: SocketAddr,
        cargo: Cargo<'a>,
    ) -> Result<Running<'a>, (bool, io::Error)> {
        let replayable = self.flights.are_replayable(false);
        let (carry, wanted) = match &cargo {
            Cargo::Nothing(reason) => (Carry::Nothing(*reason), false),
            Cargo::Request(reason) => (Carry::Request(*reason), true),
            Cargo::Data(data) => (Carry::Data(data), true),
        };
        let attempt = connect(remote, None, carry).map_err(|error| (wanted, error))?;
        let (asks, taken) = (attempt.asks(), attempt.taken());
        let established = async move {
            match attempt.established().await {
                Ok((stream, taken)) => Ok((Connected::Kernel(stream), taken)),
                // The server may have executed what left with the SYN.
                Err(error) => Err((unclear_if(taken > 0), error)),
            }
        };
        let data = match cargo {
            Cargo::Data(data) => Some(data),
            Cargo::Nothing(_) | Cargo::Request(_) => None,
        };
        Ok(Running { number, remote, data, taken, asks, replayable, established: Box::pin(established) })
    }

    /// Sends the SYN of the attempt in UDP.
    #[cfg(feature = "asap")]
    fn begin_carried(&self, number: Number) -> io::Result<Running<'a>> {
        let carried = self.carried.as_ref().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let Opened { attempt, taken, data, replayable } =
            carried.open(&self.flights, number, self.network)?;
        let established = async move {
            let stream = attempt.established().await?;
            Ok((Connected::Carried(stream), taken))
        };
        Ok(Running {
            number,
            remote: carried.remote,
            data: Some(data),
            taken,
            asks: true,
            replayable,
            established: Box::pin(established),
        })
    }
}

/// The winner, and what became of the first attempt if another one won.
pub(crate) struct Finish {
    pub stream: Stream,
    /// The number of the attempt that won.
    pub number: u32,
    /// When the first SYN of all attempts had left.
    pub departed: Instant,
    /// An attempt in UDP lost the race, or was refused.
    #[cfg(feature = "asap")]
    pub carrier_lost: bool,
}

/// Why a race has no winner.
pub(crate) struct Lost {
    pub error: ConnectAnyError,
    /// Data that must not run twice left with one of the attempts.
    pub once: bool,
}

/// Runs a race. Data that must not run twice leaves by one attempt only.
pub(crate) async fn run(course: Course<'_>) -> Result<Finish, Lost> {
    Driver::new(&course).run().await
}

/// What drives the [racer](Racer): it begins attempts, waits for them, and closes them.
struct Driver<'c, 'a> {
    course: &'c Course<'a>,
    racer: Racer,
    /// The origin of the racer's time.
    origin: Instant,
    /// What the next attempt carries.
    cargo: Option<Cargo<'a>>,
    /// Oldest first.
    running: Vec<Running<'a>>,
    /// The attempt whose handshake is complete.
    winner: Option<(Running<'a>, Connected, usize)>,
    failed: Vec<FailedAttempt>,
    /// When the first SYN of all attempts had left.
    departed: Option<Instant>,
}

impl<'c, 'a> Driver<'c, 'a> {
    fn new(course: &'c Course<'a>) -> Self {
        // The kernel's TCP carries no data that must not run twice with a SYN.
        let setup = Setup { udp_once: !course.flights.are_replayable(true), ..Setup::default() };
        let mut racer = Racer::new(setup, Moment::ZERO);
        #[cfg(feature = "asap")]
        if let Some(carried) = &course.carried {
            racer.handle_offer(crate::client::race::Offer::At(carried.remote));
        }
        racer.handle_addresses(&course.order(), false, Moment::ZERO);
        Self {
            course,
            racer,
            origin: Instant::now(),
            cargo: None,
            running: Vec::new(),
            winner: None,
            failed: Vec::new(),
            departed: None,
        }
    }

    async fn run(mut self) -> Result<Finish, Lost> {
        loop {
            while let Some(action) = self.racer.poll_action(self.now()) {
                match action {
                    Action::Make(number, candidate) => self.make(number, candidate),
                    Action::Begin(number, candidate) => self.begin(number, candidate),
                    Action::Abort(number) => self.abort(number),
                    // Nothing begins without an address here.
                    Action::Direct(..) => {}
                    Action::Won(won) => return self.deliver(won).await,
                    Action::Lost { once } => return Err(self.lost(once)),
                }
            }
            let due = self.racer.poll_timeout().map(|due| self.origin + due.saturating_since(Moment::ZERO));
            let turn = poll_fn(|cx| {
                for at in 0..self.running.len() {
                    if let Some(attempt) = self.running.get_mut(at)
                        && let Poll::Ready(result) = attempt.established.as_mut().poll(cx)
                    {
                        return Poll::Ready((self.running.remove(at), result));
                    }
                }
                Poll::Pending
            });
            let turn = match due {
                None => Some(turn.await),
                Some(due) => timeout_at(due, turn).await.ok(),
            };
            match turn {
                None => self.racer.handle_timeout(self.now()),
                Some((attempt, Ok((stream, taken)))) => {
                    if self.course.kernel.network() != self.course.network {
                        self.racer.handle_network_changed();
                    }
                    self.racer.handle_established(attempt.number);
                    self.winner = Some((attempt, stream, taken));
                }
                Some((attempt, Err((outcome, error)))) => self.note_failure(&attempt, outcome, error),
            }
        }
    }

    fn now(&self) -> Moment {
        Moment::ZERO + self.origin.elapsed()
    }

    fn make(&mut self, number: Number, candidate: Candidate) {
        let made = match (candidate.transport, candidate.remote) {
            (Transport::Tcp, Some(remote)) => self.course.cargo(number, remote).map(Some),
            // It is made for the certificate with which it leaves.
            _ => Ok(None),
        };
        match made {
            Ok(cargo) => {
                self.cargo = cargo;
                self.racer.handle_made(number);
            }
            Err(error) => {
                self.failed.extend(candidate.remote.map(|remote| failure(remote, Outcome::Undecided, error)));
                self.racer.handle_not_made(number, self.now());
            }
        }
    }

    fn begin(&mut self, number: Number, candidate: Candidate) {
        let Candidate { transport, remote, syn } = candidate;
        // Nothing begins without an address here.
        let Some(remote) = remote else { return };
        let cargo = match syn {
            Syn::First => self.cargo.take().unwrap_or(Cargo::Nothing(Reason::NotRequested)),
            Syn::Plain(reason) => Cargo::Nothing(reason),
        };
        let begun = match transport {
            Transport::Tcp => self.course.begin(number, remote, cargo),
            #[cfg(feature = "asap")]
            // What keeps it from leaving is of this host.
            Transport::Udp => self.course.begin_carried(number).map_err(|error| (false, error)),
            #[cfg(not(feature = "asap"))]
            Transport::Udp => Err((false, io::ErrorKind::Unsupported.into())),
        };
        let now = self.now();
        match begun {
            Ok(attempt) => {
                self.departed = self.departed.or_else(|| Some(Instant::now()));
                self.racer.handle_begun(number, attempt.asks, attempt.taken > 0, now);
                self.running.push(attempt);
            }
            Err((asked, error)) => {
                // A filter of this host, for example.
                let failed = Failure { asked, refused: is_refusal(&error), may_have_run: false };
                if !(failed.asked && failed.refused) {
                    self.failed.push(failure(remote, Outcome::Undecided, error));
                }
                self.racer.handle_failed(number, failed, now);
            }
        }
    }

    /// Closes an attempt that lost, or whose place is taken.
    fn abort(&mut self, number: Number) {
        let Some(at) = self.running.iter().position(|attempt| attempt.number == number) else { return };
        let attempt = self.running.remove(at);
        if attempt.taken > 0 && self.winner.is_none() {
            // Its server may have executed the data.
            self.failed.push(failure(attempt.remote, unclear_if(true), io::ErrorKind::TimedOut.into()));
        }
    }

    fn note_failure(&mut self, attempt: &Running<'_>, outcome: Outcome, error: io::Error) {
        let refused = is_refusal(&error);
        if !attempt.asks && error.kind() == io::ErrorKind::ConnectionRefused {
            let mut memory = self.course.kernel.memory();
            if memory.network() == self.course.network {
                memory.note_closed(attempt.remote);
            }
        }
        let now = self.now();
        // An ordinary SYN follows the one that asked, and tells what is wrong.
        if !(attempt.asks && refused) || attempt.taken > 0 || self.is_carried(attempt) {
            self.failed.push(failure(attempt.remote, outcome, error));
        }
        let failed = Failure { asked: attempt.asks, refused, may_have_run: attempt.taken > 0 };
        self.racer.handle_failed(attempt.number, failed, now);
    }

    /// Whether an attempt goes in UDP. Only the first one does.
    fn is_carried(&self, attempt: &Running<'_>) -> bool {
        #[cfg(feature = "asap")]
        return self.course.carried.is_some() && attempt.asks;
        #[cfg(not(feature = "asap"))]
        {
            let _ = attempt;
            false
        }
    }

    fn lost(self, once: bool) -> Lost {
        Lost { error: ConnectAnyError { attempts: self.failed }, once }
    }

    /// Remembers what was learnt, sends the rest of the data to the winner, and returns the stream.
    async fn deliver(mut self, won: Won) -> Result<Finish, Lost> {
        let Some((attempt, stream, taken)) = self.winner.take() else { return Err(self.lost(false)) };
        self.remember(&won);
        let once = !attempt.replayable;
        let finish = self.hand_over(&won, attempt, stream, taken).await;
        finish.map_err(|error| {
            self.failed.push(error);
            self.lost(once)
        })
    }

    /// Remembers which addresses lost.
    fn remember(&self, won: &Won) {
        let Some(remote) = won.candidate.remote.filter(|_| won.candidate.transport == Transport::Tcp) else {
            return;
        };
        let mut memory = self.course.kernel.memory();
        // What was learnt on a network that the host has left is not used on the next one.
        if won.same_network && memory.network() == self.course.network {
            memory.raced(remote, &won.earlier);
        }
    }

    async fn hand_over(
        &mut self,
        won: &Won,
        mut attempt: Running<'a>,
        stream: Connected,
        taken: usize,
    ) -> Result<Finish, FailedAttempt> {
        let Course { flights, network, .. } = self.course;
        let (number, remote) = (attempt.number, attempt.remote);
        // An ordinary attempt makes its data now.
        let data = attempt.data.take();
        let data = data.map_or_else(|| flights.by_kernel(number, *network), Ok);
        let elsewhere = won.first.is_some_and(|first| first.left);
        let data = data.map_err(|error| failure(remote, unclear_if(elsewhere), error))?;
        let rest = data.get(taken..).unwrap_or_default();
        let departed = self.departed.unwrap_or(self.origin);
        let finish = match stream {
            Connected::Kernel(mut stream) => {
                let (race, elsewhere) = learn(self.course, won, self.now(), &stream);
                #[cfg(feature = "asap")]
                let carrier_lost = won.first.is_some_and(|first| first.candidate.transport == Transport::Udp);
                let sent = stream.write_all(rest).await;
                sent.map(|()| Finish {
                    stream: Stream::raced(stream, race, elsewhere),
                    number,
                    departed,
                    #[cfg(feature = "asap")]
                    carrier_lost,
                })
            }
            #[cfg(feature = "asap")]
            Connected::Carried(mut stream) => {
                if let Some(info) = stream.info().filter(|info| info.handshake_retransmits == 0)
                    && let (Some(rtt), Some(var)) = (info.rtt, info.rtt_var)
                {
                    let mut memory = self.course.kernel.memory();
                    if won.same_network && memory.network() == *network {
                        memory.learn_rtt(remote.ip(), rtt, var);
                    }
                }
                stream.write_all(rest).await.map(|()| Finish {
                    stream: stream.into(),
                    number,
                    departed,
                    carrier_lost: false,
                })
            }
        };
        finish.map_err(|error| failure(remote, unclear_if(!data.is_empty()), error))
    }
}

fn is_refusal(error: &io::Error) -> bool {
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

const fn failure(remote: SocketAddr, outcome: Outcome, error: io::Error) -> FailedAttempt {
    FailedAttempt { remote, outcome, error }
}

/// The outcome of an attempt that failed: unclear if data may be at the server.
const fn unclear_if(left: bool) -> Outcome {
    if left { Outcome::Handshake(Reason::Unknown) } else { Outcome::Undecided }
}

/// Remembers what the kernel's winner tells. Returns what to say of the race, and the outcome of the data if it was in
/// the SYN of an attempt at another address.
fn learn(
    course: &Course<'_>,
    won: &Won,
    now: Moment,
    stream: &KernelStream,
) -> (Option<Race>, Option<Outcome>) {
    let Some(remote) = won.candidate.remote else { return (None, None) };
    let info = stream.info().ok();
    let mut memory = course.kernel.memory();
    let here = won.same_network && memory.network() == course.network;
    if let Some(info) = info.as_ref().filter(|_| here) {
        memory.learn(remote.ip(), info);
    }
    let ago = now.saturating_since(won.began);
    if won.asks {
        if !here {
            // The host has moved.
        } else if stream.outcome().is_accepted() {
            memory.accepted(remote.ip(), ago);
        } else if info.is_some_and(|info| info.client_fail == ClientFail::SynRetransmitted) {
            // The kernel sent the plain SYN itself.
            memory.lost_race(remote.ip(), ago);
        }
        return (None, None);
    }
    let Some(First { candidate: other, began, left, refused, .. }) = won.first else { return (None, None) };
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
