use super::*;
use proptest::prelude::*;

fn whole(n: usize) -> Vec<u8> {
    let head = Head::new(NonZeroU8::new(7).unwrap(), HEAD + n).unwrap();
    let mut bytes = head.to_bytes().to_vec();
    bytes.resize(HEAD + n, 0xaa);
    bytes
}

/// Gives `bytes` in pieces, and returns the steps and what was not taken.
fn pieces(bytes: &[u8], cuts: &[usize], knows: bool) -> (Vec<Step>, Vec<u8>) {
    let mut intake = Intake::new(Instant::ZERO);
    let (mut steps, mut held, mut at, mut cuts) = (Vec::new(), Vec::new(), 0, cuts.iter().cycle());
    loop {
        let (taken, step) = intake.handle(&held, |_| knows);
        held.drain(..taken);
        let more = matches!(step, Step::More(_));
        if !more {
            steps.push(step.clone());
        }
        match step {
            Step::More(n) => assert!(n > 0 && held.is_empty()),
            Step::Reject => continue,
            Step::Sealed(_) => {
                assert_eq!(intake.reject(), REJECT);
                continue;
            }
            Step::Tls | Step::Close(_) => return (steps, held),
        }
        if at == bytes.len() {
            return (steps, held);
        }
        let len = cuts.next().map_or(1, |cut| 1 + cut % 700).min(bytes.len() - at);
        held.extend_from_slice(&bytes[at..at + len]);
        at += len;
    }
}

proptest! {
    #[test]
    fn pieces_do_not_matter(n in MIN_N..2000, cuts in proptest::collection::vec(0usize..5000, 1..9), knows: bool) {
        let mut bytes = whole(n);
        let flight = Flight::parse(&bytes).unwrap();
        bytes.push(HANDSHAKE);
        let (steps, rest) = pieces(&bytes, &cuts, knows);
        let first = if knows { Step::Sealed(flight) } else { Step::Reject };
        prop_assert_eq!(steps, [first, Step::Tls]);
        prop_assert_eq!(rest[0], HANDSHAKE);
    }

    #[test]
    fn any_bytes_in_any_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..300), cuts in proptest::collection::vec(0usize..50, 1..5)) {
        let _ = pieces(&bytes, &cuts, true);
        let _ = ServerAnswer::read(&bytes);
    }
}

#[test]
fn one_flight_on_a_connection() {
    let bytes = [whole(100), whole(100)].concat();
    let (steps, _) = pieces(&bytes, &[40], true);
    assert_eq!(steps[1..], [Step::Close(Refused::Second)]);
    let bytes = [&whole(MAX_N)[..], &REJECT].concat();
    assert_eq!(pieces(&bytes, &[600], false).0, [Step::Reject, Step::Close(Refused::Second)]);
    assert!(Head::new(NonZeroU8::MIN, HEAD + MAX_N + 1).is_none());
    assert!(Head::new(NonZeroU8::MIN, 3).is_none());
}

#[test]
fn a_flight_has_a_minute_to_arrive() {
    let mut intake = Intake::new(Instant::from_secs(5));
    assert_eq!(intake.handle(&whole(100)[..50], |_| true), (50, Step::More(56)));
    assert_eq!(intake.handle_time(Instant::from_secs(64)), None);
    assert_eq!(intake.handle_time(Instant::from_secs(65)), Some(Step::Close(Refused::TimedOut)));
    assert_eq!(intake.deadline(), None);
}
