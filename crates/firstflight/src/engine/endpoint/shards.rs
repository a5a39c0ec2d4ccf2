//! Endpoints with several engines: one for each queue of a link, each on a thread of its own.

use super::Endpoint;
use super::ending::Gone;
use crate::mailboxes::{Mail, Mailboxes};
use crate::renewed::Renewed;
use crate::shared::Shared;
use crate::store::SharedStore;
use crate::time::Time;
use crate::workers::Workers;
use firstflight_link::Link;
use firstflight_stack::{Config, FlowOwners, ShardConfig};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// On which runtimes the shards of an endpoint run, and what they share.
///
/// ```
/// use firstflight::{Endpoint, Sharding, Workers, link::Tun, link::TunConfig};
/// # fn start() -> Result<Endpoint, Box<dyn std::error::Error>> {
/// let workers = Workers::start(Workers::processors())?;
/// let device = TunConfig::default().host(vec![("10.9.0.1".parse()?, 24)]);
/// let queues = Tun::create_queues(&device, workers.count())?;
/// let links = queues.into_iter().map(|queue| {
///     let mut queue = Some(queue);
///     // Called again if the link fails. A queue of a TUN device fails only with the device.
///     move || queue.take().ok_or(std::io::ErrorKind::NotConnected)?.open().map_err(std::io::Error::other)
/// });
/// let config = firstflight::config(vec!["10.9.0.2".parse()?])?;
/// let endpoint = Endpoint::sharded(&config, &Sharding::new(&workers), links.collect())?;
/// # Ok(endpoint)
/// # }
/// ```
#[derive(Clone)]
pub struct Sharding {
    workers: Workers,
    store: Option<Arc<dyn SharedStore>>,
    time: Time,
}

impl fmt::Debug for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, store, time: _ } = self;
        f.debug_struct("Sharding").field("workers", workers).field("store", &store.is_some()).finish()
    }
}

impl Sharding {
    /// Shard `i` runs on worker `i`; if there are more shards than workers, the numbers of the workers repeat.
    #[must_use]
    pub fn new(workers: &Workers) -> Self {
        Self { workers: workers.clone(), store: None, time: Time::system() }
    }

    /// The threads.
    #[must_use]
    pub const fn workers(&self) -> &Workers {
        &self.workers
    }

    /// The servers of a farm share `store`: see [`Endpoint::with_store`].
    #[must_use]
    pub fn store(mut self, store: Arc<dyn SharedStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// The clock of all shards: see [`Endpoint::in_time`].
    #[must_use]
    pub fn time(mut self, time: &Time) -> Self {
        self.time = time.clone();
        self
    }
}

/// The shards of one endpoint.
#[derive(Debug)]
pub(crate) struct Group {
    shards: Vec<Arc<Shared>>,
    /// Which shard has a flow; `None` if there is one.
    place: Option<ShardConfig>,
    workers: Workers,
    /// The shard for the next connect from outside.
    next: AtomicUsize,
    /// Behind `shards`, so that they are dropped later.
    _gone: Vec<Gone>,
}

impl Group {
    /// The shard of the calling thread. For other threads, the shards take turns.
    fn here(&self) -> Option<&Arc<Shared>> {
        // With more shards than threads, those of a thread take turns with all others.
        let here = self.workers.here().filter(|_| self.shards.len() <= self.workers.count());
        let own = here.and_then(|index| self.shards.get(index));
        own.or_else(|| {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            self.shards.get(turn.checked_rem(self.shards.len())?)
        })
    }
}

impl Endpoint {
    /// Starts one engine for each of `links`, on the runtimes of `sharding`. Together they are one endpoint with the
    /// addresses of `config`: [`Endpoint::listen`] listens on all of them, [`Listener::accept`](crate::Listener::accept) takes
    /// connections of any, [`Listener::split`](crate::Listener::split) gives a listener for each, and
    /// [`Endpoint::connect`] uses the shard on whose thread it is called, else one after another.
    ///
    /// The links must lead to the same network: queues of a device, or sockets at one address. A connection belongs to
    /// the shard that a hash of its TCP ports chooses, or, on links that do not [learn](Link::learns_flows) the queue of a flow, to the
    /// shard that got its SYN. Where such a link says [which packets come by it](Link::comes_here), a connect chooses its local port by that. A packet that arrives at another one is passed to it. All shards know what one learnt of a server. The limits of `config` hold for all together: each shard has its part
    /// ([`Limits::share`](firstflight_stack::Limits::share)).
    ///
    /// A link is made by a call within its runtime. If it fails later, it is made again, and the connections of its
    /// shard go on. When that fails for half a minute, the endpoint stops.
    ///
    /// # Errors
    /// Those of the first links. [`io::ErrorKind::InvalidInput`] without links, or with more than
    /// [`Workers::MOST`].
    pub fn sharded<L, F>(config: &Config, sharding: &Sharding, links: Vec<F>) -> io::Result<Self>
    where
        L: Link + 'static,
        F: FnMut() -> io::Result<L> + Send + 'static,
    {
        let count = links.len();
        if count == 0 || count > Workers::MOST {
            let message = format!("{count} links: there may be 1 to {}", Workers::MOST);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let Sharding { workers, store, time } = sharding;
        let mut ready = Vec::with_capacity(count);
        for (index, make) in links.into_iter().enumerate() {
            let Some(runtime) = workers.runtime(index) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let _inside = runtime.enter();
            ready.push((runtime, Renewed::new(make, time)?));
        }
        let mtu = ready.iter().map(|(_, link)| link.mtu()).min().unwrap_or(config.mtu);
        let learn = ready.iter().all(|(_, link)| link.learns_flows());
        let owners = (count > 1 && !learn).then(|| owners(config));
        let (mail, mut shards) = (Arc::new(Mail::new(count)), Vec::with_capacity(count));
        for (index, (runtime, link)) in ready.into_iter().enumerate() {
            let mut own = part(config, index, count);
            own.mtu = own.mtu.min(mtu);
            own.owners.clone_from(&owners);
            own.comes_here = link.comes_here().filter(|_| owners.is_some());
            let post = (count > 1).then(|| Mailboxes::new(index, &mail, workers));
            let _inside = runtime.enter();
            shards.push(Self::launch(own, link, store.clone(), time.clone(), post));
        }
        for pair in shards.windows(2) {
            if let [one, next] = pair {
                next.lock().share_history(&one.lock());
            }
        }
        let shared = shards.first().cloned().ok_or(io::ErrorKind::InvalidInput)?;
        let place = shared.lock().stack.config().shard;
        let (next, gone) = (AtomicUsize::new(0), shards.iter().map(Gone::of).collect());
        let group = Group { shards, place, workers: workers.clone(), next, _gone: gone };
        Ok(Self { _gone: Gone::of(&shared), shared, group: Some(Arc::new(group)) })
    }

    /// Number of engines: 1, unless the endpoint is [`Endpoint::sharded`].
    #[must_use]
    pub fn shards(&self) -> usize {
        self.all().len()
    }

    /// All shards.
    pub(crate) fn all(&self) -> &[Arc<Shared>] {
        match &self.group {
            Some(group) => &group.shards,
            None => std::slice::from_ref(&self.shared),
        }
    }

    /// The shard for a connect from here to `remote`, with this local address, if one is required.
    pub(crate) fn shard_for(&self, local: Option<SocketAddr>, remote: SocketAddr) -> &Arc<Shared> {
        match local.map(|local| local.port()).filter(|port| *port != 0) {
            Some(port) => self.owner(port, remote.port()),
            None => self.group.as_ref().and_then(|group| group.here()).unwrap_or(&self.shared),
        }
    }

    /// The shard with the flows between these ports.
    pub(crate) fn owner(&self, a: u16, b: u16) -> &Arc<Shared> {
        let group = self.group.as_ref();
        let owner = group.and_then(|group| group.shards.get(group.place?.owner(a, b)));
        owner.unwrap_or(&self.shared)
    }
}

/// Where the shards note their flows.
fn owners(config: &Config) -> Arc<FlowOwners> {
    let secret = Sha256::new_with_prefix(b"noted flows").chain_update(config.secret).finalize();
    let limits = &config.limits;
    let rest = [limits.time_wait, limits.held_last_acks, limits.early_ends];
    let flows = rest.into_iter().fold(limits.connections, usize::saturating_add);
    Arc::new(FlowOwners::new(secret.into(), flows))
}

/// The settings of one shard. Its secrets are its own, and only the owners of flows are computed alike.
fn part(config: &Config, index: usize, count: usize) -> Config {
    let mut own = config.clone();
    if count == 1 {
        return own;
    }
    let digest = |what: &[u8]| Sha256::new_with_prefix(what).chain_update(config.secret);
    let owners: [u8; 32] = digest(b"owners of flows").finalize().into();
    let seed = owners.first_chunk().copied().unwrap_or_default();
    own.secret = digest(b"shard").chain_update((index as u64).to_be_bytes()).finalize().into();
    own.limits = config.limits.clone().share(count);
    own.shard = ShardConfig::new(index, count, seed);
    own
}
