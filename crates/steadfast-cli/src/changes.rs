//! Changes between two states of an object: exact, without noise, and worded for its kind.
//!
//! This module has no I/O and no clock, and imports no other module of the program.
//!
//! | module | responsibility |
//! |---|---|
//! | `kind` | group and kind of an object |
//! | `path` | path of a field within an object |
//! | `merge_keys` | fields that identify the elements of a list |
//! | `diff` | exact structural difference |
//! | `noise` | changes without meaning for a reader |
//! | `secrets` | removes the values of Secrets |
//! | `manager` | field managers of a change |
//! | `text` | escapes and shortens text of the cluster |
//! | `value_text` | short text for a value |
//! | `columns` | printer columns of a custom resource |
//! | `phrases` | collects phrases and the changes that they describe |
//! | `describe` | description of a change, by kind |
//! | `state` | one-line state of an object, by kind |

pub(crate) mod columns;
pub(crate) mod describe;
pub(crate) mod diff;
pub(crate) mod kind;
pub(crate) mod manager;
mod merge_keys;
pub(crate) mod noise;
pub(crate) mod path;
pub(crate) mod phrases;
pub(crate) mod secrets;
pub(crate) mod state;
pub(crate) mod text;
pub(crate) mod value_text;

#[cfg(test)]
pub(crate) mod apply;
#[cfg(test)]
mod random;
#[cfg(test)]
pub(crate) mod transitions;
