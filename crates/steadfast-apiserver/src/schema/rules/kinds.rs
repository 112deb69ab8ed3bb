//! Types of values by their schema, for the type check of rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use steadfast_cel::{Kind, Type};

use super::typed::{METADATA, escaped_name};

/// Returns the type of values of a schema. `is_object` is true for the root, which is an object of the API.
///
/// Schemas are at most [`MAX_SCHEMA_DEPTH`](crate::schema::MAX_SCHEMA_DEPTH) levels deep.
pub(super) fn kind(schema: &Value, is_object: bool) -> Kind {
    let is_true = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or_default();
    if is_true("x-kubernetes-int-or-string") {
        return Kind::Any;
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => Kind::BOOL,
        Some("integer") => Kind::INT,
        Some("number") => Kind::Plain(Type::Double),
        Some("string") => match schema.get("format").and_then(Value::as_str) {
            Some("date-time" | "date") => Kind::Plain(Type::Timestamp),
            Some("duration") => Kind::Plain(Type::Duration),
            Some("byte") => Kind::Plain(Type::Bytes),
            // Evaluations convert this format to a timestamp; a real server does not.
            Some("datetime") => Kind::Any,
            _ => Kind::STRING,
        },
        Some("array") => Kind::list(schema.get("items").map_or(Kind::Any, |items| kind(items, false))),
        Some("object") => object(schema, is_object || is_true("x-kubernetes-embedded-resource")),
        _ => Kind::Any,
    }
}

fn object(schema: &Value, has_identity: bool) -> Kind {
    let properties = schema.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty());
    match (properties, schema.get("additionalProperties")) {
        (None, Some(values @ Value::Object(_))) => return Kind::map_of(kind(values, false)),
        (None, Some(Value::Bool(true))) => return Kind::Any,
        _ => {}
    }
    let declared = properties.into_iter().flatten().filter_map(|(name, inner_schema)| {
        let escaped = escaped_name(name)?;
        Some((escaped.into_owned(), kind(inner_schema, false)))
    });
    let mut fields: BTreeMap<_, _> = declared.collect();
    if has_identity {
        let metadata = METADATA.into_iter().map(|name| (name.to_owned(), Kind::STRING)).collect();
        fields.insert("metadata".to_owned(), Kind::Object(Arc::new(metadata)));
        for name in ["apiVersion", "kind"] {
            fields.insert(name.to_owned(), Kind::STRING);
        }
    }
    Kind::Object(Arc::new(fields))
}
