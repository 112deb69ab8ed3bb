//! Rules in CEL: `x-kubernetes-validations`.
//!
//! | module | content |
//! |---|---|
//! | `rule` | rules of a schema, read and compiled |
//! | `complaints` | what is wrong with the rules of a definition, and functions that are not supported |
//! | `kinds` | types of values by their schema, for the type check of a definition |
//! | `typed` | values of an object as CEL sees them by their schema |
//! | `evaluate` | rules over an object, within a budget |

mod complaints;
mod evaluate;
mod kinds;
mod rule;
#[cfg(test)]
mod tests;
mod typed;

pub(super) use complaints::complaints;
pub(crate) use complaints::unsupported;
pub(crate) use evaluate::{Verdict, is_blocking, unchecked};
pub(crate) use rule::Rule;
