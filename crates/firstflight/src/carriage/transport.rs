//! A first flight inside a lookup as an attempt of a race: another beginning of an attempt in UDP.

use super::ask::PATIENCE;
use super::losses::Fate;
use super::report::{HeldBack, Report, Way};
use super::{Armed, DnsPath, Ready, Server};
use crate::attempts::FailedAttempt;
use crate::client::race::{Address, Candidate, Failure, Finish as Won, Number, Offer, Setup};
use crate::client::transport::engine::EngineTcp;
use crate::client::transport::{Attempt, Begun, Event, Transports, failure, is_refusal, unclear_if};
use crate::stream::Stream;
use firstflight_dns::FlightId;
use firstflight_wire::Instant as Moment;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// An engine in UDP whose first attempt begins inside the lookup of the server's address.
pub(crate) struct InLookup<'a> {
    path: &'a DnsPath,
    server: Server<'a>,
    tcp: EngineTcp<'a>,
    /// The addresses are known.
    found: AtomicBool,
    report: Arc<Mutex<Report>>,
}

/// What a first attempt carries.
pub(crate) enum Cargo<C> {
    InLookup(Box<Ready>),
    Direct(C),
}

/// An attempt, inside the lookup or not.
pub(crate) enum Either<A> {
    InLookup(Box<LookupAttempt>),
    Direct(A),
}

/// Sends names. Its result receives the fate of the first flight.
type Departing = Pin<Box<dyn Future<Output = io::Result<oneshot::Sender<Fate>>> + Send>>;

/// An attempt that begins inside the lookup.
pub(crate) struct LookupAttempt {
    path: DnsPath,
    /// `None` once it is handed over.
    armed: Option<Armed>,
    flight: FlightId,
    /// Sends the names.
    departing: Option<Departing>,
    /// The names were sent: receives the fate of the first flight.
    fate: Option<oneshot::Sender<Fate>>,
    /// The addresses are known.
    found: Arc<Notify>,
    /// When they came.
    found_at: Option<Moment>,
    /// The server's address, where the direct copy went.
    direct: Option<SocketAddr>,
    direct_refused: bool,
    /// Ends when no answer to the names is expected any more.
    late: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    report: Arc<Mutex<Report>>,
}

impl<'a> InLookup<'a> {
    pub(crate) fn new(path: &'a DnsPath, server: Server<'a>, tcp: EngineTcp<'a>) -> Self {
        let report = Report { way: Way::Ordinary, held_back: None, names: 0 };
        Self { path, server, tcp, found: AtomicBool::new(false), report: Arc::new(Mutex::new(report)) }
    }

    /// What became of the first flight in the lookup.
    pub(crate) fn into_report(self) -> Report {
        let Self { report, .. } = self;
        std::mem::replace(&mut *lock(&report), Report { way: Way::Ordinary, held_back: None, names: 0 })
    }

    fn begin_in_lookup(&self, ready: Ready) -> LookupAttempt {
        let Ready { armed, sealed } = ready;
        let (path, flight, found) = (self.path.clone(), sealed.flight, Arc::new(Notify::new()));
        lock(&self.report).names = sealed.queries.len();
        let known = self.found.load(Ordering::Relaxed);
        if known {
            found.notify_one();
        }
        let departing = {
            let (path, found) = (path.clone(), Arc::clone(&found));
            Box::pin(async move { path.depart(sealed, async { found.notified().await }).await })
        };
        LookupAttempt {
            found_at: known.then(|| path.0.time.now()),
            path,
            armed: Some(armed),
            flight,
            departing: Some(departing),
            fate: None,
            found,
            direct: None,
            direct_refused: false,
            late: None,
            report: Arc::clone(&self.report),
        }
    }
}

fn lock(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Transports for InLookup<'a> {
    type Cargo = Cargo<<EngineTcp<'a> as Transports>::Cargo>;
    type Attempt = Either<<EngineTcp<'a> as Transports>::Attempt>;

    fn setup(&self) -> Setup {
        self.tcp.setup()
    }

    fn offer(&self) -> Option<Offer> {
        Some(Offer::InLookup { v4: self.tcp.certified_v4().unwrap_or(true) })
    }

    fn now(&self) -> Moment {
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
        self.found.store(true, Ordering::Relaxed);
        self.tcp.order(addresses)
    }

    fn make(&self, number: Number, candidate: Candidate) -> io::Result<Self::Cargo> {
        if candidate.remote.is_some() {
            return self.tcp.make(number, candidate).map(Cargo::Direct);
        }
        let ready = self.path.prepare(self.server, self.tcp.flights(), self.tcp.config());
        ready.map(|ready| Cargo::InLookup(Box::new(ready))).map_err(|held_back| {
            lock(&self.report).held_back = Some(held_back);
            io::ErrorKind::Unsupported.into()
        })
    }

    fn begin(
        &self,
        number: Number,
        candidate: Candidate,
        cargo: Option<Self::Cargo>,
    ) -> Result<(Self::Attempt, Option<Begun>), (bool, io::Error)> {
        let cargo = match cargo {
            Some(Cargo::InLookup(ready)) => {
                return Ok((Either::InLookup(Box::new(self.begin_in_lookup(*ready))), None));
            }
            Some(Cargo::Direct(cargo)) => Some(cargo),
            None => None,
        };
        let (attempt, begun) = self.tcp.begin(number, candidate, cargo)?;
        Ok((Either::Direct(attempt), begun))
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
            Either::Direct(attempt) => self.tcp.deliver(won, attempt, unclear).await,
            Either::InLookup(mut attempt) => {
                let nowhere = SocketAddr::from(([0; 4], self.server.port));
                let gone = || (failure(nowhere, unclear_if(true), io::ErrorKind::NotConnected.into()), false);
                attempt.arrive().ok_or_else(gone)
            }
        }
    }
}

impl LookupAttempt {
    /// It has won.
    fn arrive(&mut self) -> Option<Stream> {
        let stream = Stream::from(self.armed.take()?.bound());
        let info = stream.info();
        let way = match &info {
            Some(info) if info.relayed => Way::Lookup,
            _ => Way::Direct,
        };
        if way == Way::Lookup {
            self.path.0.manners().handle_relayed(self.flight);
        }
        lock(&self.report).way = way;
        // If the SYN was sent again, it is not known which one arrived.
        let once = info.is_some_and(|info| info.handshake_retransmits == 0);
        let sent = self.found_at.filter(|_| once);
        if let Some(fate) = self.fate.take() {
            // The receiver is dropped only when the runtime ends.
            let _ = fate.send(Fate::of(way, stream.outcome(), sent, self.path.0.time.now()));
        }
        Some(stream)
    }

    /// Whether only an answer to the names can still come.
    const fn is_late(&self) -> bool {
        self.found_at.is_some() && (self.direct.is_none() || self.direct_refused)
    }
}

impl<A: Attempt> Attempt for Either<A> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        match self {
            Self::InLookup(attempt) => attempt.poll(cx),
            Self::Direct(attempt) => attempt.poll(cx),
        }
    }

    fn handle_addresses(&mut self) {
        match self {
            Self::InLookup(attempt) => attempt.handle_addresses(),
            Self::Direct(attempt) => attempt.handle_addresses(),
        }
    }

    fn send_direct(&mut self, remote: SocketAddr) -> bool {
        match self {
            Self::InLookup(attempt) => attempt.send_direct(remote),
            Self::Direct(attempt) => attempt.send_direct(remote),
        }
    }

    fn close(self) -> Option<FailedAttempt> {
        match self {
            Self::InLookup(attempt) => attempt.close(),
            Self::Direct(attempt) => attempt.close(),
        }
    }
}

impl Attempt for LookupAttempt {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Some(departing) = &mut self.departing {
            let departed = std::task::ready!(departing.as_mut().poll(cx));
            self.departing = None;
            return Poll::Ready(match departed {
                Ok(fate) => {
                    self.fate = Some(fate);
                    let time = self.path.0.time.clone();
                    self.late = Some(Box::pin(async move { time.sleep(PATIENCE).await }));
                    lock(&self.report).way = Way::Direct;
                    Event::Begun(Begun { asks: true, left: true })
                }
                Err(error) => {
                    let mut report = lock(&self.report);
                    (report.held_back, report.names) = (Some(HeldBack::Io(error)), 0);
                    Event::Failed(Failure::default(), None)
                }
            });
        }
        let Some(armed) = &self.armed else { return Poll::Pending };
        match armed.stream.poll_connected(cx) {
            Poll::Ready(Ok(())) => return Poll::Ready(Event::Established),
            Poll::Ready(Err(error)) => {
                let failed = Failure { asked: true, refused: is_refusal(&error), may_have_run: true };
                let told = self.direct.map(|remote| failure(remote, armed.stream.outcome(), error));
                return Poll::Ready(Event::Failed(failed, told));
            }
            Poll::Pending => {}
        }
        if self.direct.is_some()
            && !self.direct_refused
            && armed.stream.poll_direct_refused(armed.id, cx).is_ready()
        {
            self.direct_refused = true;
            return Poll::Ready(Event::DirectRefused);
        }
        // The server may have executed what travelled in the lookup, so its answer is waited for.
        let late = self.late.as_mut().is_none_or(|late| late.as_mut().poll(cx).is_ready());
        if late {
            self.late = None;
        }
        if late && self.is_late() {
            let failed = Failure { asked: true, refused: false, may_have_run: true };
            return Poll::Ready(Event::Failed(failed, None));
        }
        Poll::Pending
    }

    fn handle_addresses(&mut self) {
        self.found_at = Some(self.path.0.time.now());
        self.found.notify_one();
    }

    fn send_direct(&mut self, remote: SocketAddr) -> bool {
        // It goes at once, even if the copy in the lookup may have won: its arrival proves the client's address to the
        // server, which may then send the whole response.
        let sent = self.armed.as_ref().is_some_and(|armed| self.path.send_direct(armed.id, remote.ip()));
        self.direct = sent.then_some(remote);
        sent
    }

    fn close(self) -> Option<FailedAttempt> {
        // What travels in the lookup cannot be called back, and its server may execute it.
        self.fate.as_ref()?;
        let nowhere = SocketAddr::from(([0; 4], 0));
        Some(failure(self.direct.unwrap_or(nowhere), unclear_if(true), io::ErrorKind::TimedOut.into()))
    }
}
