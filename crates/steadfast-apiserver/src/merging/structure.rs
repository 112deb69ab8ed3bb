//! Forms of objects in the structs of a real server.

use serde_json::{Map, Value};

use super::types::{OBJECT_META, Shape, StructField, TypeRef};

/// Converts an object to the form of the real server's typed structs. Adds the fields that the structs always contain,
/// and removes the empty fields that they omit.
pub(crate) fn as_struct(of: &TypeRef, value: &Value) -> Value {
    structured(of, value, true)
}

/// Converts an object to the form that a real server stores: without null values, and without the empty lists and maps
/// that its structs omit.
pub(crate) fn trimmed(of: &TypeRef, value: &Value) -> Value {
    structured(of, value, false)
}

fn structured(of: &TypeRef, value: &Value, fill: bool) -> Value {
    match (of.atom().shape(Some(value)), value) {
        (Shape::Map(map), Value::Object(fields)) => {
            let mut kept = Map::new();
            for (key, value) in fields {
                let value = map.of(key).map_or_else(|| value.clone(), |of| structured(of, value, fill));
                if map.named.get(key).is_none_or(|field| !is_left_out(field, &value)) {
                    kept.insert(key.clone(), value);
                }
            }
            for (key, field) in map.named.iter().filter(|_| fill) {
                if let (Some(always), false) = (&field.always, kept.contains_key(key)) {
                    kept.insert(key.clone(), structured(&field.of, always, fill));
                }
            }
            Value::Object(kept)
        }
        (Shape::List(list), Value::Array(items)) => {
            items.iter().map(|item| structured(&list.item, item, fill)).collect()
        }
        _ => value.clone(),
    }
}

/// Returns whether structs omit the value: null, and empty lists and maps, but not other structs.
fn is_left_out(field: &StructField, value: &Value) -> bool {
    let is_map = || {
        let others = field.of.atom().map.as_ref().and_then(|map| map.others.as_ref());
        others.is_some_and(|others| *others != TypeRef::Deduced)
    };
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty() && field.always.is_none(),
        Value::Object(fields) => fields.is_empty() && field.always.is_none() && is_map(),
        _ => false,
    }
}

/// Removes the fields that a real server would not store from an object of a type. Of a custom resource, only
/// the metadata has a type.
pub(crate) fn trim(of: &TypeRef, is_custom: bool, object: &mut Value) {
    if !is_custom {
        *object = trimmed(of, object);
    } else if let Some(metadata) = object.get_mut("metadata") {
        *metadata = trimmed(&TypeRef::Named(OBJECT_META), metadata);
    }
}
