use super::*;

#[test]
fn both_algorithms_keep_the_common_contract() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let mut c = Controller::new(algorithm, 1000, 0);
        let now = Instant::from_millis(1);
        assert_eq!((c.window(), c.slow_start_threshold()), (10_000, u32::MAX));
        c.on_loss_recovery(now, 1000);
        // Of FlightSize (RFC 5681 §3.1), or of the window (RFC 9438 §4.6).
        let reduced = if algorithm == Algorithm::Cubic { 7000 } else { 2000 };
        assert_eq!((c.window(), c.slow_start_threshold()), (reduced, reduced), "{algorithm:?}");
        c.undo();
        assert_eq!((c.window(), c.slow_start_threshold()), (10_000, u32::MAX), "{algorithm:?}");
        c.undo();
        assert_eq!(c.window(), 10_000);
        c.on_loss_recovery(now, 10_000);
        c.on_recovery_exit(now);
        assert_eq!(c.window(), c.slow_start_threshold());
        c.undo();
        assert_eq!(c.window(), 10_000, "{algorithm:?}: a late D-SACK");
        c.undo();
        assert_eq!(c.window(), 10_000);
        c.on_timeout(now, 40_000, true, 0);
        let threshold = c.slow_start_threshold();
        assert_eq!(c.window(), 1000);
        assert_eq!(threshold, if algorithm == Algorithm::Cubic { 7000 } else { 20_000 });
        c.on_timeout(now, 1000, false, 0);
        assert_eq!((c.window(), c.slow_start_threshold()), (1000, threshold), "{algorithm:?}");
        c.undo();
        assert_eq!(c.window(), 10_000);
        c.on_timeout(now, 40_000, true, 2500);
        assert_eq!(c.window(), 3500, "{algorithm:?}: some may still arrive");
        c.undo();
        let (window, threshold) = (c.window(), c.slow_start_threshold());
        c.on_unused(window);
        assert_eq!((c.window(), c.slow_start_threshold()), (window, threshold));
        c.on_idle_restart(3000);
        assert_eq!(c.window(), 3000);
        c.set_mss(5000);
        assert_eq!(c.window(), 5000);
        c.on_syn_loss();
        assert_eq!(c.window(), 5000);
    }
}

#[test]
fn a_window_has_a_maximum() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let mut c = Controller::new(algorithm, 65_000, 0);
        for ms in 0..20_000 {
            c.on_ack(&AckSample {
                now: Instant::from_millis(ms),
                acked: u32::MAX,
                in_flight: c.window(),
                srtt: Some(1_000_000),
                rtt: None,
                cwnd_limited: true,
            });
        }
        assert_eq!(c.window(), MAX_WINDOW, "{algorithm:?}");
    }
}
