//! The masters of a Redis Cluster: one task watches each, keeps its lease, and hears what it says of the others.

use crate::address::StorePlace;
use crate::cells;
use crate::dial::{CONNECT_WITHIN, Dialer, Server};
use crate::error::Failure;
use crate::map::{Id, Map, Master, Report};
use crate::node::Node;
use crate::quorum::BEAT;
use redis::aio::MultiplexedConnection;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// How often a master is asked for its map.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Pause before a master or the seeds are tried again.
const RETRY: Duration = Duration::from_millis(250);
/// Time limit for a master to be connected to and to prove itself.
const OPEN_WITHIN: Duration = Duration::from_secs(3);

pub(crate) struct Cluster {
    dialer: Dialer,
    prefix: String,
    /// The places in the address. They are asked while no master is known.
    seeds: Vec<StorePlace>,
    state: Mutex<State>,
    /// A master is to be asked for its map at once.
    look: Notify,
}

#[derive(Default)]
struct State {
    map: Map,
    /// The masters that have proved themselves.
    nodes: HashMap<Id, Arc<Node>>,
    /// The masters that a task watches.
    watched: HashMap<Id, Master>,
    /// The reason why a master could not be used. It is handed out once.
    problem: Option<Failure>,
}

impl Cluster {
    /// Begins to watch the cluster. An error is of the last place that was asked; then the places are asked again.
    pub(crate) async fn start(
        dialer: Dialer,
        seeds: Vec<StorePlace>,
        prefix: String,
    ) -> (Arc<Self>, Result<(), Failure>) {
        let state = Mutex::new(State::default());
        let cluster = Arc::new(Self { dialer, prefix, seeds, state, look: Notify::new() });
        let found = cluster.ask_seeds().await;
        tokio::spawn(look_for_masters(Arc::downgrade(&cluster)));
        (cluster, found)
    }

    /// Waits until each master has proved itself or failed, or `within` has passed. An error if one of them cannot be used.
    pub(crate) async fn settled(&self, within: Duration) -> Result<(), Failure> {
        let settled = async {
            loop {
                {
                    let mut state = self.lock();
                    if let Some(problem) = state.problem.take() {
                        return Err(problem);
                    }
                    if !state.watched.is_empty() && state.nodes.len() >= state.watched.len() {
                        return Ok(());
                    }
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(within, settled).await.unwrap_or(Ok(()))
    }

    /// The master of `cell`, if a majority of the masters says so.
    pub(crate) fn find(&self, cell: usize) -> Result<Arc<Node>, Failure> {
        let state = self.lock();
        let owner = state.map.owner(cell, Instant::now()).ok_or(Failure::NoOwner)?;
        let node = state.nodes.get(owner).filter(|node| !node.has_failed());
        node.cloned().ok_or(Failure::NoOwner)
    }

    /// Whether `node` is still the master of `cell`.
    pub(crate) fn is_of(&self, cell: usize, node: &Arc<Node>) -> bool {
        self.find(cell).is_ok_and(|found| Arc::ptr_eq(&found, node))
    }

    /// Asks all masters for their maps, because one has sent a question elsewhere.
    pub(crate) fn look_again(&self) {
        self.look.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask_seeds(self: &Arc<Self>) -> Result<(), Failure> {
        let mut last = Failure::NoOwner;
        for place in &self.seeds {
            let asked = async {
                let mut link = self.dialer.connect(place, Server::Redis).await?;
                report(&mut link, place).await
            };
            match timeout(CONNECT_WITHIN, asked).await.unwrap_or(Err(Failure::TimedOut)) {
                Ok((_, report)) => {
                    self.watch_all(HashMap::clone(&report.masters));
                    return Ok(());
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// Watches these masters, those that are new by tasks of their own.
    fn watch_all(self: &Arc<Self>, masters: HashMap<Id, Master>) {
        let mut state = self.lock();
        for (id, master) in masters {
            if state.watched.insert(Id::clone(&id), master).is_none() {
                tokio::spawn(watch(Arc::downgrade(self), id));
            }
        }
    }

    /// A master that has proved itself says what it knows.
    fn heard(self: &Arc<Self>, id: &Id, asked: Instant, report: Report) {
        let masters = {
            let mut state = self.lock();
            state.map.heard(id, asked, report);
            let masters = state.map.masters();
            // One that no master names is not a master any more. Its task ends.
            state.watched.retain(|id, _| masters.contains_key(id));
            masters
        };
        self.watch_all(masters);
    }

    /// A master cannot be asked at present.
    fn lost(&self, id: &Id) {
        let mut state = self.lock();
        if let Some(node) = state.nodes.remove(id) {
            node.fail();
        }
        state.map.lost(id, Instant::now());
    }

    /// Connects to a master, which proves that it is one.
    async fn open(self: &Arc<Self>, id: &Id, place: &StorePlace) -> Result<(Arc<Node>, Report), Failure> {
        let mut link = self.dialer.connect(place, Server::Redis).await?;
        let (asked, report) = report(&mut link, place).await?;
        let replicas = report.masters.get(id).ok_or(Failure::Replica)?.replicas;
        let cell = report.cell_of(id).ok_or(Failure::NoOwner)?;
        check_migration(&mut link).await?;
        let node = Node::open(link, Some(replicas)).await?;
        node.take_lease(&cells::scope(&self.prefix, cell)).await?;
        let node = Arc::new(node);
        self.lock().nodes.insert(Id::clone(id), Arc::clone(&node));
        self.heard(id, asked, report.clone());
        Ok((node, report))
    }

    /// Keeps the lease of `node`, and hears its report if that is `due`. `at` is a cell that the node has.
    async fn beat(self: &Arc<Self>, id: &Id, node: &Node, due: bool, at: &mut Report) -> Result<(), Failure> {
        if node.has_failed() {
            return Err(Failure::Failed);
        }
        let place = self.lock().watched.get(id).map(|master| master.place.clone()).ok_or(Failure::Replica)?;
        let beat = async |report: &Report| {
            let cell = report.cell_of(id).ok_or(Failure::NoOwner)?;
            node.beat(&cells::scope(&self.prefix, cell)).await
        };
        let moved = match beat(at).await {
            Err(failure) if failure.is_of_command() => true,
            other => other.map(|()| false)?,
        };
        if due || moved {
            let (asked, report) = report(&mut node.link.clone(), &place).await?;
            *at = report.clone();
            self.heard(id, asked, report);
        }
        if moved { beat(at).await } else { Ok(()) }
    }
}

/// What the server at `place` says, and when it was asked.
async fn report(link: &mut MultiplexedConnection, place: &StorePlace) -> Result<(Instant, Report), Failure> {
    let asked = Instant::now();
    let text: String = redis::cmd("CLUSTER").arg("NODES").query_async(link).await?;
    Report::parse(&text, place).map(|report| (asked, report)).ok_or(Failure::NoMap)
}

/// Refuses a cluster that gives replicas of one master to another by itself.
async fn check_migration(link: &mut MultiplexedConnection) -> Result<(), Failure> {
    let mut command = redis::cmd("CONFIG");
    let found: Vec<String> =
        command.arg("GET").arg("cluster-allow-replica-migration").query_async(link).await?;
    match found.get(1).map(String::as_str) {
        Some("no") => Ok(()),
        _ => Err(Failure::Migrates),
    }
}

/// Asks the seeds while no master is known.
async fn look_for_masters(cluster: Weak<Cluster>) {
    loop {
        sleep(RETRY).await;
        let Some(cluster) = cluster.upgrade() else { return };
        if cluster.lock().nodes.is_empty()
            && let Err(failure) = cluster.ask_seeds().await
        {
            tracing::debug!(%failure, "no master of the cluster yet");
        }
    }
}

/// Watches one master for as long as it is one.
async fn watch(cluster: Weak<Cluster>, id: Id) {
    let mut told = false;
    loop {
        let opened = {
            let Some(cluster) = cluster.upgrade() else { return };
            let Some(place) = cluster.lock().watched.get(&id).map(|master| master.place.clone()) else {
                return;
            };
            let opened = timeout(OPEN_WITHIN, cluster.open(&id, &place)).await;
            opened.unwrap_or(Err(Failure::TimedOut)).map(|opened| (opened, place))
        };
        let failure = match opened {
            Ok(((node, report), place)) => {
                if told {
                    tracing::warn!(?place, "a master of the shared store answers again");
                }
                let failure = keep(&cluster, &id, node, report).await;
                tracing::warn!(
                    ?place, %failure,
                    "a master of the shared store is lost: its share of first flights takes the ordinary handshake"
                );
                told = true;
                failure
            }
            Err(failure) => failure,
        };
        let Some(cluster) = cluster.upgrade() else { return };
        cluster.lost(&id);
        if failure.is_lasting() && !matches!(failure, Failure::Replica) {
            if !told {
                tracing::error!(%failure, "a master of the shared store cannot be used");
                told = true;
            }
            cluster.lock().problem.get_or_insert(failure);
        }
        drop(cluster);
        sleep(RETRY).await;
    }
}

/// Keeps the lease of a master until that fails. Returns why.
async fn keep(cluster: &Weak<Cluster>, id: &Id, node: Arc<Node>, mut report: Report) -> Failure {
    let mut reported = Instant::now();
    loop {
        let Some(strong) = cluster.upgrade() else { return Failure::Failed };
        let due = {
            let looked = strong.look.notified();
            timeout(BEAT, looked).await.is_ok() || reported.elapsed() >= REPORT_EVERY
        };
        if due {
            reported = Instant::now();
        }
        let beat = timeout(CONNECT_WITHIN, strong.beat(id, &node, due, &mut report)).await;
        if let Err(failure) = beat.unwrap_or(Err(Failure::TimedOut)) {
            return failure;
        }
    }
}
