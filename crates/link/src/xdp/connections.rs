//! Connections of the kernel that would lose their packets (`sock_diag(7)`).

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::SockProtocol;

use crate::netlink::{LIST, Netlink, message};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `TCPF_LISTEN`, and the bits of all states.
const LISTEN: u32 = 1 << 10;
const ALL: u32 = (1 << 13) - 1;
/// `idiag_timer` of a connection that is over: in TIME-WAIT, or what is left of one in FIN-WAIT-2 whose application has closed it.
const OVER: u8 = 3;
const TCP: u8 = 6;

/// What the kernel has at an address and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    /// Connections.
    pub(super) live: u32,
    /// Connections that are over, in TIME-WAIT.
    pub(super) ended: u32,
}

/// Counts the kernel's connections at `at`, without sockets that listen.
pub(super) fn at(at: SocketAddr) -> io::Result<Present> {
    let mut present = Present::default();
    each(at, |is_over, _| *if is_over { &mut present.ended } else { &mut present.live } += 1)?;
    Ok(present)
}

/// The other ends of the kernel's connections at `at`: those that begin or are open, and those that are over, in TIME-WAIT.
pub(super) fn peers(at: SocketAddr) -> io::Result<(Vec<SocketAddr>, Vec<SocketAddr>)> {
    let (mut live, mut ended) = (Vec::new(), Vec::new());
    each(at, |is_over, peer| if is_over { &mut ended } else { &mut live }.push(peer))?;
    Ok((live, ended))
}

fn each(at: SocketAddr, mut each: impl FnMut(bool, SocketAddr)) -> io::Result<()> {
    // struct inet_diag_req_v2: family, protocol, extensions, padding, states, and an empty struct inet_diag_sockid.
    let mut body = vec![0_u8; 56];
    let family = if at.is_ipv4() { nix::libc::AF_INET } else { nix::libc::AF_INET6 };
    body.splice(..2, [family as u8, TCP]);
    body.splice(4..8, (!LISTEN & ALL).to_ne_bytes());
    // The kernel leaves those of other ports out.
    body.splice(8..10, at.port().to_be_bytes());
    let netlink = Netlink::open(SockProtocol::NetlinkSockDiag)?;
    netlink.request(&message(BY_FAMILY, LIST, &body), |_, body| {
        if let Some((is_over, peer)) = connection_at(body, at) {
            each(is_over, peer);
        }
    })
}

/// Whether it is over, and the other end, if the connection is at this address and port.
fn connection_at(body: &[u8], at: SocketAddr) -> Option<(bool, SocketAddr)> {
    // struct inet_diag_msg: family, state, timer, retransmissions, and the ports and addresses.
    let is_over = *body.get(2)? == OVER;
    let port = |place: usize| Some(u16::from_be_bytes(body.get(place..place + 2)?.try_into().ok()?));
    let ip = |place: usize| -> Option<IpAddr> {
        Some(match at {
            SocketAddr::V4(_) => <[u8; 4]>::try_from(body.get(place..place + 4)?).ok()?.into(),
            SocketAddr::V6(_) => <[u8; 16]>::try_from(body.get(place..place + 16)?).ok()?.into(),
        })
    };
    let is_here = (ip(8)?, port(4)?) == (at.ip(), at.port());
    is_here.then_some((is_over, SocketAddr::new(ip(24)?, port(6)?)))
}
