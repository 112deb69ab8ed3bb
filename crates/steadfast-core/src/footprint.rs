//! What things take in memory, as an allocator is asked for it.

/// The two counts that come before whatever is shared.
const COUNTS: usize = 2 * size_of::<usize>();

/// As many entries has a node of a `BTreeMap` at most.
const NODE: usize = 11;

/// How many a node keeps that was split because entries came in order.
const SPLIT: usize = 7;

/// What a node has beside its entries.
const NODE_HEAD: usize = 16;

/// For how many bytes of elements serde makes room because somebody tells it to.
const BELIEVED: usize = 1 << 20;

/// What is asked of the allocator to share (`Arc`) so many bytes.
pub(crate) const fn shared(bytes: usize) -> usize {
    COUNTS + bytes.next_multiple_of(size_of::<usize>())
}

/// What a `BTreeMap` allocates for so many entries of that size.
pub(crate) fn tree(entries: usize, size: usize) -> usize {
    let nodes = if entries <= NODE { usize::from(entries > 0) } else { entries.div_ceil(SPLIT) };
    nodes * (NODE * size + NODE_HEAD)
}

/// What a `Vec` allocates for so many elements of that size, if serde was told that there would be `told`: room for as many, and
/// for twice as many each time that is full.
pub(crate) fn sequence(elements: usize, size: usize, told: usize) -> usize {
    let least = match size {
        0 => return 0,
        1 => 8,
        2..=1024 => 4,
        _ => 1,
    };
    let mut capacity = told.min(BELIEVED / size);
    while capacity < elements {
        capacity = (2 * capacity).max(least);
    }
    capacity * size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_takes_what_a_vec_does_that_is_filled_after_it_was_told_of_so_many() {
        fn filled<T: Default>(elements: usize, told: usize) -> usize {
            let mut vec = Vec::with_capacity(told);
            vec.extend((0..elements).map(|_| T::default()).filter(|_| true));
            vec.capacity() * size_of::<T>()
        }
        for elements in [0, 1, 2, 3, 5, 8, 9, 100] {
            for told in [0, 1, 3, 9, 64] {
                assert_eq!(sequence(elements, 1, told), filled::<u8>(elements, told), "{elements} bytes after {told}");
                assert_eq!(sequence(elements, 24, told), filled::<String>(elements, told), "{elements} after {told}");
                let large = filled::<[[u64; 16]; 16]>(elements, told);
                assert_eq!(sequence(elements, 2048, told), large, "{elements} large ones after {told}");
            }
        }
        assert_eq!(sequence(0, 8, usize::MAX), BELIEVED);
    }
}
