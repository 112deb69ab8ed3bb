//! Identity of list items.

use serde_json::Value;

use super::path::PathElement;
use crate::merging::types::{ListAtom, MergeStrategy};

/// Returns the path element of an item in a merged list. The error is the real server's message.
pub(super) fn element_of(list: &ListAtom, item: &Value) -> Result<PathElement, String> {
    match &list.strategy {
        MergeStrategy::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        MergeStrategy::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(PathElement::Value(scalar.clone())),
        },
        MergeStrategy::Keys(keys) => element_by_keys(list, keys, item),
    }
}

fn element_by_keys(list: &ListAtom, keys: &[String], item: &Value) -> Result<PathElement, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    // A missing key takes the schema's default, for example `protocol: TCP` of a container port.
    let defaults = list.item.atom().map.as_ref();
    let default =
        |key: &String| defaults.and_then(|map| map.declared_fields.get(key)).and_then(|field| field.default.as_ref());
    // A key without a value and without a default is omitted from the path. At least one key must remain.
    let key_fields: Vec<(String, Value)> =
        keys.iter().filter_map(|key| Some((key.clone(), fields.get(key).or_else(|| default(key))?.clone()))).collect();
    if key_fields.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values \
             for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(PathElement::Key(key_fields))
}

/// Returns the items of a list with their path elements. Items without an element are omitted.
pub(super) fn elements<'a>(list: &ListAtom, items: &'a [Value]) -> Vec<(PathElement, &'a Value)> {
    items.iter().filter_map(|item| Some((element_of(list, item).ok()?, item))).collect()
}

/// Returns the items of a list; none for other values.
pub(super) fn items_of(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
