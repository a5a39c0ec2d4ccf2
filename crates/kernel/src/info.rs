//! What the kernel says of a connection, and what it means for the first flight.

use crate::sys::TCP_INFO_LEN;
use firstflight_credential::{Outcome, Reason};
use std::time::Duration;

/// `tcpi_options`: the data of the SYN was acknowledged (client), or delivered (server).
const SYN_DATA: u8 = 32;
/// `tcpi_options`: both ends send timestamps (RFC 7323).
const TIMESTAMPS: u8 = 1;
/// `TCP_ESTABLISHED`, `TCP_SYN_SENT` and `TCP_SYN_RECV` of Linux.
const SYN_SENT: u8 = 2;
const SYN_RECV: u8 = 3;
/// `TCP_CLOSE`: a connection that is over, or was reset.
const CLOSE: u8 = 7;

/// Why the kernel's Fast Open did not get data acknowledged in the SYN-ACK (`tcpi_fastopen_client_fail`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientFail {
    /// Nothing failed, or Fast Open was not used.
    None,
    /// There was no cookie.
    NoCookie,
    /// The SYN-ACK did not acknowledge the data.
    DataNotAcked,
    /// The SYN was sent again, without data.
    SynRetransmitted,
}

/// The state of a connection (`struct tcp_info` of Linux).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// Why a first flight was not accepted.
    pub client_fail: ClientFail,
    /// Client: the SYN-ACK acknowledged data of the SYN. Server: the SYN's data was delivered.
    pub syn_data: bool,
    /// The handshake is complete. Of a connection that is [closed](Self::closed) nothing is known: it may have been reset
    /// before.
    pub confirmed: bool,
    /// The connection is over.
    pub closed: bool,
    /// Both ends send timestamps, so the round-trip time is right also if segments were sent again (RFC 7323 §4.1).
    pub timestamps: bool,
    /// Smoothed round-trip time. Zero before the first measurement.
    pub srtt: Duration,
    /// Variation of the round-trip time.
    pub rttvar: Duration,
    /// Segments sent again since the connection began, SYNs among them.
    pub retransmissions: u32,
    /// Bytes of data that arrived, those of the SYN among them.
    pub received: u64,
}

impl TcpInfo {
    pub(crate) fn parse(info: &[u8; TCP_INFO_LEN]) -> Self {
        let word = |at: usize| {
            let bytes = info.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_ne_bytes)
        };
        let long = |at: usize| {
            let bytes = info.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        let [state, _, _, _, _, options, _, bits, ..] = *info;
        // A bit field behind `tcpi_delivery_rate_app_limited`, which compilers lay out from the lowest bit on
        // little-endian machines, and from the highest on others.
        let fail = if cfg!(target_endian = "little") { bits >> 1 } else { bits >> 5 } & 3;
        Self {
            client_fail: match fail {
                0 => ClientFail::None,
                1 => ClientFail::NoCookie,
                2 => ClientFail::DataNotAcked,
                _ => ClientFail::SynRetransmitted,
            },
            syn_data: options & SYN_DATA != 0,
            confirmed: !matches!(state, SYN_SENT | SYN_RECV | CLOSE),
            closed: state == CLOSE,
            timestamps: options & TIMESTAMPS != 0,
            srtt: Duration::from_micros(word(68).into()),
            rttvar: Duration::from_micros(word(72).into()),
            retransmissions: word(100),
            received: long(128),
        }
    }
}

/// What became of the first flight of a connection that a listener returned.
#[cfg(feature = "server")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrived {
    /// Whether its data was accepted, and if not, why.
    pub outcome: Outcome,
    /// How many bytes at the beginning of the stream arrived in the SYN. 0 for an ordinary handshake.
    pub early: u32,
    /// The state of the connection.
    pub info: TcpInfo,
}

/// What a connect asked of the kernel, and what the kernel did with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectFacts {
    /// No Fast Open was asked for, for this reason.
    Plain(Reason),
    /// A cookie was asked for, or shown without data, and the data was kept back for this reason.
    KeptBack(Reason),
    /// `given` bytes were given to the kernel with the SYN, which took `taken` of them.
    Given {
        /// Bytes of the first flight.
        given: usize,
        /// How many of them the kernel took.
        taken: usize,
    },
}

impl ConnectFacts {
    /// Whether the SYN has an option of Fast Open.
    pub(crate) const fn asks(self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// How many bytes of the data the kernel took.
    #[must_use]
    pub const fn taken(self) -> usize {
        match self {
            Self::Given { taken, .. } => taken,
            Self::Plain(_) | Self::KeptBack(_) => 0,
        }
    }

    /// The outcome at the client, if the kernel said anything of the connection.
    pub(crate) const fn outcome_by(self, info: Option<&TcpInfo>) -> Outcome {
        match (info, self) {
            (Some(info), _) => self.outcome(info),
            (None, Self::Plain(reason) | Self::KeptBack(reason)) => Outcome::Handshake(reason),
            // Without the kernel's word nothing is known of data that was given to it.
            (None, Self::Given { .. }) => Outcome::Handshake(Reason::Unknown),
        }
    }

    /// The outcome at the client, by what the kernel says when the handshake is complete.
    ///
    /// Linux reports a stale cookie and a server without Fast Open in the same way: the SYN-ACK did not acknowledge the
    /// data ([`Reason::DataNotAcknowledged`]).
    #[must_use]
    pub const fn outcome(self, info: &TcpInfo) -> Outcome {
        let (given, taken) = match self {
            Self::Plain(reason) | Self::KeptBack(reason) => return Outcome::Handshake(reason),
            Self::Given { given, taken } => (given, taken),
        };
        Outcome::Handshake(match info.client_fail {
            // The answer to the first SYN may have been lost: then the server has the data.
            ClientFail::None | ClientFail::SynRetransmitted if info.syn_data => {
                if taken < given {
                    return Outcome::AcceptedPart;
                }
                return Outcome::Accepted;
            }
            ClientFail::NoCookie => Reason::NoCredential,
            ClientFail::DataNotAcked => Reason::DataNotAcknowledged,
            ClientFail::SynRetransmitted => Reason::SynTimedOut,
            ClientFail::None if given == 0 => Reason::NoData,
            // The kernel switches Fast Open off for a while after it met a black hole.
            ClientFail::None => Reason::SystemDisabled,
        })
    }
}

#[cfg(test)]
mod tests;
