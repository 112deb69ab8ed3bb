//! Scans of JSON texts in one pass, without decoding.
//!
//! [`block`] marks strings and brackets. [`skim`] uses the marks to find the end of a value, and [`cursor`] walks over
//! the members of an object. [`spans`] locates the fields of an object that a cache needs: identity, version and
//! `managedFields`. [`object`] contains their values. [`gist`] finds the identity in a text that is too long to be
//! held. [`arrays`](arrays::arrays) counts elements before a text is decoded.

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
