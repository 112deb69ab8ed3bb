//! Identity of embedded objects.

use serde_json::Value;

use super::{Schema, structural};
use crate::field_violation::FieldViolation;

impl Schema {
    /// Returns a cause for each embedded object without a valid `apiVersion` or `kind`.
    pub(crate) fn embedded_object_causes(&self, object: &Value) -> Vec<FieldViolation> {
        let mut causes = Vec::new();
        self.collect_embedded_causes("", object, &mut causes);
        causes
    }

    fn collect_embedded_causes(&self, path: &str, value: &Value, causes: &mut Vec<FieldViolation>) {
        match value {
            Value::Object(fields) => {
                if self.embedded_resource {
                    identity(path, value, causes);
                }
                for (name, value) in fields {
                    let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    if let Some(schema) = self.properties.get(name) {
                        schema.collect_embedded_causes(&inner, value, causes);
                    } else if let Some(schema) = self.additional_schema() {
                        schema.collect_embedded_causes(&format!("{path}[{name}]"), value, causes);
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if let Some(schema) = &self.items {
                        schema.collect_embedded_causes(&format!("{path}[{index}]"), item, causes);
                    }
                }
            }
            _ => {}
        }
    }
}

fn identity(path: &str, value: &Value, causes: &mut Vec<FieldViolation>) {
    for key in ["apiVersion", "kind"] {
        let field = format!("{path}.{key}");
        match value.get(key) {
            None => causes.push(FieldViolation::required(field, "")),
            Some(Value::String(text)) if text.is_empty() => {
                causes.push(FieldViolation::invalid(field, &"".into(), "must not be empty"));
            }
            Some(Value::String(text)) if key == "kind" => {
                if let Some(detail) = structural::label_error(&text.to_lowercase()) {
                    let detail = format!("may have mixed case, but should otherwise match: {detail}");
                    causes.push(FieldViolation::invalid(field, &text.as_str().into(), &detail));
                }
            }
            Some(Value::String(text)) if text.matches('/').count() > 1 => {
                causes.push(FieldViolation::invalid(
                    field,
                    &text.as_str().into(),
                    &format!("unexpected GroupVersion string: {text}"),
                ));
            }
            Some(Value::String(_)) => {}
            Some(other) => causes.push(FieldViolation::invalid(field, other, "must be a string")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Schema;

    #[test]
    fn embedded_object_needs_an_identity() {
        let inner = json!({"type": "object", "x-kubernetes-embedded-resource": true});
        let schema = Schema::parse(&json!({"properties": {"list": {"type": "array", "items": inner}}}));
        let object = json!({"list": [{"kind": "K", "apiVersion": "v1"}, {"kind": "?"}]});
        let causes = schema.expect("a schema").embedded_object_causes(&object);
        let reported: Vec<_> = causes.iter().map(|cause| (cause.field.as_str(), cause.reason)).collect();
        assert_eq!(reported, [("list[1].apiVersion", "FieldValueRequired"), ("list[1].kind", "FieldValueInvalid")]);
    }
}
