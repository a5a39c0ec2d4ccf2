//! NewReno: slow start and congestion avoidance of RFC 5681, counted in bytes as in RFC 3465.

use super::{
    AckSample, CongestionControl, InitialWindow, MAX_WINDOW, grown, halfway, initial_window, legal_mss,
};
use firstflight_wire::Instant;

/// Number of segments by which one acknowledgement may grow the window in slow start (L of RFC 3465 §2.2).
const SLOW_START_LIMIT: u32 = 2;

/// RFC 5681 with appropriate byte counting (RFC 3465, L = 2; L = 1 after a timeout).
#[derive(Debug, Clone)]
pub(crate) struct NewReno {
    mss: u32,
    cwnd: u32,
    ssthresh: u32,
    /// Bytes acknowledged in congestion avoidance since the window last grew.
    acked: u32,
    /// Slow start after a timeout is under way.
    after_timeout: bool,
    /// cwnd and ssthresh before the last reduction.
    saved: Option<(u32, u32)>,
}

impl NewReno {
    /// The initial state for segments of `mss` bytes.
    #[inline]
    #[must_use]
    pub(crate) fn new(mss: u32) -> Self {
        let mss = legal_mss(mss);
        Self {
            mss,
            cwnd: initial_window(mss).min(MAX_WINDOW),
            ssthresh: u32::MAX,
            acked: 0,
            after_timeout: false,
            saved: None,
        }
    }

    /// RFC 5681 §3.1 equation (4).
    fn reduce_threshold(&mut self, in_flight: u32) {
        self.saved = Some((self.cwnd, self.ssthresh));
        self.ssthresh = (in_flight / 2).max(self.mss.saturating_mul(2));
        self.acked = 0;
    }
}

impl CongestionControl for NewReno {
    fn window(&self) -> u32 {
        self.cwnd
    }

    fn slow_start_threshold(&self) -> u32 {
        self.ssthresh
    }

    //= rfc9293 MUST-19
    fn on_ack(&mut self, ack: &AckSample) {
        if !ack.cwnd_limited {
            return;
        }
        if self.cwnd < self.ssthresh {
            // After a timeout one acknowledgement may cover much data that the receiver already had, so it does
            // not show how much leaves the network now (RFC 3465 §2.3).
            let limit = if self.after_timeout { 1 } else { SLOW_START_LIMIT };
            self.cwnd = grown(self.cwnd, ack.acked.min(self.mss.saturating_mul(limit)));
            return;
        }
        self.after_timeout = false;
        // RFC 3465 §2.1: one more segment for each window of acknowledged bytes.
        self.acked = self.acked.saturating_add(ack.acked);
        if self.acked >= self.cwnd {
            self.acked = (self.acked - self.cwnd).min(self.cwnd);
            self.cwnd = grown(self.cwnd, self.mss);
        }
    }

    fn on_loss_recovery(&mut self, _now: Instant, in_flight: u32) {
        self.reduce_threshold(in_flight);
        self.cwnd = self.ssthresh;
    }

    fn on_recovery_exit(&mut self, _now: Instant) {
        self.cwnd = self.ssthresh.min(MAX_WINDOW);
    }

    fn on_timeout(&mut self, _now: Instant, in_flight: u32, first: bool, left: u32) {
        if first {
            self.reduce_threshold(in_flight);
        }
        self.after_timeout = true;
        self.acked = 0;
        self.cwnd = grown(self.mss, left);
    }

    fn on_idle_restart(&mut self, initial_window: u32) {
        self.cwnd = self.cwnd.min(initial_window).max(self.mss);
        self.acked = 0;
    }

    fn on_unused(&mut self, used: u32) {
        (self.cwnd, self.ssthresh) = halfway(self.cwnd, self.ssthresh, used);
    }

    fn set_mss(&mut self, mss: u32) {
        self.mss = legal_mss(mss);
        self.cwnd = self.cwnd.max(self.mss);
        self.ssthresh = self.ssthresh.max(self.mss.saturating_mul(2));
    }

    fn undo(&mut self) {
        if let Some((cwnd, ssthresh)) = self.saved.take() {
            self.cwnd = self.cwnd.max(cwnd);
            self.ssthresh = self.ssthresh.max(ssthresh);
            self.after_timeout = false;
        }
    }

    fn begin_with(&mut self, window: InitialWindow) {
        self.cwnd = window.window(self.mss);
    }

    fn on_syn_loss(&mut self) {
        self.cwnd = self.mss;
    }
}

#[cfg(test)]
mod tests;
