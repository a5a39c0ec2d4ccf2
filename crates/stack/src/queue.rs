//! A first-in, first-out queue.

use alloc::vec::Vec;
use core::hint::cold_path;

/// A ring of small values whose length is a power of two, so that masking gives a place in it. Every packet passes
/// such a queue, and this takes half the instructions of the standard library's queue, which may have any length.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    ring: Vec<T>,
    /// Positions of the first value and of the next free place. They are not reduced to the ring's length.
    head: usize,
    tail: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { ring: Vec::new(), head: 0, tail: 0 }
    }
}

impl<T: Copy + Default> Queue<T> {
    /// Number of values.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    #[inline]
    fn place(&mut self, at: usize) -> Option<&mut T> {
        let mask = self.ring.len().wrapping_sub(1);
        self.ring.get_mut(at & mask)
    }

    /// Appends `value`.
    #[inline(always)]
    pub(crate) fn push_back(&mut self, value: T) {
        if self.len() == self.ring.len() {
            self.grow();
        }
        if let Some(place) = self.place(self.tail) {
            *place = value;
            self.tail = self.tail.wrapping_add(1);
        }
    }

    /// Puts `value` in front of all others.
    #[inline]
    pub(crate) fn push_front(&mut self, value: T) {
        if self.len() == self.ring.len() {
            self.grow();
        }
        let head = self.head.wrapping_sub(1);
        if let Some(place) = self.place(head) {
            *place = value;
            self.head = head;
        }
    }

    /// Takes the first value out.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        if self.is_empty() {
            cold_path();
            return None;
        }
        let value = *self.place(self.head)?;
        self.head = self.head.wrapping_add(1);
        Some(value)
    }

    /// Doubles the length, and moves the first value to the start.
    #[inline(never)]
    fn grow(&mut self) {
        let len = self.ring.len();
        self.ring.rotate_left(self.head % len.max(1));
        self.ring.resize((2 * len).max(8), T::default());
        (self.head, self.tail) = (0, len);
    }
}

#[cfg(test)]
mod tests;
