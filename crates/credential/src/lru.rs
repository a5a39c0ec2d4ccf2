//! A bounded map that forgets the least recently used entry.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use firstflight_wire::hint::likely;

/// No node.
const NONE: usize = usize::MAX;

/// Holds at most `capacity` values. A new value replaces the least recently used one.
///
/// Nodes are linked by index, most recent first. The index is an ordered map and not a hash table: it needs
/// no random seed against chosen keys, and runs are repeatable.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    index: BTreeMap<K, usize>,
    nodes: Vec<Node<K, V>>,
    head: usize,
    tail: usize,
    capacity: usize,
}

#[derive(Debug)]
struct Node<K, V> {
    key: K,
    value: V,
    /// The next more recently used node.
    newer: usize,
    /// The next less recently used node.
    older: usize,
}

impl<K: Ord + Clone, V> Lru<K, V> {
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) const fn new(capacity: usize) -> Self {
        Self { index: BTreeMap::new(), nodes: Vec::new(), head: NONE, tail: NONE, capacity }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.capacity);
    }

    /// The entries, in the order of the keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.index.values().filter_map(|&at| self.nodes.get(at)).map(|node| (&node.key, &node.value))
    }

    /// The entries, the least recently used first.
    pub(crate) fn iter_by_use(&self) -> impl Iterator<Item = (&K, &V)> {
        let oldest = self.nodes.get(self.tail);
        core::iter::successors(oldest, |node| self.nodes.get(node.newer)).map(|node| (&node.key, &node.value))
    }

    /// The index of `key`'s node.
    #[inline]
    fn find(&self, key: &K) -> Option<usize> {
        if self.was_last(key) { Some(self.head) } else { self.search(key) }
    }

    /// Whether `key` was used last, which is the common case: without this question, a short connection takes 2.2 % more
    /// instructions.
    #[inline]
    fn was_last(&self, key: &K) -> bool {
        likely(self.nodes.get(self.head).is_some_and(|node| node.key == *key))
    }

    fn search(&self, key: &K) -> Option<usize> {
        self.index.get(key).copied()
    }

    /// Returns the value, which does not count as a use.
    #[inline]
    pub(crate) fn peek(&self, key: &K) -> Option<&V> {
        self.find(key).and_then(|at| self.nodes.get(at)).map(|node| &node.value)
    }

    /// Returns the value to change it, which does not count as a use.
    #[inline]
    pub(crate) fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.find(key)?;
        self.nodes.get_mut(at).map(|node| &mut node.value)
    }

    /// Returns the value, and makes it the most recently used.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        let at = self.find(key)?;
        self.move_front(at);
        self.nodes.get(at).map(|node| &node.value)
    }

    /// Returns the value to change it, and makes it the most recently used.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if self.was_last(key) {
            return self.nodes.get_mut(self.head).map(|node| &mut node.value);
        }
        let at = self.search(key)?;
        self.move_front(at);
        self.nodes.get_mut(at).map(|node| &mut node.value)
    }

    /// The value of `key`, created by `value` if there is none, and makes it the most recently used. `None`
    /// only with a capacity of 0.
    #[inline]
    pub(crate) fn get_or_insert(&mut self, key: K, value: impl FnOnce() -> V) -> Option<&mut V> {
        if self.was_last(&key) {
            return self.nodes.get_mut(self.head).map(|node| &mut node.value);
        }
        let at = match self.search(&key) {
            Some(at) => {
                self.move_front(at);
                at
            }
            None => self.insert(key, value())?,
        };
        self.nodes.get_mut(at).map(|node| &mut node.value)
    }

    /// Inserts a new key at the front. If the map is full, it reuses the oldest node.
    fn insert(&mut self, key: K, value: V) -> Option<usize> {
        let node = Node { key: key.clone(), value, newer: NONE, older: NONE };
        let at = if self.nodes.len() < self.capacity {
            self.nodes.push(node);
            self.nodes.len() - 1
        } else {
            let at = self.tail;
            self.unlink(at);
            let oldest = self.nodes.get_mut(at)?;
            self.index.remove(&oldest.key);
            *oldest = node;
            at
        };
        self.index.insert(key, at);
        self.link_front(at);
        Some(at)
    }

    fn move_front(&mut self, at: usize) {
        if at == self.head {
            return;
        }
        self.unlink(at);
        self.link_front(at);
    }

    fn unlink(&mut self, at: usize) {
        let Some(node) = self.nodes.get(at) else {
            return;
        };
        let (newer, older) = (node.newer, node.older);
        match self.nodes.get_mut(newer) {
            Some(node) => node.older = older,
            None => self.head = older,
        }
        match self.nodes.get_mut(older) {
            Some(node) => node.newer = newer,
            None => self.tail = newer,
        }
    }

    fn link_front(&mut self, at: usize) {
        let second = self.head;
        if let Some(node) = self.nodes.get_mut(at) {
            (node.newer, node.older) = (NONE, second);
        }
        match self.nodes.get_mut(second) {
            Some(node) => node.newer = at,
            None => self.tail = at,
        }
        self.head = at;
    }
}

#[cfg(test)]
mod tests;
