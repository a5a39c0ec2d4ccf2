//! The effects of losses (§5.5.10), and how they are undone after a spurious loss (§5.5.11).

use super::model::scaled;
use super::{BETA, Bbr, LOSS_THRESH, LostSegment, Phase, RateSample, Saved};
use firstflight_wire::Instant;

/// The lost part of the bytes in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    lost: u32,
    in_flight: u32,
    sack: bool,
}

impl From<&RateSample> for Share {
    fn from(sample: &RateSample) -> Self {
        Self { lost: sample.lost, in_flight: sample.sent_in_flight, sack: sample.sack }
    }
}

impl From<&LostSegment> for Share {
    fn from(lost: &LostSegment) -> Self {
        Self { lost: lost.lost, in_flight: lost.in_flight, sack: lost.sack }
    }
}

impl Bbr {
    /// IsInflightTooHigh: losses exceed LossThresh. Without SACK any loss counts, because only one can be seen.
    pub(super) fn is_inflight_too_high(&self, share: Share) -> bool {
        let limit = u64::from(share.in_flight) * LOSS_THRESH;
        u64::from(share.lost) * 100 > limit || (share.lost > 0 && !share.sack)
    }

    /// NoteLoss.
    pub(super) fn note_loss(&mut self, delivered: u64) {
        if !self.is_loss_in_round {
            self.loss_round_delivered = delivered;
            self.save_cwnd();
            self.save_state();
        }
        self.is_loss_in_round = true;
    }

    /// HandleLostPacket.
    pub(super) fn lost_segment(&mut self, lost: &LostSegment) {
        self.note_loss(lost.delivered);
        if self.is_bw_probe_sample && self.is_inflight_too_high(lost.into()) {
            let safe = (!lost.app_limited).then(|| inflight_at_loss(lost));
            self.inflight_too_high(safe, lost.delivered, lost.now);
        }
    }

    /// A router marked a packet: counts as losses above the threshold.
    pub(super) fn mark(&mut self, in_flight: u32, now: Instant) {
        self.note_loss(self.delivered);
        if self.phase == Phase::Startup {
            self.full_bw_reached = true;
            self.inflight_longterm = self.bdp(100).max(self.inflight_latest);
        } else if self.is_bw_probe_sample {
            self.inflight_too_high(Some(in_flight), self.delivered, now);
        }
    }

    /// HandleInflightTooHigh. `safe` is an amount in flight that was not too high.
    fn inflight_too_high(&mut self, safe: Option<u32>, delivered: u64, now: Instant) {
        self.prev_probe_too_high = true;
        // Only once for a probe.
        self.is_bw_probe_sample = false;
        if let Some(safe) = safe {
            self.inflight_longterm = safe.max(scaled(self.target_inflight(), BETA));
        }
        if self.phase == Phase::Up {
            if let Some(saved) = &mut self.saved {
                saved.phase = Some(Phase::Up);
            }
            self.start_down(now, delivered);
        }
    }

    /// SaveStateUponLoss.
    pub(super) fn save_state(&mut self) {
        self.saved = Some(Saved {
            phase: None,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        });
    }

    /// HandleSpuriousLossDetection.
    pub(super) fn spurious_loss(&mut self) {
        let Some(saved) = self.saved.take() else { return };
        self.recovering = false;
        self.restore_cwnd();
        self.is_loss_in_round = false;
        self.reset_full_bw(0);
        self.bw_shortterm = self.bw_shortterm.max(saved.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(saved.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(saved.inflight_longterm);
        match saved.phase {
            Some(Phase::Startup) if self.phase != Phase::Startup => {
                self.full_bw_reached = false;
                if self.phase != Phase::ProbeRtt {
                    self.enter_startup();
                }
            }
            Some(Phase::Up) if self.phase != Phase::Up && self.phase != Phase::ProbeRtt => {
                self.start_refill(self.delivered);
            }
            _ => {}
        }
    }
}

/// InflightAtLoss: the bytes in flight where losses crossed the threshold, perhaps in the middle of the
/// segment.
fn inflight_at_loss(lost: &LostSegment) -> u32 {
    let before = u64::from(lost.in_flight.saturating_sub(lost.bytes));
    let lost_before = u64::from(lost.lost.saturating_sub(lost.bytes));
    let prefix = (before * LOSS_THRESH).saturating_sub(lost_before * 100) / (100 - LOSS_THRESH);
    (before + prefix).min(u64::from(u32::MAX)) as u32
}
