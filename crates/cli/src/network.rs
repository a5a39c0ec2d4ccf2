//! The options of links of `get`: a TUN device with the kernel at one end and the engine
//! at the other, and a capture of what passes.

use crate::card::{self, CardOptionsError};
use crate::error::{CommandError, Error};
use crate::subnet::{is_reserved, subnet};
use firstflight::credential::NetworkId;
use firstflight::link::xdp::{Joined, XdpError, give_up_privileges};
use firstflight::link::{Link, PcapTap, PcapWriterError, Tapped, Tun, TunConfig, TunError, UdpLink};
use firstflight::tcp::congestion::{Algorithm, InitialWindow};
use firstflight::{Card, CardError, Config, Endpoint, ListenConfig, Time};
use firstflight_daemon::ExitKind;
use ipnet::IpNet;
use std::fs::File;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Length of the TUN device's queue, in packets: a SYN, an ACK, a request and a FIN for each connection of a full
/// backlog.
const QUEUE: u32 = 4 * ListenConfig::BACKLOG as u32;

/// The link of an engine: its own TUN device, or a network card (`--xdp`), unless the command uses `--udp`. A command declares
/// the group `link` of the three options.
#[derive(clap::Args)]
pub struct Network {
    /// Name of the TUN device to create. Its queue in the kernel (txqueuelen) holds 16,384 packets
    #[arg(long, value_name = "NAME", conflicts_with = "udp", requires_all = ["host_ip", "ip"])]
    tun: Option<String>,
    #[command(flatten)]
    card: card::CardOptions,
    /// The kernel's address on the device with its prefix, as 10.9.0.1/24; once more for IPv6
    #[arg(long, value_name = "CIDR", conflicts_with = "udp", requires = "tun", value_parser = subnet)]
    host_ip: Vec<IpNet>,
    /// The engine's address, in the same network; once more for IPv6. With --xdp one of the device's, and by default all that
    /// are valid everywhere
    #[arg(long, value_name = "ADDR", conflicts_with = "udp", requires = "link")]
    ip: Vec<IpAddr>,
    /// Largest IP packet on the device, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, requires = "link", value_parser = clap::value_parser!(u16).range(576..))]
    mtu: u16,
    /// One packet for each segment on the device, with its checksum, so that a capture and packet filters see single
    /// packets; slower
    #[arg(long, conflicts_with = "udp", requires = "tun")]
    no_offload: bool,
    /// Congestion control of what is sent: cubic, newreno or bbr (version 3)
    #[arg(long, value_name = "NAME", default_value_t = Algorithm::Cubic, requires = "link")]
    congestion: Algorithm,
    /// Initial window of what is sent, segments: RFC 6928 has 10, kernels of the papers' time had 3 [default: 10]
    #[arg(long, value_name = "N", requires = "link", value_parser = clap::value_parser!(u8).range(1..=64))]
    initial_window: Option<u8>,
    /// Record every packet of the engine into this pcapng file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

impl Network {
    /// Sets what the options say about an engine without a device.
    pub fn tune(&self, config: &mut Config) {
        config.tcp.set_congestion(self.congestion);
        if let Some(segments) = self.initial_window {
            config.tcp.set_initial_window(InitialWindow::segments(segments.into()).unwrap_or_default());
        }
    }

    /// Whether there is a TUN device or a network card.
    pub const fn has_device(&self) -> bool {
        self.tun.is_some() || self.card.wanted()
    }

    /// The network card, with ports for connects.
    pub fn connect_by_card(&self) -> Result<Option<(Card, RangeInclusive<u16>)>, NetworkError> {
        self.card.connect(&self.ip).map_err(NetworkError::Card)
    }

    /// Whether packets are recorded.
    pub const fn records(&self) -> bool {
        self.pcap.is_some()
    }

    /// Checks the options without asking the system.
    pub fn validate(&self) -> Result<(), NetworkError> {
        if self.card.wanted() {
            return Ok(());
        }
        for &ip in &self.ip {
            if self.host_ip.iter().any(|host| host.addr() == ip) {
                return Err(NetworkError::SameAddress(ip));
            }
            if !self.host_ip.iter().any(|host| host.contains(&ip)) {
                return Err(NetworkError::OutsideSubnet(ip));
            }
            if self.host_ip.iter().any(|host| is_reserved(host, ip)) {
                return Err(NetworkError::NotAHost(ip));
            }
        }
        Ok(())
    }

    /// The engine's addresses.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.ip
    }

    /// Starts the engine for this local network, on the link over UDP, on the card, or on a new device.
    pub fn start(
        &self,
        network: NetworkId,
        udp: Option<UdpLink>,
        card: Option<(Card, RangeInclusive<u16>)>,
    ) -> Result<(Endpoint, Capture), Error> {
        let (mut config, name) = self.config(udp.is_some(), card.as_ref().map(|(card, _)| card))?;
        let name = &name;
        config.network = network;
        // Create the capture before the device, so that a wrong file name does not leave a device behind.
        let capture = Capture::create(self.pcap.as_deref(), name)?;
        let link = match (udp, card) {
            (Some(link), _) => {
                Endpoint::prepare_udp(&mut config, &link);
                capture.tap(link)
            }
            (None, Some((card, ports))) => {
                config.ports = ports;
                let queues = card.attach().map_err(NetworkError::card)?;
                let of_card = |error: XdpError| NetworkError::card(error.into());
                let link = capture.tap(Joined::open(queues).map_err(of_card)?);
                give_up_privileges().map_err(of_card)?;
                link
            }
            (None, None) => capture.tap(
                Tun::create(self.device(self.tun.as_deref().unwrap_or_default()))
                    .map_err(NetworkError::Tun)?,
            ),
        };
        Ok((Endpoint::new(config, link), capture))
    }

    /// Settings of the engine, and a name for its packets in a capture.
    fn config(&self, udp: bool, card: Option<&Card>) -> Result<(Config, String), Error> {
        let (mut config, name) = match (&self.tun, card) {
            (_, Some(card)) => {
                let mut config = engine_config(card.addresses().to_vec())?;
                card.prepare(&mut config);
                (config, card.name())
            }
            (Some(name), None) if !udp => {
                let mut config = engine_config(self.ip.clone())?;
                Endpoint::prepare_tun(&mut config, &self.device(name));
                (config, name.as_str())
            }
            _ => (engine_config(Vec::new())?, "udp"),
        };
        self.tune(&mut config);
        Ok((config, name.to_owned()))
    }

    fn device(&self, name: &str) -> TunConfig {
        TunConfig::default()
            .name(name.to_owned())
            .host(self.host_ip.iter().map(|host| (host.addr(), host.prefix_len())).collect())
            .mtu(self.mtu)
            .queue(QUEUE)
            .offload(!self.no_offload)
    }
}

/// Settings of an engine at `addresses`, with Nagle's algorithm off: HTTP writes whole messages, and the end of a
/// message must not wait for an acknowledgement.
pub fn engine_config(addresses: Vec<IpAddr>) -> Result<Config, Error> {
    let mut config = firstflight::config(addresses).map_err(Error::Random)?;
    config.tcp.set_nodelay(true);
    Ok(config)
}

/// A capture, or none. Clones write into the same file.
#[derive(Clone)]
pub struct Capture(Option<(PathBuf, PcapTap)>);

impl Capture {
    /// Starts a capture into `file`, if a file is given.
    pub fn create(file: Option<&Path>, interface: &str) -> Result<Self, NetworkError> {
        Self::in_time(file, interface, Time::system())
    }

    /// Like [`Capture::create`], with the wall clock of `time`.
    pub fn in_time(file: Option<&Path>, interface: &str, time: Time) -> Result<Self, NetworkError> {
        let Some(path) = file else {
            return Ok(Self(None));
        };
        let fail = |error| NetworkError::Pcap(path.to_owned(), error);
        let output = File::create(path).map_err(|error| fail(PcapWriterError::Io(error)))?;
        let tap = PcapTap::with_clock(output, "firstflight", &[interface], move || time.unix());
        let tap = tap.map_err(fail)?;
        Ok(Self(Some((path.to_owned(), tap))))
    }

    /// Returns `link`, wrapped so that its packets are recorded if a capture is wanted.
    pub fn tap<L: Link + 'static>(&self, link: L) -> Box<dyn Link> {
        match &self.0 {
            Some((_, tap)) => Box::new(Tapped::new(link, tap.clone(), 0)),
            None => Box::new(link),
        }
    }

    /// Flushes the recorded packets.
    pub fn finish(&self) -> Result<(), NetworkError> {
        match &self.0 {
            Some((path, tap)) => tap.flush().map_err(|error| NetworkError::Pcap(path.clone(), error)),
            None => Ok(()),
        }
    }
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// `--pcap` without an engine.
    #[error("--pcap records an engine's packets: add --udp, --tun or --xdp; tcpdump records the kernel's")]
    NothingToRecord,
    /// The network card cannot be used.
    #[error(transparent)]
    Card(CardOptionsError),
    /// The TUN device cannot be created.
    #[error(transparent)]
    Tun(TunError),
    /// `--ip` lies in none of the `--host-ip` networks.
    #[error(
        "--ip {0} is in no --host-ip network: give both in the same one, as in --host-ip 10.9.0.1/24 --ip 10.9.0.2"
    )]
    OutsideSubnet(IpAddr),
    /// `--ip` is the kernel's own address.
    #[error("--ip {0} is the kernel's address (--host-ip): choose another one of its network")]
    SameAddress(IpAddr),
    /// `--ip` is the network's or the broadcast address.
    #[error("--ip {0} is its network's own or broadcast address: choose another one of the network")]
    NotAHost(IpAddr),
    /// The capture cannot be written.
    #[error("--pcap {0}: {1}")]
    Pcap(PathBuf, PcapWriterError),
}

impl NetworkError {
    pub fn card(error: CardError) -> Self {
        Self::Card(error.into())
    }
}

impl CommandError for NetworkError {
    fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Tun(error) if error.may_pass() => ExitKind::Failure,
            Self::Card(error) => error.exit_kind(),
            Self::Pcap(_, PcapWriterError::Io(error)) => ExitKind::of_file(error),
            _ => ExitKind::Mistake,
        }
    }
}
