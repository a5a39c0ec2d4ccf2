//! A memory that a member asks: its connection, its beginning, and what it is owed. A store has one.

use crate::Options;
use crate::address::StorePlace;
use crate::cluster::Cluster;
use crate::connection::Connection;
use crate::dial::{CONNECT_WITHIN, Dialer, Server};
use crate::doubtful::Doubtful;
use crate::error::Failure;
use crate::local_replays::{self, LocalReplays};
use crate::memory::Memories;
use crate::node::{Node, Reply};
use crate::question::Question;
use crate::quorum::{BEAT, LEASE};
use crate::sentinel;
use crate::unreported::UnreportedQuestions;
use firstflight::StoreError;
use firstflight::credential::{JobRequest, JobResult, Reason};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);

/// Where the server of a share is found.
pub(crate) enum Source {
    One(Arc<Dialer>, StorePlace),
    Sentinel(Arc<Dialer>, Vec<StorePlace>, String),
    Cell(Arc<Cluster>, usize),
}

impl Source {
    /// How much later a new memory's floor is. In a cluster the master of the slot, the masters that speak for it, and those
    /// that they replaced may each be wrong for the time of a lease.
    const fn overlap(&self) -> Duration {
        match self {
            Self::One(..) => Duration::ZERO,
            Self::Sentinel(..) => LEASE,
            Self::Cell(..) => Duration::from_secs(3 * LEASE.as_secs()),
        }
    }
}

pub(crate) struct Share {
    source: Source,
    /// How the names of its keys begin.
    scope: String,
    options: Arc<Options>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` while the store is lost.
    connection: Option<Connection>,
    memories: Memories,
    owed: UnreportedQuestions,
    known: LocalReplays,
    doubtful: Doubtful,
    past: Past,
    /// A task is connecting.
    connecting: bool,
    /// A task reports the owed questions on the current connection.
    settling: bool,
}

/// What the previous process of this member may owe.
#[derive(Debug, Clone, Default)]
pub(crate) enum Past {
    /// It may owe anything, because nothing is known of it.
    #[default]
    Unknown,
    /// It owes nothing, if the store confirms this ticket.
    Left(String),
    /// Settled: the store confirmed it, or a new memory has begun.
    Settled,
}

/// What a member learns about a question.
pub(crate) enum QuestionResult<T> {
    /// From the store's reply.
    Reply(T),
    /// Without a question: the id or cookie is used up.
    Known(JobResult),
}

impl Share {
    pub(crate) fn new(source: Source, scope: String, options: Arc<Options>, past: Past) -> Self {
        let mut state = State { past, ..State::default() };
        if matches!(source, Source::Cell(..)) {
            state.owed = UnreportedQuestions::of_many();
            state.known = LocalReplays::with_room(local_replays::MOST_OF_MANY);
        }
        Self { source, scope, options, state: Mutex::new(state) }
    }

    /// The connection, while the server can be asked.
    pub(crate) fn connection(&self) -> Option<Connection> {
        self.lock().connection.clone().filter(|connection| !connection.node.has_failed())
    }

    /// Whether something must still be reported.
    pub(crate) fn owes(&self) -> bool {
        !self.lock().owed.is_empty()
    }

    /// The connection, if nothing is owed and no task is connecting: a member may leave.
    pub(crate) fn at_rest(&self) -> Option<Connection> {
        let state = self.lock();
        state.connection.clone().filter(|_| state.owed.is_empty() && !state.connecting)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a question that was not asked, or whose answer was not waited for. One task reports all of them.
    pub(crate) fn missed(self: &Arc<Self>, request: JobRequest) {
        let mut state = self.lock();
        state.owed.add(request);
        self.begin_to_settle(state);
    }

    /// Starts the task that reports what is owed, unless it runs already or cannot report now.
    fn begin_to_settle(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        // Without a runtime the process is ending, and the next start finds no proof that nothing is owed.
        if !state.settling
            && state.can_settle()
            && let Ok(runtime) = Handle::try_current()
        {
            state.settling = true;
            drop(state);
            runtime.spawn(Arc::clone(self).settle());
        }
    }

    async fn settle(self: Arc<Self>) {
        loop {
            let (connection, owed) = {
                let mut state = self.lock();
                let owed = state.owed.clone();
                match state.connection.clone() {
                    Some(connection) if state.can_settle() => (connection, owed),
                    // A new connection first reports what is owed. Questions that were added in the meantime
                    // are reported after that.
                    _ => {
                        state.settling = false;
                        return;
                    }
                }
            };
            let told = match owed.is_too_many() {
                true => Err(Failure::TimedOut),
                false => timeout(CONNECT_WITHIN, self.make_up(&connection, owed))
                    .await
                    .unwrap_or(Err(Failure::TimedOut)),
            };
            if let Err(failure) = told {
                self.lost(Some(&connection), &failure);
            }
        }
    }

    pub(crate) async fn answer(self: &Arc<Self>, request: JobRequest) -> Result<JobResult, StoreError> {
        let read = |question: &Question, reply: &Reply, asked, since| question.answer(reply, asked, since);
        Ok(match self.hear(request, read).await? {
            QuestionResult::Reply(answer) | QuestionResult::Known(answer) => answer,
        })
    }

    /// Asks, and returns what `read` makes of the reply.
    pub(crate) async fn hear<T>(
        self: &Arc<Self>,
        request: JobRequest,
        read: impl Fn(&Question, &Reply, Instant, Instant) -> Option<T>,
    ) -> Result<QuestionResult<T>, StoreError> {
        let connection = {
            let mut state = self.lock();
            let Some(connection) = state.connection.clone() else {
                state.owed.add(request);
                return Err(StoreError::Unreachable);
            };
            if connection.node.has_failed() {
                state.owed.add(request);
                drop(state);
                self.lost(Some(&connection), &Failure::Failed);
                return Err(StoreError::Unreachable);
            }
            if state.owed.holds(&request) {
                // The store may not know that this id or cookie is used up, but the data was sent by the ordinary
                // handshake.
                return Ok(QuestionResult::Known(JobResult::Refuse(Reason::Replay)));
            }
            if let Some(answer) = state.known.answer(connection.number, &request, Instant::now()) {
                return Ok(QuestionResult::Known(answer));
            }
            connection
        };
        let (failure, of) = match self.try_to_hear(request, &connection, &read).await {
            Ok(answer) => return answer.map(QuestionResult::Reply).ok_or(StoreError::Unsupported),
            Err(failure) => match self.meet_again(&connection, &failure).await {
                // A guard's id is set by now, so only cookies can be asked for again.
                Some(met) if !matches!(request, JobRequest::GuardSet { .. }) => {
                    match self.try_to_hear(request, &met, &read).await {
                        Ok(answer) => {
                            return answer.map(QuestionResult::Reply).ok_or(StoreError::Unsupported);
                        }
                        Err(failure) => (failure, met),
                    }
                }
                Some(_) => {
                    self.missed(request);
                    return Err(StoreError::Unreachable);
                }
                None => (failure, connection),
            },
        };
        self.lock().owed.add(request);
        self.lost(Some(&of), &failure);
        Err(failure.as_store_error())
    }

    /// Asks by `connection`. `None` if the store cannot answer such a question.
    async fn try_to_hear<T>(
        self: &Arc<Self>,
        request: JobRequest,
        connection: &Connection,
        read: impl Fn(&Question, &Reply, Instant, Instant) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        let Some(question) = self.question(request, connection) else { return Ok(None) };
        let asked = Instant::now();
        let reply = timeout(self.options.within, connection.ask(&question.command)).await;
        let reply = reply.unwrap_or(Err(Failure::TimedOut)).and_then(|reply| match &self.source {
            Source::Cell(cluster, cell) if !cluster.is_of(*cell, &connection.node) => Err(Failure::NoOwner),
            _ => Ok(reply),
        });
        let reply = reply?;
        self.learn(&request, &question, &reply, connection, asked);
        read(&question, &reply, asked, connection.since).map(Some).ok_or(Failure::NoInfo)
    }

    /// Notes what `reply` says beyond the answer.
    fn learn(
        self: &Arc<Self>,
        request: &JobRequest,
        question: &Question,
        reply: &Reply,
        of: &Connection,
        asked: Instant,
    ) {
        let is_doubtful = question.was_not_active(reply) && !of.names.overlap.is_zero();
        if let Some(command) = question.correction(request, reply, &of.names) {
            let of = of.clone();
            // If it is lost, a copy of the first flight is treated as one that was accepted, or not: the client notices.
            tokio::spawn(async move { timeout(CONNECT_WITHIN, of.tell(std::iter::once(command))).await });
        }
        let mut guard = self.lock();
        let state = &mut *guard;
        if !state.is_current(of) {
            // The connection was lost meanwhile, and with it what was doubtful.
            drop(guard);
            if is_doubtful {
                self.missed(*request);
            }
            return;
        }
        if let Some(lasts) = question.is_used_up_for(reply) {
            state.known.add(of.number, request, question.used_by(reply), asked, lasts);
        }
        if is_doubtful {
            state.doubtful.add(*request, Instant::now(), of.names.overlap, state.owed.most());
        }
    }

    /// Meets the memory of a cell that another member has begun anew, without giving up the connection: a farm with few
    /// visits would lose one for each cell.
    async fn meet_again(&self, old: &Connection, failure: &Failure) -> Option<Connection> {
        if !matches!((&self.source, failure), (Source::Cell(..), Failure::OtherMark)) {
            return None;
        }
        let mut met = timeout(self.options.within, self.meet(Arc::clone(&old.node))).await.ok()?.ok()?;
        let mut state = self.lock();
        if state.connecting || !state.owed.is_empty() || state.connection.is_none() {
            return None;
        }
        met.since = state.memories.met(&met.names.identity, Instant::now());
        state.connection = Some(met.clone());
        Some(met)
    }

    fn question(&self, request: JobRequest, connection: &Connection) -> Option<Question> {
        Question::new(request, &connection.names, self.options.cookie_lifetime)
    }

    /// One attempt to connect.
    pub(crate) async fn attempt(self: &Arc<Self>) -> Result<(), Failure> {
        // Sentinels are asked first, and may name several masters.
        let within = match self.source {
            Source::One(..) | Source::Cell(..) => CONNECT_WITHIN,
            Source::Sentinel(..) => 3 * CONNECT_WITHIN,
        };
        let opened = timeout(within, self.open()).await;
        let mut connection = opened.unwrap_or(Err(Failure::TimedOut))?;
        let rest = {
            let mut state = self.lock();
            if state.owed.is_too_many() {
                // Too many were added since the check in `open`. The next attempt begins a new memory.
                return Err(Failure::TimedOut);
            }
            connection.since = state.memories.met(&connection.names.identity, Instant::now());
            state.connection = Some(connection.clone());
            state.owed.clone()
        };
        // Report the questions that were missed since `open`. Other questions are allowed from here on, or
        // new missed ones could delay the connection without end.
        let told = timeout(CONNECT_WITHIN, self.make_up(&connection, rest)).await;
        let told = told.unwrap_or(Err(Failure::TimedOut));
        let mut state = self.lock();
        if told.is_err() && state.is_current(&connection) {
            // No question uses this connection any more. The next attempt makes another one.
            state.connection = None;
        }
        drop(state);
        // The cluster keeps the leases of its masters.
        if told.is_ok() && matches!(self.source, Source::Sentinel(..)) {
            tokio::spawn(keep_lease(Arc::downgrade(self), connection));
        }
        told
    }

    /// Finds the server, or the master that the sentinels name.
    async fn find(&self) -> Result<Arc<Node>, Failure> {
        match &self.source {
            Source::Cell(cluster, cell) => cluster.find(*cell),
            Source::One(dialer, place) => {
                Ok(Arc::new(Node::open(dialer.connect(place, Server::Redis).await?, None).await?))
            }
            Source::Sentinel(dialer, places, name) => {
                let known = sentinel::ask(dialer, places, name).await?;
                let mut last = Failure::NoMaster;
                for master in &known.masters {
                    let opened = async {
                        let link = dialer.connect(master, Server::Redis).await?;
                        let node = Node::open(link, Some(known.replicas)).await?;
                        node.take_lease(&self.scope).await?;
                        Ok(Arc::new(node))
                    };
                    match timeout(CONNECT_WITHIN, opened).await.unwrap_or(Err(Failure::TimedOut)) {
                        Ok(node) => return Ok(node),
                        Err(failure) => last = failure,
                    }
                }
                Err(last)
            }
        }
    }

    /// Meets the memory at a server, if the other members have the same keys: a member with others begins no new memory.
    async fn meet(&self, node: Arc<Node>) -> Result<Connection, Failure> {
        let connection = Connection::meet(node, &self.scope, self.source.overlap()).await?;
        if let Some(keys) = self.options.keys {
            connection.agree(keys).await?;
        }
        Ok(connection)
    }

    async fn open(&self) -> Result<Connection, Failure> {
        let mut connection = self.meet(self.find().await?).await?;
        let (owed, past) = {
            let state = self.lock();
            (state.owed.clone(), state.past.clone())
        };
        let is_unknown = match past {
            Past::Settled => false,
            Past::Left(ticket) => !connection.come_back(&ticket).await?,
            Past::Unknown => true,
        };
        if owed.is_too_many() || is_unknown && !connection.is_fresh {
            connection.begin_anew().await?;
        }
        self.lock().past = Past::Settled;
        self.make_up(&connection, owed).await?;
        Ok(connection)
    }

    /// Reports to the store the questions that could not be asked.
    async fn make_up(&self, connection: &Connection, owed: UnreportedQuestions) -> Result<(), Failure> {
        for part in owed.parts() {
            let questions = part.requests().filter_map(|&request| self.question(request, connection));
            connection.tell(questions.map(|question| question.command)).await?;
            self.lock().owed.settle(&part);
        }
        Ok(())
    }

    /// Gives up a connection whose master failed, or has the cell no longer, also without a question: the next one would be
    /// lost.
    pub(crate) fn look(self: &Arc<Self>) {
        let Source::Cell(cluster, cell) = &self.source else { return };
        let connection = self.lock().connection.clone();
        if let Some(connection) = connection.filter(|connection| !cluster.is_of(*cell, &connection.node)) {
            self.lost(Some(&connection), &Failure::NoOwner);
        }
    }

    /// Drops a connection that failed, so that no first flight waits for it, and starts to reconnect.
    pub(crate) fn lost(self: &Arc<Self>, which: Option<&Connection>, failure: &Failure) {
        let mut state = self.lock();
        if state.connecting || which.is_some_and(|which| !state.is_current(which)) {
            return;
        }
        state.connection = None;
        state.connecting = true;
        for request in state.doubtful.take() {
            state.owed.add(request);
        }
        drop(state);
        if let Some(connection) = which
            && failure.is_of_server()
        {
            connection.node.fail();
        }
        if let Source::Cell(cluster, cell) = &self.source {
            if failure.is_of_command() {
                cluster.look_again();
            }
            tracing::debug!(%failure, cell, "a part of the shared store is lost");
        } else {
            tracing::warn!(%failure, "the shared store is lost: first flights take the ordinary handshake");
        }
        tokio::spawn(reconnect(Arc::downgrade(self)));
    }
}

impl State {
    /// Whether something is owed that can be reported on the current connection. While a task is connecting, that task
    /// reports it.
    fn can_settle(&self) -> bool {
        self.connection.is_some() && !self.connecting && !self.owed.is_empty()
    }

    /// Whether `connection` is the current one. Questions that were open when a connection broke end after it
    /// was replaced.
    fn is_current(&self, connection: &Connection) -> bool {
        self.connection.as_ref().is_some_and(|current| current.number == connection.number)
    }
}

/// Keeps the lease of a master while `connection` is used, also without questions: a master that was replaced is noticed.
async fn keep_lease(share: Weak<Share>, connection: Connection) {
    loop {
        sleep(BEAT).await;
        let Some(share) = share.upgrade() else { return };
        if !share.lock().is_current(&connection) {
            return;
        }
        let beat = timeout(CONNECT_WITHIN, connection.node.beat(&share.scope)).await;
        if let Err(failure) = beat.unwrap_or(Err(Failure::TimedOut)) {
            share.lost(Some(&connection), &failure);
            return;
        }
    }
}

/// Tries until it is connected, or the store is gone.
async fn reconnect(share: Weak<Share>) {
    let began = Instant::now();
    let mut told = false;
    loop {
        let Some(share) = share.upgrade() else { return };
        match share.attempt().await {
            Ok(()) => {
                let mut state = share.lock();
                state.connecting = false;
                share.begin_to_settle(state);
                let after_ms = began.elapsed().as_millis() as u64;
                match &share.source {
                    Source::Cell(_, cell) => tracing::debug!(after_ms, cell, "it answers again"),
                    _ => tracing::warn!(after_ms, "the shared store answers again"),
                }
                return;
            }
            Err(failure) if failure.is_lasting() && !told => {
                told = true;
                tracing::error!(%failure, "the shared store cannot be used");
            }
            Err(failure) => tracing::debug!(%failure, "no shared store yet"),
        }
        drop(share);
        sleep(RETRY).await;
    }
}
