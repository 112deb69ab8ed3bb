//! Kubernetes' protobuf, read by what the API server's own Go types say of it.
//!
//! Whatever can be deserialized from the JSON of a built-in kind can be deserialized from its protobuf, by the same
//! implementation of serde, and to the same value: what a message says is presented as the JSON that the API server would
//! have written. That needs more than the messages' definitions say: which fields JSON leaves out where they are empty, and
//! which are null there. `conformance/reference/messages` finds that out, and writes the table.

mod content;
mod deserialize;
mod embedded;
mod envelope;
mod error;
mod gist;
mod heads;
mod id;
mod message;
mod numbers;
mod presented;
pub(crate) mod scan;
mod seek;
mod special;
mod table;
mod text;
mod trim;
mod whole;
pub(crate) mod wire;

pub(crate) use envelope::{MARK, types};
pub use error::{Error, Reason};
pub(crate) use gist::Gist;
pub(crate) use heads::{Head, Heads};
pub use id::MessageId;
pub(crate) use scan::{ListMarks, list_marks};
pub(crate) use seek::{Found, decode_field};
pub(crate) use trim::without;
pub use whole::decode;
pub(crate) use whole::decode_seed;
pub(crate) use wire::Wire;
