//! Slots: what is kept is numbered, and found by plain numbers.
//!
//! Three structures that are cloned in O(1) and share with their clones whatever was not edited since; whoever edits one
//! copies the nodes on the way to what changes unless nobody else holds them. So a snapshot is a clone, a reader never
//! waits, and a batch of edits copies each node at most once.
//!
//! - [`Pages`] are the values by slot. They alone change when a value takes the place of another.
//! - [`Hashes`] find slots by hash.
//! - A [`Sequence`] is slots in some order.
//!
//! None of them knows what a key is: where keys are to be compared, whoever asks does it.

mod hashes;
mod pages;
mod sequence;

pub use hashes::Hashes;
pub use pages::Pages;
pub use sequence::Sequence;

/// The place of a value. It is used again when the value is gone.
pub type Slot = u32;
