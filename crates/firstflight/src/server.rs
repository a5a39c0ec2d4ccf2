//! One server on the kernel's TCP and in UDP.

mod address;
mod builder;
#[cfg_attr(not(feature = "asap"), path = "server/no_fronts.rs")]
pub(crate) mod fronts;
#[cfg_attr(not(feature = "activation"), path = "server/no_inherited.rs")]
mod inherited;
mod policies;
#[cfg_attr(not(feature = "udp"), path = "server/no_udp.rs")]
mod udp;

pub use address::ToLocalAddrs;
pub use builder::ServerBuilder;
use policies::Policies;

use crate::endpoint::Endpoint;
use crate::keys::KeyHandle;
use crate::listener::Listener;
use crate::stream::{Stages, Stream};
use crate::trust::TrustHandle;
use firstflight_credential::KeyRing;
use futures_util::future::select_all;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// What serves UDP.
#[derive(Debug)]
struct Served {
    endpoint: Endpoint,
    port: u16,
    listeners: Vec<Listener>,
}

/// Serves one port on the kernel's TCP with Fast Open, and in UDP with Fast Open and certificates (ASAP). It needs no
/// privileges. Dropping it closes the listeners; streams that were accepted stay open.
///
/// ```no_run
/// # async fn serve() -> std::io::Result<()> {
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// let server = firstflight::Server::bind("0.0.0.0:8080").await?;
/// loop {
///     let mut stream = server.accept().await?;
///     tokio::spawn(async move {
///         let mut request = [0; 1024];
///         let length = stream.read(&mut request).await?;
///         stream.write_all(&request[..length]).await
///     });
/// }
/// # }
/// ```
///
/// **The end.** A stream that is dropped closes in stages: its client gets the whole answer, although it may still send
/// ([`ServerBuilder::in_stages`]).
///
/// **What may run twice.** A request that arrived in a SYN may be a copy that the network made: see
/// [`Stream::is_early`]. In UDP with certificates each request is executed once ([`ServerBuilder::trust`]).
///
/// **Systemd.** Sockets that a service manager passes (`LISTEN_FDS`) are used where their address is the one to bind.
#[derive(Debug)]
pub struct Server {
    /// The kernel's listeners, and those in UDP.
    listeners: Vec<Listener>,
    endpoint: Option<Endpoint>,
    udp_port: Option<u16>,
    grants_cookies: bool,
    /// The listener that is asked first.
    turn: AtomicUsize,
    /// How streams end that are dropped.
    stages: Option<Stages>,
    #[cfg_attr(not(feature = "asap"), allow(dead_code, reason = "of fronts"))]
    target: fronts::Target,
}

impl Server {
    fn new(
        kernels: Vec<firstflight_kernel::Listener>,
        served: Option<Served>,
        engines: Vec<Listener>,
        stages: bool,
        target: fronts::Target,
    ) -> Self {
        let grants_cookies = kernels.iter().all(firstflight_kernel::Listener::grants_cookies);
        if !kernels.is_empty() {
            crate::metrics::kernel_grants(grants_cookies);
        }
        let mut listeners: Vec<_> = kernels.into_iter().map(Listener::from).collect();
        let (mut endpoint, mut udp_port) = (None, None);
        if let Some(served) = served {
            (endpoint, udp_port) = (Some(served.endpoint), Some(served.port));
            listeners.extend(served.listeners);
        }
        listeners.extend(engines);
        Self {
            listeners,
            endpoint,
            udp_port,
            grants_cookies,
            turn: AtomicUsize::new(0),
            stages: stages.then(Stages::new),
            target,
        }
    }

    /// Starts to listen with settings that fit most programs: Fast Open with a key of its own, in UDP on the same port. Several
    /// addresses, as of a name, are tried until one can be used; [`ServerBuilder::address`] listens at several. A link-local
    /// IPv6 address has its zone, as in `[fe80::1%eth0]:80`.
    ///
    /// # Errors
    /// When the name has no address, the zone is no interface of this host, or none of the addresses can be used: then the
    /// last one's.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub async fn bind(address: impl ToLocalAddrs) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "name an address to listen at");
        for address in address.to_local_addrs().await? {
            match Self::builder().address(address).bind() {
                Err(error) => last = error,
                server => return server,
            }
        }
        Err(last)
    }

    /// A server with other settings.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Returns the next connection, of any way. Several tasks may call it.
    ///
    /// # Errors
    /// When the system cannot accept, for example because the process has too many files open: the server goes on. When
    /// the UDP socket has failed.
    pub async fn accept(&self) -> io::Result<Stream> {
        let count = self.listeners.len();
        // No listener can keep another one from being asked.
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let order = (0..count).filter_map(|n| self.listeners.get(first.wrapping_add(n) % count));
        // Each has its own list of tasks that wait. What is dropped here has not accepted anything.
        let accepting: Vec<_> = order.map(|listener| Box::pin(listener.accept())).collect();
        if accepting.is_empty() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let (stream, ..) = select_all(accepting).await;
        stream.map(|stream| self.take(stream))
    }

    /// One server for each shard of the engines that the program runs ([`ServerBuilder::engine_at`] with
    /// [`Endpoint::sharded`]), behind one for everything else: the kernel's sockets, UDP, and engines of one thread. Give each to a
    /// task on its shard's worker, so that its connections stay on one thread. Take [`Server::keys`] and [`Server::trust`] before:
    /// they are for all.
    ///
    /// ```
    /// # use firstflight::{Server, Workers};
    /// async fn accept(server: Server) {
    ///     while let Ok(stream) = server.accept().await {
    ///         drop(stream);
    ///     }
    /// }
    /// async fn serve(server: Server, workers: &Workers) {
    ///     let mut servers = server.split().into_iter();
    ///     let others = servers.next();
    ///     for (shard, server) in servers.enumerate() {
    ///         workers.spawn(shard, accept(server));
    ///     }
    ///     if let Some(others) = others {
    ///         accept(others).await;
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn split(mut self) -> Vec<Self> {
        let (mut others, mut shards) = (Vec::new(), Vec::<Self>::new());
        for listener in std::mem::take(&mut self.listeners) {
            if listener.shards() == 1 {
                others.push(listener);
                continue;
            }
            for (n, part) in listener.split().into_iter().enumerate() {
                match shards.get_mut(n) {
                    Some(shard) => shard.listeners.push(part),
                    None => shards.push(Self {
                        listeners: vec![part],
                        endpoint: None,
                        udp_port: None,
                        grants_cookies: self.grants_cookies,
                        turn: AtomicUsize::new(0),
                        stages: self.stages.clone(),
                        target: fronts::Target::default(),
                    }),
                }
            }
        }
        self.listeners = others;
        shards.insert(0, self);
        shards
    }

    /// Whether it listens anywhere.
    #[must_use]
    pub const fn is_listening(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Counts an accepted connection, and says how it ends.
    fn take(&self, stream: Stream) -> Stream {
        note(&stream);
        match &self.stages {
            Some(stages) => stream.staged(stages),
            None => stream,
        }
    }

    /// Poll version of [`Server::accept`]. Poll it from one task at a time.
    ///
    /// # Errors
    /// As [`Server::accept`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let count = self.listeners.len();
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        for n in 0..count {
            if let Some(listener) = self.listeners.get(first.wrapping_add(n) % count)
                && let Poll::Ready(stream) = listener.poll_accept(cx)
            {
                return Poll::Ready(stream.map(|stream| self.take(stream)));
            }
        }
        Poll::Pending
    }

    /// The addresses of the kernel's listeners.
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter(|one| one.trust().is_none()).map(Listener::local_addr).collect()
    }

    /// The UDP port. `None` if the server does not serve UDP, for example because another program has the port.
    #[must_use]
    pub const fn udp_port(&self) -> Option<u16> {
        self.udp_port
    }

    /// Whether the kernel grants cookies. If not, the namespace does not allow it: bit 2 of `net.ipv4.tcp_fastopen`.
    #[must_use]
    pub const fn grants_cookies(&self) -> bool {
        self.grants_cookies
    }

    /// The engine that serves UDP.
    #[must_use]
    pub const fn endpoint(&self) -> Option<&Endpoint> {
        self.endpoint.as_ref()
    }

    /// Handles that set the cookie keys of all listeners. Give them to [`crate::keys::follow`].
    #[must_use]
    pub fn keys(&self) -> Vec<KeyHandle> {
        self.listeners.iter().map(Listener::keys).collect()
    }

    /// Replaces the cookie keys, from the next SYN on. Returns false if a listener did not take them.
    #[must_use]
    pub fn set_keys(&self, keys: &Arc<KeyRing>) -> bool {
        self.listeners
            .iter()
            .map(|listener| listener.set_keys(Arc::clone(keys)))
            .fold(true, |all, one| all & one)
    }

    /// Handles that set the verifiers that the server trusts. Give them to [`crate::trust::follow`].
    #[must_use]
    pub fn trust(&self) -> Vec<TrustHandle> {
        self.listeners.iter().filter_map(Listener::trust).collect()
    }

    /// Stops to listen, and returns the connections that waited to be accepted, so that none is lost whose data was
    /// acknowledged. On an error, for example because the process has too many files open, the connections that still
    /// wait are kept: call it again. Streams of UDP go on as long as the engine does: see [`Server::shutdown`].
    ///
    /// # Errors
    /// The system's, beside what was accepted before.
    pub fn drain(&mut self) -> (Vec<Stream>, io::Result<()>) {
        let mut waiting = Vec::new();
        let drained = self.listeners.iter().try_for_each(|listener| listener.drain(&mut waiting));
        if drained.is_ok() {
            self.listeners.clear();
        }
        if let Some(stages) = &self.stages {
            waiting = waiting.into_iter().map(|stream| stream.staged(stages)).collect();
        }
        (waiting, drained)
    }

    /// Closes the listeners, and waits until the connections in UDP have closed in order, for at most `timeout`.
    pub async fn shutdown(self, timeout: Duration) {
        drop(self.listeners);
        if let Some(endpoint) = &self.endpoint {
            endpoint.shutdown(timeout).await;
        }
    }
}

/// Counts an accepted connection. The engine counts its own.
fn note(stream: &Stream) {
    if stream.way() == crate::stream::Way::Kernel {
        crate::metrics::accepted_by_kernel(stream.outcome());
    }
}
