//! Fields of the built-in types, for protobuf, merging, `kubectl explain` and strict decoding.
//!
//! | module | content |
//! |---|---|
//! | `table` | types and their fields |
//! | `type_mismatch` | type check of objects |
//! | `ports` | range of ports |
//! | `prune` | removal of unknown fields |
//! | `status` | zero values of a status |

mod ports;
mod prune;
mod status;
mod table;
mod type_mismatch;

pub(crate) use ports::port_violations;
pub(crate) use prune::prune;
pub(crate) use status::complete_status;
#[cfg(feature = "world")]
pub(crate) use status::null_omitted_counts;
pub(crate) use table::{Field, FieldShape, StructType, ValueType, all, fields, type_for_kind, type_named};
pub(crate) use type_mismatch::{metadata_type_mismatch, type_mismatch};
