use super::*;

#[test]
fn a_stranger_sees_no_sign_of_challenge_acks_and_resets_nothing() {
    for isn in ISNS {
        let outcome = Attacker::new(isn).map(Attacker::run).unwrap();
        println!("{isn:#x}: {outcome:?}");
        assert_eq!((outcome.signs, outcome.reset), (0, false), "{outcome:?}");
        assert!(outcome.packets > 60_000, "every window was tried: {outcome:?}");
    }
}

/// Only the left edge resets the connection, so the attack would work if there were signs.
#[test]
fn the_number_it_looks_for_resets() {
    let mut attacker = Attacker::new(5).unwrap();
    attacker.answered([7]);
    assert_eq!(attacker.stack.close_reason(attacker.victim), None);
    attacker.answered([6]);
    assert_eq!(attacker.stack.close_reason(attacker.victim), Some(CloseReason::Reset));
}
