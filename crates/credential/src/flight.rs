//! The words for first flights: what a SYN shows, what verifiers and stores are asked, and what they answer. The decision
//! is made in [`admission`](crate::admission).

use crate::outcome::Reason;
use crate::serial::Serial;
use core::net::IpAddr;
use firstflight_wire::asap::{AsapOption, Encapsulation};
use firstflight_wire::tcp::{Cookie, FastOpen};
use firstflight_wire::{Clock, SeqNum};

/// The address pair of a SYN, as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The source of the SYN.
    pub client: IpAddr,
    /// The destination of the SYN.
    pub server: IpAddr,
}

/// The credential of a SYN.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Presented<'a> {
    /// None.
    None,
    /// The Fast Open option: a cookie, or a request for one (RFC 7413 §4.1.1).
    FastOpen(&'a FastOpen),
}

/// The ASAP option of a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Offered {
    /// None.
    #[default]
    Nothing,
    /// A question whether the server understands ASAP, or a credential block, with its encapsulation.
    AsapOption(AsapOption, Encapsulation),
    /// An option of another version, or a malformed one. The payload may contain a credential, so it is never
    /// delivered.
    Unreadable,
}

impl Offered {
    /// Parses the value of [`Options::asap`](firstflight_wire::tcp::Options::asap).
    #[must_use]
    pub fn read(option: Option<&[u8]>, encapsulation: Encapsulation) -> Self {
        match option.map(AsapOption::parse) {
            None => Self::Nothing,
            Some(Some(option)) => Self::AsapOption(option, encapsulation),
            Some(None) => Self::Unreadable,
        }
    }

    /// Whether the payload begins with a block, or may begin with one.
    #[must_use]
    pub const fn has_block(self) -> bool {
        matches!(self, Self::AsapOption(AsapOption::Block { .. }, _) | Self::Unreadable)
    }
}

/// Whether a SYN has used up its one-time credential before, and waited for the ACK that activates the credential: see
/// [`Verifier::redeem_claimed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Claim {
    /// It has not.
    #[default]
    None,
    /// It has, a moment ago.
    Held,
    /// It has, so long ago that the client may have sent the data otherwise: the claim counts no more.
    Lapsed,
}

/// The parts of a SYN for a listener that the decision needs.
#[derive(Debug, Clone, Copy)]
pub struct FirstFlight<'a> {
    /// Its addresses.
    pub flow: Flow,
    /// The client's port and the server's.
    pub ports: (u16, u16),
    /// Its sequence number.
    pub isn: SeqNum,
    /// Its credential, unless that is a certificate.
    pub presented: Presented<'a>,
    /// Whether it waited for that credential's activation.
    pub claim: Claim,
    /// ASAP's option: whether the payload begins with a certificate.
    pub offered: Offered,
    /// Its payload: the data, after the credential block if there is one.
    pub payload: &'a [u8],
    /// A front handed it over, so nothing came from the client's address. If it is not accepted, it leaves no
    /// state.
    pub relayed: bool,
    /// The listener answers with SYN cookies. It then keeps no state, so no client can skip the handshake.
    pub syn_cookie_pressure: bool,
}

/// A cookie for a SYN-ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The cookie.
    pub cookie: Cookie,
    /// The cookie becomes usable with [`Verifier::activate`], when the client has acknowledged the SYN-ACK.
    /// With `None` it is usable at once.
    pub serial: Option<Serial>,
}

/// Checks one kind of credential.
pub trait Verifier {
    /// Checks the credential of `first`. It must not accept a credential that it cannot prove: a false
    /// `Valid` lets a spoofed SYN through, a false `Invalid` costs the client one round trip.
    fn verify(&self, first: &FirstFlight<'_>, clock: &Clock) -> VerifierVerdict;

    /// Redeems a one-time credential atomically, immediately before the first flight is accepted. A false
    /// `No` costs a round trip. A serial gets `Yes` at most once. `first` is the first flight that shows it.
    fn redeem(&self, _serial: Serial, _first: &FirstFlight<'_>) -> Decision {
        Decision::Refuse(Reason::Policy)
    }

    /// Like [`Verifier::redeem`], for the first flight for which that said [`Reason::NotActive`], which used the credential
    /// up: `Yes` if the handshake in which the credential was granted is complete now. Stacks that share a link ask again,
    /// because the ACK of that handshake may have been on its way to another one of them.
    fn redeem_claimed(&self, _serial: Serial) -> Decision {
        Decision::Refuse(Reason::Policy)
    }

    /// The handshake in which `serial` was granted is complete. If a job is returned, nobody waits for its
    /// answer.
    fn activate(&self, _serial: Serial) -> Option<JobRequest> {
        None
    }

    /// Whether each credential is good for only one first flight, however many servers accept such
    /// credentials.
    fn is_once(&self) -> bool {
        false
    }

    /// Whether it asks the shared store of a farm: [`JobRequest::Redeem`] and [`JobRequest::Activate`].
    fn needs_store(&self) -> bool {
        false
    }
}

/// The verdict of a [`Verifier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifierVerdict {
    /// The client may skip the handshake.
    Valid {
        /// A cookie for the SYN-ACK.
        grant: Option<Grant>,
        /// The credential is good once: redeem it under this serial.
        once: Option<Serial>,
    },
    /// The client may not skip the handshake.
    Invalid {
        /// Why.
        reason: Reason,
        /// A cookie for the SYN-ACK.
        grant: Option<Grant>,
    },
    /// The decision needs a job, such as a question to a store.
    Pending {
        /// The job.
        job: JobRequest,
        /// A cookie for the SYN-ACK.
        grant: Option<Grant>,
    },
}

/// A decision about a first flight, at any step on its way: when a credential is redeemed, in [`admit`](crate::admit), at
/// the listener. `A` belongs to a first flight that is accepted, `R` says why one is not, and `Q` is asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Decision<A = (), R = Reason, Q = JobRequest> {
    /// It is accepted.
    Accept(A),
    /// It is not accepted.
    Refuse(R),
    /// The answer to a question decides, such as a question to a store.
    Ask(Q),
}

/// Work for the driver. Its [`JobResult`] decides about the first flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobRequest {
    /// Verify a signature.
    Verify {
        /// The key under which the verifier keeps the signature to verify.
        key: u64,
    },
    /// Set a replay guard's id if it is not set.
    GuardSet {
        /// The id.
        key: [u8; 16],
        /// How long it must be kept, milliseconds.
        keep_ms: u64,
        /// How far its stamp is ahead of the present, milliseconds. Negative if the stamp is in the past.
        ahead_ms: i64,
        /// A store whose memory begins at time b refuses stamps up to b + `reach_ms`. Milliseconds.
        reach_ms: u64,
        /// The present by the wall clock of the member that asks, Unix milliseconds, if it compared the stamp
        /// with that clock. The id is then kept until the store's own clock shows `unix_ms + keep_ms`, and a
        /// store whose clock differs from `unix_ms` by more than
        /// [`RemoteGuard::CLOCKS_APART`](crate::RemoteGuard::CLOCKS_APART) refuses.
        unix_ms: Option<u64>,
        /// Whether the credential was verified. Otherwise anybody can have made the first flight, which is refused
        /// whatever the answer is, and there are few such questions: [`ReplayGuard::report`](crate::ReplayGuard::report).
        checked: bool,
    },
    /// Redeem a one-time cookie that was activated and not used yet.
    Redeem {
        /// Its serial.
        serial: Serial,
        /// The first flight that shows it. `None` if that is refused whatever the answer is.
        flight: Option<FlightId>,
    },
    /// A one-time cookie may be used from now on. Nobody waits for the answer.
    Activate {
        /// Its serial.
        serial: Serial,
    },
}

impl JobRequest {
    /// The same question about a first flight that is refused whatever the answer is.
    #[must_use]
    pub const fn refused(self) -> Self {
        match self {
            Self::Redeem { serial, .. } => Self::Redeem { serial, flight: None },
            other => other,
        }
    }
}

/// Identifies a SYN with data: a keyed hash of its four-tuple, sequence number and payload. Every copy that the network
/// makes has the same id. All members of a farm compute the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlightId(u64);

impl FlightId {
    /// The id with this value.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// Its value.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The answer to a [`JobRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobResult {
    /// The client may skip the handshake.
    Accept,
    /// The store was asked about this very first flight before, so its data may have been executed. A copy of the SYN may
    /// have reached another server first, and be accepted there. So the client must not hand over the data again after a
    /// handshake, unless it learns that this was a repeat and decides by itself, as with a certificate.
    Repeat,
    /// The client may not skip the handshake, for this reason.
    Refuse(Reason),
}
