use super::*;

fn ack(acked: u32) -> AckSample {
    AckSample {
        now: Instant::from_millis(0),
        acked,
        in_flight: acked,
        srtt: None,
        rtt: None,
        cwnd_limited: true,
    }
}

#[test]
fn slow_start_counts_bytes_up_to_two_segments() {
    let mut c = NewReno::new(1000);
    c.on_ack(&ack(1));
    assert_eq!(c.window(), 10_001, "not a whole segment for one byte (ACK division)");
    c.on_ack(&ack(2000));
    assert_eq!(c.window(), 12_001);
    c.on_ack(&ack(9000));
    assert_eq!(c.window(), 14_001);
}

#[test]
fn an_unused_window_does_not_grow() {
    let mut c = NewReno::new(1000);
    c.on_ack(&AckSample { cwnd_limited: false, ..ack(2000) });
    assert_eq!(c.window(), 10_000);
}

//= rfc9293 MUST-19 test
#[test]
fn congestion_avoidance_adds_a_segment_a_round_trip() {
    let mut c = NewReno::new(1000);
    c.on_loss_recovery(Instant::from_millis(0), 20_000);
    c.on_recovery_exit(Instant::from_millis(0));
    assert_eq!((c.window(), c.slow_start_threshold()), (10_000, 10_000));
    for round in 1..=20u32 {
        let mut left = c.window();
        while left > 0 {
            let n = left.min(2000);
            c.on_ack(&ack(n));
            left -= n;
        }
        assert_eq!(c.window(), 10_000 + round * 1000);
    }
}

#[test]
fn one_segment_per_ack_after_a_timeout_until_the_threshold() {
    let mut c = NewReno::new(1000);
    c.on_timeout(Instant::from_millis(0), 10_000, true, 0);
    assert_eq!((c.window(), c.slow_start_threshold()), (1000, 5000));
    for expected in [2000, 3000, 4000, 5000] {
        c.on_ack(&ack(8000));
        assert_eq!(c.window(), expected);
    }
    c.on_ack(&ack(2000));
    assert_eq!(c.window(), 5000, "congestion avoidance");
}
