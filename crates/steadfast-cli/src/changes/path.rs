//! Path of a field within an object: `spec.containers[name=app].image`.
//!
//! A path is exact: it selects one field, even if a name contains dots or two elements share one of their keys. The
//! path of a list's order ends with the names of the keys: `status.conditions[type]`.

use std::fmt;
use std::fmt::Write as _;

use serde_json::Value;

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Segment<'a> {
    /// Field of an object.
    Field(&'a str),
    /// Element of a list without keys.
    Index(usize),
    /// Element of a list with keys. A missing optional key has no value.
    Element(Vec<(&'static str, Option<&'a Value>)>),
    /// Order of the elements of a list with these keys, as the last step only.
    Order(&'static [&'static str]),
}

/// Path from the root of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Path<'a>(pub(crate) Vec<Segment<'a>>);

impl Path<'_> {
    /// Returns whether `pattern` is this path or a prefix of it.
    ///
    /// A pattern has names separated by slashes. `[]` matches any element of a list.
    pub(crate) fn starts_with(&self, pattern: &str) -> bool {
        let mut segments = self.0.iter();
        pattern.split('/').all(|expected| match segments.next() {
            Some(Segment::Field(name)) => *name == expected,
            Some(Segment::Index(_) | Segment::Element(_)) => expected == "[]",
            Some(Segment::Order(_)) | None => false,
        })
    }

    /// Returns the name of the last field, regardless of elements below it.
    pub(crate) fn last_field(&self) -> Option<&str> {
        self.0.iter().rev().find_map(|segment| match segment {
            Segment::Field(name) => Some(*name),
            _ => None,
        })
    }

    /// Returns the path for people: elements have the value of their first key only, as in `containers[app].image`.
    pub(crate) fn short(&self) -> String {
        let mut text = String::new();
        for segment in &self.0 {
            match segment {
                Segment::Element(keys) => {
                    let value = keys.first().and_then(|(_, value)| *value);
                    let _ = match value {
                        Some(Value::String(value)) => write!(text, "[{value}]"),
                        Some(value) => write!(text, "[{value}]"),
                        None => write!(text, "[]"),
                    };
                }
                Segment::Field(name) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(name);
                }
                Segment::Index(index) => drop(write!(text, "[{index}]")),
                Segment::Order(_) => text.push_str(" order"),
            }
        }
        text
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if is_plain(name) => {
                    f.write_str(if position == 0 { "" } else { "." })?;
                    f.write_str(name)?;
                }
                Segment::Field(name) => write!(f, "[{}]", Value::from(*name))?,
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Element(keys) => {
                    f.write_str("[")?;
                    for (position, (key, value)) in keys.iter().enumerate() {
                        f.write_str(if position == 0 { "" } else { "," })?;
                        match value {
                            Some(Value::String(text)) if is_plain(text) && !is_literal(text) => {
                                write!(f, "{key}={text}")?;
                            }
                            Some(value) => write!(f, "{key}={value}")?,
                            None => write!(f, "{key}=null")?,
                        }
                    }
                    f.write_str("]")?;
                }
                Segment::Order(keys) => write!(f, "[{}]", keys.join(","))?,
            }
        }
        Ok(())
    }
}

/// Returns whether `name` needs no quotes.
fn is_plain(name: &str) -> bool {
    let mut characters = name.chars();
    let is_first_plain = characters
        .next()
        .is_some_and(|character| character.is_ascii_alphabetic() || character == '_' || character == '$');
    is_first_plain
        && characters.all(|character| character.is_ascii_alphanumeric() || character == '_' || character == '-')
}

/// Returns whether `text` without quotes would be a JSON literal.
fn is_literal(text: &str) -> bool {
    matches!(text, "true" | "false" | "null")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn path_quotes_unusual_names() {
        let (app, port) = (json!("app"), json!(80));
        let path = Path(vec![
            Segment::Field("spec"),
            Segment::Field("containers"),
            Segment::Element(vec![("name", Some(&app))]),
            Segment::Field("ports"),
            Segment::Element(vec![("containerPort", Some(&port)), ("protocol", None)]),
        ]);
        assert_eq!(path.to_string(), "spec.containers[name=app].ports[containerPort=80,protocol=null]");
        assert_eq!(path.short(), "spec.containers[app].ports[80]");
        let label = Path(vec![Segment::Field("metadata"), Segment::Field("labels"), Segment::Field("a.b/c")]);
        assert_eq!(label.to_string(), "metadata.labels[\"a.b/c\"]");
        assert!(path.starts_with("spec/containers/[]/ports") && !path.starts_with("spec/containers/[]/image"));
        assert!(!label.starts_with("metadata/labels/a.b/c/d") && label.starts_with("metadata"));
    }
}
