//! The options of a network card beside the kernel (`--xdp`).

use clap::ValueEnum;
use firstflight::link::xdp::{Allow, Mode, XdpConfig, XdpError};
use firstflight::{Card, CardError};
use firstflight_daemon::ExitKind;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The options of `get`.
#[derive(clap::Args)]
pub struct CardOptions {
    /// Use this network card beside the kernel (AF_XDP), at the host's own addresses. Needs root, and Linux 5.9. Connections of
    /// the engine end when the process does, and the packet filter does not see their packets
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["udp", "tun", "mtu"])]
    xdp: Option<String>,
    /// Where the program on the device runs
    #[arg(long, value_enum, value_name = "MODE", default_value_t = ProgramPlace::Driver, requires = "xdp")]
    xdp_mode: ProgramPlace,
    /// What about the rules of the packet filter and hooks of tc, which do not see the packets that are taken
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Firewall::None, requires = "xdp")]
    xdp_firewall: Firewall,
}

/// Where the program runs.
#[derive(Clone, Copy, ValueEnum)]
enum ProgramPlace {
    /// In the driver, which must have XDP
    Driver,
    /// In the kernel's common code, with every driver; needs receive offload off
    Generic,
    /// Nowhere: a packet socket gets copies of the packets, with every driver and kernel; needs receive offload off
    Packet,
}

/// What is known of the packet filter.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Firewall {
    /// Refuse to start if there are any
    None,
    /// They may be bypassed
    Bypassed,
}

impl CardOptions {
    /// Whether a card is used.
    pub const fn wanted(&self) -> bool {
        self.xdp.is_some()
    }

    /// Holds some ports in a row, for connects.
    pub fn connect(
        &self,
        addresses: &[IpAddr],
    ) -> Result<Option<(Card, RangeInclusive<u16>)>, CardOptionsError> {
        let Some(device) = &self.xdp else { return Ok(None) };
        Ok(Some(Card::connect(self.config(device, Allow::Any), addresses)?))
    }

    fn config(&self, device: &str, allow: Allow) -> XdpConfig {
        let mode = match self.xdp_mode {
            ProgramPlace::Driver => Mode::Driver,
            ProgramPlace::Generic => Mode::Generic,
            ProgramPlace::Packet => Mode::Packet,
        };
        XdpConfig::new(device, allow).mode(mode).bypass_firewall(self.xdp_firewall == Firewall::Bypassed)
    }
}

/// Why a card cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CardOptionsError {
    /// The card.
    #[error("{}", with_options(.0))]
    Card(#[from] CardError),
}

/// The message, with the options that it is about.
fn with_options(error: &CardError) -> String {
    match error {
        CardError::Device(XdpError::Firewall { .. }) => format!("{error}: add --xdp-firewall bypassed"),
        CardError::Device(XdpError::Mode { .. }) => format!("{error}: add --xdp-mode generic"),
        CardError::NotItsAddress(..) => format!("--ip: {error}"),
        CardError::NoAddress(_) => format!("--xdp: {error}"),
        _ => error.to_string(),
    }
}

impl CardOptionsError {
    /// Whether it is a mistake.
    pub fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Card(error) if error.may_pass() => ExitKind::Failure,
            _ => ExitKind::Mistake,
        }
    }
}
