//! Types of custom resources, from the schemas in their definitions.

use std::sync::Arc;

use serde_json::{Value, json};

use super::types::{Atom, ListAtom, MapAtom, MergeStrategy, OBJECT_META, ScalarAtom, StructField, TypeRef};

impl TypeRef {
    /// Creates the type of a version's objects; a deduced type if the version has no schema.
    pub(crate) fn from_schema(schema: Option<&Value>) -> Self {
        let Some(schema) = schema.filter(|schema| schema.is_object()) else { return Self::Deduced };
        let mut schema = schema.clone();
        // A root schema without a type describes an object.
        if schema.get("type").is_none() {
            schema["type"] = "object".into();
        }
        with_identity(&schema_atom(&schema, false))
    }
}

/// Adds the fields of every object to a type: kind, version and metadata.
fn with_identity(atom: &Atom) -> TypeRef {
    let mut atom = atom.clone();
    let map = atom.map.get_or_insert_default();
    let text = || TypeRef::Inline(Arc::new(Atom { scalar: Some(ScalarAtom::Text), ..Atom::default() }));
    for (name, type_ref) in [("apiVersion", text()), ("kind", text()), ("metadata", TypeRef::Named(OBJECT_META))] {
        map.declared_fields.insert(name.to_owned(), StructField { type_ref, default: None, absent_value: None });
    }
    TypeRef::Inline(Arc::new(atom))
}

/// Creates the type of a schema. `preserves_unknown` is true if the schema or a parent keeps unknown fields.
fn schema_type(schema: &Value, preserves_unknown: bool) -> TypeRef {
    let atom = schema_atom(schema, preserves_unknown);
    if schema["x-kubernetes-embedded-resource"] == json!(true) {
        with_identity(&atom)
    } else {
        TypeRef::Inline(Arc::new(atom))
    }
}

fn schema_atom(schema: &Value, preserves_unknown: bool) -> Atom {
    // `x-kubernetes-preserve-unknown-fields` applies to all levels below.
    let preserves_unknown = preserves_unknown || schema["x-kubernetes-preserve-unknown-fields"] == json!(true);
    let plain = |scalar| Atom { scalar: Some(scalar), ..Atom::default() };
    match schema["type"].as_str().unwrap_or_default() {
        "object" => Atom { map: Some(map_atom(schema, preserves_unknown)), ..Atom::default() },
        "array" => Atom { list: Some(list_atom(schema, preserves_unknown)), ..Atom::default() },
        "integer" | "number" => plain(ScalarAtom::Number),
        "boolean" => plain(ScalarAtom::Bool),
        "string" if matches!(schema["format"].as_str(), None | Some("" | "byte")) => plain(ScalarAtom::Text),
        "string" => plain(ScalarAtom::Any),
        _ => Atom {
            scalar: Some(ScalarAtom::Any),
            list: Some(list_atom(schema, preserves_unknown)),
            map: Some(map_atom(schema, preserves_unknown)),
        },
    }
}

fn map_atom(schema: &Value, preserves_unknown: bool) -> MapAtom {
    let properties = schema["properties"].as_object();
    let declared_fields = properties.into_iter().flatten().map(|(name, property)| {
        let field = StructField {
            type_ref: schema_type(property, preserves_unknown),
            default: property.get("default").cloned(),
            absent_value: None,
        };
        (name.clone(), field)
    });
    let other_fields = match &schema["additionalProperties"] {
        // Without properties, an object accepts any field, as with preserved fields.
        Value::Null if preserves_unknown || properties.is_none_or(serde_json::Map::is_empty) => Some(TypeRef::Deduced),
        Value::Bool(true) => Some(TypeRef::Deduced),
        // `additionalProperties` and `properties` exclude each other in structural schemas.
        Value::Object(_) => Some(schema_type(&schema["additionalProperties"], preserves_unknown)),
        _ => None,
    };
    MapAtom {
        declared_fields: declared_fields.collect(),
        other_fields,
        is_atomic: schema["x-kubernetes-map-type"] == "atomic",
    }
}

fn list_atom(schema: &Value, preserves_unknown: bool) -> ListAtom {
    let item =
        if schema["items"].is_object() { schema_type(&schema["items"], preserves_unknown) } else { TypeRef::Raw };
    let strategy = match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => MergeStrategy::Set,
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            let mut keys: Vec<String> = keys.filter_map(|key| key.as_str().map(str::to_owned)).collect();
            // Sorted keys give each item exactly one path.
            keys.sort();
            MergeStrategy::Keys(keys)
        }
        // Lists are atomic unless the schema declares a list type.
        _ => MergeStrategy::Atomic,
    };
    ListAtom { item, strategy }
}
