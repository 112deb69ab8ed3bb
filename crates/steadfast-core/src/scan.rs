//! What can be learned of a JSON text in one pass, without decoding it.
//!
//! [`block`] marks strings and brackets; [`skim`] finds by them where a value ends, and [`cursor`] walks the members of an
//! object. [`spans`] finds where an object says what a cache has to know of it: who it is, in which version, and where its
//! `managedFields` lie; [`object`] is what it says there. [`gist`] finds who it is while a text passes that is too long to
//! be held. [`arrays`](arrays::arrays) counts elements before anyone reads them.

mod arrays;
mod block;
mod cursor;
mod gist;
mod object;
mod skim;
mod spans;

pub(crate) use arrays::{Array, arrays};
pub(crate) use cursor::Cursor;
pub(crate) use gist::Gist;
pub(crate) use object::{Metadata, ObjectScan, RecordScan};
pub(crate) use skim::{Fault, Skim};
pub(crate) use spans::{ObjectSpans, RecordSpans, has_annotation};
