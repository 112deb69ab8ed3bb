//! Normalization of metadata to its typed form: known fields of the right type, without empty values.

use serde_json::{Map, Value};

use super::request::WriteTarget;
use super::validation;
use crate::metadata;
use crate::status::Status;

/// Type of a metadata field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetadataFieldType {
    Text,
    Number,
    /// A number that may be zero.
    NumberOrZero,
    TextList,
    Map,
    ObjectList,
}

const METADATA_FIELD_TYPES: &[(&str, MetadataFieldType)] = &[
    ("name", MetadataFieldType::Text),
    ("generateName", MetadataFieldType::Text),
    ("namespace", MetadataFieldType::Text),
    ("uid", MetadataFieldType::Text),
    ("resourceVersion", MetadataFieldType::Text),
    ("generation", MetadataFieldType::Number),
    ("creationTimestamp", MetadataFieldType::Text),
    ("deletionTimestamp", MetadataFieldType::Text),
    ("deletionGracePeriodSeconds", MetadataFieldType::NumberOrZero),
    ("labels", MetadataFieldType::Map),
    ("annotations", MetadataFieldType::Map),
    ("ownerReferences", MetadataFieldType::ObjectList),
    ("finalizers", MetadataFieldType::TextList),
    ("managedFields", MetadataFieldType::ObjectList),
];

/// Removes all fields that a typed object does not have, and returns them. Rejects fields of a wrong type.
pub(super) fn normalize_metadata(object: &mut Value, target: &WriteTarget) -> Result<Vec<String>, Status> {
    let fields = match object.get_mut("metadata").map(Value::take) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(wrong_type(target, "metadata", &other)),
    };
    let typed = metadata::metadata_mut(object);
    let mut unknown = Vec::new();
    for (key, value) in fields {
        let Some((_, field_type)) = METADATA_FIELD_TYPES.iter().find(|(name, _)| *name == key) else {
            // `selfLink` is deprecated and ignored.
            if key != "selfLink" {
                unknown.push(format!("unknown field \"metadata.{key}\""));
            }
            continue;
        };
        if let Some(value) = typed_value(*field_type, value).map_err(|found| wrong_type(target, &key, &found))? {
            typed.insert(key, value);
        }
    }
    Ok(unknown)
}

/// Returns the value; `None` for an empty one. The error is a value of a wrong type.
fn typed_value(field_type: MetadataFieldType, value: Value) -> Result<Option<Value>, Value> {
    Ok(match (field_type, value) {
        // The real server decodes into a struct, where empty and absent values are equal.
        (_, Value::Null) => None,
        (MetadataFieldType::Text, Value::String(text)) => (!text.is_empty()).then(|| text.into()),
        (MetadataFieldType::Number, Value::Number(number)) => {
            (number.as_i64() != Some(0)).then_some(Value::Number(number))
        }
        (MetadataFieldType::NumberOrZero, Value::Number(number)) => Some(Value::Number(number)),
        (MetadataFieldType::Map, Value::Object(mut fields)) => {
            for value in fields.values_mut() {
                match value {
                    Value::Null => *value = "".into(),
                    Value::String(_) => {}
                    other => return Err(other.take()),
                }
            }
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
        (MetadataFieldType::TextList, Value::Array(mut items)) => {
            for value in &mut items {
                match value {
                    Value::Null => *value = "".into(),
                    Value::String(_) => {}
                    other => return Err(other.take()),
                }
            }
            (!items.is_empty()).then_some(Value::Array(items))
        }
        (MetadataFieldType::ObjectList, Value::Array(items)) => match items.iter().find(|item| !item.is_object()) {
            Some(other) => return Err(other.clone()),
            None => (!items.is_empty()).then_some(Value::Array(items)),
        },
        (_, other) => return Err(other),
    })
}

fn wrong_type(target: &WriteTarget, field: &str, found: &Value) -> Status {
    let detail = format_args!("metadata.{field} is not {found}");
    validation::undecodable_object(&target.resource.kind, target.version(), detail)
}
