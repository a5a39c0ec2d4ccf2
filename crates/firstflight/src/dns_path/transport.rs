//! A first flight inside a lookup as an attempt of a race: another beginning of an attempt in UDP.

use super::ask::PATIENCE;
use super::losses::LookupFate;
use super::report::{HeldBack, LookupWay, Report};
use super::{DnsPath, InLookupConnect, Ready, Server};
use crate::attempts::FailedAttempt;
use crate::client::connect::Filter;
use crate::client::race::{Address, AttemptOffer, Candidate, Failure, Finish as Won, Number, Setup};
use crate::client::transport::engine::EngineTcp;
use crate::client::transport::udp_beside_tcp::either::Either;
use crate::client::transport::{Attempt, Event, SentSyn, Transports, failure, is_refusal, unclear_if};
use crate::stream::Stream;
use firstflight_dns::FlightId;
use firstflight_stack::ConnectConfig;
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
    /// The addresses that may be connected to.
    filter: Option<Filter>,
    report: Arc<Mutex<Report>>,
}

/// Sends names. Its result receives the fate of the first flight.
type Departing = Pin<Box<dyn Future<Output = io::Result<oneshot::Sender<LookupFate>>> + Send>>;

/// An attempt that begins inside the lookup.
pub(crate) struct LookupAttempt {
    path: DnsPath,
    /// `None` once it is handed over.
    in_lookup: Option<InLookupConnect>,
    flight: FlightId,
    /// Sends the names.
    departing: Option<Departing>,
    /// Some of the names may have left.
    sending: Arc<AtomicBool>,
    /// The names were sent: receives the fate of the first flight.
    fate: Option<oneshot::Sender<LookupFate>>,
    /// The addresses are known.
    found: Arc<Notify>,
    /// When they came.
    found_at: Option<Moment>,
    /// The server's address, where the direct copy went.
    direct: Option<SocketAddr>,
    direct_refused: bool,
    /// None of the server's addresses may be connected to.
    forbidden: bool,
    /// The addresses that may be connected to.
    filter: Option<Filter>,
    /// The server's TCP port.
    port: u16,
    /// Ends when no answer to the names is expected any more.
    late: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    report: Arc<Mutex<Report>>,
}

impl<'a> InLookup<'a> {
    pub(crate) fn new(path: &'a DnsPath, server: Server<'a>, tcp: EngineTcp<'a>) -> Self {
        let report = Report { way: LookupWay::Ordinary, held_back: None, names: 0, bytes: 0 };
        let (found, report) = (AtomicBool::new(false), Arc::new(Mutex::new(report)));
        Self { path, server, tcp, found, filter: None, report }
    }

    /// Connects only to addresses that `filter` returns.
    pub(crate) fn only_to(self, filter: Option<&Filter>) -> Self {
        Self { filter: filter.cloned(), ..self }
    }

    /// What became of the first flight in the lookup.
    pub(crate) fn into_report(self) -> Report {
        let Self { report, .. } = self;
        std::mem::replace(
            &mut *lock(&report),
            Report { way: LookupWay::Ordinary, held_back: None, names: 0, bytes: 0 },
        )
    }

    fn begin_in_lookup(&self, ready: Ready) -> LookupAttempt {
        let Ready { in_lookup, sealed } = ready;
        let (path, flight, found) = (self.path.clone(), sealed.flight, Arc::new(Notify::new()));
        {
            let mut report = lock(&self.report);
            (report.names, report.bytes) = (sealed.queries.len(), sealed.carried);
        }
        let known = self.found.load(Ordering::Relaxed);
        if known {
            found.notify_one();
        }
        let sending = Arc::new(AtomicBool::new(false));
        let departing = {
            let (path, found) = (path.clone(), Arc::clone(&found));
            let sending = Arc::clone(&sending);
            Box::pin(async move { path.depart(sealed, async { found.notified().await }, &sending).await })
        };
        LookupAttempt {
            found_at: known.then(|| path.0.time.now()),
            path,
            in_lookup: Some(in_lookup),
            flight,
            departing: Some(departing),
            sending,
            fate: None,
            found,
            direct: None,
            direct_refused: false,
            forbidden: false,
            filter: self.filter.clone(),
            port: self.server.port,
            late: None,
            report: Arc::clone(&self.report),
        }
    }
}

/// The family of the address that is certified.
fn certified_v4(config: &ConnectConfig) -> Option<bool> {
    Some(config.asap.as_ref()?.certificate.address().is_ipv4())
}

fn lock(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Transports for InLookup<'a> {
    type Cargo = Either<Box<Ready>, <EngineTcp<'a> as Transports>::Cargo>;
    type Attempt = Either<Box<LookupAttempt>, <EngineTcp<'a> as Transports>::Attempt>;

    fn setup(&self) -> Setup {
        self.tcp.setup()
    }

    fn offer(&self) -> Option<AttemptOffer> {
        Some(AttemptOffer::InLookup { v4: certified_v4(&self.tcp.config).unwrap_or(true) })
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
            return self.tcp.make(number, candidate).map(Either::Other);
        }
        let ready = self.path.prepare(self.server, &self.tcp.flights, &self.tcp.config);
        ready.map(|ready| Either::One(Box::new(ready))).map_err(|held_back| {
            lock(&self.report).held_back = Some(held_back);
            io::ErrorKind::Unsupported.into()
        })
    }

    fn begin(
        &self,
        number: Number,
        candidate: Candidate,
        cargo: Option<Self::Cargo>,
    ) -> Result<(Self::Attempt, Option<SentSyn>), (bool, io::Error)> {
        let cargo = match cargo {
            Some(Either::One(ready)) => {
                return Ok((Either::One(Box::new(self.begin_in_lookup(*ready))), None));
            }
            Some(Either::Other(cargo)) => Some(cargo),
            None => None,
        };
        let (attempt, begun) = self.tcp.begin(number, candidate, cargo)?;
        Ok((Either::Other(attempt), begun))
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
            Either::Other(attempt) => self.tcp.deliver(won, attempt, unclear).await,
            Either::One(mut attempt) => {
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
        let stream = Stream::from(self.in_lookup.take()?.bound());
        let info = stream.info();
        let way = match &info {
            Some(info) if info.relayed => LookupWay::Lookup,
            _ => LookupWay::Direct,
        };
        if way == LookupWay::Lookup {
            self.path.0.manners().handle_relayed(self.flight);
        }
        lock(&self.report).way = way;
        // If the SYN was sent again, it is not known which one arrived.
        let once = info.is_some_and(|info| info.handshake_retransmits == 0);
        let sent = self.found_at.filter(|_| once);
        if let Some(fate) = self.fate.take() {
            // The receiver is dropped only when the runtime ends.
            let _ = fate.send(LookupFate::of(way, stream.outcome(), sent, self.path.0.time.now()));
        }
        Some(stream)
    }

    fn has_left(&self) -> bool {
        self.sending.load(Ordering::Relaxed)
    }

    /// How it failed: a server may have executed what travelled in the lookup.
    fn unanswered(&self, error: io::Error) -> FailedAttempt {
        let nowhere = SocketAddr::from(([0; 4], self.port));
        failure(self.direct.unwrap_or(nowhere), unclear_if(true), error)
    }

    /// Whether the address that has answered may be connected to.
    fn is_allowed(&self) -> bool {
        let peer =
            self.in_lookup.as_ref().and_then(|in_lookup| in_lookup.stream.info()).map(|info| info.remote);
        match (&self.filter, peer) {
            (Some(filter), Some(peer)) => filter(&[peer]).is_ok_and(|allowed| allowed.contains(&peer)),
            _ => true,
        }
    }

    /// Whether only an answer to the names can still come.
    const fn is_late(&self) -> bool {
        self.found_at.is_some() && (self.direct.is_none() || self.direct_refused)
    }
}

impl Attempt for Box<LookupAttempt> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if self.forbidden {
            let left = self.has_left();
            let failed = Failure { asked: true, refused: false, may_have_run: left };
            let denied = || io::Error::new(io::ErrorKind::PermissionDenied, "its addresses are not allowed");
            return Poll::Ready(Event::Failed(failed, left.then(|| self.unanswered(denied()))));
        }
        if let Some(departing) = &mut self.departing {
            let departed = std::task::ready!(departing.as_mut().poll(cx));
            self.departing = None;
            return Poll::Ready(match departed {
                Ok(fate) => {
                    self.fate = Some(fate);
                    let time = self.path.0.time.clone();
                    self.late = Some(Box::pin(async move { time.sleep(PATIENCE).await }));
                    lock(&self.report).way = LookupWay::Direct;
                    Event::Begun(SentSyn { asks: true, left: true })
                }
                Err(error) => {
                    self.sending.store(false, Ordering::Relaxed);
                    let mut report = lock(&self.report);
                    (report.held_back, report.names, report.bytes) = (Some(HeldBack::Io(error)), 0, 0);
                    Event::Failed(Failure::default(), None)
                }
            });
        }
        let Some(in_lookup) = &self.in_lookup else { return Poll::Pending };
        match in_lookup.stream.poll_handshake_confirmed(cx) {
            Poll::Ready(Ok(())) if self.is_allowed() => return Poll::Ready(Event::Established),
            Poll::Ready(Ok(())) => {
                // A server at another address than the lookup's has answered.
                let failed = Failure { asked: true, refused: false, may_have_run: true };
                let denied = io::Error::new(io::ErrorKind::PermissionDenied, "its address is not allowed");
                return Poll::Ready(Event::Failed(failed, Some(self.unanswered(denied))));
            }
            Poll::Ready(Err(error)) => {
                let failed = Failure { asked: true, refused: is_refusal(&error), may_have_run: true };
                return Poll::Ready(Event::Failed(failed, Some(self.unanswered(error))));
            }
            Poll::Pending => {}
        }
        if self.direct.is_some()
            && !self.direct_refused
            && in_lookup.stream.poll_direct_refused(in_lookup.id, cx).is_ready()
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
            let late = io::Error::new(io::ErrorKind::TimedOut, "no answer to the request inside the lookup");
            return Poll::Ready(Event::Failed(failed, Some(self.unanswered(late))));
        }
        Poll::Pending
    }

    fn handle_addresses(&mut self, error: Option<&io::Error>) {
        self.found_at = Some(self.path.0.time.now());
        // Other errors are the lookup's: a server may still answer what travels inside.
        self.forbidden = error.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        self.found.notify_one();
    }

    fn send_direct(&mut self, remote: SocketAddr) -> bool {
        // It goes at once, even if the copy in the lookup may have won: its arrival proves the client's address to the
        // server, which may then send the whole response.
        let sent =
            self.in_lookup.as_ref().is_some_and(|in_lookup| self.path.send_direct(in_lookup.id, remote.ip()));
        self.direct = sent.then_some(remote);
        sent
    }

    fn close(mut self) -> Option<FailedAttempt> {
        // What travels in the lookup cannot be called back, and its server may execute it.
        let left = self.has_left();
        if let Some(fate) = self.fate.take() {
            // Another attempt was first. The receiver is dropped only when the runtime ends.
            let _ = fate.send(LookupFate::Overtaken(None));
        }
        left.then(|| self.unanswered(io::ErrorKind::TimedOut.into()))
    }
}
