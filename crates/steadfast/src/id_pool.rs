//! Pool of small reusable numbers.

use std::collections::BTreeSet;

/// Pool of numbers from zero. It returns the smallest free number, in logarithmic time.
#[derive(Debug, Default)]
pub(crate) struct IdPool {
    /// Free numbers below `next`.
    free: BTreeSet<usize>,
    next: usize,
}

impl IdPool {
    /// Takes the smallest free number.
    pub(crate) fn take(&mut self) -> usize {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Returns a number to the pool.
    pub(crate) fn give_back(&mut self, number: usize) {
        self.free.insert(number);
        // Shrinks the set after a peak.
        while self.next > 0 && self.free.last() == Some(&(self.next - 1)) {
            self.free.pop_last();
            self.next -= 1;
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
        ordinals.give_back(1);
        ordinals.give_back(0);
        assert_eq!([ordinals.take(), ordinals.take(), ordinals.take()], [0, 1, 3]);
    }

    #[test]
    fn released_ids_leave_no_entries() {
        let mut ordinals = IdPool::default();
        let mut taken: Vec<usize> = (0..100).map(|_| ordinals.take()).collect();
        taken.rotate_left(37);
        for number in taken {
            ordinals.give_back(number);
        }
        assert!(ordinals.free.is_empty() && ordinals.next == 0, "{ordinals:?}");
    }
}
