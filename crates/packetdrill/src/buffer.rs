//! How much a send buffer takes: the kernel counts packets and what they cost, and so do scripts.

use crate::socket::Socket;
use crate::world::World;
use firstflight_tcp::Connection;
use libc::c_int;

/// What a packet in the kernel's send buffer costs beside its data, bytes.
const OVERHEAD: usize = 1280;
/// The largest packet that it makes, bytes: `GSO_MAX_SIZE` without room for headers.
const LARGEST: usize = 65_536 - 1 - 320;
/// What a segment costs when the buffer is made to fit the window, beside its data, bytes.
const SEGMENT: usize = 640;

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

/// What the data in the buffer costs, bytes.
fn cost(machine: &Connection) -> usize {
    let queued = machine.unacknowledged();
    queued + queued.div_ceil(goal(machine)) * OVERHEAD
}

impl World {
    /// The size of a socket's send buffer, as `getsockopt` tells it, bytes. One that was not set grows with the window
    /// (`tcp_sndbuf_expand`).
    pub fn send_buffer(&self, fd: c_int) -> Result<usize, c_int> {
        let socket = self.socket(fd)?;
        if let Some(set) = socket.options.send_buffer {
            return Ok(set as usize);
        }
        let [_, usual, most] = self.sysctl.wmem.map(|bytes| bytes as usize);
        let Some(machine) = socket.connection().and_then(|id| self.machine(id)) else { return Ok(usual) };
        let each = (segment(machine) + SEGMENT).next_power_of_two() + 256;
        let segments = (machine.cwnd() as usize / usize::from(machine.mss().max(1))).max(10);
        Ok(usual.max((2 * segments * each).min(most)))
    }

    /// How much a write may add now: the rest of the packet that it began, or, if there is room for one more, that.
    pub fn room(&mut self, fd: c_int) -> Result<usize, c_int> {
        let size = self.send_buffer(fd)?;
        let lowat = self.lowat(self.socket(fd)?);
        let Some(machine) = self.socket(fd)?.connection().and_then(|id| self.machine(id)) else {
            return Ok(0);
        };
        let (unsent, goal, cost) = (machine.unsent(), goal(machine), cost(machine));
        let socket = self.socket_mut(fd)?;
        socket.begun = socket.begun.min(unsent);
        if socket.begun > 0 && socket.begun < goal {
            return Ok(goal - socket.begun);
        }
        socket.begun = 0;
        Ok(if cost < size && unsent < lowat { goal } else { 0 })
    }

    /// TCP_NOTSENT_LOWAT, bytes.
    fn lowat(&self, socket: &Socket) -> usize {
        socket.options.notsent_lowat.filter(|n| *n > 0).unwrap_or(self.sysctl.notsent_lowat) as usize
    }

    /// Whether there is room enough to say so: a third of the buffer, and not too much unsent.
    pub fn is_writable(&self, fd: c_int) -> bool {
        let (Ok(size), Ok(socket)) = (self.send_buffer(fd), self.socket(fd)) else { return false };
        let Some(machine) = socket.connection().and_then(|id| self.machine(id)) else { return false };
        let cost = cost(machine);
        size.saturating_sub(cost) >= cost / 2
            && cost < size
            && machine.unsent().saturating_mul(2) < self.lowat(socket)
    }
}
