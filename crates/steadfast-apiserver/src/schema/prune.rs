//! Removal of unknown fields.

use serde_json::{Map, Value};

use super::{Additional, Schema};

/// Fields of every object, independent of its schema.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];
/// Fields of metadata. A real server stores no other fields of metadata.
const METADATA_FIELDS: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

impl Schema {
    /// Removes the unknown fields of an object. Returns their paths, in order.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            prune_metadata(metadata, "metadata", &mut unknown);
        }
        // Fields of the metadata are reported before all others, as on the real server.
        let mut fields = Vec::new();
        let root = Pruner { unknown: &mut fields };
        root.value(object, Some(self), "", true);
        fields.sort();
        unknown.extend(fields);
        unknown
    }

    /// Removes the unknown fields of a part of an object. Returns their paths.
    pub(super) fn prune_value(&self, value: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        Pruner { unknown: &mut unknown }.value(value, Some(self), "", false);
        unknown
    }

    /// Removes null fields that are neither nullable nor replaced by a default.
    pub(crate) fn prune_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let is_removed = |value: &Value, schema: Option<&Self>| {
                    value.is_null() && schema.is_some_and(|schema| !schema.nullable && schema.default.is_none())
                };
                fields.retain(|name, value| !is_removed(value, self.field(name)));
                for (name, value) in fields {
                    if let Some(schema) = self.field(name) {
                        schema.prune_nulls(value);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for item in items {
                        schema.prune_nulls(item);
                    }
                }
            }
            _ => {}
        }
    }
}

fn prune_metadata(metadata: &mut Map<String, Value>, path: &str, unknown: &mut Vec<String>) {
    metadata.retain(|name, _| {
        let is_known = METADATA_FIELDS.contains(&name.as_str());
        if !is_known {
            unknown.push(format!("{path}.{name}"));
        }
        is_known
    });
}

struct Pruner<'a> {
    unknown: &'a mut Vec<String>,
}

impl Pruner<'_> {
    /// Prunes a value. Without a schema, all fields are unknown.
    fn value(mut self, value: &mut Value, schema: Option<&Schema>, path: &str, is_embedded: bool) {
        self.prune(value, schema, path, is_embedded);
    }

    fn prune(&mut self, value: &mut Value, schema: Option<&Schema>, path: &str, is_root: bool) {
        let is_embedded = is_root || schema.is_some_and(|schema| schema.embedded_resource);
        match value {
            Value::Object(fields) => {
                let keeps_all = schema.is_some_and(|schema| schema.preserve_unknown_fields);
                fields.retain(|name, value| {
                    if is_embedded && META_FIELDS.contains(&name.as_str()) {
                        if let ("metadata", false, Value::Object(metadata)) = (name.as_str(), is_root, value) {
                            prune_metadata(metadata, &field_path(path, name), self.unknown);
                        }
                        return true;
                    }
                    if schema.is_some_and(|schema| schema.knows(name)) {
                        let inner = schema.and_then(|schema| schema.field(name));
                        self.prune(value, inner, &field_path(path, name), false);
                    } else if !keeps_all {
                        self.unknown.push(field_path(path, name));
                        return false;
                    }
                    true
                });
            }
            Value::Array(items) => {
                let keeps_all = schema.is_some_and(|schema| schema.preserve_unknown_fields);
                let item_schema = schema.and_then(|schema| schema.items.as_deref());
                // An object that preserves unknown fields also preserves the items of its lists that have no schema.
                if keeps_all && item_schema.is_none() {
                    return;
                }
                for (index, item) in items.iter_mut().enumerate() {
                    self.prune(item, item_schema, &format!("{path}[{index}]"), false);
                }
            }
            _ => {}
        }
    }
}

fn field_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl Schema {
    /// Returns the schema of a map's fields, if it has one.
    pub(super) fn additional_schema(&self) -> Option<&Self> {
        match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Schema;

    fn pruned(schema: &Value, mut object: Value) -> (Value, Vec<String>) {
        let unknown = Schema::parse(schema).expect("a schema").prune(&mut object);
        (object, unknown)
    }

    #[test]
    fn unknown_fields_are_removed_and_reported() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "known": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {}}}},
        }}}});
        let object = json!({"kind": "K", "apiVersion": "g/v1", "metadata": {"name": "n", "odd": 1}, "more": 1,
            "spec": {"known": "x", "odd": 1, "list": [{"a": "y", "b": 1}], "map": {"m": {"a": 1, "c": 2}}}});
        let (object, unknown) = pruned(&schema, object);
        assert_eq!(
            object,
            json!({"kind": "K", "apiVersion": "g/v1", "metadata": {"name": "n"},
                   "spec": {"known": "x", "list": [{"a": "y"}], "map": {"m": {"a": 1}}}})
        );
        assert_eq!(unknown, ["metadata.odd", "more", "spec.list[0].b", "spec.map.m.c", "spec.odd"]);
    }

    #[test]
    fn preserved_fields_are_kept_unless_described() {
        let schema = json!({"type": "object", "properties": {"spec": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"strict": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }}});
        let (object, unknown) = pruned(&schema, json!({"spec": {"any": {"x": 1}, "strict": {"a": "y", "b": 1}}}));
        assert_eq!(object, json!({"spec": {"any": {"x": 1}, "strict": {"a": "y"}}}));
        assert_eq!(unknown, ["spec.strict.b"]);
    }

    #[test]
    fn embedded_object_keeps_its_identity() {
        let schema = json!({"type": "object", "properties": {"inner": {
            "type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}},
        }}});
        let object = json!({"inner": {"kind": "K", "apiVersion": "v1", "metadata": {"name": "n", "x": 1}, "other": 1}});
        let (object, unknown) = pruned(&schema, object);
        assert_eq!(object, json!({"inner": {"kind": "K", "apiVersion": "v1", "metadata": {"name": "n"}}}));
        assert_eq!(unknown, ["inner.metadata.x", "inner.other"]);
    }

    #[test]
    fn disallowed_null_fields_are_removed() {
        let schema = json!({"properties": {
            "plain": {"type": "string"}, "nullable": {"type": "string", "nullable": true},
            "defaulted": {"type": "string", "default": "x"},
        }});
        let mut object = json!({"plain": null, "nullable": null, "defaulted": null});
        Schema::parse(&schema).expect("a schema").prune_nulls(&mut object);
        assert_eq!(object, json!({"nullable": null, "defaulted": null}));
    }
}
