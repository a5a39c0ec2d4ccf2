//! The link on one queue of a device.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use firstflight_wire::icmp::{IcmpErrorKind, emit_error};
use nix::errno::Errno;
use tokio::io::unix::AsyncFd;

use super::attached::{Attached, BUSY, LostPackets, ON_THEIR_WAY, attach};
use super::device::{ADDRESS, LINK_BYTES, LOCAL, MTU, UP};
use super::error::errno;
use super::events::{Events, Read};
use super::frame::SynOpening;
use super::neighbours::{Hops, Mac, NextHop};
use super::screen::{FrameFate, Screen};
use super::socket::is_full;
use super::wire::Wire;
use super::{PortHolder, XdpConfig, XdpDevice, XdpError, XdpStatus, frame, sys};
use crate::link::{ComesHere, Link, short_buffer};
use crate::netlink::{address_of, attributes, messages, word_at};

/// `RTM_NEWLINK`, `RTM_DELLINK`, `RTM_NEWADDR`, `RTM_DELADDR`, `RTM_NEWROUTE`, `RTM_DELROUTE`, `RTM_NEWNEIGH`,
/// `RTM_DELNEIGH`, `RTM_NEWRULE`, `RTM_DELRULE`.
const NEW_LINK: u16 = 16;
const DELETED_LINK: u16 = 17;
const NEW_ADDRESS: u16 = 20;
const DELETED_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
const DELETED_ROUTE: u16 = 25;
const NEW_NEIGHBOUR: u16 = 28;
const DELETED_NEIGHBOUR: u16 = 29;
const NEW_RULE: u16 = 32;
const DELETED_RULE: u16 = 33;
/// `IFLA_ADDRESS`. Length of `struct ifaddrmsg`.
const HARDWARE_ADDRESS: u16 = 1;
const ADDRESS_BYTES: usize = 8;

/// Packets that wait for a neighbour, at most.
const MOST_WAITING: usize = 64;
/// Those that wait for one of them.
const MOST_FOR_ONE: usize = 16;
/// Reports of the link itself that wait to be received, at most.
const MOST_REPORTS: usize = 16;
/// Packets that are received before the kernel's messages are looked at again.
const BURST: u32 = 64;
/// How often the queues of the device are counted, while packets are sent.
const COUNT_QUEUES: Duration = Duration::from_secs(1);
/// How often an empty queue is looked at in one turn.
const MOST_LOOKS: u32 = 8;

/// A queue of a device, which carries packets when it is opened.
pub struct XdpQueue {
    /// Its number.
    queue: u32,
    socket: Wire,
    screen: Option<Screen>,
    device: u32,
    mac: Mac,
    mtu: usize,
    partial: bool,
    attached: Arc<Attached>,
}

impl XdpQueue {
    /// With a packet socket this process decides what is taken.
    pub(super) fn new(
        (queue, socket): (u32, Wire),
        screen: Option<Screen>,
        device: &XdpDevice,
        partial: bool,
        attached: Arc<Attached>,
    ) -> Self {
        let XdpDevice { index: device, mac, mtu, .. } = *device;
        Self { queue, socket, screen, device, mac, mtu, partial, attached }
    }

    /// The link on this queue. Call it within the tokio runtime that shall use it, with its I/O driver enabled.
    ///
    /// # Errors
    /// [`XdpError::NoRuntime`], and the system's.
    pub fn open(self) -> Result<Xdp, XdpError> {
        let _runtime = tokio::runtime::Handle::try_current().map_err(|_| XdpError::NoRuntime)?;
        let Self { queue, socket, screen, device, mac, mtu, partial, attached } = self;
        let fail = XdpError::at("follow the kernel");
        let mut link = Xdp {
            events: sys::watch(Events::open().map_err(&fail)?).map_err(&fail)?,
            socket: sys::watch(socket).map_err(&fail)?,
            screen,
            hops: Hops::new(device).map_err(&fail)?,
            port: Port { device, mac, mtu, now: mtu, up: true, gone: None },
            partial,
            waiting: VecDeque::new(),
            reports: VecDeque::new(),
            until_events: BURST,
            queue,
            handled: [0; SynOpening::COUNT],
            comes_here: attached.comes_to(queue),
            counted: Instant::now(),
            attached,
        };
        // Something may have changed before the messages of the kernel were followed.
        link.look_again();
        Ok(link)
    }

    /// Reads the counters of the device.
    #[must_use]
    pub fn status(&self) -> XdpStatus {
        XdpStatus::of(&self.attached)
    }
}

impl std::fmt::Debug for XdpQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("XdpQueue").field("device", &self.device).finish_non_exhaustive()
    }
}

/// What is known of the device.
struct Port {
    device: u32,
    mac: Mac,
    /// The link's MTU, bytes.
    mtu: usize,
    /// The device's MTU now.
    now: usize,
    up: bool,
    /// Why the link has ended.
    gone: Option<&'static str>,
}

/// A link on one queue of a network device, or with a packet socket on all of them. The program stays on the device while a queue of it is open.
pub struct Xdp {
    events: AsyncFd<Events>,
    socket: AsyncFd<Wire>,
    screen: Option<Screen>,
    hops: Hops,
    port: Port,
    partial: bool,
    /// Packets whose neighbour is being resolved.
    waiting: VecDeque<(IpAddr, Vec<u8>)>,
    reports: VecDeque<Vec<u8>>,
    until_events: u32,
    /// Its number.
    queue: u32,
    /// SYNs that were received, by kind.
    handled: [u64; SynOpening::COUNT],
    comes_here: Option<ComesHere>,
    /// When the number of queues was looked at.
    counted: Instant,
    attached: Arc<Attached>,
}

impl Xdp {
    /// Takes a device: from now on the program gives the packets of the ports that are held to its queues. It blocks for up
    /// to two seconds if another process that used the device has just ended. Needs no runtime.
    ///
    /// The number of queues stays. The kernel refuses fewer. When there are more, the links of all queues end, because packets of
    /// the new ones are lost.
    ///
    /// # Errors
    /// See [`XdpError`]. After an error nothing is left behind.
    pub fn attach(config: &XdpConfig, holders: Vec<PortHolder>) -> Result<Vec<XdpQueue>, XdpError> {
        attach(config, holders, BUSY, ON_THEIR_WAY)
    }

    /// Reads the counters of the device.
    #[must_use]
    pub fn status(&self) -> XdpStatus {
        XdpStatus::of(&self.attached)
    }

    /// Reads what the kernel has said. The caller is woken when it says more.
    fn follow(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            let Poll::Ready(ready) = self.events.poll_read_ready(cx) else { return self.check() };
            ready?.clear_ready();
            loop {
                match self.events.get_mut().read()? {
                    Read::Nothing => break,
                    Read::Lost => self.look_again(),
                    Read::Messages(bytes) => {
                        let mut notifications = Notifications {
                            port: &mut self.port,
                            hops: &mut self.hops,
                            attached: &self.attached,
                        };
                        let known = messages(bytes)
                            .filter_map(|(kind, body)| notifications.take(kind, body))
                            .collect();
                        self.send_waiting(known);
                    }
                }
            }
            self.check()?;
        }
    }

    /// # Errors
    /// When the link has ended.
    fn check(&self) -> io::Result<()> {
        match self.port.gone.or_else(|| self.attached.has_ended()) {
            Some(why) => Err(io::Error::new(io::ErrorKind::NotConnected, why)),
            None => Ok(()),
        }
    }

    /// Looks now and then whether the device has other queues. The kernel sends no message about that.
    fn count_queues(&mut self, now: Instant, cx: &Context<'_>) {
        if now.saturating_duration_since(self.counted) >= COUNT_QUEUES {
            self.counted = now;
            if self.attached.has_other_queues() {
                cx.waker().wake_by_ref();
            }
        }
    }

    /// Asks the kernel for what its messages would have said.
    fn look_again(&mut self) {
        self.hops.forget();
        let question = super::device::question(self.port.device);
        let mut notifications =
            Notifications { port: &mut self.port, hops: &mut self.hops, attached: &self.attached };
        let route = crate::netlink::Netlink::open(nix::sys::socket::SockProtocol::NetlinkRoute);
        let asked = route.and_then(|it| it.request(&question, |_, body| notifications.link(body)));
        if asked.as_ref().is_err_and(|error| errno(error) == Some(Errno::ENODEV)) {
            self.port.gone = Some(DELETED);
        }
        if let Ok(present) = super::device::addresses(self.port.device) {
            for address in self.attached.addresses() {
                self.attached.address(address, present.contains(&address));
            }
        }
    }

    /// Sends what waited for these neighbours.
    fn send_waiting(&mut self, known: Vec<(IpAddr, Mac)>) {
        for (neighbour, mac) in known {
            let (ready, rest): (VecDeque<_>, VecDeque<_>) =
                self.waiting.drain(..).partition(|(next, _)| *next == neighbour);
            self.waiting = rest;
            for (_, packet) in ready {
                self.put(mac, &packet);
            }
            // A failure shows with the next packet.
            let _ = self.socket.get_mut().kick();
        }
    }

    /// Puts a packet into the ring. Returns false if there is no room.
    fn put(&mut self, to: Mac, packet: &[u8]) -> bool {
        let (from, len) = (self.port.mac, frame::HEADER + packet.len());
        self.socket.get_mut().send(len, |frame| frame::write(frame, to, from, packet))
    }

    /// The next packet of the queue.
    fn next(&mut self, buf: &mut [u8]) -> Option<usize> {
        loop {
            let (hops, lost) = (&mut self.hops, &self.attached.lost);
            let (mtu, partial) = (self.port.mtu, self.partial);
            let (screen, attached, handled) = (&self.screen, &self.attached, &mut self.handled);
            let received = self.socket.get_mut().receive(|bytes| {
                if let Some(screen) = screen {
                    match screen.fate(bytes, |host, port, transport| attached.serves(host, port, transport)) {
                        FrameFate::Taken => {}
                        FrameFate::Passed => return None,
                        FrameFate::Dropped(why) => {
                            lost.drop(why);
                            return None;
                        }
                    }
                }
                let Some(frame) = frame::read(bytes, mtu) else {
                    LostPackets::count(&lost.malformed);
                    return None;
                };
                if partial {
                    let _ = frame::complete(frame.packet);
                }
                if let Some(kind) = SynOpening::of(frame.packet)
                    && let Some(handled) = handled.get_mut(kind as usize)
                {
                    *handled += 1;
                }
                hops.hear(frame.src, frame.from);
                let place = buf.get_mut(..frame.packet.len())?;
                place.copy_from_slice(frame.packet);
                Some(frame.packet.len())
            })?;
            if received.is_some() {
                return received;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn attached(&self) -> &Attached {
        &self.attached
    }

    /// The link-layer address that a packet is sent to, when the kernel's messages are read.
    #[cfg(test)]
    pub(super) fn way(&mut self, src: IpAddr, dst: IpAddr) -> Option<Mac> {
        let _ = self.follow(&mut Context::from_waker(std::task::Waker::noop()));
        match self.hops.find(src, dst, Instant::now()) {
            NextHop::Known(mac) => Some(mac),
            NextHop::Resolving(_) | NextHop::None => None,
        }
    }

    /// The device carries smaller packets than the link: its user learns it as from a router.
    fn report(&mut self, src: IpAddr, dst: IpAddr, packet: &[u8]) {
        if self.reports.len() >= MOST_REPORTS {
            return;
        }
        let mut report = vec![0; 1280];
        let kind = IcmpErrorKind::PacketTooBig { mtu: self.port.now as u32 };
        if let Ok(len) = emit_error(kind, dst, src, packet, &mut report) {
            report.truncate(len);
            self.reports.push_back(report);
        }
    }

    /// Lets the kernel send. Pending while it has no room.
    fn push(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.port.up {
            return Poll::Ready(Ok(()));
        }
        match self.socket.get_mut().kick() {
            Ok(()) => Poll::Ready(Ok(())),
            Err(error) if is_full(&error) => {
                // No event says when a driver has room again.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) if errno(&error) == Some(Errno::ENETDOWN) => {
                // The kernel will say when it is up again.
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

const DELETED: &str = "the device was deleted";

/// What takes a message of the kernel.
struct Notifications<'a> {
    port: &'a mut Port,
    hops: &'a mut Hops,
    attached: &'a Attached,
}

impl Notifications<'_> {
    /// Returns a neighbour whose address is known now.
    fn take(&mut self, kind: u16, body: &[u8]) -> Option<(IpAddr, Mac)> {
        match kind {
            NEW_NEIGHBOUR | DELETED_NEIGHBOUR => return self.hops.take(body, kind == DELETED_NEIGHBOUR),
            NEW_ROUTE | DELETED_ROUTE | NEW_RULE | DELETED_RULE => self.hops.forget_routes(),
            NEW_ADDRESS | DELETED_ADDRESS if word_at(body, 4) == Some(self.port.device) => {
                let body = body.get(ADDRESS_BYTES..)?;
                let find = |wanted| attributes(body).find(|(kind, _)| *kind == wanted);
                let (_, value) = find(LOCAL).or_else(|| find(ADDRESS))?;
                self.attached.address(address_of(value)?, kind == NEW_ADDRESS);
            }
            NEW_LINK => self.link(body),
            DELETED_LINK if word_at(body, 4) == Some(self.port.device) && body.first() == Some(&0) => {
                self.port.gone = Some(DELETED);
            }
            _ => {}
        }
        None
    }

    fn link(&mut self, body: &[u8]) {
        let (device, flags) = (word_at(body, 4), word_at(body, 8));
        if device != Some(self.port.device) || body.first() != Some(&0) {
            return;
        }
        self.port.up = flags.is_some_and(|flags| flags & UP != 0);
        for (kind, value) in attributes(body.get(LINK_BYTES..).unwrap_or_default()) {
            match kind {
                MTU => self.port.now = word_at(value, 0).map_or(self.port.now, |mtu| mtu as usize),
                HARDWARE_ADDRESS if value != self.port.mac => {
                    self.port.gone = Some("the device has another link-layer address now");
                }
                _ => {}
            }
        }
    }
}

impl Link for Xdp {
    fn mtu(&self) -> usize {
        self.port.mtu
    }

    fn learns_flows(&self) -> bool {
        false
    }

    fn comes_here(&self) -> Option<ComesHere> {
        self.comes_here.clone()
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if buf.len() < self.port.mtu {
            return Poll::Ready(Err(short_buffer()));
        }
        if let Some(report) = self.reports.pop_front()
            && let Some(place) = buf.get_mut(..report.len())
        {
            place.copy_from_slice(&report);
            return Poll::Ready(Ok(report.len()));
        }
        self.until_events = self.until_events.saturating_sub(1);
        if self.until_events == 0 {
            self.until_events = BURST;
            self.attached.let_open(self.queue, self.handled);
            self.follow(cx)?;
        }
        for _ in 0..MOST_LOOKS {
            if let Some(len) = self.next(buf) {
                return Poll::Ready(Ok(len));
            }
            self.until_events = BURST;
            // None waits. What the kernel dropped behind the program does not count any more.
            self.handled = self.attached.opened(self.queue);
            self.attached.let_open(self.queue, self.handled);
            self.follow(cx)?;
            let Poll::Ready(ready) = self.socket.poll_read_ready(cx) else { return Poll::Pending };
            // A packet that comes from here on makes the socket ready again.
            ready?.clear_ready();
        }
        // The socket says that it is ready again and again. Other tasks run in between.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        let lost = &self.attached.lost;
        let Some((src, dst)) = frame::addresses(packet) else {
            LostPackets::count(&lost.malformed);
            return Poll::Ready(Ok(()));
        };
        if packet.len() > self.port.now.min(self.port.mtu) {
            self.report(src, dst, packet);
            cx.waker().wake_by_ref();
            return Poll::Ready(Ok(()));
        }
        let now = Instant::now();
        self.count_queues(now, cx);
        let lost = &self.attached.lost;
        let mac = match self.hops.find(src, dst, now) {
            NextHop::Known(mac) => mac,
            NextHop::Resolving(next) => {
                // A flood that waits for one neighbour leaves room for the others.
                let same = self.waiting.iter().filter(|(other, _)| *other == next).count();
                if same >= MOST_FOR_ONE {
                    LostPackets::count(&lost.unreachable);
                    return Poll::Ready(Ok(()));
                }
                if self.waiting.len() >= MOST_WAITING {
                    self.waiting.pop_front();
                    LostPackets::count(&lost.unreachable);
                }
                self.waiting.push_back((next, packet.to_vec()));
                return Poll::Ready(Ok(()));
            }
            NextHop::None => {
                LostPackets::count(&lost.unreachable);
                return Poll::Ready(Ok(()));
            }
        };
        if self.put(mac, packet) {
            return Poll::Ready(Ok(()));
        }
        match self.push(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(result) => result?,
        }
        if !self.put(mac, packet) {
            LostPackets::count(&self.attached.lost.no_room);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.socket.get_mut().is_sending() { self.push(cx) } else { Poll::Ready(Ok(())) }
    }
}

impl std::fmt::Debug for Xdp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Xdp").field("device", &self.port.device).finish_non_exhaustive()
    }
}
