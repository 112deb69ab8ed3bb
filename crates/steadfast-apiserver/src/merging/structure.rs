//! Forms of objects in the structs of a real server.

use serde_json::{Map, Value};

use super::types::{OBJECT_META, Shape, StructField, TypeRef};

/// Converts an object to the form of the real server's typed structs. Adds the fields that the structs always contain,
/// and removes the empty fields that they omit.
pub(crate) fn as_struct(type_ref: &TypeRef, value: &Value) -> Value {
    to_struct_form(type_ref, value, true)
}

/// Converts an object to the form that a real server stores: without null values, and without the empty lists and maps
/// that its structs omit.
pub(crate) fn trimmed(type_ref: &TypeRef, value: &Value) -> Value {
    to_struct_form(type_ref, value, false)
}

fn to_struct_form(type_ref: &TypeRef, value: &Value, fills_absent: bool) -> Value {
    match (type_ref.atom().shape(Some(value)), value) {
        (Shape::Map(map), Value::Object(fields)) => {
            let mut kept = Map::new();
            for (key, value) in fields {
                let value = map
                    .field_type(key)
                    .map_or_else(|| value.clone(), |type_ref| to_struct_form(type_ref, value, fills_absent));
                if map.declared_fields.get(key).is_none_or(|field| !is_omitted(field, &value)) {
                    kept.insert(key.clone(), value);
                }
            }
            for (key, field) in map.declared_fields.iter().filter(|_| fills_absent) {
                if let (Some(absent_value), false) = (&field.absent_value, kept.contains_key(key)) {
                    kept.insert(key.clone(), to_struct_form(&field.type_ref, absent_value, fills_absent));
                }
            }
            Value::Object(kept)
        }
        (Shape::List(list), Value::Array(items)) => {
            items.iter().map(|item| to_struct_form(&list.item, item, fills_absent)).collect()
        }
        _ => value.clone(),
    }
}

/// Returns whether structs omit the value: null, and empty lists and maps, but not other structs.
fn is_omitted(field: &StructField, value: &Value) -> bool {
    let is_map = || {
        let other_fields = field.type_ref.atom().map.as_ref().and_then(|map| map.other_fields.as_ref());
        other_fields.is_some_and(|other_fields| *other_fields != TypeRef::Deduced)
    };
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty() && field.absent_value.is_none(),
        Value::Object(fields) => fields.is_empty() && field.absent_value.is_none() && is_map(),
        _ => false,
    }
}

/// Removes the fields that a real server would not store from an object of a type. Of a custom resource, only
/// the metadata has a type.
pub(crate) fn trim(type_ref: &TypeRef, is_custom: bool, object: &mut Value) {
    if !is_custom {
        *object = trimmed(type_ref, object);
    } else if let Some(metadata) = object.get_mut("metadata") {
        *metadata = trimmed(&TypeRef::Named(OBJECT_META), metadata);
    }
}
