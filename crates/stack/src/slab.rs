//! A slab with generations: growing never moves an entry, a stale id never finds one.

use alloc::boxed::Box;
use alloc::vec::Vec;
use firstflight_wire::hint::expected;

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    /// It is in use; if not, its value is what is left of the last one.
    live: bool,
    value: Option<T>,
}

impl<T> Entry<T> {
    #[inline(always)]
    fn live(&self) -> Option<&T> {
        expected(self.value.as_ref().filter(|_| self.live))
    }

    #[inline(always)]
    fn live_mut(&mut self) -> Option<&mut T> {
        expected(self.value.as_mut().filter(|_| self.live))
    }
}

/// Entries addressed by index and generation.
#[derive(Debug)]
pub struct Slab<T> {
    /// Each on its own: found with one bound and one load.
    #[allow(clippy::vec_box, reason = "large ones do not move")]
    entries: Vec<Box<Entry<T>>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    /// How many entries are in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn entry(&self, index: u32) -> Option<&Entry<T>> {
        expected(self.entries.get(index as usize).map(|entry| &**entry))
    }

    #[inline]
    fn entry_mut(&mut self, index: u32) -> Option<&mut Entry<T>> {
        expected(self.entries.get_mut(index as usize).map(|entry| &mut **entry))
    }

    /// Puts `value` in; returns its index and generation.
    pub fn insert(&mut self, value: T) -> (u32, u32) {
        let index = self.reserve();
        if let Some(place) = self.place(index) {
            *place = Some(value);
        }
        (index, self.generation(index))
    }

    /// An index for a new entry, which goes into its [`Slab::place`].
    #[inline(always)]
    pub fn reserve(&mut self) -> u32 {
        self.len += 1;
        self.free.pop().unwrap_or_else(|| Self::grow(&mut self.entries))
    }

    #[cold]
    #[inline(never)]
    fn grow(entries: &mut Vec<Box<Entry<T>>>) -> u32 {
        let index = entries.len() as u32;
        entries.push(Box::new(Entry { generation: 0, live: false, value: None }));
        index
    }

    /// Where the entry at `index` lives, which is in use from now on, with what was left there. A large one that is
    /// made here, or anew of what was left, is not copied.
    #[inline(always)]
    pub fn place(&mut self, index: u32) -> Option<&mut Option<T>> {
        let entry = self.entry_mut(index)?;
        entry.live = true;
        Some(&mut entry.value)
    }

    /// The entry at `index`, whatever its generation.
    #[inline]
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.entry(index)?.live()
    }

    /// The entry at `index`, whatever its generation.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entry_mut(index)?.live_mut()
    }

    /// The entry at `index` and its generation.
    #[inline]
    #[must_use]
    pub fn get_with_generation(&self, index: u32) -> Option<(&T, u32)> {
        let entry = self.entry(index)?;
        Some((entry.live()?, entry.generation))
    }

    /// The entry at `index` and its generation.
    #[inline]
    #[must_use]
    pub fn get_mut_with_generation(&mut self, index: u32) -> Option<(&mut T, u32)> {
        let entry = self.entry_mut(index)?;
        let generation = entry.generation;
        Some((entry.live_mut()?, generation))
    }

    /// The entry at `index` if it has this generation.
    #[inline]
    #[must_use]
    pub fn get_live(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        self.entry_mut(index).filter(|e| e.generation == generation)?.live_mut()
    }

    /// The entries at two different indices.
    pub fn pair_mut(&mut self, a: u32, b: u32) -> Option<(&mut T, &mut T)> {
        let [first, second] = self.entries.get_disjoint_mut([a as usize, b as usize]).ok()?;
        Some((first.live_mut()?, second.live_mut()?))
    }

    /// Whether `generation` is the one that lives at `index`.
    #[inline]
    #[must_use]
    pub fn lives(&self, index: u32, generation: u32) -> bool {
        self.entry(index).is_some_and(|e| e.generation == generation && e.live)
    }

    /// The generation at `index`.
    #[must_use]
    pub fn generation(&self, index: u32) -> u32 {
        self.entry(index).map_or(0, |e| e.generation)
    }

    /// Ends the entry: its id is dead from now on. True if there was one. It stays where it is until another takes its
    /// place.
    #[inline(always)]
    pub fn retire(&mut self, index: u32) -> bool {
        let Some(entry) = self.entry_mut(index) else { return false };
        if !core::mem::take(&mut entry.live) {
            return false;
        }
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        self.len -= 1;
        true
    }

    /// Takes the entry out; its id is dead from now on.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        if !self.retire(index) {
            return None;
        }
        self.entry_mut(index)?.value.take()
    }

    /// Indices in use.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.entries.len() as u32).filter(|i| self.get(*i).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_id_is_dead() {
        let mut slab = Slab::default();
        let ids: Vec<_> = (0..200).map(|n| slab.insert(n)).collect();
        assert!(slab.retire(ids[7].0) && !slab.retire(ids[7].0));
        assert_eq!(slab.len(), 199);
        assert!(!slab.lives(ids[7].0, ids[7].1) && slab.get(ids[7].0).is_none());
        let again = slab.insert(1000);
        assert_eq!(again.0, ids[7].0);
        assert!(slab.lives(again.0, again.1) && again.1 != ids[7].1);
        assert_eq!(slab.len(), 200);
        assert_eq!(slab.indices().count(), 200);
    }

    #[test]
    fn pairs_are_of_two_living_entries() {
        let mut slab = Slab::default();
        for n in 0..100u32 {
            slab.insert(n);
        }
        for (a, b) in [(0, 1), (1, 0), (3, 70), (99, 64)] {
            assert_eq!(slab.pair_mut(a, b).map(|(x, y)| (*x, *y)), Some((a, b)));
        }
        slab.retire(5);
        for (a, b) in [(1, 1), (1, 5), (1, 1000), (1000, 1)] {
            assert!(slab.pair_mut(a, b).is_none());
        }
    }
}
