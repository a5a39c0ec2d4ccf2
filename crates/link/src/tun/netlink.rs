//! Gives a device an address through rtnetlink (Linux `rtnetlink(7)`).
//!
//! The older ioctl does not do: it knows one IPv4 address for a device, and cannot say that an IPv6 address needs no
//! duplicate address detection, so that for a moment after it sockets cannot bind to the address.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// `RTM_NEWADDR`.
const NEW_ADDRESS: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_ACK | NLM_F_EXCL | NLM_F_CREATE`.
const CREATE_AND_ACKNOWLEDGE: u16 = 0x001 | 0x004 | 0x200 | 0x400;
/// `NLMSG_ERROR`, also the type of an acknowledgement, with error 0.
const ACKNOWLEDGEMENT: u16 = 2;
/// `IFA_F_NODAD`; ignored for IPv4.
const NO_DUPLICATE_DETECTION: u8 = 0x02;
/// `RT_SCOPE_UNIVERSE`; the kernel finds out itself that a link-local address is one.
const SCOPE_UNIVERSE: u8 = 0;
/// `IFA_ADDRESS`: the peer's address on a point-to-point link, else the same as `IFA_LOCAL`.
const ATTRIBUTE_ADDRESS: u16 = 1;
/// `IFA_LOCAL`.
const ATTRIBUTE_LOCAL: u16 = 2;

const HEADER_BYTES: usize = 16;
const SEQUENCE: u32 = 1;

/// Adds `address` to the device with number `index`. The prefix is routed into the device.
///
/// # Errors
/// The kernel's answer, `EEXIST` if the device has the address already; `EPROTO` if the answer makes no sense.
pub(super) fn add_address(index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
    let route = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    send(
        route.as_raw_fd(),
        &request(index, address, prefix),
        MsgFlags::empty(),
    )?;
    let mut answer = [0; 1024];
    let length = recv(route.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    match error_in(answer.get(..length).unwrap_or_default()) {
        Some(0) => Ok(()),
        Some(error) => Err(Errno::from_raw(error.saturating_neg()).into()),
        None => Err(Errno::EPROTO.into()),
    }
}

/// The message: `struct nlmsghdr`, `struct ifaddrmsg`, two attributes. Numbers in the machine's byte order.
fn request(index: u32, address: IpAddr, prefix: u8) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (AddressFamily::Inet, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::Inet6, address.octets().to_vec()),
    };
    let mut body = vec![family as u8, prefix, NO_DUPLICATE_DETECTION, SCOPE_UNIVERSE];
    body.extend_from_slice(&index.to_ne_bytes());
    for attribute in [ATTRIBUTE_LOCAL, ATTRIBUTE_ADDRESS] {
        // Addresses are multiples of four bytes: no padding.
        body.extend_from_slice(&(octets.len() as u16 + 4).to_ne_bytes());
        body.extend_from_slice(&attribute.to_ne_bytes());
        body.extend_from_slice(&octets);
    }
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&NEW_ADDRESS.to_ne_bytes());
    message.extend_from_slice(&CREATE_AND_ACKNOWLEDGE.to_ne_bytes());
    message.extend_from_slice(&SEQUENCE.to_ne_bytes());
    // Port 0: the kernel fills in the sender.
    message.extend_from_slice(&0u32.to_ne_bytes());
    message.extend_from_slice(&body);
    message
}

/// The error number (negative, or 0 for success) in an acknowledgement of the request.
fn error_in(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let sequence = u32::from_ne_bytes(answer.get(8..12)?.try_into().ok()?);
    let error = answer
        .get(HEADER_BYTES..HEADER_BYTES + 4)?
        .try_into()
        .ok()?;
    (kind == ACKNOWLEDGEMENT && sequence == SEQUENCE).then(|| i32::from_ne_bytes(error))
}
