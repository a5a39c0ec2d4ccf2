//! The pace and the window that follow from the model (§5.6).

use super::{Bbr, MAX_WINDOW, MIN_PIPE, Phase, RateSample};
use core::time::Duration;

/// BBR.PacingMarginPercent: pace a little slower than the path delivers.
const MARGIN: u64 = 1;

impl Bbr {
    /// InitPacingRate: one initial window in a round trip, or in 1 ms while no round-trip time is known.
    pub(super) fn init_pacing_rate(&mut self, srtt: Option<Duration>) {
        self.has_seen_rtt = srtt.is_some();
        let micros = srtt.map_or(1000, |srtt| (srtt.as_micros() as u64).max(1));
        let nominal = u64::from(self.initial.window(self.mss)) * 1_000_000 / micros;
        self.pacing_rate = nominal.saturating_mul(Phase::Startup.pacing_gain()) / 100;
    }

    /// SetPacingRateWithGain.
    pub(super) fn set_pacing_rate(&mut self, gain: u64) {
        let rate = u128::from(self.bw) * u128::from(gain) * u128::from(100 - MARGIN) / 10_000;
        let rate = rate.min(u128::from(u64::MAX)) as u64;
        if rate > 0 && (self.full_bw_reached || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    /// SetCwnd.
    pub(super) fn set_cwnd(&mut self, sample: &RateSample) {
        let cap = self.bdp(self.phase.cwnd_gain()).saturating_add(self.aggregation.extra());
        let max_inflight = self.quantization_budget(cap);
        let grown = self.cwnd.saturating_add(sample.acked);
        if self.full_bw_reached {
            self.cwnd = grown.min(max_inflight);
        } else if self.cwnd < max_inflight || sample.total < u64::from(self.initial.window(self.mss)) {
            self.cwnd = grown;
        }
        self.cwnd = self.cwnd.max(self.floor(sample)).min(MAX_WINDOW);
        self.bound_cwnd();
    }

    /// The smallest window: four segments once data has arrived, else one segment, so that after a timeout no
    /// more leaves than `on_timeout` allows.
    fn floor(&self, sample: &RateSample) -> u32 {
        if sample.acked > 0 { MIN_PIPE * self.mss } else { self.mss }
    }

    /// BoundCwndForProbeRTT and BoundCwndForModel.
    fn bound_cwnd(&mut self) {
        if self.phase == Phase::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd);
        }
        let cap = match self.phase {
            Phase::Startup | Phase::Drain => super::UNBOUNDED,
            Phase::Down | Phase::Refill | Phase::Up => self.inflight_longterm,
            Phase::Cruise | Phase::ProbeRtt => self.inflight_with_headroom(),
        };
        let cap = cap.min(self.inflight_shortterm).max(MIN_PIPE * self.mss);
        self.cwnd = self.cwnd.min(cap);
    }

    /// SaveCwnd: keeps the last window that neither recovery nor ProbeRTT had reduced.
    pub(super) fn save_cwnd(&mut self) {
        let whole = !self.recovering && self.phase != Phase::ProbeRtt;
        self.prior_cwnd = if whole { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    /// RestoreCwnd.
    pub(super) fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }
}
