//! The engine of a listener on a device: a TUN device, or a network card beside the kernel.

use crate::config::{Listener, Tun, Xdp};
use crate::error::GatewayError;
use crate::farm::Farm;
use firstflight::link::xdp::{Joined, XdpQueue, XdpStatus};
use firstflight::link::{Link, Tun as TunLink, TunConfig};
use firstflight::{Card, Endpoint};
use std::net::{SocketAddr, TcpListener};
use toml::Spanned;

/// Packets that the kernel keeps for an engine on a device: a SYN, an ACK, a request and a FIN for each connection of a full
/// backlog.
const QUEUE: u32 = 4 * firstflight::ListenConfig::BACKLOG as u32;

/// An engine on a device.
pub(crate) struct Device {
    pub(crate) endpoint: Endpoint,
    /// Where it serves.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Sockets for what reaches its port another way.
    pub(crate) beside: Vec<TcpListener>,
    pub(crate) card: Option<XdpStatus>,
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
///
/// # Errors
/// When no device could have them, or the process lacks a right.
pub(crate) fn check(listener: &Listener) -> Result<(), GatewayError> {
    let Some(tun) = listener.tun.as_ref().map(Spanned::get_ref) else { return Ok(()) };
    let checked = tun_config(tun).validate().and_then(|()| TunLink::check_permission());
    checked.map_err(|error| GatewayError::Tun(listener.name.get_ref().clone(), error))
}

/// Starts the engine on the listener's device, if it has one.
///
/// # Errors
/// When the device cannot be made, or be used.
pub(crate) fn start(config: &Listener, farm: &Farm) -> Result<Option<Device>, GatewayError> {
    match (&config.tun, &config.xdp) {
        (Some(tun), _) => on_tun(config, tun.get_ref(), farm).map(Some),
        (None, Some(xdp)) => on_card(config, xdp.get_ref(), farm).map(Some),
        (None, None) => Ok(None),
    }
}

fn on_tun(config: &Listener, tun: &Tun, farm: &Farm) -> Result<Device, GatewayError> {
    let device = tun_config(tun);
    let mut engine = engine(tun.address.clone())?;
    Endpoint::prepare_tun(&mut engine, &device);
    let link =
        TunLink::create(device).map_err(|error| GatewayError::Tun(config.name.get_ref().clone(), error))?;
    let endpoint = run(engine, link, config, farm);
    Ok(Device { endpoint, addresses: config.engine_addresses(), beside: Vec::new(), card: None })
}

fn on_card(config: &Listener, xdp: &Xdp, farm: &Farm) -> Result<Device, GatewayError> {
    let fail = |error| GatewayError::Card(config.name.get_ref().clone(), error);
    let card = Card::serve(xdp.device(), &xdp.address, xdp.port).map_err(fail)?;
    let addresses = card.addresses().iter().map(|ip| SocketAddr::new(*ip, xdp.port)).collect();
    let mut engine = engine(card.addresses().to_vec())?;
    card.prepare(&mut engine);
    let beside = card.listeners().map_err(fail)?;
    let queues = card.attach().map_err(fail)?;
    let card = queues.first().map(XdpQueue::status);
    let link = Joined::open(queues).map_err(|error| fail(error.into()))?;
    Ok(Device { endpoint: run(engine, link, config, farm), addresses, beside, card })
}

/// Settings of an engine at these addresses.
fn engine(addresses: Vec<std::net::IpAddr>) -> Result<firstflight::Config, GatewayError> {
    let mut engine = firstflight::config(addresses).map_err(GatewayError::Random)?;
    // HTTP writes whole messages, and the end of one must not wait for an acknowledgement.
    engine.tcp.nodelay = true;
    Ok(engine)
}

fn run(engine: firstflight::Config, link: impl Link + 'static, config: &Listener, farm: &Farm) -> Endpoint {
    match farm.store().filter(|_| config.asks_store()) {
        Some(store) => Endpoint::with_store(engine, link, store.clone() as _),
        None => Endpoint::new(engine, link),
    }
}
