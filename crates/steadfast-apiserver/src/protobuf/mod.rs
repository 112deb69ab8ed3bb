//! Kubernetes' protobuf encoding of objects.
//!
//! The messages are defined by the table in `types`, which merging and validation use too.
//!
//! | module | content |
//! |---|---|
//! | `wire` | wire format: integers, and bytes after their length |
//! | `decode` | decoder from messages to JSON |
//! | `encode` | encoder from JSON to messages, their envelope, and the frames of a watch |

mod decode;
mod encode;
mod wire;

pub use decode::decode;
pub use encode::encode;
pub(crate) use encode::{enveloped, event, fields, list_head, list_tail, put_item, with_unknown_field};

pub(crate) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Content type of a watch's frames.
pub(crate) const WATCH_CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";
