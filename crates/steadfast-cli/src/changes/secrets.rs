//! Removes the values of Secrets from everything that is printed. Only the names of keys remain.

use std::collections::BTreeSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::kind::Kind;
use super::path::{Path, Segment};

/// Text instead of a secret value.
pub(crate) const HIDDEN: &str = "***";

/// Minimum length of a secret value that is searched for in other fields. Shorter values occur by chance.
const MIN_SEARCHED_BYTES: usize = 4;

/// Fields of a Secret whose values are secret.
const SECRET_FIELDS: [&str; 2] = ["data", "stringData"];

/// Words in the names of annotations that store a copy of the object, often compressed.
const COPY_ANNOTATION_WORDS: [&str; 4] = ["last-applied", "original", "applied-config", "objectset"];

/// Removes secret values of one change or object.
pub(crate) struct Redaction {
    /// Values that must not appear in other fields either, encoded and decoded.
    values: BTreeSet<String>,
}

impl Redaction {
    /// Returns the redaction for states of an object of `kind`; `None` if the kind has no secret values.
    pub(crate) fn for_kind(kind: &Kind, states: &[&Value]) -> Option<Self> {
        if !kind.is_secret() {
            return None;
        }
        let mut values = BTreeSet::new();
        for (field, state) in SECRET_FIELDS.iter().flat_map(|field| states.iter().map(move |state| (*field, state))) {
            let fields = state.get(field).and_then(Value::as_object);
            for text in fields.into_iter().flat_map(|fields| fields.values()).filter_map(Value::as_str) {
                let decoded = BASE64_STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                let encoded_and_decoded = [Some(text.to_owned()), decoded].into_iter().flatten();
                values.extend(encoded_and_decoded.filter(|value| value.len() >= MIN_SEARCHED_BYTES));
            }
        }
        Some(Self { values })
    }

    /// Returns `value`, which is at `path`, without secret values.
    pub(crate) fn value(&self, path: &Path<'_>, value: &Value) -> Value {
        let names = path.0.iter().filter_map(|segment| match segment {
            Segment::Field(name) => Some(*name),
            _ => None,
        });
        self.redact_copy(&names.collect::<Vec<_>>(), value)
    }

    /// Returns a whole object without secret values.
    pub(crate) fn object(&self, object: &Value) -> Value {
        self.redact_copy(&[], object)
    }

    fn redact_copy(&self, names: &[&str], value: &Value) -> Value {
        let mut redacted = value.clone();
        self.redact(names, &mut redacted);
        redacted
    }

    fn redact(&self, names: &[&str], value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields.iter_mut() {
                    let nested_names = [names, &[name.as_str()]].concat();
                    self.redact(&nested_names, field);
                }
            }
            Value::Array(elements) => elements.iter_mut().for_each(|element| self.redact(names, element)),
            _ if is_secret(names) => *value = HIDDEN.into(),
            Value::String(text)
                if (is_copy(names, text) || self.values.iter().any(|secret| text.contains(secret.as_str()))) =>
            {
                *value = HIDDEN.into();
            }
            _ => {}
        }
    }
}

/// Returns whether the field is secret, or is below a secret field.
fn is_secret(names: &[&str]) -> bool {
    names.first().is_some_and(|first| SECRET_FIELDS.contains(first))
}

/// Returns whether an annotation is a copy of the object, as `kubectl apply` writes it.
fn is_copy(names: &[&str], text: &str) -> bool {
    let ["metadata", "annotations", name, ..] = names else { return false };
    let is_document = text.trim_start().starts_with(['{', '[']);
    is_document || COPY_ANNOTATION_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::changes::diff::{Detail, diff};

    fn secret(password: &str) -> Value {
        let applied = json!({"data": {"password": password}}).to_string();
        json!({
            "metadata": {
                "name": "db",
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": applied,
                    "example.com/original": "H4sIAAAA",
                    "example.com/note": format!("the password is {password}"),
                    "example.com/owner": "team-a",
                },
            },
            "data": {"password": password, "user": "YWRtaW4="},
            "stringData": {"plain": "opensesame"},
            "type": "Opaque",
        })
    }

    #[test]
    fn secret_values_are_removed_everywhere() {
        let old = secret("cGxhbnRlZDE=");
        let redaction = Redaction::for_kind(&Kind::new("", "Secret"), &[&old]).expect("a secret");
        let object = redaction.object(&old);
        let text = object.to_string();
        for planted in ["cGxhbnRlZDE=", "planted1", "YWRtaW4=", "opensesame", "H4sI"] {
            assert!(!text.contains(planted), "{planted} in {text}");
        }
        assert_eq!(object["metadata"]["annotations"]["example.com/owner"], "team-a");
        assert_eq!((&object["type"], &object["data"]["password"]), (&json!("Opaque"), &json!(HIDDEN)));
    }

    #[test]
    fn secret_values_of_changes_are_removed() {
        let (old, new) = (secret("cGxhbnRlZDE="), secret("cGxhbnRlZDI="));
        let redaction = Redaction::for_kind(&Kind::new("", "Secret"), &[&old, &new]).expect("a secret");
        let empty = json!({});
        for (old, new) in [(&old, &new), (&empty, &new), (&old, &empty)] {
            for detail in [Detail::Subtrees, Detail::Leaves] {
                for change in diff(old, new, detail) {
                    for value in [&change.old, &change.new].into_iter().flatten() {
                        let text = redaction.value(&change.path, value).to_string();
                        for planted in ["cGxhbnRlZD", "planted", "YWRtaW4=", "opensesame"] {
                            assert!(!text.contains(planted), "{planted} in {}: {text}", change.path);
                        }
                    }
                }
            }
        }
        assert!(Redaction::for_kind(&Kind::new("", "ConfigMap"), &[&old]).is_none());
    }
}
