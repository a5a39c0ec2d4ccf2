use super::*;
use std::time::Duration;

const NOW: Moment = Moment::from_secs(1000);

fn parameter(n: u8) -> Parameter {
    Parameter { zone: Box::new([n, 0]), key_id: NonZeroU8::MIN, key: [n; 32] }
}

#[test]
fn the_memory_of_losses_is_bounded() {
    let mut losses = Losses::default();
    for n in 0..200 {
        losses.count(&parameter(n), false, NOW);
        losses.count(&parameter(0), false, NOW);
    }
    assert_eq!(losses.0.len(), PARAMETERS);
    assert_eq!((losses.lost(&parameter(0)), losses.lost(&parameter(1))), (201, 0));
    let other_key = Parameter { key: [9; 32], ..parameter(199) };
    assert_eq!((losses.lost(&parameter(199)), losses.lost(&other_key)), (1, 0));
    // A flight that arrives ends the row.
    losses.end(&parameter(0));
    assert_eq!((losses.lost(&parameter(0)), losses.0.len()), (0, PARAMETERS - 1));
}

#[test]
fn four_that_should_have_won_are_followed_by_a_pause_that_doubles() {
    let minutes = |n: u64| Duration::from_secs(n * 60);
    let (mut losses, of, mut now) = (Losses::default(), parameter(1), NOW);
    for _ in 0..3 {
        losses.count(&of, true, now);
    }
    assert!(!losses.is_paused(&of, now));
    for pause in [2, 4, 8, 16, 32, 60, 60] {
        losses.count(&of, true, now);
        assert!(losses.is_paused(&of, now + minutes(pause) - Duration::from_millis(1)));
        assert!(!losses.is_paused(&of, now + minutes(pause)));
        // A new parameter does not inherit the pause.
        assert!(!losses.is_paused(&parameter(2), now));
        now += minutes(pause);
    }
    for _ in 0..100 {
        losses.count(&of, true, now);
    }
    assert!(losses.is_paused(&of, now) && !losses.is_paused(&of, now + minutes(60)));
    losses.end(&of);
    assert!(!losses.is_paused(&of, now));
}

/// If the address is in the resolver's cache, the direct copy may win each time.
#[test]
fn a_dns_path_that_merely_loses_races_is_not_paused() {
    let (mut losses, of) = (Losses::default(), parameter(1));
    for lost in 1..=1000 {
        losses.count(&of, false, NOW);
        assert_eq!(losses.lost(&of), lost);
        assert!(!losses.is_paused(&of, NOW));
    }
}
