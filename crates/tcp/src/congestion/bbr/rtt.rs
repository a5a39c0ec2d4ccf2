//! The smallest round-trip time, and ProbeRTT, which measures it again (§5.3.4).

use super::{AckPhase, Bbr, MIN_PIPE, Phase, RateSample};
use core::time::Duration;
use firstflight_wire::Instant;

/// BBR.MinRTTFilterLen, which is also the time between two ProbeRTT phases.
const FILTER: Duration = Duration::from_secs(10);
/// BBR.ProbeRTTDuration.
const DURATION: Duration = Duration::from_millis(200);

impl Bbr {
    /// UpdateMinRTT. The old value sets how much ProbeRTT leaves in flight, because the new one may include a
    /// queue.
    pub(super) fn update_min_rtt(&mut self, sample: &RateSample) {
        self.min_rtt_expired = self.min_rtt.is_some() && sample.now > self.min_rtt_stamp + FILTER;
        if self.min_rtt_expired && self.phase != Phase::ProbeRtt {
            self.probe_rtt_cwnd = self.bdp(Phase::ProbeRtt.cwnd_gain()).max(MIN_PIPE * self.mss);
        }
        let Some(rtt) = sample.rtt else { return };
        if self.min_rtt_expired || self.min_rtt.is_none_or(|min| rtt < min) {
            self.min_rtt = Some(rtt);
            self.min_rtt_stamp = sample.now;
        }
    }

    /// CheckProbeRTT.
    pub(super) fn check_probe_rtt(&mut self, sample: &RateSample) {
        if self.phase != Phase::ProbeRtt && self.min_rtt_expired && !self.idle_restart {
            self.phase = Phase::ProbeRtt;
            self.save_cwnd();
            self.probe_rtt_done = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round(sample.total);
        }
        if self.phase == Phase::ProbeRtt {
            self.handle_probe_rtt(sample);
        }
        if sample.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// HandleProbeRTT.
    fn handle_probe_rtt(&mut self, sample: &RateSample) {
        if self.probe_rtt_done.is_none() {
            if sample.in_flight <= self.probe_rtt_cwnd {
                self.probe_rtt_done = Some(sample.now + DURATION);
                self.probe_rtt_round_done = false;
                self.start_round(sample.total);
            }
            return;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(sample.now);
        }
    }

    /// CheckProbeRTTDone.
    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        self.min_rtt_stamp = now;
        self.restore_cwnd();
        // ExitProbeRTT: the bytes in flight are below the bandwidth-delay product, so Cruise follows at once.
        self.reset_shortterm_model();
        if self.full_bw_reached {
            self.start_down(now, self.delivered);
            self.start_cruise();
        } else {
            self.enter_startup();
        }
    }
}
