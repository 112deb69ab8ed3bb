//! `JSONPath` in the dialect of client-go, in which the printer columns of a definition are written.
//!
//! The dialect is older than RFC 9535 and differs from the RFC in slices, filters, escapes and errors. A path may
//! consist of several actions: `.items}{.name` is valid, and so is a `range` with its `end`.
//!
//! | module | content |
//! |---|---|
//! | `node` | parsed paths |
//! | `parse` | text to nodes, with the position of an error |
//! | `unquote` | quoted strings with Go's escapes |
//! | `value` | values that a path finds |
//! | `evaluate` | nodes over a JSON value, within a budget |
//! | `compare` | operators of filters |

mod compare;
mod evaluate;
mod node;
mod parse;
#[cfg(test)]
mod tests;
mod unquote;
mod value;

use serde_json::Value;

use evaluate::{Evaluation, EvaluationError};
use node::Node;

pub(crate) use parse::ParseError;
pub(crate) use value::JsonPathValue;

/// Parsed path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath {
    nodes: Vec<Node>,
}

impl JsonPath {
    /// Parses the path of a printer column, which has no braces.
    pub(crate) fn parse(path: &str) -> Result<Self, ParseError> {
        parse::action_list(path).map(|nodes| Self { nodes })
    }

    /// Returns the results of each action, in order. A missing field has no result.
    pub(crate) fn find<'a>(&'a self, object: &'a Value) -> Result<Vec<Vec<JsonPathValue<'a>>>, String> {
        Evaluation::new(&self.nodes).find(object).map_err(|EvaluationError { why, .. }| why)
    }

    /// Returns the first result of the first action, as in a printer column; `None` if the evaluation fails.
    pub(crate) fn first<'a>(&'a self, object: &'a Value) -> Option<JsonPathValue<'a>> {
        self.find(object).ok()?.first()?.first().copied()
    }
}
