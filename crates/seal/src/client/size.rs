//! What fits (3.4, 7.6).

use crate::flight::{ENC, HEAD, MAX_N, TAG};
use crate::plain::Inner;

/// Bytes that may follow a SYN in UDP (asap.md 8.1): nine segments, but no more than an initial window with the SYN.
pub const UDP_FOLLOWERS: usize = 9 * 1176;

const STEP: usize = 256;

/// The room for a flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlightRoom {
    syn: usize,
    followers: usize,
}

/// How a flight travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Length of the flight, padding included, bytes.
    pub total: usize,
    /// Of it, bytes in the SYN.
    pub in_syn: usize,
}

impl Plan {
    /// Whether the whole flight is in the SYN.
    #[must_use]
    pub const fn fits_syn(&self) -> bool {
        self.total == self.in_syn
    }
}

impl FlightRoom {
    /// A SYN on IP whose peer takes segments of `mss` bytes, with these bytes of TCP options beyond the fixed header and
    /// a block of `block` bytes with its padding (0 without a block). The whole flight must be in the SYN.
    #[must_use]
    pub const fn in_syn(mss: u16, options: usize, block: usize) -> Self {
        Self { syn: (mss as usize).saturating_sub(options + block), followers: 0 }
    }

    /// The same in UDP, where more may follow the SYN at once.
    #[must_use]
    pub const fn in_udp(mss: u16, options: usize, block: usize) -> Self {
        Self { followers: UDP_FOLLOWERS, ..Self::in_syn(mss, options, block) }
    }

    /// On a connection that is established already.
    #[must_use]
    pub const fn on_connection() -> Self {
        Self { syn: 0, followers: HEAD + MAX_N }
    }

    /// How a ClientHello record and a request of these lengths travel. `None`: not here.
    #[must_use]
    pub fn plan(&self, hello: usize, request: usize) -> Option<Plan> {
        let least = Self::OVERHEAD.checked_add(hello)?.checked_add(request)?;
        if hello > usize::from(u16::MAX) || request > usize::from(u16::MAX) {
            return None;
        }
        let syn = self.syn.min(HEAD + MAX_N);
        if least <= syn {
            return Some(Plan { total: syn, in_syn: syn });
        }
        let total = least.div_ceil(STEP) * STEP;
        // Under a block the SYN must contain what the block has to sign (5).
        let covers = syn == 0 || syn >= HEAD + ENC;
        let fits = total <= (HEAD + MAX_N).min(syn + self.followers) && self.followers > 0;
        (fits && covers).then_some(Plan { total, in_syn: syn })
    }

    /// The longest request beside a ClientHello record of this length.
    #[must_use]
    pub fn longest_request(&self, hello: usize) -> Option<usize> {
        let whole = match self.followers {
            0 => self.syn.min(HEAD + MAX_N),
            more => self.syn.max((self.syn + more).min(HEAD + MAX_N) / STEP * STEP),
        };
        let request = whole.checked_sub(Self::OVERHEAD + hello)?.min(usize::from(u16::MAX));
        self.plan(hello, request).map(|_| request)
    }

    /// Bytes of a flight besides ClientHello, request and padding.
    pub const OVERHEAD: usize = HEAD + ENC + TAG + Inner::FIXED;
}

#[cfg(test)]
mod tests;
