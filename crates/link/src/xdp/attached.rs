//! A device with the program on it.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::device::channels;
use super::error::errno;
use super::frame::SynOpening;
use super::holder::SharedBy;
use super::maps::{ConnectionOwner, Duty, Maps};
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
/// Most connections that are over, of which the program passes packets. Others need the room.
const MOST_ENDED: usize = 1 << 16;
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

    fn dropped(&self, why: Dropped) -> u64 {
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

/// Both ends of a connection, ours first.
type FourTuple = (SocketAddr, SocketAddr);

/// The connections of the kernel that the program passes because they began before it.
#[derive(Default)]
struct PassedConnections {
    known: HashSet<FourTuple>,
    /// Those that the kernel did not show at the last look. A list that goes on after a pause may miss one.
    missed: HashSet<FourTuple>,
    /// The kernel was asked a second time: it has had all of them. Others that it has come another way.
    is_whole: bool,
    /// The device is handed over itself.
    ends: bool,
}

/// The program, its maps and the holders. The fields are dropped in this order: the program first, the holders last.
pub(super) struct Attached {
    kernel: Kernel,
    /// For their counters.
    sockets: Vec<OwnedFd>,
    /// What is served, and whether its address is there: by its number in the maps.
    served: Mutex<Vec<(SocketAddr, Transport, bool)>>,
    pub(super) lost: LostPackets,
    device: String,
    queues: u32,
    steering: Option<Steering>,
    /// The device has another number of queues now.
    ended: AtomicBool,
    passed: Mutex<PassedConnections>,
    holders: Mutex<Vec<OwnedFd>>,
}

impl Attached {
    /// An address of the device has come or gone. One that has gone is not served: it may be another host's.
    pub(super) fn address(&self, address: IpAddr, present: bool) {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, (_, _, there)) in (0..).zip(&mut *served).filter(|(_, (at, ..))| at.ip() == address) {
            *there = present;
            if let Kernel::Program { maps, .. } = &self.kernel {
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
        match &self.kernel {
            Kernel::Program { maps, .. } => maps.opened(queue),
            Kernel::Nothing => [0; SynOpening::COUNT],
        }
    }

    /// `handled` SYNs of each kind were handled: the program may take [`Socket::SYNS`] beyond them.
    pub(super) fn let_open(&self, queue: u32, handled: [u64; SynOpening::COUNT]) {
        if let Kernel::Program { maps, .. } = &self.kernel {
            maps.let_open(queue, handled.map(|count| count + Socket::SYNS));
        }
    }

    /// These are the engine's connections, which it keeps when others are passed. One whose client has begun another one in its place, which
    /// was passed, stays that.
    ///
    /// # Errors
    /// The first one. It goes on with the others.
    fn keep(&self, four_tuples: &[FourTuple]) -> io::Result<()> {
        let Kernel::Program { maps, .. } = &self.kernel else { return Ok(()) };
        // From here on the epoch stays.
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).ends = true;
        let is_passing = maps.has_duty(Duty::PassNew) || maps.has_duty(Duty::PassOthers);
        let mut result = Ok(());
        for (local, remote) in four_tuples {
            let newer = if is_passing { maps.has_passed(*local, *remote) } else { Ok(false) };
            let kept = match newer {
                Ok(true) => Ok(()),
                Ok(false) => maps.own(*local, *remote, ConnectionOwner::Engine),
                Err(error) => Err(error),
            };
            result = result.and(kept);
        }
        result
    }

    fn hands_over(&self) -> bool {
        matches!(&self.kernel, Kernel::Program { maps, .. } if maps.passing().is_some())
    }

    /// The engine needs no packets of these any more. One that stays in the map because of an error does no harm but to its client.
    fn let_go(&self, four_tuples: &[FourTuple]) {
        if let Kernel::Program { maps, .. } = &self.kernel {
            four_tuples.iter().for_each(|(local, remote)| drop(maps.disown(*local, *remote)));
        }
    }

    /// New connections are the kernel's from now on, and go to the other sockets that share the ports. False if that was not prepared
    /// ([`XdpConfig::hand_over`]).
    fn pass_new(&self) -> bool {
        let Kernel::Program { maps, .. } = &self.kernel else { return false };
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).ends = true;
        maps.set_duty(Duty::PassNew);
        let passes = maps.has_duty(Duty::PassNew);
        if passes {
            self.holders.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        passes
    }

    /// All connections are the kernel's from now on, but those that are kept.
    fn pass_others(&self) {
        if let Kernel::Program { maps, .. } = &self.kernel {
            maps.change_duty(Duty::PassNew, Duty::PassOthers);
        }
    }

    #[cfg(test)]
    pub(super) fn has_duty(&self, duty: Duty) -> bool {
        matches!(&self.kernel, Kernel::Program { maps, .. } if maps.has_duty(duty))
    }

    /// Looks whether the connections of the kernel, which the program passes, are over. When all are, it passes none any more, and this need
    /// not be asked again. The first look must not come before the kernel has all of them.
    pub(super) fn has_settled(&self) -> bool {
        let Kernel::Program { maps, .. } = &self.kernel else { return true };
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let passes = maps.has_duty(Duty::PassKnown) || maps.has_duty(Duty::PassKernels);
        if passed.ends || !passes {
            return true;
        }
        let Ok((live, ended)) = self.kernels_now() else { return false };
        let mut present: HashSet<_> = ended.into_iter().filter(|it| passed.known.contains(it)).collect();
        present.extend(live.into_iter().filter(|it| !passed.is_whole || passed.known.contains(it)));
        let missed: HashSet<_> = passed.known.difference(&present).copied().collect();
        let gone: Vec<_> = missed.intersection(&passed.missed).copied().collect();
        passed.missed = missed;
        for (local, remote) in present {
            if passed.known.contains(&(local, remote)) {
                continue;
            }
            if maps.own(local, remote, ConnectionOwner::Kernel).is_err() {
                return false;
            }
            passed.known.insert((local, remote));
        }
        if !passed.is_whole {
            // From here on a SYN that was passed in the beginning makes no connection the kernel's.
            maps.change_duty(Duty::PassKnown, Duty::PassKernels);
            passed.is_whole = maps.forget_passed().is_ok();
        }
        if !self.let_kernels_go(maps, &mut passed, &gone) {
            return false;
        }
        let is_over = passed.is_whole && passed.known.is_empty();
        if is_over {
            maps.change_duty(Duty::PassKernels, Duty::Take);
        }
        is_over
    }

    /// These connections of the kernel are over: their clients may use the ports again, for connections to the engine. False if
    /// it is not known whether one has done so in this moment.
    fn let_kernels_go(&self, maps: &Maps, passed: &mut PassedConnections, gone: &[FourTuple]) -> bool {
        for (local, remote) in gone {
            let _ = maps.disown(*local, *remote);
            passed.known.remove(&(*local, *remote));
        }
        if gone.is_empty() {
            return true;
        }
        let Ok((live, _)) = self.kernels_now() else { return false };
        for (local, remote) in live.into_iter().filter(|it| gone.contains(it)) {
            let _ = maps.own(local, remote, ConnectionOwner::Kernel);
            passed.known.insert((local, remote));
        }
        true
    }

    /// The kernel's connections of the served ports, without those of this host's own programs, which do not come by the device: those that
    /// begin or are open, and those that are over.
    fn kernels_now(&self) -> io::Result<(Vec<FourTuple>, Vec<FourTuple>)> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut live, mut ended) = (Vec::new(), Vec::new());
        for (at, ..) in served.iter().filter(|(_, of, _)| *of == Transport::Tcp) {
            let (these, those) = connections::peers(*at)?;
            for (all, some) in [(&mut live, these), (&mut ended, those)] {
                let others =
                    some.into_iter().filter(|peer| served.iter().all(|(at, ..)| at.ip() != peer.ip()));
                all.extend(others.map(|peer| (*at, peer)));
            }
        }
        Ok((live, ended))
    }

    /// Whether the device has another number of queues than there are sockets. Then all links have ended. A packet socket has all
    /// queues.
    pub(super) fn has_other_queues(&self) -> bool {
        if matches!(self.kernel, Kernel::Nothing) {
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
    fn counted(&self, socket: &OwnedFd) -> io::Result<SocketCounts> {
        if let Kernel::Program { .. } = self.kernel {
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

/// What became of packets that did not reach the engine, or a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct XdpCounters {
    /// Dropped by the program: IPv4 options.
    pub options: u64,
    /// Dropped by the program: a first fragment.
    pub fragments: u64,
    /// Dropped by the program: the source address is no host's, or is served here.
    pub sources: u64,
    /// Dropped by the program: the source address is not allowed.
    pub not_allowed: u64,
    /// Dropped by the program: the queue has no socket.
    pub no_socket: u64,
    /// Dropped by the program: a SYN, and many waited.
    pub flood: u64,
    /// Dropped by the link: longer than the MTU, or not whole.
    pub malformed: u64,
    /// Not sent: no route by the device, or the neighbour does not answer.
    pub unreachable: u64,
    /// Not sent: no room.
    pub no_room: u64,
    /// Dropped by the kernel: not received in time (`rx_ring_full`).
    pub receive_ring_full: u64,
    /// Dropped by the kernel: no free memory (`rx_fill_ring_empty_descs`).
    pub fill_ring_empty: u64,
    /// Dropped by the kernel for another reason (`rx_dropped`).
    pub kernel: u64,
}

impl XdpCounters {
    /// The counters with their names, as in metrics.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 12] {
        [
            ("options", self.options),
            ("fragment", self.fragments),
            ("source", self.sources),
            ("not-allowed", self.not_allowed),
            ("no-socket", self.no_socket),
            ("syn-flood", self.flood),
            ("malformed", self.malformed),
            ("unreachable", self.unreachable),
            ("no-room", self.no_room),
            ("receive-ring-full", self.receive_ring_full),
            ("fill-ring-empty", self.fill_ring_empty),
            ("kernel", self.kernel),
        ]
    }
}

/// Reads the counters of a device. It does not keep the program on it.
#[derive(Clone)]
pub struct XdpStatus(Arc<Mutex<Taken>>);

/// Whether a device was taken.
enum Taken {
    /// Not yet; who used it at first, and why it was refused at the last attempt, if another reason than that it is busy.
    NotYet {
        used_by: String,
        because: Option<String>,
    },
    Yes(Weak<Attached>),
    /// It will not be: the end came first.
    Never,
}

impl XdpStatus {
    pub(super) fn of(attached: &Arc<Attached>) -> Self {
        Self(Arc::new(Mutex::new(Taken::Yes(Arc::downgrade(attached)))))
    }

    /// Of a device that is not used yet.
    pub(super) fn later(used_by: String) -> Self {
        Self(Arc::new(Mutex::new(Taken::NotYet { used_by, because: None })))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it is the status of this device. False if that is not wanted any more.
    pub(super) fn becomes(&self, other: &Self) -> bool {
        let Some(attached) = other.attached() else { return false };
        let mut taken = self.taken();
        let wanted = matches!(*taken, Taken::NotYet { .. });
        if wanted {
            *taken = Taken::Yes(Arc::downgrade(&attached));
        }
        wanted
    }

    /// Notes why the device could not be taken now. False if it is not wanted any more.
    pub(super) fn waits(&self, because: Option<String>) -> bool {
        match &mut *self.taken() {
            Taken::NotYet { because: last, .. } => {
                *last = because;
                true
            }
            Taken::Yes(_) | Taken::Never => false,
        }
    }

    /// Why the device could not be taken at the last attempt, if it is waited for and another process's use is not the reason.
    #[must_use]
    pub fn waits_because(&self) -> Option<String> {
        match &*self.taken() {
            Taken::NotYet { because, .. } => because.clone(),
            Taken::Yes(_) | Taken::Never => None,
        }
    }

    /// Whether the device is used, and can be handed over ([`XdpConfig::hand_over`]).
    #[must_use]
    pub fn hands_over(&self) -> bool {
        self.attached().is_some_and(|attached| attached.hands_over())
    }

    /// These are connections of the engine, its own end first: they stay its own while the device is handed over, whoever sends a SYN in
    /// their name. Call it before [`XdpStatus::pass_new`], and again before [`XdpStatus::pass_others`] for those that began meanwhile.
    ///
    /// # Errors
    /// The system's first one, for which a connection is not kept: if there are more than 262,144, and before Linux 5.19 if privileges were
    /// given up.
    pub fn keep(&self, four_tuples: &[(SocketAddr, SocketAddr)]) -> io::Result<()> {
        self.attached().map_or(Ok(()), |attached| attached.keep(four_tuples))
    }

    /// These connections of [`XdpStatus::keep`] are over: their clients may use the ports again, for connections to the other process.
    pub fn let_go(&self, four_tuples: &[(SocketAddr, SocketAddr)]) {
        self.attached().iter().for_each(|attached| attached.let_go(four_tuples));
    }

    /// All connections but those of [`XdpStatus::keep`] are the kernel's from now on. [`XdpStatus::pass_new`] comes first, and time for
    /// handshakes that the engine has begun without keeping state.
    pub fn pass_others(&self) {
        self.attached().iter().for_each(|attached| attached.pass_others());
    }

    /// New connections are the kernel's from now on, and go to the process that replaces this one. The others go on here. False if the ports
    /// are not shared ([`XdpConfig::hand_over`]). A device that is waited for is not taken any more.
    #[must_use]
    pub fn pass_new(&self) -> bool {
        let mut taken = self.taken();
        match &*taken {
            Taken::NotYet { .. } => *taken = Taken::Never,
            Taken::Yes(attached) => return attached.upgrade().is_some_and(|attached| attached.pass_new()),
            Taken::Never => {}
        }
        true
    }

    /// Who used the device when this process began to wait for it, if it still waits.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        match &*self.taken() {
            Taken::NotYet { used_by, .. } => Some(used_by.clone()),
            Taken::Yes(_) | Taken::Never => None,
        }
    }

    /// Whether the device is used now.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.attached().is_some()
    }

    pub(super) fn attached(&self) -> Option<Arc<Attached>> {
        match &*self.taken() {
            Taken::Yes(attached) => attached.upgrade(),
            Taken::NotYet { .. } | Taken::Never => None,
        }
    }

    /// The counters of all queues together. `None` when the device is no longer used.
    #[must_use]
    pub fn counters(&self) -> Option<XdpCounters> {
        let attached = self.attached()?;
        let lost = &attached.lost;
        let dropped = |why| match &attached.kernel {
            Kernel::Program { maps, .. } => maps.dropped(why),
            Kernel::Nothing => lost.dropped(why),
        };
        let all = attached.sockets.iter().filter_map(|socket| attached.counted(socket).ok());
        let sum = all.fold(SocketCounts::default(), |sum, one| SocketCounts {
            dropped: sum.dropped + one.dropped,
            receive_ring_full: sum.receive_ring_full + one.receive_ring_full,
            fill_ring_empty: sum.fill_ring_empty + one.fill_ring_empty,
        });
        Some(XdpCounters {
            options: dropped(Dropped::Options),
            fragments: dropped(Dropped::Fragment),
            sources: dropped(Dropped::Source),
            not_allowed: dropped(Dropped::NotAllowed),
            no_socket: dropped(Dropped::NoSocket),
            flood: dropped(Dropped::Flood),
            malformed: lost.malformed.load(Ordering::Relaxed),
            unreachable: lost.unreachable.load(Ordering::Relaxed),
            no_room: lost.no_room.load(Ordering::Relaxed),
            receive_ring_full: sum.receive_ring_full,
            fill_ring_empty: sum.fill_ring_empty,
            kernel: sum.dropped,
        })
    }
}

impl std::fmt::Debug for XdpStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("XdpStatus").field(&self.counters()).finish()
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

/// Lets the program pass the connections that the kernel has, and take others.
fn pass_known(
    maps: &Maps,
    holders: &[PortHolder],
    on_their_way: Duration,
) -> Result<HashSet<FourTuple>, XdpError> {
    let mut known = HashSet::new();
    let mut look = |most_ended: usize| {
        for holder in holders {
            let (live, ended) = connections::peers(holder.at())?;
            // If there is no room for all that are over, the engine answers the others with RST: their data has arrived.
            for peer in live {
                if known.insert((holder.at(), peer)) {
                    maps.own(holder.at(), peer, ConnectionOwner::Kernel)?;
                }
            }
            for peer in ended.into_iter().take(most_ended / holders.len()) {
                if maps.own(holder.at(), peer, ConnectionOwner::Kernel).is_ok() {
                    known.insert((holder.at(), peer));
                }
            }
        }
        Ok(())
    };
    // What the kernel lets in from now on, the program sees. Before, sock_diag does.
    sleep(on_their_way);
    look(MOST_ENDED).map_err(XdpError::at("look for connections"))?;
    maps.set_duty(Duty::PassKnown);
    // Those that a SYN cookie began meanwhile.
    look(0).map_err(XdpError::at("look for connections"))?;
    Ok(known)
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
        passed: Mutex::new(PassedConnections { known, ..PassedConnections::default() }),
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
