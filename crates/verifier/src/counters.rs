//! Counters of a verifier.

use firstflight_wire::asap::message::Reason;

/// Counts of one verifier. All fields only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Messages received over UDP.
    pub datagrams: u64,
    /// Messages received over TCP.
    pub stream_messages: u64,
    /// Bytes of all these messages.
    pub bytes_in: u64,
    /// Bytes of all answers.
    pub bytes_out: u64,
    /// Datagrams too short for a request.
    pub dropped_short: u64,
    /// Messages that are not requests, and datagrams from port 0.
    pub dropped_malformed: u64,
    /// Challenges sent.
    pub challenges: u64,
    /// Challenges sent in answer to a challenge that was wrong or too old.
    pub challenges_again: u64,
    /// Certificates issued.
    pub certificates: u64,
    /// Certificates that were refreshed.
    pub refreshed: u64,
    /// Tokens given.
    pub tokens: u64,
    /// Probes sent.
    pub probes: u64,
    /// Signatures verified.
    pub signatures_verified: u64,
    /// Signatures made.
    pub signatures_made: u64,
    refused: [u64; Reason::ALL.len()],
}

impl Counters {
    pub(crate) fn note_refused(&mut self, reason: Reason) {
        // Reasons are numbered from 1.
        if let Some(count) = self.refused.get_mut((reason as usize).wrapping_sub(1)) {
            *count += 1;
        }
    }

    /// Requests refused for this reason.
    #[must_use]
    pub fn refused(&self, reason: Reason) -> u64 {
        self.refused.get((reason as usize).wrapping_sub(1)).copied().unwrap_or(0)
    }

    /// Requests refused.
    #[must_use]
    pub fn refused_in_all(&self) -> u64 {
        self.refused.iter().sum()
    }
}
