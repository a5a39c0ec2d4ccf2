#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
use super::*;
use crate::memory::history::History;
use firstflight_stack::{Config, Stack};

const NO_RACES: &History = &History::new();

fn learnt(stack: &Stack) -> HolderMemory<'_> {
    HolderMemory { servers: stack.credentials(), history: NO_RACES, others: None }
}

#[test]
fn a_snapshot_that_was_never_written_is_made_again_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    let clock = Clock { mono: Instant::ZERO, unix_ms: 1_800_000_000_000, uncertainty: Duration::ZERO };
    let mut stack = Stack::new(Config::new(Vec::new(), [1; 32]), Instant::ZERO);
    let cache = CredentialCache::open(&path).unwrap();
    let keeper = Keeper::load(cache, &clock, |fact| panic!("{fact:?} in an empty file"));
    let mut keeper = keeper.start(&learnt(&stack), &clock);
    assert!(keeper.last(&learnt(&stack), &clock).is_none(), "nothing is known");
    let network = NetworkId([7; 16]);
    stack.restore_credential(network, "192.0.2.1".parse().unwrap(), Entry::new());
    drop(keeper.snapshot(&learnt(&stack), &clock).unwrap());
    assert!(keeper.snapshot(&learnt(&stack), &clock).is_none(), "nothing has changed");
    keeper.last(&learnt(&stack), &clock).unwrap().write();
    assert!(path.exists() && keeper.last(&learnt(&stack), &clock).is_none());
}
