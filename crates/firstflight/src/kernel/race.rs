//! Attempts that race: with Fast Open and without, to one address or several.

use super::Kernel;
use crate::attempts::{ConnectAnyError, FailedAttempt};
use crate::first_flight::Flights;
#[cfg(feature = "asap")]
use crate::kernel::carried::{Carried, Opened};
use crate::stream::{Race, Stream};
use firstflight_credential::{NetworkId, Outcome, Permission, Reason};
use firstflight_kernel::{Attempt, Carry, ClientFail, Stream as KernelStream, connect};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout_at};

/// RFC 8305 §5: the recommended delay between attempts at different addresses.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// The longest wait for an attempt in UDP, as for the kernel's first SYN.
#[cfg(feature = "asap")]
const MOST_DELAY: Duration = Duration::from_secs(1);
/// How long the older of two attempts keeps its place before a third one takes it.
const KEEPS_PLACE: Duration = Duration::from_secs(2);
/// Attempts under way at one time.
const AT_ONCE: usize = 2;

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

/// An attempt that may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    remote: SocketAddr,
    way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By the kernel, with Fast Open if that is permitted.
    Fast,
    /// By the kernel, without Fast Open, for this reason.
    Plain(Reason),
    /// In UDP.
    #[cfg(feature = "asap")]
    Carried,
}

/// An attempt under way.
struct Running<'a> {
    /// Its number.
    number: u32,
    began: Instant,
    candidate: Candidate,
    /// Whether its SYN is more than an ordinary one: it has an option of Fast Open, or goes in UDP.
    asks: bool,
    /// The data, if it was needed for the SYN.
    data: Option<Cow<'a, [u8]>>,
    /// How many bytes of the data were taken with the SYN.
    taken: usize,
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

/// What became of the first attempt, if its SYN was more than an ordinary one.
#[derive(Debug, Default)]
struct Fast {
    candidate: Option<Candidate>,
    /// When its SYN left.
    began: Option<Instant>,
    /// It was refused.
    refused: bool,
    /// Bytes of the data that left with it.
    taken: usize,
}

impl<'a> Course<'a> {
    /// The attempts in their order, and the time until the second one.
    fn plan(&self) -> (VecDeque<Candidate>, Duration) {
        #[cfg(feature = "asap")]
        if let Some(carried) = &self.carried {
            let first = Candidate { remote: carried.remote, way: Way::Carried };
            let others = self.order().into_iter().map(|remote| Candidate { remote, way: Way::Fast });
            let delay = self.kernel.memory().race_delay(carried.remote.ip());
            // What is not known takes no longer than the kernel's own second SYN.
            return (std::iter::once(first).chain(others).collect(), delay.unwrap_or(MOST_DELAY));
        }
        self.by_kernel(&self.order())
    }

    /// The same without an attempt in UDP, at the addresses in `order`.
    fn by_kernel(&self, order: &[SocketAddr]) -> (VecDeque<Candidate>, Duration) {
        let delay = order.first().and_then(|remote| self.kernel.memory().race_delay(remote.ip()));
        (candidates(order, delay.is_some()), delay.unwrap_or(ATTEMPT_DELAY))
    }

    fn order(&self) -> Vec<SocketAddr> {
        self.kernel.order(self.addresses)
    }

    /// Sends the SYN of an attempt. The error says whether the SYN was more than an ordinary one.
    fn begin(&self, number: u32, candidate: Candidate) -> Result<Running<'a>, (bool, io::Error)> {
        let (remote, flights) = (candidate.remote, &self.flights);
        let replayable = flights.are_replayable(false);
        let mut data = None;
        let carry = match candidate.way {
            #[cfg(feature = "asap")]
            Way::Carried => return self.begin_carried(number, candidate),
            Way::Plain(reason) => Carry::Nothing(reason),
            Way::Fast if !self.fast_open => Carry::Nothing(Reason::NotRequested),
            // A refusal of more than an ordinary SYN would say nothing, and another SYN would have to ask again.
            Way::Fast if self.kernel.memory().was_closed(remote) => Carry::Nothing(Reason::FailureMemory),
            Way::Fast => match self.kernel.memory().permission(remote.ip()) {
                Permission::Nothing => Carry::Nothing(Reason::FailureMemory),
                Permission::Request => Carry::Request(Reason::FailureMemory),
                _ if flights.are_empty() => Carry::Request(Reason::NoData),
                _ if !replayable => Carry::Request(Reason::NotReplaySafe),
                Permission::Everything => {
                    let made = flights.by_kernel(number, self.network).map_err(|error| (false, error))?;
                    Carry::Data(data.insert(made))
                }
            },
        };
        let wanted = !matches!(carry, Carry::Nothing(_));
        let attempt: Attempt = connect(remote, None, carry).map_err(|error| (wanted, error))?;
        let (asks, taken) = (attempt.asks(), attempt.taken());
        let established = async move {
            match attempt.established().await {
                Ok((stream, taken)) => Ok((Connected::Kernel(stream), taken)),
                // The server may have executed what left with the SYN.
                Err(error) => Err((unclear_if(taken > 0), error)),
            }
        };
        let established = Box::pin(established);
        Ok(Running { number, began: Instant::now(), candidate, asks, data, taken, replayable, established })
    }

    #[cfg(feature = "asap")]
    fn begin_carried(&self, number: u32, candidate: Candidate) -> Result<Running<'a>, (bool, io::Error)> {
        let gone = || (true, io::Error::from(io::ErrorKind::AddrNotAvailable));
        let carried = self.carried.as_ref().ok_or_else(gone)?;
        let opened = carried.open(&self.flights, number, self.network).map_err(|error| (true, error))?;
        let Opened { attempt, taken, data, replayable } = opened;
        let established = async move {
            let stream = attempt.established().await?;
            Ok((Connected::Carried(stream), taken))
        };
        Ok(Running {
            number,
            began: Instant::now(),
            candidate,
            asks: true,
            data: Some(data),
            taken,
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
    let (mut waiting, mut wait) = course.plan();
    let mut running: Vec<Running<'_>> = Vec::with_capacity(AT_ONCE);
    let mut numbers = 0..;
    let mut tried = Vec::new();
    // Addresses to which no SYN could be sent.
    let mut unreachable = Vec::new();
    let (mut failed, mut once) = (Vec::new(), false);
    let mut fast = Fast::default();
    let mut next_at = Instant::now();
    let mut departed = None;
    let network = course.network;
    while !running.is_empty() || !waiting.is_empty() {
        let at = next_at.max(place_at(&running));
        if (running.is_empty() || Instant::now() >= at)
            && let Some(candidate) = waiting.pop_front()
        {
            match course.begin(numbers.next().unwrap_or(u32::MAX), candidate) {
                Ok(attempt) => {
                    departed = departed.or(Some(attempt.began));
                    if attempt.asks {
                        fast = Fast {
                            candidate: Some(candidate),
                            began: Some(attempt.began),
                            refused: false,
                            taken: attempt.taken,
                        };
                        if attempt.taken > 0 && !attempt.replayable {
                            // It may be at the server. No other attempt may send it.
                            once = true;
                            waiting.clear();
                        }
                        // Only the first attempt uses Fast Open.
                        demote(&mut waiting, candidate);
                    } else if candidate.way == Way::Fast {
                        // It is plain itself.
                        waiting.retain(|other| other.remote != candidate.remote);
                        demote(&mut waiting, candidate);
                        wait = ATTEMPT_DELAY;
                    }
                    if running.len() >= AT_ONCE {
                        let oldest = running.remove(0);
                        if oldest.taken > 0 {
                            // Its server may have executed the data.
                            let late = io::ErrorKind::TimedOut.into();
                            failed.push(failure(oldest.candidate.remote, unclear_if(true), late));
                        }
                    }
                    running.push(attempt);
                    tried.push(candidate);
                    next_at = Instant::now() + wait;
                    wait = ATTEMPT_DELAY;
                }
                Err((true, error)) if is_refusal(&error) && candidate.way == Way::Fast => {
                    // A filter of this host, for example.
                    fast = Fast { candidate: Some(candidate), refused: true, ..Fast::default() };
                    put_plain(&mut waiting, candidate.remote);
                }
                Err((_, error)) => {
                    if tried.is_empty() {
                        // Nothing has left, so what is left begins as without it: the first one uses Fast Open.
                        let gone = Some(candidate.remote).filter(|_| candidate.way.is_kernels());
                        unreachable.extend(gone);
                        let mut order = course.order();
                        order.retain(|remote| !unreachable.contains(remote));
                        (waiting, wait) = course.by_kernel(&order);
                        fast = Fast::default();
                    }
                    failed.push(failure(candidate.remote, Outcome::Undecided, error));
                }
            }
            continue;
        }
        let turn = poll_fn(|cx| {
            for at in 0..running.len() {
                if let Some(attempt) = running.get_mut(at)
                    && let Poll::Ready(result) = attempt.established.as_mut().poll(cx)
                {
                    return Poll::Ready((running.swap_remove(at), result));
                }
            }
            Poll::Pending
        });
        let turn = match waiting.is_empty() {
            true => Some(turn.await),
            false => timeout_at(at, turn).await.ok(),
        };
        match turn {
            None => {}
            Some((attempt, Ok((stream, taken)))) => {
                // The others are closed before anything is written.
                drop(running);
                let winner = attempt.candidate;
                // Those that began later have not lost.
                let earlier = tried.iter().take_while(|one| **one != winner);
                let before: Vec<_> =
                    earlier.filter(|one| one.way.is_kernels()).map(|one| one.remote).collect();
                if winner.way.is_kernels() {
                    let mut memory = course.kernel.memory();
                    // What was learnt on a network that the host has left is not used on the next one.
                    if memory.network() == network {
                        memory.raced(winner.remote, &before);
                    }
                }
                once |= !attempt.replayable;
                let departed = departed.unwrap_or(attempt.began);
                let won = Won { attempt, stream, taken, fast, network, departed };
                return won.deliver(course.kernel, &course.flights).await.map_err(|error| {
                    failed.push(error);
                    Lost { error: ConnectAnyError { attempts: failed }, once }
                });
            }
            Some((attempt, Err((outcome, error)))) => {
                if !attempt.asks && error.kind() == io::ErrorKind::ConnectionRefused {
                    let mut memory = course.kernel.memory();
                    if memory.network() == network {
                        memory.note_closed(attempt.candidate.remote);
                    }
                }
                if attempt.asks && is_refusal(&error) {
                    // Boxes refuse what they do not know. A plain SYN follows at once.
                    fast.refused = true;
                    let remote = attempt.candidate.remote;
                    let plain = tried.iter().any(|one| one.remote == remote && one.way.is_plain());
                    // One that began in the race is refused, too, or is still under way.
                    if attempt.candidate.way == Way::Fast && !plain {
                        put_plain(&mut waiting, remote);
                    }
                    if attempt.candidate.way != Way::Fast || attempt.taken > 0 {
                        failed.push(failure(attempt.candidate.remote, outcome, error));
                    }
                } else {
                    failed.push(failure(attempt.candidate.remote, outcome, error));
                }
                next_at = Instant::now();
            }
        }
    }
    Err(Lost { error: ConnectAnyError { attempts: failed }, once })
}

/// When there is a place for another attempt. The oldest one keeps its place for two seconds: the kernel sends a lost SYN
/// again after one, and the answer to that takes a round trip. If both are at one address, the older is not needed.
fn place_at(running: &[Running<'_>]) -> Instant {
    match running {
        [oldest, other, ..] if oldest.candidate.remote != other.candidate.remote => {
            oldest.began + KEEPS_PLACE
        }
        _ => Instant::now(),
    }
}

impl Way {
    const fn is_plain(self) -> bool {
        matches!(self, Self::Plain(_))
    }

    const fn is_kernels(self) -> bool {
        match self {
            Self::Fast | Self::Plain(_) => true,
            #[cfg(feature = "asap")]
            Self::Carried => false,
        }
    }
}

/// The attempts behind `first` are ordinary ones.
fn demote(waiting: &mut VecDeque<Candidate>, first: Candidate) {
    for other in waiting.iter_mut().filter(|other| other.way == Way::Fast) {
        let same = other.remote == first.remote;
        other.way = Way::Plain(if same { Reason::SynTimedOut } else { Reason::NotFirstAddress });
    }
}

/// The attempts in their order. If the round-trip time of the first server is known, it gets a plain SYN before others
/// do; otherwise the kernel sends it one after a second.
fn candidates(order: &[SocketAddr], known: bool) -> VecDeque<Candidate> {
    let mut candidates = VecDeque::new();
    for (n, remote) in order.iter().enumerate() {
        let way = if n == 0 { Way::Fast } else { Way::Plain(Reason::NotFirstAddress) };
        candidates.push_back(Candidate { remote: *remote, way });
        if n == 0 && known {
            candidates.push_back(Candidate { remote: *remote, way: Way::Plain(Reason::SynTimedOut) });
        }
    }
    candidates
}

/// Puts a plain attempt at `remote` in front, because the one with Fast Open was refused.
fn put_plain(waiting: &mut VecDeque<Candidate>, remote: SocketAddr) {
    waiting.retain(|candidate| candidate.remote != remote);
    waiting.push_front(Candidate { remote, way: Way::Plain(Reason::SynRefused) });
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

/// The attempt that won.
struct Won<'a> {
    attempt: Running<'a>,
    stream: Connected,
    /// How much of the data left with its SYN.
    taken: usize,
    fast: Fast,
    /// The network on which the race began.
    network: NetworkId,
    /// When the first SYN of all attempts had left.
    departed: Instant,
}

impl<'a> Won<'a> {
    /// Remembers what was learnt, sends the rest of the data, and returns the stream.
    async fn deliver(mut self, kernel: &Kernel, flights: &Flights<'a>) -> Result<Finish, FailedAttempt> {
        let number = self.attempt.number;
        // An ordinary attempt makes its data now.
        let data = self.attempt.data.take();
        let data = data.map_or_else(|| flights.by_kernel(number, self.network), Ok);
        let Self { attempt, stream, taken, fast, network, departed } = self;
        let remote = attempt.candidate.remote;
        let data = data.map_err(|error| failure(remote, unclear_if(fast.taken > 0), error))?;
        let rest = data.get(taken..).unwrap_or_default();
        let finish = match stream {
            Connected::Kernel(mut stream) => {
                let (race, elsewhere) = learn(kernel, &attempt, &stream, &fast, network);
                #[cfg(feature = "asap")]
                let carrier_lost = fast.candidate.is_some_and(|other| other.way == Way::Carried);
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
                    let mut memory = kernel.memory();
                    if memory.network() == network {
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

/// Remembers what the kernel's winner tells. Returns what to say of the race, and the outcome of the data if it was in
/// the SYN of an attempt at another address.
fn learn(
    kernel: &Kernel,
    attempt: &Running<'_>,
    stream: &KernelStream,
    fast: &Fast,
    network: NetworkId,
) -> (Option<Race>, Option<Outcome>) {
    let remote = attempt.candidate.remote;
    let info = stream.info().ok();
    let mut memory = kernel.memory();
    let here = memory.network() == network;
    if let Some(info) = info.as_ref().filter(|_| here) {
        memory.learn(remote.ip(), info);
    }
    if attempt.asks {
        if !here {
            // The host has moved.
        } else if stream.outcome().is_accepted() {
            memory.accepted(remote.ip(), attempt.began.elapsed());
        } else if info.is_some_and(|info| info.client_fail == ClientFail::SynRetransmitted) {
            // The kernel sent the plain SYN itself.
            memory.lost_race(remote.ip(), attempt.began.elapsed());
        }
        return (None, None);
    }
    let Some(other) = fast.candidate else { return (None, None) };
    let left = fast.taken > 0;
    let same = other.remote == remote;
    if here && same && other.way.is_kernels() {
        if fast.refused {
            memory.refused(remote.ip());
        } else if let Some(began) = fast.began
            && attempt.began.elapsed() < attempt.began - began
        {
            // Otherwise the plain SYN waited for its answer as long as the other one was given: the path or the server is
            // slow, whatever a SYN carries.
            memory.lost_race(remote.ip(), began.elapsed());
        }
    }
    // Another server may have executed the data.
    let elsewhere = (left && !same).then_some(Outcome::Handshake(Reason::Unknown));
    (Some(Race::new(left)), elsewhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(order: &[SocketAddr], known: bool) -> Vec<(u16, bool)> {
        candidates(order, known).iter().map(|one| (one.remote.port(), one.way == Way::Fast)).collect()
    }

    #[test]
    fn the_first_server_gets_a_plain_syn_before_others_if_its_round_trip_time_is_known() {
        let order = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(kinds(&order, true), [(1, true), (1, false), (2, false), (3, false)]);
        assert_eq!(kinds(&order, false), [(1, true), (2, false), (3, false)]);
        assert_eq!(kinds(&order[..1], true), [(1, true), (1, false)]);
        assert_eq!(kinds(&[], true), []);
    }
}
