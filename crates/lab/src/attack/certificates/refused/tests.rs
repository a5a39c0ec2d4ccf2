use super::*;

fn run(memory: Memory) -> [Option<u32>; 7] {
    let all = Change::ALL.map(|change| executed(memory, change, 1));
    println!("{memory:?}: {all:?} for {:?}", Change::ALL);
    all
}

#[test]
fn a_refused_request_stays_refused_and_a_forgotten_one_too_late() {
    assert_eq!(run(Memory::Own), [Some(1); 7]);
    assert_eq!(run(Memory::Shared), [Some(1); 7]);
}

/// Without a guard the attacks with the clock succeed, so the other test is meaningful. A store of trusted verifiers
/// closes those that it trusts more by itself; `asap_refused_later` in the tests of `stack` fails without that.
#[test]
fn without_a_guard_it_runs_again_after_a_change_of_the_clock() {
    let ran = run(Memory::Nothing);
    for (change, times) in Change::ALL.into_iter().zip(ran) {
        let again = times.is_some_and(|times| times > 1);
        assert_eq!(again, matches!(change, Change::Back(_)), "{change:?}: {times:?}");
    }
}
