//! What a driver says that it can do with XDP (the family `netdev` of generic netlink, Linux 6.3).

use std::io;

use nix::sys::socket::SockProtocol;

use crate::netlink::{Netlink, append, attributes, message};

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID`, `CTRL_ATTR_FAMILY_NAME`.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `NETDEV_CMD_DEV_GET`, `NETDEV_A_DEV_IFINDEX`, `NETDEV_A_DEV_XDP_FEATURES`.
const DEVICE_GET: u8 = 1;
const DEVICE: u16 = 1;
const FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_BASIC | NETDEV_XDP_ACT_REDIRECT`.
const NEEDED: u64 = 1 | 2;
/// `NLM_F_REQUEST`, and the length of `struct genlmsghdr`.
const REQUEST: u16 = 1;
const BODY: usize = 4;

/// Whether the driver runs programs that redirect. `None` if the kernel does not say.
pub(super) fn driver_redirects(device: u32) -> Option<bool> {
    read(device).ok().flatten().map(|features| features & NEEDED == NEEDED)
}

fn read(device: u32) -> io::Result<Option<u64>> {
    let netlink = Netlink::open(SockProtocol::NetlinkGeneric)?;
    let family = find(&netlink, CONTROL, GET_FAMILY, FAMILY_NAME, b"netdev\0", FAMILY_ID)?;
    let Some(family) = family.and_then(|id| Some(u16::from_ne_bytes(*id.first_chunk()?))) else {
        return Ok(None);
    };
    let features = find(&netlink, family, DEVICE_GET, DEVICE, &device.to_ne_bytes(), FEATURES)?;
    Ok(features.and_then(|bits| Some(u64::from_ne_bytes(*bits.first_chunk()?))))
}

/// Asks with one attribute for another one.
fn find(
    netlink: &Netlink,
    family: u16,
    command: u8,
    asked: u16,
    value: &[u8],
    wanted: u16,
) -> io::Result<Option<Vec<u8>>> {
    // struct genlmsghdr: command, version, padding.
    let mut body = vec![command, 1, 0, 0];
    append(&mut body, asked, value);
    let mut found = None;
    netlink.request(&message(family, REQUEST, &body), |_, body| {
        let attribute = attributes(body.get(BODY..).unwrap_or_default()).find(|(kind, _)| *kind == wanted);
        found = attribute.map(|(_, value)| value.to_vec());
    })?;
    Ok(found)
}
