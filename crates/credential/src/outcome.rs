//! The outcome of a first flight, and its reason. Both ends use the same enums, and so do the API, the
//! metrics and the logs.

use core::fmt;

/// The outcome of a first flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Outcome {
    /// Not decided yet.
    #[default]
    Undecided,
    /// The data skipped the handshake. At the client: the SYN-ACK acknowledged all of it.
    Accepted,
    /// The SYN-ACK acknowledged all of the data, but something on the path removed its option.
    AcceptedReplyStripped,
    /// The kernel put a part of the data into the SYN, and the SYN-ACK acknowledged that part. The rest followed
    /// after the handshake, so a request that needs all of it gained nothing.
    AcceptedPart,
    /// An ordinary handshake, and the reason for it. The data of the first flight is sent after it. With
    /// [`Reason::Unknown`] the server may or may not have accepted the data.
    Handshake(Reason),
}

impl Outcome {
    /// A label: `accepted`, `handshake`, or `unknown` (undecided, or the data may have run).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted | Self::AcceptedReplyStripped | Self::AcceptedPart => "accepted",
            Self::Undecided | Self::Handshake(Reason::Unknown) => "unknown",
            Self::Handshake(_) => "handshake",
        }
    }

    /// Why it was not accepted, or what was unusual. `None` if it was accepted as usual, or is not decided
    /// yet.
    #[must_use]
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Handshake(reason) => Some(reason),
            Self::AcceptedReplyStripped => Some(Reason::ReplyStripped),
            Self::AcceptedPart => Some(Reason::AcceptedPart),
            Self::Undecided | Self::Accepted => None,
        }
    }

    /// Whether the data skipped the handshake.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        matches!(self, Self::Accepted | Self::AcceptedReplyStripped | Self::AcceptedPart)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecided => f.write_str("the first flight is not answered yet"),
            Self::Accepted => f.write_str("the first flight was accepted"),
            Self::AcceptedReplyStripped => {
                f.write_str("the first flight was accepted; something on the path removed the server's reply")
            }
            Self::AcceptedPart => {
                f.write_str("a part of the first flight was accepted, and the rest followed")
            }
            Self::Handshake(reason) => reason.fmt(f),
        }
    }
}

/// One table, so that a reason cannot lack its label or its sentence.
macro_rules! reasons {
    ($($variant:ident $label:literal $sentence:literal)*) => {
        /// Why a first flight did not skip the handshake. The sentences are those of [`fmt::Display`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Reason {
            $(#[doc = concat!("`", $label, "`: ", $sentence, ".")] $variant,)*
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its index in [`Reason::ALL`], for tables with a row for each reason.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }

            /// Its label in kebab-case, for metrics and logs.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $label),* }
            }

            const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => $sentence),* }
            }
        }
    };
}

reasons! {
    NotRequested "not-requested"
        "the application did not ask for it"
    NoCredential "no-credential"
        "the client has no credential for this server yet, and asks for one"
    StaleOrWrongCredential "stale-or-wrong-credential"
        "the server did not recognise the credential: too old, or for another address or server"
    DataNotAcknowledged "data-not-acknowledged"
        "the SYN-ACK acknowledged the SYN, but none of its data"
    DataPartlyAcknowledged "data-partly-acknowledged"
        "the SYN-ACK acknowledged only a part of the data in the SYN"
    OptionStripped "option-stripped"
        "something on the path removed the option from the SYN"
    SynTimedOut "syn-timed-out"
        "the SYN with data got no answer, and a plain SYN was sent instead"
    Policy "policy"
        "the listener or the connection is configured not to"
    Replay "replay"
        "the credential or the first flight was seen before"
    UntrustedVerifier "untrusted-verifier"
        "the server does not trust the verifier that signed the certificate"
    Expired "expired"
        "the credential has expired"
    ClockSkew "clock-skew"
        "the clocks are too far apart, or too uncertain, to judge the credential's age"
    Overloaded "overloaded"
        "the server had no time to verify the credential, or no room for the first flight"
    StoreUnavailable "store-unavailable"
        "the farm's shared store gave no answer in time"
    PendingLimit "pending-limit"
        "too many first flights of the listener still wait for their client's ACK"
    ClientLimit "client-limit"
        "too many first flights from this client's prefix still wait for their ACK"
    ServerLimit "server-limit"
        "too many first flights of the whole server still wait for their client's ACK"
    NotActive "not-active"
        "the one-time cookie was granted in a handshake that is not complete"
    SynCookie "syn-cookie"
        "the server answered with a SYN cookie: under SYN pressure, or to a forged credential"
    NoData "no-data"
        "the SYN carried a credential but no data"
    DeferredTooLong "deferred-too-long"
        "the verification was not finished before its deadline"
    ReplyStripped "reply-stripped"
        "something on the path removed the option from the SYN-ACK"
    AckInside "ack-inside"
        "the SYN-ACK acknowledged a number inside the credential"
    OverlapBlackhole "overlap-blackhole"
        "the path drops segments that repeat sequence numbers with other bytes"
    AddressMismatch "address-mismatch"
        "the credential was given to another address than the one it came from"
    WrongIdentity "wrong-identity"
        "the first flight was meant for a server of another identity"
    GuardFloor "guard-floor"
        "the first flight is older than the replay guard's memory"
    CapabilityUnknown "capability-unknown"
        "it is not known whether the server understands the credential"
    PeerWithoutFastOpen "peer-without-fast-open"
        "the server was asked for a cookie and granted none"
    SimultaneousOpen "simultaneous-open"
        "both ends opened at the same time"
    FailureMemory "failure-memory"
        "first flights to this server on this network failed lately"
    MessageTooLarge "message-too-large"
        "none of the data fits into the SYN"
    BadSignature "bad-signature"
        "a signature of the credential is wrong"
    Malformed "malformed"
        "the option or the credential is malformed"
    PeerMisbehaved "peer-misbehaved"
        "the server's answer contradicts itself"
    Unknown "unknown"
        "no SYN-ACK said whether the server took the data: it may have, or not"
    NotReplaySafe "not-replay-safe"
        "the data must not be executed twice, so it waited for the handshake"
    NotFirstAddress "not-first-address"
        "another of the server's addresses was tried first, and only that SYN may carry the data"
    OldConnection "old-connection"
        "the SYN met an earlier connection of the same ports at the server, and a plain SYN was sent instead"
    SynRefused "syn-refused"
        "a RST or an ICMP error answered the SYN with the option or data, and a plain SYN was sent instead"
    PathTooSmall "path-too-small"
        "the SYN with data was larger than the path passes, and a smaller SYN was sent instead"
    Barred "barred"
        "the client's key or address is barred for a while, after resets or wrong signatures"
    NetworkLimit "network-limit"
        "the share of the client's network in the server's time for signatures is used up"
    SystemDisabled "system-disabled"
        "the system's settings switch Fast Open off, or the system does so for a while"
    AcceptedPart "accepted-part"
        "the SYN had room for a part of the data, and the rest followed after the handshake"
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

#[cfg(test)]
mod tests;
