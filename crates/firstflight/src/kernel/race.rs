//! Attempts that race: with Fast Open and without, to one address or several.

use super::Kernel;
use crate::first_flight::FirstFlight;
use crate::race::{ConnectAnyError, FailedAttempt, interleave};
use crate::stream::{Race, Stream};
use firstflight_credential::{Outcome, Permission, Reason};
use firstflight_kernel::{Attempt, Carry, ClientFail, Stream as KernelStream, connect};
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
/// Attempts under way at one time.
const AT_ONCE: usize = 2;

/// An attempt that may be made.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    remote: SocketAddr,
    /// The first attempt, which may use Fast Open.
    fast: bool,
    /// Why it does not, if it is not the first.
    plain: Reason,
}

/// An attempt under way.
struct Running {
    candidate: Candidate,
    /// Whether its SYN has an option of Fast Open.
    asks: bool,
    /// How many bytes of the data the kernel took with the SYN.
    taken: usize,
    established: Pin<Box<dyn Future<Output = Established> + Send>>,
}

/// The stream, and how much of the data left with its SYN.
type Established = io::Result<(KernelStream, usize)>;

/// What became of the first attempt, if it used Fast Open.
#[derive(Debug, Default)]
struct Fast {
    remote: Option<SocketAddr>,
    /// It was refused.
    refused: bool,
    /// Bytes of the data that left with it.
    taken: usize,
}

pub(super) async fn run(
    kernel: &Kernel,
    addresses: &[SocketAddr],
    first: FirstFlight<'_>,
) -> Result<Stream, ConnectAnyError> {
    let (order, delay) = {
        let mut memory = kernel.memory();
        let (last, first) = memory.split(addresses);
        let order = [interleave(&first), interleave(&last)].concat();
        let delay = order.first().and_then(|remote| memory.race_delay(remote.ip()));
        (order, delay)
    };
    let mut waiting = candidates(&order, delay.is_some());
    let mut wait = delay.unwrap_or(ATTEMPT_DELAY);
    let mut running: Vec<Running> = Vec::with_capacity(AT_ONCE);
    let mut tried = Vec::new();
    let mut failed = Vec::new();
    let mut fast = Fast::default();
    let mut next_at = Instant::now();
    while !running.is_empty() || !waiting.is_empty() {
        if (running.is_empty() || Instant::now() >= next_at)
            && let Some(candidate) = waiting.pop_front()
        {
            match begin(kernel, candidate, first) {
                Ok(attempt) => {
                    if attempt.asks {
                        fast = Fast { remote: Some(candidate.remote), refused: false, taken: attempt.taken };
                    } else if candidate.fast {
                        // It is plain itself.
                        waiting.retain(|other| other.remote != candidate.remote);
                        wait = ATTEMPT_DELAY;
                    }
                    if running.len() >= AT_ONCE {
                        running.remove(0);
                    }
                    running.push(attempt);
                    tried.push(candidate.remote);
                    next_at = Instant::now() + wait;
                    wait = ATTEMPT_DELAY;
                }
                Err((true, error)) if is_refusal(&error) => {
                    // A filter of this host, for example.
                    fast = Fast { remote: Some(candidate.remote), refused: true, taken: 0 };
                    put_plain(&mut waiting, candidate.remote);
                }
                Err((_, error)) => failed.push(failure(candidate.remote, 0, error)),
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
            false => timeout_at(next_at, turn).await.ok(),
        };
        match turn {
            None => {}
            Some((attempt, Ok((stream, taken)))) => {
                // The others are closed before anything is written.
                drop(running);
                kernel.memory().raced(attempt.candidate.remote, &tried);
                let won = Won { attempt, stream, taken, fast };
                return won.deliver(kernel, first).await.map_err(|error| {
                    failed.push(error);
                    ConnectAnyError { attempts: failed }
                });
            }
            Some((attempt, Err(error))) => {
                if attempt.asks && is_refusal(&error) {
                    // Boxes refuse what they do not know. A plain SYN follows at once.
                    fast.refused = true;
                    put_plain(&mut waiting, attempt.candidate.remote);
                } else {
                    failed.push(failure(attempt.candidate.remote, attempt.taken, error));
                }
                next_at = Instant::now();
            }
        }
    }
    Err(ConnectAnyError { attempts: failed })
}

/// The attempts in their order. If the round-trip time of the first server is known, it gets a plain SYN before others
/// do; otherwise the kernel sends it one after a second.
fn candidates(order: &[SocketAddr], known: bool) -> VecDeque<Candidate> {
    let mut candidates = VecDeque::new();
    for (n, remote) in order.iter().enumerate() {
        candidates.push_back(Candidate { remote: *remote, fast: n == 0, plain: Reason::NotFirstAddress });
        if n == 0 && known {
            candidates.push_back(Candidate { remote: *remote, fast: false, plain: Reason::SynTimedOut });
        }
    }
    candidates
}

/// Puts a plain attempt at `remote` in front, because the one with Fast Open was refused.
fn put_plain(waiting: &mut VecDeque<Candidate>, remote: SocketAddr) {
    waiting.retain(|candidate| candidate.remote != remote);
    waiting.push_front(Candidate { remote, fast: false, plain: Reason::SynRefused });
}

/// Sends the SYN of an attempt. The error says whether the SYN had an option of Fast Open.
fn begin(
    kernel: &Kernel,
    candidate: Candidate,
    first: FirstFlight<'_>,
) -> Result<Running, (bool, io::Error)> {
    let permission = kernel.memory().permission(candidate.remote.ip());
    let carry = match permission {
        _ if !candidate.fast => Carry::Nothing(candidate.plain),
        Permission::Nothing => Carry::Nothing(Reason::FailureMemory),
        Permission::Request => Carry::Request(Reason::FailureMemory),
        _ if first.data().is_empty() => Carry::Request(Reason::NoData),
        _ if !first.is_replayable() => Carry::Request(Reason::NotReplaySafe),
        Permission::Everything => Carry::Data(first.data()),
    };
    let wanted = !matches!(carry, Carry::Nothing(_));
    let attempt: Attempt = connect(candidate.remote, None, carry).map_err(|error| (wanted, error))?;
    let (asks, taken) = (attempt.asks(), attempt.taken());
    Ok(Running { candidate, asks, taken, established: Box::pin(attempt.established()) })
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

fn failure(remote: SocketAddr, taken: usize, error: io::Error) -> FailedAttempt {
    // The server may have executed what left with the SYN.
    let outcome = if taken > 0 { Outcome::Handshake(Reason::Unknown) } else { Outcome::Undecided };
    FailedAttempt { remote, outcome, error }
}

/// The attempt that won.
struct Won {
    attempt: Running,
    stream: KernelStream,
    /// How much of the data left with its SYN.
    taken: usize,
    fast: Fast,
}

impl Won {
    /// Remembers what was learnt, sends the rest of the data, and returns the stream.
    async fn deliver(self, kernel: &Kernel, first: FirstFlight<'_>) -> Result<Stream, FailedAttempt> {
        let Self { attempt, mut stream, taken, fast } = self;
        let remote = attempt.candidate.remote;
        let info = stream.info().ok();
        let (mut race, mut elsewhere) = (None, None);
        {
            let mut memory = kernel.memory();
            if let Some(info) = &info {
                memory.learn(remote.ip(), info);
            }
            if attempt.asks {
                if stream.outcome().is_accepted() {
                    memory.accepted(remote.ip());
                } else if info.is_some_and(|info| info.client_fail == ClientFail::SynRetransmitted) {
                    // The kernel sent the plain SYN itself.
                    memory.lost_race(remote.ip());
                }
            } else if let Some(other) = fast.remote {
                race = Some(Race::new(fast.taken > 0));
                match fast.refused {
                    true if other == remote => memory.refused(remote.ip()),
                    false if other == remote => memory.lost_race(remote.ip()),
                    // The other server may have executed the data.
                    _ => elsewhere = (fast.taken > 0).then_some(Outcome::Handshake(Reason::Unknown)),
                }
            }
        }
        let rest = first.data().get(taken..).unwrap_or_default();
        match stream.write_all(rest).await {
            Ok(()) => Ok(Stream::raced(stream, race, elsewhere)),
            Err(error) => Err(failure(remote, first.data().len(), error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(order: &[SocketAddr], known: bool) -> Vec<(u16, bool)> {
        candidates(order, known).iter().map(|one| (one.remote.port(), one.fast)).collect()
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
