//! Settings of a stack, a listener and a connect.

use crate::client::ports::DEFAULT_RANGE;
use crate::flow::FlowKey;
use crate::fragments::FragmentLimits;
use crate::owners::{Claims, FlowOwners};
use crate::shard::{ComesHere, ShardConfig};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::num::NonZeroU8;
use core::ops::RangeInclusive;
use core::time::Duration;
use firstflight_credential::asap::{AsapPolicy, BudgetConfig, ClientCertificate, Identity};
use firstflight_credential::{
    FastOpenPolicy, NetworkId, PendingLimit, Policies, PolicyError, Quarantine, Reason,
};
use firstflight_wire::{Clock, Instant, setters};
use zeroize::Zeroize;

/// 64: the hop limit that is recommended (RFC 1700), and Linux's.
const HOP_LIMIT: NonZeroU8 = NonZeroU8::MIN.saturating_add(63);

/// Limits of one stack: memory stays below them, whatever the network sends.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Connections, of either side and in any state but TIME-WAIT.
    pub connections: usize,
    /// Connections that one client (an IPv4 address, an IPv6 /64) may have opened to us, including those that close in
    /// the background. One more replaces the connection whose peer has accepted nothing for longest, and for at least 5
    /// s; if there is none, the new one is reset. `None` is no limit: many clients may be behind one address.
    pub connections_per_client: Option<usize>,
    /// Connections in TIME-WAIT. The oldest are evicted, a sixteenth of them at once.
    pub time_wait: usize,
    /// Last-ACK records: ends of connections kept for [`ListenConfig::hold_last_ack`]. The oldest are evicted.
    pub held_last_acks: usize,
    /// Connections remembered whose first flight was accepted and that ended before their client's ACK. A RST answers their
    /// client's SYN, so that its data does not run again (docs/spec/asap.md 7.3). The oldest are evicted.
    pub early_ends: usize,
    /// Bytes in all send and receive buffers together. When they are used up, connections whose peers have accepted
    /// nothing for at least 5 s are reset, a sixteenth of them at a time.
    pub buffer_bytes: usize,
    /// Answers (RST, SYN cookies, echo replies) waiting to be sent; more are dropped.
    pub replies: usize,
    /// First flights that wait for a verdict.
    pub deferred: usize,
    /// Bytes of first flights that wait for a verdict.
    pub deferred_bytes: usize,
    /// How long a first flight waits for a verdict before it becomes an ordinary handshake.
    pub deferred_for: Duration,
    /// Servers remembered by the client's credential store.
    pub credentials: usize,
    /// Signatures verified, and certificates remembered.
    pub asap: BudgetConfig,
    /// Memory for the fragments of incomplete packets. [`FragmentLimits::OFF`] drops all fragments.
    pub fragments: FragmentLimits,
    /// Trace records kept for [`crate::Stack::poll_trace`]; 0 turns tracing off.
    pub trace: usize,
}

setters! {
    Limits {
        connections: usize,
        connections_per_client: Option<usize>,
        time_wait: usize,
        held_last_acks: usize,
        early_ends: usize,
        buffer_bytes: usize,
        replies: usize,
        deferred: usize,
        deferred_bytes: usize,
        deferred_for: Duration,
        credentials: usize,
        asap: BudgetConfig,
        fragments: FragmentLimits,
        trace: usize,
    }
}

impl Limits {
    /// The limits of one of `count` stacks that together keep these. Each limit is divided and rounded up, except what is
    /// remembered of servers, which every stack knows. The connections of one client come to the stacks by chance, so
    /// each stack takes more of them than its part: three standard deviations, at most the whole limit.
    #[must_use]
    pub fn share(mut self, count: usize) -> Self {
        let count = count.max(1);
        for limit in [
            &mut self.connections,
            &mut self.time_wait,
            &mut self.held_last_acks,
            &mut self.early_ends,
            &mut self.buffer_bytes,
            &mut self.replies,
            &mut self.deferred,
            &mut self.deferred_bytes,
            &mut self.asap.certificates,
            &mut self.fragments.bytes,
        ] {
            *limit = limit.div_ceil(count);
        }
        let every = u32::try_from(count).unwrap_or(u32::MAX);
        for limit in [&mut self.asap.per_second, &mut self.asap.relayed_per_second] {
            *limit = limit.div_ceil(every);
        }
        self.connections_per_client = self.connections_per_client.map(|most| {
            let part = most.div_ceil(count);
            let by_chance = if count > 1 { 3 * part.isqrt() } else { 0 };
            part.saturating_add(by_chance).min(most)
        });
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1 << 20,
            connections_per_client: None,
            time_wait: 1 << 16,
            held_last_acks: 1 << 14,
            early_ends: 1 << 14,
            buffer_bytes: 4 << 30,
            replies: 256,
            deferred: 1024,
            deferred_bytes: 2 << 20,
            deferred_for: Duration::from_millis(25),
            credentials: 1024,
            asap: BudgetConfig::default(),
            fragments: FragmentLimits::default(),
            trace: 0,
        }
    }
}

/// Settings of a stack.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// The addresses it answers for.
    pub addresses: Vec<IpAddr>,
    /// The broadcast addresses of the link's networks, as 192.0.2.255 of 192.0.2.0/24. A packet from there is dropped: its
    /// answer would go to all hosts (RFC 1122 §3.2.1.3). Nobody connects to them (RFC 9293 §3.9.1.1).
    pub broadcasts: Vec<Ipv4Addr>,
    /// Largest IP packet of the link, bytes.
    pub mtu: usize,
    /// Settings of its connections.
    pub tcp: firstflight_tcp::Config,
    /// 32 unpredictable bytes: ISNs, ports, SYN cookies and the flow table's hash come from them.
    pub secret: [u8; 32],
    /// Limits.
    pub limits: Limits,
    /// The local network that learnt credentials belong to. Without one, [`crate::Stack::forget_credentials`] must
    /// forget them at every change of address.
    pub network: NetworkId,
    /// Show a cookie in several SYNs at once, and ask for Fast Open again at once if it failed, as in Linux. The
    /// stack then does not use what it learnt about servers that grant cookies for one use, or about paths.
    pub simple_credentials: bool,
    /// An ICMP "host unreachable" ends a connection that is being opened, as in Linux. Otherwise routing has the
    /// time of the retransmissions to recover (RFC 5461 §4 allows both).
    pub unreachable_ends_handshakes: bool,
    /// Hop limit (IPv4: TTL) of the packets that are made here. Packets from a UDP socket get the system's
    /// (`IP_TTL`).
    pub hop_limit: NonZeroU8,
    /// Answer pings to our addresses.
    pub answer_echo: bool,
    /// The local ports of connects that name none; by default those of Linux, 32,768 to 60,999. A link that shares the host's address with the kernel has few.
    pub ports: RangeInclusive<u16>,
    /// Also speak TCP in UDP datagrams; `None` means raw IP only.
    pub encapsulation: Option<EncapsulationConfig>,
    /// The place among several stacks that share the addresses; `None` if there is one stack.
    pub shard: Option<ShardConfig>,
    /// For stacks on queues of a device that chooses the queue of a flow by itself, as a network card does: where all of them note their
    /// flows. A connection then belongs to the stack that got its SYN. `None`, and for TCP in UDP: to the one that a hash of the
    /// TCP ports chooses.
    pub owners: Option<Arc<FlowOwners>>,
    /// With `owners`: whether packets of TCP from the first address and port to the second one come by this stack's queue, where that is known
    /// before. A connect that names no local port chooses one whose packets do, if one is free among a thousand.
    pub comes_here: Option<ComesHere>,
}

setters! {
    Config {
        addresses: Vec<IpAddr>,
        broadcasts: Vec<Ipv4Addr>,
        mtu: usize,
        tcp: firstflight_tcp::Config,
        secret: [u8; 32],
        limits: Limits,
        network: NetworkId,
        simple_credentials: bool,
        unreachable_ends_handshakes: bool,
        hop_limit: NonZeroU8,
        answer_echo: bool,
        ports: RangeInclusive<u16>,
        encapsulation: Option<EncapsulationConfig>,
        shard: Option<ShardConfig>,
        owners: Option<Arc<FlowOwners>>,
        comes_here: Option<ComesHere>,
    }
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
            .field("encapsulation", &self.encapsulation)
            .field("shard", &self.shard)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Defaults for `addresses` on a link that takes packets of 1,500 bytes.
    #[must_use]
    pub fn new(addresses: Vec<IpAddr>, secret: [u8; 32]) -> Self {
        Self {
            addresses,
            broadcasts: Vec::new(),
            mtu: 1500,
            tcp: firstflight_tcp::Config::default(),
            secret,
            limits: Limits::default(),
            network: NetworkId::default(),
            simple_credentials: false,
            unreachable_ends_handshakes: false,
            hop_limit: HOP_LIMIT,
            answer_echo: true,
            ports: DEFAULT_RANGE,
            encapsulation: None,
            shard: None,
            owners: None,
            comes_here: None,
        }
    }

    /// The part of the stack in the table of flows, if its group notes flows.
    pub(crate) fn claims(&self) -> Option<Claims> {
        Some(Claims::new(self.owners.clone()?, self.shard?.index()))
    }

    /// The network that a flow's path belongs to. In UDP it is another one, because the same routers treat UDP and
    /// TCP differently.
    pub(crate) fn network_of(&self, key: &FlowKey) -> NetworkId {
        if key.is_carried() { self.network.over_udp() } else { self.network }
    }
}

/// TCP in UDP datagrams: which port, and how.
///
/// Connections over one port are told apart by both ends' addresses, UDP ports and inner TCP ports. The inner
/// destination port selects the listener, so one UDP port serves many. When an address translator on the path gives
/// a client another UDP port, the server checks that port, and the connection continues there
/// (`docs/udp-encapsulation.md`).
///
/// A client that has not answered has no proof of its address. It gets one SYN-ACK retransmission at most, so in
/// all less than three times what it sent. A valid credential is that proof, as on raw IP
/// ([`ListenConfig::response`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncapsulationConfig {
    /// The UDP port that all datagrams come to and leave from; 0 disables the encapsulation.
    pub port: u16,
    /// Largest UDP payload sent, bytes. The default of 1,200 passes practically every path (RFC 9000 §14).
    pub datagram: u16,
    /// Try larger datagrams, up to the link's MTU, on established connections with enough to send (RFC 8899), and
    /// announce the link's size to the peer, so that the peer can do so, too.
    pub probe: bool,
    /// Silence after which a keep-alive is sent between two UDP ports with a connection that was opened here:
    /// address translators forget unused mappings (RFC 4787 §4.3). `None` sends none.
    pub keep_alive: Option<Duration>,
    /// Silence after which the first keep-alive after a segment is sent, at least 10 ms. Each further one waits
    /// twice as long, up to `keep_alive`. Without early keep-alives, a client that only receives would notice late
    /// that an address translator has given it another UDP port.
    pub first_keep_alive: Duration,
    /// Longest time in which keep-alives alone are sent. `None`: as long as an application holds a connection
    /// between the two ports that was opened here and is not over.
    pub keep_alive_for: Option<Duration>,
    /// The link's datagrams come from a UDP socket of the operating system. The system has checked that they are
    /// for this host and that their checksum is right, and it computes the checksum of those that are sent, so the
    /// stack does neither. Do not set it for any other link: the stack would take damaged packets, and packets for
    /// other hosts.
    pub from_socket: bool,
}

setters! {
    EncapsulationConfig {
        port: u16,
        datagram: u16,
        probe: bool,
        keep_alive: Option<Duration>,
        first_keep_alive: Duration,
        keep_alive_for: Option<Duration>,
        from_socket: bool,
    }
}

impl EncapsulationConfig {
    /// An encapsulation on this UDP port with every check, and with keep-alives after 15 s without a time limit.
    #[must_use]
    pub const fn new(port: u16) -> Self {
        Self {
            port,
            datagram: firstflight_wire::encapsulation::BASE_DATAGRAM,
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
    /// At most this many times the bytes received (RFC 9000 §8.1 uses 3), IP headers included. The SYN-ACK is
    /// always sent: with 3 and a SYN of 60 bytes there is room for little more.
    Times(u32),
    /// Nothing but the SYN-ACK.
    AfterHandshake,
}

/// A text names no [`ResponsePolicy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownResponsePolicy;

impl core::fmt::Display for UnknownResponsePolicy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("write immediately, after-handshake, or a number and x, as 3x")
    }
}

impl core::error::Error for UnknownResponsePolicy {}

impl core::str::FromStr for ResponsePolicy {
    type Err = UnknownResponsePolicy;

    fn from_str(text: &str) -> Result<Self, UnknownResponsePolicy> {
        match text {
            "immediately" => Ok(Self::Immediately),
            "after-handshake" => Ok(Self::AfterHandshake),
            _ => match text.strip_suffix('x').and_then(|times| times.parse().ok()) {
                Some(times @ 1..) => Ok(Self::Times(times)),
                _ => Err(UnknownResponsePolicy),
            },
        }
    }
}

/// Settings of a listener.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListenConfig {
    /// Address and port; the unspecified address (`0.0.0.0` or `::`) means all of that family.
    pub local: SocketAddr,
    /// Connections that may wait to be accepted.
    pub backlog: usize,
    /// Handshakes that may be in progress. Beyond this number, SYN cookies are sent (RFC 4987).
    pub syn_backlog: usize,
    /// First flights: `None` means ordinary handshakes only.
    //= rfc7413 2-a 4.2-a
    pub fast_open: Option<FastOpenPolicy>,
    /// First flights with a certificate: `None` means that none is accepted, and that a credential block is never
    /// delivered either.
    pub asap: Option<AsapPolicy>,
    /// What may be sent before the client's ACK.
    pub response: ResponsePolicy,
    /// Remembers a connection whose first flight was accepted for 2 MSL, also if the client closed first, so that a
    /// late copy of its SYN finds no listener (the Fast Open paper §3.5). Bounded by [`Limits::held_last_acks`].
    pub hold_last_ack: bool,
    /// Settings of its connections, if other than the stack's.
    pub tcp: Option<Arc<firstflight_tcp::Config>>,
}

setters! {
    ListenConfig {
        local: SocketAddr,
        backlog: usize,
        syn_backlog: usize,
        fast_open: Option<FastOpenPolicy>,
        asap: Option<AsapPolicy>,
        response: ResponsePolicy,
        hold_last_ack: bool,
        tcp: Option<Arc<firstflight_tcp::Config>>,
    }
}

impl ListenConfig {
    /// What decides about a SYN.
    #[inline]
    pub(crate) fn policies(&self) -> Policies<'_> {
        Policies { fast_open: self.fast_open.as_ref(), asap: self.asap.as_ref() }
    }

    /// Refuses first flights that may have been taken elsewhere until now.
    pub(crate) fn refuse_earlier_flights(&self, clock: &Clock) {
        self.fast_open.iter().for_each(|policy| policy.close(clock));
        self.asap.iter().for_each(|policy| policy.close(clock));
    }

    /// Whether cookies may have this policy beside the certificates.
    pub(crate) fn certificates_allow(&self, policy: &FastOpenPolicy) -> Result<(), PolicyError> {
        if policy.no_cookie && self.asap.is_some() { Err(PolicyError::AsapWithoutCookie) } else { Ok(()) }
    }

    /// Whether the permit of every first flight that was reset stays taken for a while.
    pub(crate) fn quarantines_every(&self) -> bool {
        let fast_open = self.fast_open.as_ref().map(|policy| policy.quarantine);
        let asap = self.asap.as_ref().map(|policy| policy.quarantine);
        [fast_open, asap].contains(&Some(Quarantine::Every))
    }

    /// The limits of pending first flights.
    pub(crate) fn pending_limits(&self) -> impl Iterator<Item = &Arc<PendingLimit>> {
        let fast_open = self.fast_open.iter().map(|policy| &policy.pending);
        let certificates = self.asap.iter();
        fast_open
            .chain(certificates.flat_map(|policy| [Some(&policy.pending), policy.relayed.as_ref()]).flatten())
    }

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
/// A credential block is sent only to a server that is known to understand it: another server might deliver the
/// block to its application. An unknown server is asked, which costs nothing, and its answer is remembered.
#[derive(Debug, Clone)]
pub struct Certified {
    /// The certificate.
    pub certificate: Arc<ClientCertificate>,
    /// The present time on the clock of the certificate's [`obtained`](ClientCertificate::obtained). The
    /// `firstflight` crate sets it from its own clock of certificates.
    pub now: Instant,
    /// The server's identity.
    pub identity: Identity,
    /// The server is known to take certificates for this identity, by configuration or by its DNS record.
    pub known: bool,
    /// The data may ride in the SYN although it must not run twice, because the server is known to remember
    /// requests for all hosts with its name. Even then, the data is never sent again on a second connection.
    pub once: bool,
    /// The payload that the server takes in a SYN, as published, bytes.
    pub mss: Option<u16>,
    /// The request's id, if the caller needs to know it. It must be random and new for each request, and the same in all
    /// copies of one request: the server accepts an id of a client once. `None`: the stack chooses it.
    pub request_id: Option<[u8; 8]>,
}

/// Settings of a connect.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ConnectConfig {
    /// Use Fast Open: data given to [`crate::Stack::connect`] rides in the SYN if a cookie is known; otherwise the
    /// SYN requests a cookie. Data in a SYN may be executed twice: the network can make a copy of the SYN, and a
    /// plain cookie does not tell copies apart (RFC 7413 §6.1).
    //= rfc7413 2-a
    pub fast_open: bool,
    /// The first flight's data may run twice. RFC 7413 §6.1 asks that of every application of Fast Open; RFC 8470
    /// §4 allows HTTP's safe methods. If a path drops the SYN with data, or the connection that it opens, a plain
    /// SYN from another port follows soon, and the data is sent again on the attempt that succeeds. For that
    /// purpose, an open connection that stays silent is probed, and keeps a copy of the SYN's data (at most one
    /// segment) until its response begins.
    ///
    /// Without it, that data is never sent on a second connection, because nobody knows whether the server took it.
    /// For the same reason the data is not sent after a SYN-ACK that leaves it out, if that SYN-ACK came after a
    /// RST or an ICMP error, or in UDP after a timeout: the connect fails with [`Reason::Unknown`]. Has no effect
    /// without `fast_open` or `asap`.
    pub replay_safe: bool,
    /// Why the caller passes no data to [`crate::Stack::connect`] although it has some. If the SYN would have carried
    /// data, this is the outcome's reason instead of [`Reason::NoData`] or [`Reason::NotRequested`]. The `firstflight`
    /// crate sets it.
    pub held_back: Option<Reason>,
    /// Data rides in the SYN without a cookie, and none is requested. Use it only for servers in closed networks
    /// that are known to take such data ([`FastOpenPolicy::no_cookie`](firstflight_credential::FastOpenPolicy)).
    /// Has no effect without `fast_open`.
    pub no_cookie: bool,
    /// Time until the first retransmission of the SYN, if not what earlier visits measured. Without a measurement it is
    /// [`firstflight_tcp::Config::initial_rto`].
    pub syn_timeout: Option<Duration>,
    /// A certificate to show, where the server takes one: see [`Certified`].
    pub asap: Option<Certified>,
    /// Local address and port (0: chosen by the stack), if required. With a fixed port there is no second attempt
    /// from another port.
    pub local: Option<SocketAddr>,
    /// Settings of the connection, if other than the stack's.
    pub tcp: Option<Arc<firstflight_tcp::Config>>,
    /// Connect in UDP datagrams to this UDP port of the server ([`Config::encapsulation`]). No second attempt from
    /// another port is needed there, because boxes that see TCP's options do not look inside UDP. An unanswered SYN
    /// is sent again plain. Before that, a certificate's data that must not run twice is sent again once.
    pub encapsulation: Option<u16>,
}

setters! {
    ConnectConfig {
        fast_open: bool,
        replay_safe: bool,
        held_back: Option<Reason>,
        no_cookie: bool,
        syn_timeout: Option<Duration>,
        asap: Option<Certified>,
        local: Option<SocketAddr>,
        tcp: Option<Arc<firstflight_tcp::Config>>,
        encapsulation: Option<u16>,
    }
}

#[cfg(test)]
mod tests;
