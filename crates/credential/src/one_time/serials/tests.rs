//! A serial is used at most once, whatever happens to the process and the counter.

use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

fn own(capacity: usize) -> SerialTable {
    let table = SerialTable::own(7, 1, capacity);
    table.extend(1 << 40);
    table
}

#[test]
fn granted_activated_used_once() {
    let table = own(100);
    let serial = table.issue().unwrap();
    assert_eq!((serial.issuer(), serial.counter()), (7, 1));
    table.activate(serial);
    assert_eq!(table.redeem(serial), Redeemed::Now);
    assert_eq!(table.redeem(serial), Redeemed::Before);
    table.activate(serial);
    assert_eq!(table.redeem(serial), Redeemed::Before, "an ACK that comes again gives nothing back");
}

/// Who showed it too early may ask again. Nobody else gets it.
#[test]
fn shown_too_early_it_is_active_later() {
    let table = own(100);
    let serial = table.issue().unwrap();
    assert_eq!(table.redeem(serial), Redeemed::NotActive);
    assert!(!table.is_active(serial));
    assert_eq!(table.redeem(serial), Redeemed::Before, "a copy");
    table.activate(serial);
    assert!(table.is_active(serial));
    assert_eq!(table.redeem(serial), Redeemed::Before, "a copy");
    let [next, other] = [(7, 4), (8, 1)].map(|(issuer, counter)| Serial::new(issuer, counter).unwrap());
    assert!(!table.is_active(next) && !table.is_active(other));
    assert!(!SerialTable::foreign(7, 1, 100).is_active(serial));
}

/// The data is sent by the ordinary handshake. If a copy of the SYN were accepted after the activation, the
/// data would be executed a second time.
#[test]
fn shown_too_early_it_is_used_up() {
    let table = own(100);
    let serial = table.issue().unwrap();
    assert_eq!(table.redeem(serial), Redeemed::NotActive);
    table.activate(serial);
    assert_eq!(table.redeem(serial), Redeemed::Before);
}

#[test]
fn what_was_never_given_out_is_unknown() {
    let table = own(100);
    for counter in [1, 2, 1 << 30] {
        let serial = Serial::new(7, counter).unwrap();
        table.activate(serial);
        assert_eq!(table.redeem(serial), Redeemed::Forgotten);
    }
    let other = Serial::new(8, 1).unwrap();
    let _ = table.issue();
    table.activate(other);
    assert_eq!(table.redeem(other), Redeemed::Forgotten, "another issuer's");
    assert_eq!(Serial::new(7, 0), None);
    assert_eq!(Serial::new(7, 1 << 48), None);
}

#[test]
fn old_serials_leave_the_window_unused() {
    let table = own(64);
    let first = table.issue().unwrap();
    table.activate(first);
    for _ in 0..63 {
        table.activate(table.issue().unwrap());
    }
    assert_eq!(table.redeem(first), Redeemed::Now);
    let second = Serial::new(7, 2).unwrap();
    let _ = (table.issue(), table.issue());
    assert_eq!(table.redeem(second), Redeemed::Forgotten);
    assert_eq!(table.redeem(Serial::new(7, 66).unwrap()), Redeemed::NotActive, "its place is clean");
}

#[test]
fn nothing_is_given_out_beyond_the_mark_on_disk() {
    let table = SerialTable::own(7, 1, 100);
    assert_eq!(table.issue(), None, "nothing is written yet");
    assert_eq!(table.wants(10), Some(11));
    table.extend(11);
    assert_eq!(table.wants(10), None);
    let given: Vec<_> = (0..20).map_while(|_| table.issue()).collect();
    assert_eq!(given.len(), 10);
    assert_eq!(table.wants(10), Some(21));
    table.extend(21);
    assert_eq!(table.issue().map(Serial::counter), Some(11));
}

/// The process ends at any moment, and the next one starts at the mark on disk. It accepts no earlier serial
/// and issues no number twice.
#[test]
fn after_a_restart_no_older_serial_is_taken() {
    let mut mark = 1;
    let mut seen = BTreeSet::new();
    let mut before = Vec::new();
    for life in 0..5 {
        let table = SerialTable::own(7, mark, 1000);
        if let Some(next) = table.wants(50) {
            mark = next;
            table.extend(next);
        }
        for old in &before {
            table.activate(*old);
            assert_eq!(table.redeem(*old), Redeemed::Forgotten, "life {life}");
        }
        for _ in 0..30 {
            let serial = table.issue().unwrap();
            assert!(seen.insert(serial), "{serial:?} twice");
            table.activate(serial);
            before.push(serial);
            if let Some(next) = table.wants(50) {
                mark = next;
                table.extend(next);
            }
        }
        for old in &before {
            let fresh = old.counter() >= seen.iter().rev().nth(29).unwrap().counter();
            if !fresh {
                assert_eq!(table.redeem(*old), Redeemed::Forgotten);
            }
        }
    }
}

#[test]
fn a_foreign_issuers_serials_are_taken_once() {
    let table = SerialTable::foreign(9, 1, 64);
    assert_eq!(table.issue(), None, "they are not ours to give");
    let serial = |counter| Serial::new(9, counter).unwrap();
    assert_eq!(table.redeem(serial(5)), Redeemed::Forgotten, "beyond the mark on disk");
    table.extend(1000);
    assert_eq!(table.redeem(serial(5)), Redeemed::Now);
    assert_eq!(table.redeem(serial(5)), Redeemed::Before);
    assert_eq!(table.redeem(serial(3)), Redeemed::Now, "an older one in the window");
    assert_eq!(table.redeem(serial(500)), Redeemed::Now, "a jump");
    assert_eq!(table.redeem(serial(5)), Redeemed::Forgotten);
    assert_eq!(table.redeem(serial(437)), Redeemed::Now, "the oldest in the window");
    assert_eq!(table.redeem(serial(436)), Redeemed::Forgotten);
    // After a restart at the mark, no earlier serial is accepted.
    let again = SerialTable::foreign(9, 1000, 64);
    again.extend(2000);
    assert_eq!(again.redeem(serial(500)), Redeemed::Forgotten);
    assert_eq!(again.redeem(serial(999)), Redeemed::Forgotten);
    assert_eq!(again.redeem(serial(1000)), Redeemed::Now);
}

#[test]
fn of_many_threads_one_uses_it() {
    for table in [own(256), SerialTable::foreign(7, 1, 256)] {
        table.extend(1 << 40);
        let table = Arc::new(table);
        let uses: Vec<Vec<u64>> = thread::scope(|scope| {
            let run = || {
                let mut used = Vec::new();
                for counter in 1..20_000u64 {
                    if !table.foreign && table.next() <= counter {
                        let _ = table.issue();
                    }
                    let serial = Serial::new(7, counter).unwrap();
                    table.activate(serial);
                    if table.redeem(serial) == Redeemed::Now {
                        used.push(counter);
                    }
                }
                used
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut all: Vec<u64> = uses.into_iter().flatten().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "used twice");
        assert!(count > 100);
    }
}

proptest! {
    /// Compares with two sets that forget nothing: a serial may be used only if it is active and not used.
    #[test]
    fn never_used_twice(steps in proptest::collection::vec((0u8..4, 0u64..150), 1..400)) {
        let table = own(64);
        let (mut active, mut used) = (BTreeSet::new(), BTreeSet::new());
        for (step, back) in steps {
            let counter = table.next().saturating_sub(back).max(1);
            let serial = Serial::new(7, counter).unwrap();
            match step {
                0 | 1 => { let _ = table.issue(); }
                2 => {
                    table.activate(serial);
                    if counter < table.next() { active.insert(counter); }
                }
                _ => {
                    let in_window = counter < table.next() && table.next() - counter <= 64;
                    let expected = in_window && active.contains(&counter) && !used.contains(&counter);
                    let now = table.redeem(serial) == Redeemed::Now;
                    // An activation outside the window has no effect, so the table may allow less than the
                    // model, but not more.
                    prop_assert!(!now || expected, "{counter}");
                    if in_window { used.insert(counter); }
                }
            }
        }
    }
}
