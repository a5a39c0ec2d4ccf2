use super::*;

fn run(keys: usize, at_once: bool) -> Minute {
    let keys = Keys { keys, at_once };
    let minute = keys.run(1).unwrap();
    println!("{keys:?}: {minute:?}");
    minute
}

/// A reset of another client does not exclude honest clients behind the same address from the first flight.
#[test]
fn one_reset_key_bars_no_neighbour() {
    let minute = run(1, false);
    assert_eq!((minute.visits, minute.fast), (60, 60));
    // The others draw one SYN-ACK each, like any SYN.
    assert!(minute.accepted < 4, "a way there and back");
    assert!(minute.bytes < 4 * 15_100 + 600 * 52);
}

/// With any number of keys: seven responses a minute, each with the bytes that were under way when its reset
/// arrived.
#[test]
fn many_keys_bar_the_address_after_some_responses() {
    let minute = run(600, false);
    assert!(minute.accepted <= 7 * 2, "{minute:?}");
    assert!(minute.bytes < minute.accepted * 15_100 + 600 * 52);
}

/// First flights before the first reset get a place and draw a response: a whole window for each of a client's
/// own permits, and three times the SYN for each of the others.
#[test]
fn many_keys_at_once_draw_few_bytes() {
    let few = run(8, true);
    assert!(few.accepted == 8 && few.bytes < 8 * 15_100);
    let many = run(600, true);
    assert!(many.bytes < 3 * few.bytes, "{many:?}");
}
