//! Whether the kernel has a cookie for a server, through generic netlink (`linux/tcp_metrics.h`). It needs no privileges.

use std::io;
use std::net::IpAddr;

/// Whether the kernel has a Fast Open cookie for `server`, so that a SYN to it can carry data. False also where that
/// cannot be found out. Nothing is sent over the network.
///
/// # Errors
/// When the kernel cannot be asked. [`io::ErrorKind::Unsupported`] on other systems than Linux.
pub fn has_cookie(server: IpAddr) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        linux::has_cookie(server)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = server;
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(any(target_os = "linux", test))]
mod message {
    use std::io;

    /// `struct nlmsghdr` and `struct genlmsghdr`.
    const NETLINK: usize = 16;
    const HEADERS: usize = NETLINK + 4;
    /// `NLMSG_ERROR`.
    const ERROR: u16 = 2;
    /// `NLM_F_REQUEST`.
    const REQUEST: u16 = 1;

    /// A request of generic netlink with these attributes.
    pub(super) fn request(family: u16, command: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend(family.to_ne_bytes());
        bytes.extend(REQUEST.to_ne_bytes());
        // Sequence number, and the port: the kernel's.
        bytes.extend([0; 8]);
        // The version of both families that are asked is 1; the rest is reserved.
        bytes.extend([command, 1, 0, 0]);
        for (attribute, value) in attributes {
            bytes.extend((4 + value.len() as u16).to_ne_bytes());
            bytes.extend(attribute.to_ne_bytes());
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes
    }

    /// The value of an attribute in an answer; `None` if the kernel knows nothing, or the attribute is missing.
    pub(super) fn attribute(answer: &[u8], wanted: u16) -> io::Result<Option<&[u8]>> {
        if half(answer, 4)? == ERROR {
            let code = i32::from_ne_bytes(part(answer, NETLINK)?);
            // `ESRCH`: there is no entry. `ENOENT`: there is no such family.
            return match -code {
                0 | 2 | 3 => Ok(None),
                code => Err(io::Error::from_raw_os_error(code)),
            };
        }
        let mut rest = answer.get(HEADERS..).unwrap_or_default();
        while rest.len() >= 4 {
            let (len, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
            let value = rest.get(4..len).ok_or(io::ErrorKind::InvalidData)?;
            // The upper two bits are flags.
            if kind & 0x3fff == wanted {
                return Ok(Some(value));
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(None)
    }

    fn half(bytes: &[u8], at: usize) -> io::Result<u16> {
        part(bytes, at).map(u16::from_ne_bytes)
    }

    fn part<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
        let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
        found.copied().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use super::message::{attribute, request};
    use socket2::{Domain, Protocol, Socket, Type};
    use std::io::{self, Read as _};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
    use std::time::Duration;

    /// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME`.
    const CONTROLLER: u16 = 16;
    const GET_FAMILY: u8 = 3;
    const FAMILY_ID: u16 = 1;
    const FAMILY_NAME: u16 = 2;
    /// `TCP_METRICS_CMD_GET`, `TCP_METRICS_ATTR_ADDR_IPV4`, `…_IPV6`, `…_FOPEN_COOKIE`, `…_SADDR_IPV4` and `…_IPV6`.
    const GET: u8 = 1;
    const ADDRESS_V4: u16 = 1;
    const ADDRESS_V6: u16 = 2;
    const COOKIE: u16 = 10;
    const FROM_V4: u16 = 11;
    const FROM_V6: u16 = 12;
    /// The discard port. Nothing is sent to it.
    const DISCARD: u16 = 9;
    /// The kernel answers at once. It never answers what it does not understand.
    const PATIENCE: Duration = Duration::from_millis(100);

    pub(super) fn has_cookie(server: IpAddr) -> io::Result<bool> {
        let kind = Type::RAW.cloexec();
        let protocol = Protocol::from(libc::NETLINK_GENERIC);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), kind, Some(protocol))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut buffer = [0; 4096];
        let name = request(CONTROLLER, GET_FAMILY, &[(FAMILY_NAME, b"tcp_metrics\0")]);
        let answer = ask(&socket, &name, &mut buffer)?;
        let Some([low, high, ..]) = attribute(answer, FAMILY_ID)? else { return Ok(false) };
        let family = u16::from_ne_bytes([*low, *high]);
        let server = server.to_canonical();
        // The kernel keeps what it knows by both addresses. Without ours it would tell of the one that it used before.
        let question = match (server, source(server)?) {
            (IpAddr::V4(ip), IpAddr::V4(from)) => {
                request(family, GET, &[(ADDRESS_V4, &ip.octets()), (FROM_V4, &from.octets())])
            }
            (IpAddr::V6(ip), IpAddr::V6(from)) => {
                request(family, GET, &[(ADDRESS_V6, &ip.octets()), (FROM_V6, &from.octets())])
            }
            _ => return Ok(false),
        };
        let answer = ask(&socket, &question, &mut buffer)?;
        Ok(attribute(answer, COOKIE)?.is_some_and(|cookie| !cookie.is_empty()))
    }

    /// The address from which a connection to `server` would leave.
    fn source(server: IpAddr) -> io::Result<IpAddr> {
        let any = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind::<(IpAddr, u16)>((any, 0))?;
        match socket.connect((server, DISCARD)) {
            Ok(()) => Ok(socket.local_addr()?.ip()),
            // There is no way to it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH)) => {
                Ok(any)
            }
            Err(error) => Err(error),
        }
    }

    fn ask<'a>(mut socket: &Socket, question: &[u8], buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        socket.send(question)?;
        let len = socket.read(buffer)?;
        buffer.get(..len).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests;
