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

/// Parsed `JSONPath` in the dialect of kubectl and of printer columns.
///
/// ```
/// use serde_json::json;
/// use steadfast_apiserver::JsonPath;
///
/// let template = JsonPath::parse_template("{.metadata.name}: {.spec.tags[*]}").expect("a valid template");
/// let object = json!({"metadata": {"name": "web"}, "spec": {"tags": ["a", "b"]}});
/// assert_eq!(template.render(&object).as_deref(), Ok("web: a b"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    nodes: Vec<Node>,
}

impl JsonPath {
    /// Parses text with paths in braces, as in `kubectl -o jsonpath=…`.
    ///
    /// # Errors
    ///
    /// Returns the first error, with its byte offset.
    pub fn parse_template(template: &str) -> Result<Self, String> {
        let nodes = parse::text_with_actions(template).map_err(|error| error.to_string())?;
        Ok(Self { nodes })
    }

    /// Returns the text with the results of all paths. Several results of one path are separated by spaces; a missing
    /// field has no result.
    ///
    /// # Errors
    ///
    /// Returns an error if a path does not fit the object, such as an index of a value that is not a list.
    pub fn render(&self, object: &Value) -> Result<String, String> {
        let texts =
            |values: Vec<JsonPathValue<'_>>| values.iter().map(JsonPathValue::text).collect::<Vec<_>>().join(" ");
        Ok(self.find(object)?.into_iter().map(texts).collect())
    }

    /// Parses the path of a printer column, which has no braces.
    pub(crate) fn parse(path: &str) -> Result<Self, ParseError> {
        parse::action_list(path).map(|nodes| Self { nodes })
    }

    /// Returns the results of each action, in order. A missing field has no result.
    pub(crate) fn find<'a>(&'a self, object: &'a Value) -> Result<Vec<Vec<JsonPathValue<'a>>>, String> {
        Evaluation::new(&self.nodes).find(object).map_err(|EvaluationError { detail, .. }| detail)
    }

    /// Returns the first result of the first action, as in a printer column; `None` if the evaluation fails.
    pub(crate) fn first<'a>(&'a self, object: &'a Value) -> Option<JsonPathValue<'a>> {
        self.find(object).ok()?.first()?.first().copied()
    }
}
