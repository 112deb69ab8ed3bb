//! Kubernetes protobuf, decoded according to the API server's Go types.
//!
//! Any type that can be deserialized from the JSON of a built-in kind can also be deserialized from its protobuf. Both
//! encodings use the same serde implementation and yield equal values. Messages are presented as the JSON that the API
//! server would have written. The message definitions are not sufficient for this purpose: they do not specify which
//! empty fields JSON omits, and which are null. `conformance/reference/messages` extracts this information from the Go
//! types and writes the table.

mod content;
mod deserialize;
mod embedded;
mod envelope;
mod error;
mod field_header;
mod identity_scanner;
mod json_view;
mod message;
mod message_type;
mod numbers;
pub(crate) mod scan;
mod seek;
mod special;
mod standalone;
mod table;
mod text;
mod trim;
pub(crate) mod wire;

pub(crate) use envelope::{MAGIC_PREFIX, types};
pub use error::{Error, Reason};
pub(crate) use field_header::{FieldHeader, FieldHeaderReader};
pub(crate) use identity_scanner::MessageIdentityScanner;
pub use message_type::MessageType;
pub(crate) use scan::{ListMetaFields, list_meta_fields};
pub(crate) use seek::{Found, decode_field};
pub use standalone::decode;
pub(crate) use standalone::decode_seed;
pub(crate) use trim::without;
pub(crate) use wire::Wire;
