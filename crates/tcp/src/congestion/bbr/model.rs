//! The model of the path: rounds, the bandwidth, the volume, and the signals of the last round (§5.5).

use super::filters::volume;
use super::{ANY_RATE, Bbr, MAX_WINDOW, MIN_PIPE, Phase, RateSample, UNBOUNDED};
use core::time::Duration;

/// BBR.Headroom, percent.
const HEADROOM: u64 = 15;

impl Bbr {
    /// UpdateRound: a segment has arrived that left after everything delivered at the start of the round.
    fn update_round(&mut self, sample: &RateSample) {
        self.round_start = sample.prior_delivered.is_some_and(|prior| prior >= self.next_round_delivered);
        if self.round_start {
            self.start_round(sample.total);
            self.round_count += 1;
            self.rounds_since_probe_up += 1;
            self.aggregation.round(self.full_bw_reached);
        }
    }

    /// StartRound.
    pub(super) fn start_round(&mut self, delivered: u64) {
        self.next_round_delivered = delivered;
    }

    /// UpdateMaxBw.
    fn update_max_bw(&mut self, sample: &RateSample) {
        self.update_round(sample);
        if sample.rate > 0 && (sample.rate >= self.max_bw.max() || !sample.app_limited) {
            self.max_bw.take(sample.rate);
        }
    }

    /// UpdateLatestDeliverySignals.
    pub(super) fn update_latest_delivery_signals(&mut self, sample: &RateSample) {
        self.loss_round_start = false;
        self.bw_latest = self.bw_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(sample.delivered);
        if sample.prior_delivered.is_some_and(|prior| prior >= self.loss_round_delivered) {
            self.loss_round_delivered = sample.total;
            self.loss_round_start = true;
        }
    }

    /// AdvanceLatestDeliverySignals.
    pub(super) fn advance_latest_delivery_signals(&mut self, sample: &RateSample) {
        if self.loss_round_start {
            self.bw_latest = sample.rate;
            self.inflight_latest = sample.delivered;
        }
    }

    /// ResetCongestionSignals.
    pub(super) fn reset_congestion_signals(&mut self) {
        self.is_loss_in_round = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
    }

    /// UpdateCongestionSignals.
    pub(super) fn update_congestion_signals(&mut self, sample: &RateSample) {
        self.update_max_bw(sample);
        if !self.loss_round_start {
            return;
        }
        if !self.phase.accelerates() && self.is_loss_in_round {
            self.lower_bounds();
        }
        self.is_loss_in_round = false;
    }

    /// InitLowerBounds and LossLowerBounds: lowers each bound to what the last round delivered, but to no less
    /// than Beta percent of its value.
    fn lower_bounds(&mut self) {
        let bw = if self.bw_shortterm == ANY_RATE { self.max_bw.max() } else { self.bw_shortterm };
        let inflight = if self.inflight_shortterm == UNBOUNDED { self.cwnd } else { self.inflight_shortterm };
        self.bw_shortterm = self.bw_latest.max(bw / 100 * super::BETA);
        self.inflight_shortterm = self.inflight_latest.max(scaled(inflight, super::BETA));
    }

    /// ResetShortTermModel.
    pub(super) fn reset_shortterm_model(&mut self) {
        self.bw_shortterm = ANY_RATE;
        self.inflight_shortterm = UNBOUNDED;
    }

    /// BoundBWForModel.
    pub(super) fn bound_bw_for_model(&mut self) {
        self.bw = self.max_bw.max().min(self.bw_shortterm);
    }

    /// UpdateACKAggregation.
    pub(super) fn update_ack_aggregation(&mut self, sample: &RateSample) {
        if sample.acked > 0 {
            self.aggregation.acked(sample.acked, self.bw, self.cwnd, sample.now);
        }
    }

    /// BDPMultiple for a given rate.
    pub(super) fn bdp_of(&self, bw: u64, gain: u64) -> u32 {
        match self.min_rtt {
            Some(rtt) => {
                let bdp = volume(bw, rtt).min(u64::from(MAX_WINDOW));
                (bdp * gain / 100).min(u64::from(MAX_WINDOW)) as u32
            }
            None => self.initial.window(self.mss),
        }
    }

    /// BDPMultiple.
    pub(super) fn bdp(&self, gain: u64) -> u32 {
        self.bdp_of(self.bw, gain)
    }

    /// QuantizationBudget. Without offload, the budget is what may leave together.
    pub(super) fn quantization_budget(&self, cap: u32) -> u32 {
        let quantum = volume(self.pacing_rate, Duration::from_millis(1)).min(65_536) as u32;
        let cap = cap.max(quantum.max(2 * self.mss)).max(MIN_PIPE * self.mss);
        if self.phase == Phase::Up { cap.saturating_add(2 * self.mss) } else { cap }
    }

    /// Inflight, for the given rate.
    pub(super) fn inflight(&self, bw: u64, gain: u64) -> u32 {
        self.quantization_budget(self.bdp_of(bw, gain))
    }

    /// InflightWithHeadroom: leaves room in the bottleneck's buffer for other flows.
    pub(super) fn inflight_with_headroom(&self) -> u32 {
        if self.inflight_longterm == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = scaled(self.inflight_longterm, HEADROOM).max(self.mss);
        self.inflight_longterm.saturating_sub(headroom).max(MIN_PIPE * self.mss)
    }

    /// TargetInflight: the estimated bandwidth-delay product, unless congestion cut the window.
    pub(super) fn target_inflight(&self) -> u32 {
        self.bdp(100).min(self.cwnd)
    }
}

/// `percent` percent of `bytes`.
pub(super) fn scaled(bytes: u32, percent: u64) -> u32 {
    (u64::from(bytes) * percent / 100).min(u64::from(u32::MAX)) as u32
}
