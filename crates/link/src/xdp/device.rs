//! What is known of a device before it is used.

use std::io;
use std::net::IpAddr;

use nix::sys::socket::SockProtocol;

use super::socket::LONGEST;
use super::{Mode, XdpError, features, firewall, frame, sys};
use crate::netlink::{LIST, Netlink, append, attributes, message, word_at};

/// `RTM_GETLINK`, `RTM_GETADDR`, `RTM_GETQDISC`.
const GET_LINK: u16 = 18;
const GET_ADDRESS: u16 = 22;
const GET_DISCIPLINE: u16 = 38;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// Lengths of `struct ifinfomsg`, `struct ifaddrmsg` and `struct tcmsg`.
pub(super) const LINK_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 8;
const DISCIPLINE_BYTES: usize = 20;
/// `IFLA_ADDRESS`, `IFLA_IFNAME`, `IFLA_MTU`, `IFLA_LINK`, `IFLA_MASTER`, `IFLA_LINKINFO`; `IFLA_INFO_KIND`.
const HARDWARE_ADDRESS: u16 = 1;
const NAME: u16 = 3;
pub(super) const MTU: u16 = 4;
const LOWER: u16 = 5;
const MASTER: u16 = 10;
const INFORMATION: u16 = 18;
const KIND: u16 = 1;
/// `IFLA_XDP`; `IFLA_XDP_ATTACHED`.
const PROGRAM: u16 = 43;
const ATTACHED: u16 = 2;
/// `IFA_ADDRESS`, `IFA_LOCAL`, `IFA_FLAGS`.
pub(super) const ADDRESS: u16 = 1;
pub(super) const LOCAL: u16 = 2;
const FLAGS: u16 = 8;
/// `IFA_F_TEMPORARY | IFA_F_TENTATIVE | IFA_F_DADFAILED | IFA_F_DEPRECATED`.
const UNSTABLE: u32 = 0x01 | 0x40 | 0x08 | 0x20;
/// `RT_SCOPE_UNIVERSE`.
const UNIVERSE: u8 = 0;
/// `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;
/// `IFF_UP`.
pub(super) const UP: u32 = 1;
/// `TCA_KIND`.
const DISCIPLINE: u16 = 1;

/// `ETHTOOL_GGRO`, `ETHTOOL_GFLAGS` and its bit for VLAN tags, `ETHTOOL_GCHANNELS`.
const GRO: u32 = 0x2b;
const OFFLOADS: u32 = 0x25;
const VLAN_OFFLOAD: u32 = 1 << 8;
const CHANNELS: u32 = 0x3c;

/// A network device, as `serve --xdp` sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct XdpDevice {
    /// Its name.
    pub name: String,
    /// Its number in the kernel.
    pub index: u32,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// Its largest IP packet, bytes.
    pub mtu: usize,
    /// Whether it is up.
    pub up: bool,
    /// Its receive queues.
    pub queues: u32,
    /// What the kernel calls this kind of virtual device, as `veth`; empty for hardware.
    pub kind: String,
    /// The addresses of it that are valid everywhere and stay.
    pub addresses: Vec<IpAddr>,
    /// Generic receive offload joins packets.
    pub gro: bool,
    /// Why it cannot be used, if that is known.
    pub unusable: Option<String>,
}

/// `struct ethtool_value`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    send: u32,
    other: u32,
    combined: u32,
}

impl XdpDevice {
    /// Looks at a device of the caller's network namespace.
    ///
    /// # Errors
    /// [`XdpError::NoDevice`], [`XdpError::NotEthernet`], and the system's.
    pub fn find(name: &str) -> Result<Self, XdpError> {
        let fail = XdpError::at("look at the device");
        let netlink = Netlink::open(SockProtocol::NetlinkRoute).map_err(&fail)?;
        let mut found = None;
        let mut links: Vec<Link> = Vec::new();
        let list = message(GET_LINK, LIST, &[0; LINK_BYTES]);
        netlink.request(&list, |_, body| links.extend(Link::read(body))).map_err(&fail)?;
        for link in &links {
            if link.name == name {
                found = Some(link.clone());
            }
        }
        let Some(link) = found else { return Err(XdpError::NoDevice(name.to_owned())) };
        let (true, Ok(mac)) = (link.ethernet, <[u8; 6]>::try_from(link.mac.as_slice())) else {
            return Err(XdpError::NotEthernet(name.to_owned()));
        };
        let addresses = addresses(link.index).map_err(&fail)?;
        let vlan = links.iter().find(|other| other.kind == "vlan" && other.lower == Some(link.index));
        let unusable = if link.master.is_some() {
            Some(
                "another device owns it (a bond or a bridge), and its packets belong to that device"
                    .to_owned(),
            )
        } else if let (Some(vlan), true) = (vlan, has_vlan_offload(name)) {
            Some(format!(
                "it takes VLAN tags away ({} is on it), so the packets of a VLAN look like its own: ethtool -K {name} \
                 rx-vlan-offload off",
                vlan.name
            ))
        } else {
            None
        };
        Ok(Self {
            name: name.to_owned(),
            index: link.index,
            mac,
            mtu: link.mtu,
            up: link.up,
            queues: queues(name),
            kind: link.kind,
            addresses,
            gro: value(name, GRO).is_ok_and(|on| on != 0),
            unusable,
        })
    }

    /// Whether it can be used at all, in one of the modes.
    ///
    /// # Errors
    /// [`XdpError::Unusable`], [`XdpError::Down`], [`XdpError::Mtu`].
    pub fn check(&self) -> Result<(), XdpError> {
        let name = || self.name.clone();
        if let Some(why) = self.unusable.clone() {
            return Err(XdpError::Unusable { device: name(), why });
        }
        if !self.up {
            return Err(XdpError::Down(name()));
        }
        let most = LONGEST - frame::HEADER;
        match self.mtu > most {
            true => Err(XdpError::Mtu { device: name(), mtu: self.mtu, most }),
            false => Ok(()),
        }
    }

    /// Whether its driver says that it can run the program ([`Mode::Driver`]). `None` if the kernel does not know: before Linux
    /// 6.3.
    #[must_use]
    pub fn driver_has_xdp(&self) -> Option<bool> {
        features::driver_redirects(self.index)
    }

    /// What would see or drop packets to this host, and does not see those that are taken, in words. `None` if there is nothing.
    ///
    /// # Errors
    /// The system's, as without privileges.
    pub fn in_the_way(&self) -> io::Result<Option<String>> {
        firewall::in_the_way(self.index)
    }

    /// Where checksums may be left to the receiver, because the sender is on this machine.
    pub(super) fn may_have_partial_checksums(&self, mode: Mode) -> bool {
        self.kind == "veth" || mode != Mode::Driver && self.is_virtio()
    }

    fn is_virtio(&self) -> bool {
        std::fs::read_link(format!("/sys/class/net/{}/device/driver", self.name))
            .is_ok_and(|driver| driver.ends_with("virtio_net"))
    }
}

/// What rtnetlink says about a device.
#[derive(Clone, Default)]
struct Link {
    index: u32,
    name: String,
    mac: Vec<u8>,
    mtu: usize,
    up: bool,
    ethernet: bool,
    kind: String,
    lower: Option<u32>,
    master: Option<u32>,
}

impl Link {
    fn read(body: &[u8]) -> Option<Self> {
        let mut link = Self {
            ethernet: body.get(2..4)? == ETHERNET.to_ne_bytes(),
            index: word_at(body, 4)?,
            up: word_at(body, 8)? & UP != 0,
            ..Self::default()
        };
        for (kind, value) in attributes(body.get(LINK_BYTES..)?) {
            match kind {
                HARDWARE_ADDRESS => link.mac = value.to_vec(),
                NAME => link.name = text(value),
                MTU => link.mtu = word_at(value, 0)? as usize,
                LOWER => link.lower = word_at(value, 0),
                MASTER => link.master = word_at(value, 0),
                INFORMATION => {
                    let kind = attributes(value).find(|(kind, _)| *kind == KIND);
                    link.kind = kind.map(|(_, name)| text(name)).unwrap_or_default();
                }
                _ => {}
            }
        }
        Some(link)
    }
}

fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

/// The addresses of a device that are valid everywhere and stay.
pub(super) fn addresses(device: u32) -> io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    let list = message(GET_ADDRESS, LIST, &[0; ADDRESS_BYTES]);
    Netlink::open(SockProtocol::NetlinkRoute)?
        .request(&list, |_, body| addresses.extend(address(body, device)))?;
    Ok(addresses)
}

/// An address of the device that is valid everywhere, and not one that goes soon.
fn address(body: &[u8], device: u32) -> Option<IpAddr> {
    let mut flags = u32::from(*body.get(2)?);
    if word_at(body, 4)? != device || *body.get(3)? != UNIVERSE {
        return None;
    }
    let (mut local, mut other) = (None, None);
    for (kind, value) in attributes(body.get(ADDRESS_BYTES..)?) {
        match kind {
            LOCAL => local = crate::netlink::address_of(value),
            ADDRESS => other = crate::netlink::address_of(value),
            FLAGS => flags = word_at(value, 0)?,
            _ => {}
        }
    }
    let address = local.or(other)?;
    // The first flag means something else for IPv4: an address of a network that has one already.
    let unstable = if address.is_ipv4() { UNSTABLE & !1 } else { UNSTABLE };
    (flags & unstable == 0).then_some(address)
}

fn value(name: &str, command: u32) -> io::Result<u32> {
    let mut value = Value { command, data: 0 };
    sys::ethtool(name, &mut value)?;
    Ok(value.data)
}

fn has_vlan_offload(name: &str) -> bool {
    value(name, OFFLOADS).is_ok_and(|flags| flags & VLAN_OFFLOAD != 0)
}

/// The number of receive queues, if the driver says it.
pub(super) fn channels(name: &str) -> Option<u32> {
    let mut channels = Channels { command: CHANNELS, ..Channels::default() };
    sys::ethtool(name, &mut channels).ok()?;
    Some(channels.receive + channels.combined).filter(|count| *count > 0)
}

/// The number of receive queues. A driver that cannot say has those that the device was made with.
fn queues(name: &str) -> u32 {
    if let Some(count) = channels(name) {
        return count;
    }
    let listed = std::fs::read_dir(format!("/sys/class/net/{name}/queues")).map(|all| {
        let names = all.flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with("rx-")).count()
    });
    listed.ok().and_then(|count| u32::try_from(count).ok()).unwrap_or(1).max(1)
}

/// Whether the device has a hook of tc where packets come in (`clsact` or `ingress`).
pub(super) fn has_ingress_hook(device: u32) -> io::Result<bool> {
    let mut question = vec![0; DISCIPLINE_BYTES];
    question.splice(4..8, device.to_ne_bytes());
    let mut found = false;
    let list = message(GET_DISCIPLINE, LIST, &question);
    Netlink::open(SockProtocol::NetlinkRoute)?.request(&list, |_, body| {
        let kind = attributes(body.get(DISCIPLINE_BYTES..).unwrap_or_default())
            .find(|(kind, _)| *kind == DISCIPLINE)
            .map(|(_, name)| text(name));
        let here = word_at(body, 4) == Some(device);
        found |= here && matches!(kind.as_deref(), Some("clsact" | "ingress"));
    })?;
    Ok(found)
}

/// Whether a program of XDP is on the device.
pub(super) fn has_program(device: u32) -> io::Result<bool> {
    let mut found = false;
    Netlink::open(SockProtocol::NetlinkRoute)?.request(&question(device), |_, body| {
        let parts = attributes(body.get(LINK_BYTES..).unwrap_or_default());
        let mut program = parts.filter(|(kind, _)| *kind == PROGRAM).flat_map(|(_, value)| attributes(value));
        found |= program.any(|(kind, mode)| kind == ATTACHED && mode.first() != Some(&0));
    })?;
    Ok(found)
}

/// The request for one device. Its answer is one message.
pub(super) fn question(device: u32) -> Vec<u8> {
    let mut body = vec![0; LINK_BYTES];
    body.splice(4..8, device.to_ne_bytes());
    // RTEXT_FILTER_SKIP_STATS.
    append(&mut body, 29, &8_u32.to_ne_bytes());
    message(GET_LINK, REQUEST, &body)
}
