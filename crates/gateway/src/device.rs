//! The engines of a listener on a device: a TUN device, or a network card beside the kernel.

use crate::config::{Listener, Tun, Xdp};
use crate::error::GatewayError;
use crate::farm::Farm;
use firstflight::link::xdp::{XdpQueue, XdpStatus};
use firstflight::link::{BusyPoll, Link, Tun as TunLink, TunConfig, TunQueue};
use firstflight::{Card, Endpoint, LateCard, Sharding, Workers};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;
use toml::Spanned;

/// Packets that the kernel keeps for an engine on a device: a SYN, an ACK, a request and a FIN for each connection of a full
/// backlog.
const QUEUE: u32 = 4 * firstflight::ListenConfig::BACKLOG as u32;

/// The engines on a device.
pub(crate) struct Device {
    pub(crate) endpoint: Endpoint,
    /// Where it serves.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Sockets for what reaches its port another way.
    pub(crate) beside: Vec<TcpListener>,
    pub(crate) card: Option<XdpStatus>,
    /// A network card that is taken when everything else is ready.
    pub(crate) later: Option<LateCard>,
    /// The port of TCP in UDP.
    pub(crate) udp_port: Option<u16>,
}

fn tun_config(tun: &Tun) -> TunConfig {
    TunConfig::default()
        .name(tun.device.clone())
        .host(tun.host.iter().map(|host| (host.addr(), host.prefix_len())).collect())
        .mtu(tun.mtu)
        .queue(QUEUE)
        .offload(tun.offload)
}

/// What is wrong with the settings of the listener's device, and whether this process may make it. None is made. Whether its
/// name and addresses are free is not known here: a gateway in service has them.
/// Errors: when no device could have them, or the process lacks a right.
pub(crate) fn check(listener: &Listener) -> Result<(), GatewayError> {
    let Some(tun) = listener.tun.as_ref().map(Spanned::get_ref) else { return Ok(()) };
    let checked = tun_config(tun).validate().and_then(|()| TunLink::check_permission());
    checked.map_err(|error| GatewayError::Tun(listener.name.get_ref().clone(), error))
}

/// Starts the engines on the listener's device, if it has one: one for each of `workers`, and on a card one for each of its queues.
/// Errors: when the device cannot be made, or be used.
pub(crate) fn start(
    config: &Listener,
    farm: &Farm,
    workers: impl FnOnce() -> io::Result<Workers>,
) -> Result<Option<Device>, GatewayError> {
    if !config.has_device() {
        return Ok(None);
    }
    let mut sharding = Sharding::new(&workers().map_err(GatewayError::Threads)?);
    if let Some(store) = farm.store().filter(|_| config.asks_store()) {
        sharding = sharding.store(store.clone() as _);
    }
    match (&config.tun, &config.xdp) {
        (Some(tun), _) => on_tun(config, tun.get_ref(), &sharding).map(Some),
        (None, Some(xdp)) => on_card(config, xdp.get_ref(), &sharding).map(Some),
        (None, None) => Ok(None),
    }
}

fn on_tun(config: &Listener, tun: &Tun, sharding: &Sharding) -> Result<Device, GatewayError> {
    let fail = |error| GatewayError::Tun(config.name.get_ref().clone(), error);
    let device = tun_config(tun);
    let mut engine = engine(config, tun.address.clone())?;
    Endpoint::prepare_tun(&mut engine, &device);
    let queues = TunLink::create_queues(&device, sharding.workers().count()).map_err(fail)?;
    let busy_poll = busy_poll(config);
    let link = |queue| {
        let mut queue = Some(queue);
        // Called again if the queue fails. It fails only with the device.
        move || {
            let queue: TunQueue = queue.take().ok_or(io::ErrorKind::NotConnected)?;
            Ok(BusyPoll::new(queue.open().map_err(io::Error::other)?, busy_poll))
        }
    };
    let endpoint = Endpoint::sharded(&engine, sharding, queues.into_iter().map(link).collect());
    let endpoint = endpoint.map_err(|error| GatewayError::Queues(config.name.get_ref().clone(), error))?;
    let addresses = config.engine_addresses();
    Ok(Device { endpoint, addresses, beside: Vec::new(), card: None, later: None, udp_port: None })
}

fn on_card(config: &Listener, xdp: &Xdp, sharding: &Sharding) -> Result<Device, GatewayError> {
    let fail = |error| GatewayError::Card(config.name.get_ref().clone(), error);
    let hold = if config.reuse_port { Card::share } else { Card::serve };
    let mut card = hold(xdp.device(), &xdp.address, xdp.port).map_err(fail)?;
    let udp_port = config.udp_port.filter(|port| *port != 0);
    if let Some(port) = udp_port {
        card = card.carry(port).map_err(fail)?;
    }
    let addresses = card.addresses().iter().map(|ip| SocketAddr::new(*ip, xdp.port)).collect();
    let mut engine = engine(config, card.addresses().to_vec())?;
    card.prepare(&mut engine);
    let beside = card.listeners().map_err(fail)?;
    let (endpoint, card, later) = if config.reuse_port {
        let (queues, later) = card.attach_later().map_err(fail)?;
        (on_queues(config, &engine, sharding, queues, Ok), None, Some(later))
    } else {
        let queues = card.attach().map_err(fail)?;
        let status = queues.first().map(XdpQueue::status);
        let open = |queue: XdpQueue| queue.open().map_err(io::Error::other);
        (on_queues(config, &engine, sharding, queues, open), status, None)
    };
    let endpoint = endpoint.map_err(|error| GatewayError::Queues(config.name.get_ref().clone(), error))?;
    Ok(Device { endpoint, addresses, beside, card, later, udp_port })
}

/// An engine for each of a card's queues.
fn on_queues<Q: Send + 'static, L: Link + 'static>(
    config: &Listener,
    engine: &firstflight::Config,
    sharding: &Sharding,
    queues: Vec<Q>,
    open: fn(Q) -> io::Result<L>,
) -> io::Result<Endpoint> {
    let busy_poll = busy_poll(config);
    let link = |queue| {
        let mut queue = Some(queue);
        // Called again if the queue fails. It fails only with the device.
        move || {
            let queue: Q = queue.take().ok_or(io::ErrorKind::NotConnected)?;
            Ok(BusyPoll::new(open(queue)?, busy_poll))
        }
    };
    Endpoint::sharded(engine, sharding, queues.into_iter().map(link).collect())
}

/// How long the threads of the listener's engines stay awake after a packet.
fn busy_poll(config: &Listener) -> Duration {
    config.engine().busy_poll.map_or(Duration::ZERO, |time| time.0)
}

/// Settings of an engine of `listener` at these addresses.
pub(crate) fn engine(
    listener: &Listener,
    addresses: Vec<IpAddr>,
) -> Result<firstflight::Config, GatewayError> {
    let mut engine = firstflight::config(addresses).map_err(GatewayError::Random)?;
    listener.engine().configure(&mut engine);
    engine.tcp.set_user_timeout(Some(listener.patience()));
    Ok(engine)
}
