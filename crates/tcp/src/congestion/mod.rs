//! Congestion control: how many bytes may be in flight.
//!
//! The connection detects losses and calls a `CongestionControl`. The algorithm only changes the congestion
//! window (cwnd) and the slow-start threshold (ssthresh), both in bytes. A program chooses one by its name,
//! [`Algorithm`]; the trait is not public, so that it can change with what an algorithm needs to know.

mod algorithm;
mod bbr;
mod cubic;
mod hystart;
mod initial;
mod newreno;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub(crate) use bbr::Bbr;
pub(crate) use cubic::Cubic;
pub(crate) use initial::initial_window;
pub use initial::{InitialWindow, NoInitialWindow};
pub(crate) use newreno::NewReno;

use alloc::boxed::Box;
use core::time::Duration;
use firstflight_wire::Instant;

/// Largest congestion window. No window grows beyond what window scaling can announce (65535 · 2¹⁴, RFC 7323
/// §2.3), so arithmetic on windows fits into 32 bits.
pub(crate) const MAX_WINDOW: u32 = 1 << 30;

/// What the algorithm learns from an acknowledgement of new data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AckSample {
    /// When the acknowledgement arrived.
    pub now: Instant,
    /// Bytes newly acknowledged.
    pub acked: u32,
    /// Bytes in flight before the acknowledgement.
    pub in_flight: u32,
    /// The smoothed round-trip time in nanoseconds. A `Duration` would cost a division.
    pub srtt: Option<u64>,
    /// The round-trip time of the last segment acknowledged, in nanoseconds, if none was sent again.
    pub rtt: Option<u64>,
    /// The congestion window, and not the application or the peer's window, limited sending in the last round
    /// trip. A window that was not used is not known to fit the path and does not grow (RFC 9438 §5.8, RFC
    /// 7661).
    pub cwnd_limited: bool,
}

/// The delivery rate of the path, measured from one acknowledgement (RS of draft-ietf-ccwg-bbr §4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateSample {
    /// When the acknowledgement arrived.
    pub now: Instant,
    /// Bytes a second (RS.delivery_rate); 0 without a reliable measurement.
    pub rate: u64,
    /// Bytes delivered since the newest delivered segment left (RS.delivered).
    pub delivered: u32,
    /// Bytes that the connection had delivered when that segment left (RS.prior_delivered); `None` if nothing
    /// was delivered.
    pub prior_delivered: Option<u64>,
    /// Bytes delivered in the connection's life (C.delivered).
    pub total: u64,
    /// Bytes newly acknowledged or SACKed (RS.newly_acked).
    pub acked: u32,
    /// Bytes found lost since the newest delivered segment left (RS.lost).
    pub lost: u32,
    /// Bytes found lost since the last acknowledgement.
    pub lost_now: u32,
    /// Bytes in flight just after the newest delivered segment left, including it (RS.tx_in_flight).
    pub sent_in_flight: u32,
    /// The application, not the path, limited delivery (RS.is_app_limited).
    pub app_limited: bool,
    /// The round-trip time of the newest delivered segment.
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Bytes in flight after the acknowledgement.
    pub in_flight: u32,
    /// The congestion window held back data since the last acknowledgement.
    pub cwnd_limited: bool,
    /// The peer reports data that arrived out of order (RFC 2018).
    pub sack: bool,
    /// Fast recovery is under way.
    pub recovering: bool,
}

/// A segment that was found lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LostSegment {
    /// Now.
    pub now: Instant,
    /// The segment's length.
    pub bytes: u32,
    /// Bytes in flight just after the segment left, including it.
    pub in_flight: u32,
    /// Bytes found lost since the segment left, including it.
    pub lost: u32,
    /// The application limited sending when the segment left.
    pub app_limited: bool,
    /// Bytes delivered in the connection's life.
    pub delivered: u64,
    /// The peer reports data that arrived out of order (RFC 2018).
    pub sack: bool,
}

/// The state just before data leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Departure {
    /// Now.
    pub now: Instant,
    /// Bytes in flight.
    pub in_flight: u32,
    /// The application had less to send than the path can take.
    pub app_limited: bool,
    /// The smoothed round-trip time.
    pub srtt: Option<Duration>,
}

/// A congestion control algorithm.
///
/// The order of calls during a loss episode is: [`on_loss_recovery`](Self::on_loss_recovery), no `on_ack`
/// during fast recovery, then [`on_recovery_exit`](Self::on_recovery_exit). After
/// [`on_timeout`](Self::on_timeout) the window is in slow start, and every acknowledgement goes to
/// [`on_ack`](Self::on_ack).
pub(crate) trait CongestionControl {
    /// The congestion window in bytes, at least one segment.
    fn window(&self) -> u32;

    /// The slow-start threshold in bytes; `u32::MAX` until the first loss or the end of the first slow start.
    fn slow_start_threshold(&self) -> u32;

    /// New data was acknowledged outside fast recovery.
    fn on_ack(&mut self, ack: &AckSample);

    /// Fast recovery begins with `in_flight` bytes outstanding (FlightSize): lowers the threshold and sets the
    /// window to it. An algorithm computes the threshold from FlightSize (RFC 5681 §3.1), or from its window if that
    /// grows only while it is used (RFC 9438 §4.6).
    fn on_loss_recovery(&mut self, now: Instant, in_flight: u32);

    /// Fast recovery ended: everything that was outstanding at its start is acknowledged. The
    /// window is the threshold again (RFC 6582 §3.2, RFC 6675 §5).
    fn on_recovery_exit(&mut self, now: Instant);

    /// The retransmission timer expired with `in_flight` bytes outstanding. The threshold is lowered only if
    /// `first`, that is, if the timer had not retransmitted this data before. The window becomes one segment
    /// (RFC 5681 §3.1) plus the `left` bytes that may still arrive.
    fn on_timeout(&mut self, now: Instant, in_flight: u32, first: bool, left: u32);

    /// Nothing was sent for longer than a retransmission timeout: limits the window to `initial_window` (RFC
    /// 5681 §4.1, RFC 9438 §5.8).
    fn on_idle_restart(&mut self, initial_window: u32);

    /// For longer than a retransmission timeout at most `used` bytes were under way, because the application
    /// had no more. The window is reduced halfway to `used`, and the threshold keeps the earlier window (RFC
    /// 7661 §4.4.2; as in Linux). `used` is at least the initial window.
    fn on_unused(&mut self, used: u32);

    /// The segment size in bytes changed (path MTU). Windows in bytes stay as they are, except for their
    /// minima.
    fn set_mss(&mut self, mss: u32);

    /// The last reduction was wrong (nothing was lost): returns to the state before it, but never to a smaller
    /// window. Has no effect if there is nothing to undo.
    fn undo(&mut self);

    /// Begins with this window instead of RFC 6928's. Called before anything leaves.
    fn begin_with(&mut self, window: InitialWindow);

    /// A SYN or SYN-ACK was lost: the initial window becomes one segment (RFC 5681 §3.1).
    fn on_syn_loss(&mut self);

    /// Whether the algorithm models the path. If so, it gets samples and losses, changes its window itself
    /// during fast recovery, so that proportional rate reduction (RFC 9937) does not apply, and sets the pace.
    /// The methods below are for such algorithms.
    fn models_path(&self) -> bool {
        false
    }

    /// The pacing rate in bytes a second; with `None` the window sets the rate.
    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    /// Data is about to leave.
    fn on_departure(&mut self, _departure: &Departure) {}

    /// A segment was found lost. Called before the sample of the acknowledgement that showed the loss.
    fn on_lost(&mut self, _lost: &LostSegment) {}

    /// An acknowledgement arrived, in any state of recovery. Returns true if the delivery of all data now under
    /// way must count as limited by the application, because it shows less than the path can take.
    fn on_sample(&mut self, _sample: &RateSample) -> bool {
        false
    }

    /// The peer echoes a router's mark, with `in_flight` bytes outstanding, at most once in a round trip.
    /// Called after [`on_loss_recovery`](Self::on_loss_recovery).
    fn on_mark(&mut self, _now: Instant, _in_flight: u32) {}

    /// The losses after a timeout were repaired.
    fn on_repaired(&mut self) {}
}

/// The algorithm of one connection. It is an enum, so that only BBR's model needs an allocation.
#[derive(Debug, Clone)]
pub(crate) enum Controller {
    /// See [`NewReno`].
    NewReno(NewReno),
    /// See [`Cubic`].
    Cubic(Cubic),
    /// See [`Bbr`].
    Bbr(Box<Bbr>),
}

impl Default for Controller {
    fn default() -> Self {
        Self::NewReno(NewReno::new(0))
    }
}

impl Controller {
    /// The algorithm in its initial state for segments of `mss` bytes. Its random choices follow from `seed`.
    #[inline]
    #[must_use]
    pub(crate) fn new(algorithm: Algorithm, mss: u32, seed: u32) -> Self {
        match algorithm {
            Algorithm::NewReno => Self::NewReno(NewReno::new(mss)),
            Algorithm::Cubic => Self::Cubic(Cubic::new(mss)),
            Algorithm::Bbr => Self::bbr(mss, seed),
        }
    }

    /// Replaces a provisional controller by one in its initial state.
    #[inline(always)]
    pub(crate) fn begin(&mut self, algorithm: Algorithm, mss: u32, seed: u32) {
        match (self, algorithm) {
            // The usual case. Fill in place to avoid a copy.
            (Self::Cubic(cubic), Algorithm::Cubic) => cubic.settle(mss),
            (controller, _) => *controller = Self::new(algorithm, mss, seed),
        }
    }

    /// A controller for the time until the handshake sets the segment size. It needs no allocation: BBR's model
    /// is built by [`Controller::begin`].
    #[inline]
    #[must_use]
    pub(crate) fn provisional(algorithm: Algorithm, mss: u32) -> Self {
        match algorithm {
            Algorithm::NewReno | Algorithm::Bbr => Self::NewReno(NewReno::new(mss)),
            Algorithm::Cubic => Self::Cubic(Cubic::new(mss)),
        }
    }

    fn bbr(mss: u32, seed: u32) -> Self {
        Self::Bbr(Box::new(Bbr::new(mss, seed)))
    }
}

/// Calls the method on the variant's algorithm.
macro_rules! each {
    ($self:ident, $algorithm:ident => $call:expr) => {
        match $self {
            Controller::NewReno($algorithm) => $call,
            Controller::Cubic($algorithm) => $call,
            Controller::Bbr($algorithm) => $call,
        }
    };
}

impl Controller {
    /// Passes an acknowledgement to the algorithm. `limited` gets the window and whether it is in slow start,
    /// and says whether the window limited sending. `ack` builds the sample from that. One `match` on the
    /// algorithm serves all.
    #[inline(always)]
    pub(crate) fn on_ack_if(
        &mut self,
        now: Instant,
        ack: impl FnOnce(bool) -> AckSample,
        limited: impl Fn(u32, bool) -> bool,
    ) {
        match self {
            Self::Cubic(cubic) => {
                let limited = limited(cubic.window(), cubic.window() < cubic.slow_start_threshold());
                // With short answers the window is rarely full, and `passes` is all that is needed.
                if limited || !cubic.passes(now) {
                    cubic.on_ack(&ack(limited));
                }
            }
            Self::NewReno(_) | Self::Bbr(_) => {
                let limited = limited(self.window(), self.window() < self.slow_start_threshold());
                self.on_ack(&ack(limited));
            }
        }
    }
}

impl CongestionControl for Controller {
    fn window(&self) -> u32 {
        each!(self, a => a.window())
    }

    fn slow_start_threshold(&self) -> u32 {
        each!(self, a => a.slow_start_threshold())
    }

    fn on_ack(&mut self, ack: &AckSample) {
        each!(self, a => a.on_ack(ack));
    }

    fn on_loss_recovery(&mut self, now: Instant, in_flight: u32) {
        each!(self, a => a.on_loss_recovery(now, in_flight));
    }

    fn on_recovery_exit(&mut self, now: Instant) {
        each!(self, a => a.on_recovery_exit(now));
    }

    fn on_timeout(&mut self, now: Instant, in_flight: u32, first: bool, left: u32) {
        each!(self, a => a.on_timeout(now, in_flight, first, left));
    }

    fn on_idle_restart(&mut self, initial_window: u32) {
        each!(self, a => a.on_idle_restart(initial_window));
    }

    fn on_unused(&mut self, used: u32) {
        each!(self, a => a.on_unused(used));
    }

    fn set_mss(&mut self, mss: u32) {
        each!(self, a => a.set_mss(mss));
    }

    fn undo(&mut self) {
        each!(self, a => a.undo());
    }

    fn begin_with(&mut self, window: InitialWindow) {
        each!(self, a => a.begin_with(window));
    }

    fn on_syn_loss(&mut self) {
        each!(self, a => a.on_syn_loss());
    }

    fn models_path(&self) -> bool {
        each!(self, a => a.models_path())
    }

    fn pacing_rate(&self) -> Option<u64> {
        each!(self, a => a.pacing_rate())
    }

    fn on_departure(&mut self, departure: &Departure) {
        each!(self, a => a.on_departure(departure));
    }

    fn on_lost(&mut self, lost: &LostSegment) {
        each!(self, a => a.on_lost(lost));
    }

    fn on_sample(&mut self, sample: &RateSample) -> bool {
        each!(self, a => a.on_sample(sample))
    }

    fn on_mark(&mut self, now: Instant, in_flight: u32) {
        each!(self, a => a.on_mark(now, in_flight));
    }

    fn on_repaired(&mut self) {
        each!(self, a => a.on_repaired());
    }
}

/// The window and the threshold after [`CongestionControl::on_unused`].
fn halfway(window: u32, ssthresh: u32, used: u32) -> (u32, u32) {
    if used >= window {
        return (window, ssthresh);
    }
    (window / 2 + used / 2, ssthresh.max(window / 4 * 3))
}

/// `window` plus `more`, within [`MAX_WINDOW`].
fn grown(window: u32, more: u32) -> u32 {
    window.saturating_add(more).min(MAX_WINDOW)
}

/// `mss`, limited to values that the algorithms can divide by and that TCP can announce.
#[inline]
fn legal_mss(mss: u32) -> u32 {
    mss.clamp(1, u32::from(u16::MAX))
}

#[cfg(test)]
mod tests;
