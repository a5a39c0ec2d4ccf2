//! A network card beside the kernel (`--xdp`): which addresses and ports, and the sockets that hold them.

use clap::ValueEnum;
use firstflight::link::xdp::{
    Allow, Holder, Mode, Prefix, Transport, Xdp, XdpConfig, XdpDevice, XdpError, XdpQueue,
};
use firstflight_daemon::ExitKind;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;

/// Local ports of `get`. Each is held by a socket.
const PORTS: u16 = 256;
/// Where they are looked for, as the kernel does for its own.
const RANGE: RangeInclusive<u16> = 32_768..=60_999;
/// How often another place is tried.
const TRIES: usize = 32;

/// The options that `serve` and `get` share.
#[derive(clap::Args)]
pub struct CardOptions {
    /// Use this network card beside the kernel (AF_XDP), at the host's own addresses. Needs root, and Linux 5.9. Connections of
    /// the engine end when the process does, and the packet filter does not see their packets
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["udp", "tun", "mtu"])]
    xdp: Option<String>,
    /// Where the program on the device runs
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Place::Driver, requires = "xdp")]
    xdp_mode: Place,
    /// What about the rules of the packet filter and hooks of tc, which do not see the packets that are taken
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Firewall::None, requires = "xdp")]
    xdp_firewall: Firewall,
}

/// Where the program runs.
#[derive(Clone, Copy, ValueEnum)]
enum Place {
    /// In the driver, which must have XDP
    Driver,
    /// In the kernel's common code, with every driver; needs receive offload off
    Generic,
}

/// What is known of the packet filter.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Firewall {
    /// Refuse to start if there are any
    None,
    /// They may be bypassed
    Bypassed,
}

/// Whose packets are taken: a prefix, or everybody's.
#[derive(Clone, Copy)]
pub enum Source {
    /// Everybody's.
    Any,
    /// Those of a prefix.
    Prefix(Prefix),
}

/// Reads a prefix, or `any`.
pub fn source(text: &str) -> Result<Source, String> {
    match text {
        "any" => Ok(Source::Any),
        _ => text
            .parse()
            .map(Source::Prefix)
            .map_err(|error: firstflight::link::xdp::PrefixError| format!("{error}, or any")),
    }
}

/// The sources that are allowed. `None` if none is named.
pub fn allow(sources: &[Source]) -> Option<Allow> {
    let prefixes = sources.iter().map(|source| match source {
        Source::Any => None,
        Source::Prefix(prefix) => Some(*prefix),
    });
    match prefixes.collect::<Option<Vec<_>>>() {
        Some(prefixes) if prefixes.is_empty() => None,
        Some(prefixes) => Some(Allow::Prefixes(prefixes)),
        None => Some(Allow::Any),
    }
}

/// A device whose ports are held.
pub struct Card {
    config: XdpConfig,
    device: XdpDevice,
    holders: Vec<Holder>,
    addresses: Vec<IpAddr>,
}

impl CardOptions {
    /// Whether a card is used.
    pub const fn wanted(&self) -> bool {
        self.xdp.is_some()
    }

    /// Holds `port` at `addresses`, or at all addresses of the device.
    pub fn serve(&self, addresses: &[IpAddr], port: u16, allow: Allow) -> Result<Option<Card>, CardError> {
        let Some((device, addresses)) = self.find(addresses)? else { return Ok(None) };
        let hold = |ip: &IpAddr| {
            let at = SocketAddr::new(*ip, port);
            Holder::new(at, Transport::Tcp, device.index).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => XdpError::Permission.into(),
                _ => CardError::Hold(at, error),
            })
        };
        let holders = addresses.iter().map(hold).collect::<Result<_, _>>()?;
        let config = self.config(&device, allow);
        Ok(Some(Card { config, device, holders, addresses }))
    }

    /// Holds some ports in a row, for connects.
    pub fn connect(&self, addresses: &[IpAddr]) -> Result<Option<(Card, RangeInclusive<u16>)>, CardError> {
        let Some((device, addresses)) = self.find(addresses)? else { return Ok(None) };
        let mut last = io::ErrorKind::AddrInUse.into();
        for _ in 0..TRIES {
            let mut random = [0; 2];
            getrandom::fill(&mut random).map_err(|error| CardError::Random(error.into()))?;
            let places = RANGE.end() - PORTS - RANGE.start();
            let first = RANGE.start() + u16::from_ne_bytes(random) % places;
            let ports = first..=first + (PORTS - 1);
            let all =
                ports.clone().flat_map(|port| addresses.iter().map(move |ip| SocketAddr::new(*ip, port)));
            match all.map(|at| Holder::new(at, Transport::Tcp, device.index)).collect() {
                Ok(holders) => {
                    let config = self.config(&device, Allow::Any);
                    return Ok(Some((Card { config, device, holders, addresses }, ports)));
                }
                Err(error) => last = error,
            }
        }
        Err(CardError::Ports(last))
    }

    fn config(&self, device: &XdpDevice, allow: Allow) -> XdpConfig {
        let mode = match self.xdp_mode {
            Place::Driver => Mode::Driver,
            Place::Generic => Mode::Generic,
        };
        XdpConfig::new(&device.name, allow)
            .mode(mode)
            .bypass_firewall(self.xdp_firewall == Firewall::Bypassed)
    }

    /// The device, and those of its addresses that are used.
    fn find(&self, wanted: &[IpAddr]) -> Result<Option<(XdpDevice, Vec<IpAddr>)>, CardError> {
        let Some(name) = &self.xdp else { return Ok(None) };
        let device = XdpDevice::find(name)?;
        if let Some(missing) = wanted.iter().find(|ip| !device.addresses.contains(ip)) {
            return Err(CardError::NotItsAddress(*missing, name.clone()));
        }
        let addresses = if wanted.is_empty() { device.addresses.clone() } else { wanted.to_vec() };
        match addresses.is_empty() {
            true => Err(CardError::NoAddress(name.clone())),
            false => Ok(Some((device, addresses))),
        }
    }
}

impl Card {
    /// The addresses of the engine.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The largest packet, bytes.
    pub const fn mtu(&self) -> usize {
        self.device.mtu
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// The sockets that hold the ports, to accept what does not come by the device.
    pub fn listeners(&self) -> Result<Vec<TcpListener>, CardError> {
        let listeners = self.holders.iter().map(|holder| {
            let listener = holder.listener().map_err(|error| CardError::Hold(holder.at(), error))?;
            listener.ok_or_else(|| CardError::Hold(holder.at(), io::ErrorKind::InvalidInput.into()))
        });
        listeners.collect()
    }

    /// Takes the packets of the ports. One queue for each of the device's.
    pub fn attach(self) -> Result<Vec<XdpQueue>, CardError> {
        Ok(Xdp::attach(&self.config, self.holders)?)
    }
}

/// Why a card cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// No source is named.
    #[error(
        "--xdp: say with --xdp-allow PREFIX who may connect, or --xdp-allow any: the packet filter does not see it"
    )]
    NoSources,
    /// The device.
    #[error("{}", with_options(.0))]
    Device(#[from] XdpError),
    /// The device has no address.
    #[error("--xdp {0}: it has no address to use: give it one, as ip address add 192.0.2.1/24 dev {0}")]
    NoAddress(String),
    /// `--ip` is not an address of the device.
    #[error("--ip {0} is no address of {1}: name one of its own, or leave --ip out")]
    NotItsAddress(IpAddr, String),
    /// The port is in use.
    #[error("cannot hold {0}: {1}; end the program that has it (ss -tlnp), or choose another --port")]
    Hold(SocketAddr, io::Error),
    /// No row of ports is free.
    #[error("cannot hold {PORTS} local ports: {0}")]
    Ports(io::Error),
    /// The system has no random bytes.
    #[error("cannot get random bytes: {0}")]
    Random(io::Error),
}

/// The message, with the options that it is about.
fn with_options(error: &XdpError) -> String {
    match error {
        XdpError::Firewall { .. } => format!("{error}: add --xdp-firewall bypassed"),
        XdpError::Mode { .. } => format!("{error}: add --xdp-mode generic"),
        _ => error.to_string(),
    }
}

impl CardError {
    /// Whether it is a mistake.
    pub fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Device(error) if error.is_failure() => ExitKind::Failure,
            Self::Hold(_, error) => ExitKind::of_address(error),
            Self::Ports(_) | Self::Random(_) | Self::NoAddress(_) => ExitKind::Failure,
            _ => ExitKind::Mistake,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_prefixes_or_everybody() {
        let parse = |texts: &[&str]| texts.iter().map(|text| source(text).unwrap()).collect::<Vec<_>>();
        assert_eq!(allow(&[]), None, "nobody is named");
        assert_eq!(allow(&parse(&["any"])), Some(Allow::Any));
        assert_eq!(allow(&parse(&["192.0.2.0/24", "any"])), Some(Allow::Any));
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let both = vec![prefix("192.0.2.0/24"), prefix("2001:db8::/32")];
        assert_eq!(allow(&parse(&["192.0.2.0/24", "2001:db8::/32"])), Some(Allow::Prefixes(both)));
        for wrong in ["", "all", "192.0.2.0/33", "2001:db8::/129", "192.0.2/24", "192.0.2.1/", "host"] {
            assert!(source(wrong).is_err(), "{wrong}");
        }
        assert_eq!(prefix("192.0.2.1").len, 32);
    }
}
