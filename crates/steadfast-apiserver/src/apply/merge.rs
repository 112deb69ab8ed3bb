//! Merge of an applied object into the live one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::items::{elements, items_of};
use super::path::PathElement;
use crate::merging::types::{ListAtom, MergeStrategy, Shape, TypeRef};

/// Merges the applied object into the live one. Returns `None` if both are absent, or if nothing remains.
pub(super) fn merged(type_ref: &TypeRef, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let atom = type_ref.atom();
    // Fields outside the applied object stay.
    let Some(applied_value) = applied else { return live.cloned() };
    let shape = atom.shape(applied);
    // A live value of another shape has nothing to merge with. The applied value replaces it.
    let has_same_shape = live.is_none() || atom.shape(live).is_same(&shape);
    match shape {
        Shape::Map(map) if !map.is_atomic => {
            let before = live.and_then(Value::as_object);
            let after = applied_value.as_object();
            // The applied value is the result, `{}` or `null`, in two cases: both maps are empty, or `null` is applied
            // to a live value of another shape.
            if before.is_none_or(Map::is_empty) && after.is_none_or(Map::is_empty) || !has_same_shape && after.is_none()
            {
                return Some(applied_value.clone());
            }
            let mut fields = Map::new();
            let keys: BTreeSet<&String> = before.into_iter().chain(after).flat_map(Map::keys).collect();
            for key in keys {
                let type_ref = map.field_type(key).unwrap_or(&TypeRef::Deduced);
                let (live, applied) =
                    (before.and_then(|fields| fields.get(key)), after.and_then(|fields| fields.get(key)));
                if let Some(value) = merged(type_ref, live, applied) {
                    fields.insert(key.clone(), value);
                }
            }
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
        Shape::List(list) if list.strategy != MergeStrategy::Atomic => {
            let (before, after) = (items_of(live), items_of(applied));
            if before.is_empty() && after.is_empty() {
                return Some(applied_value.clone());
            }
            let items = merged_items(list, before, after);
            (!items.is_empty()).then_some(Value::Array(items))
        }
        _ => Some(applied_value.clone()),
    }
}

/// Merges list items in the order of the applied list. Items that only the live list contains stay next to their
/// neighbours.
fn merged_items(list: &ListAtom, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let (live, applied) = (elements(list, live), elements(list, applied));
    let applied_elements: BTreeMap<&PathElement, usize> =
        applied.iter().enumerate().map(|(index, (element, _))| (element, index)).collect();
    let mut before: BTreeMap<&PathElement, Option<&Value>> = BTreeMap::new();
    for (element, item) in &live {
        // `None` marks a key that occurs twice. An applied item with this key is not merged with a live item.
        before.entry(element).and_modify(|found| *found = None).or_insert(Some(item));
    }
    let mut shared_elements =
        applied.iter().map(|(element, _)| element).filter(|element| before.contains_key(element)).peekable();
    let merge = |element: &PathElement, item: &Value| {
        merged(&list.item, before.get(element).copied().flatten(), Some(item)).unwrap_or(Value::Null)
    };
    let mut items = Vec::new();
    let mut placed: BTreeSet<&PathElement> = BTreeSet::new();
    let (mut live_index, mut applied_index) = (0, 0);
    // Merges two orders: applied items keep their order, and other live items stay next to their
    // neighbours.
    while live_index < live.len() || applied_index < applied.len() {
        if let (Some((element, _)), Some((applied_element, item))) = (live.get(live_index), applied.get(applied_index))
        {
            if element == applied_element {
                placed.insert(element);
                items.push(merge(element, item));
                (live_index, applied_index) = (live_index + 1, applied_index + 1);
                shared_elements.next();
                continue;
            }
            // The applied list contains the live item at a later position, and the applied order takes precedence.
            if applied_elements.contains_key(element) && shared_elements.peek().is_some_and(|next| *next != element) {
                live_index += 1;
                continue;
            }
        }
        if let Some((element, item)) = live.get(live_index) {
            if !applied_elements.contains_key(element) {
                items.push((*item).clone());
                live_index += 1;
                continue;
            }
            // An item that the applied order has already placed must not appear again.
            if placed.contains(element) {
                live_index += 1;
            }
        }
        if let Some((element, item)) = applied.get(applied_index) {
            placed.insert(element);
            items.push(merge(element, item));
            applied_index += 1;
            if shared_elements.peek().is_some_and(|next| *next == element) {
                shared_elements.next();
            }
        }
    }
    items
}
