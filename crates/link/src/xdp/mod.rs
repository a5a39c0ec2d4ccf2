//! A real network card, through AF_XDP or a packet socket: an engine serves some ports of the host's own addresses, beside the kernel (Linux).
//!
//! A program on the device takes the packets of the served ports; everything else is the kernel's as before. Routes,
//! neighbours and addresses stay the kernel's too. Nothing is left when the process ends, however it ends.
//!
//! ```no_run
//! use firstflight_link::xdp::{Allow, PortHolder, Transport, Xdp, XdpConfig, XdpDevice};
//! # fn open() -> Result<(), Box<dyn std::error::Error>> {
//! let device = XdpDevice::find("eth0")?;
//! let holder = PortHolder::new("192.0.2.1:80".parse()?, Transport::Tcp, device.index)?;
//! let config = XdpConfig::new("eth0", Allow::Any);
//! // One for each queue of the device. `open` makes a link of it, within the runtime that uses it.
//! let queues = Xdp::attach(&config, vec![holder])?;
//! # let _ = queues; Ok(()) }
//! ```
//!
//! Packets are copied once between kernel and process (copy mode), with every driver. Zero-copy is not used.

mod assembler;
mod attached;
mod connections;
mod device;
mod error;
mod events;
mod features;
mod firewall;
mod frame;
mod hand_over;
mod holder;
mod joined;
mod later;
mod maps;
mod neighbours;
mod owner;
mod packet;
mod privileges;
mod program;
#[cfg(test)]
mod program_tests;
mod queue;
mod rings;
mod routes;
mod screen;
mod socket;
mod status;
mod steering;
mod sys;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

pub use device::XdpDevice;
pub use error::XdpError;
pub use holder::PortHolder;
pub use joined::Joined;
pub use later::{LateDevice, LateQueue};
pub use privileges::give_up_privileges;
pub use queue::{Xdp, XdpQueue};
pub use status::{XdpCounters, XdpStatus};

/// Where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel makes a packet of its own. The driver must have XDP.
    #[default]
    Driver,
    /// In the kernel's common code, with every driver. Slower, and it needs receive offload off.
    Generic,
    /// Nowhere: a packet socket (`AF_PACKET`) gets copies of the packets, and this process looks at them. It works with every driver
    /// and kernel, also where BPF is forbidden, and needs receive offload off. The kernel works for each packet, too.
    Packet,
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP, which carries TCP segments.
    Udp,
}

/// Whose packets are taken. The host's packet filter does not see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allow {
    /// Everybody's.
    Any,
    /// Those from these prefixes. Others are dropped and counted.
    Prefixes(Vec<Prefix>),
}

/// The addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Any address of them.
    pub address: IpAddr,
    /// The number of bits, at most 32 or 128.
    pub len: u8,
}

/// A text is no prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write an address and a number of bits, as 192.0.2.0/24 or 2001:db8::/32")]
pub struct PrefixError;

impl FromStr for Prefix {
    type Err = PrefixError;

    /// An address with its number of bits. Without a number it is one address.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let address: IpAddr = address.parse().map_err(|_| PrefixError)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => most,
            Some(len) => len.parse().ok().filter(|len| *len <= most).ok_or(PrefixError)?,
        };
        Ok(Self { address, len })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// The settings of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct XdpConfig {
    /// The device's name.
    pub device: String,
    /// Where the program runs.
    pub mode: Mode,
    /// Whose packets are taken.
    pub allow: Allow,
    /// The packets may bypass the rules of the packet filter and the hooks of tc. Without this, a host that has some is
    /// refused.
    pub bypass_firewall: bool,
    /// The ports are shared with another process, the one that is replaced or replaces this one: with
    /// [`PortHolder::shared`]. The program then passes the kernel's connections. Not with [`Mode::Packet`], and TCP
    /// only.
    pub hand_over: bool,
}

firstflight_wire::setters! {
    XdpConfig {
        mode: Mode,
        bypass_firewall: bool,
        hand_over: bool,
    }
}

impl XdpConfig {
    /// Serves on `device`, in the driver, those that are allowed.
    #[must_use]
    pub fn new(device: &str, allow: Allow) -> Self {
        Self {
            device: device.to_owned(),
            mode: Mode::default(),
            allow,
            bypass_firewall: false,
            hand_over: false,
        }
    }
}
