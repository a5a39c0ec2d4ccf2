use super::*;
use alloc::vec::Vec;

fn pair(flows: usize) -> [Claims; 2] {
    let owners = Arc::new(FlowOwners::new([7; 32], flows));
    [0, 1].map(|stack| Claims { owners: Arc::clone(&owners), stack })
}

const HASH: u64 = 0x0123_4567_89ab_cdef;

#[test]
fn a_flow_has_the_stack_that_claimed_it_last() {
    let [one, two] = pair(100);
    assert_eq!(one.holder(HASH), FlowHolder::Here);
    one.claim(HASH);
    assert_eq!((one.holder(HASH), two.holder(HASH)), (FlowHolder::Here, FlowHolder::There(0)));
    two.claim(HASH);
    assert_eq!((one.holder(HASH), two.holder(HASH)), (FlowHolder::There(1), FlowHolder::Here));
    // What the first one does now is late.
    one.release(HASH);
    assert_eq!(one.holder(HASH), FlowHolder::There(1));
    two.release(HASH);
    assert_eq!((one.holder(HASH), two.holder(HASH)), (FlowHolder::Here, FlowHolder::Here));
}

/// The table of TIME-WAIT keeps 48 bits of a hash.
#[test]
fn the_lower_bits_of_a_hash_do_not_count() {
    let [one, two] = pair(100);
    one.claim(HASH);
    assert_eq!(two.holder(HASH & !STACK), FlowHolder::There(0));
    one.release(HASH & !STACK);
    assert_eq!(two.holder(HASH), FlowHolder::Here);
}

#[test]
fn flows_without_a_place_make_others_unknown_until_they_end() {
    let [one, two] = pair(1);
    let hash = |n: u64| n << 16;
    for n in 1..=WAYS as u64 {
        one.claim(hash(n));
    }
    assert_eq!(two.holder(hash(100)), FlowHolder::Here);
    one.claim(hash(50));
    assert_eq!((two.holder(hash(50)), two.holder(hash(1))), (FlowHolder::Unknown, FlowHolder::There(0)));
    one.release(hash(50));
    assert_eq!(two.holder(hash(50)), FlowHolder::Here);
    // A place that was freed serves again.
    one.release(hash(3));
    two.claim(hash(60));
    assert_eq!(one.holder(hash(60)), FlowHolder::There(1));
}

/// Two threads claim and release flows of their own in one table.
#[test]
fn nothing_is_lost_or_left_by_threads() {
    let [one, two] = pair(4000);
    let work = |claims: &Claims, odd: u64| {
        for round in 0..50 {
            let flows: Vec<u64> = (0..500).map(|n| (round * 500 + n) << 17 | odd << 16).collect();
            flows.iter().for_each(|hash| claims.claim(*hash));
            assert!(flows.iter().all(|hash| claims.owners.find(*hash) == Some(claims.stack)));
            flows.iter().for_each(|hash| claims.release(*hash));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(&one, 0));
        scope.spawn(|| work(&two, 1));
    });
    assert!(one.owners.places.iter().all(|place| place.load(Ordering::Relaxed) == 0));
    assert_eq!(one.owners.unnoted.load(Ordering::Relaxed), 0);
}

#[test]
fn a_table_is_bounded_and_its_debug_keeps_the_secret() {
    let owners = FlowOwners::new([0xab; 32], usize::MAX);
    assert_eq!(owners.places.len(), MOST);
    assert_eq!(alloc::format!("{owners:?}"), "FlowOwners(262144 places)");
}
