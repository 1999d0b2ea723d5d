//! A sorted map in chunks.

use std::cmp::Ordering;
use std::sync::Arc;

/// The maximum number of entries in a chunk. A larger one is split.
const SIZE: usize = 128;

/// A sorted map. Clones share all chunks that neither side changes.
#[derive(Debug, Clone)]
pub struct Sorted<K, V> {
    /// No chunk is empty.
    chunks: Vec<Arc<Vec<(K, V)>>>,
    len: usize,
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Sorted { chunks: Vec::new(), len: 0 }
    }
}

impl<K, V> Sorted<K, V> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The entries from the first on whose key is not less than what the caller compares with.
    pub fn iter_from(&self, compare: impl Fn(&K) -> Ordering) -> impl Iterator<Item = &(K, V)> {
        let (chunk, at) = self.locate(compare);
        let (Ok(at) | Err(at)) = at;
        let first = self.chunks.get(chunk).map_or(&[][..], |chunk| &chunk[at..]);
        first.iter().chain(self.chunks.iter().skip(chunk + 1).flat_map(|chunk| chunk.iter()))
    }

    /// The chunk that a key belongs to, and its index or insertion point there. The caller compares keys, so that no
    /// key has to be built for a lookup.
    fn locate(&self, compare: impl Fn(&K) -> Ordering) -> (usize, Result<usize, usize>) {
        // Keys come in order when a cluster is read.
        if let Some((last, entries)) = self.chunks.iter().enumerate().next_back()
            && compare(&entries[entries.len() - 1].0).is_lt()
        {
            return (last, Err(entries.len()));
        }
        let after = self.chunks.partition_point(|chunk| compare(&chunk[0].0).is_le());
        match after.checked_sub(1) {
            None => (0, Err(0)),
            Some(i) => (i, self.chunks[i].binary_search_by(|(key, _)| compare(key))),
        }
    }

    fn entry(&self, compare: impl Fn(&K) -> Ordering) -> Option<&(K, V)> {
        let (chunk, at) = self.locate(compare);
        at.ok().map(|at| &self.chunks[chunk][at])
    }

    /// The value of the key that the caller compares with.
    pub fn find(&self, compare: impl Fn(&K) -> Ordering) -> Option<&V> {
        self.entry(compare).map(|(_, value)| value)
    }

    /// The key as it was inserted.
    pub fn key(&self, compare: impl Fn(&K) -> Ordering) -> Option<&K> {
        self.entry(compare).map(|(key, _)| key)
    }
}

impl<K, V> Sorted<K, V> {
    /// The key that the caller compares with, or one beside the place where it would be.
    pub fn nearest(&self, compare: impl Fn(&K) -> Ordering) -> Option<&K> {
        let (chunk, Ok(at) | Err(at)) = self.locate(compare);
        let chunk = self.chunks.get(chunk)?;
        Some(&chunk[at.min(chunk.len() - 1)].0)
    }
}

impl<K: Clone, V: Clone> Sorted<K, V> {
    /// The value of the key that the caller compares with, to change it.
    pub fn find_mut(&mut self, compare: impl Fn(&K) -> Ordering) -> Option<&mut V> {
        let (chunk, at) = self.locate(compare);
        let at = at.ok()?;
        Some(&mut Arc::make_mut(&mut self.chunks[chunk])[at].1)
    }
}

impl<K: Ord, V> Sorted<K, V> {
    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.find(|k| k.cmp(key))
    }
}

impl<K: Ord + Clone, V: Clone> Sorted<K, V> {
    /// Sets a value and returns the previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (chunk, at) = self.locate(|k| k.cmp(&key));
        let Some(entries) = self.chunks.get_mut(chunk) else {
            self.chunks.push(Arc::new(vec![(key, value)]));
            self.len += 1;
            return None;
        };
        let entries = Arc::make_mut(entries);
        let at = match at {
            Ok(at) => return Some(std::mem::replace(&mut entries[at].1, value)),
            Err(at) => at,
        };
        entries.insert(at, (key, value));
        self.len += 1;
        if entries.len() > SIZE {
            // Keys that are inserted in order, as when a cluster is read, leave full chunks.
            let from = if at + 1 == entries.len() { at } else { SIZE / 2 };
            let rest = entries.split_off(from);
            self.chunks.insert(chunk + 1, Arc::new(rest));
        }
        None
    }

    /// Removes the key that the caller compares with, and returns its value.
    pub fn remove(&mut self, compare: impl Fn(&K) -> Ordering) -> Option<V> {
        let (chunk, at) = self.locate(compare);
        let at = at.ok()?;
        let (_, value) = Arc::make_mut(&mut self.chunks[chunk]).remove(at);
        self.len -= 1;
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn same_as_btree_map() {
        let (mut ours, mut theirs) = (Sorted::default(), BTreeMap::new());
        let mut x = 1_u64;
        for round in 0..20_000_u64 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (x >> 33) % 3000;
            if x >> 62 == 0 {
                assert_eq!(ours.remove(|k: &u64| k.cmp(&key)), theirs.remove(&key), "round {round}");
            } else {
                assert_eq!(ours.insert(key, round), theirs.insert(key, round), "round {round}");
            }
            assert_eq!(ours.get(&(key / 2)), theirs.get(&(key / 2)), "round {round}");
        }
        assert_eq!(ours.len(), theirs.len());
        assert!(ours.iter().map(|(k, v)| (k, v)).eq(&theirs));
        for from in (0..3100).step_by(7) {
            let found = ours.iter_from(|k| k.cmp(&from)).map(|(k, v)| (k, v));
            assert!(found.eq(theirs.range(from..)), "from {from}");
        }
    }

    #[test]
    fn forks_are_independent() {
        let mut a = Sorted::default();
        for i in 0..1000 {
            a.insert(i, i);
        }
        let mut b = a.clone();
        b.insert(500, 7);
        b.remove(|k| k.cmp(&501));
        assert_eq!((a.get(&500), a.get(&501), a.len()), (Some(&500), Some(&501), 1000));
        assert_eq!((b.get(&500), b.get(&501), b.len()), (Some(&7), None, 999));
    }
}
