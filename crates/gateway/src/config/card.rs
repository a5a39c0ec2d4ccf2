//! A network card at a listener.

use super::Listener;
use firstflight::link::xdp::{self, Allow, Prefix, XdpConfig};
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::IpAddr;

/// One port of the host's own addresses on a network card, served by an engine (AF_XDP). The kernel has everything else.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Xdp {
    /// Name of the device.
    pub device: String,
    /// The port.
    pub port: u16,
    /// Whose packets are taken: prefixes as `192.0.2.0/24`, or `any`. The packet filter of the host does not see them.
    pub allow: Vec<String>,
    /// The host's addresses on the device. The default are all that are valid everywhere.
    #[serde(default)]
    pub address: Vec<IpAddr>,
    /// Where the program on the device runs.
    #[serde(default)]
    pub mode: XdpMode,
    /// What about the rules of the packet filter and hooks of tc, which do not see the packets that are taken.
    #[serde(default)]
    pub firewall: XdpFirewall,
}

/// Where the program on the device runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum XdpMode {
    /// In the driver, which must have XDP.
    #[default]
    Driver,
    /// In the kernel's common code, with every driver; needs receive offload off.
    Generic,
    /// Nowhere: a packet socket gets copies of the packets, with every driver and kernel; needs receive offload off.
    Packet,
}

/// What is known of the packet filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum XdpFirewall {
    /// A host that has some is refused.
    #[default]
    None,
    /// They may be bypassed.
    Bypassed,
}

impl Xdp {
    /// The settings of the device.
    pub(crate) fn device(&self) -> XdpConfig {
        let mode = match self.mode {
            XdpMode::Driver => xdp::Mode::Driver,
            XdpMode::Generic => xdp::Mode::Generic,
            XdpMode::Packet => xdp::Mode::Packet,
        };
        let prefixes: Option<Vec<Prefix>> = self.allow.iter().map(|text| text.parse().ok()).collect();
        let allow = prefixes.map_or(Allow::Any, Allow::Prefixes);
        XdpConfig::new(&self.device, allow).mode(mode).bypass_firewall(self.firewall == XdpFirewall::Bypassed)
    }

    /// What is wrong with it at this listener.
    pub(super) fn check(&self, listener: &Listener) -> Result<(), &'static str> {
        let is_right = |text: &String| text == "any" || text.parse::<Prefix>().is_ok();
        if self.allow.is_empty() || !self.allow.iter().all(is_right) {
            return Err(
                "needs allow = [\"any\"], or a list of prefixes as \"192.0.2.0/24\": the packet filter does not see the connections",
            );
        }
        if self.allow.len() > 1 && self.allow.iter().any(|text| text == "any") {
            return Err("allow has any, so the prefixes mean nothing");
        }
        if listener.reuse_port
            && (self.mode == XdpMode::Packet || listener.udp_port.is_some_and(|port| port != 0))
        {
            return Err(
                "shares its port (reuse_port) in the modes driver and generic only, and without udp_port",
            );
        }
        if self.port == 0 {
            return Err("needs a port from 1 to 65535");
        }
        if listener.tun.is_some() {
            return Err("and [listener.tun] exclude each other: use two listeners");
        }
        if !listener.address.get_ref().is_empty() {
            return Err(
                "listens at the host's addresses, and accepts connections that do not come by the device, too: leave address out",
            );
        }
        Ok(())
    }
}
