//! Scans of JSON texts in one pass, without decoding.
//!
//! [`block`] marks strings and brackets. [`value_skipper`] uses the marks to find the end of a value, and [`cursor`]
//! walks over the members of an object. [`spans`] locates the fields of an object that a cache needs: identity, version
//! and `managedFields`. [`object`] contains their values. [`identity_scanner`] finds the identity in a text that is too
//! long to be buffered. [`arrays`](arrays::arrays) counts elements before a text is decoded.

mod arrays;
mod block;
mod cursor;
mod identity_scanner;
mod object;
mod spans;
mod value_skipper;

pub(crate) use arrays::{Array, arrays};
pub(crate) use cursor::Cursor;
pub(crate) use identity_scanner::JsonIdentityScanner;
pub(crate) use object::{Metadata, ObjectScan, RecordScan};
pub(crate) use spans::{ObjectSpans, RecordSpans, has_annotation};
pub(crate) use value_skipper::{ScanError, ValueSkipper};
