//! What things take in memory, as an allocator is asked for it.

/// The two counts that come before whatever is shared.
const COUNTS: usize = 2 * size_of::<usize>();

/// As many entries has a node of a `BTreeMap` at most.
const NODE: usize = 11;

/// How many a node keeps that was split because entries came in order.
const SPLIT: usize = 7;

/// What a node has beside its entries.
const NODE_HEAD: usize = 16;

/// What is asked of the allocator to share (`Arc`) so many bytes.
pub(crate) const fn shared(bytes: usize) -> usize {
    COUNTS + bytes.next_multiple_of(size_of::<usize>())
}

/// What a `BTreeMap` allocates for so many entries of that size.
pub(crate) fn tree(entries: usize, size: usize) -> usize {
    let nodes = if entries <= NODE { usize::from(entries > 0) } else { entries.div_ceil(SPLIT) };
    nodes * (NODE * size + NODE_HEAD)
}
