//! Parser of schemas.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    Additional, JsonType, Limit, ListType, MAX_PATTERNS, MAX_SCHEMA_DEPTH, MAX_SCHEMAS, MapType, Pattern, Rule, Schema,
};

/// Error for an invalid schema, or for a schema that exceeds the limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SchemaError {
    #[error("the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")]
    TooDeep,
    #[error("the schema consists of more than {MAX_SCHEMAS} schemas")]
    TooLarge,
    #[error("the schema has more than {MAX_PATTERNS} different patterns")]
    TooManyPatterns,
    #[error("the pattern {pattern:?} is not supported: {detail}")]
    Pattern { pattern: String, detail: String },
}

impl Schema {
    /// Parses a schema. Values of a wrong type count as absent.
    pub(crate) fn parse(value: &Value) -> Result<Self, SchemaError> {
        let mut reader = SchemaReader { remaining_schemas: MAX_SCHEMAS, patterns: BTreeMap::new() };
        reader.schema(value, MAX_SCHEMA_DEPTH)
    }
}

struct SchemaReader {
    remaining_schemas: usize,
    /// Compiled patterns, each compiled once.
    patterns: BTreeMap<String, Pattern>,
}

impl SchemaReader {
    fn schema(&mut self, value: &Value, depth: usize) -> Result<Schema, SchemaError> {
        // Limits of depth and size protect the server against malicious definitions.
        let depth = depth.checked_sub(1).ok_or(SchemaError::TooDeep)?;
        self.remaining_schemas = self.remaining_schemas.checked_sub(1).ok_or(SchemaError::TooLarge)?;
        let no_fields = Map::new();
        let fields = value.as_object().unwrap_or(&no_fields);
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let flag = |key: &str| fields.get(key).and_then(Value::as_bool).unwrap_or_default();
        let count = |key: &str| fields.get(key).and_then(Value::as_i64);
        let texts = |key: &str| -> Vec<String> {
            let items = fields.get(key).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let limit = |key: &str, exclusive_key: &str| {
            let value = fields.get(key).and_then(Value::as_f64)?;
            Some(Limit { value, is_exclusive: flag(exclusive_key) })
        };
        let int_or_string = flag("x-kubernetes-int-or-string");
        // An int-or-string permits two types, so `type` is ignored.
        let kind = if int_or_string { None } else { kind_of(&text("type")) };
        let pattern = match text("pattern") {
            pattern if pattern.is_empty() => None,
            pattern => Some(self.pattern(pattern)?),
        };
        let additional = match fields.get("additionalProperties") {
            Some(Value::Bool(true)) => Some(Additional::Any),
            Some(schema @ Value::Object(_)) => Some(Additional::Schema(Box::new(self.schema(schema, depth)?))),
            _ => None,
        };
        let mut schema = Schema {
            kind,
            description: text("description"),
            format: checked_format(kind, int_or_string, &text("format")),
            nullable: flag("nullable"),
            // A `null` counts as an absent default.
            default: fields.get("default").filter(|value| !value.is_null()).cloned(),
            enumeration: fields.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            minimum: limit("minimum", "exclusiveMinimum"),
            maximum: limit("maximum", "exclusiveMaximum"),
            multiple_of: fields.get("multipleOf").and_then(Value::as_f64),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern,
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            required: texts("required"),
            properties: self.properties(fields, depth)?,
            additional,
            items: self.inner(fields, "items", depth)?,
            all_of: self.several(fields, "allOf", depth)?,
            any_of: self.several(fields, "anyOf", depth)?,
            one_of: self.several(fields, "oneOf", depth)?,
            not: self.inner(fields, "not", depth)?,
            preserve_unknown_fields: flag("x-kubernetes-preserve-unknown-fields"),
            int_or_string,
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            list_type: match text("x-kubernetes-list-type").as_str() {
                "atomic" => Some(ListType::Atomic),
                "map" => Some(ListType::Map),
                "set" => Some(ListType::Set),
                _ => None,
            },
            list_map_keys: texts("x-kubernetes-list-map-keys"),
            map_type: match text("x-kubernetes-map-type").as_str() {
                "atomic" => Some(MapType::Atomic),
                "granular" => Some(MapType::Granular),
                _ => None,
            },
            rules: Rule::parse_all(value),
            has_rules: false,
        };
        let inner_schemas = schema.properties.values().chain(schema.items.as_deref()).chain(match &schema.additional {
            Some(Additional::Schema(inner_schema)) => Some(&**inner_schema),
            _ => None,
        });
        schema.has_rules = !schema.rules.is_empty() || inner_schemas.into_iter().any(|inner| inner.has_rules);
        Ok(schema)
    }

    fn pattern(&mut self, text: String) -> Result<Pattern, SchemaError> {
        // Compilation is expensive, so equal patterns share the result.
        if let Some(compiled) = self.patterns.get(&text) {
            return Ok(compiled.clone());
        }
        if self.patterns.len() == MAX_PATTERNS {
            return Err(SchemaError::TooManyPatterns);
        }
        let pattern = Pattern::new(&text)
            .map_err(|error| SchemaError::Pattern { pattern: text.clone(), detail: error.to_string() })?;
        self.patterns.insert(text, pattern.clone());
        Ok(pattern)
    }

    fn properties(
        &mut self,
        fields: &Map<String, Value>,
        depth: usize,
    ) -> Result<BTreeMap<String, Schema>, SchemaError> {
        let properties = fields.get("properties").and_then(Value::as_object).into_iter().flatten();
        properties.map(|(name, value)| Ok((name.clone(), self.schema(value, depth)?))).collect()
    }

    fn inner(
        &mut self,
        fields: &Map<String, Value>,
        key: &str,
        depth: usize,
    ) -> Result<Option<Box<Schema>>, SchemaError> {
        let value = fields.get(key).filter(|value| value.is_object());
        value.map(|value| self.schema(value, depth).map(Box::new)).transpose()
    }

    fn several(&mut self, fields: &Map<String, Value>, key: &str, depth: usize) -> Result<Vec<Schema>, SchemaError> {
        let schemas = fields.get(key).and_then(Value::as_array).into_iter().flatten();
        schemas.map(|value| self.schema(value, depth)).collect()
    }
}

fn kind_of(name: &str) -> Option<JsonType> {
    let all =
        [JsonType::Array, JsonType::Boolean, JsonType::Integer, JsonType::Number, JsonType::Object, JsonType::String];
    all.into_iter().find(|kind| kind.as_str() == name)
}

/// Returns the format if it is checked for values of the type.
fn checked_format(kind: Option<JsonType>, int_or_string: bool, format: &str) -> String {
    let checked = match kind {
        // A schema without a single type, such as an int-or-string, keeps each known format of strings.
        None | Some(JsonType::String) => super::formats::is_known(format),
        Some(JsonType::Integer) if !int_or_string => matches!(format, "int32" | "int64"),
        Some(JsonType::Number) => matches!(format, "float" | "double"),
        _ => false,
    };
    if checked { format.to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{ListType, MapType, Schema};
    use super::SchemaError;

    #[test]
    fn lists_and_maps_have_merge_strategies() {
        let schema = Schema::parse(&json!({
            "type": "object", "x-kubernetes-map-type": "atomic",
            "properties": {"ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object"},
            }},
        }));
        let schema = schema.expect("a small schema");
        assert_eq!(schema.map_type, Some(MapType::Atomic));
        let ports = schema.field("ports").expect("a property");
        assert_eq!(
            (ports.list_type, ports.list_map_keys.as_slice()),
            (Some(ListType::Map), ["port", "protocol"].map(str::to_owned).as_slice())
        );
    }

    #[test]
    fn deep_nesting_is_rejected() {
        let nest = |levels: usize| {
            let leaf = json!({"type": "object"});
            (0..levels).fold(leaf, |inner, _| json!({"type": "object", "properties": {"a": inner}}))
        };
        assert!(Schema::parse(&nest(60)).is_ok());
        assert_eq!(Schema::parse(&nest(64)), Err(SchemaError::TooDeep));
    }

    #[test]
    fn too_many_schemas_are_rejected() {
        let many: serde_json::Map<String, Value> = (0..50_000).map(|n| (n.to_string(), json!({}))).collect();
        assert_eq!(Schema::parse(&json!({"properties": many})), Err(SchemaError::TooLarge));
    }

    #[test]
    fn invalid_pattern_is_reported() {
        let error = Schema::parse(&json!({"pattern": "a("})).expect_err("an open group");
        assert!(error.to_string().starts_with("the pattern \"a(\" is not supported: "), "{error}");
    }

    #[test]
    fn unchecked_formats_are_dropped() {
        let format = |kind: &str, format: &str| {
            Schema::parse(&json!({"type": kind, "format": format})).map(|schema| schema.format).unwrap_or_default()
        };
        assert_eq!(format("string", "date-time"), "date-time");
        assert_eq!(format("string", "nonsense"), "");
        assert_eq!(format("integer", "int32"), "int32");
        assert_eq!(format("integer", "uint8"), "");
        assert_eq!(format("boolean", "date"), "");
    }
}
