//! Startup and Drain (§5.3.1, §5.3.2).

use super::{Bbr, Phase, RateSample};

/// Number of acknowledgements with losses in one round that end Startup (BBRStartupFullLossCnt).
const FULL_LOSSES: u8 = 6;
/// Number of rounds without growth that show that the pipe is full.
const FULL_ROUNDS: u8 = 3;

impl Bbr {
    /// EnterStartup.
    pub(super) fn enter_startup(&mut self) {
        self.phase = Phase::Startup;
    }

    /// ResetFullBW.
    pub(super) fn reset_full_bw(&mut self, bw: u64) {
        self.full_bw = bw;
        self.full_bw_count = 0;
        self.full_bw_now = false;
    }

    /// CheckFullBWReached: three rounds in which the rate grows by less than a quarter. As in Linux, growth may
    /// show in any sample of a round; the draft uses only the first sample.
    pub(super) fn check_full_bw_reached(&mut self, sample: &RateSample) {
        if self.full_bw_now || sample.app_limited || sample.prior_delivered.is_none() {
            return;
        }
        if sample.rate >= self.full_bw.saturating_add(self.full_bw / 4) && sample.rate > 0 {
            return self.reset_full_bw(sample.rate);
        }
        if !self.round_start {
            return;
        }
        self.full_bw_count = self.full_bw_count.saturating_add(1);
        self.full_bw_now = self.full_bw_count >= FULL_ROUNDS;
        self.full_bw_reached |= self.full_bw_now;
    }

    /// CheckStartupDone.
    pub(super) fn check_startup_done(&mut self, sample: &RateSample) {
        self.check_startup_high_loss(sample);
        if self.phase == Phase::Startup && self.full_bw_reached {
            self.phase = Phase::Drain;
            self.drain_start_round = self.round_count;
        }
    }

    /// CheckStartupHighLoss: a whole round of recovery had losses above the threshold and in many places.
    /// Without SACK a round can show only one loss.
    fn check_startup_high_loss(&mut self, sample: &RateSample) {
        if self.full_bw_reached || self.phase != Phase::Startup {
            return;
        }
        if sample.lost_now > 0 {
            self.loss_events = self.loss_events.saturating_add(1);
        }
        let enough = self.loss_events >= FULL_LOSSES || (!sample.sack && self.loss_events > 0);
        if self.loss_round_start && sample.recovering && enough && self.is_inflight_too_high(sample.into()) {
            if let Some(saved) = &mut self.saved {
                saved.phase = Some(Phase::Startup);
            }
            self.full_bw_reached = true;
            self.inflight_longterm = self.bdp(100).max(self.inflight_latest);
        }
        if self.loss_round_start {
            self.loss_events = 0;
        }
    }

    /// CheckDrainDone.
    pub(super) fn check_drain_done(&mut self, sample: &RateSample) {
        if self.phase != Phase::Drain {
            return;
        }
        let drained = sample.in_flight <= self.inflight(self.bw, 100);
        if drained || self.round_count > self.drain_start_round + 3 {
            self.start_down(sample.now, sample.total);
        }
    }
}
