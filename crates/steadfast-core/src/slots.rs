//! Slots: values are numbered, and the lookup structures contain only these numbers.
//!
//! All three structures have clones in O(1), which share all unmodified nodes. An edit copies the nodes on the path to
//! the change, unless no clone shares them. A snapshot is therefore a clone, a reader never waits, and a batch of edits
//! copies each node at most once.
//!
//! * A [`PagedVec`] contains the values by slot. The replacement of a value changes only this structure.
//! * [`Hashes`] find slots by hash.
//! * A [`Sequence`] contains slots in an order.
//!
//! None of the structures compares keys itself. The caller passes a function that compares keys where needed.

mod hashes;
mod paged_vec;
mod sequence;

pub use hashes::Hashes;
pub use paged_vec::PagedVec;
pub use sequence::Sequence;

/// Number of a value. A slot is reused after its value was removed.
pub type Slot = u32;
