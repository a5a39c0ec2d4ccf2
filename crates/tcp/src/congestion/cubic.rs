//! CUBIC (RFC 9438) in integers: bytes, milliseconds, and 16 fractional bits where small steps add up.

use super::hystart::HyStart;
use super::{
    AckSample, CongestionControl, InitialWindow, MAX_WINDOW, grown, halfway, initial_window, legal_mss,
};
use alloc::boxed::Box;
use firstflight_wire::Instant;

/// Fractional bits of `w_est`.
const FRACTION: u32 = 16;
/// α_cubic = 3·(1 − β)/(1 + β) with β = 0.7 (RFC 9438 §4.3), `FRACTION` bits.
const ALPHA: u64 = (9 << FRACTION) / 17;
/// The argument of the cubic is limited to ± 262 s. Beyond that, the window has long reached its limit of 1.5,
/// and the third power fits into 64 bits.
const MAX_OFFSET_MS: u64 = 1 << 18;
/// A silence of up to two round trips plus this many nanoseconds does not count as idle time.
const GAP_SLACK: u64 = 10_000_000;

/// RFC 9438: the window is a cubic function of the time since the last reduction, with C = 0.4, β = 0.7, fast
/// convergence and the Reno-friendly region. Its first slow start is HyStart++ (RFC 9406).
#[derive(Debug, Clone)]
pub(crate) struct Cubic {
    mss: u32,
    state: State,
    /// The state before the last reduction (§4.9). Most connections have none.
    saved: Option<Box<State>>,
    /// When the last acknowledgement arrived, to detect idle time.
    last_ack: Instant,
    /// The state of the first slow start.
    hystart: HyStart,
}

/// Everything that a spurious reduction must give back (RFC 9438 §4.9.1).
#[derive(Debug, Clone)]
struct State {
    cwnd: u32,
    ssthresh: u32,
    /// `None` until the first loss: most connections end in their first slow start.
    curve: Option<Box<Curve>>,
}

/// The growth of the window after a loss has ended slow start.
#[derive(Debug, Clone, Default)]
struct Curve {
    /// The window of the cubic's plateau, in bytes; 0 if there is none.
    w_max: u32,
    /// The window before the threshold was last lowered, in bytes.
    cwnd_prior: u32,
    /// K: the time from the start of the epoch to the plateau, in ms.
    k_ms: u32,
    /// The fraction of a byte of `cwnd`, `FRACTION` bits: with small segments the curve's steps are less than a
    /// byte.
    cwnd_fraction: u16,
    /// A congestion-avoidance stage has begun at `epoch`.
    in_epoch: bool,
    /// The window that Reno would have, in bytes with `FRACTION` fractional bits.
    w_est: u64,
    /// Start of the stage, moved forward by the time during which the window was not used.
    epoch: Instant,
}

impl Cubic {
    /// The initial state for segments of `mss` bytes.
    #[inline]
    #[must_use]
    pub(crate) fn new(mss: u32) -> Self {
        let mss = legal_mss(mss);
        let state = State { cwnd: initial_window(mss).min(MAX_WINDOW), ssthresh: u32::MAX, curve: None };
        Self { mss, state, saved: None, last_ack: Instant::from_nanos(0), hystart: HyStart::NEW }
    }

    /// The initial state for another segment size, in place. Requires a state without acknowledgements and
    /// losses, so that the rest is already initial.
    #[inline]
    pub(crate) fn settle(&mut self, mss: u32) {
        debug_assert!(self.saved.is_none() && self.state.curve.is_none());
        debug_assert_eq!(self.last_ack, Instant::from_nanos(0));
        self.mss = legal_mss(mss);
        (self.state.cwnd, self.state.ssthresh) = (initial_window(self.mss).min(MAX_WINDOW), u32::MAX);
    }

    /// Handles an acknowledgement while the window was not fully used. Returns true if only its time matters,
    /// which is so before the first loss.
    #[inline]
    pub(super) fn passes(&mut self, now: Instant) -> bool {
        if self.state.curve.is_some() {
            return false;
        }
        self.last_ack = now;
        true
    }

    /// RFC 9438 §4.6 (threshold) and §4.7 (fast convergence).
    ///
    /// The threshold follows the window and not FlightSize, as §4.6 allows, as in Linux and in QUIC (RFC 9002 §7.3.2).
    /// When the last segments of an answer are lost, FlightSize says how little the application had left, and nothing
    /// about the path: the next answer would begin with two segments. The window is known to fit the path, because it
    /// grows only while it is used, and shrinks when it is not.
    //= rfc9438 4.6-c
    fn reduce(&mut self) {
        self.saved = Some(Box::new(self.state.clone()));
        let s = &mut self.state;
        let curve = s.curve.get_or_insert_default();
        curve.cwnd_prior = s.cwnd;
        // A flow whose plateau falls gives room to new flows: (1 + β)/2 = 0.85.
        //= rfc9438 4.7-a
        curve.w_max = if s.cwnd < curve.w_max { scaled(s.cwnd, 17, 20) } else { s.cwnd };
        //= rfc9438 4.6-b
        s.ssthresh = scaled(s.cwnd, 7, 10).max(self.mss.saturating_mul(2)).min(MAX_WINDOW);
        curve.in_epoch = false;
    }

    fn leave_epoch(&mut self) {
        if let Some(curve) = &mut self.state.curve {
            curve.in_epoch = false;
        }
    }

    /// Begins a congestion-avoidance stage (§4.2; §4.8 and §4.10 if there is no plateau above the window).
    fn begin_epoch(&mut self, now: Instant) {
        let cwnd = self.state.cwnd;
        let curve = self.state.curve.get_or_insert_default();
        curve.in_epoch = true;
        curve.epoch = now;
        //= rfc9438 4.8-a
        curve.w_est = u64::from(cwnd) << FRACTION;
        if curve.w_max > cwnd {
            curve.k_ms = k_ms(curve.w_max - cwnd, self.mss);
        } else {
            curve.w_max = cwnd;
            curve.k_ms = 0;
        }
    }

    /// Nanoseconds in the stage, without the time that was idle or limited by the application (§4.2, §5.8).
    //= rfc9438 4.2-a
    fn elapsed(&mut self, ack: &AckSample) -> u64 {
        let gap = ack.now.nanos_since(self.last_ack);
        // While data is in flight, acknowledgements are about a round trip apart.
        let idle = match ack.srtt {
            _ if !ack.cwnd_limited => gap,
            Some(srtt) => gap.saturating_sub(srtt.saturating_mul(2).saturating_add(GAP_SLACK)),
            None => 0,
        };
        let Some(curve) = &mut self.state.curve else { return 0 };
        curve.epoch = curve.epoch.after_nanos(idle).min(ack.now);
        ack.now.nanos_since(curve.epoch)
    }

    fn congestion_avoidance(&mut self, ack: &AckSample, t: u64) {
        let mss = self.mss;
        let s = &mut self.state;
        let Some(curve) = &mut s.curve else { return };
        let cwnd = u64::from(s.cwnd.max(1));
        let acked = u64::from(ack.acked.min(s.cwnd));

        // §4.3: α is 1 again once Reno would have reached its earlier window.
        //= rfc9438 4.3-b
        let reached = curve.w_est >> FRACTION >= u64::from(curve.cwnd_prior);
        let alpha = if reached { 1 << FRACTION } else { ALPHA };
        curve.w_est += alpha * u64::from(mss) * acked / cwnd;
        curve.w_est = curve.w_est.min(u64::from(MAX_WINDOW) << FRACTION);

        let t_ms = millis(t);
        //= rfc9438 4.3-a
        if curve.w_cubic(t_ms, mss) < curve.w_est >> FRACTION {
            s.cwnd = s.cwnd.max((curve.w_est >> FRACTION) as u32);
            return;
        }
        // §4.4, §4.5: grow towards the value one round trip ahead, by at most half the window.
        let ahead = t_ms + millis(ack.srtt.unwrap_or_default());
        let target = curve.w_cubic(ahead, mss).clamp(cwnd, cwnd + cwnd / 2);
        //= rfc9438 4.4-a 4.5-a
        let step = (target - cwnd) * acked;
        let fraction = u64::from(curve.cwnd_fraction) + ((step % cwnd) << FRACTION) / cwnd;
        s.cwnd = grown(s.cwnd, (step / cwnd + (fraction >> FRACTION)) as u32);
        curve.cwnd_fraction = fraction as u16;
    }
}

impl Curve {
    /// W_cubic(t) = C·(t − K)³ + W_max in bytes (equation 1), for t in ms.
    fn w_cubic(&self, t_ms: u64, mss: u32) -> u64 {
        let k = u64::from(self.k_ms);
        let offset = t_ms.abs_diff(k).min(MAX_OFFSET_MS);
        //= rfc9438 5.1-a
        // C·mss·offset³ = 4·mss·ms³/10¹⁰, in two steps that stay below 2⁵⁹.
        let cube = offset * offset * offset * 4 / 10_000;
        let delta = cube * u64::from(mss) / 1_000_000;
        let plateau = u64::from(self.w_max);
        if t_ms >= k { plateau.saturating_add(delta) } else { plateau.saturating_sub(delta) }
    }
}

impl CongestionControl for Cubic {
    fn window(&self) -> u32 {
        self.state.cwnd
    }

    fn slow_start_threshold(&self) -> u32 {
        self.state.ssthresh
    }

    fn on_ack(&mut self, ack: &AckSample) {
        let in_epoch = self.state.curve.as_ref().is_some_and(|curve| curve.in_epoch);
        let t = if in_epoch { self.elapsed(ack) } else { 0 };
        self.last_ack = ack.now;
        if !ack.cwnd_limited {
            return;
        }
        let s = &mut self.state;
        if s.cwnd < s.ssthresh {
            // Count all bytes that newly arrived, as Linux does, so that receivers that acknowledge in large
            // steps (receive offload) still let the window double in each round trip.
            //= rfc9438 4.10-a 4.10-b
            let first = s.ssthresh == u32::MAX;
            let more = if first { self.hystart.growth(ack) } else { Some(ack.acked) };
            let Some(more) = more else {
                s.ssthresh = s.cwnd;
                return;
            };
            s.cwnd = grown(s.cwnd, more);
            return;
        }
        if !in_epoch {
            self.begin_epoch(ack.now);
        }
        self.congestion_avoidance(ack, t);
    }

    //= rfc9438 4.6-a
    fn on_loss_recovery(&mut self, _now: Instant, _in_flight: u32) {
        self.reduce();
        self.state.cwnd = self.state.ssthresh;
    }

    fn on_recovery_exit(&mut self, now: Instant) {
        self.state.cwnd = self.state.ssthresh.min(MAX_WINDOW);
        self.leave_epoch();
        self.last_ack = now;
    }

    fn on_timeout(&mut self, _now: Instant, _in_flight: u32, first: bool, left: u32) {
        if first {
            self.reduce();
        }
        let s = &mut self.state;
        // §4.8: the stage after the slow start begins with K = 0 and its own plateau.
        if let Some(curve) = &mut s.curve {
            curve.w_max = 0;
            curve.in_epoch = false;
        }
        s.cwnd = grown(self.mss, left);
    }

    fn on_idle_restart(&mut self, initial_window: u32) {
        let s = &mut self.state;
        s.cwnd = s.cwnd.min(initial_window).max(self.mss);
        self.leave_epoch();
    }

    fn on_unused(&mut self, used: u32) {
        let s = &mut self.state;
        (s.cwnd, s.ssthresh) = halfway(s.cwnd, s.ssthresh, used);
        self.leave_epoch();
    }

    fn set_mss(&mut self, mss: u32) {
        self.mss = legal_mss(mss);
        let s = &mut self.state;
        s.cwnd = s.cwnd.max(self.mss);
        s.ssthresh = s.ssthresh.max(self.mss.saturating_mul(2));
        // K was computed for the old segment size.
        self.leave_epoch();
    }

    fn undo(&mut self) {
        if let Some(saved) = self.saved.take() {
            let ssthresh = self.state.ssthresh.max(saved.ssthresh);
            //= rfc9438 4.9.1-a
            if self.state.cwnd < saved.cwnd {
                self.state = *saved;
            }
            self.state.ssthresh = ssthresh;
        }
    }

    fn begin_with(&mut self, window: InitialWindow) {
        self.state.cwnd = window.window(self.mss);
    }

    fn on_syn_loss(&mut self) {
        self.state.cwnd = self.mss;
    }
}

/// `bytes · numerator / denominator`.
fn scaled(bytes: u32, numerator: u64, denominator: u64) -> u32 {
    (u64::from(bytes) * numerator / denominator) as u32
}

fn millis(nanos: u64) -> u64 {
    (nanos / 1_000_000).min(u64::from(u32::MAX))
}

/// K = ∛((W_max − cwnd)/C) (equation 2): converts the bytes below the plateau to the ms until it is reached.
fn k_ms(below: u32, mss: u32) -> u32 {
    // (ms)³ = 10⁹·segments/0.4, below 2⁶⁴ for 32 bits of bytes.
    cube_root(u64::from(below) * 2_500_000_000 / u64::from(mss.max(1)))
}

/// ⌊∛x⌋, computed one result bit at a time. It is needed once in a stage.
fn cube_root(mut x: u64) -> u32 {
    let mut root: u64 = 0;
    for shift in (0..64u32).step_by(3).rev() {
        root *= 2;
        // (root + 1)³ − root³
        let step = 3 * root * (root + 1) + 1;
        if x >> shift >= step {
            x -= step << shift;
            root += 1;
        }
    }
    root as u32
}

#[cfg(test)]
#[path = "cubic_tests.rs"]
mod tests;
