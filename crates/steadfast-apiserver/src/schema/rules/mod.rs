//! Rules in CEL: `x-kubernetes-validations`.
//!
//! | module | content |
//! |---|---|
//! | `rule` | parsed and compiled rules of a schema |
//! | `violations` | violations of a definition's rules, and unsupported functions |
//! | `static_types` | types of values by their schema, for the type check of a definition |
//! | `typed` | conversion of an object to CEL values by its schema |
//! | `evaluate` | evaluation of rules over an object, within a budget |

mod evaluate;
mod rule;
mod static_types;
#[cfg(test)]
mod tests;
mod typed;
mod violations;

pub(crate) use evaluate::{Verdict, is_blocking, skipped_rules_cause};
pub(crate) use rule::Rule;
pub(crate) use violations::unsupported;
pub(super) use violations::violations;
