//! `struct sockaddr`, as bytes.

use libc::{AF_INET, AF_INET6, EAFNOSUPPORT, EINVAL, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Reads an address. An IPv4 address in IPv6 form counts as IPv4.
pub(crate) fn parse(bytes: &[u8]) -> Result<SocketAddr, c_int> {
    let [a, b, port @ ..] = bytes else { return Err(EINVAL) };
    let family = c_int::from(u16::from_ne_bytes([*a, *b]));
    let [c, d, rest @ ..] = port else { return Err(EINVAL) };
    let port = u16::from_be_bytes([*c, *d]);
    match family {
        AF_INET => {
            let octets: [u8; 4] = rest.get(..4).and_then(|o| o.try_into().ok()).ok_or(EINVAL)?;
            Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(octets)), port))
        }
        AF_INET6 => {
            let octets: [u8; 16] = rest.get(4..20).and_then(|o| o.try_into().ok()).ok_or(EINVAL)?;
            Ok(SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), port))
        }
        _ => Err(EAFNOSUPPORT),
    }
}

/// Writes an address in the form of a socket's family (`v6`).
pub(crate) fn emit(address: SocketAddr, v6: bool) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    let mut out = Vec::with_capacity(28);
    match address.ip() {
        IpAddr::V4(ip) if !v6 => {
            out.extend_from_slice(&(AF_INET as u16).to_ne_bytes());
            out.extend_from_slice(&port);
            out.extend_from_slice(&ip.octets());
            out.extend_from_slice(&[0; 8]);
        }
        ip => {
            let ip = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            out.extend_from_slice(&(AF_INET6 as u16).to_ne_bytes());
            out.extend_from_slice(&port);
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&ip.octets());
            out.extend_from_slice(&[0; 4]);
        }
    }
    out
}
