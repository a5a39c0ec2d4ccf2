//! What the experiment shows must also hold for single pages.

use super::nodes::Nodes;
use super::world::World;
use super::{Case, Distances, Measured, Way};
use std::time::Duration;

const PAGE: usize = 11_448;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Client and server are 100 ms apart, and the resolver is next to the client. The name server is `front` ms from the
/// resolver and `relay` ms from the server.
fn distances(front: u64, relay: u64) -> Distances {
    Distances { server: ms(100), resolver: ms(2), front: ms(front), relay: ms(relay) }
}

fn fetch(case: Case, distances: Distances, way: Way, label_by_label: u32) -> Measured {
    let page =
        World::new(case, distances, PAGE, label_by_label).fetch(way).unwrap_or_else(|| panic!("{way:?}"));
    assert_eq!(page.executed, 1, "{way:?} {case:?}");
    page
}

#[track_caller]
fn first_byte(case: Case, way: Way, expected: u64) -> Measured {
    let page = fetch(case, distances(100, 2), way, 0);
    let left = page.first_byte.abs_diff(ms(expected));
    assert!(left < ms(1), "{way:?} {case:?}: {:?}, not {expected} ms", page.first_byte);
    page
}

#[test]
fn a_lookup_and_two_round_trips_become_one() {
    first_byte(Case::Near, Way::Today, 302);
    first_byte(Case::Near, Way::FastOpen, 202);
    first_byte(Case::Near, Way::Asap, 202);
    // The way to the name server, to the server next to it, and back: half of the lookup and half of the remaining
    // time.
    assert!(first_byte(Case::Near, Way::Thesis, 102).by_lookup);
    assert!(first_byte(Case::Near, Way::Carriage, 102).by_lookup);
}

#[test]
fn with_the_address_cached_the_direct_copy_is_as_fast() {
    first_byte(Case::Cached, Way::Today, 202);
    assert!(!first_byte(Case::Cached, Way::Thesis, 102).by_lookup);
    let after = first_byte(Case::Cached, Way::Asap, 102);
    first_byte(Case::Cached, Way::Carriage, 102);
    // The copy inside the lookup is 2 ms earlier, but the server sends little to a client that has not sent it
    // anything. The direct copy brings the rest.
    let page = fetch(Case::Cached, distances(96, 2), Way::Carriage, 0);
    assert!(page.by_lookup && page.first_byte == after.first_byte - ms(2), "{:?}", page.first_byte);
    assert_eq!(page.total, after.total);
}

/// The direct copy is sent when the address is known, and its arrival lifts the server's limit.
#[test]
fn the_whole_page_is_never_later_than_with_asap_after_the_lookup() {
    let nodes = Nodes::new(1);
    for case in Case::ALL {
        for distances in nodes.pairs(case, 1).into_iter().step_by(7) {
            for size in [1, 3000, PAGE, 60_000] {
                let page = |way| World::new(case, distances, size, 0).fetch(way).unwrap();
                let (inside, after) = (page(Way::Carriage), page(Way::Asap));
                assert_eq!(inside.executed, 1, "{case:?} {distances:?}, {size} B");
                assert!(inside.first_byte <= after.first_byte, "{case:?} {distances:?}, {size} B");
                assert!(
                    inside.total <= after.total,
                    "{:?}, not {:?}: {case:?} {distances:?}, {size} B",
                    inside.total,
                    after.total
                );
            }
        }
    }
}

#[test]
fn a_name_server_far_away_costs_no_more_than_its_way() {
    let far = distances(160, 120);
    assert_eq!(fetch(Case::Far, far, Way::Today, 0).first_byte.as_millis(), 362);
    for way in [Way::Thesis, Way::Carriage] {
        // 1 + 80 + 60 + 50.
        assert_eq!(fetch(Case::Far, far, way, 0).first_byte.as_millis(), 191, "{way:?}");
    }
}

/// Resolvers that minimise names (RFC 9156) split the thesis' form into several questions. One label below the zone
/// stays whole.
#[test]
fn label_by_label_only_the_thesis_form_is_slow() {
    for rounds in [1, 4] {
        let carriage = fetch(Case::Near, distances(100, 2), Way::Carriage, rounds);
        assert_eq!(carriage.first_byte.as_millis(), 102);
        let thesis = fetch(Case::Near, distances(100, 2), Way::Thesis, rounds);
        // Its direct copy is as fast as ASAP after the lookup.
        assert_eq!(thesis.first_byte.as_millis(), 202);
    }
}
