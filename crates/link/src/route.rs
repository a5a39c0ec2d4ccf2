//! The kernel's routes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The source address that the kernel would use for `remote`, with port 0. A link-local address includes its
/// interface (scope).
///
/// # Errors
/// Those of the system, for example if there is no route to `remote`.
pub fn source_for(remote: SocketAddr) -> io::Result<SocketAddr> {
    let any: IpAddr =
        if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Connecting a UDP socket sends nothing. It only looks up the route.
    let route = std::net::UdpSocket::bind(SocketAddr::new(any, 0))?;
    route.connect(remote)?;
    let mut local = route.local_addr()?;
    local.set_port(0);
    Ok(local)
}
