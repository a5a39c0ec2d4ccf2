use super::*;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

fn v4(n: u32) -> IpAddr {
    Ipv4Addr::from_bits(n).into()
}

fn reserve(table: &ClientTable, client: IpAddr) -> Option<u32> {
    table.reserve(client, table.own()).map(|(entry, _)| entry)
}

/// Addresses that fill one bucket do so under one key only.
#[test]
fn nobody_can_choose_addresses_that_collide() {
    let table = ClientTable::new(64, 1);
    let buckets = (table.entries.len() / WAYS) as u64;
    let chosen: Vec<IpAddr> =
        (0..).map(v4).filter(|ip| table.hash(*ip).is_multiple_of(buckets)).take(WAYS + 1).collect();
    let all = |table: &ClientTable| chosen.iter().filter(|ip| reserve(table, **ip).is_some()).count();
    assert_eq!(all(&table), WAYS);
    let keyed = ClientTable::new(64, 1);
    keyed.key(7);
    assert_eq!(all(&keyed), WAYS + 1);
    // The first key stays: clients that hold permits are found again.
    keyed.key(8);
    assert!(reserve(&keyed, chosen[0]).is_none());
}

#[test]
fn one_prefix_is_one_client() {
    let table = ClientTable::new(100, 2);
    let v6 = |low: u64| IpAddr::from(Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | u128::from(low)));
    let first = reserve(&table, v6(1)).unwrap();
    assert_eq!(reserve(&table, v6(2)), Some(first));
    assert_eq!(reserve(&table, v6(u64::MAX)), None, "the whole /64 is one client");
    assert!(reserve(&table, v4(1)).is_some() && reserve(&table, v4(2)).is_some());
    table.release(first);
    assert_eq!(reserve(&table, v6(3)), Some(first));
}

#[test]
fn a_full_table_refuses_new_clients_and_forgets_none() {
    let table = ClientTable::new(WAYS, 2);
    let held: Vec<_> = (0..1000).filter_map(|n| reserve(&table, v4(n)).map(|entry| (n, entry))).collect();
    assert_eq!(held.len(), table.entries.len());
    for &(n, entry) in &held {
        assert_eq!(reserve(&table, v4(n)), Some(entry), "still known");
        assert_eq!(reserve(&table, v4(n)), None, "and at its limit");
    }
    for &(_, entry) in &held {
        table.release(entry);
        table.release(entry);
    }
    assert!((5000..5000 + WAYS as u32).any(|n| reserve(&table, v4(n)).is_some()));
}

#[test]
fn threads_never_pass_a_clients_limit_and_give_all_back() {
    let table = Arc::new(ClientTable::new(64, 3));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..20_000u32 {
                    let held: Vec<_> = (0..4).filter_map(|n| reserve(&table, v4(round % 5 + n))).collect();
                    held.into_iter().for_each(|entry| table.release(entry));
                }
            });
        }
    });
    assert!(table.entries.iter().all(|entry| entry.load(Ordering::Relaxed) & COUNT == 0));
    assert_eq!((0..9).filter_map(|_| reserve(&table, v4(1))).count(), 3);
}

proptest! {
    #[test]
    fn counts_like_a_map(steps in proptest::collection::vec((any::<bool>(), 0u32..12), 1..200)) {
        let table = ClientTable::new(64, 3);
        let mut model: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (take, client) in steps {
            let held = model.entry(client).or_default();
            if take {
                let entry = reserve(&table, v4(client));
                prop_assert_eq!(entry.is_some(), held.len() < 3);
                held.extend(entry);
            } else if let Some(entry) = held.pop() {
                table.release(entry);
            }
        }
    }
}
