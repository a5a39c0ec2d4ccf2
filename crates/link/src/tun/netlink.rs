//! Gives a device an address, takes its queueing discipline away, moves it to another network namespace, or asks for a
//! neighbour's link-layer address, through rtnetlink (Linux `rtnetlink(7)`).
//!
//! For addresses the older ioctl is not sufficient. It knows only one IPv4 address for a device. It cannot
//! switch off the duplicate address detection of an IPv6 address, so for a moment sockets could not bind to
//! the address. Even without detection the kernel makes the local route of an IPv6 address later, in a work
//! queue, and until then packets to the address are lost. So this module waits for the route.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::netlink::{HEADER_BYTES, append, append_address, ask, command, family, kind_of, message};

/// `RTM_NEWADDR`.
const NEW_ADDRESS: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_ACK | NLM_F_EXCL | NLM_F_CREATE`.
const CREATE_AND_ACKNOWLEDGE: u16 = 0x001 | 0x004 | 0x200 | 0x400;
/// `IFA_F_NODAD`; ignored for IPv4.
const NO_DUPLICATE_DETECTION: u8 = 0x02;
/// `RT_SCOPE_UNIVERSE`. The kernel itself recognises a link-local address.
const SCOPE_UNIVERSE: u8 = 0;
/// `IFA_ADDRESS`: the peer's address on a point-to-point link, else the same as `IFA_LOCAL`.
const ATTRIBUTE_ADDRESS: u16 = 1;
/// `IFA_LOCAL`.
const ATTRIBUTE_LOCAL: u16 = 2;

/// `RTM_NEWQDISC`.
const NEW_DISCIPLINE: u16 = 36;
/// `TC_H_ROOT`: all that leaves the device.
const ROOT: u32 = u32::MAX;
/// `TCA_KIND`.
const ATTRIBUTE_DISCIPLINE: u16 = 1;

/// `RTM_NEWLINK`, which also changes a device.
const SET_LINK: u16 = 16;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const ACKNOWLEDGE: u16 = 0x001 | 0x004;
/// `IFLA_IFNAME`.
const ATTRIBUTE_NAME: u16 = 3;
/// `IFLA_NET_NS_FD`.
const ATTRIBUTE_NAMESPACE: u16 = 28;

/// `RTM_GETROUTE`.
const GET_ROUTE: u16 = 26;
/// `RTM_NEWROUTE`, the answer to it.
const ROUTE: u16 = 24;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 0x001;
/// `RTN_LOCAL`.
const TYPE_LOCAL: u8 = 2;
/// `RTA_DST`.
const ATTRIBUTE_DESTINATION: u16 = 1;

/// `RTM_GETNEIGH`.
const GET_NEIGHBOUR: u16 = 30;
/// `RTM_NEWNEIGH`, the answer to it.
const NEIGHBOUR: u16 = 28;
/// `NDA_DST`.
const ATTRIBUTE_NEIGHBOUR: u16 = 1;
/// `NDA_LLADDR`.
const ATTRIBUTE_LINK_ADDRESS: u16 = 2;
/// `NUD_INCOMPLETE | NUD_FAILED`.
const UNRESOLVED: u16 = 0x01 | 0x20;

/// How long the kernel may take for a local route. It needs microseconds, or milliseconds while other devices
/// are added and removed.
const PATIENCE: Duration = Duration::from_secs(5);

const ROUTE_BYTES: usize = 12;
const LINK_BYTES: usize = 16;
const NEIGHBOUR_BYTES: usize = 12;
const TRAFFIC_BYTES: usize = 20;

/// Adds `address` to the device with number `index`. The prefix is routed into the device.
/// Errors: the kernel's answer, with `EEXIST` if the device has the address already. `EPROTO` if the answer is invalid.
pub(super) fn add_address(index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
    let mut body = vec![family(address), prefix, NO_DUPLICATE_DETECTION, SCOPE_UNIVERSE];
    body.extend_from_slice(&index.to_ne_bytes());
    append_address(&mut body, ATTRIBUTE_LOCAL, address);
    append_address(&mut body, ATTRIBUTE_ADDRESS, address);
    command(&message(NEW_ADDRESS, CREATE_AND_ACKNOWLEDGE, &body))
}

/// Lets the device with number `index`, which is down, have no queueing discipline (`noqueue`): packets go straight into
/// the queues of the driver.
/// Errors: the kernel's answer, for example if it has no queueing disciplines at all. `EPROTO` if the answer is
/// invalid.
pub(super) fn without_discipline(index: u32) -> io::Result<()> {
    // struct tcmsg: family, padding, index, own handle (the kernel chooses), parent, and information.
    let mut body = vec![0; TRAFFIC_BYTES];
    body.splice(4..8, index.to_ne_bytes());
    body.splice(12..16, ROOT.to_ne_bytes());
    append(&mut body, ATTRIBUTE_DISCIPLINE, b"noqueue\0");
    command(&message(NEW_DISCIPLINE, CREATE_AND_ACKNOWLEDGE, &body))
}

/// Moves the device with number `index` to `namespace`, where it is called `name`.
/// Errors: the kernel's answer, with `EEXIST` if a device of that name exists already. `EPROTO` if the answer is
/// invalid.
pub(super) fn move_device(index: u32, namespace: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    // struct ifinfomsg: family, padding, type, index, flags, and which flags to change: none.
    let mut body = vec![0; LINK_BYTES];
    body.splice(4..8, index.to_ne_bytes());
    append(&mut body, ATTRIBUTE_NAMESPACE, &namespace.as_raw_fd().to_ne_bytes());
    let mut terminated = name.as_bytes().to_vec();
    terminated.push(0);
    append(&mut body, ATTRIBUTE_NAME, &terminated);
    command(&message(SET_LINK, ACKNOWLEDGE, &body))
}

/// Waits until the kernel accepts packets for `address`, which is one of its own.
/// Errors: the kernel's answer; `ETIMEDOUT` after five seconds.
pub(super) fn wait_until_local(address: IpAddr) -> io::Result<()> {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    // struct rtmsg: family, length of the destination, and no further conditions.
    let mut body = vec![0; ROUTE_BYTES];
    body.splice(..2, [family(address), bits]);
    append_address(&mut body, ATTRIBUTE_DESTINATION, address);
    let question = message(GET_ROUTE, REQUEST, &body);
    let start = Instant::now();
    loop {
        if route_type_in(&ask(&question)?) == Some(TYPE_LOCAL) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(Errno::ETIMEDOUT.into());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// The link-layer address of a neighbour on the device with number `index`, if the kernel knows it (Linux 5.0).
pub(super) fn link_address(index: u32, neighbour: IpAddr) -> io::Result<Option<Vec<u8>>> {
    // struct ndmsg: family, padding, index, and no further conditions.
    let mut body = vec![0; NEIGHBOUR_BYTES];
    body.splice(..1, [family(neighbour)]);
    body.splice(4..8, index.to_ne_bytes());
    append_address(&mut body, ATTRIBUTE_NEIGHBOUR, neighbour);
    Ok(link_address_in(&ask(&message(GET_NEIGHBOUR, REQUEST, &body))?))
}

/// The `rtm_type` of the route in an answer.
fn route_type_in(answer: &[u8]) -> Option<u8> {
    let route_type = answer.get(HEADER_BYTES + 7)?;
    (kind_of(answer)? == ROUTE).then_some(*route_type)
}

/// The link-layer address in an answer, if it is resolved.
fn link_address_in(answer: &[u8]) -> Option<Vec<u8>> {
    let state = answer.get(HEADER_BYTES + 8..HEADER_BYTES + 10)?.try_into().ok()?;
    if kind_of(answer)? != NEIGHBOUR || u16::from_ne_bytes(state) & UNRESOLVED != 0 {
        return None;
    }
    let mut rest = answer.get(HEADER_BYTES + NEIGHBOUR_BYTES..)?;
    loop {
        // struct rtattr: length with this header, type, value, padding.
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        let value = rest.get(4..length)?;
        if kind == ATTRIBUTE_LINK_ADDRESS {
            return (!value.is_empty()).then(|| value.to_vec());
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}
