//! The send window beyond 2 GiB.

use super::*;

/// Sequence numbers compare only within 2 GiB, so no distance may be measured from the ISS beyond that.
#[test]
fn the_window_moves_on_behind_two_gibibytes() {
    let mut pool = Pool::new(1 << 20);
    let mut snd = SendHalf::new(SeqNum::new(7), 1460);
    snd.wnd = 1000;
    assert_eq!(snd.window_end(), SeqNum::new(7 + 1 + 1000));
    snd.first_flight_end = SeqNum::new(200);
    // Three times through the sequence space, in steps of a quarter.
    for step in 1..=12u32 {
        let ack = SeqNum::new(7) + step.wrapping_mul(1 << 30) + 1;
        snd.nxt = ack;
        snd.acknowledge(&mut pool, ack);
        assert_eq!(snd.window_end(), ack + 1000, "{step}");
        assert_eq!(snd.first_flight_again(), 0, "{step}");
        assert!(ack.ge(snd.first_flight_end), "{step}");
    }
}
