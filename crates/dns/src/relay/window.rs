//! The sequence numbers that were seen (like the anti-replay window of RFC 4303 §3.4.3).

/// Numbers that are remembered.
pub(super) const WIDTH: u64 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberState {
    No,
    Yes,
    /// It is too far behind to know.
    Behind,
}

/// A bit for each of the last [`WIDTH`] numbers up to the highest one, in a ring.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// One more than the highest number.
    next: u64,
    bits: [u64; (WIDTH / 64) as usize],
}

impl Window {
    pub(super) const fn new() -> Self {
        Self { next: 0, bits: [0; (WIDTH / 64) as usize] }
    }

    const fn place(number: u64) -> (usize, u64) {
        ((number % WIDTH / 64) as usize, 1 << (number % 64))
    }

    pub(super) fn look(&self, number: u64) -> NumberState {
        let (word, bit) = Self::place(number);
        if number >= self.next {
            NumberState::No
        } else if self.next - number > WIDTH {
            NumberState::Behind
        } else if self.bits.get(word).is_some_and(|word| word & bit != 0) {
            NumberState::Yes
        } else {
            NumberState::No
        }
    }

    /// Whether it is above all numbers that were seen.
    pub(super) const fn is_above(&self, number: u64) -> bool {
        number >= self.next
    }

    /// Marks a new number as seen.
    pub(super) fn mark(&mut self, number: u64) {
        if number >= self.next {
            if number - self.next >= WIDTH {
                self.bits.fill(0);
            } else {
                (self.next..number).for_each(|skipped| self.set(skipped, false));
            }
            self.next = number.saturating_add(1);
        }
        self.set(number, true);
    }

    fn set(&mut self, number: u64, seen: bool) {
        let (word, bit) = Self::place(number);
        if let Some(word) = self.bits.get_mut(word) {
            *word = if seen { *word | bit } else { *word & !bit };
        }
    }
}

#[cfg(test)]
mod tests;
