//! Records decoded, as far as what is kept of their objects asks for it.
//!
//! A record's bytes become a [`RawObject`] by one scan, which finds who the object is; a type that is [`Kept`] says what
//! becomes of it then. One object that cannot be decoded concerns no other: its error names it, and never says what is
//! in it.

mod encoding;
mod envelope;
mod error;
mod identity;
mod kept;
mod lengths;
mod limits;
mod measured;
mod options;
mod packed;
mod problem;
mod raw;
mod record;
mod wanted;

pub use encoding::{Encoding, UnsupportedContentType};
pub use envelope::{continue_token, status};
pub(crate) use envelope::{list_meta, list_meta_of_message, status_of, status_of_message};
pub use error::DecodeError;
pub(crate) use error::place;
pub use identity::PartialIdentity;
pub(crate) use kept::json;
pub use kept::{Decoder, Kept, Unread};
pub use options::DecodeOptions;
pub(crate) use packed::Packed;
pub use problem::{RecordError, RecordProblem};
pub use raw::RawObject;
pub use record::{WatchRecord, list_item, overlong, overlong_record, watch_record};
pub use wanted::Wanted;
