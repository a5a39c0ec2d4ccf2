//! What may be set for a stack and a listener.

use crate::flow::FlowKey;
use crate::fragments::FragmentLimits;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU8;
use core::time::Duration;
use firstflight_credential::asap::{AsapPolicy, BudgetConfig, ClientCertificate, Identity};
use firstflight_credential::{FastOpenPolicy, NetworkId, Reason};
use firstflight_wire::Instant;
use zeroize::Zeroize;

/// 64: the hop limit that is recommended (RFC 1700), and Linux's.
const HOP_LIMIT: NonZeroU8 = NonZeroU8::MIN.saturating_add(63);

/// Bounds of one stack: whatever the network sends, memory stays below them.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections, of either side and in any state but TIME-WAIT.
    pub connections: usize,
    /// Connections that one client (an IPv4 address, an IPv6 /64) may have opened to us, including those that close in
    /// the background. One more replaces the connection whose peer has accepted nothing for longest, and for at least 5
    /// s; if there is none, the new one is reset. `None` is no limit: many clients may be behind one address.
    pub connections_per_client: Option<usize>,
    /// Connections in TIME-WAIT; the oldest make way, a sixteenth of them at once.
    pub time_wait: usize,
    /// Ends of connections held for [`ListenConfig::hold_last_ack`]; the oldest make way.
    pub held_last_acks: usize,
    /// Bytes in all send and receive buffers together. When they are used up, connections whose peers have accepted
    /// nothing for at least 5 s are reset, a sixteenth of them at a time.
    pub buffer_bytes: usize,
    /// Answers (RST, SYN cookies, echo replies) waiting to be sent; more are dropped.
    pub replies: usize,
    /// First flights that wait for a verdict.
    pub parked: usize,
    /// Bytes of first flights that wait for a verdict.
    pub parked_bytes: usize,
    /// How long a first flight waits for a verdict before it becomes an ordinary handshake.
    pub parked_for: Duration,
    /// Servers remembered by the client's credential store.
    pub credentials: usize,
    /// Signatures verified, and certificates remembered.
    pub asap: BudgetConfig,
    /// Memory for the fragments of incomplete packets. [`FragmentLimits::OFF`] drops all fragments.
    pub fragments: FragmentLimits,
    /// Trace records kept for [`crate::Stack::poll_trace`]; 0 turns tracing off.
    pub trace: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1 << 20,
            connections_per_client: None,
            time_wait: 1 << 16,
            held_last_acks: 1 << 14,
            buffer_bytes: 4 << 30,
            replies: 256,
            parked: 1024,
            parked_bytes: 2 << 20,
            parked_for: Duration::from_millis(25),
            credentials: 1024,
            asap: BudgetConfig::default(),
            fragments: FragmentLimits::default(),
            trace: 0,
        }
    }
}

/// Settings of a stack.
#[derive(Clone)]
pub struct Config {
    /// The addresses it answers for.
    pub addresses: Vec<IpAddr>,
    /// Largest IP packet of the link, bytes.
    pub mtu: usize,
    /// Settings of its connections.
    pub tcp: firstflight_tcp::Config,
    /// 32 unpredictable bytes: ISNs, ports, SYN cookies and the flow table's hash come from them.
    pub secret: [u8; 32],
    /// Bounds.
    pub limits: Limits,
    /// The local network that learnt credentials belong to; without one they are forgotten with
    /// [`crate::Stack::forget_credentials`] at any change of address.
    pub network: NetworkId,
    /// Show a cookie in several SYNs at once, and ask for Fast Open again at once where it failed: what was learnt of
    /// servers that grant cookies for one use, or of paths, is not used. As in Linux.
    pub simple_credentials: bool,
    /// An ICMP "host unreachable" ends a connection that is being opened, as in Linux. Otherwise routing gets the time
    /// to recover that retransmissions take (RFC 5461 §4 leaves both).
    pub unreachable_ends_handshakes: bool,
    /// Hop limit (IPv4: TTL) of the packets that are made here. Out of a UDP socket the system's goes (`IP_TTL`).
    pub hop_limit: NonZeroU8,
    /// Answer pings to our addresses.
    pub answer_echo: bool,
    /// Speak TCP in UDP datagrams, too; `None` means raw IP only.
    pub carrier: Option<CarrierConfig>,
}

impl Drop for Config {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl core::fmt::Debug for Config {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Config")
            .field("addresses", &self.addresses)
            .field("mtu", &self.mtu)
            .field("tcp", &self.tcp)
            .field("limits", &self.limits)
            .field("carrier", &self.carrier)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Defaults for `addresses` on a link that takes packets of 1,500 bytes.
    #[must_use]
    pub fn new(addresses: Vec<IpAddr>, secret: [u8; 32]) -> Self {
        Self {
            addresses,
            mtu: 1500,
            tcp: firstflight_tcp::Config::default(),
            secret,
            limits: Limits::default(),
            network: NetworkId::default(),
            simple_credentials: false,
            unreachable_ends_handshakes: false,
            hop_limit: HOP_LIMIT,
            answer_echo: true,
            carrier: None,
        }
    }

    /// The network that a flow's path belongs to: in UDP another one, because the same routers treat TCP
    /// otherwise.
    pub(crate) fn network_of(&self, key: &FlowKey) -> NetworkId {
        if key.is_carried() { self.network.over_udp() } else { self.network }
    }
}

/// TCP in UDP datagrams: which port, and how.
///
/// Connections over one port are told apart by both ends' addresses, UDP ports and inner TCP ports; the inner
/// destination port selects the listener, so one UDP port serves many. When an address translator on the way gives a
/// client another UDP port, the server checks that port, and the connection goes on there (`docs/carrier.md`).
///
/// A client without an answer has no proof of its address: it gets one SYN-ACK retransmission at most, so in all
/// less than three times what it sent. A valid credential is that proof, as on raw IP
/// ([`ListenConfig::response`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarrierConfig {
    /// The UDP port that all datagrams come to and leave from; with 0 none is taken.
    pub port: u16,
    /// Largest UDP payload sent, bytes. The default of 1,200 goes through practically every path
    /// (RFC 9000 §14).
    pub datagram: u16,
    /// Try larger datagrams, up to the link's MTU, on established connections with enough to send (RFC 8899), and
    /// announce the link's size to the peer, so that it may.
    pub probe: bool,
    /// Silence after which a keep-alive is sent between two UDP ports with a connection that was opened here:
    /// address translators forget mappings that nobody uses (RFC 4787 §4.3). `None` sends none.
    pub keep_alive: Option<Duration>,
    /// Silence after which the first keep-alive behind a segment is sent, at least 10 ms; each further one waits twice as
    /// long, up to `keep_alive`. A client that only receives would otherwise notice late that an address translator has
    /// given it another UDP port.
    pub first_keep_alive: Duration,
    /// Longest time in which keep-alives alone are sent; `None`: as long as an application holds a connection between
    /// the two ports that was opened here and is not over.
    pub keep_alive_for: Option<Duration>,
    /// The link's datagrams come from a UDP socket of the operating system, which has found that they are for
    /// this host and that their checksum is right, and which computes the checksum of those that are sent: the
    /// stack then does neither. For no other link: it would take damaged packets, and packets for others.
    pub from_socket: bool,
}

impl CarrierConfig {
    /// The carrier on this UDP port, with every check: keep-alives after 15 s, without end.
    #[must_use]
    pub const fn new(port: u16) -> Self {
        Self {
            port,
            datagram: firstflight_wire::carrier::BASE_DATAGRAM,
            probe: true,
            keep_alive: Some(Duration::from_secs(15)),
            first_keep_alive: Duration::from_millis(250),
            keep_alive_for: None,
            from_socket: false,
        }
    }
}

/// How much a server may send before the client's ACK proves its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponsePolicy {
    /// As much as the congestion window allows: the credential proved the address.
    #[default]
    Immediately,
    /// At most this many times the bytes received (RFC 9000 §8.1 uses 3), IP headers included. The SYN-ACK
    /// always goes: with 3 and a SYN of 60 bytes there is room for little more.
    Times(u32),
    /// Nothing but the SYN-ACK.
    AfterHandshake,
}

/// Settings of a listener.
#[derive(Debug, Clone)]
pub struct ListenConfig {
    /// Address and port; the unspecified address (`0.0.0.0` or `::`) means all of that family.
    pub local: SocketAddr,
    /// Connections that may wait to be accepted.
    pub backlog: usize,
    /// Handshakes that may be under way; beyond it SYN cookies answer (RFC 4987).
    pub syn_backlog: usize,
    /// First flights: `None` means ordinary handshakes only.
    //= rfc7413 2-a 4.2-a
    pub fast_open: Option<FastOpenPolicy>,
    /// First flights with a certificate: `None` means that none is taken, and that a block of one is never
    /// delivered either.
    pub asap: Option<AsapPolicy>,
    /// What may be sent before the client's ACK.
    pub response: ResponsePolicy,
    /// Remembers a connection whose first flight was accepted for 2 MSL after the client closed first, so
    /// that a late copy of its SYN finds no listener (the Fast Open paper §3.5). Bounded by
    /// [`Limits::held_last_acks`].
    pub hold_last_ack: bool,
    /// Settings of its connections, if other than the stack's.
    pub tcp: Option<Arc<firstflight_tcp::Config>>,
}

impl ListenConfig {
    /// Default of [`Self::backlog`] and [`Self::syn_backlog`].
    pub const BACKLOG: usize = 4096;

    /// A listener at `local` without Fast Open.
    #[must_use]
    pub fn new(local: SocketAddr) -> Self {
        Self {
            local,
            backlog: Self::BACKLOG,
            syn_backlog: Self::BACKLOG,
            fast_open: None,
            asap: None,
            response: ResponsePolicy::default(),
            hold_last_ack: false,
            tcp: None,
        }
    }
}

/// A connect's certificate.
///
/// A credential block goes only to a server that is known to understand it: a server that does not might hand
/// it to its application. An unknown server is asked, which costs nothing, and remembered if it answers.
#[derive(Debug, Clone)]
pub struct Certified {
    /// The certificate.
    pub certificate: Arc<ClientCertificate>,
    /// The present, by the clock that the certificate's [`obtained`](ClientCertificate::obtained) is of. The
    /// `firstflight` crate sets it by its own clock of certificates.
    pub now: Instant,
    /// What the server is called.
    pub identity: Identity,
    /// The server is known to take certificates for this identity, by configuration or by its DNS record.
    pub known: bool,
    /// The data may ride in the SYN although it must not run twice: the server is known to remember requests
    /// for all who answer to its name. It is never sent again on a second connection, though.
    pub once: bool,
    /// The payload that the server takes in a SYN, as published, bytes.
    pub mss: Option<u16>,
}

/// Settings of a connect.
#[derive(Debug, Clone, Default)]
pub struct ConnectConfig {
    /// Use Fast Open: data given to [`crate::Stack::connect`] rides in the SYN when a cookie is known, else
    /// one is asked for. Data in a SYN may be executed twice: the network can make a copy of the SYN, and a
    /// plain cookie does not tell copies apart (RFC 7413 §6.1).
    //= rfc7413 2-a
    pub fast_open: bool,
    /// The first flight's data may run twice: RFC 7413 §6.1 asks that of every application of Fast Open,
    /// RFC 8470 §4 allows HTTP's safe methods. Where a path swallows the SYN with data, or the connection that
    /// it opens, a plain SYN from another port then follows in good time, and the data goes again on the
    /// attempt that succeeds. An open connection that stays silent is probed for that, and keeps a copy of
    /// the SYN's data (at most one segment) until its response begins.
    ///
    /// Without it that data is never sent on a second connection: nobody knows whether the server took it. For the same
    /// reason it is not sent behind a SYN-ACK that leaves it out, if that came after a RST or an ICMP error, or in UDP after
    /// a timeout: the connect fails with [`Reason::Unknown`].
    /// Has no effect without `fast_open`.
    pub replay_safe: bool,
    /// Why the caller passes no data to [`crate::Stack::connect`] although it has some. If the SYN would have carried
    /// data, this is the outcome's reason instead of [`Reason::NoData`] or [`Reason::NotRequested`]. The `firstflight`
    /// crate sets it.
    pub held_back: Option<Reason>,
    /// Data rides in the SYN without a cookie, and none is asked for: only for servers in closed networks that are
    /// known to take it ([`FastOpenPolicy::no_cookie`](firstflight_credential::FastOpenPolicy)). Has no effect
    /// without `fast_open`.
    pub no_cookie: bool,
    /// Time until the SYN is sent again the first time, if not what earlier visits measured.
    pub syn_timeout: Option<Duration>,
    /// A certificate to show, where the server takes one: see [`Certified`].
    pub asap: Option<Certified>,
    /// Local address and port (0: chosen), if it matters. With a port of one's own there is no second attempt
    /// from another one.
    pub local: Option<SocketAddr>,
    /// Settings of the connection, if other than the stack's.
    pub tcp: Option<Arc<firstflight_tcp::Config>>,
    /// Connect in UDP datagrams to this UDP port of the server ([`Config::carrier`]). No second attempt from
    /// another port is needed there: what sees TCP's options does not look inside UDP. A SYN that nobody
    /// answers is sent again plain; a certificate's data that must not run twice goes again once before.
    pub carrier: Option<u16>,
}
