//! Connections of the kernel that would lose their packets (`sock_diag(7)`).

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::SockProtocol;

use crate::netlink::{LIST, Netlink, message};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `TCPF_LISTEN`, and the number of TIME-WAIT.
const LISTEN: u32 = 1 << 10;
const TIME_WAIT: u8 = 6;
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
///
/// # Errors
/// The system's.
pub(super) fn at(at: SocketAddr) -> io::Result<Present> {
    // struct inet_diag_req_v2: family, protocol, extensions, padding, states, and an empty struct inet_diag_sockid.
    let mut body = vec![0_u8; 56];
    let family = if at.is_ipv4() { nix::libc::AF_INET } else { nix::libc::AF_INET6 };
    body.splice(..2, [family as u8, TCP]);
    body.splice(4..8, (!LISTEN & 0xfff).to_ne_bytes());
    let mut present = Present::default();
    let netlink = Netlink::open(SockProtocol::NetlinkSockDiag)?;
    netlink.request(&message(BY_FAMILY, LIST, &body), |_, body| match state_at(body, at) {
        Some(TIME_WAIT) => present.ended += 1,
        Some(_) => present.live += 1,
        None => {}
    })?;
    Ok(present)
}

/// The state, if the connection is at this address and port.
fn state_at(body: &[u8], at: SocketAddr) -> Option<u8> {
    // struct inet_diag_msg: family, state, timer, retransmissions, and the ports and addresses.
    let state = *body.get(1)?;
    let port = u16::from_be_bytes(body.get(4..6)?.try_into().ok()?);
    let address: IpAddr = match at {
        SocketAddr::V4(_) => <[u8; 4]>::try_from(body.get(8..12)?).ok()?.into(),
        SocketAddr::V6(_) => <[u8; 16]>::try_from(body.get(8..24)?).ok()?.into(),
    };
    (port == at.port() && address == at.ip()).then_some(state)
}
