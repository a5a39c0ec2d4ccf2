use super::*;

const SEED: u64 = 1;

fn run(memory: Memory) -> [u32; 13] {
    let all = Between::ALL.map(|between| executed(memory, between, SEED));
    println!("seed {SEED}, {memory:?}: {all:?} for {:?}", Between::ALL);
    all
}

/// Exceptions: a server without a shared guard whose clock is wrong when it starts, and members that share no
/// guard.
#[test]
fn a_request_runs_once_whatever_happens() {
    assert_eq!(run(Memory::Own), [1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 1]);
    assert_eq!(run(Memory::Shared), [1; 13]);
}

/// The attacks work: without a guard they execute the request again.
#[test]
fn without_a_guard_it_runs_again() {
    let [living, closed, changed, restart, .., member, one, half, two, lost] = run(Memory::Nothing);
    assert_eq!(living, 1, "the connection answers for itself");
    assert!([closed, changed, restart, member, one, half, two, lost].into_iter().all(|times| times > 1));
}
