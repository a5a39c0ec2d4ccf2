//! A connect for programs with an event loop of their own.

use super::Kernel;
use crate::attempts::{ConnectAnyError, FailedAttempt};
use crate::client::Client;
use crate::client::race::{Action, Candidate, Failure, Finish as Won, Number, Race, Syn};
use crate::client::transport::kernel::{Cargo, KernelTcp, closed, fail, learn};
use crate::client::transport::{Transports as _, failure, is_refusal};
use crate::credential::{NetworkId, Outcome, Reason};
use crate::first_flight::{FirstFlight, Flights};
use firstflight_kernel::BegunConnect;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A connect by the kernel's TCP ([`Client::begin`]), without a runtime and without a thread.
///
/// Wait until one of [`Connecting::sockets`] is writable or has an error, at most for [`Connecting::timeout`], and call
/// [`Connecting::step`]. Its sockets change with every step. Dropping it closes the attempts.
///
/// ```no_run
/// # fn ask(wait: impl Fn(&firstflight::kernel::Connecting)) -> Result<(), Box<dyn std::error::Error>> {
/// use firstflight::{Client, FirstFlight};
/// let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
/// let client = Client::builder().kernel_only().build()?;
/// let mut connecting = client.begin(&["192.0.2.1:80".parse()?], request);
/// let connected = loop {
///     if let Some(result) = connecting.step() {
///         break result?;
///     }
///     // `poll` of the system, or the program's event loop.
///     wait(&connecting);
/// };
/// println!("{}", connected.outcome);
/// // Send the request from `connected.sent` on.
/// # Ok(())
/// # }
/// ```
pub struct Connecting {
    kernel: Kernel,
    /// The network on which it began.
    network: NetworkId,
    data: Vec<u8>,
    replayable: bool,
    fast_open: bool,
    origin: tokio::time::Instant,
    racer: Race,
    /// Oldest first.
    running: Vec<Running>,
    winner: Option<(BegunConnect, Outcome)>,
    failed: Vec<FailedAttempt>,
    over: bool,
}

#[derive(Debug)]
struct Running {
    number: Number,
    remote: SocketAddr,
    begun: BegunConnect,
}

/// The connection of a [`Connecting`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Connected {
    /// Its socket, which does not block.
    pub stream: TcpStream,
    /// The server's address.
    pub remote: SocketAddr,
    /// The outcome of the first flight.
    pub outcome: Outcome,
    /// How many bytes of the data the kernel has taken. The caller sends the rest.
    pub sent: usize,
    /// The data left with an attempt that lost, too, so that a server may execute it twice. The caller has allowed that.
    pub data_left_twice: bool,
}

/// Leaves out the data, which may be a secret.
impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting")
            .field("bytes", &self.data.len())
            .field("replayable", &self.replayable)
            .field("racer", &self.racer)
            .field("running", &self.running)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Begins a connect to the first of `addresses` that answers, best one first, by the kernel's TCP alone, for a program with an
    /// event loop of its own. Nothing leaves before the first [`Connecting::step`]. It needs no runtime. The cache file, if there
    /// is one, is written by [`Client::close`].
    ///
    /// The attempts race as with [`Client::connect`]: data that may run twice rides in the SYN of the first one, if the kernel has
    /// a cookie.
    #[must_use]
    pub fn begin(&self, addresses: &[SocketAddr], first: FirstFlight<'_>) -> Connecting {
        let kernel = self.kernel();
        let (network, origin) = (kernel.network(), tokio::time::Instant::now());
        let tcp = KernelTcp::since(kernel, Flights::Given(first), network, origin);
        let mut racer = Race::new(tcp.setup(), tcp.now());
        racer.handle_addresses(&tcp.order(addresses), false, tcp.now());
        Connecting {
            kernel: kernel.clone(),
            network,
            data: first.data().to_vec(),
            replayable: first.is_replayable(),
            fast_open: self.fast_open(),
            origin,
            racer,
            running: Vec::new(),
            winner: None,
            failed: Vec::new(),
            over: false,
        }
    }
}

impl Connecting {
    /// The sockets of the attempts under way, two at most.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.running.iter().map(|running| running.begun.as_fd())
    }

    /// When to call [`Connecting::step`] if nothing happens to a socket before; `None` if then nothing is to be done.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        let due = self.racer.poll_timeout()?;
        Some(due.saturating_since(self.tcp().now()))
    }

    /// Whether data has left with a SYN that has no answer yet, or with one of an attempt that has ended without a connection. If the
    /// caller gives up now, a server may have executed it.
    #[must_use]
    pub fn maybe_delivered(&self) -> bool {
        let unknown = Outcome::Handshake(Reason::Unknown);
        self.running.iter().any(|running| running.begun.taken() > 0)
            || self.failed.iter().any(|failed| failed.outcome == unknown)
    }

    /// Does what is to be done now, without blocking. The result is returned once; `None` before, and after it.
    pub fn step(&mut self) -> Option<Result<Connected, ConnectAnyError>> {
        if self.over {
            return None;
        }
        while self.check_one() {}
        let now = self.tcp().now();
        if self.racer.poll_timeout().is_some_and(|due| due <= now) {
            self.racer.handle_timeout(now);
        }
        while let Some(action) = self.racer.poll_action(self.tcp().now()) {
            match action {
                // The data is there.
                Action::Make(number, _) => self.racer.handle_made(number),
                Action::Begin(number, candidate) => self.begin(number, candidate),
                // Nothing goes inside a lookup.
                Action::Direct(number, _) => self.racer.handle_direct_refused(number, self.tcp().now()),
                Action::Abort(number) => self.abort(number),
                Action::Won(won) => {
                    self.over = true;
                    return Some(self.finish(&won).ok_or_else(|| self.lost()));
                }
                Action::Lost { .. } => {
                    self.over = true;
                    return Some(Err(self.lost()));
                }
            }
        }
        None
    }

    fn tcp(&self) -> KernelTcp<'_> {
        let first = match self.replayable {
            true => FirstFlight::safely_replayable(&self.data),
            false => FirstFlight::at_most_once(&self.data),
        };
        let tcp = KernelTcp::since(&self.kernel, Flights::Given(first), self.network, self.origin);
        tcp.fast_open(self.fast_open)
    }

    /// Looks for an attempt to which something has happened. False if there is none.
    fn check_one(&mut self) -> bool {
        let mut checked = self.running.iter().enumerate().map(|(at, running)| (at, running.begun.check()));
        let Some((at, result)) = checked.find(|(_, result)| !matches!(result, Ok(None))) else {
            return false;
        };
        let Running { number, remote, begun } = self.running.remove(at);
        match result {
            Ok(outcome) => {
                if self.kernel.network() != self.network {
                    self.racer.handle_network_changed();
                }
                self.racer.handle_established(number);
                if self.winner.is_none() {
                    self.winner = outcome.map(|outcome| (begun, outcome));
                }
            }
            Err(error) => {
                let (asks, left) = (begun.asks(), begun.taken() > 0);
                begun.close_after(&error);
                let (failed, told) = fail(&self.kernel, self.network, remote, (asks, left), error);
                self.failed.extend(told);
                self.racer.handle_failed(number, failed, self.tcp().now());
            }
        }
        true
    }

    fn begin(&mut self, number: Number, candidate: Candidate) {
        let result = self.send_syn(number, candidate);
        let now = self.tcp().now();
        match result {
            Ok((remote, begun)) => {
                self.racer.handle_begun(number, begun.asks(), begun.taken() > 0, now);
                self.running.push(Running { number, remote, begun });
            }
            Err((asked, error)) => {
                // A filter of this host, for example.
                let failed = Failure { asked, refused: is_refusal(&error), may_have_run: false };
                if !(failed.asked && failed.refused) {
                    let told = candidate.remote.map(|remote| failure(remote, Outcome::Undecided, error));
                    self.failed.extend(told);
                }
                self.racer.handle_failed(number, failed, now);
            }
        }
    }

    fn send_syn(
        &self,
        number: Number,
        candidate: Candidate,
    ) -> Result<(SocketAddr, BegunConnect), (bool, io::Error)> {
        let none = |error| (false, error);
        let remote = candidate.remote.ok_or_else(|| none(io::ErrorKind::AddrNotAvailable.into()))?;
        let tcp = self.tcp();
        let cargo = match candidate.syn {
            Syn::First => tcp.cargo(number, remote).map_err(none)?,
            Syn::Plain(reason) => Cargo::Nothing(reason),
        };
        let (carry, wanted) = cargo.carry();
        let begun = firstflight_kernel::begin(remote, None, carry).map_err(|error| (wanted, error))?;
        Ok((remote, begun))
    }

    fn abort(&mut self, number: Number) {
        let Some(at) = self.running.iter().position(|running| running.number == number) else { return };
        let Running { remote, begun, .. } = self.running.remove(at);
        if self.winner.is_none() {
            self.failed.extend(closed(remote, begun.taken() > 0));
        }
    }

    fn lost(&mut self) -> ConnectAnyError {
        ConnectAnyError { attempts: std::mem::take(&mut self.failed) }
    }

    /// Remembers what was learnt. `None` if the winner is not there, which does not happen.
    fn finish(&mut self, won: &Won) -> Option<Connected> {
        let (begun, outcome) = self.winner.take()?;
        let remote = won.candidate.remote?;
        let tcp = self.tcp();
        tcp.remember(won);
        let (race, elsewhere) = learn(&tcp, won, begun.info().ok().as_ref(), outcome);
        Some(Connected {
            remote,
            outcome: elsewhere.unwrap_or(outcome),
            sent: begun.taken(),
            data_left_twice: race.is_some_and(|race| race.data_left_twice()),
            stream: begun.into_std(),
        })
    }
}
