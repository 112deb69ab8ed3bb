//! Fields of the built-in types, for protobuf, merging, `kubectl explain` and strict decoding.
//!
//! | module | content |
//! |---|---|
//! | `table` | types and their fields |
//! | `misfit` | type check of objects |
//! | `prune` | removal of unknown fields |

mod misfit;
mod prune;
mod table;

pub(crate) use misfit::{misfit, misfit_of_metadata};
pub(crate) use prune::prune;
pub(crate) use table::{Field, Holds, Kind, Struct, all, fields, of_kind, of_name};
