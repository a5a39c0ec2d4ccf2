use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    /// Compares with a set of all marked numbers.
    #[test]
    fn it_is_a_set_with_an_end(steps in proptest::collection::vec(
        prop_oneof![8 => 0_u64..40, 2 => 0_u64..1200, 1 => 0_u64..100_000], 1..400),
        back in proptest::collection::vec(0_u64..1100, 400))
    {
        let (mut window, mut seen, mut next) = (Window::new(), BTreeSet::new(), 0_u64);
        for (step, back) in steps.into_iter().zip(back) {
            let number = (next + step).saturating_sub(back);
            let expected = match () {
                () if seen.contains(&number) && next - number <= WIDTH => NumberState::Yes,
                () if next > number + WIDTH => NumberState::Behind,
                () => NumberState::No,
            };
            prop_assert_eq!(window.look(number), expected);
            prop_assert_eq!(window.is_above(number), number >= next);
            if expected == NumberState::No {
                window.mark(number);
                seen.insert(number);
                next = next.max(number + 1);
                prop_assert_eq!(window.look(number), NumberState::Yes);
            }
        }
    }
}
