//! Slabs with generations. Growing never moves an entry, and a stale id never finds one.

use alloc::boxed::Box;
use alloc::vec::Vec;
use firstflight_wire::hint::expected;

#[derive(Debug)]
struct Entry<T> {
    /// Odd while the entry is in use: one number shows whether it is in use, and by whom.
    generation: u32,
    /// If it is not in use, what the last use left.
    value: T,
}

const fn is_live(generation: u32) -> bool {
    generation & 1 != 0
}

impl<T> Entry<T> {
    #[inline]
    fn live(&self) -> Option<&T> {
        expected(is_live(self.generation).then_some(&self.value))
    }

    #[inline]
    fn live_mut(&mut self) -> Option<&mut T> {
        expected(is_live(self.generation).then_some(&mut self.value))
    }

    #[inline]
    fn live_mut_as(&mut self, generation: u32) -> Option<&mut T> {
        (self.generation == generation && is_live(generation)).then_some(&mut self.value)
    }
}

/// Places for large values, addressed by index and generation. A retired value stays where it is and is reused.
#[derive(Debug)]
pub(crate) struct Places<T> {
    /// Each entry has its own box: one bounds check and one load find it.
    #[allow(clippy::vec_box, reason = "large ones do not move")]
    entries: Vec<Box<Entry<T>>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Places<T> {
    /// Number of places in use.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
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

    /// Takes a free place into use. Returns its index and its value, which is what the last use left, or `vacant`.
    #[inline]
    pub(crate) fn reserve(&mut self, vacant: impl FnOnce() -> T) -> (u32, &mut T) {
        let index = self.free.pop().unwrap_or_else(|| Self::grow(&mut self.entries, vacant));
        self.len += 1;
        // A free index was in use before, and entries are never removed.
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        (index, &mut entry.value)
    }

    #[inline(never)]
    fn grow(entries: &mut Vec<Box<Entry<T>>>, vacant: impl FnOnce() -> T) -> u32 {
        let index = entries.len() as u32;
        entries.push(Box::new(Entry { generation: 0, value: vacant() }));
        index
    }

    /// The value at `index`, whatever its generation.
    #[inline]
    #[must_use]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.entry(index)?.live()
    }

    /// The value at `index`, whatever its generation.
    #[inline]
    #[must_use]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entry_mut(index)?.live_mut()
    }

    /// The value at `index` and its generation.
    #[inline]
    #[must_use]
    pub(crate) fn get_with_generation(&self, index: u32) -> Option<(&T, u32)> {
        let entry = self.entry(index)?;
        Some((entry.live()?, entry.generation))
    }

    /// The value at `index` and its generation.
    #[inline]
    #[must_use]
    pub(crate) fn get_mut_with_generation(&mut self, index: u32) -> Option<(&mut T, u32)> {
        let entry = self.entry_mut(index)?;
        let generation = entry.generation;
        Some((entry.live_mut()?, generation))
    }

    /// The value at `index` if it has this generation.
    #[inline]
    #[must_use]
    pub(crate) fn get_live(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        expected(self.entry_mut(index)?.live_mut_as(generation))
    }

    /// The values at two different indices.
    pub(crate) fn pair_mut(&mut self, a: u32, b: u32) -> Option<(&mut T, &mut T)> {
        let [first, second] = self.entries.get_disjoint_mut([a as usize, b as usize]).ok()?;
        Some((first.live_mut()?, second.live_mut()?))
    }

    /// Whether `index` is in use by this `generation`.
    #[inline]
    #[must_use]
    pub(crate) fn lives(&self, index: u32, generation: u32) -> bool {
        self.entry(index).is_some_and(|e| e.generation == generation && is_live(generation))
    }

    #[must_use]
    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.entry(index).map_or(0, |e| e.generation)
    }

    /// Ends the use of `index`: its id is stale from now on. False if it was not in use. Its value stays until the
    /// next use.
    #[inline]
    pub(crate) fn retire(&mut self, index: u32) -> bool {
        let Some(entry) = self.entry_mut(index).filter(|e| is_live(e.generation)) else { return false };
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        self.len -= 1;
        true
    }

    /// Indices in use.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.entries.len() as u32).filter(|i| self.get(*i).is_some())
    }
}

/// Like [`Places`], for values that are put in and taken out.
#[derive(Debug)]
pub(crate) struct Slab<T>(Places<Option<T>>);

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self(Places::default())
    }
}

impl<T> Slab<T> {
    /// Number of values.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Puts `value` in; returns its index and generation.
    pub(crate) fn insert(&mut self, value: T) -> (u32, u32) {
        let (index, place) = self.0.reserve(|| None);
        *place = Some(value);
        (index, self.0.generation(index))
    }

    /// The value at `index`, whatever its generation.
    #[inline]
    #[must_use]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.0.get(index)?.as_ref()
    }

    /// The value at `index`, whatever its generation.
    #[inline]
    #[must_use]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.0.get_mut(index)?.as_mut()
    }

    /// The value at `index` if it has this generation.
    #[inline]
    #[must_use]
    pub(crate) fn get_live(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        self.0.get_live(index, generation)?.as_mut()
    }

    /// Whether `index` is in use by this `generation`.
    #[inline]
    #[must_use]
    pub(crate) fn lives(&self, index: u32, generation: u32) -> bool {
        self.0.lives(index, generation)
    }

    #[must_use]
    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.0.generation(index)
    }

    /// Takes the value out. Its id is stale from now on.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.0.get_mut(index)?.take();
        self.0.retire(index);
        value
    }

    /// Indices in use.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.indices()
    }
}

#[cfg(test)]
mod tests;
