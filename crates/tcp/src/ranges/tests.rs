use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #[test]
    fn agrees_with_a_set(
        base in any::<u32>(),
        ops in proptest::collection::vec((0u32..300, 0u32..40, 0u32..4), 1..80),
    ) {
        let at = |n: u32| SeqNum::new(base.wrapping_add(n));
        let mut set = RangeSet::default();
        let mut model = BTreeSet::new();
        for (start, len, op) in ops {
            if op == 0 {
                set.remove_below(at(start));
                model.retain(|&n| n >= start);
            } else {
                let added = set.insert(at(start), at(start + len));
                let before = model.len();
                model.extend(start..start + len);
                prop_assert_eq!(added as usize, model.len() - before);
            }
            for n in 0..345 {
                prop_assert_eq!(set.containing(at(n)).is_some(), model.contains(&n));
            }
            for w in set.as_slice().windows(2) {
                prop_assert!(w[0].1.lt(w[1].0));
            }
        }
    }
}

#[test]
fn a_full_list_takes_no_more_islands() {
    let mut set = RangeSet::default();
    for i in 0..2 * MAX_RANGES as u32 {
        set.insert(SeqNum::new(i * 10), SeqNum::new(i * 10 + 5));
    }
    assert_eq!(set.as_slice().len(), MAX_RANGES);
    assert_eq!(set.insert(SeqNum::new(5), SeqNum::new(10)), 5);
}
