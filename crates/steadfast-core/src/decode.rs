//! Decoding of records, only as far as the cached form of their objects requires it.
//!
//! A single scan turns the bytes of a record into a [`RawObject`] and finds the identity of the object. The [`Kept`]
//! type determines the form in which the object is kept. An object that cannot be decoded does not affect other
//! objects. Its error contains the identity and never the content.

mod delta_compressed;
mod encoding;
mod envelope;
mod error;
mod identity;
mod kept;
mod lengths;
mod limits;
mod options;
mod problem;
mod raw;
mod record;
mod size_counting;
mod wanted;

pub(crate) use delta_compressed::DeltaCompressed;
pub use encoding::{Encoding, UnsupportedContentType};
pub use envelope::{continue_token, status};
pub(crate) use envelope::{list_meta, list_meta_of_message, status_of, status_of_message};
pub use error::DecodeError;
pub(crate) use error::place;
pub use identity::PartialIdentity;
pub(crate) use kept::json;
pub use kept::{Decoder, Kept, Unread};
pub use options::DecodeOptions;
pub use problem::{RecordError, RecordProblem};
pub use raw::RawObject;
pub use record::{WatchRecord, list_item, overlong, overlong_record, watch_record};
pub use wanted::Wanted;
