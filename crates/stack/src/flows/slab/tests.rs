use super::*;

#[test]
fn a_stale_id_is_dead() {
    let mut slab = Slab::default();
    let ids: Vec<_> = (0..200).map(|n| slab.insert(n)).collect();
    assert!(slab.remove(ids[7].0) == Some(7) && slab.remove(ids[7].0).is_none());
    assert_eq!(slab.len(), 199);
    assert!(!slab.lives(ids[7].0, ids[7].1) && slab.get(ids[7].0).is_none());
    assert!(slab.get_live(ids[7].0, ids[7].1).is_none());
    let empty = slab.generation(ids[7].0);
    assert!(!slab.lives(ids[7].0, empty) && slab.get_live(ids[7].0, empty).is_none());
    let again = slab.insert(1000);
    assert_eq!(again.0, ids[7].0);
    assert!(slab.lives(again.0, again.1) && again.1 != ids[7].1);
    assert_eq!(slab.get_live(again.0, again.1), Some(&mut 1000));
    assert_eq!(slab.len(), 200);
    assert_eq!(slab.indices().count(), 200);
}

#[test]
fn a_place_keeps_its_value_for_the_next_and_its_id_dies() {
    let mut places = Places::default();
    let (index, value) = places.reserve(|| 1);
    *value = 2;
    let generation = places.generation(index);
    assert!(places.retire(index) && !places.retire(index));
    assert!(places.get(index).is_none() && places.get_live(index, generation).is_none());
    assert!(places.get_mut_with_generation(index).is_none());
    let (again, value) = places.reserve(|| 3);
    assert_eq!((again, *value), (index, 2));
    assert!(places.get_live(index, generation).is_none());
    assert_eq!(places.len(), 1);
}

#[test]
fn pairs_are_of_two_living_values() {
    let mut places = Places::default();
    for n in 0..100u32 {
        places.reserve(|| n);
    }
    for (a, b) in [(0, 1), (1, 0), (3, 70), (99, 64)] {
        assert_eq!(places.pair_mut(a, b).map(|(x, y)| (*x, *y)), Some((a, b)));
    }
    places.retire(5);
    for (a, b) in [(1, 1), (1, 5), (1, 1000), (1000, 1)] {
        assert!(places.pair_mut(a, b).is_none());
    }
}
