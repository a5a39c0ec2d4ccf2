//! The part of a server that serves UDP.

mod builder;

use super::{Policies, Served, inherited};
use crate::endpoint::Endpoint;
use crate::server::ServerBuilder;
use firstflight_link::UdpLink;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

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
    pub engine: Option<crate::Config>,
}

/// Serves UDP as `builder` says, for listeners at `addresses`. `None` if the server is not to serve UDP, or another program has the port.
pub(super) fn serve(
    builder: &ServerBuilder,
    addresses: &[SocketAddr],
    policies: &Policies,
) -> io::Result<Option<Served>> {
    let Some(first) = addresses.first() else { return Ok(None) };
    let (port, required) = match builder.udp.port {
        Port::None => return Ok(None),
        // The UDP port cannot be shared.
        Port::Same if builder.share_port => return Ok(None),
        // Fronts would hand over, and clients of a verifier would ask, in vain.
        Port::Same => {
            let required = builder.fronts.are_wanted() || builder.first_flights.verifier.is_some();
            (first.port(), required)
        }
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
    let endpoint = match &builder.store {
        Some(store) => Endpoint::with_store(config, link, Arc::clone(store)),
        None => Endpoint::new(config, link),
    };
    if let Some(verifier) = &builder.first_flights.verifier {
        endpoint.verify(verifier)?;
    }
    let listeners =
        addresses.iter().map(|address| policies.listen(&endpoint, *address)).collect::<Result<_, _>>()?;
    Ok(Some(Served { endpoint, port, listeners }))
}

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
