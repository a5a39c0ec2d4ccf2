//! First in, first out.

use alloc::vec::Vec;
use core::hint::cold_path;

/// Small values in a ring whose length is a power of two, so that a place in it is found by masking: half the
/// instructions of the standard library's queue, which may have any length, on every packet's way.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    ring: Vec<T>,
    /// Where the first is, and where the next one goes: they run on beyond the ring.
    head: usize,
    tail: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { ring: Vec::new(), head: 0, tail: 0 }
    }
}

impl<T: Copy + Default> Queue<T> {
    /// How many there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    /// Whether there is none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    #[inline(always)]
    fn place(&mut self, at: usize) -> Option<&mut T> {
        let mask = self.ring.len().wrapping_sub(1);
        self.ring.get_mut(at & mask)
    }

    /// Appends `value`.
    #[inline(always)]
    pub fn push_back(&mut self, value: T) {
        if self.len() == self.ring.len() {
            self.grow();
        }
        if let Some(place) = self.place(self.tail) {
            *place = value;
            self.tail = self.tail.wrapping_add(1);
        }
    }

    /// Puts `value` in front of all others.
    #[inline(always)]
    pub fn push_front(&mut self, value: T) {
        if self.len() == self.ring.len() {
            self.grow();
        }
        let head = self.head.wrapping_sub(1);
        if let Some(place) = self.place(head) {
            *place = value;
            self.head = head;
        }
    }

    /// Takes the first out.
    #[inline(always)]
    pub fn pop_front(&mut self) -> Option<T> {
        if self.is_empty() {
            cold_path();
            return None;
        }
        let value = *self.place(self.head)?;
        self.head = self.head.wrapping_add(1);
        Some(value)
    }

    /// Twice as long, from the first on.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let len = self.ring.len();
        self.ring.rotate_left(self.head % len.max(1));
        self.ring.resize((2 * len).max(8), T::default());
        (self.head, self.tail) = (0, len);
    }
}

#[cfg(test)]
mod tests {
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
}
