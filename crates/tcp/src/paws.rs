//! Protection against wrapped sequence numbers, and which timestamp to echo (RFC 7323).

use crate::receive::Receive;
use core::time::Duration;
use firstflight_wire::tcp::Timestamps;
use firstflight_wire::{Instant, SeqNum};

impl Receive {
    /// PAWS (RFC 7323 §5.3): is this timestamp older than what we have seen?
    //= rfc7323 5.3-a
    #[must_use]
    pub(crate) fn is_old(&self, ts: Timestamps, now: Instant) -> bool {
        (ts.value.wrapping_sub(self.ts_recent) as i32) < 0 && !self.ts_expired(now)
    }

    /// After 24 days of silence the peer's clock may have wrapped, so TS.Recent is no longer valid (RFC 7323
    /// §5.5).
    pub(crate) fn ts_expired(&self, now: Instant) -> bool {
        const DAYS_24: Duration = Duration::from_secs(24 * 86400);
        now - self.ts_recent_at >= DAYS_24
    }

    /// RFC 7323 §4.3 (3): which timestamp to echo.
    //= rfc7323 4.3-a 4.3-b 4.3-c 5.2-a
    pub(crate) fn update_ts_recent(&mut self, ts: Timestamps, seq: SeqNum, now: Instant) {
        let newer = (ts.value.wrapping_sub(self.ts_recent) as i32) >= 0 || self.ts_expired(now);
        if seq.le(self.last_ack_sent) && newer {
            self.ts_recent = ts.value;
            self.ts_recent_at = now;
        }
    }
}
