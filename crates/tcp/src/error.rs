//! Why a connection ended, and which side caused it.

use core::fmt;

/// Why a connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// Both sides closed in order.
    Finished,
    /// The application aborted it.
    Aborted,
    /// The peer answered our SYN with a reset.
    Refused,
    /// The peer reset the open connection.
    Reset,
    /// The peer did not answer within the retransmissions or the user timeout allowed.
    TimedOut,
    /// The network reported that the peer cannot be reached.
    Unreachable,
    /// The peer broke the protocol in a way that ends the connection.
    PeerMisbehaved,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Finished => "closed in order",
            Self::Aborted => "aborted by this side",
            Self::Refused => "refused by the peer: nobody listens on that port",
            Self::Reset => "reset by the peer",
            Self::TimedOut => "the peer did not answer in time",
            Self::Unreachable => "the network reports the peer unreachable",
            Self::PeerMisbehaved => "the peer broke the protocol",
        })
    }
}

impl core::error::Error for CloseReason {}

/// Why a write, read or close failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoError {
    /// There is nothing to read, or no room to write now: wait for the event.
    WouldBlock,
    /// This side has closed its sending direction.
    SendClosed,
    /// The connection is gone.
    Closed(CloseReason),
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("not ready"),
            Self::SendClosed => f.write_str("this side has closed its sending direction"),
            Self::Closed(reason) => reason.fmt(f),
        }
    }
}

impl core::error::Error for IoError {}
