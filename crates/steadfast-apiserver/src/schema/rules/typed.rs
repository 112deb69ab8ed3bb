//! Conversion of an object to CEL values by its schema.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json};
use steadfast_cel::{CelValue, RESERVED, Text};

use crate::schema::{Additional, JsonType, ListType, Schema};

/// Words that cannot be field names in an expression, in addition to those that CEL [reserves](RESERVED).
const KEYWORDS: [&str; 4] = ["true", "false", "null", "in"];

/// Fields of the metadata that rules may read.
pub(super) const METADATA: [&str; 2] = ["name", "generateName"];

/// Converts a field. `is_object` is true for the root, which is an object of the API.
pub(super) fn value<'a>(json: &'a Json, schema: &'a Schema, is_object: bool) -> CelValue<'a> {
    match (schema.kind, json) {
        (Some(JsonType::Number), Json::Number(number)) => CelValue::Double(number.as_f64().unwrap_or_default()),
        // A real server reads numbers with a fraction, an exponent or more than 64 bits as floats.
        (Some(JsonType::Integer), Json::Number(number)) if !number.is_i64() => {
            CelValue::Invalid("invalid data, expected int, got float64")
        }
        (None, Json::Number(number)) if schema.int_or_string && !number.is_i64() => {
            CelValue::Invalid("invalid data, expected XIntOrString value to be either a string or integer")
        }
        (Some(JsonType::String), Json::String(text)) => string(text, &schema.format),
        (Some(JsonType::Array), Json::Array(items)) => list(items, schema),
        (Some(JsonType::Object), Json::Object(fields)) => object(fields, schema, is_object || schema.embedded_resource),
        _ => CelValue::from(json),
    }
}

fn string<'a>(text: &'a str, format: &str) -> CelValue<'a> {
    let converted = match format {
        "date-time" | "datetime" => CelValue::timestamp(text),
        "date" => CelValue::timestamp(&format!("{text}T00:00:00Z")),
        "duration" => CelValue::duration(&text.replace(' ', "")),
        "byte" => STANDARD.decode(text).ok().map(|bytes| CelValue::Bytes(bytes.into())),
        _ => None,
    };
    converted.unwrap_or(CelValue::String(Text::Borrowed(text)))
}

fn list<'a>(items: &'a [Json], schema: &'a Schema) -> CelValue<'a> {
    let Some(inner_schema) = schema.items.as_deref() else {
        return items.iter().map(CelValue::from).collect::<Vec<_>>().into();
    };
    let items: Vec<CelValue<'a>> = items.iter().map(|item| value(item, inner_schema, false)).collect();
    match schema.list_type {
        Some(ListType::Set) => CelValue::set(items),
        Some(ListType::Map) => CelValue::keyed(items, &escaped_names(&schema.list_map_keys)),
        _ => items.into(),
    }
}

fn escaped_names(names: &[String]) -> Vec<String> {
    names.iter().filter_map(|name| escaped_name(name).map(Cow::into_owned)).collect()
}

fn object<'a>(fields: &'a Map<String, Json>, schema: &'a Schema, has_identity: bool) -> CelValue<'a> {
    if let (Some(Additional::Schema(inner_schema)), true) = (&schema.additional, schema.properties.is_empty()) {
        return CelValue::object(
            fields.iter().map(|(name, json)| (Text::Borrowed(name), value(json, inner_schema, false))),
        );
    }
    if let (Some(Additional::Any), true) = (&schema.additional, schema.properties.is_empty()) {
        return CelValue::object(
            fields.iter().map(|(name, json)| (Text::Borrowed(name.as_str()), CelValue::from(json))),
        );
    }
    // Fields outside the schema do not belong to the type, even if preserved.
    let is_identity = |name: &str| has_identity && matches!(name, "apiVersion" | "kind" | "metadata");
    let declared = schema.properties.iter().filter(|(name, _)| !is_identity(name));
    let declared = declared.filter_map(|(name, inner_schema)| {
        let json = fields.get(name)?;
        let name = match escaped_name(name)? {
            Cow::Borrowed(name) => Text::Borrowed(name),
            Cow::Owned(name) => name.into(),
        };
        Some((name, value(json, inner_schema, false)))
    });
    let identity = ["apiVersion", "kind"].into_iter().filter(|_| has_identity).filter_map(|name| {
        let json = fields.get(name)?;
        Some((Text::Borrowed(name), CelValue::from(json)))
    });
    let metadata = fields.get("metadata").filter(|_| has_identity).and_then(Json::as_object).map(|metadata| {
        let readable =
            METADATA.into_iter().filter_map(|name| Some((Text::Borrowed(name), CelValue::from(metadata.get(name)?))));
        (Text::Borrowed("metadata"), CelValue::object(readable))
    });
    CelValue::object(declared.chain(identity).chain(metadata))
}

/// Returns the name of a field in expressions; `None` if expressions cannot name the field.
pub(super) fn escaped_name(name: &str) -> Option<Cow<'_, str>> {
    if KEYWORDS.contains(&name) || RESERVED.contains(&name) {
        return Some(Cow::Owned(format!("__{name}__")));
    }
    // A CEL identifier starts with a letter or `_`. Other fields are not accessible.
    if !name.starts_with(|character: char| character == '_' || character.is_ascii_alphabetic()) {
        return None;
    }
    if !name.contains("__") && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
        return Some(Cow::Borrowed(name));
    }
    // Escapes of Kubernetes for characters outside CEL identifiers.
    let escaped = name
        .replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__");
    escaped.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()).then_some(Cow::Owned(escaped))
}

#[cfg(test)]
mod tests {
    use super::escaped_name;

    #[test]
    fn field_names_are_escaped_in_expressions() {
        for (name, expected) in [
            ("a_b", Some("a_b")),
            ("namespace", Some("__namespace__")),
            ("x-a.b/c", Some("x__dash__a__dot__b__slash__c")),
            ("a__b", Some("a__underscores__b")),
            ("type", Some("type")),
            ("1a", None),
            ("ü", None),
            ("a b", None),
        ] {
            assert_eq!(escaped_name(name).as_deref(), expected, "{name}");
        }
    }
}
