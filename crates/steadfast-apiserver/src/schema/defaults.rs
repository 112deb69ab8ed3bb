//! Defaults of absent fields.

use serde_json::Value;

use super::Schema;

impl Schema {
    /// Sets the defaults of absent fields, and of null fields that are not nullable.
    pub(crate) fn fill_defaults(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, schema) in &self.properties {
                    let Some(default) = &schema.default else { continue };
                    // A `null` counts as absent, unless the schema is nullable.
                    if fields.get(name).is_none_or(|value| value.is_null() && !schema.nullable) {
                        fields.insert(name.clone(), default.clone());
                    }
                }
                // The defaults of nested fields are set after the defaults of this level, because such a default may
                // contain fields with their own defaults.
                for (name, value) in fields {
                    match (self.properties.get(name), self.additional_schema()) {
                        (Some(schema), _) => schema.fill_defaults(value),
                        (None, Some(schema)) => schema.fill_element_defaults(value),
                        (None, None) => {}
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for item in items {
                        schema.fill_element_defaults(item);
                    }
                }
            }
            _ => {}
        }
    }

    /// Replaces a null element by its default; without a default, it stays null.
    fn fill_element_defaults(&self, value: &mut Value) {
        if value.is_null() && !self.nullable {
            *value = self.default.clone().unwrap_or_default();
        }
        self.fill_defaults(value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Schema;

    fn filled(schema: &Value, mut object: Value) -> Value {
        Schema::parse(schema).expect("a schema").fill_defaults(&mut object);
        object
    }

    #[test]
    fn defaults_are_set_in_present_parents() {
        let schema = json!({"properties": {"spec": {"type": "object", "properties": {
            "size": {"type": "integer", "default": 3}, "name": {"type": "string", "default": "x", "nullable": true},
        }}}});
        assert_eq!(filled(&schema, json!({})), json!({}));
        assert_eq!(filled(&schema, json!({"spec": {}})), json!({"spec": {"size": 3, "name": "x"}}));
        let nulls = filled(&schema, json!({"spec": {"size": null, "name": null}}));
        assert_eq!(nulls, json!({"spec": {"size": 3, "name": null}}));
    }

    #[test]
    fn nested_defaults_are_set() {
        let schema = json!({"properties": {"spec": {"type": "object", "default": {}, "properties": {
            "size": {"type": "integer", "default": 3},
        }}}});
        assert_eq!(filled(&schema, json!({})), json!({"spec": {"size": 3}}));
    }

    #[test]
    fn elements_of_lists_and_maps_get_defaults() {
        let of = json!({"type": "object", "properties": {"a": {"type": "integer", "default": 1}}});
        let schema = json!({"properties": {
            "list": {"type": "array", "items": of}, "map": {"type": "object", "additionalProperties": of},
        }});
        let object = filled(&schema, json!({"list": [{}, {"a": 2}], "map": {"m": {}}}));
        assert_eq!(object, json!({"list": [{"a": 1}, {"a": 2}], "map": {"m": {"a": 1}}}));
    }
}
