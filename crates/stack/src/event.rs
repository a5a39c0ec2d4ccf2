//! What a stack reports: ids, events for the application, the trace.

use core::fmt;
use core::net::SocketAddr;
use firstflight_credential::{JobRequest, Outcome, Reason};
use firstflight_tcp::{DropReason, Readiness, StateName, Totals, Transition};
use firstflight_wire::icmp::IcmpErrorKind;

/// A connection of one stack. The id of a connection that is gone finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnId {
    /// A small number that no other living connection of the stack has: an index for what is kept of each connection.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// A listener of one stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A verification that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl JobId {
    /// The id of a job whose answer is not needed.
    pub(crate) const NOBODY: Self = Self { index: u32::MAX, generation: 0 };
}

/// Work for the caller: the answer comes back by [`crate::Stack::handle_job`].
#[derive(Debug, Clone)]
pub struct Job {
    /// Return it with the answer. If the answer is not needed, returning it does nothing.
    pub id: JobId,
    /// What to do.
    pub request: JobRequest,
}

/// Something the application waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// [`crate::Stack::accept`] has a connection.
    Acceptable(ListenerId),
    /// Something changed for a connection.
    Ready(ConnId, Readiness),
}

/// One record of what happened, for logs and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trace {
    /// A connection changed its state.
    Transition(ConnId, Transition),
    /// A connection's outcome is known.
    Outcome(ConnId, Outcome),
    /// A limit of pending first flights is reached: ordinary handshakes from now on.
    Suspended(ListenerId, Reason),
    /// First flights are accepted again.
    Resumed(ListenerId),
    /// A packet was not processed.
    Dropped(PacketDrop),
    /// A segment was dropped by its connection.
    Segment(ConnId, DropReason),
}

/// Lists each reason with its label once, so that a table with a place for each reason has none too few.
macro_rules! drops {
    ($($(#[$doc:meta])* $variant:ident => $label:literal,)*) => {
        /// Why a packet never reached a connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum PacketDrop {
            $($(#[$doc])* $variant,)*
        }

        impl PacketDrop {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its label in kebab-case, for metrics and logs.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $label),* }
            }
        }
    };
}

drops! {
    /// Its IP header is invalid.
    BadIp => "bad-ip",
    /// It is for another host.
    NotForUs => "not-for-us",
    /// Its source is an address nobody can have (broadcast, multicast, ours), or an address is IPv4-mapped.
    BadSource => "bad-source",
    /// Its transport protocol is not supported.
    Protocol => "protocol",
    /// Its TCP header or checksum is wrong.
    BadTcp => "bad-tcp",
    /// Its ICMP message is invalid, or about nothing of ours.
    BadIcmp => "bad-icmp",
    /// For a listener: a SYN with FIN, or a segment without SYN, ACK and RST.
    BadFlags => "bad-flags",
    /// No connection and no listener: answered with a RST.
    NoConnection => "no-connection",
    /// The accept queue is full.
    AcceptQueueFull => "accept-queue-full",
    /// The stack's connection limit is reached.
    TooManyConnections => "too-many-connections",
    /// Too many answers wait to be sent.
    ReplyQueueFull => "reply-queue-full",
    /// The same SYN waits for a verdict.
    AlreadyDeferred => "already-deferred",
    /// A SYN with a credential block, or one that would end the wait of such a SYN, whose answer could not say that the
    /// request may have run: the guard remembers it, or too many blocks were reported to the store of the farm
    /// ([`ReplayGuard::report`](firstflight_credential::ReplayGuard::report)).
    Unreported => "unreported",
    /// Its UDP header or checksum is wrong.
    BadUdp => "bad-udp",
    /// Its UDP datagram is for another port than the encapsulation's, or carries something else.
    NotCarried => "not-carried",
    /// Its UDP datagram is for the verifier that shares the port, and too many of them wait.
    VerifierQueueFull => "verifier-queue-full",
    /// In UDP: a segment that follows a SYN came before the SYN, or there is no room to keep it.
    Follower => "follower",
    /// In UDP: it fits a connection whose client had another UDP port. The new port is checked first.
    UncheckedPath => "unchecked-path",
    /// It belongs to another shard, and too many packets wait for that.
    ShardQueueFull => "shard-queue-full",
    /// A fragment while reassembly is off ([`crate::FragmentLimits::bytes`] is 0).
    FragmentsOff => "fragments-off",
    /// An invalid fragment: empty, not the last and of a length that is not a multiple of 8, beyond the longest packet,
    /// or a first IPv6 fragment without its headers (RFC 7112 §5).
    BadFragment => "bad-fragment",
    /// A fragment of a packet that is longer than the link's MTU and longer than 1,500 bytes.
    FragmentTooLong => "fragment-too-long",
    /// A fragment that contradicts another one of its packet, or that arrived after such a pair (RFC 5722 §4).
    FragmentOverlap => "fragment-overlap",
    /// An exact copy of a fragment that arrived before.
    FragmentDuplicate => "fragment-duplicate",
    /// One fragment more than a packet may have ([`crate::FragmentLimits::per_packet`]). Later fragments of the packet
    /// count as overlaps.
    TooManyFragments => "too-many-fragments",
    /// A fragment that disagrees with an earlier one on whether their sender uses ECN (RFC 3168 §5.3). Later fragments
    /// of the packet count as overlaps.
    FragmentEcn => "fragment-ecn",
}

/// What can be known of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Its state.
    pub state: StateName,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// What became of the first flight.
    pub outcome: Outcome,
    /// Whether the handshake is complete: the peer's address is proved.
    pub confirmed: bool,
    /// Smoothed round-trip time, once measured.
    pub rtt: Option<core::time::Duration>,
    /// Variation of the round-trip time.
    pub rtt_var: Option<core::time::Duration>,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// The retransmission timeout, as it is backed off now.
    pub rto: core::time::Duration,
    /// Timeouts in a row without progress, those of a closed window not counted.
    pub timeouts: u8,
    /// Bytes written that the peer has not acknowledged, sent or not.
    pub unacknowledged: usize,
    /// Largest payload of a segment, bytes.
    pub mss: u16,
    /// Whether Nagle's algorithm is off.
    pub nodelay: bool,
    /// SYNs or SYN-ACKs sent again.
    pub handshake_retransmits: u8,
    /// What a router or the peer's host last reported about our packets. A report ends a connection only if the
    /// connection was not open yet ([`firstflight_tcp::CloseReason::Unreachable`]): routing may recover, and anyone
    /// can send such a report.
    pub network_error: Option<IcmpErrorKind>,
    /// Whether a certificate was shown with the first flight.
    pub certificate: bool,
    /// Whether the first flight was accepted after it travelled in a lookup ([`crate::Stack::connect_in_lookup`]): a
    /// front delivered it to the server.
    pub relayed: bool,
    /// Age of the cookie that our SYN showed, if it showed one.
    pub cookie_age: Option<core::time::Duration>,
    /// Counts.
    pub totals: Totals,
    /// The peer's UDP port, if its segments travel in UDP datagrams.
    pub encapsulation: Option<u16>,
}
