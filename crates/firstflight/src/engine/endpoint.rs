//! An engine on a link, or several on the queues of one.

pub(crate) mod ending;
pub(crate) mod shards;
#[cfg(feature = "tun")]
mod tun;
#[cfg(feature = "udp")]
mod udp;

use crate::cache::CredentialCache;
use crate::clock::BEGINNING;
use crate::driver::Driver;
use crate::endpoint::ending::{Gone, Released};
use crate::endpoint::shards::Group;
use crate::first_flight::FirstFlight;
use crate::jobs::Jobs;
use crate::listener::{Listener, ListenerPart};
use crate::mailboxes::Mailboxes;
use crate::shared::Shared;
use crate::store::{SharedStore, StoreCounters};
use crate::stream::{EngineStream, Stream, first_data};
use crate::time::Time;
use firstflight_credential::NetworkId;
use firstflight_link::Link;
use firstflight_stack::{Config, ConnectConfig, Counters, Gauges, ListenConfig, ListenError, RelayedFlight};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// How long [`Endpoint::shutdown`] waits for the FIN of a peer that has acknowledged ours. A peer that closes because
/// we did sends its FIN right after the acknowledgement. If we did not answer the FIN, the peer would repeat it for
/// minutes.
const LAST_FINS: Duration = Duration::from_millis(100);

/// How long [`Endpoint::shutdown`] waits for its driver, which has nothing left to do.
const RELEASE: Duration = Duration::from_secs(1);

/// A TCP engine on a link, or several engines on the queues of one ([`Endpoint::sharded`]). Clones are handles to one
/// engine. When the last handle, listener and stream are gone, the engine closes what is open and stops.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The engine; the first one of several.
    pub(crate) shared: Arc<Shared>,
    /// Several engines.
    group: Option<Arc<Group>>,
    /// Behind `shared`, so that it is dropped later.
    _gone: Gone,
}

impl Endpoint {
    /// What the engine's monotonic clock shows when an endpoint starts, in milliseconds. Give it to a
    /// [`ReplayTable`](firstflight_credential::ReplayTable), which has no memory of earlier first flights.
    pub const BEGINNING_MS: u64 = BEGINNING.as_millis();

    /// Starts an engine with `config` on `link`, as a task of the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime, as [`tokio::spawn`] does.
    pub fn new<L: Link + 'static>(config: Config, link: L) -> Self {
        Self::start(config, link, None, Time::system())
    }

    /// Like [`Endpoint::new`], for one of several servers that ask a shared `store` whether a first flight was seen
    /// before. The store may take four fifths of [`Limits::deferred_for`](firstflight_stack::Limits::deferred_for) to
    /// answer. Without an answer the handshake is an ordinary one
    /// ([`Reason::StoreUnavailable`](crate::credential::Reason::StoreUnavailable)).
    ///
    /// # Panics
    /// Outside a tokio runtime, as [`tokio::spawn`] does.
    pub fn with_store<L: Link + 'static>(config: Config, link: L, store: Arc<dyn SharedStore>) -> Self {
        Self::start(config, link, Some(store), Time::system())
    }

    /// Starts an engine whose clock is `time`, for example virtual time for an emulated path. Cache files and the
    /// keys of a farm still use the system's time.
    ///
    /// # Panics
    /// Outside a tokio runtime, as [`tokio::spawn`] does.
    pub fn in_time<L: Link + 'static>(config: Config, link: L, time: &Time) -> Self {
        Self::start(config, link, None, time.clone())
    }

    /// The endpoint's clock.
    #[must_use]
    pub fn time(&self) -> Time {
        self.shared.lock().time.clone()
    }

    fn start<L: Link + 'static>(
        config: Config,
        link: L,
        store: Option<Arc<dyn SharedStore>>,
        time: Time,
    ) -> Self {
        let shared = Self::launch(config, link, store, time, None);
        Self { _gone: Gone::of(&shared), shared, group: None }
    }

    /// Starts one engine. One of several has a `post`.
    fn launch<L: Link + 'static>(
        mut config: Config,
        link: L,
        store: Option<Arc<dyn SharedStore>>,
        time: Time,
        post: Option<Mailboxes>,
    ) -> Arc<Shared> {
        config.mtu = config.mtu.min(link.mtu());
        if tracing::enabled!(tracing::Level::DEBUG) {
            config.limits.trace = config.limits.trace.max(1024);
        }
        // Refuse before the stack's own deadline, because our refusal gives a more precise reason.
        let within = config.limits.deferred_for * 4 / 5;
        // Derived from the same secret, but independent of the stack's generator.
        let seed = Sha256::new_with_prefix(b"batches").chain_update(config.secret).finalize().into();
        let shared = Shared::new(config, store.is_some(), time);
        let released = Released::of(&shared);
        let driver = Driver::new(Arc::clone(&shared), link, Jobs::new(store, within), post, seed);
        tokio::spawn(async move {
            driver.await;
            drop(released);
        });
        shared
    }

    /// Connects and sends `first`. Data that is [`FirstFlight::safely_replayable`] rides in the SYN, with Fast Open
    /// and a known cookie, or with a certificate. Data that is [`FirstFlight::at_most_once`] is sent when the
    /// handshake is complete (that function names one exception). If a credential was available, the reason is then
    /// [`Reason::NotReplaySafe`](crate::credential::Reason::NotReplaySafe). Resolves when the handshake is complete.
    /// `first` overrides [`ConnectConfig::replay_safe`] in `config`.
    ///
    /// # Errors
    /// When there is no local address or port for the connection, or the peer refuses or does not answer.
    ///
    /// ```
    /// # use firstflight::{ConnectConfig, Endpoint, FirstFlight, Stream};
    /// async fn ask(endpoint: &Endpoint) -> std::io::Result<Stream> {
    ///     let config = ConnectConfig::default().fast_open(true);
    ///     let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
    ///     let stream = endpoint.connect("192.0.2.1:80".parse().unwrap(), request, &config).await?;
    ///     println!("{}: {}", stream.outcome().as_str(), stream.outcome());
    ///     Ok(stream)
    /// }
    /// ```
    pub async fn connect(
        &self,
        remote: SocketAddr,
        first: FirstFlight<'_>,
        config: &ConnectConfig,
    ) -> io::Result<Stream> {
        let (mut stream, taken) = self.begin(remote, first, config)?;
        stream.connected().await?;
        if let Some(rest) = first.data().get(taken..).filter(|r| !r.is_empty()) {
            stream.write_all(rest).await?;
        }
        Ok(stream.into())
    }

    /// Sends the SYN. Returns how much of `first` was taken. Nothing of this is left while the caller waits, so that its
    /// future stays small.
    fn begin(
        &self,
        remote: SocketAddr,
        first: FirstFlight<'_>,
        config: &ConnectConfig,
    ) -> io::Result<(EngineStream, usize)> {
        let mut config = Cow::Borrowed(config);
        if config.replay_safe != first.is_replayable() {
            config.to_mut().replay_safe = first.is_replayable();
        }
        let data = first_data(&mut config, first.data());
        EngineStream::open(self.shard_for(config.local, remote), remote, data, &config)
    }

    /// A stream that connects with its first write. Libraries such as hyper and rustls need it, because they do not
    /// know about first flights. With [`ConnectConfig::fast_open`] and [`ConnectConfig::replay_safe`] the first write
    /// rides in the SYN if possible, and the server may execute it twice. Without `replay_safe` it is sent when the
    /// handshake is complete, or with a certificate to a server that executes it once
    /// ([`Certified::once`](crate::Certified::once)). A read before the first write waits for that write (hyper reads first). If the server
    /// speaks first, use [`Endpoint::connect`].
    ///
    /// ```
    /// # use firstflight::{ConnectConfig, Endpoint};
    /// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// async fn ask(endpoint: &Endpoint) -> std::io::Result<String> {
    ///     // A GET may be executed twice.
    ///     let config = ConnectConfig::default().fast_open(true).replay_safe(true);
    ///     let mut stream = endpoint.connect_lazy("192.0.2.1:80".parse().unwrap(), config);
    ///     stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    ///     let mut answer = String::new();
    ///     stream.read_to_string(&mut answer).await?;
    ///     Ok(answer)
    /// }
    /// ```
    #[must_use]
    pub fn connect_lazy(&self, remote: SocketAddr, config: ConnectConfig) -> Stream {
        EngineStream::lazy(self.shard_for(config.local, remote), remote, config).into()
    }

    /// Starts listening.
    ///
    /// # Errors
    /// When the address is in use or does not belong to the engine, or when the policy promises what it cannot keep.
    ///
    /// ```
    /// # use firstflight::{Endpoint, ListenConfig, ListenError, Listener};
    /// fn listen(endpoint: &Endpoint) -> Result<Listener, ListenError> {
    ///     endpoint.listen(ListenConfig::new("0.0.0.0:80".parse().unwrap()))
    /// }
    /// ```
    pub fn listen(&self, config: ListenConfig) -> Result<Listener, ListenError> {
        let local = config.local;
        let mut parts = Vec::with_capacity(self.shards());
        let mut config = config;
        config.backlog = config.backlog.div_ceil(self.shards());
        config.syn_backlog = config.syn_backlog.div_ceil(self.shards());
        for shared in self.all() {
            parts.push(ListenerPart::listen(shared, config.clone())?);
        }
        Ok(Listener::new(parts, local))
    }

    /// The engine's counts.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for shared in self.all() {
            sum += shared.lock().stack.counters();
        }
        sum
    }

    /// The counts of each shard.
    #[must_use]
    pub fn counters_by_shard(&self) -> Vec<Counters> {
        self.all().iter().map(|shared| *shared.lock().stack.counters()).collect()
    }

    /// What the engine currently holds.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let mut sum = Gauges::default();
        for shared in self.all() {
            sum.add_shard(&shared.lock().stack.gauges());
        }
        sum
    }

    /// The results of the questions to the shared store.
    #[must_use]
    pub fn store_counters(&self) -> StoreCounters {
        let mut sum = StoreCounters::default();
        for shared in self.all() {
            sum += shared.lock().store;
        }
        sum
    }

    /// Connections that are not closed yet.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.all().iter().map(|shared| shared.lock().stack.connections()).sum()
    }

    /// See [`Stack::four_tuples`](firstflight_stack::Stack::four_tuples).
    #[must_use]
    pub fn four_tuples(&self) -> Vec<(SocketAddr, SocketAddr)> {
        self.all().iter().flat_map(|shared| shared.lock().stack.four_tuples().collect::<Vec<_>>()).collect()
    }

    /// Whether an engine has stopped, because its link failed or the endpoint was shut down. Then nothing is accepted or
    /// connected any more.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.all().iter().any(|shared| shared.lock().stopped.is_some())
    }

    /// Loads what `cache` remembers about servers and keeps its file up to date: at most once every few seconds, and
    /// in [`Endpoint::shutdown`].
    ///
    /// The engine must know its network ([`Config::network`], [`crate::network_id`]). Without a network id nothing is
    /// read or written, and this returns false.
    ///
    /// ```
    /// # use firstflight::{CredentialCache, Endpoint, credential::NetworkId, link::Link};
    /// # use firstflight::CacheError;
    /// fn start<L: Link + 'static>(mut config: firstflight::Config, link: L) -> Result<Endpoint, CacheError> {
    ///     config.network = firstflight::network_id().unwrap_or(NetworkId::UNKNOWN);
    ///     let endpoint = Endpoint::new(config, link);
    ///     endpoint.use_cache(CredentialCache::open("/var/lib/example/servers.json")?);
    ///     Ok(endpoint)
    /// }
    /// ```
    pub fn use_cache(&self, cache: CredentialCache) -> bool {
        let mut inner = self.shared.lock();
        if !inner.stack.config().network.is_known() {
            return false;
        }
        inner.keep(cache);
        let (_, others) = self.all().split_first().unwrap_or((&self.shared, &[]));
        let credentials = inner.stack.credentials();
        let known: Vec<_> =
            credentials.iter_by_use().map(|(at, server, entry)| (at, server, entry.to_share())).collect();
        drop(inner);
        for shared in others {
            let mut inner = shared.lock();
            for (network, server, entry) in &known {
                inner.stack.restore_credential(*network, *server, entry.clone());
            }
        }
        true
    }

    /// Takes a first flight from a front, the name server of a zone. The front found it in the names that were
    /// queried (`docs/spec/dns-path.md`). The caller must have verified that the front may do this: see
    /// `firstflight_dns::RelayReceiver`. The flight goes to the listener for its port if that listener has an
    /// [`AsapPolicy::relayed`](firstflight_credential::asap::AsapPolicy::relayed). Otherwise it is dropped silently.
    pub fn handle_relayed(&self, flight: RelayedFlight<'_>) {
        let ports =
            flight.segment.first_chunk().map(|[a, b, c, d]| [[*a, *b], [*c, *d]].map(u16::from_be_bytes));
        let shared = ports.map_or(&self.shared, |[from, to]| self.owner(from, to));
        let mut inner = shared.lock();
        let now = inner.now();
        inner.stack.handle_relayed(now, flight);
        inner.kick();
    }

    /// The network that the host is on, as far as the engine knows.
    #[must_use]
    pub fn network(&self) -> NetworkId {
        self.shared.lock().stack.config().network
    }

    /// Reports that the host is now on this network. What was learnt on another network is no longer used. If the new
    /// network has no id, give [`NetworkId::UNKNOWN`]. What was learnt without an id is forgotten.
    pub fn move_to(&self, network: NetworkId) {
        for shared in self.all() {
            let mut inner = shared.lock();
            if network != inner.stack.config().network {
                inner.history().leave(NetworkId::UNKNOWN);
            }
            inner.stack.set_network(network);
        }
    }

    /// Forgets all cookies, round-trip times and lost races, as after a move to another network.
    pub fn forget_credentials(&self) {
        self.all().iter().for_each(|shared| shared.lock().forget_credentials());
    }
}
