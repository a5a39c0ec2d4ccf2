use super::*;
use proptest::prelude::*;

#[test]
fn capacity_zero_keeps_nothing() {
    let mut lru = Lru::new(0);
    assert!(lru.get_or_insert(1, || 1).is_none());
    assert_eq!((lru.len(), lru.get(&1)), (0, None));
}

proptest! {
    /// Compares with a list that is searched from front to back.
    #[test]
    fn behaves_like_the_obvious_list(
        capacity in 0usize..6,
        steps in proptest::collection::vec((0u8..16, 0u8..9), 1..200),
    ) {
        let mut lru = Lru::new(capacity);
        let mut model: Vec<(u8, usize)> = Vec::new();
        for (time, (step, key)) in steps.into_iter().enumerate() {
            let found = model.iter().position(|entry| entry.0 == key);
            match step {
                0 => { lru.clear(); model.clear(); }
                1..6 => {
                    let moved = found.map(|at| model.remove(at));
                    prop_assert_eq!(lru.get(&key).copied(), moved.map(|entry| entry.1));
                    if let Some(entry) = moved { model.insert(0, entry); }
                }
                6..10 => {
                    let value = found.map(|at| model[at].1);
                    prop_assert_eq!(lru.peek(&key).copied(), value);
                    prop_assert_eq!(lru.peek_mut(&key).copied(), value);
                }
                _ => {
                    let entry = found.map_or((key, time), |at| model.remove(at));
                    model.insert(0, entry);
                    model.truncate(capacity);
                    let got = lru.get_or_insert(key, || time).copied();
                    prop_assert_eq!(got, (capacity > 0).then_some(entry.1));
                }
            }
            let mut sorted = model.clone();
            sorted.sort_unstable();
            prop_assert_eq!(lru.iter().map(|(&key, &value)| (key, value)).collect::<Vec<_>>(), sorted);
            prop_assert_eq!(lru.len(), model.len());
            let by_use: Vec<_> = lru.iter_by_use().map(|(&key, &value)| (key, value)).collect();
            prop_assert!(by_use.iter().rev().eq(&model));
        }
    }
}
