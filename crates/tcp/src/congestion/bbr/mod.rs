//! BBR version 3 (draft-ietf-ccwg-bbr): a model of the path (its delivery rate and its round-trip time) sets
//! the sending rate and the bytes in flight. Losses correct the model; they do not drive it.
//!
//! The names are the draft's. Rates are in bytes a second, gains in percent. The draft does not cover ECN: here
//! a mark (RFC 3168) counts as losses above the threshold.

mod control;
mod filters;
mod loss;
mod model;
mod probe;
mod rtt;
mod startup;

use super::{AckSample, CongestionControl, Departure, LostSegment, MAX_WINDOW, RateSample};
use super::{InitialWindow, legal_mss};
use core::time::Duration;
use filters::{Aggregation, Dice, TwoSlots};
use firstflight_wire::Instant;

/// No limit on the bytes in flight.
const UNBOUNDED: u32 = u32::MAX;
/// No limit on the rate.
const ANY_RATE: u64 = u64::MAX;
/// BBR.LossThresh, percent.
const LOSS_THRESH: u64 = 2;
/// BBR.Beta, percent: no window shrinks by more than CUBIC's.
const BETA: u64 = 70;
/// BBR.MinPipeCwnd, segments.
const MIN_PIPE: u32 = 4;

/// The states of §5.1.1. Down, Cruise, Refill and Up form ProbeBW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Doubles the rate in each round trip until the pipe is full.
    Startup,
    /// Empties the queue that Startup made.
    Drain,
    /// Sends a little slower than the path delivers.
    Down,
    /// Sends as fast as the path delivers.
    Cruise,
    /// Fills the pipe before Up.
    Refill,
    /// Sends faster than the path delivered so far, to test whether it can deliver more.
    Up,
    /// Sends little, so that the queue empties and the real round-trip time shows.
    ProbeRtt,
}

impl Phase {
    /// IsInAProbeBWState.
    fn probes_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// IsProbingBW: losses are expected.
    fn accelerates(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    /// BBR.pacing_gain, percent.
    fn pacing_gain(self) -> u64 {
        match self {
            Self::Startup => 277,
            Self::Drain => 50,
            Self::Down => 90,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 100,
            Self::Up => 125,
        }
    }

    /// BBR.cwnd_gain, percent.
    fn cwnd_gain(self) -> u64 {
        match self {
            Self::Up => 225,
            Self::ProbeRtt => 50,
            _ => 200,
        }
    }
}

/// BBR.ack_phase: which phase's data the arriving acknowledgements are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// The state that a spurious loss ended.
#[derive(Debug, Clone, Copy)]
struct Saved {
    /// BBR.undo_state.
    phase: Option<Phase>,
    bw_shortterm: u64,
    inflight_shortterm: u32,
    inflight_longterm: u32,
}

/// BBR version 3.
#[derive(Debug, Clone)]
pub(crate) struct Bbr {
    mss: u32,
    initial: InitialWindow,
    cwnd: u32,
    pacing_rate: u64,
    phase: Phase,
    dice: Dice,
    /// The smoothed round-trip time was known when the pacing rate was first set.
    has_seen_rtt: bool,

    // Rounds (§5.5.1).
    /// C.delivered, at the last sample.
    delivered: u64,
    next_round_delivered: u64,
    round_start: bool,
    round_count: u64,

    // The model: rate.
    max_bw: TwoSlots<u64>,
    bw_shortterm: u64,
    bw: u64,
    // The model: round-trip time.
    min_rtt: Option<Duration>,
    min_rtt_stamp: Instant,
    min_rtt_expired: bool,
    // The model: volume.
    inflight_longterm: u32,
    inflight_shortterm: u32,
    aggregation: Aggregation,

    // The signals of the last round.
    bw_latest: u64,
    inflight_latest: u32,
    is_loss_in_round: bool,
    loss_round_delivered: u64,
    loss_round_start: bool,
    /// Number of acknowledgements in the round that showed losses.
    loss_events: u8,

    // Whether the pipe is full (§5.3.1.2).
    full_bw: u64,
    full_bw_count: u8,
    full_bw_now: bool,
    full_bw_reached: bool,
    drain_start_round: u64,

    // The cycle of ProbeBW.
    ack_phase: AckPhase,
    cycle_stamp: Instant,
    bw_probe_wait: Duration,
    rounds_since_probe_up: u64,
    is_bw_probe_sample: bool,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    probe_up_rounds: u32,
    probe_up_acked: u32,
    probe_up_acked_per_inc: u32,

    // ProbeRTT.
    probe_rtt_cwnd: u32,
    probe_rtt_done: Option<Instant>,
    probe_rtt_round_done: bool,
    idle_restart: bool,

    // Loss recovery.
    /// The connection is in fast recovery, or in recovery after a timeout.
    recovering: bool,
    prior_cwnd: u32,
    saved: Option<Saved>,
}

impl Bbr {
    /// The initial state for segments of `mss` bytes. `seed` determines the random times of the probes.
    #[must_use]
    pub(crate) fn new(mss: u32, seed: u32) -> Self {
        let mss = legal_mss(mss);
        let initial = InitialWindow::Standard;
        let mut bbr = Self {
            mss,
            initial,
            cwnd: initial.window(mss),
            pacing_rate: 0,
            phase: Phase::Startup,
            dice: Dice::new(seed),
            has_seen_rtt: false,
            delivered: 0,
            next_round_delivered: 0,
            round_start: false,
            round_count: 0,
            max_bw: TwoSlots::default(),
            bw_shortterm: ANY_RATE,
            bw: 0,
            min_rtt: None,
            min_rtt_stamp: Instant::ZERO,
            min_rtt_expired: false,
            inflight_longterm: UNBOUNDED,
            inflight_shortterm: UNBOUNDED,
            aggregation: Aggregation::default(),
            bw_latest: 0,
            inflight_latest: 0,
            is_loss_in_round: false,
            loss_round_delivered: 0,
            loss_round_start: false,
            loss_events: 0,
            full_bw: 0,
            full_bw_count: 0,
            full_bw_now: false,
            full_bw_reached: false,
            drain_start_round: 0,
            ack_phase: AckPhase::Init,
            cycle_stamp: Instant::ZERO,
            bw_probe_wait: Duration::ZERO,
            rounds_since_probe_up: 0,
            is_bw_probe_sample: false,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            probe_up_rounds: 0,
            probe_up_acked: 0,
            probe_up_acked_per_inc: UNBOUNDED,
            probe_rtt_cwnd: initial.window(mss),
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            idle_restart: false,
            recovering: false,
            prior_cwnd: 0,
            saved: None,
        };
        bbr.init_pacing_rate(None);
        bbr
    }

    /// UpdateOnACK (§5.2.3).
    fn update(&mut self, sample: &RateSample) {
        if !self.has_seen_rtt && sample.srtt.is_some() {
            self.init_pacing_rate(sample.srtt);
        }
        self.delivered = sample.total;
        self.update_latest_delivery_signals(sample);
        self.update_congestion_signals(sample);
        self.update_ack_aggregation(sample);
        self.check_full_bw_reached(sample);
        self.check_startup_done(sample);
        self.check_drain_done(sample);
        self.update_cycle_phase(sample);
        self.update_min_rtt(sample);
        self.check_probe_rtt(sample);
        self.advance_latest_delivery_signals(sample);
        self.bound_bw_for_model();
        self.set_pacing_rate(self.phase.pacing_gain());
        self.set_cwnd(sample);
    }
}

impl CongestionControl for Bbr {
    fn window(&self) -> u32 {
        self.cwnd
    }

    /// BBR has no slow-start threshold.
    fn slow_start_threshold(&self) -> u32 {
        u32::MAX
    }

    /// The samples contain everything that BBR needs.
    fn on_ack(&mut self, _ack: &AckSample) {}

    /// OnEnterFastRecovery (§5.6.4.4).
    fn on_loss_recovery(&mut self, _now: Instant, _in_flight: u32) {
        self.save_cwnd();
        self.recovering = true;
        self.note_loss(self.delivered);
    }

    fn on_recovery_exit(&mut self, _now: Instant) {
        self.recovering = false;
        self.restore_cwnd();
    }

    /// OnEnterRTO (§5.6.4.4).
    fn on_timeout(&mut self, _now: Instant, _in_flight: u32, _first: bool, left: u32) {
        self.save_cwnd();
        self.save_state();
        self.recovering = true;
        self.cwnd = left.saturating_add(self.mss).min(MAX_WINDOW);
    }

    /// The model stays valid, and pacing prevents a burst (§5.4).
    fn on_idle_restart(&mut self, _initial_window: u32) {}

    /// A window that the application did not use says nothing about the path.
    fn on_unused(&mut self, _used: u32) {}

    fn set_mss(&mut self, mss: u32) {
        self.mss = legal_mss(mss);
        self.cwnd = self.cwnd.max(self.mss);
    }

    fn undo(&mut self) {
        self.spurious_loss();
    }

    fn begin_with(&mut self, window: InitialWindow) {
        self.initial = window;
        self.cwnd = window.window(self.mss);
        self.init_pacing_rate(None);
    }

    fn on_syn_loss(&mut self) {
        self.cwnd = self.mss;
    }

    fn models_path(&self) -> bool {
        true
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.pacing_rate)
    }

    /// HandleRestartFromIdle (§5.4.1).
    fn on_departure(&mut self, departure: &Departure) {
        if !self.has_seen_rtt && departure.srtt.is_some() {
            self.init_pacing_rate(departure.srtt);
        }
        if departure.in_flight > 0 || !departure.app_limited {
            return;
        }
        self.idle_restart = true;
        self.aggregation.restart(departure.now);
        if self.phase.probes_bw() {
            self.set_pacing_rate(100);
        } else if self.phase == Phase::ProbeRtt {
            self.check_probe_rtt_done(departure.now);
        }
    }

    fn on_lost(&mut self, lost: &LostSegment) {
        self.lost_segment(lost);
    }

    fn on_sample(&mut self, sample: &RateSample) -> bool {
        self.update(sample);
        self.phase == Phase::ProbeRtt
    }

    fn on_mark(&mut self, now: Instant, in_flight: u32) {
        self.mark(in_flight, now);
    }

    fn on_repaired(&mut self) {
        self.recovering = false;
        self.restore_cwnd();
    }
}

#[cfg(test)]
mod tests;
