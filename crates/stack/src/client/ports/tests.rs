use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::format;

fn to(port: u16) -> FlowKey {
    FlowKey::of("192.0.2.1".parse().unwrap(), 0, "198.51.100.7".parse().unwrap(), port)
}

#[test]
fn candidates_cover_the_range_once() {
    let mut selector = PortSelector::new([1; 16], 40_000..=40_099);
    let mut tried = Vec::new();
    let none = selector.select(&to(443), 5, |port| {
        tried.push(port);
        true
    });
    assert_eq!(none, None);
    assert_eq!(tried.len(), 100);
    assert_eq!(tried.into_iter().collect::<BTreeSet<_>>(), (40_000..=40_099).collect());
}

#[test]
fn one_free_port_is_found_wherever_it_is() {
    for free in 40_000..=40_030 {
        let mut selector = PortSelector::new([2; 16], 40_000..=40_030);
        assert_eq!(selector.select(&to(80), free.into(), |p| p != free), Some(free));
    }
}

#[test]
fn ranges_at_the_edges() {
    for range in [0..=0, RangeInclusive::new(5, 4)] {
        let mut empty = PortSelector::new([1; 16], range);
        assert_eq!(empty.first_candidate(&to(80), 0), None);
    }
    let mut one = PortSelector::new([1; 16], 65_535..=65_535);
    for random in [0, 7, u32::MAX] {
        assert_eq!(one.first_candidate(&to(80), random), Some(65_535));
    }
    let mut all = PortSelector::new([1; 16], 0..=65_535);
    let mut seen = BTreeSet::new();
    all.select(&to(80), 0, |p| {
        seen.insert(p);
        true
    });
    assert_eq!((seen.len(), seen.first()), (65_535, Some(&1)));
}

#[test]
fn a_port_towards_one_destination_comes_again_only_after_a_round() {
    let mut selector = PortSelector::new([3; 16], 50_000..=50_999);
    let ports: BTreeSet<_> = (0..1000).map(|_| selector.first_candidate(&to(80), 0).unwrap()).collect();
    assert_eq!(ports.len(), 1000);
    let mut selector = PortSelector::new([3; 16], 50_000..=50_999);
    let few: BTreeSet<_> = (0..125).map(|_| selector.first_candidate(&to(80), 7).unwrap()).collect();
    assert_eq!(few.len(), 125, "eight at a time, a round has 125");
}

#[test]
fn each_destination_and_secret_has_its_own_sequence() {
    let mut selector = PortSelector::new([4; 16], DEFAULT_RANGE);
    let starts: BTreeSet<_> = (1..200).map(|n| selector.first_candidate(&to(n), 0).unwrap()).collect();
    assert!(starts.len() > 190, "{}", starts.len());
    let (mut a, mut b) =
        (PortSelector::new([5; 16], DEFAULT_RANGE), PortSelector::new([6; 16], DEFAULT_RANGE));
    let sequence = |s: &mut PortSelector| s.first_candidate(&to(80), 0);
    assert_ne!(sequence(&mut a), sequence(&mut b));
}

#[test]
fn a_full_range_costs_few_tries_on_average() {
    // 90 % of the ports stay in use by others; the counter walks over them once a round.
    let mut selector = PortSelector::new([7; 16], 40_000..=49_999);
    let (mut tries, mut chosen) = (0u32, BTreeSet::new());
    for _ in 0..1000 {
        let port = selector.select(&to(80), 0, |p| {
            tries += 1;
            p % 10 != 0
        });
        chosen.insert(port.unwrap());
    }
    assert!(tries <= 10_000, "{tries}");
    assert_eq!(chosen.len(), 1000, "each free port once a round");
}

#[test]
fn debug_keeps_the_secret() {
    let text = format!("{:?}", PortSelector::new([0xab; 16], DEFAULT_RANGE));
    assert_eq!(text, "PortSelector { first: 32768, count: 28232, .. }");
}

proptest! {
    #[test]
    fn chosen_ports_are_free_and_in_range(
        first in any::<u16>(),
        last in any::<u16>(),
        used in prop::collection::btree_set(any::<u16>(), 0..50),
        calls in prop::collection::vec((any::<u16>(), any::<u32>()), 1..20),
    ) {
        let mut selector = PortSelector::new([9; 16], first..=last);
        for (port, random) in calls {
            match selector.select(&to(port), random, |p| used.contains(&p)) {
                Some(p) => prop_assert!(p != 0 && (first..=last).contains(&p) && !used.contains(&p)),
                None => prop_assert!((first.max(1)..=last).all(|p| used.contains(&p))),
            }
        }
    }
}
