//! Fragments: sealed connection information in labels of names (`docs/spec/dns-path.md`, section 6).
//!
//! A label carries 58 bytes, of which 8 identify the set and the part. With n fragments, 50·n − 2 bytes are
//! left for the sealed bytes. The seal takes 49 of them, and connection information without data takes 214
//! (IPv4) or 226 (IPv6):
//!
//! | n | IPv4 | IPv6 |
//! |---|---|---|
//! | 6 | 35 | 23 |
//! | 7 | 85 | 73 |
//! | 8 | 135 | 123 |
//!
//! bytes of request. A request that needs more than eight fragments is not sent by DNS.

use crate::base230::{self, BYTES, SYMBOLS};
use crate::seal::Sealed;
use crate::sizes::{BODY, MAX_FRAGMENTS};
use core::fmt;
use firstflight_wire::ParseError;
use sha2::{Digest, Sha256};

/// Length of a fragment's label, octets: the longest that a label can be (RFC 1035 §2.3.4).
pub const LABEL: usize = 63;
/// The least number of fragments: connection information without data needs as many.
pub const MIN_FRAGMENTS: usize = 6;

/// A fragment's label begins with this marker, so that it cannot be mistaken for another label.
const MARKER: [u8; 3] = *b"ff0";
const VERSION: u8 = 1;
const HEAD: usize = 8;

/// The first bytes of SHA-256 of the sealed bytes. It says which fragments belong together, and verifies it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FragmentId(pub(crate) [u8; 6]);

impl FragmentId {
    /// The id of `sealed`.
    #[must_use]
    pub fn of(sealed: &Sealed) -> Self {
        let [a, b, c, d, e, f, ..]: [u8; 32] = Sha256::digest(sealed.as_slice()).into();
        Self([a, b, c, d, e, f])
    }
}

impl fmt::Debug for FragmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{:012x}", u64::from_be_bytes([0, 0, a, b, c, d, e, g]))
    }
}

/// The number of an attempt to ask for the same fragments: 0 to 15. Each attempt has other names, so that
/// neither a cache nor an earlier query that is still open answers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attempt(u8);

impl Attempt {
    /// The attempt with this number. `None` above 15.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number > 15 { None } else { Some(Self(number)) }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Which fragment of a set it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FragmentPart {
    /// The fragment with this index, from 0.
    Data(u8),
    /// The exclusive or of all the others, which can replace a lost one.
    Parity,
}

/// A fragment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    id: FragmentId,
    part: FragmentPart,
    count: u8,
    attempt: Attempt,
    pub(crate) body: [u8; BODY],
}

impl Fragment {
    /// The id of its set.
    #[must_use]
    pub const fn id(&self) -> FragmentId {
        self.id
    }

    /// Which fragment of the set it is.
    #[must_use]
    pub const fn part(&self) -> FragmentPart {
        self.part
    }

    /// How many fragments the set has, without the parity: 6 to 8.
    #[must_use]
    pub const fn count(&self) -> u8 {
        self.count
    }

    /// The attempt in which it is asked for.
    #[must_use]
    pub const fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Whether a label begins with the marker of fragments, in upper or lower case.
    #[must_use]
    pub fn is_marked(label: &[u8]) -> bool {
        label.get(..MARKER.len()).is_some_and(|start| start.eq_ignore_ascii_case(&MARKER))
    }

    /// Parses a label without its length octet, with letters in any case.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] for fewer than 63 octets. [`ParseError::Malformed`] for a label that is not
    /// a fragment's, or of another version. The sender of the query is at fault.
    pub fn parse(label: &[u8]) -> Result<Self, ParseError> {
        let label: &[u8; LABEL] = label.try_into().map_err(|_| ParseError::Truncated)?;
        let (marker, rest) = label.split_first_chunk::<3>().ok_or(ParseError::Truncated)?;
        if !marker.eq_ignore_ascii_case(&MARKER) {
            return Err(ParseError::Malformed("marker of a fragment"));
        }
        let symbols: &[u8; SYMBOLS] = rest.try_into().map_err(|_| ParseError::Truncated)?;
        let bytes = base230::decode(symbols).ok_or(ParseError::Malformed("number of a fragment"))?;
        Self::from_bytes(&bytes)
    }

    /// Parses the bytes that a label encodes.
    pub(crate) fn from_bytes(bytes: &[u8; BYTES]) -> Result<Self, ParseError> {
        let (&[a, b, c, d, e, f, place, version], body) =
            bytes.split_first_chunk::<HEAD>().ok_or(ParseError::Truncated)?;
        if version & 0xf != VERSION {
            return Err(ParseError::Malformed("version of a fragment"));
        }
        let (index, count) = (place >> 4, (place & 0xf) + 1);
        if !(MIN_FRAGMENTS..=MAX_FRAGMENTS).contains(&usize::from(count)) || index > count {
            return Err(ParseError::Malformed("index or count of a fragment"));
        }
        Ok(Self {
            id: FragmentId([a, b, c, d, e, f]),
            part: if index == count { FragmentPart::Parity } else { FragmentPart::Data(index) },
            count,
            attempt: Attempt(version >> 4),
            body: body.try_into().map_err(|_| ParseError::Truncated)?,
        })
    }

    /// The bytes that its label encodes.
    pub(crate) fn to_bytes(self) -> [u8; BYTES] {
        let Self { id: FragmentId(id), part, count, attempt, body } = self;
        let index = match part {
            FragmentPart::Data(index) => index,
            FragmentPart::Parity => count,
        };
        let mut bytes = [0; BYTES];
        bytes[..6].copy_from_slice(&id);
        bytes[6] = index << 4 | (count - 1);
        bytes[7] = attempt.0 << 4 | VERSION;
        bytes[HEAD..].copy_from_slice(&body);
        bytes
    }

    /// The label, in lower case, without its length octet.
    #[must_use]
    pub fn to_label(&self) -> [u8; LABEL] {
        let mut label = [0; LABEL];
        label[..3].copy_from_slice(&MARKER);
        label[3..].copy_from_slice(&base230::encode(&self.to_bytes()));
        label
    }
}

impl fmt::Debug for Fragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, part, count, attempt: Attempt(attempt), body: _ } = self;
        write!(f, "Fragment({id:?}, {part:?} of {count}, attempt {attempt})")
    }
}

/// The fragments of one first flight.
#[derive(Debug, Clone)]
pub struct Fragments {
    all: [Fragment; MAX_FRAGMENTS + 1],
    len: usize,
}

impl Fragments {
    /// Splits sealed bytes into fragments. With `parity` there is one more name, and any one name may be
    /// lost.
    #[must_use]
    pub fn split(sealed: &Sealed, attempt: Attempt, parity: bool) -> Self {
        let id = FragmentId::of(sealed);
        let bytes = sealed.as_slice();
        let mut whole = [0; MAX_FRAGMENTS * BODY];
        let (len, rest) = whole.split_at_mut(2);
        len.copy_from_slice(&(bytes.len() as u16).to_be_bytes());
        for (place, byte) in rest.iter_mut().zip(bytes) {
            *place = *byte;
        }
        let count = (2 + bytes.len()).div_ceil(BODY);
        let fragment = |part, body| Fragment { id, part, count: count as u8, attempt, body };
        let mut all = [fragment(FragmentPart::Parity, [0; BODY]); MAX_FRAGMENTS + 1];
        let (bodies, _) = whole.as_chunks::<BODY>();
        let mut sum = [0; BODY];
        for ((place, body), index) in all.iter_mut().zip(bodies).zip(0..).take(count) {
            *place = fragment(FragmentPart::Data(index), *body);
            add(&mut sum, body);
        }
        if let Some(place) = all.get_mut(count) {
            place.body = sum;
        }
        Self { all, len: count + usize::from(parity) }
    }

    /// The fragments in order, the parity last.
    #[must_use]
    pub fn as_slice(&self) -> &[Fragment] {
        self.all.get(..self.len).unwrap_or_default()
    }

    /// Their labels.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = [u8; LABEL]> {
        self.as_slice().iter().map(Fragment::to_label)
    }
}

/// Adds `body` to `sum` without carry (exclusive or).
pub(crate) fn add(sum: &mut [u8; BODY], body: &[u8; BODY]) {
    for (sum, byte) in sum.iter_mut().zip(body) {
        *sum ^= byte;
    }
}

/// The sealed bytes that `bodies`, which must be complete and in order, contain. `None` if the length, the
/// padding or the id is wrong.
pub(crate) fn join(id: FragmentId, bodies: &[[u8; BODY]]) -> Option<Sealed> {
    let (len, rest) = bodies.as_flattened().split_first_chunk()?;
    let len = usize::from(u16::from_be_bytes(*len));
    let (sealed, padding) = rest.split_at_checked(len)?;
    // The padding must be shorter than a fragment. Otherwise the bytes would have been split into fewer
    // fragments.
    if padding.len() >= BODY || padding.iter().any(|byte| *byte != 0) {
        return None;
    }
    let sealed = Sealed::new(sealed)?;
    (FragmentId::of(&sealed) == id).then_some(sealed)
}

#[cfg(test)]
mod tests;
