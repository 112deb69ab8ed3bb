//! Objects in Kubernetes' protobuf: read from it, and written in it.
//!
//! What is known of the messages is the table in `types`, where merging and validation find what they know, too.
//!
//! | module | does |
//! |---|---|
//! | `wire` | reads and writes fields: numbers, and bytes with their length before them |
//! | `decode` | makes the JSON of an object from its message |
//! | `encode` | makes the message of an object from its JSON, its envelope, and the frames of a watch |

mod decode;
mod encode;
mod wire;

pub use decode::decode;
pub use encode::encode;
pub(crate) use encode::{enveloped, event, fields, lengthened, list_head, list_tail, put_item};

pub(crate) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The type of a watch's frames.
pub(crate) const WATCHED: &str = "application/vnd.kubernetes.protobuf;stream=watch";
