//! The flight on the wire, and the first bytes of both sides (3.1, 3.5, 7.2).

use core::fmt;
use core::num::NonZeroU8;
use firstflight_wire::Instant;
use std::time::Duration;

const MAGIC: [u8; 2] = [0xff, 0x53];
const FLIGHT: u8 = 0x11;
/// The first byte of a TLS record with a handshake message.
const HANDSHAKE: u8 = 0x16;
pub(crate) const HEAD: usize = 6;
pub(crate) const ENC: usize = 32;
pub(crate) const TAG: usize = 16;

/// REJECT (3.5).
pub const REJECT: [u8; 4] = [0xff, 0x53, 0x12, 0x00];
/// The least n (3.1).
pub const MIN_N: usize = ENC + TAG + crate::Inner::FIXED;
/// The largest n (3.1).
pub const MAX_N: usize = 16_384;

/// The head of a flight: its first six bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The number of the key.
    pub key_id: NonZeroU8,
    n: u16,
}

impl Head {
    /// The head of a flight with `total` bytes in all. `None` if there is no such flight.
    #[must_use]
    pub fn new(key_id: NonZeroU8, total: usize) -> Option<Self> {
        let n = total.checked_sub(HEAD).filter(|n| (MIN_N..=MAX_N).contains(n))?;
        Some(Self { key_id, n: n as u16 })
    }

    /// Length of the flight, this head included, bytes.
    #[must_use]
    pub const fn total(&self) -> usize {
        HEAD + self.n as usize
    }

    /// The bytes, which the seal authenticates.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; HEAD] {
        let [a, b] = self.n.to_be_bytes();
        [MAGIC[0], MAGIC[1], FLIGHT, self.key_id.get(), a, b]
    }
}

/// What the first bytes of a client are (3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientStart {
    /// At least so many more bytes are needed.
    More(usize),
    Tls,
    Sealed(Head),
    Refused(Refused),
}

/// Why a connection is closed after its first bytes (3.5): the client is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Neither TLS nor a flight.
    #[error("neither TLS nor a sealed flight")]
    OtherProtocol,
    /// A flight of another version, or another message.
    #[error("a sealed flight of another version")]
    Version,
    /// Its length or its key id is impossible.
    #[error("a sealed flight of an impossible length or key id")]
    Malformed,
    /// A second flight on one connection.
    #[error("a second sealed flight on the connection")]
    Second,
    /// It was not whole in time.
    #[error("a sealed flight that was not whole in time")]
    TimedOut,
}

fn first(bytes: &[u8]) -> ClientStart {
    match bytes {
        [] => ClientStart::More(1),
        [HANDSHAKE, ..] => ClientStart::Tls,
        [0xff] => ClientStart::More(HEAD - 1),
        [0xff, 0x53] => ClientStart::More(HEAD - 2),
        [0xff, 0x53, FLIGHT] => ClientStart::More(HEAD - 3),
        [0xff, 0x53, FLIGHT, id, rest @ ..] => match (NonZeroU8::new(*id), rest) {
            (None, _) => ClientStart::Refused(Refused::Malformed),
            (Some(key_id), [a, b, ..]) => {
                let n = u16::from_be_bytes([*a, *b]);
                match Head::new(key_id, HEAD + usize::from(n)) {
                    Some(head) => ClientStart::Sealed(head),
                    None => ClientStart::Refused(Refused::Malformed),
                }
            }
            (Some(_), _) => ClientStart::More(HEAD - bytes.len()),
        },
        [0xff, 0x53, ..] => ClientStart::Refused(Refused::Version),
        _ => ClientStart::Refused(Refused::OtherProtocol),
    }
}

/// A whole flight, as it was received or is to be sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Flight {
    head: Head,
    /// Head included.
    bytes: Vec<u8>,
}

impl Flight {
    pub(crate) fn new(head: Head, bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() == head.total()).then_some(Self { head, bytes })
    }

    /// The flight of these bytes, which contain nothing else. `None` if they are none.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match first(bytes) {
            ClientStart::Sealed(head) => Self::new(head, bytes.to_vec()),
            _ => None,
        }
    }

    /// Its head.
    #[must_use]
    pub const fn head(&self) -> Head {
        self.head
    }

    /// All bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flight({} bytes to key {})", self.bytes.len(), self.head.key_id)
    }
}

/// The next step of a server that reads the first bytes of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// At least so many more bytes are needed. All given bytes were taken.
    More(usize),
    /// The bytes that were not taken are TLS.
    Tls,
    /// A flight. Open it; if that fails, call [`Intake::reject`].
    Sealed(Flight),
    /// Send [`REJECT`] now, and go on with the bytes that were not taken.
    Reject,
    /// Close the connection.
    Close(Refused),
}

#[derive(Debug)]
enum State {
    /// Nothing is decided. At most [`HEAD`] bytes.
    First(Vec<u8>),
    Collecting(Head, Vec<u8>),
    /// A flight to an unknown key, of which so many bytes are still to come.
    Skipping(usize),
    /// After a flight, or after a REJECT: only TLS may follow.
    Over,
}

/// Reads the first bytes of a connection, in any pieces, and decides between TLS and a flight (3.5). Holds at most
/// [`MAX_N`] + 6 bytes.
#[derive(Debug)]
pub struct Intake {
    state: State,
    ends: Instant,
}

impl Intake {
    /// How long a flight may take to arrive.
    pub const WITHIN: Duration = Duration::from_secs(60);

    /// The connection began at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { state: State::First(Vec::new()), ends: now + Self::WITHIN }
    }

    /// When to call [`Intake::handle_time`].
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::First(_) | State::Collecting(..) | State::Skipping(_) => Some(self.ends),
            State::Over => None,
        }
    }

    /// Whether the flight has taken too long.
    pub fn handle_time(&mut self, now: Instant) -> Option<Step> {
        let late = self.deadline().is_some_and(|ends| now >= ends);
        late.then(|| {
            self.state = State::Over;
            Step::Close(Refused::TimedOut)
        })
    }

    /// Takes bytes of the stream. Returns how many were taken, and the next step. `knows` says whether a key can be
    /// opened.
    pub fn handle(&mut self, data: &[u8], knows: impl Fn(NonZeroU8) -> bool) -> (usize, Step) {
        let mut taken = 0;
        loop {
            let rest = data.get(taken..).unwrap_or_default();
            match &mut self.state {
                State::First(held) => {
                    let more = rest.len().min(HEAD - held.len().min(HEAD));
                    let mut whole = held.clone();
                    whole.extend_from_slice(rest.get(..more).unwrap_or_default());
                    match first(&whole) {
                        ClientStart::More(n) => {
                            *held = whole;
                            return (taken + more, Step::More(n));
                        }
                        // The decision falls with the first byte, so nothing was taken before.
                        ClientStart::Tls => {
                            self.state = State::Over;
                            return (taken, Step::Tls);
                        }
                        ClientStart::Refused(why) => {
                            self.state = State::Over;
                            return (taken, Step::Close(why));
                        }
                        ClientStart::Sealed(head) => {
                            taken += more;
                            if !knows(head.key_id) {
                                self.state = State::Skipping(head.total() - HEAD);
                                return (taken, Step::Reject);
                            }
                            self.state = State::Collecting(head, whole);
                        }
                    }
                }
                State::Collecting(head, held) => {
                    let more = rest.len().min(head.total() - held.len());
                    held.extend_from_slice(rest.get(..more).unwrap_or_default());
                    taken += more;
                    if held.len() < head.total() {
                        return (taken, Step::More(head.total() - held.len()));
                    }
                    let flight = Flight { head: *head, bytes: core::mem::take(held) };
                    self.state = State::Over;
                    return (taken, Step::Sealed(flight));
                }
                State::Skipping(left) => {
                    let more = rest.len().min(*left);
                    *left -= more;
                    taken += more;
                    if *left > 0 {
                        return (taken, Step::More(*left));
                    }
                    self.state = State::Over;
                }
                State::Over => {
                    return match rest {
                        [] => (taken, Step::More(1)),
                        [HANDSHAKE, ..] => (taken, Step::Tls),
                        [0xff, ..] => (taken, Step::Close(Refused::Second)),
                        _ => (taken, Step::Close(Refused::OtherProtocol)),
                    };
                }
            }
        }
    }

    /// The flight is rejected: what to send. The bytes that follow go to [`Intake::handle`] again.
    pub fn reject(&mut self) -> [u8; 4] {
        self.state = State::Over;
        REJECT
    }
}

/// What the first bytes of a server are (7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerAnswer {
    /// More bytes are needed.
    More,
    /// TLS: the server may have taken the flight.
    Tls,
    /// REJECT. Behind these four bytes TLS follows.
    Reject,
    /// Something else: close.
    Close,
}

impl ServerAnswer {
    /// Reads the first bytes.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        match bytes {
            [] => Self::More,
            [0x14..=0x16, ..] => Self::Tls,
            _ if bytes.starts_with(&REJECT) => Self::Reject,
            _ if REJECT.starts_with(bytes) => Self::More,
            _ => Self::Close,
        }
    }
}

#[cfg(test)]
mod tests;
