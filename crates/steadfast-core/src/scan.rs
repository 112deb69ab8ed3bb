//! What can be learned of a JSON text in one pass, without decoding it.
//!
//! [`skim`] finds where a value ends; [`cursor`] walks the members of an object; [`object`] finds what a cache has to
//! know of an object: who it is, in which version, and where its `managedFields` lie. [`gist`] finds who it is while a text
//! passes that is too long to be held.

mod block;
mod cursor;
mod gist;
pub(crate) mod object;
pub(crate) mod skim;

pub(crate) use gist::Gist;
pub(crate) use object::{Metadata, ObjectScan, RecordScan};
pub(crate) use skim::{Fault, Skim};
