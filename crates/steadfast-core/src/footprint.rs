//! Memory of collections in bytes, as requested from the allocator.

/// Memory of the two reference counters of an `Arc`.
const ARC_HEADER_BYTES: usize = 2 * size_of::<usize>();

/// Maximum number of entries in a node of a `BTreeMap`.
const NODE_CAPACITY: usize = 11;

/// Number of entries that remain in a node after a split, if the entries are inserted in ascending order.
const ENTRIES_AFTER_SPLIT: usize = 7;

/// Memory that a node uses in addition to its entries.
const NODE_HEADER_BYTES: usize = 16;

/// Maximum memory that serde allocates in advance for a reported number of elements.
const MAX_PREALLOCATED_BYTES: usize = 1 << 20;

/// Returns the memory of an `Arc` around a value of `bytes` bytes.
pub(crate) const fn shared(bytes: usize) -> usize {
    ARC_HEADER_BYTES + bytes.next_multiple_of(size_of::<usize>())
}

/// Returns the memory that a `BTreeMap` allocates for `entries` entries of `size` bytes.
pub(crate) fn tree(entries: usize, size: usize) -> usize {
    let nodes = if entries <= NODE_CAPACITY { usize::from(entries > 0) } else { entries.div_ceil(ENTRIES_AFTER_SPLIT) };
    nodes * (NODE_CAPACITY * size + NODE_HEADER_BYTES)
}

/// Returns the memory that a `Vec` allocates for `elements` elements of `size` bytes, if `reported` elements were
/// announced to serde in advance. The capacity starts at the reported number and doubles when it is exhausted.
pub(crate) fn sequence(elements: usize, size: usize, reported: usize) -> usize {
    let min_capacity = match size {
        0 => return 0,
        1 => 8,
        2..=1024 => 4,
        _ => 1,
    };
    // serde trusts a size hint only up to a limit.
    let mut capacity = reported.min(MAX_PREALLOCATED_BYTES / size);
    while capacity < elements {
        capacity = (2 * capacity).max(min_capacity);
    }
    capacity * size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_footprint_matches_vec() {
        fn filled<T: Default>(elements: usize, reported: usize) -> usize {
            let mut vec = Vec::with_capacity(reported);
            vec.extend((0..elements).map(|_| T::default()).filter(|_| true));
            vec.capacity() * size_of::<T>()
        }
        for elements in [0, 1, 2, 3, 5, 8, 9, 100] {
            for reported in [0, 1, 3, 9, 64] {
                assert_eq!(
                    sequence(elements, 1, reported),
                    filled::<u8>(elements, reported),
                    "{elements} bytes after {reported}"
                );
                assert_eq!(
                    sequence(elements, 24, reported),
                    filled::<String>(elements, reported),
                    "{elements} after {reported}"
                );
                let large = filled::<[[u64; 16]; 16]>(elements, reported);
                assert_eq!(sequence(elements, 2048, reported), large, "{elements} large ones after {reported}");
            }
        }
        assert_eq!(sequence(0, 8, usize::MAX), MAX_PREALLOCATED_BYTES);
    }
}
