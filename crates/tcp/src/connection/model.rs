//! What congestion control learns about the path beyond acknowledgements, and the pace that follows from it.

use super::Connection;
use crate::buffer::Pool;
use crate::chunk::Chunk;
use crate::congestion::{CongestionControl, Departure};
use crate::pacing::{Pace, Pacer, rate_of_window};
use crate::rate::{Around, Sampler};
use crate::timers::Timer;
use alloc::boxed::Box;
use core::time::Duration;
use firstflight_wire::Instant;

/// State of a connection that paces.
#[derive(Debug, Default)]
pub(super) struct Paced {
    pacer: Pacer,
    /// Present if the algorithm models the path.
    pub sampler: Option<Sampler>,
}

impl Connection {
    /// Starts pacing, and sampling if the algorithm models the path.
    pub(super) fn begin_pacing(&mut self) {
        let sampler = self.control.models_path().then(Sampler::default);
        self.paced = Some(Box::new(Paced { pacer: Pacer::default(), sampler }));
    }

    /// Whether the pace holds back waiting data. If so, sets the pacing timer.
    #[inline]
    pub(super) fn pace_holds(&mut self, now: Instant) -> bool {
        let Some(until) = self.paced.as_ref().and_then(|paced| paced.pacer.holds(now)) else { return false };
        if self.snd.is_quiet() {
            return false;
        }
        self.timers.set(Timer::Pacing, until);
        true
    }

    /// Lets the next segment leave at once, regardless of the pace.
    pub(super) fn release_pace(&mut self) {
        if let Some(paced) = &mut self.paced {
            paced.pacer.release();
        }
    }

    /// Notes that `chunk` leaves, if the connection paces.
    pub(super) fn send_paced(&mut self, chunk: Chunk, now: Instant, pool: &mut Pool) {
        let before = self.snd.pipe();
        let sampler = self.paced.as_ref().and_then(|paced| paced.sampler.as_ref());
        if let Some(sampler) = sampler {
            let app_limited = sampler.is_app_limited();
            let srtt = self.rtt.srtt();
            self.control.on_departure(&Departure { now, in_flight: before, app_limited, srtt });
        }
        self.snd.sent(chunk, now, pool);
        let after = self.snd.pipe();
        let own = self.control.pacing_rate();
        let begins = self.paced.as_mut().is_some_and(|paced| paced.pacer.begins());
        let pace = if begins && own.is_none() { None } else { self.pace(own, after) };
        let Some(paced) = &mut self.paced else { return };
        let end = chunk.seq + chunk.len + u32::from(chunk.fin());
        if let Some(sampler) = &mut paced.sampler {
            sampler.sent((chunk.seq, end), chunk.again(), (before, after), now);
        }
        paced.pacer.sent(chunk.len, pace, now);
    }

    /// The pacing rate: the algorithm's `own`, or one that follows from the window, which is unknown before the first
    /// round-trip time.
    fn pace(&self, own: Option<u64>, pipe: u32) -> Option<Pace> {
        let srtt = self.rtt.srtt();
        let rate = match own {
            Some(rate) => rate,
            None => rate_of_window(self.window().max(pipe), self.control.slow_start_threshold(), srtt?),
        };
        let longest = srtt.unwrap_or(Duration::from_millis(100)).max(Duration::from_millis(1));
        // A receiver acknowledges two segments at once, and a link may take them as one.
        let together = if own.is_some() { 1 } else { 2 };
        Some(Pace { rate, mss: u32::from(self.snd.mss), together, longest })
    }

    /// CheckIfApplicationLimited of draft-ietf-ccwg-bbr §4.5.2.3: less than a segment waits, and neither the
    /// window nor a loss is the reason.
    #[inline]
    pub(super) fn check_app_limited(&mut self) {
        if self.paced.is_some() {
            self.look_for_app_limit();
        }
    }

    fn look_for_app_limit(&mut self) {
        let (pipe, window) = (self.snd.pipe(), self.window());
        let unsent = if self.snd.unsent() { self.snd.end().distance_from(self.snd.nxt) } else { 0 };
        let limited = unsent < u32::from(self.snd.mss) && pipe < window && self.snd.flight.waiting() == 0;
        let sampler = self.paced.as_mut().and_then(|paced| paced.sampler.as_mut());
        if let Some(sampler) = sampler.filter(|_| limited) {
            sampler.mark_app_limited(pipe);
        }
    }

    /// Reports newly detected losses to the algorithm.
    pub(super) fn report_losses(&mut self, now: Instant) {
        let Some(sampler) = self.paced.as_mut().and_then(|paced| paced.sampler.as_mut()) else { return };
        if self.snd.flight.waiting() > 0 {
            let control = &mut self.control;
            sampler.losses(&self.snd.flight, self.facts.sack, now, |lost| control.on_lost(lost));
        }
    }

    /// Reports to the algorithm what an acknowledgement says about the path.
    pub(super) fn report_sample(&mut self, now: Instant) {
        self.report_losses(now);
        let around = Around {
            now,
            min_rtt: self.rtt.min_rtt(),
            srtt: self.rtt.srtt(),
            in_flight: self.snd.pipe(),
            cwnd_limited: self.usage.is_full(),
            sack: self.facts.sack,
            recovering: self.snd.recovery.is_repairing(),
        };
        let Some(sampler) = self.paced.as_mut().and_then(|paced| paced.sampler.as_mut()) else { return };
        let sample = sampler.sample(self.snd.una, &around);
        if self.control.on_sample(&sample) {
            sampler.mark_app_limited(around.in_flight);
        }
    }
}
