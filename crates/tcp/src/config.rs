//! The settings of a connection, with the defaults and their sources.

use crate::congestion::{Algorithm, InitialWindow};
use crate::rtt::{INITIAL_RTO, MAX_RTO, MIN_RTO};
use core::time::Duration;

/// Size of the buffers before the path shows that it needs more, bytes.
pub(crate) const FIRST_BUFFER: u32 = 1 << 20;

/// Keepalive probing (RFC 9293 §3.8.4; off unless asked for).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes until the connection is given up.
    pub probes: u8,
}

impl Default for Keepalive {
    fn default() -> Self {
        //= rfc9293 MUST-28
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// Explicit congestion notification (RFC 3168): packets may be marked where they would be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EcnPolicy {
    /// Never.
    Off,
    /// If the peer asks for it, as Linux does.
    #[default]
    Accept,
    /// Ask for it.
    Ask,
}

/// Defines the settings: each with the two methods that change it, its type and its default.
macro_rules! settings {
    ($($(#[$doc:meta])* $field:ident, $set:ident $(, $get:ident)?: $type:ty = $default:expr,)*) => {
        /// Settings of a connection, shared by all connections made with them.
        ///
        /// Each setting is changed by a method of its name, or in place by one that begins with `set_`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Config {
            $(pub(crate) $field: $type,)*
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl Config {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }

                #[doc = concat!("Like [`", stringify!($field), "`](Self::", stringify!($field), "), in place.")]
                pub fn $set(&mut self, $field: $type) {
                    self.$field = $field;
                }

                $(
                    #[doc = concat!("See [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                    #[inline]
                    #[must_use]
                    pub fn $get(&self) -> $type {
                        self.$field
                    }
                )?
            )*
        }
    };
}

settings! {
    /// Largest payload we take in one segment, announced in the SYN, bytes (RFC 9293 §3.7.1).
    mss, set_mss, largest_segment: u16 = 1460,
    /// Most bytes that may wait to be sent or acknowledged. At first [`Config::first_send_buffer`] limits them; that
    /// limit grows up to 1 MiB as the peer acknowledges. Beyond that it grows to twice the congestion window, so that
    /// the network and not the buffer limits a transfer, but not above what the path can hold: four of its shortest
    /// round trips at 10 Gbit/s.
    send_buffer, set_send_buffer, most_to_send: u32 = 8 << 20,
    /// Bytes of [`Config::send_buffer`] for a peer that has acknowledged nothing, at most 1 MiB, which is the default.
    /// Each byte that the peer acknowledges adds one, up to 1 MiB. With a smaller value, a peer that requests much and
    /// reads nothing costs less memory.
    first_send_buffer, set_first_send_buffer: u32 = FIRST_BUFFER,
    /// Most bytes that may wait to be read; also the largest window ever offered. Up to 1 MiB is offered from the
    /// start, and more to a peer that fills a quarter of it in a round trip while the application reads. If the window
    /// scale cannot say exactly what is left of an offer, more is left: up to half of this value, if nobody reads.
    receive_buffer, set_receive_buffer, most_to_read: u32 = 8 << 20,
    /// Offer window scaling (RFC 7323 §2).
    window_scaling, set_window_scaling, offers_window_scaling: bool = true,
    /// The window scale to offer for a buffer that may grow; `None`: the scale that the receive buffer needs.
    scale, set_scale: Option<u8> = None,
    /// Bytes offered at first, if less than [`Config::receive_buffer`]. The window then grows by twice what
    /// arrives. Behind the SYN it is at least a step of the window scale, because less cannot be said. Linux offers
    /// 64 KB, because its receive buffers take memory from a limit of the whole system.
    first_window, set_first_window: Option<u32> = None,
    /// Offer timestamps (RFC 7323 §3).
    timestamps, set_timestamps, offers_timestamps: bool = true,
    /// Where timestamps were agreed, drop segments without them (RFC 7323 §3.2: SHOULD). Off by default, as in Linux:
    /// if a middlebox removes the option from a connection under way, dropping the segments would stop the connection
    /// for good. An old duplicate is still recognised, because it carries its timestamps.
    require_timestamps, set_require_timestamps, requires_timestamps: bool = false,
    /// Answer an acknowledgement of what was never sent (RFC 9293 §3.10.7.4: "send an ACK, drop the segment"), as the
    /// newest versions of Linux do. Older ones drop it without an answer.
    answer_unsent_acks, set_answer_unsent_acks: bool = true,
    /// A RST or an ICMP error in answer to a SYN with a first flight, or with the request for a credential, does not end
    /// the connect: a plain SYN follows at once. Linux gives up.
    retry_refused, set_retry_refused: bool = true,
    /// Offer selective acknowledgements (RFC 2018).
    sack, set_sack, offers_sack: bool = true,
    /// Explicit congestion notification.
    ecn, set_ecn: EcnPolicy = EcnPolicy::Accept,
    /// Congestion control.
    congestion, set_congestion, algorithm: Algorithm = Algorithm::Cubic,
    /// How much leaves before the first acknowledgement, and after a pause. The default is RFC 6928's ten segments.
    initial_window, set_initial_window, window_to_begin_with: InitialWindow = InitialWindow::Standard,
    /// After several timeouts in a row, send smaller segments, and try larger ones again later. Without it a
    /// connection fails on a path that drops large packets without an ICMP error (RFC 4821).
    mtu_probing, set_mtu_probing: bool = true,
    /// Send segments at a rate, not in bursts of a window. BBR always does. The other algorithms send the first ten
    /// segments without a pace, and then two at a time, as in Linux.
    pacing, set_pacing: bool = false,
    /// Send small segments at once: turns Nagle's algorithm off (RFC 9293 §3.7.4).
    //= rfc9293 MUST-17
    nodelay, set_nodelay, sends_at_once: bool = false,
    /// How long an acknowledgement may wait for an answer or for a second full segment (RFC 9293 §3.8.6.3; below 500
    /// ms).
    //= rfc9293 MUST-40
    delayed_ack, set_delayed_ack: Duration = Duration::from_millis(40),
    /// Number of acknowledgements that do not wait, or only for [`Config::quick_delay`], at the start of what the peer
    /// sends and after a pause. The peer's slow start needs them (Linux: 16).
    quick_acks, set_quick_acks: u32 = 16,
    /// How long the acknowledgement of a segment shorter than full may wait while acknowledgements are quick (Linux:
    /// not at all). An answer that the application writes within this time carries the acknowledgement, which saves a
    /// packet. A sender that holds its next short segment back until this one is acknowledged (Nagle's algorithm) waits
    /// no longer than this.
    quick_delay, set_quick_delay: Duration = Duration::from_millis(1),
    /// The retransmission timeout before the first measurement (RFC 6298 §2.1; 3 s before that RFC). It also decides how
    /// long a first SYN to an unknown server waits. The value is limited to the range from [`crate::rtt::MIN_RTO`] to
    /// [`crate::rtt::MAX_RTO`], and to [`Config::max_rto`].
    initial_rto, set_initial_rto: Duration = INITIAL_RTO,
    /// SYN retransmissions until a connect is given up (Linux: 6).
    //= rfc9293 MUST-22 MUST-23
    syn_retries, set_syn_retries: u8 = 6,
    /// Retransmissions in a row until an open connection is given up (RFC 9293 §3.8.3 R2; Linux: 15).
    //= rfc9293 MUST-21
    //= rfc9293 SHLD-11
    retries, set_retries: u8 = 15,
    /// Longest retransmission timeout, with backoff or without (RFC 6298 §2.5 wants at least 60 s; Linux: 120
    /// s). The value is limited to the range from [`crate::rtt::INITIAL_RTO`] to [`crate::rtt::MAX_RTO`].
    max_rto, set_max_rto: Duration = MAX_RTO,
    /// Longest time that written data may wait while the peer accepts nothing, because it does not acknowledge or keeps
    /// its window closed (user timeout, RFC 9293 §3.9.1). Then the connection is reset. Less than one full segment
    /// counts as nothing, unless it is all the data. With `None` the connection waits without limit while the peer
    /// answers (RFC 9293 §3.8.6.1); a public server should set a timeout (RFC 6429).
    user_timeout, set_user_timeout: Option<Duration> = None,
    /// Keepalive probing.
    //= rfc9293 MUST-24 MUST-27
    //= rfc9293 MUST-25
    keepalive, set_keepalive, keepalive_probing: Option<Keepalive> = None,
    /// How long a closed socket waits in FIN-WAIT-2 for the peer's FIN (Linux: 60 s).
    fin_wait2, set_fin_wait2, fin_wait2_lasts: Duration = Duration::from_secs(60),
    /// How long TIME-WAIT lasts, 2 MSL (Linux: 60 s); no more than the four minutes of RFC 9293 §3.4.2.
    //= rfc9293 MUST-13
    time_wait, set_time_wait, time_wait_lasts: Duration = Duration::from_secs(60),
    /// Also set PSH on the last of several segments that leave together, at least this many, as Linux does with bursts
    /// that its network card cuts into segments (`tcp_min_tso_segs`, 2). A receiver whose network card or kernel merges
    /// segments (GRO) passes them on when it sees PSH; without it the end of a window can wait for a timer there. With
    /// `None` only the end of a write has PSH.
    push_bursts, set_push_bursts: Option<u32> = Some(2),
    /// Let the SYN-ACK carry data that the application wrote before it left (RFC 9293 §3.5 allows
    /// it). Off by default: Linux clients discard such data, which costs them a retransmission.
    data_in_syn_ack, set_data_in_syn_ack: bool = false,
}

impl Config {
    /// Bytes that may wait to be sent before the peer has acknowledged anything.
    #[inline]
    #[must_use]
    pub fn send_at_first(&self) -> u32 {
        self.send_buffer.min(self.first_send_buffer).min(FIRST_BUFFER)
    }

    /// Bytes that are offered at first.
    #[inline]
    #[must_use]
    pub fn window_at_first(&self) -> u32 {
        self.first_window.map_or(self.receive_buffer, |first| first.min(self.receive_buffer))
    }

    /// The retransmission timeout before the first measurement: [`Config::initial_rto`] within its limits.
    #[inline]
    #[must_use]
    pub fn timeout_at_first(&self) -> Duration {
        if self.initial_rto == INITIAL_RTO {
            return INITIAL_RTO;
        }
        self.initial_rto.clamp(MIN_RTO, self.max_rto.clamp(INITIAL_RTO, MAX_RTO))
    }

    /// The window scale that lets the whole receive buffer be offered (RFC 7323 §2.2).
    //= rfc7323 2.3-b 2.3-g
    #[inline]
    #[must_use]
    pub fn window_scale(&self) -> u8 {
        // The bits that 16 bits cannot hold.
        let needed = || u32::BITS - (self.receive_buffer >> 16).leading_zeros();
        self.scale.unwrap_or_else(|| needed() as u8).min(14)
    }
}
