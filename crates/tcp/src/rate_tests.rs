use super::*;
use crate::board::Boards;
use std::vec::Vec;

fn ms(n: u64) -> Instant {
    Instant::from_millis(n)
}

fn seq(n: u32) -> SeqNum {
    // Close to the wrap of the sequence numbers.
    SeqNum::new(n.wrapping_sub(2500))
}

/// Segments of 1,000 bytes over a path of 20 ms.
#[derive(Default)]
struct Wire {
    sampler: Sampler,
    flight: Flight,
}

impl Wire {
    fn send(&mut self, n: u32, now: Instant) {
        let before = self.flight.pipe();
        self.flight.push(seq(n * 1000), seq(n * 1000 + 1000), now, &mut Boards::default());
        let numbers = (seq(n * 1000), seq(n * 1000 + 1000));
        self.sampler.sent(numbers, false, (before, self.flight.pipe()), now);
    }

    fn send_again(&mut self, n: u32, now: Instant) {
        let before = self.flight.pipe();
        self.flight.repeat(seq(n * 1000), seq(n * 1000 + 1000), now);
        let numbers = (seq(n * 1000), seq(n * 1000 + 1000));
        self.sampler.sent(numbers, true, (before, self.flight.pipe()), now);
    }

    fn ack(&mut self, upto: u32, now: Instant) -> RateSample {
        let sampler = &mut self.sampler;
        self.flight.acknowledge(seq(upto * 1000), |sent| sampler.delivered(sent, now));
        self.sampler.sample(seq(upto * 1000), &self.around(now, true))
    }

    fn around(&self, now: Instant, sack: bool) -> Around {
        let rtt = Some(Duration::from_millis(20));
        let in_flight = self.flight.pipe();
        Around { now, min_rtt: rtt, srtt: rtt, in_flight, cwnd_limited: false, sack, recovering: false }
    }

    fn lose(&mut self, n: u32, now: Instant) -> Vec<(u32, u32)> {
        self.flight.mark(|sent| Some(sent.start == seq(n * 1000)));
        let mut seen = Vec::new();
        self.sampler.losses(&self.flight, true, now, |lost| seen.push((lost.lost, lost.in_flight)));
        seen
    }
}

#[test]
fn a_steady_flow_has_its_rate() {
    let mut wire = Wire::default();
    let mut last = None;
    for n in 0..100u32 {
        wire.send(n, ms(u64::from(n)));
        if n >= 20 {
            last = Some(wire.ack(n - 19, ms(u64::from(n))));
        }
    }
    let sample = last.unwrap();
    assert!((990_000..=1_060_000).contains(&sample.rate), "{sample:?}");
    assert_eq!((sample.acked, sample.rtt), (1000, Some(Duration::from_millis(20))));
    assert_eq!((sample.lost, sample.app_limited), (0, false));
    assert_eq!(sample.total, 80_000);
    assert_eq!(sample.sent_in_flight, 21_000, "what was in flight when it had left");
}

#[test]
fn acknowledgements_that_come_together_do_not_raise_the_rate() {
    let mut wire = Wire::default();
    for n in 0..20 {
        wire.send(n, ms(u64::from(n)));
    }
    wire.ack(1, ms(20));
    for n in 20..40 {
        wire.send(n, ms(u64::from(n)));
    }
    // Nineteen segments that left within 19 ms are acknowledged 39 ms after the first one left.
    let sample = wire.ack(40, ms(60));
    assert!(sample.rate <= 1_000_000, "{sample:?}");
}

#[test]
fn a_burst_is_measured_by_its_acknowledgement_clock() {
    let mut wire = Wire::default();
    (0..10).for_each(|n| wire.send(n, ms(0)));
    let sample = wire.ack(10, ms(25));
    assert_eq!(sample.rate, 10_000 * 40, "10,000 bytes in 25 ms");
    assert_eq!(sample.prior_delivered, Some(0));
}

#[test]
fn what_the_application_limits_is_marked_until_it_has_arrived() {
    let mut wire = Wire::default();
    wire.send(0, ms(0));
    wire.sampler.mark_app_limited(1000);
    wire.send(1, ms(5));
    assert!(!wire.ack(1, ms(20)).app_limited, "it left before");
    wire.send(2, ms(21));
    assert!(wire.ack(2, ms(25)).app_limited);
    assert!(!wire.sampler.is_app_limited(), "the bubble has left the path");
    assert!(wire.ack(3, ms(45)).app_limited, "it left in the bubble");
    wire.send(3, ms(50));
    assert!(!wire.ack(4, ms(70)).app_limited);
}

#[test]
fn a_loss_counts_once_each_time_it_left() {
    let mut wire = Wire::default();
    (0..5).for_each(|n| wire.send(n, ms(0)));
    assert_eq!(wire.lose(1, ms(20)), [(1000, 2000)]);
    assert_eq!(wire.lose(1, ms(21)), []);
    assert_eq!(wire.lose(3, ms(22)), [(2000, 4000)]);
    wire.send_again(1, ms(23));
    assert_eq!(wire.lose(1, ms(44)), [(1000, 4000)], "lost since it left again");
    let sample = wire.ack(1, ms(45));
    assert_eq!((sample.lost, sample.lost_now), (3000, 3000));
    assert_eq!(wire.ack(1, ms(46)).lost_now, 0);
}

#[test]
fn a_repetition_that_was_not_needed_measures_nothing() {
    let mut wire = Wire::default();
    (0..5).for_each(|n| wire.send(n, ms(0)));
    wire.lose(0, ms(10));
    wire.send_again(0, ms(10));
    // The answer is faster than any before, so it answers the original, which was only late.
    let sample = wire.ack(5, ms(15));
    assert_eq!((sample.rate, sample.rtt), (0, Some(Duration::from_millis(15))));
    assert_eq!((sample.delivered, sample.prior_delivered), (5000, Some(0)));
}

#[test]
fn without_sack_what_a_repetition_delivers_measures_nothing() {
    let mut wire = Wire::default();
    (0..5).for_each(|n| wire.send(n, ms(0)));
    wire.send_again(0, ms(30));
    let sampler = &mut wire.sampler;
    wire.flight.acknowledge(seq(5000), |sent| sampler.delivered(sent, ms(60)));
    let around = wire.around(ms(60), false);
    assert_eq!(wire.sampler.sample(seq(5000), &around).rate, 0);
}

#[test]
fn stamps_are_cut_as_segments_are() {
    let mut wire = Wire::default();
    (0..3).for_each(|n| wire.send(n, ms(0)));
    wire.lose(1, ms(20));
    // Half of the segment is sent again.
    wire.flight.repeat(seq(1000), seq(1500), ms(25));
    wire.sampler.sent((seq(1000), seq(1500)), true, (2000, 2500), ms(25));
    assert_eq!(wire.sampler.stamps.len(), 4);
    let again: Vec<_> = wire.sampler.stamps.iter().map(|stamp| stamp.counted).collect();
    assert_eq!(again, [false, false, true, false]);
    wire.ack(3, ms(50));
    assert_eq!(wire.sampler.stamps.capacity(), 0, "an idle connection owns no buffers");
}

#[test]
fn crumbs_make_no_more_stamps_than_records() {
    let mut sampler = Sampler::default();
    for n in 0..100_000 {
        sampler.sent((seq(n), seq(n + 1)), false, (n, n + 1), ms(1));
    }
    assert!(sampler.stamps.len() <= MANY, "{}", sampler.stamps.len());
    assert_eq!(sampler.stamps.back().map(|stamp| stamp.end), Some(seq(100_000)));
}
