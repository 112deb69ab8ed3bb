//! Normalization of metadata to its typed form: known fields of the right type, without empty values.

use serde_json::{Map, Value};

use super::request::WriteTarget;
use super::validation;
use crate::metadata;
use crate::status::Status;

/// Type of a metadata field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Text,
    Number,
    /// A number that may be zero.
    AnyNumber,
    Texts,
    Map,
    Objects,
}

const FIELDS: &[(&str, Type)] = &[
    ("name", Type::Text),
    ("generateName", Type::Text),
    ("namespace", Type::Text),
    ("uid", Type::Text),
    ("resourceVersion", Type::Text),
    ("generation", Type::Number),
    ("creationTimestamp", Type::Text),
    ("deletionTimestamp", Type::Text),
    ("deletionGracePeriodSeconds", Type::AnyNumber),
    ("labels", Type::Map),
    ("annotations", Type::Map),
    ("ownerReferences", Type::Objects),
    ("finalizers", Type::Texts),
    ("managedFields", Type::Objects),
];

/// Removes all fields that a typed object does not have, and returns them. Rejects fields of a wrong type.
pub(super) fn metadata(object: &mut Value, target: &WriteTarget) -> Result<Vec<String>, Status> {
    let given = match object.get_mut("metadata").map(Value::take) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(unreadable(target, "metadata", &other)),
    };
    let typed = metadata::metadata_of(object);
    let mut unknown = Vec::new();
    for (key, value) in given {
        let Some((_, wanted)) = FIELDS.iter().find(|(name, _)| *name == key) else {
            // `selfLink` is deprecated and ignored.
            if key != "selfLink" {
                unknown.push(format!("unknown field \"metadata.{key}\""));
            }
            continue;
        };
        if let Some(value) = read(*wanted, value).map_err(|found| unreadable(target, &key, &found))? {
            typed.insert(key, value);
        }
    }
    Ok(unknown)
}

/// Returns the value; `None` for an empty one. The error is a value of a wrong type.
fn read(wanted: Type, value: Value) -> Result<Option<Value>, Value> {
    Ok(match (wanted, value) {
        // The real server decodes into a struct, where empty and absent values are equal.
        (_, Value::Null) => None,
        (Type::Text, Value::String(text)) => (!text.is_empty()).then(|| text.into()),
        (Type::Number, Value::Number(number)) => (number.as_i64() != Some(0)).then_some(Value::Number(number)),
        (Type::AnyNumber, Value::Number(number)) => Some(Value::Number(number)),
        (Type::Map, Value::Object(mut fields)) => {
            for value in fields.values_mut() {
                match value {
                    Value::Null => *value = "".into(),
                    Value::String(_) => {}
                    other => return Err(other.take()),
                }
            }
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
        (Type::Texts, Value::Array(mut items)) => {
            for value in &mut items {
                match value {
                    Value::Null => *value = "".into(),
                    Value::String(_) => {}
                    other => return Err(other.take()),
                }
            }
            (!items.is_empty()).then_some(Value::Array(items))
        }
        (Type::Objects, Value::Array(items)) => match items.iter().find(|item| !item.is_object()) {
            Some(other) => return Err(other.clone()),
            None => (!items.is_empty()).then_some(Value::Array(items)),
        },
        (_, other) => return Err(other),
    })
}

fn unreadable(target: &WriteTarget, field: &str, found: &Value) -> Status {
    let why = format_args!("metadata.{field} is not {found}");
    validation::unreadable(&target.resource.kind, target.version(), why)
}
