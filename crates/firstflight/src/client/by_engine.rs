//! Clients whose connections are an engine's.

use super::transport::engine::EngineTcp;
use super::transport::{self, Finish, RaceLost};
use super::{Authority, ClientBuilder, Shared};
use crate::cache::CredentialCache;
use crate::endpoint::Endpoint;
use crate::first_flight::Flights;
use crate::stream::Way;
use firstflight_credential::Reason;
use firstflight_stack::{Certified, ConnectConfig};
use std::future::ready;
use std::net::SocketAddr;

/// The engine that a program gives to its client.
#[derive(Debug, Clone)]
pub(super) struct ByEngine {
    pub(super) endpoint: Endpoint,
    pub(super) encapsulation: EngineEncapsulation,
}

/// How an engine's segments travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EngineEncapsulation {
    /// In IP packets.
    Ip,
    /// In UDP datagrams to this port of the servers, or to the one that each publishes, or to its TCP port.
    Udp(Option<u16>),
}

impl ClientBuilder {
    /// Connects by this engine, in place of the system's sockets, with its segments in IP packets. The network is the engine's.
    pub fn engine(self, endpoint: Endpoint) -> Self {
        self.by_engine(ByEngine { endpoint, encapsulation: EngineEncapsulation::Ip })
    }

    /// Connects by this engine, in place of the system's sockets, with its segments in UDP datagrams
    /// ([`Endpoint::over_udp`](crate::Endpoint::over_udp)). They go to `port` of the servers; without it to the port that a
    /// server publishes, or that of its TCP.
    pub fn engine_in_udp(self, endpoint: Endpoint, port: Option<u16>) -> Self {
        self.by_engine(ByEngine { endpoint, encapsulation: EngineEncapsulation::Udp(port) })
    }

    fn by_engine(mut self, engine: ByEngine) -> Self {
        self.network = Some(engine.endpoint.network());
        self.by_engine = Some(engine);
        self
    }
}

impl ByEngine {
    /// Loads what `cache` remembers, and keeps it up to date.
    pub(super) fn use_cache(&self, cache: CredentialCache) {
        self.endpoint.use_cache(cache);
    }

    pub(super) const fn way(&self) -> Way {
        match self.encapsulation {
            EngineEncapsulation::Ip => Way::Ip,
            EngineEncapsulation::Udp(_) => Way::Udp,
        }
    }

    /// The settings of a first attempt at `server`, which `publishes` a UDP port. `shown` is the certificate, or why there is
    /// none.
    pub(super) fn config(
        &self,
        server: &Authority,
        publishes: Option<u16>,
        cookies: bool,
        shown: Result<Certified, Option<Reason>>,
    ) -> ConnectConfig {
        let port = match self.encapsulation {
            EngineEncapsulation::Ip => None,
            EngineEncapsulation::Udp(port) => Some(port.or(publishes).unwrap_or(server.port())),
        };
        // With Fast Open the outcome is about the cookie.
        let why = shown.as_ref().err().copied().flatten().filter(|_| !cookies);
        ConnectConfig::default().fast_open(cookies).asap(shown.ok()).held_back(why).encapsulation(port)
    }

    /// Runs a race of attempts by the engine.
    pub(super) async fn race(
        &self,
        config: ConnectConfig,
        addresses: &[SocketAddr],
        flights: Flights<'_>,
    ) -> Result<Finish, RaceLost> {
        let tcp = EngineTcp::new(&self.endpoint, config, flights);
        // The race has room for all attempts. Connects are parts of other futures, which stay small.
        Box::pin(transport::run(&tcp, ready(Ok(addresses.to_vec())))).await
    }
}

impl Shared {
    /// Whether data would ride in the SYN to the first of `addresses`, by which way: there is a cookie, and nothing speaks
    /// against its use.
    pub(super) fn cookie(&self, addresses: &[SocketAddr]) -> Option<Way> {
        let Some(engine) = &self.by_engine else {
            return self.kernel.has_cookie(addresses).then_some(Way::Kernel);
        };
        let first = addresses.first()?;
        let mut inner = engine.endpoint.shared.lock();
        let (network, now) = (inner.stack.config().network, inner.now());
        let way = engine.way();
        let network = if way == Way::Udp { network.over_udp() } else { network };
        inner.stack.credentials().holds_cookie(network, first.ip(), now).then_some(way)
    }

    /// The network is the engine's.
    pub(super) fn follow_engine(&self) {
        if let Some(network) = self.by_engine.as_ref().map(|engine| engine.endpoint.network())
            && network != self.kernel.network()
        {
            self.move_to(network);
        }
    }

    /// Forgets what the engine has learnt.
    pub(super) fn forget_by_engine(&self) {
        self.by_engine.iter().for_each(|engine| engine.endpoint.forget_credentials());
    }

    /// Runs a race by the engine that the program gave, if it gave one.
    pub(super) async fn race_by_engine(
        &self,
        server: &Authority,
        addresses: &[SocketAddr],
        flights: Flights<'_>,
        certified: bool,
        cookies: bool,
    ) -> Option<Result<Finish, RaceLost>> {
        let engine = self.by_engine.as_ref()?;
        if let Some(asap) = self.asap.as_ref().filter(|_| certified) {
            return Some(asap.race_by_engine(engine, server, addresses, flights, cookies).await);
        }
        let publishes = self.asap.as_ref().and_then(|asap| asap.udp_port(server));
        let config = engine.config(server, publishes, cookies, Err(None));
        Some(engine.race(config, addresses, flights).await)
    }
}
