//! Fields of the built-in types, for protobuf, merging, `kubectl explain` and strict decoding.
//!
//! | module | content |
//! |---|---|
//! | `table` | types and their fields |
//! | `misfit` | type check of objects |
//! | `ports` | range of ports |
//! | `prune` | removal of unknown fields |
//! | `status` | zero values of a status |

mod misfit;
mod ports;
mod prune;
mod status;
mod table;

pub(crate) use misfit::{misfit, misfit_of_metadata};
pub(crate) use ports::wrong_ports;
pub(crate) use prune::prune;
pub(crate) use status::complete_status;
pub(crate) use table::{Field, Holds, Kind, Struct, all, fields, of_kind, of_name};
