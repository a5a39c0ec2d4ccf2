//! Fast Open cookies and the option that carries them (RFC 7413 §4.1.1).

use core::fmt;
use core::hash::{Hash, Hasher};

/// A Fast Open cookie: an even number of bytes from 4 to 16.
///
/// A client that has the cookie may send data in a SYN from its address. So `Debug` shows only the length, and
/// comparing two cookies of one length takes constant time.
// Aligned, so that it is copied in whole words: overlapping words would wait for each other.
#[derive(Clone, Copy)]
#[repr(align(8))]
pub struct Cookie {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl Cookie {
    /// Length of the shortest cookie, bytes.
    pub const MIN: usize = 4;
    /// Length of the longest cookie, bytes.
    pub const MAX: usize = 16;

    /// A cookie of these bytes, if a cookie can have that length.
    //= rfc7413 4.1.1-a
    #[inline]
    #[must_use]
    pub fn new(cookie: &[u8]) -> Option<Self> {
        // Fast path for the usual length: built in one piece, without a detour through memory.
        if let Ok(eight) = <[u8; 8]>::try_from(cookie) {
            let bytes = u128::from(u64::from_le_bytes(eight)).to_le_bytes();
            return Some(Self { bytes, len: 8 });
        }
        let len = cookie.len();
        if len < Self::MIN || !len.is_multiple_of(2) {
            return None;
        }
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..len)?.copy_from_slice(cookie);
        Some(Self { bytes, len: len as u8 })
    }

    /// The bytes on the wire.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl PartialEq for Cookie {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // The bytes behind a shorter cookie are zero, so all 16 can be compared. `black_box` hides
        // the sum from the optimiser, which could otherwise leave the comparison early.
        let differ = u128::from_ne_bytes(self.bytes) ^ u128::from_ne_bytes(other.bytes);
        core::hint::black_box(differ) == 0 && self.len == other.len
    }
}

impl Eq for Cookie {}

impl Hash for Cookie {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({} bytes)", self.len)
    }
}

/// The option kind that a Fast Open option used. A server answers in the form of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FastOpenForm {
    /// Kind 34 (RFC 7413 §4.1.1).
    #[default]
    Standard,
    /// Kind 254 with the experiment identifier 0xF989 (RFC 6994, RFC 7413 appendix A).
    Experimental,
}

/// A Fast Open option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FastOpen {
    /// Without a cookie: a client requests one.
    Request(FastOpenForm),
    /// With a cookie: a client's proof, or a server's grant.
    Cookie(FastOpenForm, Cookie),
}

impl FastOpen {
    /// The form in which the option arrived.
    #[inline]
    #[must_use]
    pub const fn form(&self) -> FastOpenForm {
        match self {
            Self::Request(form) | Self::Cookie(form, _) => *form,
        }
    }

    /// The cookie's bytes; none for a request.
    #[inline]
    #[must_use]
    pub fn cookie_bytes(&self) -> &[u8] {
        match self {
            Self::Request(_) => &[],
            Self::Cookie(_, cookie) => cookie.as_bytes(),
        }
    }

    /// Reads an option's data behind kind, length and experiment identifier; `None` if a cookie cannot have
    /// that length.
    #[inline]
    pub(super) fn from_wire(form: FastOpenForm, data: &[u8]) -> Option<Self> {
        match data {
            [] => Some(Self::Request(form)),
            _ => Cookie::new(data).map(|cookie| Self::Cookie(form, cookie)),
        }
    }
}
