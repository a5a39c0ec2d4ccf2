//! Settings of a proxy.

use crate::event::{Event, Listener};
use crate::pac;
use crate::policy::Policy;
use crate::proxy::{BindError, Proxy};
use firstflight::{BadAuthority, Client};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The address on which a proxy listens by default.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);

/// What becomes of TLS early data (RFC 8446 §2.3) behind a ClientHello in a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EarlyData {
    /// It waits for the handshake of TCP. The ClientHello rides alone.
    #[default]
    Hold,
    /// It rides with the ClientHello where the server executes it at most once: with a certificate, if the client says
    /// that servers do so ([`ClientBuilder::servers_run_once`](firstflight::ClientBuilder::servers_run_once)).
    AtMostOnce,
    /// It rides in every first flight. The network may repeat it, beyond what TLS itself allows.
    Replay,
}

/// Limits of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Connections of clients at one time, at least 1. Further ones wait.
    pub connections: usize,
    /// The longest head of a request, bytes.
    pub head: usize,
    /// Fields of a request's head.
    pub fields: usize,
    /// How long a client may take for a request's head, and how long a connection may be idle between requests. Also for
    /// the messages of SOCKS.
    pub head_timeout: Duration,
    /// How long the lookup and the connect to a server may take together.
    pub connect_timeout: Duration,
    /// How long a server may take for the head of its response, while nothing of the request's body goes on.
    pub response_timeout: Duration,
    /// A client that sends nothing of its request's body, or takes nothing of its response, for this long is given up.
    pub body_timeout: Duration,
    /// A tunnel, and the body of a response, ends when nothing has passed for this long.
    pub idle_timeout: Duration,
    /// The same for a tunnel of which one direction has ended, and for a response whose client has ended its direction. It
    /// looks the same if the program at that end is gone.
    pub half_closed_timeout: Duration,
    /// Status pages that are open at one time.
    pub watchers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            head: 64 * 1024,
            fields: 100,
            head_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(30),
            response_timeout: Duration::from_secs(300),
            // A program that plays what it downloads may pause.
            body_timeout: Duration::from_secs(15 * 60),
            // Longer than the keep-alives of programs that idle, such as WebSockets.
            idle_timeout: Duration::from_secs(2 * 3600),
            half_closed_timeout: Duration::from_secs(30),
            watchers: 32,
        }
    }
}

/// Settings of a [`Proxy`].
#[derive(Debug)]
#[must_use]
pub struct ProxyBuilder {
    pub(crate) client: Client,
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) remote: bool,
    pub(crate) policy: Policy,
    pub(crate) hosts: BTreeSet<String>,
    pub(crate) pac: bool,
    pub(crate) early_data: EarlyData,
    pub(crate) limits: Limits,
    pub(crate) drain: Duration,
    pub(crate) listener: Listener,
}

impl ProxyBuilder {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            listen: Vec::new(),
            remote: false,
            policy: Policy::default(),
            hosts: BTreeSet::new(),
            pac: false,
            early_data: EarlyData::default(),
            limits: Limits::default(),
            drain: Duration::from_secs(10),
            listener: Listener::default(),
        }
    }

    /// Listens on this address, too. Without one it is [`ADDRESS`].
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen.push(address);
        self
    }

    /// Lets the proxy listen on addresses that other machines reach. **Everybody who reaches it can then use it**, under
    /// the address of this machine: the proxy has no users and no passwords.
    pub const fn allow_remote(mut self, allow: bool) -> Self {
        self.remote = allow;
        self
    }

    /// Lets clients reach private networks (10.0.0.0/8, fc00::/7, …). Addresses of this machine, also private and public
    /// ones of its interfaces, of the local link, and of clouds' metadata services stay refused.
    pub const fn allow_private(mut self, allow: bool) -> Self {
        self.policy.private = allow;
        self
    }

    /// Lets clients reach this network, whatever it is, this machine too. **Programs on this machine that trust what
    /// comes from it can then be reached** by all clients.
    pub fn allow_net(mut self, net: IpNet) -> Self {
        self.policy.allowed.push(net);
        self
    }

    /// Names this host in the PAC file, also if it is not known to take first flights.
    ///
    /// # Errors
    /// When it is not a name or an address.
    pub fn allow_host(mut self, host: &str) -> Result<Self, BadAuthority> {
        self.hosts.insert(pac::host(host)?);
        Ok(self)
    }

    /// Serves the PAC file. It names hosts that were visited, to every program of this machine.
    pub const fn pac(mut self, serve: bool) -> Self {
        self.pac = serve;
        self
    }

    /// What becomes of TLS early data.
    pub const fn early_data(mut self, early_data: EarlyData) -> Self {
        self.early_data = early_data;
        self
    }

    /// Limits.
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long connections may go on when the proxy stops. The default is ten seconds.
    pub const fn drain(mut self, within: Duration) -> Self {
        self.drain = within;
        self
    }

    /// Calls `listener` at each [`Event`], for a log. It must not block.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.listener = Listener(Some(Arc::new(listener)));
        self
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// When an address is not allowed or cannot be used, or the system has no random numbers.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O.
    pub async fn bind(self) -> Result<Proxy, BindError> {
        Proxy::bind(self).await
    }
}
