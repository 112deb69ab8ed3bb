//! Kubernetes protobuf, decoded by the definitions of the API server's Go types.
//!
//! Any type that can be deserialized from the JSON of a built-in kind can also be deserialized from its protobuf. The
//! serde implementation and the resulting value are equal. Messages are presented as the JSON that the API server would
//! have written. This requires more than the message definitions: which empty fields JSON omits, and which are null.
//! `conformance/reference/messages` extracts this information from the Go types and writes the table.

mod content;
mod deserialize;
mod embedded;
mod envelope;
mod error;
mod heads;
mod id;
mod identity_scanner;
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

pub(crate) use envelope::{MAGIC_PREFIX, types};
pub use error::{Error, Reason};
pub(crate) use heads::{Head, Heads};
pub use id::MessageId;
pub(crate) use identity_scanner::IdentityScanner;
pub(crate) use scan::{ListMarks, list_marks};
pub(crate) use seek::{Found, decode_field};
pub(crate) use trim::without;
pub use whole::decode;
pub(crate) use whole::decode_seed;
pub(crate) use wire::Wire;
