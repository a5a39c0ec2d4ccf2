//! A network card beside the kernel (AF_XDP): which addresses and ports an engine has on it, and the sockets that hold them.

use super::endpoint::Endpoint;
use super::endpoint::ending::EngineRef;
use super::shared::Shared;
use firstflight_link::xdp::{
    LateDevice, LateQueue, PortHolder, Transport, Xdp, XdpConfig, XdpDevice, XdpError, XdpQueue, XdpStatus,
};
use firstflight_stack::{Config, EncapsulationConfig};
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Where ports for connects are looked for, as the kernel does for its own.
const RANGE: RangeInclusive<u16> = 32_768..=60_999;
/// How often another place is tried.
const TRIES: usize = 32;
/// How long handshakes may last that an engine began when it accepts no more, with a repetition: of a SYN cookie it keeps nothing.
const HANDSHAKES: Duration = Duration::from_secs(3);
/// How long the SYNs may last that the engine had taken from the device, but not handled yet.
const ON_THEIR_WAY: Duration = Duration::from_millis(100);
/// Four-tuples that are looked up in one turn. Then other tasks run.
const SLICE: usize = 1024;
/// How often connections are looked for that are over.
const LOOK: Duration = Duration::from_secs(1);

/// A device whose ports are held, so that no program of the host can use them.
///
/// The kernel keeps all other ports. Connections to a held port that do not come by the device, as those of programs on this host,
/// come to [`Card::listeners`].
#[derive(Debug)]
pub struct Card {
    config: XdpConfig,
    device: XdpDevice,
    holders: Vec<PortHolder>,
    addresses: Vec<IpAddr>,
    /// The UDP port of TCP in UDP.
    encapsulation: Option<u16>,
}

impl Card {
    /// Ports in a row that [`Card::connect`] holds: as many connections to one server at a time.
    pub const PORTS: u16 = 256;

    /// Holds `port` at these addresses, or at all of the device that are valid everywhere.
    ///
    /// # Errors
    /// When the device cannot be used, has another program's listener at the port, or not these addresses.
    pub fn serve(config: XdpConfig, addresses: &[IpAddr], port: u16) -> Result<Self, CardError> {
        let (device, addresses) = find(&config, addresses)?;
        let holders = hold(&device, &addresses, port, Transport::Tcp)?;
        Ok(Self { config, device, holders, addresses, encapsulation: None })
    }

    /// As [`Card::serve`], for a process that replaces another one, which is prepared for that, or will be replaced itself. From
    /// [`LateCard::begin`] on, connections that the kernel accepts come to [`Card::listeners`], until this process has the device. From then
    /// on those go on by the kernel, and new ones come by the device. The process that ends calls [`Card::hand_over`] first. TCP only.
    ///
    /// # Errors
    /// As [`Card::serve`].
    pub fn share(config: XdpConfig, addresses: &[IpAddr], port: u16) -> Result<Self, CardError> {
        let config = config.hand_over(true);
        let (device, addresses) = find(&config, addresses)?;
        let shared = |ip: &IpAddr| {
            let at = SocketAddr::new(*ip, port);
            PortHolder::shared(at, device.index, &config.allow).map_err(|error| CardError::Hold(at, error))
        };
        let holders = addresses.iter().map(shared).collect::<Result<_, _>>()?;
        Ok(Self { config, device, holders, addresses, encapsulation: None })
    }

    /// Holds a UDP port at these addresses, or at all of the device that are valid everywhere, for TCP in UDP alone: of a server, or of
    /// connects, whose local UDP port it is.
    ///
    /// # Errors
    /// As [`Card::serve`].
    pub fn in_udp(config: XdpConfig, addresses: &[IpAddr], port: u16) -> Result<Self, CardError> {
        let (device, addresses) = find(&config, addresses)?;
        Self { config, device, holders: Vec::new(), addresses, encapsulation: None }.carry(port)
    }

    /// Holds a UDP port at the same addresses, too, for TCP in UDP. What programs of this host send there is lost: they have the
    /// kernel's TCP.
    ///
    /// # Errors
    /// As [`Card::serve`].
    pub fn carry(mut self, port: u16) -> Result<Self, CardError> {
        self.holders.extend(hold(&self.device, &self.addresses, port, Transport::Udp)?);
        self.encapsulation = Some(port);
        Ok(self)
    }

    /// Holds [`Card::PORTS`] local ports in a row, for connects.
    ///
    /// # Errors
    /// As [`Card::serve`], and when no such row is free.
    pub fn connect(
        config: XdpConfig,
        addresses: &[IpAddr],
    ) -> Result<(Self, RangeInclusive<u16>), CardError> {
        let (device, addresses) = find(&config, addresses)?;
        let mut last = io::ErrorKind::AddrInUse.into();
        for _ in 0..TRIES {
            let mut random = [0; 2];
            getrandom::fill(&mut random).map_err(|error| CardError::Random(error.into()))?;
            let places = RANGE.end() - Self::PORTS - RANGE.start();
            let first = RANGE.start() + u16::from_ne_bytes(random) % places;
            let ports = first..=first + (Self::PORTS - 1);
            let all =
                ports.clone().flat_map(|port| addresses.iter().map(move |ip| SocketAddr::new(*ip, port)));
            match all.map(|at| PortHolder::new(at, Transport::Tcp, device.index)).collect() {
                Ok(holders) => {
                    return Ok((Self { config, device, holders, addresses, encapsulation: None }, ports));
                }
                Err(error) => last = error,
            }
        }
        Err(CardError::Ports(last))
    }

    /// The addresses of the engine.
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// Adapts `config` to the device: its largest packet, and the UDP port. The other settings of
    /// [`Config::encapsulation`] are kept.
    pub fn prepare(&self, config: &mut Config) {
        config.mtu = self.device.mtu;
        config.tcp.set_mss(u16::try_from(self.device.mtu).unwrap_or(u16::MAX).saturating_sub(40));
        if let Some(port) = self.encapsulation {
            config.encapsulation =
                Some(config.encapsulation.unwrap_or(EncapsulationConfig::new(port)).port(port));
        }
    }

    /// The sockets that hold the ports, to accept what does not come by the device. The card keeps them open as long as it
    /// takes packets. [`ServerBuilder::beside`](crate::ServerBuilder::beside) takes them.
    ///
    /// # Errors
    /// The system's.
    pub fn listeners(&self) -> Result<Vec<TcpListener>, CardError> {
        let listeners = self.holders.iter().filter_map(|holder| {
            holder.listener().map_err(|error| CardError::Hold(holder.at(), error)).transpose()
        });
        listeners.collect()
    }

    /// Takes the packets of the ports. One queue for each of the device's: give them to [`Endpoint::sharded`], or together, as
    /// [`Joined`](firstflight_link::xdp::Joined), to [`Endpoint::new`].
    ///
    /// # Errors
    /// When the device does not take the program or the sockets.
    pub fn attach(self) -> Result<Vec<XdpQueue>, CardError> {
        Ok(Xdp::attach(&self.config, self.holders)?)
    }

    /// Prepares to take the packets of the ports as soon as no other process uses the device: see [`Card::share`]. Nothing changes before
    /// [`LateCard::begin`].
    ///
    /// # Errors
    /// As [`Card::attach`], as far as it is known before.
    pub fn attach_later(self) -> Result<(Vec<LateQueue>, LateCard), CardError> {
        let (queues, device) = LateQueue::prepare(self.config, self.holders)?;
        Ok((queues, LateCard(device)))
    }

    /// Hands new connections over to the process that replaces this one, which takes three seconds. Those of `endpoint`, which is on the device
    /// `card`, go on here, and need to be let end: the other process gets the device when it is no longer used. False if there is
    /// nobody to hand over to, because the ports are not shared ([`Card::share`]).
    ///
    /// # Errors
    /// Those of [`XdpStatus::keep`]. New connections go to the other process nevertheless, but anybody can send SYNs in the
    /// name of clients, which then lose connections to this process.
    ///
    /// # Panics
    /// Outside a tokio runtime, as [`tokio::spawn`] does.
    pub async fn hand_over(endpoint: &Endpoint, card: &XdpStatus) -> io::Result<bool> {
        if !card.hands_over() {
            // A device that is waited for is not taken any more.
            let _ = card.pass_new();
            return Ok(false);
        }
        let mut kept = HashSet::new();
        keep(endpoint, card, &mut kept).await.unwrap_or_default();
        let _ = card.pass_new();
        // Those that have begun meanwhile, and those of SYN cookies.
        let mut result = Ok(());
        for pause in [Duration::ZERO, ON_THEIR_WAY, HANDSHAKES] {
            tokio::time::sleep(pause).await;
            result = keep(endpoint, card, &mut kept).await;
        }
        if result.is_ok() {
            card.pass_others();
            result = keep(endpoint, card, &mut kept).await;
        }
        // A handle would keep the engine from its end.
        let engines = endpoint.all().iter().map(Arc::downgrade).collect();
        tokio::spawn(let_go(engines, card.clone(), kept));
        result.map(|()| true)
    }
}

/// A card that is to be taken when everything else is ready.
#[derive(Debug)]
pub struct LateCard(LateDevice);

impl LateCard {
    /// Takes the card, or waits for it: see [`LateDevice::begin`]. Then `endpoint`, which is on its queues, refuses copies of first flights that
    /// the other process may have taken, or the kernel in the meantime.
    ///
    /// # Errors
    /// As [`Card::attach`], except that the device is in use.
    pub fn begin(self, endpoint: &Endpoint) -> Result<XdpStatus, CardError> {
        let engines: Vec<_> = endpoint.all().iter().map(Arc::downgrade).collect();
        let before = move || {
            for engine in engines.iter().filter_map(EngineRef::of) {
                let mut engine = engine.lock();
                let now = engine.now();
                engine.stack.refuse_earlier_flights(now);
            }
        };
        Ok(self.0.begin(before)?)
    }
}

type FourTuple = (SocketAddr, SocketAddr);

/// Keeps the connections that the engine has and that are not in `kept`. After an error it can be tried again.
async fn keep(endpoint: &Endpoint, card: &XdpStatus, kept: &mut HashSet<FourTuple>) -> io::Result<()> {
    let (endpoint, card, before) = (endpoint.clone(), card.clone(), std::mem::take(kept));
    let task = tokio::task::spawn_blocking(move || {
        let mut all = before;
        let new: Vec<_> = endpoint.four_tuples().into_iter().filter(|it| !all.contains(it)).collect();
        let result = card.keep(&new);
        if result.is_ok() {
            all.extend(new);
        }
        (all, result)
    });
    let (all, result) = task.await?;
    *kept = all;
    result
}

/// Lets clients use the ports of connections that are over.
async fn let_go(engines: Vec<Weak<Shared>>, card: XdpStatus, mut kept: HashSet<FourTuple>) {
    while !kept.is_empty() {
        tokio::time::sleep(LOOK).await;
        let engines: Vec<_> = engines.iter().filter_map(EngineRef::of).collect();
        if engines.is_empty() {
            return;
        }
        let all: Vec<_> = kept.iter().copied().collect();
        for slice in all.chunks(SLICE) {
            let mut over = slice.to_vec();
            for engine in &engines {
                let engine = engine.lock();
                over.retain(|(local, remote)| !engine.stack.has_four_tuple(*local, *remote));
            }
            card.let_go(&over);
            // A client may have used its port again in this moment.
            let mut back = over.clone();
            back.retain(|(local, remote)| {
                engines.iter().any(|engine| engine.lock().stack.has_four_tuple(*local, *remote))
            });
            let _ = card.keep(&back);
            over.iter().filter(|it| !back.contains(it)).for_each(|it| _ = kept.remove(it));
            tokio::task::yield_now().await;
        }
    }
}

/// Holds the port at all these addresses.
fn hold(
    device: &XdpDevice,
    addresses: &[IpAddr],
    port: u16,
    transport: Transport,
) -> Result<Vec<PortHolder>, CardError> {
    let one = |ip: &IpAddr| {
        let at = SocketAddr::new(*ip, port);
        PortHolder::new(at, transport, device.index).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => XdpError::Permission.into(),
            _ => CardError::Hold(at, error),
        })
    };
    addresses.iter().map(one).collect()
}

/// The device, and those of its addresses that are used.
fn find(config: &XdpConfig, wanted: &[IpAddr]) -> Result<(XdpDevice, Vec<IpAddr>), CardError> {
    let device = XdpDevice::find(&config.device)?;
    if let Some(missing) = wanted.iter().find(|ip| !device.addresses.contains(ip)) {
        return Err(CardError::NotItsAddress(*missing, device.name));
    }
    let addresses = if wanted.is_empty() { device.addresses.clone() } else { wanted.to_vec() };
    match addresses.is_empty() {
        true => Err(CardError::NoAddress(device.name)),
        false => Ok((device, addresses)),
    }
}

/// Why a card cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CardError {
    /// The device.
    #[error(transparent)]
    Device(#[from] XdpError),
    /// The device has no address.
    #[error("{0} has no address to use: give it one, as ip address add 192.0.2.1/24 dev {0}")]
    NoAddress(String),
    /// An address that the caller names is not of the device.
    #[error("{0} is no address of {1}: name one of its own, or none")]
    NotItsAddress(IpAddr, String),
    /// The port is in use.
    #[error("cannot hold {0}: {1}; end the program that has it (ss -tlnp), or choose another port")]
    Hold(SocketAddr, io::Error),
    /// No row of ports is free.
    #[error("cannot hold {count} local ports: {0}", count = Card::PORTS)]
    Ports(io::Error),
    /// The system has no random bytes.
    #[error("cannot get random bytes: {0}")]
    Random(io::Error),
}

impl CardError {
    /// Whether it may be otherwise in a minute, without another setting.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Device(error) => error.is_failure(),
            Self::Hold(_, error) => {
                !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied)
            }
            Self::Ports(_) | Self::Random(_) | Self::NoAddress(_) => true,
            Self::NotItsAddress(..) => false,
        }
    }
}
