//! What a server needs besides TLS: keys, names, the strike register and the budget.

use super::key_sets::{KeySets, OpenedBy, Served};
use super::report::Rejection;
use super::rng;
use firstflight::credential::asap::{AcceptedBlock, Identity};
use firstflight::wire::{Clock, Instant};
use firstflight::{Stream, Time};
use firstflight_seal::{
    BlockState, Finished, Flight, Hello, HostName, Judged, KeySet, MemoryRegister, OpenError, OpeningBudget,
    Question, Record, RegisterAnswer, RegisterLimits, Request, RotateError, Runs, SealKey, Server,
    SharedStrikeRegister, StrikeRegister, Waiting, Why,
};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::num::{NonZeroU8, NonZeroU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How far the server's clock may be wrong.
const UNCERTAINTY: Duration = Duration::from_secs(1);

/// The server's side of sealed first flights, for [`AcceptorBuilder::seal`](crate::AcceptorBuilder::seal): the keys, the
/// names that are served with them, and the memory of the requests that ran. Clones share all of it. All listeners that
/// share a key must share one of these; [`SealServer::at_port`] makes the one of another port, and [`SealServer::only`] the
/// one of a listener that has some of the names. A listener takes flights for names of its own only: those that its
/// acceptor has a certificate for.
///
/// A key is destroyed an hour after clients stop to use it, with the next accept or call of a method here.
#[derive(Clone)]
pub struct SealServer {
    shared: Arc<Shared>,
    port: u16,
    /// The names of this listener. None: all.
    only: Option<Arc<[HostName]>>,
}

struct Shared {
    sets: KeySets,
    several_tables: bool,
    table: Table,
    budget: Mutex<OpeningBudget>,
    time: Time,
}

/// Where the requests that ran are remembered.
#[derive(Debug)]
enum Table {
    Own(Mutex<MemoryRegister>),
    Shared(Arc<dyn SharedStrikeRegister>),
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for SealServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { sets, table, .. } = &*self.shared;
        f.debug_struct("SealServer")
            .field("port", &self.port)
            .field("names", &sets.names())
            .field("table", table)
            .finish_non_exhaustive()
    }
}

/// Settings of a [`SealServer`].
#[derive(Debug)]
pub struct SealServerBuilder {
    first: Served,
    others: Vec<Served>,
    port: u16,
    first_start: bool,
    several_tables: bool,
    limits: RegisterLimits,
    shared: Option<Arc<dyn SharedStrikeRegister>>,
    openings: NonZeroU32,
    time: Time,
}

impl SealServerBuilder {
    fn new(keys: KeySet, port: u16) -> Self {
        Self {
            first: Served::new(keys, None),
            others: Vec::new(),
            port,
            first_start: false,
            several_tables: false,
            limits: RegisterLimits::default(),
            shared: None,
            openings: OpeningBudget::PER_SECOND,
            time: Time::system(),
        }
    }

    /// The names that are served with the first keys, those of [`SealServer::builder`]. The default is their public name
    /// alone.
    #[must_use]
    pub fn serves(mut self, names: impl IntoIterator<Item = HostName>) -> Self {
        self.first.names = Some(names.into_iter().collect());
        self
    }

    /// Further keys, of another public name, and the names that are served with them. A flight to these keys gets no other
    /// name. Give all keys different numbers if you can: a flight is tried with each key that has its number, and each try
    /// counts for the [`openings`](Self::openings).
    #[must_use]
    pub fn and_keys(mut self, keys: KeySet, serves: impl IntoIterator<Item = HostName>) -> Self {
        self.others.push(Served::new(keys, Some(serves.into_iter().collect())));
        self
    }

    /// Says that nothing ran before at a server with these keys, so requests may run early at once. Otherwise they wait
    /// for the client's Finished in the first five minutes, and somewhat longer if the client's clock is ahead.
    #[must_use]
    pub const fn first_start(mut self, first_start: bool) -> Self {
        self.first_start = first_start;
        self
    }

    /// Remembers the requests that ran in a store that all servers of these names share, for example `RedisStore` of the
    /// crate `firstflight-redis`. So each request runs at one of them. While the store does not answer, nothing runs early;
    /// after the client's Finished a request runs unless it must not run twice and could have run before.
    /// [`first_start`](Self::first_start) and [`limits`](Self::limits) do not count then: the store has its own.
    #[must_use]
    pub fn shared_table(mut self, table: Arc<dyn SharedStrikeRegister>) -> Self {
        self.shared = Some(table);
        self
    }

    /// Says that other servers of these names have a memory of their own. Then only replayable requests run early. A
    /// listener that declares [`GuardDomain::Site`](firstflight::credential::asap::GuardDomain::Site) needs it.
    #[must_use]
    pub const fn several_tables(mut self, several: bool) -> Self {
        self.several_tables = several;
        self
    }

    /// How many requests are remembered.
    #[must_use]
    pub const fn limits(mut self, limits: RegisterLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How often flights without an accepted block are opened each second.
    #[must_use]
    pub const fn openings(mut self, per_second: NonZeroU32) -> Self {
        self.openings = per_second;
        self
    }

    /// The clocks. The default is the system's. They are followed from here on.
    #[must_use]
    pub fn time(mut self, time: Time) -> Self {
        self.time = time;
        self
    }

    /// The server's side.
    ///
    /// # Errors
    /// When the operating system has no random numbers, when two keys have the same public name, and when there are more
    /// than [`SealServer::MOST_NAMES`] public names.
    pub fn build(self) -> io::Result<SealServer> {
        let Self { first, others, port, first_start, several_tables, limits, shared, openings, time } = self;
        let sets = KeySets::new(first, others)?;
        let table = match shared {
            Some(shared) => Table::Shared(shared),
            None => {
                let table = MemoryRegister::new(limits, &clock(&time), first_start, &mut rng()?);
                Table::Own(Mutex::new(table))
            }
        };
        let budget = Mutex::new(OpeningBudget::new(openings));
        let shared = Shared { sets, several_tables, table, budget, time };
        Ok(SealServer { shared: Arc::new(shared), port, only: None })
    }
}

fn clock(time: &Time) -> Clock {
    Clock { mono: time.now(), unix_ms: time.unix().as_millis() as u64, uncertainty: UNCERTAINTY }
}

/// Where a connection comes from, for [`Acceptor::accept_from`](crate::Acceptor::accept_from).
#[derive(Debug)]
pub struct Arrival {
    peer: IpAddr,
    block: BlockState,
    /// The transport took its first flight.
    pub(crate) first: bool,
}

impl Arrival {
    /// Nothing is known of it.
    pub(crate) const UNKNOWN: Self = Self::at(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// From a client with this address, of whose first packets nothing is known.
    #[must_use]
    pub const fn at(peer: IpAddr) -> Self {
        Self { peer, block: BlockState::None, first: true }
    }

    /// As this stream did. Ask before anything is read from it.
    #[must_use]
    pub fn of(stream: &Stream) -> Self {
        let signed = stream.signed_bytes() as usize;
        let of = |block: AcceptedBlock| BlockState::accepted(&block, signed);
        Self {
            peer: stream.peer_addr().map_or(Self::UNKNOWN.peer, |at| at.ip()),
            block: stream.accepted_block().map_or(BlockState::None, of),
            first: stream.outcome().is_accepted(),
        }
    }
}

/// What happens to a flight that does not run.
#[derive(Debug)]
pub(crate) enum Decline {
    Reject(Rejection),
    Close(Why),
}

impl From<OpenError> for Decline {
    fn from(error: OpenError) -> Self {
        tracing::debug!("a sealed first flight is rejected: {error}");
        Self::Reject(Rejection::from(&error))
    }
}

impl SealServer {
    /// The most public names.
    pub const MOST_NAMES: usize = KeySets::MOST;

    /// Settings of a server at `port`, as clients see it, with these keys.
    #[must_use]
    pub fn builder(keys: KeySet, port: u16) -> SealServerBuilder {
        SealServerBuilder::new(keys, port)
    }

    /// The same for a listener that clients see at another port. It shares keys and memory with this one.
    #[must_use]
    pub fn at_port(&self, port: u16) -> Self {
        Self { port, ..self.clone() }
    }

    /// The same for a listener that has only these names of those that are served with the keys. An attacker can lead a
    /// flight to each address that shares its key and port, so listeners of different sites need it if their certificates
    /// overlap, for example by a wildcard.
    #[must_use]
    pub fn only(&self, names: impl IntoIterator<Item = HostName>) -> Self {
        Self { only: Some(names.into_iter().collect()), ..self.clone() }
    }

    /// Whether this listener has this name.
    pub(crate) fn has(&self, name: &HostName) -> bool {
        self.only.as_ref().is_none_or(|names| names.contains(name))
    }

    /// Adds a key of the first public name as its newest. Clients use it until `not_after`, Unix seconds.
    ///
    /// # Errors
    /// [`RotateError`]. Then nothing changes.
    pub fn rotate(&self, id: NonZeroU8, key: SealKey, not_after: u32) -> Result<(), RotateError> {
        self.shared.sets.rotate(id, key, not_after, self.unix())
    }

    /// Replaces the keys of a public name, for example by those of a key file that was read again, or of a farm. With a
    /// single public name the new keys may have another one. The memory stays. Returns false, and changes nothing, if no
    /// keys here have the public name of the new ones.
    pub fn set_keys(&self, keys: KeySet) -> bool {
        self.shared.sets.replace(keys)
    }

    /// What to publish now for the first public name, and for the names that are served with its keys: SvcParamKey 65301.
    /// `None` if there is no key that clients may use.
    #[must_use]
    pub fn record(&self) -> Option<Record> {
        self.shared.sets.first_record(self.unix())
    }

    /// What to publish now, for each public name that has a key that clients may use.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.shared.sets.records(self.unix())
    }

    /// The identities that the credential blocks in front of flights may be signed for: those of all names that this listener
    /// serves, and of the public names. A listener that takes certificates needs them in
    /// [`AsapPolicy::identities`](firstflight::credential::asap::AsapPolicy::identities).
    #[must_use]
    pub fn identities(&self) -> Vec<Identity> {
        let (names, public) = (self.shared.sets.names(), self.shared.sets.public_names());
        let here = names.iter().filter(|name| self.has(name) || public.contains(name));
        here.map(|name| Identity::name(name.as_str(), self.port)).collect()
    }

    fn unix(&self) -> u64 {
        self.shared.time.unix().as_secs()
    }

    pub(crate) fn now(&self) -> Instant {
        self.shared.time.now()
    }

    pub(crate) fn time(&self) -> &Time {
        &self.shared.time
    }

    pub(crate) fn knows(&self, id: NonZeroU8) -> bool {
        self.shared.sets.know(id, self.unix())
    }

    /// Opens a flight, if there is budget for it (6.1 steps 3 and 4).
    pub(crate) fn open(&self, flight: &Flight, from: &Arrival) -> Result<OpenedBy, Decline> {
        let paid = from.block != BlockState::None;
        let now = self.unix();
        let mut error = OpenError::UnknownKey;
        for served in self.shared.sets.with_key(flight.head().key_id, now) {
            if !paid && !locked(&self.shared.budget).take(from.peer, self.now()) {
                tracing::debug!("a sealed first flight is rejected: too many without a certificate");
                return Err(Decline::Reject(Rejection::TooMany));
            }
            match served.open(flight, self.port, now) {
                Ok(opened) => return Ok(opened),
                // Another public name may have a key with this number.
                Err(forged @ OpenError::Forged) => error = forged,
                Err(other) => return Err(other.into()),
            }
        }
        Err(error.into())
    }

    /// May the request run early (6.1 steps 5 and 8)? `asks`: the listener asks for client certificates.
    pub(crate) async fn judge(
        &self,
        opened: &OpenedBy,
        hello: &Hello<'_>,
        from: &Arrival,
        asks: bool,
        arrived: Instant,
    ) -> Runs {
        let names = [&hello.server_name, opened.public_name()];
        let identities = names.map(|name| Identity::name(name.as_str(), self.port));
        let listener = Server { client_certificates: asks, several_tables: self.shared.several_tables };
        let request = Request::new(&opened.inner(), from.block.clone(), identities, arrived);
        match request.judge(&listener, &clock(&self.shared.time)) {
            Judged::Runs(runs) => runs,
            Judged::Ask(asked) => {
                let answer = self.ask(asked.question()).await;
                asked.answered(answer)
            }
        }
    }

    /// The client's Finished was verified (6.4).
    /// Errors: the connection is closed without a response. `None`: Finished came too late.
    pub(crate) async fn finished(&self, waiting: &Waiting) -> Result<(), Option<Why>> {
        let decided = match waiting.finished(&clock(&self.shared.time)) {
            Finished::Ask(question) => waiting.answered(self.ask(&question).await),
            decided => decided,
        };
        match decided {
            Finished::Run => Ok(()),
            Finished::Close(why) => Err(why),
            // No answer asks again.
            Finished::Ask(_) => Err(Some(Why::NoTable)),
        }
    }

    /// Asks the strike register.
    async fn ask(&self, question: &Question) -> RegisterAnswer {
        let Shared { table, time, .. } = &*self.shared;
        match table {
            Table::Own(table) => locked(table).test_and_set(question, time.now()),
            Table::Shared(table) => {
                let answer = time.timeout(Question::WITHIN, table.test_and_set(question)).await;
                answer.unwrap_or(RegisterAnswer::Unavailable)
            }
        }
    }
}
