//! How much a send buffer takes: the kernel counts packets and what they cost, and so do scripts.

use crate::queue::Path;
use crate::socket::Socket;
use crate::world::World;
use firstflight_stack::ConnId;
use firstflight_tcp::{CongestionState, Connection};
use libc::c_int;

/// The kernel's first congestion window, segments.
const FIRST_WINDOW: usize = 10;
/// Room for headers in front of a packet (`MAX_TCP_HEADER`), bytes.
const HEADERS: usize = 320;
/// `struct skb_shared_info`, bytes.
const SHARED: usize = 320;
/// `struct sk_buff`, bytes.
const BUFFER: usize = 256;
/// The largest packet that it makes, bytes: `GSO_MAX_SIZE` without room for headers.
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

/// The congestion window and what is under way, segments.
fn flight(machine: &Connection) -> (usize, usize) {
    let facts = machine.facts();
    let mss = u32::from(machine.mss()).max(1);
    let gone = facts.sacked + facts.lost.div_ceil(mss);
    let in_flight = facts.segments.saturating_sub(gone) + facts.again.div_ceil(mss);
    ((facts.window / mss) as usize, in_flight as usize)
}

/// Whether the congestion window is full.
pub fn is_full(machine: &Connection) -> bool {
    let (cwnd, in_flight) = flight(machine);
    in_flight >= cwnd
}

/// What is known of the path of a connection at `now`, µs.
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
    /// The size of a socket's send buffer, as `getsockopt` tells it, bytes.
    pub fn send_buffer(&self, socket: &Socket) -> usize {
        let set = socket.options.send_buffer.map(|set| set as usize);
        set.unwrap_or(socket.grown.max(self.sysctl.wmem[1] as usize))
    }

    /// A buffer whose size was not set grows to twice the congestion window, as it is or as it is at first
    /// (`tcp_sndbuf_expand`).
    pub fn expand(&mut self, id: ConnId) {
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

    /// The packets in the buffers are what the stack holds now.
    pub fn follow_queues(&mut self) {
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

    /// How much a write may add now: the rest of the packet that waits last, or, if there is room for one more, that.
    /// It is part of a packet of so many bytes, which is the second number.
    pub fn room(&self, fd: c_int) -> Result<(usize, usize), c_int> {
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

    /// TCP_NOTSENT_LOWAT, bytes.
    fn lowat(&self, socket: &Socket) -> usize {
        socket.options.notsent_lowat.filter(|n| *n > 0).unwrap_or(self.sysctl.notsent_lowat) as usize
    }

    /// Whether there is room enough to say so (`__sk_stream_is_writeable`): a third of the buffer, and not too much
    /// unsent.
    pub fn is_writable(&self, socket: &Socket) -> bool {
        let (size, cost) = (self.send_buffer(socket), socket.queue.cost());
        size.saturating_sub(cost) >= cost / 2
            && cost < size
            && socket.queue.unsent().saturating_mul(2) < self.lowat(socket)
    }

    /// An acknowledgement was looked at: sockets that wanted room and have it now are told (`tcp_check_space`). A
    /// buffer grows where it, not the congestion window, was what held.
    pub fn offer_room(&mut self) {
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
