//! Visits to one address of a server, and what they show. [`Probe::run`] gathers, [`ServerFacts::judge`] decides.

mod judge;

use super::hops::{self, Path};
use super::http;
use super::network::{ahead, unix};
use super::tcp_metrics;
use firstflight::credential::Reason;
use firstflight_kernel::{Carry, ClientFail, Stream, connect};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

/// How long a visit waits for its handshake: until the kernel has sent the SYN twice. A third loss in a row could make
/// it pause Fast Open to all servers.
const PATIENCE: Duration = Duration::from_millis(2500);
/// How often data is sent in a SYN with a cookie.
const FLIGHTS: usize = 4;
/// How many more flights follow a refusal, to tell differing keys from a key that changed.
const MORE_FLIGHTS: usize = 2;
/// How long a router may take to return a SYN.
const HOP_PATIENCE: Duration = Duration::from_millis(300);
/// How often something has to get lost to be no ordinary loss.
const TWICE: usize = 2;

/// What a SYN was to carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// An ordinary SYN.
    Plain,
    /// The option, and no data.
    Request,
    /// Data if the kernel has a cookie, or else a request for one.
    Data,
    /// Data without cookie and option.
    Bare,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VisitEnd {
    Connected(Connected),
    Refused,
    Silent,
    /// With what the system says.
    Unreachable(io::ErrorKind),
}

/// What the kernel says of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connected {
    pub fail: ClientFail,
    /// The SYN-ACK acknowledged the data.
    pub accepted: bool,
    /// The SYN carried data.
    pub carried: bool,
    /// The first SYN got no answer.
    pub again: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Visit {
    pub sent: Sent,
    pub end: VisitEnd,
    /// The kernel's cookie for the server afterwards. An outer `None` if it cannot be read.
    pub cookie: Option<Option<String>>,
}

/// What the visits to an address showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    /// Whether the namespace lets clients use Fast Open.
    pub client: bool,
    /// Whether data may be sent.
    pub data: bool,
    /// The kernel's cookie before the first visit. An outer `None` if it cannot be read.
    pub before: Option<Option<String>>,
    pub visits: Vec<Visit>,
    pub path: Option<Path>,
    /// The shortest round-trip time of a handshake.
    pub rtt: Option<Duration>,
    /// By how many seconds our clock is ahead of the server's.
    pub ahead: Option<i64>,
}

/// What to send, and where.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    pub remote: SocketAddr,
    /// The data. Empty if none may be sent.
    pub request: Vec<u8>,
    /// Whether the server is expected to answer in HTTP.
    pub http: bool,
    /// Whether the namespace lets clients use Fast Open.
    pub client: bool,
}

impl Probe {
    /// Visits the server at most nine times, and follows the path if first flights fail.
    pub(crate) async fn run(&self) -> ServerFacts {
        let mut facts =
            ServerFacts { client: self.client, data: !self.request.is_empty(), ..ServerFacts::default() };
        let Some(local) = self.visit(Sent::Plain, None, &mut facts).await else { return facts };
        if !self.client {
            return facts;
        }
        facts.before = cookie(self.remote.ip(), local).await;
        let local = Some(local);
        // The kernel tries the other form of the option if the first one brings no cookie. If its cookies cannot be
        // read, the third SYN shows that there is one.
        let asking = if facts.data { Sent::Data } else { Sent::Request };
        for _ in 0..if facts.before.is_some() { TWICE } else { TWICE + 1 } {
            if facts.has_cookie() || facts.never_asked() {
                break;
            }
            self.visit(asking, local, &mut facts).await;
        }
        if facts.data && facts.has_cookie() {
            self.fly(local, &mut facts).await;
        } else if facts.data && !facts.never_asked() {
            for _ in 0..TWICE {
                self.visit(Sent::Bare, local, &mut facts).await;
                if !facts.visits.last().is_some_and(Visit::again) {
                    break;
                }
            }
        }
        if facts.fails() {
            let cookie = facts.has_cookie();
            facts.path = Some(hops::follow(self.remote, &self.request, cookie, HOP_PATIENCE).await);
        }
        facts
    }

    /// Sends data in SYNs until it is clear what becomes of them.
    async fn fly(&self, local: Option<IpAddr>, facts: &mut ServerFacts) {
        for _ in 0..FLIGHTS + MORE_FLIGHTS {
            let flown = facts.flights().count();
            let refused = facts.flights().any(|flight| flight.fail == ClientFail::DataNotAcked);
            let lost = facts.flights().filter(|flight| flight.is_lost()).count();
            let most = if refused { FLIGHTS + MORE_FLIGHTS } else { FLIGHTS };
            if flown >= most || lost >= TWICE {
                return;
            }
            self.visit(Sent::Data, local, facts).await;
        }
    }

    /// Connects once. Returns the local address if the server accepted.
    async fn visit(&self, sent: Sent, local: Option<IpAddr>, facts: &mut ServerFacts) -> Option<IpAddr> {
        let data = self.request.as_slice();
        let carry = match sent {
            Sent::Plain => Carry::Nothing(Reason::NotRequested),
            Sent::Request => Carry::Request(Reason::NoData),
            Sent::Data => Carry::Data(data),
            Sent::Bare => Carry::WithoutCookie(data),
        };
        let connected = async { connect(self.remote, None, carry)?.established().await };
        let (end, own) = match timeout(PATIENCE, connected).await {
            Err(_) => (VisitEnd::Silent, None),
            Ok(Err(error)) => (end(&error), None),
            Ok(Ok((mut stream, taken))) => {
                let connected = state(&stream, taken);
                let trip = stream.info().ok().map(|info| info.srtt).filter(|rtt| !rtt.is_zero());
                facts.rtt = facts.rtt.into_iter().chain(trip).min();
                if sent != Sent::Request
                    && !data.is_empty()
                    && let Some(rest) = data.get(taken..)
                    && stream.write_all(rest).await.is_ok()
                    && self.http
                    && sent == Sent::Plain
                    && let Some((theirs, ours)) = http::date(&mut stream).await
                {
                    facts.ahead = Some(ahead(ours, unix(theirs)));
                }
                (VisitEnd::Connected(connected), stream.local_addr().ok().map(|at| at.ip()))
            }
        };
        let cookie = match own.or(local) {
            Some(own) if sent != Sent::Plain => cookie(self.remote.ip(), own).await,
            _ => None,
        };
        facts.visits.push(Visit { sent, end, cookie });
        own
    }
}

async fn cookie(server: IpAddr, own: IpAddr) -> Option<Option<String>> {
    let read = tokio::task::spawn_blocking(move || tcp_metrics::cookie(server, own));
    read.await.ok().flatten()
}

fn state(stream: &Stream, taken: usize) -> Connected {
    let Ok(info) = stream.info() else {
        return Connected { fail: ClientFail::None, accepted: false, carried: taken > 0, again: false };
    };
    Connected {
        fail: info.client_fail,
        accepted: info.syn_data,
        carried: taken > 0,
        again: info.retransmissions > 0 && info.client_fail != ClientFail::DataNotAcked,
    }
}

fn end(error: &io::Error) -> VisitEnd {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => VisitEnd::Refused,
        io::ErrorKind::TimedOut => VisitEnd::Silent,
        kind => VisitEnd::Unreachable(kind),
    }
}

impl Connected {
    /// The SYN with data got no answer.
    const fn is_lost(&self) -> bool {
        self.carried && self.again && !self.accepted
    }
}

impl Visit {
    const fn connected(&self) -> Option<&Connected> {
        match &self.end {
            VisitEnd::Connected(connected) => Some(connected),
            _ => None,
        }
    }

    /// The first SYN got no answer.
    fn again(&self) -> bool {
        self.connected().is_none_or(|connected| connected.again)
    }
}

impl ServerFacts {
    /// The kernel's cookie now. An outer `None` if it cannot be read.
    fn cookie(&self) -> Option<Option<&str>> {
        let latest = self.visits.iter().rev().find(|visit| visit.sent != Sent::Plain);
        let cookie = latest.map_or(&self.before, |visit| &visit.cookie);
        cookie.as_ref().map(Option::as_deref)
    }

    /// The connections whose SYN had a cookie and data.
    fn flights(&self) -> impl Iterator<Item = &Connected> {
        let data = self.visits.iter().filter(|visit| visit.sent == Sent::Data);
        data.filter_map(Visit::connected).filter(|connected| connected.carried)
    }

    /// The kernel has a cookie of the server: it can be read, or a SYN had one.
    fn has_cookie(&self) -> bool {
        self.cookie().map_or_else(|| self.flights().next().is_some(), |cookie| cookie.is_some())
    }

    /// The kernel neither asked for a cookie nor sent data: it pauses Fast Open.
    fn never_asked(&self) -> bool {
        let mut data =
            self.visits.iter().filter(|visit| visit.sent == Sent::Data).filter_map(Visit::connected);
        data.any(|one| !one.carried && one.fail == ClientFail::None)
    }
}
