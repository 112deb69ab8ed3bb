//! Items by label. Items with equal labels are distinguished by reusable ordinals.

use std::collections::BTreeMap;

use crate::id_pool::IdPool;

/// Register of items. Insertion and removal take logarithmic time.
pub(super) struct Register<L, T> {
    groups: BTreeMap<L, LabelGroup<T>>,
}

struct LabelGroup<T> {
    ordinals: IdPool,
    items: BTreeMap<usize, T>,
}

impl<L: Ord, T> Register<L, T> {
    /// Adds `item` and returns its ordinal: the smallest unused number among items with equal labels.
    pub(super) fn add(&mut self, labels: L, item: T) -> usize {
        let group = self
            .groups
            .entry(labels)
            .or_insert_with(|| LabelGroup { ordinals: IdPool::default(), items: BTreeMap::new() });
        let ordinal = group.ordinals.take();
        group.items.insert(ordinal, item);
        ordinal
    }

    /// Removes an item.
    pub(super) fn remove(&mut self, labels: &L, ordinal: usize) {
        let Some(group) = self.groups.get_mut(labels) else { return };
        if group.items.remove(&ordinal).is_some() {
            group.ordinals.release_id(ordinal);
        }
        if group.items.is_empty() {
            self.groups.remove(labels);
        }
    }

    /// Returns all items with their labels and ordinals.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&L, usize, &T)> {
        let each = |(labels, group)| {
            let LabelGroup { items, .. }: &LabelGroup<T> = group;
            items.iter().map(move |(ordinal, item)| (labels, *ordinal, item))
        };
        self.groups.iter().flat_map(each)
    }
}

// Implemented manually: a derive would require `L: Default` and `T: Default`.
impl<L, T> Default for Register<L, T> {
    fn default() -> Self {
        Self { groups: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use super::Register;

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// A label that counts its comparisons.
    #[derive(Debug)]
    struct Label(usize);

    impl Ord for Label {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Label {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl PartialEq for Label {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }

    impl Eq for Label {}

    #[test]
    fn equal_labels_get_reusable_ordinals() {
        let mut register = Register::default();
        assert_eq!([0, 1, 0].map(|label| register.add(Label(label), ())), [0, 0, 1]);
        register.remove(&Label(0), 0);
        register.remove(&Label(0), 0);
        assert_eq!(
            register.iter().map(|(label, ordinal, ())| (label.0, ordinal)).collect::<Vec<_>>(),
            [(0, 1), (1, 0)]
        );
        assert_eq!([0, 0].map(|label| register.add(Label(label), ())), [0, 2]);
    }

    /// Regression test. Each new informer was compared with all others, so creating 4,000 informers took quadratic
    /// time.
    #[test]
    fn registration_of_4000_informers_compares_few_labels() {
        const MANY: usize = 4_000;
        for labels in [1, MANY] {
            COMPARED.set(0);
            let mut register = Register::default();
            let added: Vec<_> = (0..MANY).map(|each| (each % labels, register.add(Label(each % labels), ()))).collect();
            for (label, ordinal) in added {
                register.remove(&Label(label), ordinal);
            }
            assert_eq!(register.iter().count(), 0);
            // A tree of 4,000 entries has a depth of at most 12 comparisons, and a node at most 11 keys.
            assert!(COMPARED.get() < MANY * 150, "{} comparisons", COMPARED.get());
        }
    }
}
