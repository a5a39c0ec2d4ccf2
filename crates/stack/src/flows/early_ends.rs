//! First flights that were accepted, and whose connections ended before their client's ACK.
//!
//! The client of such a connection may have got neither the SYN-ACK nor the RST. It then sends its SYN again, and an
//! eavesdropper can send one like it. If that SYN opened a connection, the client would send its data there, and the data
//! would run a second time. So a RST answers it (docs/spec/asap.md 7.3).

use crate::flows::time_wait::TimeWaitTable;
use core::time::Duration;
use firstflight_tcp::TimeWait;
use firstflight_wire::{Instant, SeqNum};

/// How long an end is remembered. A client with six retransmissions, as Linux and this stack have them, gives up 127 s
/// after its first SYN.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(128);

/// A bounded memory of these ends: a four-tuple's hash with the number of its SYN. The oldest are evicted.
#[derive(Debug)]
pub(crate) struct EarlyEnds {
    /// A record's `rcv_nxt` is the number of the SYN. Nothing else of it is used.
    records: TimeWaitTable,
}

impl EarlyEnds {
    /// At most `limit` ends are remembered.
    pub(crate) fn new(limit: usize) -> Self {
        Self { records: TimeWaitTable::new(limit) }
    }

    /// Whether nothing is remembered.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.records.len() == 0
    }

    /// The connection of this flow whose SYN had the number `isn` has ended before its client's ACK.
    pub(crate) fn note(&mut self, hash: u64, isn: SeqNum, now: Instant) {
        let record = TimeWait { snd_nxt: SeqNum::new(0), rcv_nxt: isn, ts_recent: 0, timestamps: false };
        self.records.insert(hash, record, now, REMEMBERED);
    }

    /// Whether a SYN of this flow with the number `isn` comes after such an end.
    pub(crate) fn knows(&self, hash: u64, isn: SeqNum) -> bool {
        self.records.find(hash).is_some_and(|record| record.rcv_nxt == isn)
    }

    /// Forgets what is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.records.expire(now);
    }

    /// When to call [`Self::expire`] next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.records.next_deadline()
    }
}
