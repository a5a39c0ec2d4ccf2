//! The part of a server that serves UDP.

mod builder;

use super::{Served, inherited};
use crate::credential::asap::{AsapPolicy, GuardDomain, Identity, TrustStore};
use crate::credential::{FastOpenPolicy, KeyRing, PendingLimit, Quarantine, ReplayTable, Scheme, Window};
use crate::endpoint::Endpoint;
use crate::server::ServerBuilder;
use firstflight_link::{Link, UdpLink};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Memory for the requests of the last 70 seconds, bytes: for some 12,000 first flights a second.
const REQUEST_MEMORY: usize = 8 << 20;

/// In which UDP port a server listens.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Port {
    /// In the one with the number of the TCP port, if it is free.
    #[default]
    Same,
    Number(u16),
    None,
}

/// How UDP is served.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub port: Port,
    pub trust: Option<Arc<TrustStore>>,
    pub policy: Option<AsapPolicy>,
    pub identities: Vec<String>,
    pub engine: Option<crate::Config>,
    pub listen: Option<crate::ListenConfig>,
}

/// Serves UDP as `builder` says, for listeners at `addresses`. `None` if the server is not to serve UDP, or another program has the port.
pub(super) fn serve(
    builder: &ServerBuilder,
    addresses: &[SocketAddr],
    start: impl FnOnce(crate::Config, Box<dyn Link>) -> Endpoint,
) -> io::Result<Option<Served>> {
    let Some(first) = addresses.first() else { return Ok(None) };
    let (port, required) = match builder.udp.port {
        Port::None => return Ok(None),
        // The UDP port cannot be shared.
        Port::Same if builder.share_port => return Ok(None),
        Port::Same => (first.port(), false),
        Port::Number(port) => (port, true),
    };
    let link = match link(addresses, port) {
        Ok(link) => link,
        Err(error) if required => {
            return Err(io::Error::new(error.kind(), format!("UDP port {port}: {error}")));
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!("UDP port {port} belongs to another program: serving TCP only");
            return Ok(None);
        }
        Err(error) => {
            tracing::warn!("cannot serve UDP port {port}, so TCP only: {error}");
            return Ok(None);
        }
    };
    let port = link.port();
    let mut config = match &builder.udp.engine {
        Some(config) => config.clone(),
        None => crate::config(Vec::new())?,
    };
    Endpoint::prepare_udp(&mut config, &link);
    let policies = Policies::new(builder, addresses)?;
    let endpoint = start(config, Box::new(link));
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        let listener = endpoint.listen(policies.config(builder, *address));
        listeners.push(listener.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?);
    }
    Ok(Some(Served { endpoint, port, listeners }))
}

/// Sockets for `addresses` with one port.
fn link(addresses: &[SocketAddr], port: u16) -> io::Result<UdpLink> {
    let mut all: Option<UdpLink> = None;
    for address in addresses {
        let port = all.as_ref().map_or(port, UdpLink::port);
        let mut at = *address;
        at.set_port(port);
        let link = match inherited::udp(at) {
            Some(socket) => UdpLink::adopt(socket)?,
            None => UdpLink::bind(at)?,
        };
        all = Some(match all {
            Some(others) => others.join(link)?,
            None => link,
        });
    }
    all.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// The policies of all listeners.
struct Policies {
    fast_open: Option<FastOpenPolicy>,
    asap: Option<AsapPolicy>,
}

impl Policies {
    fn new(builder: &ServerBuilder, addresses: &[SocketAddr]) -> io::Result<Self> {
        let pending = Arc::new(PendingLimit::new(builder.pending));
        let fast_open = match (&builder.keys, builder.pending) {
            (_, 0) => None,
            (Some(keys), _) => Some(FastOpenPolicy::new(Arc::clone(keys), Arc::clone(&pending))),
            (None, _) => {
                let keys = Arc::new(KeyRing::new(Scheme::Linux, crate::random_key()?));
                Some(FastOpenPolicy::new(keys, Arc::clone(&pending)))
            }
        };
        let asap = match (&builder.udp.policy, &builder.udp.trust) {
            (Some(policy), _) => Some(policy.clone()),
            (None, Some(trust)) => {
                let identities = identities(&builder.udp.identities, addresses)?;
                Some(policy(trust, identities, &pending)?)
            }
            (None, None) => None,
        };
        Ok(Self { fast_open, asap })
    }

    fn config(&self, builder: &ServerBuilder, at: SocketAddr) -> crate::ListenConfig {
        let mut config = builder.udp.listen.clone().unwrap_or_else(|| crate::ListenConfig::new(at));
        config.local = at;
        config.fast_open = config.fast_open.or_else(|| self.fast_open.clone());
        config.asap = config.asap.or_else(|| self.asap.clone());
        config
    }
}

fn policy(
    trust: &Arc<TrustStore>,
    identities: Vec<Identity>,
    pending: &Arc<PendingLimit>,
) -> io::Result<AsapPolicy> {
    let guard = ReplayTable::new(
        crate::random_guard_key()?,
        Window::REQUESTS,
        REQUEST_MEMORY,
        // It does not know what was taken before.
        crate::unix_ms(),
    );
    Ok(AsapPolicy {
        trust: Arc::clone(trust),
        identities: identities.into(),
        guard: Arc::new(guard),
        domain: GuardDomain::All,
        pending: Arc::clone(pending),
        relayed: None,
        quarantine: Quarantine::default(),
    })
}

/// The names, or else the addresses, with the port.
fn identities(names: &[String], addresses: &[SocketAddr]) -> io::Result<Vec<Identity>> {
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let port = addresses.first().map_or(0, SocketAddr::port);
    let own = addresses.iter().filter(|address| names.is_empty() && !address.ip().is_unspecified());
    let mut all: Vec<_> = own.map(|address| Identity::address(address.ip(), port)).collect();
    for name in names {
        match crate::client::Authority::new(name, port).map(|authority| authority.host().clone()) {
            Ok(crate::client::Host::Name(name)) => all.push(Identity::name(&name, port)),
            Ok(crate::client::Host::Ip(ip)) => all.push(Identity::address(ip, port)),
            Err(_) => return Err(wrong(format!("{name:?} is not a host name"))),
        }
    }
    match all.is_empty() {
        true => Err(wrong("a server at all addresses that takes certificates needs an identity".to_owned())),
        false => Ok(all),
    }
}
