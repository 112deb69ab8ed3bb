//! Types of values by their schema, for the type check of rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use steadfast_cel::{StaticType, Type};

use super::typed::{METADATA, escaped_name};

/// Returns the type of values of a schema. `is_object` is true for the root, which is an object of the API.
///
/// Schemas are at most [`MAX_SCHEMA_DEPTH`](crate::schema::MAX_SCHEMA_DEPTH) levels deep.
pub(super) fn static_type(schema: &Value, is_object: bool) -> StaticType {
    let is_true = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or_default();
    if is_true("x-kubernetes-int-or-string") {
        return StaticType::Any;
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => StaticType::BOOL,
        Some("integer") => StaticType::INT,
        Some("number") => StaticType::Plain(Type::Double),
        Some("string") => match schema.get("format").and_then(Value::as_str) {
            Some("date-time" | "date") => StaticType::Plain(Type::Timestamp),
            Some("duration") => StaticType::Plain(Type::Duration),
            Some("byte") => StaticType::Plain(Type::Bytes),
            // Evaluations convert this format to a timestamp; a real server does not.
            Some("datetime") => StaticType::Any,
            _ => StaticType::STRING,
        },
        Some("array") => {
            StaticType::list(schema.get("items").map_or(StaticType::Any, |items| static_type(items, false)))
        }
        Some("object") => object(schema, is_object || is_true("x-kubernetes-embedded-resource")),
        _ => StaticType::Any,
    }
}

fn object(schema: &Value, has_identity: bool) -> StaticType {
    let properties = schema.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty());
    match (properties, schema.get("additionalProperties")) {
        (None, Some(values @ Value::Object(_))) => return StaticType::map_of(static_type(values, false)),
        (None, Some(Value::Bool(true))) => return StaticType::Any,
        _ => {}
    }
    let declared = properties.into_iter().flatten().filter_map(|(name, inner_schema)| {
        let escaped = escaped_name(name)?;
        Some((escaped.into_owned(), static_type(inner_schema, false)))
    });
    let mut fields: BTreeMap<_, _> = declared.collect();
    if has_identity {
        let metadata = METADATA.into_iter().map(|name| (name.to_owned(), StaticType::STRING)).collect();
        fields.insert("metadata".to_owned(), StaticType::Object(Arc::new(metadata)));
        for name in ["apiVersion", "kind"] {
            fields.insert(name.to_owned(), StaticType::STRING);
        }
    }
    StaticType::Object(Arc::new(fields))
}
