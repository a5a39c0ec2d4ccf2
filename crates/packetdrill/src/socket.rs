//! A TCP socket as an application sees it.

use crate::errors::{Report, Stamping};
use crate::queue::Queue;
use crate::settings::Options;
use firstflight_stack::{CloseReason, ConnId, ListenerId, Readiness};
use libc::{ECONNREFUSED, ECONNRESET, EHOSTUNREACH, EPIPE, EPROTO, ETIMEDOUT, c_int};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// The state of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Created, perhaps bound.
    Fresh,
    Listener {
        /// The stack's id of the listener.
        id: ListenerId,
        /// The backlog given to `listen`.
        backlog: usize,
    },
    /// Its connect waits for data to ride in the SYN (TCP_FASTOPEN_CONNECT).
    Deferred {
        /// The address to connect to.
        remote: SocketAddr,
    },
    /// A connection in any state.
    Connection {
        /// The stack's id of the connection.
        id: ConnId,
        /// The handshake was completed.
        connected: bool,
        /// The end of the connection, and its error, were recorded.
        over: bool,
    },
}

/// What prevents a connection from sending more, as `tcp_info` counts the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SendLimit {
    /// There is nothing to send.
    #[default]
    Idle,
    /// Only the congestion window.
    Busy,
    /// The peer's window.
    Window,
    /// The send buffer: everything in it has been sent, and the application waits for space.
    Buffer,
}

/// How long each of these was the limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    held: SendLimit,
    since: u64,
    /// Time busy for any reason, limited by the peer's window, and limited by the send buffer, µs.
    pub spent: [u64; 3],
}

impl Times {
    /// Records that the limit is `held` from now (µs) on.
    pub(crate) fn turn(&mut self, held: SendLimit, now: u64) {
        let passed = now - self.since;
        let counts = match self.held {
            SendLimit::Idle => [false; 3],
            SendLimit::Busy => [true, false, false],
            SendLimit::Window => [true, true, false],
            SendLimit::Buffer => [true, false, true],
        };
        for (spent, _) in self.spent.iter_mut().zip(counts).filter(|(_, counts)| *counts) {
            *spent += passed;
        }
        (self.held, self.since) = (held, now);
    }

    /// The times up to now.
    pub(crate) fn until(mut self, now: u64) -> [u64; 3] {
        self.turn(self.held, now);
        self.spent
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Socket {
    /// The state of the socket.
    pub kind: Kind,
    /// Whether it is an `AF_INET6` socket.
    pub v6: bool,
    /// Whether it connected.
    pub client: bool,
    /// Whether its calls do not block.
    pub nonblocking: bool,
    /// The address that it was bound to.
    pub local: Option<SocketAddr>,
    /// Values set with `setsockopt`.
    pub options: Options,
    /// The error that the next call reports.
    pub error: Option<c_int>,
    /// Whether the application has closed reading.
    pub read_closed: bool,
    /// Whether the application has closed writing.
    pub write_closed: bool,
    /// How often it became readable, and how often writable.
    pub edges: [u64; 2],
    /// The packets in its send buffer.
    pub queue: Queue,
    /// Bytes written since the last one with PSH.
    pub unpushed: usize,
    /// The size that the send buffer has grown to, bytes.
    pub grown: usize,
    /// A write or a poll found no space, so the socket must be notified when there is some.
    pub wants_room: bool,
    /// When data last arrived, µs.
    pub heard_at: Option<u64>,
    /// What limited its sending, and for how long.
    pub times: Times,
    /// SO_TIMESTAMPING.
    pub stamping: Stamping,
    /// Its error queue.
    pub reports: VecDeque<Report>,
}

impl Socket {
    pub(crate) fn new(v6: bool, nonblocking: bool, kind: Kind, options: Options) -> Self {
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
            unpushed: 0,
            grown: 0,
            wants_room: false,
            heard_at: None,
            times: Times::default(),
            stamping: Stamping::default(),
            reports: VecDeque::new(),
        }
    }

    pub(crate) fn connection(&self) -> Option<ConnId> {
        match self.kind {
            Kind::Connection { id, .. } => Some(id),
            _ => None,
        }
    }

    pub(crate) fn listener(&self) -> Option<ListenerId> {
        match self.kind {
            Kind::Listener { id, .. } => Some(id),
            _ => None,
        }
    }

    /// Handles a change reported by the stack.
    pub(crate) fn note(&mut self, ready: Readiness, now: u64) {
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

    /// Takes the pending error.
    pub(crate) fn take_error(&mut self) -> Result<(), c_int> {
        self.error.take().map_or(Ok(()), Err)
    }
}

/// The error that Linux reports for a connection that ended in this way; `None` if it ended in order, or by the
/// application.
pub(crate) fn errno(reason: CloseReason, half_closed: bool) -> Option<c_int> {
    match reason {
        CloseReason::Finished | CloseReason::Aborted => None,
        CloseReason::Refused => Some(ECONNREFUSED),
        // In CLOSE-WAIT nothing more is received, so the error is that of a write.
        CloseReason::Reset if half_closed => Some(EPIPE),
        CloseReason::Reset => Some(ECONNRESET),
        CloseReason::TimedOut => Some(ETIMEDOUT),
        CloseReason::Unreachable => Some(EHOSTUNREACH),
        _ => Some(EPROTO),
    }
}
