//! How much data a send buffer holds. The kernel counts packets and their memory, and so do scripts.

use crate::queue::Path;
use crate::socket::Socket;
use crate::world::World;
use firstflight_stack::ConnId;
use firstflight_tcp::{CongestionState, Connection};
use libc::c_int;

/// The kernel's first congestion window, segments.
const FIRST_WINDOW: usize = 10;
/// Space for headers before a packet (`MAX_TCP_HEADER`), bytes.
const HEADERS: usize = 320;
/// `struct skb_shared_info`, bytes.
const SHARED: usize = 320;
/// `struct sk_buff`, bytes.
const BUFFER: usize = 256;
/// The largest packet that the kernel makes, bytes: `GSO_MAX_SIZE` without space for headers.
const LARGEST: usize = 65_536 - 1 - HEADERS;

/// Data of one packet in the buffer (`tcp_xmit_size_goal`), bytes.
fn goal(machine: &Connection) -> usize {
    let facts = machine.facts();
    let mss = segment(machine);
    let largest = facts.largest_window as usize;
    let half = if largest > 536 { largest / 2 } else { largest };
    (LARGEST.min(half.max(1)) / mss * mss).max(mss)
}

/// Data of a segment, bytes.
fn segment(machine: &Connection) -> usize {
    let options = if machine.facts().timestamps { 12 } else { 0 };
    usize::from(machine.mss()).saturating_sub(options).max(1)
}

/// The congestion window and the segments under way.
fn flight(machine: &Connection) -> (usize, usize) {
    let facts = machine.facts();
    let mss = u32::from(machine.mss()).max(1);
    let gone = facts.sacked + facts.lost.div_ceil(mss);
    let in_flight = facts.segments.saturating_sub(gone) + facts.again.div_ceil(mss);
    ((facts.window / mss) as usize, in_flight as usize)
}

/// Whether the congestion window is full.
pub(crate) fn is_full(machine: &Connection) -> bool {
    let (cwnd, in_flight) = flight(machine);
    in_flight >= cwnd
}

/// The state of a connection's path at `now`, µs.
fn path(machine: &Connection, now: u64) -> Path {
    let facts = machine.facts();
    let segment = segment(machine);
    let srtt = machine.rtt().map(|rtt| rtt.0);
    let (cwnd, in_flight) = flight(machine);
    let sent = machine.unacknowledged() - machine.unsent();
    Path {
        segment,
        burst: facts.burst as usize,
        cwnd,
        in_flight,
        window: (facts.peer_window as usize).saturating_sub(sent),
        offered: facts.peer_window as usize,
        srtt: srtt.map_or(0, |srtt| srtt.as_micros() as u64),
        now,
        recovering: matches!(facts.congestion, CongestionState::Recovery | CongestionState::Loss),
        closed: false,
    }
}

impl World {
    /// The size of a socket's send buffer as `getsockopt` reports it, bytes.
    pub(crate) fn send_buffer(&self, socket: &Socket) -> usize {
        let set = socket.options.send_buffer.map(|set| set as usize);
        set.unwrap_or(socket.grown.max(self.sysctl.wmem[1] as usize))
    }

    /// Grows a buffer whose size was not set to twice the congestion window, using the larger of the present and the
    /// initial window (`tcp_sndbuf_expand`).
    pub(crate) fn expand(&mut self, id: ConnId) {
        let most = self.sysctl.wmem[2] as usize;
        let Some(machine) = self.machine(id) else { return };
        let each = (usize::from(machine.mss()) + HEADERS + SHARED).next_power_of_two() + BUFFER;
        let (cwnd, _) = flight(machine);
        let segments = cwnd.max(FIRST_WINDOW).max(machine.facts().reordering as usize + 1);
        let size = (2 * segments * each).min(most);
        for socket in self.sockets_mut().filter(|socket| socket.connection() == Some(id)) {
            socket.grown = socket.grown.max(size);
        }
    }

    /// Updates the packets in the buffers to what the stack now holds.
    pub(crate) fn follow_queues(&mut self) {
        let now = self.micros();
        let known: Vec<(c_int, usize, usize, Path)> = self
            .sockets()
            .filter_map(|(fd, socket)| {
                let machine = socket.connection().and_then(|id| self.machine(id))?;
                let path = Path { closed: socket.write_closed, ..path(machine, now) };
                Some((fd, machine.unacknowledged(), machine.unsent(), path))
            })
            .collect();
        for (fd, queued, unsent, path) in known {
            if let Ok(socket) = self.socket_mut(fd) {
                socket.queue.follow(queued, unsent, &path);
            }
        }
    }

    /// How much a write may add now: the rest of the last waiting packet, or a whole packet if another one fits. The
    /// second number is the packet size that this is based on.
    pub(crate) fn room(&self, fd: c_int) -> Result<(usize, usize), c_int> {
        let socket = self.socket(fd)?;
        let Some(machine) = socket.connection().and_then(|id| self.machine(id)) else { return Ok((0, 0)) };
        let goal = goal(machine);
        let rest = socket.queue.rest(goal);
        if rest > 0 {
            return Ok((rest, goal));
        }
        let free =
            socket.queue.cost() < self.send_buffer(socket) && socket.queue.unsent() < self.lowat(socket);
        Ok((if free { goal } else { 0 }, goal))
    }

    /// Whether `len` bytes in the middle of a write, for packets of `goal` bytes, end with PSH. A packet of several
    /// segments does. Another one does if half of the peer's largest window was written without PSH (`forced_push`), or
    /// if the buffer is full behind it.
    pub(crate) fn pushes(&self, fd: c_int, len: usize, goal: usize) -> Result<bool, c_int> {
        let socket = self.socket(fd)?;
        let Some(machine) = socket.connection().and_then(|id| self.machine(id)) else { return Ok(true) };
        let mut queue = socket.queue.clone();
        queue.append(len, goal);
        let full = queue.rest(goal) == 0 && queue.cost() >= self.send_buffer(socket);
        let forced = socket.unpushed + len > machine.facts().largest_window as usize / 2;
        Ok(full || forced || len > segment(machine))
    }

    /// TCP_NOTSENT_LOWAT, bytes.
    fn lowat(&self, socket: &Socket) -> usize {
        socket.options.notsent_lowat.filter(|n| *n > 0).unwrap_or(self.sysctl.notsent_lowat) as usize
    }

    /// Whether the socket is writable (`__sk_stream_is_writeable`): a third of the buffer is free, and not too much
    /// is unsent.
    pub(crate) fn is_writable(&self, socket: &Socket) -> bool {
        let (size, cost) = (self.send_buffer(socket), socket.queue.cost());
        size.saturating_sub(cost) >= cost / 2
            && cost < size
            && socket.queue.unsent().saturating_mul(2) < self.lowat(socket)
    }

    /// Called after an acknowledgement: notifies sockets that waited for space and now have it (`tcp_check_space`).
    /// Grows a buffer if the buffer, not the congestion window, was the limit.
    pub(crate) fn offer_room(&mut self) {
        let wanting: Vec<c_int> = self.sockets().filter(|(_, s)| s.wants_room).map(|(fd, _)| fd).collect();
        for fd in wanting {
            let Ok(socket) = self.socket(fd) else { continue };
            let deferred = socket.queue.unsent();
            if let Some(id) = socket.connection()
                && self.machine(id).is_some_and(|machine| {
                    let (cwnd, in_flight) = flight(machine);
                    let deferred = deferred.saturating_sub(machine.unsent()).div_ceil(segment(machine));
                    in_flight.saturating_sub(deferred) < cwnd
                })
            {
                self.expand(id);
            }
            let writable = self.socket(fd).is_ok_and(|socket| self.is_writable(socket));
            if writable && let Ok(socket) = self.socket_mut(fd) {
                socket.wants_room = false;
                socket.edges[1] += 1;
            }
        }
    }
}
