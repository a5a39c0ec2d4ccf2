//! Calls that transfer data. Each is one attempt.

use crate::calls::SynData;
use crate::socket::{Kind, Socket};
use crate::world::World;
use firstflight_stack::IoError;
use libc::{
    EAGAIN, EINPROGRESS, ENOTCONN, EPIPE, MSG_EOR, MSG_FASTOPEN, MSG_MORE, MSG_PEEK, MSG_TRUNC, c_int,
};
use std::net::SocketAddr;

/// A `write` in progress. A blocking one continues where the last attempt ended.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    data: &'a [u8],
    flags: c_int,
    to: Option<SocketAddr>,
    done: usize,
    /// The socket was checked: if it has to be connected, the SYN was sent with the data that fit.
    opened: bool,
    /// The SYN is not answered yet.
    syn: bool,
    /// The buffer was full.
    full: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ReceiveResult {
    /// The data. Empty with MSG_TRUNC alone.
    pub data: Vec<u8>,
    /// The call's result.
    pub count: usize,
    /// Bytes that can still be read, if TCP_INQ is on.
    pub inq: Option<usize>,
}

impl<'a> Sending<'a> {
    /// A `sendto`, or a call that is a special case of it.
    pub(crate) fn new(data: &'a [u8], flags: c_int, to: Option<SocketAddr>) -> Self {
        Self { data, flags, to, done: 0, opened: false, syn: false, full: false }
    }

    /// The result of a call that no longer blocks.
    pub(crate) fn outcome(&self, error: c_int) -> Result<usize, c_int> {
        if self.done > 0 { Ok(self.done) } else { Err(error) }
    }
}

impl World {
    /// Whether a call on this socket may block.
    pub(crate) fn blocks(&self, fd: c_int, flags: c_int) -> Result<bool, c_int> {
        Ok(!self.socket(fd)?.nonblocking && flags & libc::MSG_DONTWAIT == 0)
    }

    /// Sends what fits. `EAGAIN` and `EINPROGRESS` mean that the rest has to wait.
    pub(crate) fn send(&mut self, fd: c_int, sending: &mut Sending<'_>) -> Result<usize, c_int> {
        if !sending.opened {
            self.open(fd, sending)?;
        }
        self.settle(fd)?;
        let blocks = self.blocks(fd, sending.flags)?;
        let socket = self.socket_mut(fd)?;
        if socket.error.is_some() && sending.done > 0 && !sending.syn {
            return Ok(sending.done);
        }
        match socket.kind {
            Kind::Fresh | Kind::Listener { .. } => {
                socket.take_error()?;
                return Err(EPIPE);
            }
            Kind::Deferred { .. } => return Err(EINPROGRESS),
            Kind::Connection { .. } => {}
        }
        if socket.error.is_some() && sending.syn {
            sending.done = 0;
        }
        socket.take_error()?;
        if socket.write_closed {
            return Err(EPIPE);
        }
        let id = self.connection_of(fd)?;
        let early = self.machine(id).is_some_and(|m| m.is_early());
        if !matches!(self.socket(fd)?.kind, Kind::Connection { connected: true, .. }) && !early {
            if self.is_over(fd)? {
                return Err(EPIPE);
            }
            // A blocking call waits for the handshake, although all of its data was sent with the SYN.
            if blocks {
                return Err(EAGAIN);
            }
            self.follow_write(fd);
            return sending.outcome(EAGAIN);
        }
        sending.syn = false;
        if sending.full && self.socket(fd)?.wants_room {
            // The call sleeps until the socket is notified of space, not merely until there is some.
            return Err(EAGAIN);
        }
        let corked = sending.flags & MSG_MORE != 0;
        let cork = corked || self.socket(fd)?.options.cork;
        while sending.done < sending.data.len() {
            let (room, goal) = self.room(fd)?;
            let rest = sending.data.get(sending.done..).unwrap_or_default();
            let Some(rest) = rest.get(..rest.len().min(room)).filter(|rest| !rest.is_empty()) else {
                self.socket_mut(fd)?.wants_room = true;
                sending.full = true;
                break;
            };
            let last = sending.done + rest.len() == sending.data.len();
            let more = if last { corked } else { !self.pushes(fd, rest.len(), goal)? };
            self.stack.set_cork(id, cork, more, None);
            match self.stack.write(id, rest, self.now()) {
                Ok(n) => {
                    sending.done += n;
                    let socket = self.socket_mut(fd)?;
                    socket.queue.append(n, goal);
                    socket.unpushed = if more { socket.unpushed + n } else { 0 };
                }
                Err(IoError::WouldBlock) => break,
                Err(_) => return sending.outcome(EPIPE),
            }
            if sending.done < sending.data.len() {
                // The kernel sends whole packets before it takes more data.
                self.pump();
            }
        }
        if sending.flags & MSG_EOR != 0 && sending.done == sending.data.len() {
            self.stack.end_record(id);
            self.socket_mut(fd)?.queue.complete();
        }
        let over = sending.done == sending.data.len() || (sending.done > 0 && !blocks);
        if over {
            self.follow_write(fd);
        }
        self.pump();
        self.stack.set_cork(id, self.socket(fd)?.options.cork, false, None);
        if over { Ok(sending.done) } else { Err(EAGAIN) }
    }

    /// Sends the SYN, if this is the call that has to send it.
    fn open(&mut self, fd: c_int, sending: &mut Sending<'_>) -> Result<(), c_int> {
        let deferred = self.deferred(fd)?;
        let remote = match deferred {
            Some(remote) => Some(remote),
            None if sending.flags & MSG_FASTOPEN != 0 => self.fast_open_to(fd, sending.to)?,
            None => None,
        };
        sending.opened = true;
        if let Some(remote) = remote {
            let taken = self.connect(fd, remote, SynData::Data(sending.data))?;
            (sending.done, sending.syn) = (taken, true);
            if taken < sending.data.len() && self.blocks(fd, sending.flags)? {
                // The rest is sent right after the SYN-ACK, and acknowledges it.
                let id = self.connection_of(fd)?;
                self.stack.set_cork(id, false, true, None);
            }
            if taken == 0 && !self.blocks(fd, sending.flags)? {
                return Err(EINPROGRESS);
            }
        }
        Ok(())
    }

    /// Whether the connection is over.
    fn is_over(&self, fd: c_int) -> Result<bool, c_int> {
        Ok(matches!(self.socket(fd)?.kind, Kind::Connection { over: true, .. }))
    }

    /// Receives up to `len` bytes. `EAGAIN` means that no data has arrived yet.
    pub(crate) fn receive(&mut self, fd: c_int, len: usize, flags: c_int) -> Result<ReceiveResult, c_int> {
        self.settle(fd)?;
        let socket = self.socket(fd)?;
        let id = match socket.kind {
            Kind::Connection { id, .. } => id,
            Kind::Deferred { .. } => return Err(EAGAIN),
            Kind::Fresh | Kind::Listener { .. } => {
                self.socket_mut(fd)?.take_error()?;
                return Err(ENOTCONN);
            }
        };
        let mut data = vec![0; len.min(16 << 20)];
        let now = self.now();
        let result = if flags & MSG_PEEK != 0 {
            Ok(self.stack.peek(id, &mut data))
        } else {
            self.stack.read(id, &mut data, now)
        };
        let count = match result {
            Ok(n) if n > 0 => n,
            _ if len == 0 => 0,
            _ => return self.nothing_to_read(fd),
        };
        data.truncate(count);
        if flags & MSG_TRUNC != 0 {
            data.clear();
        }
        let inq = self.socket(fd)?.options.inq;
        let left = self.machine(id).map_or(0, |m| m.readable());
        let ended = self.machine(id).is_none_or(|m| m.peer_closed());
        let left = if left == 0 && ended { 1 } else { left };
        Ok(ReceiveResult { data, count, inq: inq.then_some(left) })
    }

    /// The result of a read without data: the end of the stream, an error, or `EAGAIN`.
    fn nothing_to_read(&mut self, fd: c_int) -> Result<ReceiveResult, c_int> {
        let ended =
            self.socket(fd)?.connection().and_then(|id| self.machine(id)).is_none_or(|m| m.peer_closed());
        let socket = self.socket_mut(fd)?;
        let inq = socket.options.inq.then_some(1);
        let end = Ok(ReceiveResult { data: Vec::new(), count: 0, inq });
        if ended && socket.error.is_none() {
            return end;
        }
        socket.take_error()?;
        let Socket { read_closed, kind, .. } = socket;
        match kind {
            Kind::Connection { over: true, .. } => end,
            _ if *read_closed => end,
            _ => Err(EAGAIN),
        }
    }
}
