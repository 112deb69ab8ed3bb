//! What things take in memory, as an allocator is asked for it.

/// The two counts that come before whatever is shared.
const COUNTS: usize = 2 * size_of::<usize>();

/// What is asked of the allocator to share (`Arc`) so many bytes.
pub(crate) const fn shared(bytes: usize) -> usize {
    COUNTS + bytes.next_multiple_of(size_of::<usize>())
}
