//! A vector in chunks.

use std::sync::Arc;

/// Small enough for a cheap first change after a fork, large enough for few pointers to copy in a fork.
const SIZE: usize = 64;

/// A vector that grows at its end. Clones share all chunks that neither side changes.
#[derive(Debug, Clone)]
pub struct Chunks<T> {
    chunks: Vec<Arc<Vec<T>>>,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Chunks { chunks: Vec::new() }
    }
}

impl<T: Clone> Chunks<T> {
    /// The number of values.
    pub fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * SIZE + last.len())
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Appends a value.
    pub fn push(&mut self, value: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < SIZE => Arc::make_mut(last).push(value),
            _ => self.chunks.push(Arc::new(vec![value])),
        }
    }

    /// The value at an index, to change it.
    pub fn get_mut(&mut self, i: usize) -> &mut T {
        &mut Arc::make_mut(&mut self.chunks[i / SIZE])[i % SIZE]
    }
}

impl<T> std::ops::Index<usize> for Chunks<T> {
    type Output = T;

    fn index(&self, i: usize) -> &T {
        &self.chunks[i / SIZE][i % SIZE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_are_independent() {
        let mut a = Chunks::default();
        for i in 0..200 {
            a.push(i);
        }
        let mut b = a.clone();
        *b.get_mut(130) = 7;
        b.push(8);
        assert_eq!((a.len(), b.len()), (200, 201));
        assert_eq!((a[130], b[130], b[200]), (130, 7, 8));
        assert_eq!(a.iter().copied().collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
    }
}
