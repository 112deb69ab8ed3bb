//! Paths to fields: names, keys of list items, and values of sets.

use std::cmp::Ordering;
use std::fmt::{self, Write};

use serde_json::{Map, Value};

/// Element of a path.
#[derive(Clone, Debug)]
pub(super) enum PathElement {
    /// A field of a struct or a key of a map.
    Field(String),
    /// An item of a list by its keys, in sorted order.
    Key(Vec<(String, Value)>),
    /// A plain value of a set.
    Value(Value),
    /// An index of a list.
    Index(i64),
}

impl PathElement {
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// Encodes the element for `FieldsV1`.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let keys: Map<String, Value> = keys.iter().cloned().collect();
                format!("k:{}", escaped_json(&Value::Object(keys)))
            }
            Self::Value(value) => format!("v:{}", escaped_json(value)),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Parses the encoding of [`encode`](Self::encode).
    pub(super) fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => match serde_json::from_str(rest).ok()? {
                Value::Object(keys) => Some(Self::Key(keys.into_iter().collect())),
                _ => None,
            },
            "v" => serde_json::from_str(rest).ok().map(Self::Value),
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                f.write_str("[")?;
                for (index, (name, value)) in keys.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={value}")?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(one), Self::Field(other)) => one.cmp(other),
            (Self::Key(one), Self::Key(other)) => {
                let differing = one.iter().zip(other).map(|((name, value), (other_name, other_value))| {
                    name.cmp(other_name).then_with(|| compare_values(value, other_value))
                });
                differing.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| one.len().cmp(&other.len()))
            }
            (Self::Value(one), Self::Value(other)) => compare_values(one, other),
            (Self::Index(one), Self::Index(other)) => one.cmp(other),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// Encodes compact JSON with escaped HTML characters, like the library of a real server.
fn escaped_json(value: &Value) -> String {
    let mut escaped = String::new();
    for character in value.to_string().chars() {
        match character {
            // Go's JSON encoder escapes these characters for HTML.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\u{:04x}", u32::from(character));
            }
            character => escaped.push(character),
        }
    }
    escaped
}

/// Orders numbers before strings before booleans before other values, and numbers by value.
fn compare_values(one: &Value, other: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (one, other) {
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Number(one), Value::Number(other)) => match (one.as_i64(), other.as_i64()) {
            // Integers compare exactly. As floats, large neighbours would be equal.
            (Some(one), Some(other)) => one.cmp(&other),
            _ => one.as_f64().unwrap_or_default().total_cmp(&other.as_f64().unwrap_or_default()),
        },
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
            one.to_string().cmp(&other.to_string())
        }
        _ => rank(one).cmp(&rank(other)),
    }
}

/// Formats a path for errors: `.spec.containers[name="main"].image`.
pub(super) fn path_text(path: &[PathElement]) -> String {
    path.iter().map(PathElement::to_string).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::PathElement;

    #[test]
    fn html_escaped_keys_round_trip() {
        let element = PathElement::Key(vec![("name".to_owned(), json!("A<B&C"))]);
        assert_eq!(element.encode(), r#"k:{"name":"A\u003cB\u0026C"}"#);
        assert_eq!(PathElement::decode(&element.encode()), Some(element));
        assert_eq!(PathElement::Value(json!(">")).encode(), r#"v:"\u003e""#);
    }
}
