use super::*;
use alloc::collections::VecDeque;
use proptest::prelude::*;

proptest! {
    #[test]
    fn it_is_a_queue(start in any::<usize>(), steps in proptest::collection::vec(0..5u8, 0..400)) {
        let mut queue = Queue { ring: Vec::new(), head: start, tail: start };
        let mut model = VecDeque::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                0 | 1 => {
                    queue.push_back(n);
                    model.push_back(n);
                }
                2 => {
                    queue.push_front(n);
                    model.push_front(n);
                }
                _ => prop_assert_eq!(queue.pop_front(), model.pop_front()),
            }
            prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
        }
        while let Some(value) = model.pop_front() {
            prop_assert_eq!(queue.pop_front(), Some(value));
        }
        prop_assert_eq!(queue.pop_front(), None);
    }
}
