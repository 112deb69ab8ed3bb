//! Field sets of objects, and removal of fields from objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::items::{element_of, elements};
use super::path::PathElement;
use crate::merging::types::{MapAtom, MergeStrategy, Shape, TypeRef};

/// Returns the set of an object's fields.
pub(super) fn field_set(type_ref: &TypeRef, object: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    walk(type_ref, object, &mut Vec::new(), &mut set);
    set
}

fn walk(type_ref: &TypeRef, value: &Value, path: &mut Vec<PathElement>, set: &mut FieldSet) {
    match type_ref.atom().shape(Some(value)) {
        Shape::Scalar(_) => set.insert(path),
        Shape::Map(map) if map.is_atomic => set.insert(path),
        Shape::List(list) if list.strategy == MergeStrategy::Atomic => set.insert(path),
        Shape::Map(map) => {
            for (key, below) in value.as_object().into_iter().flatten() {
                path.push(PathElement::field(key));
                walk(map.field_type(key).unwrap_or(&TypeRef::Deduced), below, path, set);
                // A null or empty member has no deeper field that a manager can own, so the set contains the member
                // itself. The set also contains members that the type does not declare.
                let is_leaf = below.is_null() || below.as_object().is_some_and(Map::is_empty);
                if is_leaf || !map.declared_fields.contains_key(key) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Shape::List(list) => {
            let mut items: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
            for (element, item) in elements(list, value.as_array().map(Vec::as_slice).unwrap_or_default()) {
                // Items are grouped first: duplicates are known only at the end of the list.
                items.entry(element).or_default().push(item);
            }
            for (element, same_key_items) in items {
                path.push(element);
                // Items with duplicate keys count as a whole, without their members.
                if let [item] = same_key_items.as_slice() {
                    walk(&list.item, item, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        Shape::NoValue => {}
    }
}

/// Adds each declared member that contains fields of the set. [`field_set`] contains only the fields themselves.
pub(super) fn with_parents(type_ref: &TypeRef, set: &FieldSet) -> FieldSet {
    let atom = type_ref.atom();
    set.map_elements(&|element, is_member, below| match (element, &atom.map, &atom.list) {
        (PathElement::Field(name), Some(map), _) => {
            let is_named_container = map.declared_fields.contains_key(name) && !below.is_empty();
            (is_member || is_named_container, with_parents(map.field_type(name).unwrap_or(&TypeRef::Deduced), below))
        }
        (PathElement::Key(_), _, Some(list)) => (is_member, with_parents(&list.item, below)),
        _ => (is_member, below.clone()),
    })
}

/// Removes a set of fields, and the values that become empty. Returns `None` if nothing remains.
pub(super) fn remove_fields(type_ref: &TypeRef, value: &Value, removed: &FieldSet) -> Option<Value> {
    match type_ref.atom().shape(Some(value)) {
        Shape::Scalar(_) => Some(value.clone()),
        Shape::Map(map) if !map.is_atomic => remove_map_fields(map, value.as_object()?, removed),
        Shape::List(list) if list.strategy != MergeStrategy::Atomic => {
            let remaining = value.as_array()?.iter().filter_map(|item| {
                // An item without a path element has no owner, so no manager can remove the item.
                let Ok(element) = element_of(list, item) else { return Some(item.clone()) };
                match removed.below(&element) {
                    _ if removed.contains_element(&element) => None,
                    Some(below) => Some(remove_fields(&list.item, item, below).unwrap_or(Value::Null)),
                    None => Some(item.clone()),
                }
            });
            let remaining: Vec<Value> = remaining.collect();
            // A container without remaining fields disappears.
            (!remaining.is_empty()).then_some(Value::Array(remaining))
        }
        _ => None,
    }
}

fn remove_map_fields(map: &MapAtom, fields: &Map<String, Value>, removed: &FieldSet) -> Option<Value> {
    let mut remaining = Map::new();
    for (key, value) in fields {
        let element = PathElement::field(key);
        if removed.contains_element(&element) {
            continue;
        }
        let value = match removed.below(&element) {
            Some(below) => {
                remove_fields(map.field_type(key).unwrap_or(&TypeRef::Deduced), value, below).unwrap_or(Value::Null)
            }
            None => value.clone(),
        };
        remaining.insert(key.clone(), value);
    }
    (!remaining.is_empty()).then_some(Value::Object(remaining))
}
