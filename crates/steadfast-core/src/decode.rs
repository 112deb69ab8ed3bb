//! Decoding of records, only as far as the cached form of their objects requires it.
//!
//! A single scan turns the bytes of a record into a [`RawObject`] and finds the identity of the object. The
//! [`Cacheable`] type determines the form in which the object is kept. An object that cannot be decoded does not affect
//! other objects. Its error contains the identity and never the content.

mod cacheable;
mod delta_compressed;
mod encoding;
mod envelope;
mod error;
mod expected_kind;
mod identity;
mod lengths;
mod limits;
mod options;
mod problem;
mod raw;
mod record;
mod size_counting;

pub(crate) use cacheable::json;
pub use cacheable::{Cacheable, Decoder, OnUndecodable};
pub(crate) use delta_compressed::DeltaCompressed;
pub use encoding::{Encoding, UnsupportedContentType};
pub use envelope::{continue_token, status};
pub(crate) use envelope::{list_meta, list_meta_of_message, status_of, status_of_message};
pub use error::DecodeError;
pub(crate) use error::error_offset;
pub use expected_kind::ExpectedKind;
pub use identity::PartialIdentity;
pub use options::DecodeOptions;
pub use problem::{RecordError, RecordProblem};
pub use raw::RawObject;
pub use record::{WatchRecord, list_item, overlong, overlong_record, watch_record};
