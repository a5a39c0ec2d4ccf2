//! A device with the program on it.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::device::channels;
use super::error::errno;
use super::frame::SynOpening;
use super::hand_over::{FourTuple, PassedConnections, pass_known};
use super::holder::SharedBy;
use super::maps::Maps;
use super::packet::PacketSocket;
use super::program::{Dropped, assemble};
use super::screen::Screen;
use super::socket::{Socket, SocketCounts, memory_for};
use super::steering::Steering;
use super::wire::Wire;
use super::{Allow, Mode, PortHolder, Transport, XdpConfig, XdpDevice, XdpError, XdpQueue};
use super::{connections, frame, owner, sys};
use crate::link::ComesHere;

/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE`.
const GENERIC: u32 = 1 << 1;
const DRIVER: u32 = 1 << 2;

/// How long a device may stay busy: the kernel frees the memory of a process that was killed later than the process.
pub(super) const BUSY: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// How long packets may be on their way through the kernel when the program begins, if no other process had the ports.
pub(super) const ON_THEIR_WAY: Duration = Duration::from_millis(100);
/// What a queue cannot count for itself.
#[derive(Debug, Default)]
pub(super) struct LostPackets {
    /// Packets that are longer than the MTU, or not whole.
    pub(super) malformed: AtomicU64,
    /// Packets to a host without a route, or whose neighbour does not answer.
    pub(super) unreachable: AtomicU64,
    /// Packets that did not fit.
    pub(super) no_room: AtomicU64,
    /// What this process drops in place of the program, by reason.
    dropped: [AtomicU64; Dropped::COUNT],
    /// What a packet socket had no room for.
    unreceived: AtomicU64,
}

impl LostPackets {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn drop(&self, why: Dropped) {
        self.dropped.get(why as usize).into_iter().for_each(Self::count);
    }

    pub(super) fn dropped(&self, why: Dropped) -> u64 {
        self.dropped.get(why as usize).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }
}

/// What the kernel has for the device.
enum Kernel {
    /// The program, which is detached first, and its maps.
    Program { _link: OwnedFd, maps: Maps },
    /// Only a packet socket.
    Nothing,
}

/// The program, its maps and the holders. The fields are dropped in this order: the program first, the holders last.
pub(super) struct Attached {
    kernel: Kernel,
    /// For their counters.
    pub(super) sockets: Vec<OwnedFd>,
    /// What is served, and whether its address is there: by its number in the maps.
    pub(super) served: Mutex<Vec<(SocketAddr, Transport, bool)>>,
    pub(super) lost: LostPackets,
    device: String,
    queues: u32,
    steering: Option<Steering>,
    /// The device has another number of queues now.
    ended: AtomicBool,
    pub(super) passed: Mutex<PassedConnections>,
    pub(super) holders: Mutex<Vec<OwnedFd>>,
}

impl Attached {
    /// The maps of the program. `None` with a packet socket.
    pub(super) const fn maps(&self) -> Option<&Maps> {
        match &self.kernel {
            Kernel::Program { maps, .. } => Some(maps),
            Kernel::Nothing => None,
        }
    }

    /// An address of the device has come or gone. One that has gone is not served: it may be another host's.
    pub(super) fn address(&self, address: IpAddr, present: bool) {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, (_, _, there)) in (0..).zip(&mut *served).filter(|(_, (at, ..))| at.ip() == address) {
            *there = present;
            if let Some(maps) = self.maps() {
                maps.set_present(number, present);
            }
        }
    }

    /// Whether this address and port is served now.
    pub(super) fn serves(&self, host: IpAddr, port: u16, transport: Transport) -> bool {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served
            .iter()
            .any(|(at, of, there)| *there && at.ip() == host && at.port() == port && *of == transport)
    }

    /// How many SYNs of each kind the program has taken at a queue.
    pub(super) fn opened(&self, queue: u32) -> [u64; SynOpening::COUNT] {
        self.maps().map_or([0; SynOpening::COUNT], |maps| maps.opened(queue))
    }

    /// `handled` SYNs of each kind were handled: the program may take [`Socket::SYNS`] beyond them.
    pub(super) fn let_open(&self, queue: u32, handled: [u64; SynOpening::COUNT]) {
        if let Some(maps) = self.maps() {
            maps.let_open(queue, handled.map(|count| count + Socket::SYNS));
        }
    }

    /// Whether the device has another number of queues than there are sockets. Then all links have ended. A packet socket has all
    /// queues.
    pub(super) fn has_other_queues(&self) -> bool {
        if self.maps().is_none() {
            return false;
        }
        let other = channels(&self.device).is_some_and(|count| count != self.queues);
        self.ended.fetch_or(other, Ordering::Relaxed);
        other
    }

    /// Why all links have ended.
    pub(super) fn has_ended(&self) -> Option<&'static str> {
        let why = "the device has another number of queues now";
        self.ended.load(Ordering::Relaxed).then_some(why)
    }

    /// Which packets come to a queue, if the card says how it chooses. A packet socket has all queues.
    pub(super) fn comes_to(&self, queue: u32) -> Option<ComesHere> {
        self.steering.as_ref().filter(|_| self.queues > 1)?.to(queue)
    }

    /// What the kernel has counted for a socket, from the begin.
    pub(super) fn counted(&self, socket: &OwnedFd) -> io::Result<SocketCounts> {
        if self.maps().is_some() {
            return Socket::counted(socket.as_fd());
        }
        let new = PacketSocket::counted(socket.as_fd())?.receive_ring_full;
        let before = self.lost.unreceived.fetch_add(new, Ordering::Relaxed);
        Ok(SocketCounts { receive_ring_full: before + new, ..SocketCounts::default() })
    }

    /// The addresses that are served, or were.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.iter().map(|(at, ..)| at.ip()).collect()
    }
}

/// Takes the device, in this order: the holders are there, then the sockets with free frames, the maps, and the program last. It waits for as
/// long as `patience` says if the device is busy, and for handshakes with the kernel as long as `on_their_way`.
pub(super) fn attach(
    config: &XdpConfig,
    holders: Vec<PortHolder>,
    patience: Duration,
    on_their_way: Duration,
) -> Result<Vec<XdpQueue>, XdpError> {
    let device = XdpDevice::find(&config.device)?;
    check(config, &device, &holders)?;
    let longest = frame::HEADER + device.mtu;
    if config.mode == Mode::Packet {
        let socket = PacketSocket::bind(device.index, longest, &holders);
        let socket = Wire::Packet(socket.map_err(XdpError::at("open a packet socket"))?);
        return keep(config, &device, holders, vec![socket], Kernel::Nothing, HashSet::new());
    }
    let sockets: Vec<_> =
        (0..device.queues).map(|queue| bind(&device, queue, longest, patience)).collect::<Result<_, _>>()?;

    let fail = XdpError::at("prepare the program");
    let maps = Maps::create(device.queues, Socket::SYNS, config.hand_over).map_err(&fail)?;
    for (queue, socket) in (0..).zip(&sockets) {
        maps.set_socket(queue, socket.as_fd()).map_err(&fail)?;
    }
    if let Allow::Prefixes(prefixes) = &config.allow {
        prefixes.iter().try_for_each(|prefix| maps.allow(*prefix)).map_err(&fail)?;
    }
    for (number, holder) in (0..).zip(&holders) {
        maps.serve(number, holder.at(), holder.transport()).map_err(&fail)?;
    }
    let code = assemble(device.mac, &maps, config.allow == Allow::Any);
    let code = code.ok_or_else(|| XdpError::Program {
        source: io::ErrorKind::InvalidData.into(),
        log: "a jump leads nowhere".to_owned(),
    })?;
    let program = sys::load(&code, "firstflight").map_err(|(source, log)| match errno(&source) {
        Some(Errno::EPERM) => XdpError::Permission,
        _ => XdpError::Program { source, log: last_lines(&log) },
    })?;
    let flags = match config.mode {
        Mode::Driver => DRIVER,
        Mode::Generic | Mode::Packet => GENERIC,
    };
    let link =
        patiently(patience, || sys::attach(program.as_fd(), device.index, flags)).map_err(|error| {
            match errno(&error) {
                Some(Errno::EBUSY | Errno::EEXIST) => busy(&device),
                Some(Errno::EOPNOTSUPP | Errno::ENOSPC | Errno::ERANGE) if config.mode == Mode::Driver => {
                    XdpError::Mode { device: device.name.clone(), source: error }
                }
                // The command is unknown.
                Some(Errno::EINVAL) => XdpError::Kernel,
                _ => XdpError::at("attach the program")(error),
            }
        })?;
    let mut known = HashSet::new();
    if config.hand_over {
        known = pass_known(&maps, &holders, on_their_way)?;
        // The process that had the device has ended. The next one is to get nothing before it is ready.
        let chosen = holders.iter().try_for_each(|holder| holder.choose(SharedBy::First));
        chosen.map_err(XdpError::at("accept alone"))?;
    }
    let sockets = sockets.into_iter().map(Wire::Xdp).collect();
    keep(config, &device, holders, sockets, Kernel::Program { _link: link, maps }, known)
}

/// The queues of the device that has been taken.
fn keep(
    config: &XdpConfig,
    device: &XdpDevice,
    holders: Vec<PortHolder>,
    sockets: Vec<Wire>,
    kernel: Kernel,
    known: HashSet<FourTuple>,
) -> Result<Vec<XdpQueue>, XdpError> {
    let fail = XdpError::at("keep the sockets");
    let kept = sockets.iter().map(|socket| socket.as_fd().try_clone_to_owned());
    let attached = Arc::new(Attached {
        kernel,
        sockets: kept.collect::<io::Result<_>>().map_err(&fail)?,
        served: Mutex::new(holders.iter().map(|holder| (holder.at(), holder.transport(), true)).collect()),
        lost: LostPackets::default(),
        device: device.name.clone(),
        queues: device.queues,
        steering: Steering::of(&device.name),
        ended: AtomicBool::new(false),
        passed: Mutex::new(PassedConnections::new(known)),
        holders: Mutex::new(holders.into_iter().map(PortHolder::into_socket).collect()),
    });
    let partial = device.may_have_partial_checksums(config.mode);
    let screen = || Screen { mac: device.mac, allow: config.allow.clone() };
    let queue = |(queue, socket)| {
        let screen = (config.mode == Mode::Packet).then(screen);
        XdpQueue::new((queue, socket), screen, device, partial, Arc::clone(&attached))
    };
    Ok((0..).zip(sockets).map(queue).collect())
}

/// Everything that can be known before something is changed.
pub(super) fn check(config: &XdpConfig, device: &XdpDevice, holders: &[PortHolder]) -> Result<(), XdpError> {
    let name = || device.name.clone();
    if holders.is_empty() {
        return Err(XdpError::NoPorts);
    }
    device.check()?;
    if config.hand_over && config.mode == Mode::Packet {
        return Err(XdpError::NotShared);
    }
    if config.mode != Mode::Driver && device.gro {
        return Err(XdpError::Joined { device: name() });
    }
    for holder in holders {
        if !device.addresses.contains(&holder.at().ip()) {
            return Err(XdpError::NotItsAddress { at: holder.at(), device: name() });
        }
        if holder.transport() == Transport::Tcp && !config.hand_over {
            let present = connections::at(holder.at()).map_err(XdpError::at("look for connections"))?;
            if present.live > 0 {
                return Err(XdpError::Connections { at: holder.at(), count: present.live });
            }
        }
    }
    if !config.bypass_firewall
        && let Some(what) = device.in_the_way().map_err(XdpError::at("look at the packet filter"))?
    {
        return Err(XdpError::Firewall { device: name(), what });
    }
    Ok(())
}

fn bind(device: &XdpDevice, queue: u32, longest: usize, patience: Duration) -> Result<Socket, XdpError> {
    patiently(patience, || Socket::bind(device.index, queue, longest)).map_err(|error| match errno(&error) {
        Some(Errno::EBUSY) => busy(device),
        Some(Errno::ENOBUFS) => XdpError::Memory { need: memory_for(longest) },
        _ => XdpError::at("open a socket on a queue")(error),
    })
}

/// Tries again for this time when the device is busy.
fn patiently<T>(patience: Duration, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Err(error) if errno(&error) == Some(Errno::EBUSY) && begin.elapsed() < patience => sleep(PAUSE),
            result => return result,
        }
    }
}

pub(super) fn busy(device: &XdpDevice) -> XdpError {
    let by = owner::of(device.index).unwrap_or_else(|| "another program".to_owned());
    XdpError::Busy { device: device.name.clone(), by }
}

fn last_lines(log: &str) -> String {
    let lines: Vec<_> = log.trim_end().lines().collect();
    lines.get(lines.len().saturating_sub(3)..).unwrap_or_default().join("; ")
}
