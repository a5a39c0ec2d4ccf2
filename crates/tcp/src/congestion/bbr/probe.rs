//! ProbeBW (§5.3.3): the cycle of Down, Cruise, Refill and Up.

use super::{AckPhase, Bbr, Phase, RateSample, UNBOUNDED};
use core::time::Duration;
use firstflight_wire::Instant;

/// Round trips after which a Reno flow would have its earlier window again (§5.3.3.8).
const RENO_ROUNDS: u32 = 63;

impl Bbr {
    /// StartProbeBW_DOWN.
    pub(super) fn start_down(&mut self, now: Instant, delivered: u64) {
        self.reset_congestion_signals();
        self.probe_up_acked_per_inc = UNBOUNDED;
        self.pick_probe_wait();
        self.cycle_stamp = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round(delivered);
        self.phase = Phase::Down;
    }

    /// PickProbeWait: two to three seconds, or the rounds that Reno would need, minus a random 0 or 1.
    fn pick_probe_wait(&mut self) {
        self.rounds_since_probe_up = self.dice.below(2);
        self.bw_probe_wait = Duration::from_millis(2000 + self.dice.below(1001));
    }

    /// StartProbeBW_CRUISE.
    pub(super) fn start_cruise(&mut self) {
        self.phase = Phase::Cruise;
    }

    /// StartProbeBW_REFILL.
    pub(super) fn start_refill(&mut self, delivered: u64) {
        self.reset_shortterm_model();
        self.probe_up_rounds = 0;
        self.probe_up_acked = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round(delivered);
        self.phase = Phase::Refill;
    }

    /// StartProbeBW_UP.
    fn start_up(&mut self, sample: &RateSample) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round(sample.total);
        self.reset_full_bw(sample.rate);
        self.phase = Phase::Up;
        self.raise_longterm_slope();
    }

    /// UpdateProbeBWCyclePhase.
    pub(super) fn update_cycle_phase(&mut self, sample: &RateSample) {
        if !self.full_bw_reached || self.adapt_longterm_model(sample) {
            return;
        }
        let phase = self.phase;
        match phase {
            Phase::Down if !self.probes_in_time(sample) && self.may_cruise(sample) => self.start_cruise(),
            Phase::Cruise => {
                self.probes_in_time(sample);
            }
            Phase::Refill if self.round_start => {
                self.is_bw_probe_sample = true;
                self.start_up(sample);
            }
            Phase::Up if self.must_go_down(sample) => {
                self.prev_probe_too_high = false;
                self.start_down(sample.now, sample.total);
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW: starts Refill if it is time to probe.
    fn probes_in_time(&mut self, sample: &RateSample) -> bool {
        let waited = sample.now > self.cycle_stamp + self.bw_probe_wait;
        let rounds = (self.target_inflight() / self.mss).min(RENO_ROUNDS);
        let due = waited || self.rounds_since_probe_up >= u64::from(rounds);
        if due {
            self.start_refill(sample.total);
        }
        due
    }

    /// IsTimeToCruise.
    fn may_cruise(&self, sample: &RateSample) -> bool {
        sample.in_flight <= self.inflight_with_headroom()
            && sample.in_flight <= self.inflight(self.max_bw.max(), 100)
    }

    /// IsTimeToGoDown.
    fn must_go_down(&mut self, sample: &RateSample) -> bool {
        if self.prev_probe_too_high && sample.in_flight >= self.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if sample.cwnd_limited && self.cwnd >= self.inflight_longterm {
            // The rate is limited by the bound, so it says nothing about the path.
            self.reset_full_bw(sample.rate);
            return false;
        }
        self.full_bw_now
    }

    /// RaiseInflightLongtermSlope: the bound grows by 1, 2, 4, … segments in a round.
    fn raise_longterm_slope(&mut self) {
        let growth = 1 << self.probe_up_rounds;
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_inc = (self.cwnd / growth).max(self.mss);
    }

    /// ProbeInflightLongtermUpward.
    fn probe_longterm_upward(&mut self, sample: &RateSample) {
        if !sample.cwnd_limited || self.cwnd < self.inflight_longterm {
            return;
        }
        self.probe_up_acked = self.probe_up_acked.saturating_add(sample.acked);
        if self.probe_up_acked >= self.probe_up_acked_per_inc {
            let times = self.probe_up_acked / self.probe_up_acked_per_inc;
            self.probe_up_acked -= times * self.probe_up_acked_per_inc;
            self.inflight_longterm = self.inflight_longterm.saturating_add(times.saturating_mul(self.mss));
        }
        if self.round_start {
            self.raise_longterm_slope();
        }
    }

    /// AdaptLongTermModel: true if it chose the next phase.
    fn adapt_longterm_model(&mut self, sample: &RateSample) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.round_start {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.phase.probes_bw() {
                if !sample.app_limited {
                    self.max_bw.advance();
                }
                if self.prev_probe_precautionary && !self.prev_probe_too_high {
                    self.start_refill(sample.total);
                    return true;
                }
            }
        }
        if self.inflight_longterm == UNBOUNDED || self.is_inflight_too_high(sample.into()) {
            return false;
        }
        self.inflight_longterm = self.inflight_longterm.max(sample.sent_in_flight);
        if self.phase == Phase::Up {
            self.probe_longterm_upward(sample);
        }
        false
    }
}
