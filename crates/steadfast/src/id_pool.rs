//! Pool of small reusable numbers.

use std::collections::BTreeSet;

/// Pool of numbers from zero. It returns the smallest free number, in logarithmic time.
#[derive(Debug, Default)]
pub(crate) struct IdPool {
    /// Free numbers below `next_id`.
    free_ids: BTreeSet<usize>,
    next_id: usize,
}

impl IdPool {
    /// Takes the smallest free number.
    pub(crate) fn take(&mut self) -> usize {
        self.free_ids.pop_first().unwrap_or_else(|| {
            self.next_id += 1;
            self.next_id - 1
        })
    }

    /// Returns a number to the pool.
    pub(crate) fn release_id(&mut self, id: usize) {
        self.free_ids.insert(id);
        // Shrinks the set after a peak.
        while self.next_id > 0 && self.free_ids.last() == Some(&(self.next_id - 1)) {
            self.free_ids.pop_last();
            self.next_id -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::IdPool;

    #[test]
    fn smallest_free_id_is_next() {
        let mut ordinals = IdPool::default();
        assert_eq!([ordinals.take(), ordinals.take(), ordinals.take()], [0, 1, 2]);
        ordinals.release_id(1);
        ordinals.release_id(0);
        assert_eq!([ordinals.take(), ordinals.take(), ordinals.take()], [0, 1, 3]);
    }

    #[test]
    fn released_ids_leave_no_entries() {
        let mut ordinals = IdPool::default();
        let mut taken: Vec<usize> = (0..100).map(|_| ordinals.take()).collect();
        taken.rotate_left(37);
        for id in taken {
            ordinals.release_id(id);
        }
        assert!(ordinals.free_ids.is_empty() && ordinals.next_id == 0, "{ordinals:?}");
    }
}
