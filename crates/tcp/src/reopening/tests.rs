use super::*;

const HERE: SeqNum = SeqNum::new(7);
const THERE: SeqNum = SeqNum::new(8);

#[test]
fn a_few_repetitions_until_the_peer_goes_on() {
    let mut reopening = Reopening::default();
    assert!(!reopening.may_wait() && reopening.next(HERE).is_none());
    reopening.refused(HERE, true);
    for n in 0..REPETITIONS {
        // An update with more room for the same peer is not a repetition.
        assert_eq!((reopening.next(HERE), reopening.next(HERE)), (Some(n), Some(n)));
        reopening.repeat();
    }
    assert_eq!(reopening.next(HERE), None);
    // A probe does not restart the repetitions, but closing the window again does.
    reopening.refused(HERE, false);
    assert_eq!((reopening.may_wait(), reopening.next(HERE)), (false, None));
    reopening.refused(HERE, true);
    assert_eq!(reopening.next(HERE), Some(0));
    assert_eq!(reopening.next(THERE), None, "it went on");
    assert!(!reopening.may_wait());
}

#[test]
fn no_repetitions_for_a_peer_that_sends_nothing() {
    let mut reopening = Reopening::default();
    reopening.refused(HERE, false);
    assert!(!reopening.may_wait(), "the window was never closed");
    reopening.opened(HERE);
    assert!(!reopening.may_wait() && reopening.next(HERE).is_none());
    // The peer's first probe arrives late.
    reopening.refused(HERE, false);
    assert_eq!(reopening.next(HERE), Some(0));
    assert!(reopening.end() && !reopening.end());
}
