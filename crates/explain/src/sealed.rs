//! Sealed first flights (`docs/spec/sealed.md`), as far as a capture shows them: the first bytes of both streams are in clear.

use firstflight_seal::{MAX_N, MIN_N, Outcome, ServerAnswer};
use firstflight_wire::SeqNum;

/// As many bytes as both heads need.
const KEPT: usize = 6;

/// The beginning of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beginning {
    seq: SeqNum,
    bytes: [u8; KEPT],
    len: u8,
}

impl Beginning {
    /// Of a segment whose data begins with `seq`. `None` without data.
    pub(crate) fn of(seq: SeqNum, data: &[u8]) -> Option<Self> {
        let kept = data.get(..KEPT).unwrap_or(data);
        let mut bytes = [0; KEPT];
        bytes.get_mut(..kept.len())?.copy_from_slice(kept);
        (!kept.is_empty()).then_some(Self { seq, bytes, len: kept.len() as u8 })
    }

    /// The one that is nearer to the beginning of the stream. Of two that begin together, the first one counts, and the
    /// longer one if it goes on from there.
    pub(crate) fn earlier(self, other: Self) -> Self {
        match self.seq == other.seq {
            true if other.bytes().starts_with(self.bytes()) => other,
            true => self,
            false if self.seq.min(other.seq) == self.seq => self,
            false => other,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// How a server answered a flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlightAnswer {
    /// TLS: it took the flight, or answers with an alert.
    Tls,
    /// It has no such key, or says so.
    Reject,
    /// Something else.
    Other,
    /// Not at all, in this capture.
    None,
}

impl FlightAnswer {
    /// A label in kebab-case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Reject => "reject",
            Self::Other => "other",
            Self::None => "none",
        }
    }
}

/// A sealed flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// The number of the key that it is sealed to.
    pub key_id: u8,
    /// Bytes of the whole flight.
    pub bytes: u32,
    /// How the server answered.
    pub answer: FlightAnswer,
    /// What became of it, if that can be told. Whether a request ran before the end of the handshake is encrypted.
    pub outcome: Option<Outcome>,
}

/// The flight at the beginning of a client's stream, if there is one. `early`: the transport took it in its first flight.
pub(crate) fn judge(client: Option<Beginning>, server: Option<Beginning>, early: bool) -> Option<Sealed> {
    let client = client?;
    let (key_id, bytes) = flight(client.bytes())?;
    let answer = match server.map(|server| ServerAnswer::read(server.bytes())) {
        None | Some(ServerAnswer::More) => FlightAnswer::None,
        Some(ServerAnswer::Tls) => FlightAnswer::Tls,
        Some(ServerAnswer::Reject) => FlightAnswer::Reject,
        Some(_) => FlightAnswer::Other,
    };
    let outcome = match answer {
        FlightAnswer::Reject => Some(Outcome::StaleKey),
        FlightAnswer::Tls if !early => Some(Outcome::TransportRefused),
        FlightAnswer::Tls | FlightAnswer::Other => None,
        FlightAnswer::None => Some(Outcome::Unknown),
    };
    Some(Sealed { key_id, bytes, answer, outcome })
}

/// Key id and length of the flight that begins with these bytes.
fn flight(bytes: &[u8]) -> Option<(u8, u32)> {
    let [0xff, 0x53, 0x11, key_id @ 1..=255, high, low] = *bytes else { return None };
    let n = u16::from_be_bytes([high, low]);
    (MIN_N..=MAX_N).contains(&usize::from(n)).then_some((key_id, KEPT as u32 + u32::from(n)))
}

#[cfg(test)]
mod tests;
