//! Schemas of a document.

use serde_json::{Map, Value, json};

use crate::resources::ServedResource;
use crate::types::{self, Field, FieldShape, ValueType};

/// Schemas of a document, with the schemas that they refer to.
#[derive(Default)]
pub(super) struct Schemas(Map<String, Value>);

impl Schemas {
    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// Adds a built-in kind.
    pub(super) fn add_builtin(&mut self, name: &'static str, group_version_kind: &Value) {
        self.add_named(name);
        if let Some(schema) = self.0.get_mut(&full_name(name)) {
            schema["x-kubernetes-group-version-kind"] = json!([group_version_kind]);
        }
    }

    /// Adds a custom kind by its declared schema. Without a declared schema, objects may have any fields.
    pub(super) fn add_custom(
        &mut self,
        served: &ServedResource,
        version: &str,
        declared: Option<Value>,
        group_version_kind: &Value,
    ) {
        let open_schema = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut schema = declared.filter(Value::is_object).unwrap_or_else(open_schema);
        if let Some(properties) =
            schema.as_object_mut().and_then(|schema| schema.entry("properties").or_insert(json!({})).as_object_mut())
        {
            properties.insert("apiVersion".to_owned(), json!({"type": "string"}));
            properties.insert("kind".to_owned(), json!({"type": "string"}));
            properties.insert("metadata".to_owned(), self.reference(ValueType::Named("meta.v1.ObjectMeta")));
        }
        let fields = schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten();
        for (_, field) in fields.filter(|(name, _)| *name != "metadata") {
            self.embed(field);
        }
        schema["x-kubernetes-group-version-kind"] = json!([group_version_kind]);
        // Names of schemas have the reversed group, as Java packages do: `io.example.v1.Widget`.
        let group: Vec<&str> = served.name.group().rsplit('.').collect();
        self.0.insert(format!("{}.{version}.{}", group.join("."), served.kind), schema);
    }

    /// Adds `apiVersion`, `kind` and `metadata` to each embedded resource within a schema. Schemas are at most
    /// [`schema::MAX_SCHEMA_DEPTH`](crate::schema::MAX_SCHEMA_DEPTH) levels deep.
    fn embed(&mut self, schema: &mut Value) {
        for key in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get_mut(key) {
                self.embed(inner);
            }
        }
        for (_, field) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
            self.embed(field);
        }
        if schema.get("x-kubernetes-embedded-resource") != Some(&Value::Bool(true)) {
            return;
        }
        let metadata = self.reference(ValueType::Named("meta.v1.ObjectMeta"));
        schema["properties"]["apiVersion"] = json!({"type": "string"});
        schema["properties"]["kind"] = json!({"type": "string"});
        schema["properties"]["metadata"] = metadata;
        if schema.get("required").is_none_or(Value::is_null) {
            schema["required"] = json!(["apiVersion", "kind"]);
        }
    }

    fn add_named(&mut self, name: &'static str) {
        let full = full_name(name);
        if self.0.contains_key(&full) {
            return;
        }
        // The entry is reserved before the fields are added, since types can contain themselves.
        self.0.insert(full.clone(), json!({"type": "object"}));
        let named_type = types::type_named(name);
        let fields = named_type.map(|named_type| named_type.fields.as_slice()).unwrap_or_default();
        let mut schema = json!({"type": "object"});
        if named_type.is_some_and(|named_type| named_type.is_atomic) {
            schema["x-kubernetes-map-type"] = "atomic".into();
        }
        if !fields.is_empty() {
            let properties: Map<String, Value> =
                fields.iter().map(|field| (field.name.to_owned(), self.field(field))).collect();
            schema["properties"] = properties.into();
        }
        let required: Vec<&str> = fields.iter().filter(|field| field.is_required).map(|field| field.name).collect();
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        self.0.insert(full, schema);
    }

    fn field(&mut self, field: &Field) -> Value {
        let mut schema = match field.shape {
            FieldShape::One(kind) => self.reference(kind),
            FieldShape::List(kind) => json!({"type": "array", "items": self.reference(kind)}),
            FieldShape::Map(kind) => json!({"type": "object", "additionalProperties": self.reference(kind)}),
            FieldShape::MapOfLists(kind) => {
                let list = json!({"type": "array", "items": self.reference(kind)});
                json!({"type": "object", "additionalProperties": list})
            }
        };
        if let Some(default) = field.default() {
            schema["default"] = default;
        }
        for (name, key) in [
            ("list", "x-kubernetes-list-type"),
            ("object", "x-kubernetes-map-type"),
            ("patch", "x-kubernetes-patch-strategy"),
            ("key", "x-kubernetes-patch-merge-key"),
        ] {
            if let Some(values) = field.trait_values(name) {
                schema[key] = values.collect::<Vec<_>>().join(",").into();
            }
        }
        if let Some(keys) = field.trait_values("map") {
            schema["x-kubernetes-list-type"] = "map".into();
            schema["x-kubernetes-list-map-keys"] = json!(keys.collect::<Vec<_>>());
        }
        if let Some(values) = field.trait_values("enum") {
            let values = json!(values.map(|value| value.replace('~', " ")).collect::<Vec<_>>());
            // An enumeration of a list or map restricts the items, not the container.
            match field.shape {
                FieldShape::List(_) => schema["items"]["enum"] = values,
                FieldShape::Map(_) => schema["additionalProperties"]["enum"] = values,
                _ => schema["enum"] = values,
            }
        }
        schema
    }

    /// Returns the schema of a single value. Named types are added and referenced.
    fn reference(&mut self, kind: ValueType) -> Value {
        const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
        let (name, schema) = match kind {
            ValueType::Text => return json!({"type": "string"}),
            ValueType::Bytes => return json!({"type": "string", "format": "byte"}),
            ValueType::Bool => return json!({"type": "boolean"}),
            ValueType::Integer32 => return json!({"type": "integer", "format": "int32"}),
            ValueType::Integer64 => return json!({"type": "integer", "format": "int64"}),
            ValueType::Double => return json!({"type": "number", "format": "double"}),
            ValueType::Any => return json!({}),
            ValueType::Named(name) => {
                self.add_named(name);
                return refer_to(&full_name(name));
            }
            ValueType::Time => (format!("{META}.Time"), json!({"type": "string", "format": "date-time"})),
            ValueType::MicroTime => (format!("{META}.MicroTime"), json!({"type": "string", "format": "date-time"})),
            ValueType::Duration => (format!("{META}.Duration"), json!({"type": "string"})),
            ValueType::Quantity => (
                "io.k8s.apimachinery.pkg.api.resource.Quantity".to_owned(),
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            ),
            ValueType::IntOrString => (
                "io.k8s.apimachinery.pkg.util.intstr.IntOrString".to_owned(),
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
            ),
            ValueType::Json("FieldsV1") => (format!("{META}.FieldsV1"), json!({"type": "object"})),
            ValueType::Json("RawExtension") => {
                ("io.k8s.apimachinery.pkg.runtime.RawExtension".to_owned(), json!({"type": "object"}))
            }
            ValueType::Json(name) => {
                (format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{name}"), json!({}))
            }
        };
        let reference = refer_to(&name);
        self.0.insert(name, schema);
        reference
    }
}

fn refer_to(name: &str) -> Value {
    json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]})
}

/// Returns a type's name in documents.
fn full_name(name: &str) -> String {
    match name.strip_prefix("meta.v1.") {
        Some(rest) => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{rest}"),
        None if name.starts_with("io.k8s.") => name.to_owned(),
        None => format!("io.k8s.api.{name}"),
    }
}
