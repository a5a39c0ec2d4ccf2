//! The terms of a race: its rules, what it is told, and what it asks for.

use firstflight_credential::Reason;
use firstflight_wire::Instant;
use std::net::SocketAddr;
use std::time::Duration;

/// RFC 8305 §5: the recommended delay between attempts at different addresses.
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The first attempt alone may carry a first flight or ask for a credential. All others are ordinary handshakes, because
    /// SYNs with data must not be multiplied.
    FirstAlone,
    /// If the first attempt could not begin, and nothing has left, the next one is the first.
    BeginsAgain,
    /// While data that must not run twice may have left, no other attempt begins.
    OnceLeavesOnce,
    /// Data that must not run twice, and was made while another attempt began, does not leave with a SYN.
    OnceBeginsAlone,
    /// There are at most two attempts at one time. A third one takes the place of the older.
    TwoAtOnce,
    /// The older of two at different addresses keeps its place for two seconds. At the same address, it is not needed.
    KeepsPlace,
    /// The next attempt begins at once when one fails.
    NextAtOnce,
    /// A SYN that was more than an ordinary one, and was refused, is followed by an ordinary one to the same address at once,
    /// before other addresses. Boxes refuse what they do not know.
    PlainAfterRefusal,
    /// The request inside a lookup goes to the address directly as soon as that is known, as a part of the same attempt.
    DirectCopy,
    /// The first attempt whose handshake is complete wins. The others end before anything is sent to it.
    OthersEndFirst,
    /// What happens to an attempt that has ended changes nothing.
    LateChangesNothing,
    /// What happens after a change of the network says nothing about either network.
    OneNetwork,
    /// After a gap of five seconds all attempts begin again, as ordinary ones.
    GapBeginsAgain,
}

/// The number of an attempt, from 0.
pub type Number = u32;

/// What can carry an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP of the kernel or of an engine: it reaches every address, also by ordinary attempts.
    Tcp,
    /// TCP in UDP: what was offered.
    Udp,
}

/// What a SYN is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Syn {
    /// It may carry a first flight, or ask for a credential.
    First,
    /// An ordinary one, for this reason.
    Plain(Reason),
}

/// An attempt that may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// What carries it.
    pub transport: Transport,
    /// The server's address; `None` inside a lookup.
    pub remote: Option<SocketAddr>,
    /// What its SYN is.
    pub syn: Syn,
}

/// An address of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// The address, with the port.
    pub remote: SocketAddr,
    /// How long a first attempt at it is given, if its round-trip time is known.
    pub delay: Option<Duration>,
}

/// What can be had apart from ordinary attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptOffer {
    /// An attempt in UDP at this address.
    At(SocketAddr),
    /// An attempt in UDP that begins inside the lookup, and goes on at an address of this family.
    InLookup {
        /// IPv4.
        v4: bool,
    },
}

/// What does not change during a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Setup {
    /// What leaves with a SYN of TCP must not run twice.
    pub tcp_once: bool,
    /// What leaves with a SYN in UDP must not run twice.
    pub udp_once: bool,
    /// TCP sends an ordinary SYN to the same address by itself, in time.
    pub repeats_itself: bool,
    /// The delay between attempts at different addresses. RFC 8305 §8: "recommended to be 250 ms", at least 10 ms.
    pub attempt_delay: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self { tcp_once: false, udp_once: false, repeats_itself: false, attempt_delay: ATTEMPT_DELAY }
    }
}

/// Why an attempt has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Failure {
    /// Its SYN was, or was to be, more than an ordinary one.
    pub asked: bool,
    /// It was refused, by a RST, an ICMP error or a filter of this host: another attempt can begin at once.
    pub refused: bool,
    /// The server may have executed what left with it.
    pub may_have_run: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Make what the attempt carries, if it can carry something, then
    /// [`Race::handle_made`](super::Race::handle_made) or [`Race::handle_not_made`](super::Race::handle_not_made).
    Make(Number, Candidate),
    /// Send the SYN, then [`Race::handle_begun`](super::Race::handle_begun) or
    /// [`Race::handle_failed`](super::Race::handle_failed).
    Begin(Number, Candidate),
    /// Send a copy of what left inside the lookup to this address.
    Direct(Number, SocketAddr),
    /// Close the attempt.
    Abort(Number),
    /// Send the rest of the data to the winner. The race is over.
    Won(Finish),
    /// There is no winner. The race is over.
    Lost {
        /// Data that must not run twice may be at a server.
        once: bool,
    },
}

/// How a race was won.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Finish {
    /// The winner.
    pub number: Number,
    /// What it was.
    pub candidate: Candidate,
    /// When its SYN left.
    pub began: Instant,
    /// Its SYN was more than an ordinary one.
    pub asks: bool,
    /// Addresses at which TCP began before.
    pub earlier: Vec<SocketAddr>,
    /// The attempt whose SYN was more than an ordinary one, if another one won.
    pub first: Option<FirstAttempt>,
    /// The host is still on the network on which the race began, as far as is known.
    pub same_network: bool,
}

/// What became of the attempt whose SYN was more than an ordinary one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FirstAttempt {
    pub(super) number: Number,
    /// What it was.
    pub candidate: Candidate,
    /// When its SYN left; `None` if it could not.
    pub began: Option<Instant>,
    /// Data left with it.
    pub left: bool,
    /// It was refused.
    pub refused: bool,
}
