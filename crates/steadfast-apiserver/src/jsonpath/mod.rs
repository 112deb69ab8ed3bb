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
//! | `evaluate` | nodes over a JSON value, within a budget |
//! | `compare` | operators of filters |

mod compare;
mod evaluate;
mod node;
mod parse;
#[cfg(test)]
mod tests;
mod unquote;

use serde_json::Value;

use crate::schema::go;
use evaluate::{Evaluation, Failed};
use node::Node;

pub(crate) use parse::ParseError;

/// Parsed path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JsonPath {
    nodes: Vec<Node>,
}

/// Value that a path finds: part of the object, or computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Found<'a> {
    Json(&'a Value),
    /// Number in the path itself.
    Int(i64),
    /// Number in the path itself.
    Float(f64),
    /// `true` or `false` in the path itself.
    Bool(bool),
    /// Text in the path itself.
    Text(&'a str),
    /// Byte of a string: a wildcard iterates over the bytes of a string.
    Byte(u8),
}

impl JsonPath {
    /// Parses the path of a printer column, which has no braces.
    pub(crate) fn parse(path: &str) -> Result<Self, ParseError> {
        parse::action_list(path).map(|nodes| Self { nodes })
    }

    /// Results of each action, in order. A missing field has no result.
    pub(crate) fn find<'a>(&'a self, object: &'a Value) -> Result<Vec<Vec<Found<'a>>>, String> {
        Evaluation::new(&self.nodes).find(object).map_err(|Failed { why, .. }| why)
    }

    /// First result of the first action; none if evaluation fails, as a printer column shows it.
    pub(crate) fn first<'a>(&'a self, object: &'a Value) -> Option<Found<'a>> {
        self.find(object).ok()?.first()?.first().copied()
    }
}

impl Found<'_> {
    /// Text of the value: objects and lists as JSON, all else as Go prints it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Json(Value::Null) => "<no value>".to_owned(),
            Self::Json(value @ (Value::Array(_) | Value::Object(_))) => go::json(value),
            Self::Json(value) => go::plain(value),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => go::float(*number),
            Self::Bool(flag) => flag.to_string(),
            Self::Text(text) => (*text).to_owned(),
            Self::Byte(byte) => byte.to_string(),
        }
    }
}
