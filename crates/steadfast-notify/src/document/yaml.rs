//! YAML parser with the position of each value.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{Error, Location, Spanned};

use super::positions::{ParseError, ValuePosition, ValuePositions, child_path};
use crate::problem::FilePosition;

/// Parses `text`. An error has position, message and remedy.
pub(super) fn read(text: &str, positions: &mut ValuePositions) -> Result<Value, ParseError> {
    // An empty YAML file is null, not a map. The checks then report the missing sections.
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let node: Spanned<Node> = serde_saphyr::from_str(text).map_err(|error| {
        let position = error.location().map_or(FilePosition::START, file_position);
        if matches!(error.without_snippet(), Error::RecursiveReferencesRequireWeakTypes { .. }) {
            let description = "the alias refers to a value that contains the alias";
            return (position, description.to_owned(), "replace the alias by a literal value".to_owned());
        }
        // Only the first line: further lines quote the file, which may contain secrets.
        let description = error.without_snippet().to_string();
        let description = description.lines().next().unwrap_or_default().to_owned();
        (position, format!("invalid YAML: {description}"), "correct the syntax at or before this position".to_owned())
    })?;
    Ok(convert_node(text, node, "", None, positions))
}

fn file_position(location: Location) -> FilePosition {
    FilePosition { line: location.line() as usize, column: location.column() as usize }
}

/// A parsed YAML value with positions, before conversion to JSON.
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

fn convert_node(
    text: &str,
    node: Spanned<Node>,
    path: &str,
    key: Option<FilePosition>,
    positions: &mut ValuePositions,
) -> Value {
    // For an alias, `referenced` is the position of the alias, not of the anchor.
    let value = file_position(node.referenced);
    let byte_offset = node.referenced.span().byte_offset().and_then(|offset| usize::try_from(offset).ok());
    positions.insert(path.to_owned(), ValuePosition { key, value, offset: byte_offset.unwrap_or(text.len()) });
    match node.value {
        Node::Scalar(value) => value,
        Node::List(items) => {
            let items = items.into_iter().enumerate();
            let items =
                items.map(|(number, item)| convert_node(text, item, &format!("{path}[{number}]"), None, positions));
            Value::Array(items.collect())
        }
        Node::Map(fields) => {
            let fields = fields.into_iter().map(|(key, item)| {
                let path_of_value = child_path(path, &key.value);
                let value = convert_node(text, item, &path_of_value, Some(file_position(key.referenced)), positions);
                (key.value, value)
            });
            Value::Object(fields.collect())
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = access.next_entry()? {
            fields.push(field);
        }
        Ok(Node::Map(fields))
    }
}
