//! The fields of the built-in types: what protobuf, merging, `kubectl explain` and strict bodies go by.
//!
//! | module | does |
//! |---|---|
//! | `table` | holds the types and their fields |
//! | `misfit` | tells what in an object its type cannot have |
//! | `prune` | takes out of an object what its type does not know |

mod misfit;
mod prune;
mod table;

pub(crate) use misfit::{misfit, misfit_of_metadata};
pub(crate) use prune::prune;
pub(crate) use table::{Field, Holds, Kind, Struct, all, fields, of_kind, of_name};
