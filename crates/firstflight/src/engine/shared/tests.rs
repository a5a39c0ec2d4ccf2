#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use firstflight_link::VirtualTime;

/// Who wakes the driver has not always read the clock. The calls until the driver's turn must not get the time of
/// its last one, which may be long ago.
#[test]
fn a_wake_up_after_idling_reads_the_clock() {
    let clock = VirtualTime::new(Duration::ZERO);
    let time = Time::from(clock.clone());
    let shared = Shared::new(crate::config(Vec::new()).unwrap(), false, time.clone());
    let before = shared.lock().now();
    let idle = Duration::from_secs(10);
    crate::block_on_virtual(&clock, time.sleep(idle)).unwrap();
    shared.lock().kick();
    assert_eq!(shared.lock().now() - before, idle);
}

/// On a busy machine the driver's turn may come late. A reading of the system's clock is not used for longer than a
/// tick of its coarse clock, 10 ms at most.
#[test]
fn a_reading_of_the_clock_is_not_used_for_long() {
    let shared = Shared::new(crate::config(Vec::new()).unwrap(), false, Time::system());
    let before = shared.lock().now();
    shared.lock().kick();
    std::thread::sleep(Duration::from_millis(50));
    assert!(shared.lock().now() - before >= Duration::from_millis(40));
}
