//! Settings of a server.

use super::policies::{self, Policies};
use super::{Server, fronts, inherited, udp};
use crate::credential::asap::{AsapPolicy, TrustStore};
use crate::credential::{KeyRing, OneTimeCookies, Quarantine, ReplayGuard, Replays};
use crate::endpoint::Endpoint;
use crate::kernel::listen::report;
use crate::store::SharedStore;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// First flights that may wait for their client's ACK.
const PENDING: u32 = 256;

/// Settings of a [`Server`].
///
/// ```no_run
/// # async fn serve(trust: std::sync::Arc<firstflight::credential::asap::TrustStore>) -> std::io::Result<()> {
/// let server = firstflight::Server::builder()
///     .address("0.0.0.0:443".parse().unwrap())
///     .udp_port(4433)
///     .trust(trust)
///     .identity("www.example.com")
///     .bind()?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct ServerBuilder {
    addresses: Vec<SocketAddr>,
    pub(super) keys: Option<Arc<KeyRing>>,
    pub(super) pending: u32,
    backlog: u32,
    pub(super) share_port: bool,
    send_timeout: Option<Duration>,
    keep_alive: Option<Duration>,
    in_stages: bool,
    pub(super) udp: udp::Settings,
    pub(crate) first_flights: policies::Settings,
    pub(super) fronts: fronts::Settings,
    pub(super) store: Option<Arc<dyn SharedStore>>,
    engines: Vec<(Endpoint, SocketAddr)>,
    beside: Vec<TcpListener>,
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addresses, udp, first_flights, engines, .. } = self;
        f.debug_struct("ServerBuilder")
            .field("addresses", addresses)
            .field("udp", udp)
            .field("first_flights", first_flights)
            .field("engines", engines)
            .finish_non_exhaustive()
    }
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            keys: None,
            pending: PENDING,
            backlog: crate::ListenConfig::BACKLOG as u32,
            share_port: false,
            send_timeout: None,
            keep_alive: None,
            in_stages: true,
            udp: udp::Settings::default(),
            first_flights: policies::Settings::default(),
            fronts: fronts::Settings::default(),
            store: None,
            engines: Vec::new(),
            beside: Vec::new(),
        }
    }
}

impl ServerBuilder {
    /// Listens at this address; call it again for further ones, all with one port. `0.0.0.0` is every IPv4 address, and
    /// `[::]` every IPv6 address.
    pub fn address(mut self, address: SocketAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// The keys of the cookies. All servers at one address need the same, on all ports: clients keep one cookie for an
    /// address. Without them the kernel uses the namespace's, which last until the machine restarts, and UDP has new ones
    /// at each start. Linux uses the first backup of a ring, and only Linux' cookie function.
    pub fn keys(mut self, keys: Arc<KeyRing>) -> Self {
        self.keys = Some(keys);
        self
    }

    /// How many first flights may wait for their client's ACK, on the kernel's TCP and in UDP. 0 switches Fast Open off.
    /// The default is 256.
    pub const fn pending(mut self, pending: u32) -> Self {
        self.pending = pending;
        self
    }

    /// How many of them may be of one client (an IPv4 address, an IPv6 /64), in UDP and at engines. The default is 4 to 8, and half
    /// of those that are free.
    pub const fn pending_per_client(mut self, most: u32) -> Self {
        self.first_flights.pending_per_client = Some(most);
        self
    }

    /// Which of the connections that a RST has ended count as pending for a while, in UDP and at engines (RFC 7413 §5.1). The
    /// default are those whose first flight was accepted.
    pub const fn quarantine(mut self, quarantine: Quarantine) -> Self {
        self.first_flights.quarantine = Some(quarantine);
        self
    }

    /// How many connections may wait to be accepted.
    pub const fn backlog(mut self, backlog: u32) -> Self {
        self.backlog = backlog;
        self
    }

    /// The kernel's TCP: resets a connection whose peer has acknowledged nothing of waiting data for this long. The default
    /// is the system's, many minutes. The engine's is in its settings.
    pub const fn send_timeout(mut self, timeout: Duration) -> Self {
        self.send_timeout = Some(timeout);
        self
    }

    /// The kernel's TCP: asks a peer from which nothing has come for this long whether it is still there, and resets the
    /// connection when four questions, each a quarter of this time apart, have no answer. The default is never. The engine's
    /// is in its settings.
    pub const fn keep_alive(mut self, after: Duration) -> Self {
        self.keep_alive = Some(after);
        self
    }

    /// Whether streams that are dropped before their client has closed end in stages: first the sending direction, and the
    /// rest when the client closes, sends nothing for five seconds, or after thirty ([`Lingering`](crate::Lingering)). At most 256
    /// connections at a time do; further ones close at once. The default is true. Programs that count their connections
    /// close them themselves, and say false. [`Stream::lingering`](crate::Stream::lingering) and
    /// [`Stream::abort`](crate::Stream::abort) end one stream in another way.
    pub const fn in_stages(mut self, in_stages: bool) -> Self {
        self.in_stages = in_stages;
        self
    }

    /// Several servers may share the TCP port (`SO_REUSEPORT`), with the same keys. UDP is then off, unless
    /// [`ServerBuilder::udp_port`] names a port of this server's own.
    pub const fn share_port(mut self, share: bool) -> Self {
        self.share_port = share;
        self
    }

    /// Takes certificates of these verifiers in UDP and at engines, and executes each request once. For ten seconds after the start,
    /// and some twenty more for certificates that began before they were made, none is taken: the server does not know
    /// what it took before.
    pub fn trust(mut self, trust: Arc<TrustStore>) -> Self {
        self.first_flights.trust = Some(trust);
        self
    }

    /// A name that clients use for this server, as `www.example.com`, or `www.example.com:8443` where they see another port;
    /// call it again for further ones. The default are
    /// the server's addresses.
    pub fn identity(mut self, name: impl Into<String>) -> Self {
        self.first_flights.identities.push(name.into());
        self
    }

    /// Says that other servers answer to the same names and do not know what this one took: a request may be executed once at
    /// each.
    pub const fn per_site(mut self, per_site: bool) -> Self {
        self.first_flights.per_site = per_site;
        self
    }

    /// Remembers requests with certificates by `guard`, in place of a table of the server's own. With a
    /// [`RemoteGuard`](crate::credential::RemoteGuard) of [`Window::REQUESTS`](crate::credential::Window::REQUESTS) and the same
    /// [store](Self::store) all members of a farm know what each of them took. Each server needs one of its own
    /// ([`RemoteGuard::beside`](crate::credential::RemoteGuard::beside)): for ten seconds from now on it refuses, as with a table.
    /// Servers of one name must trust the same verifiers.
    pub fn request_guard(mut self, guard: Arc<dyn ReplayGuard>) -> Self {
        self.first_flights.request_guard = Some(policies::RequestGuard(guard));
        self
    }

    /// Says that no server of these names has run within the last two minutes: certificates are taken at once.
    pub const fn first_start(mut self, first_start: bool) -> Self {
        self.first_flights.first_start = first_start;
        self
    }

    /// How certificates are treated, in place of [`ServerBuilder::trust`] and [`ServerBuilder::identity`].
    pub fn asap(mut self, policy: AsapPolicy) -> Self {
        self.first_flights.policy = Some(policy);
        self
    }

    /// The settings of the listeners of engines, in UDP or on a device. Their address is set by [`ServerBuilder::address`]. Policies in it have
    /// precedence over the other settings here.
    pub fn listen(mut self, config: crate::ListenConfig) -> Self {
        self.first_flights.listen = Some(config);
        self
    }

    /// Listens at this address of an engine that the program runs, too: on a TUN device, a network card, or several threads
    /// ([`Endpoint::sharded`]). Call it again for further addresses and engines. The program ends the engine.
    pub fn engine_at(mut self, engine: &Endpoint, address: SocketAddr) -> Self {
        self.engines.push((engine.clone(), address));
        self
    }

    /// Accepts from this listening socket of the kernel's, too, without first flights. Its filter stays: it is that of a port
    /// which an engine has on a network card ([`Card::listeners`](crate::Card::listeners)).
    pub fn beside(mut self, socket: TcpListener) -> Self {
        self.beside.push(socket);
        self
    }

    /// How often the data of one SYN may be executed before its client is confirmed. The default is as often as it arrives.
    /// Otherwise the kernel's TCP takes no first flights, because it remembers none; UDP and engines do.
    pub fn replays(mut self, replays: Replays) -> Self {
        self.first_flights.replays = replays;
        self
    }

    /// Grants cookies that are valid for one connection each, in UDP and at engines.
    /// [`SerialFile::cookies`](crate::serial_file::SerialFile::cookies) makes them.
    pub fn one_time(mut self, cookies: Arc<OneTimeCookies>) -> Self {
        self.first_flights.one_time = Some(cookies);
        self
    }

    /// The memory that the members of a farm share, for the engine that serves UDP. Engines of
    /// [`ServerBuilder::engine_at`] have their own.
    pub fn store(mut self, store: Arc<dyn SharedStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Starts to listen.
    ///
    /// If the namespace does not allow Fast Open at servers, this is logged once, and the kernel's TCP is served without
    /// ([`Server::grants_cookies`]). If the UDP port belongs to another program, this is logged, and TCP alone is served
    /// ([`Server::udp_port`]).
    ///
    /// # Errors
    /// When there is no address, an address cannot be used, an identity is not a host name, or the system has no random
    /// numbers. When the server is a verifier, and does not serve UDP or trusts another key with the same id. When there is a
    /// guard for requests, and certificates are not taken, or other servers do not know what this one took.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub fn bind(mut self) -> io::Result<Server> {
        let listeners = self.listen_by_kernel()?;
        let at: Vec<_> =
            self.addresses.iter().chain(self.engines.iter().map(|(_, at)| at)).copied().collect();
        let mut policies = Policies::new(&self, &at)?;
        self.fronts.admit(policies.asap.as_mut())?;
        self.verify_at_engines()?;
        let mut engines = Vec::with_capacity(self.engines.len() + self.beside.len());
        for (engine, address) in &self.engines {
            engines.push(policies.listen(engine, *address)?);
        }
        for socket in std::mem::take(&mut self.beside) {
            let config = firstflight_kernel::ListenConfig::default()
                .pending(0)
                .keep_filter(true)
                .user_timeout(self.send_timeout)
                .keep_alive(self.keep_alive);
            engines.push(firstflight_kernel::Listener::adopt(socket, config)?.into());
        }
        let in_udp = udp::serve(&self, &self.addresses, &policies)?;
        if self.first_flights.verifier.is_some() && in_udp.is_none() && !self.addresses.is_empty() {
            let text = "a verifier answers in UDP: give the server a UDP port";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let target = self.fronts.target(&self.addresses, in_udp.as_ref())?;
        Ok(Server::new(listeners, in_udp, engines, self.in_stages, target))
    }

    /// The engines of the program are places of the verifier, too: each one that speaks UDP.
    fn verify_at_engines(&self) -> io::Result<()> {
        let Some(verifier) = &self.first_flights.verifier else { return Ok(()) };
        let mut places: Vec<&Endpoint> = Vec::new();
        for (engine, _) in &self.engines {
            if !places.iter().any(|place| Arc::ptr_eq(&place.shared, &engine.shared)) {
                places.push(engine);
            }
        }
        for place in places {
            match place.verify(verifier) {
                // Its listeners trust the verifier, which answers elsewhere.
                Err(error) if error.kind() == io::ErrorKind::Unsupported && !self.addresses.is_empty() => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// The kernel's listeners. Their addresses then have the port that the system chose.
    fn listen_by_kernel(&mut self) -> io::Result<Vec<firstflight_kernel::Listener>> {
        let Some(&first) = self.addresses.first() else {
            return match self.engines.is_empty() {
                true => Err(io::Error::new(io::ErrorKind::InvalidInput, "name an address to listen at")),
                false => Ok(Vec::new()),
            };
        };
        let pending = if self.first_flights.allows_copies() { self.pending } else { 0 };
        let mut listeners = Vec::new();
        let mut port = first.port();
        for address in &mut self.addresses {
            if !matches!(address.port(), 0) && address.port() != port {
                let text = format!("{address} has another port than {first}: all addresses need the same");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            // The port that the system chose is the same for all.
            let mut at = *address;
            at.set_port(port);
            let named = |error: io::Error| io::Error::new(error.kind(), format!("TCP {at}: {error}"));
            let config = firstflight_kernel::ListenConfig::default()
                .pending(pending)
                .backlog(self.backlog)
                .keys(self.keys.clone())
                .share_port(self.share_port)
                .user_timeout(self.send_timeout)
                .keep_alive(self.keep_alive);
            let listener = match inherited::tcp(at) {
                Some(listener) => firstflight_kernel::Listener::adopt(listener, config),
                None => firstflight_kernel::Listener::bind(at, config),
            };
            let listener = listener.map_err(named)?;
            report(&listener, pending > 0);
            port = listener.local_addr().port();
            *address = listener.local_addr();
            listeners.push(listener);
        }
        Ok(listeners)
    }
}
