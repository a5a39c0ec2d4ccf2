//! A TCP socket as an application sees it.

use crate::queue::Queue;
use crate::settings::Options;
use firstflight_stack::{CloseReason, ConnId, ListenerId, Readiness};
use libc::{ECONNREFUSED, ECONNRESET, EHOSTUNREACH, EPIPE, EPROTO, ETIMEDOUT, c_int};
use std::net::SocketAddr;

/// What has become of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Made, perhaps bound.
    Fresh,
    /// It listens.
    Listener {
        /// Where.
        id: ListenerId,
        /// As `listen` said.
        backlog: usize,
    },
    /// Its connect waits for data to ride in the SYN (TCP_FASTOPEN_CONNECT).
    Deferred {
        /// Whom it is to.
        remote: SocketAddr,
    },
    /// A connection, however far.
    Connection {
        /// Which.
        id: ConnId,
        /// The handshake was complete.
        connected: bool,
        /// The error of its end was taken note of.
        over: bool,
    },
}

/// What keeps a connection from sending more, as `tcp_info` counts the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Held {
    /// Nothing is to be sent.
    #[default]
    Idle,
    /// Nothing but the congestion window.
    Busy,
    /// The peer's window.
    Window,
    /// The send buffer: everything in it has left, and the application waits for room.
    Buffer,
}

/// For how long it was what keeps a connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    held: Held,
    since: u64,
    /// Busy with whatever, by the peer's window, by the send buffer, µs.
    pub spent: [u64; 3],
}

impl Times {
    /// From now (µs) on it is `held`.
    pub fn turn(&mut self, held: Held, now: u64) {
        let passed = now - self.since;
        let counts = match self.held {
            Held::Idle => [false; 3],
            Held::Busy => [true, false, false],
            Held::Window => [true, true, false],
            Held::Buffer => [true, false, true],
        };
        for (spent, _) in self.spent.iter_mut().zip(counts).filter(|(_, counts)| *counts) {
            *spent += passed;
        }
        (self.held, self.since) = (held, now);
    }

    /// All of it, up to now.
    pub fn until(mut self, now: u64) -> [u64; 3] {
        self.turn(self.held, now);
        self.spent
    }
}

/// A socket.
#[derive(Debug, Clone)]
pub struct Socket {
    /// What has become of it.
    pub kind: Kind,
    /// Of `AF_INET6`.
    pub v6: bool,
    /// It connected.
    pub client: bool,
    /// Calls do not block.
    pub nonblocking: bool,
    /// Where it was bound to.
    pub local: Option<SocketAddr>,
    /// What `setsockopt` set.
    pub options: Options,
    /// The error that the next call reports.
    pub error: Option<c_int>,
    /// The application reads no more.
    pub read_closed: bool,
    /// The application writes no more.
    pub write_closed: bool,
    /// How often it became readable, and writable.
    pub edges: [u64; 2],
    /// The packets in its send buffer.
    pub queue: Queue,
    /// What the send buffer has grown to, bytes.
    pub grown: usize,
    /// A write or a poll found no room, so that it is to be told when there is some.
    pub wants_room: bool,
    /// When data last came, µs.
    pub heard_at: Option<u64>,
    /// What kept it from sending, and for how long.
    pub times: Times,
}

impl Socket {
    /// A new one.
    pub fn new(v6: bool, nonblocking: bool, kind: Kind, options: Options) -> Self {
        Self {
            kind,
            v6,
            client: false,
            nonblocking,
            local: None,
            options,
            error: None,
            read_closed: false,
            write_closed: false,
            edges: [0; 2],
            queue: Queue::default(),
            grown: 0,
            wants_room: false,
            heard_at: None,
            times: Times::default(),
        }
    }

    /// Its connection.
    pub fn connection(&self) -> Option<ConnId> {
        match self.kind {
            Kind::Connection { id, .. } => Some(id),
            _ => None,
        }
    }

    /// Its listener.
    pub fn listener(&self) -> Option<ListenerId> {
        match self.kind {
            Kind::Listener { id, .. } => Some(id),
            _ => None,
        }
    }

    /// Something changed for it.
    pub fn note(&mut self, ready: Readiness, now: u64) {
        let over = ready.contains(Readiness::CLOSED);
        if ready.contains(Readiness::READABLE) || over {
            self.edges[0] += 1;
            self.heard_at = Some(now);
        }
        if ready.contains(Readiness::CONNECTED) || over {
            self.edges[1] += 1;
        }
        if ready.contains(Readiness::CONNECTED)
            && let Kind::Connection { connected, .. } = &mut self.kind
        {
            *connected = true;
            self.heard_at = Some(now);
        }
    }

    /// Takes the error that waits to be told.
    pub fn take_error(&mut self) -> Result<(), c_int> {
        self.error.take().map_or(Ok(()), Err)
    }
}

/// The error that Linux gives a socket whose connection ended so; `None`: in order, or by the application.
pub fn errno(reason: CloseReason, half_closed: bool) -> Option<c_int> {
    match reason {
        CloseReason::Finished | CloseReason::Aborted => None,
        CloseReason::Refused => Some(ECONNREFUSED),
        // In CLOSE-WAIT nothing is expected any more, only to be written.
        CloseReason::Reset if half_closed => Some(EPIPE),
        CloseReason::Reset => Some(ECONNRESET),
        CloseReason::TimedOut => Some(ETIMEDOUT),
        CloseReason::Unreachable => Some(EHOSTUNREACH),
        _ => Some(EPROTO),
    }
}
