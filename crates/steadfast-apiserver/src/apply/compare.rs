//! Comparison of two objects of a type.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::items::{elements, items_of};
use super::path::PathElement;
use crate::merging::types::{ListAtom, MapAtom, MergeStrategy, Shape, TypeRef};

/// Added, changed and removed fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Difference {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Difference {
    /// Compares two objects.
    pub(super) fn between(type_ref: &TypeRef, old: &Value, new: &Value) -> Self {
        let mut difference = Self::default();
        difference.walk(type_ref, Some(old), Some(new), &mut Vec::new());
        difference
    }

    /// Removes the fields that the write cannot change, and the fields below them.
    pub(super) fn ignoring(self, ignored: &FieldSet) -> Self {
        Self {
            added: self.added.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            removed: self.removed.recursive_difference(ignored),
        }
    }

    /// Returns the managed fields that a manager loses: the changed and the removed ones.
    pub(super) fn lost_fields(&self, fields: &FieldSet) -> FieldSet {
        let changed = fields.intersection(&self.modified.union(&self.added));
        changed.union(&fields.intersection(&self.removed))
    }

    fn walk(&mut self, type_ref: &TypeRef, old: Option<&Value>, new: Option<&Value>, path: &mut Vec<PathElement>) {
        // Equal values have no difference below them. Most of a typical object ends here.
        if old.is_some() && old == new {
            return;
        }
        let atom = type_ref.atom();
        let (before, after) = (atom.shape(old), atom.shape(new));
        let was_compared_whole = if new.is_none() {
            self.compare_shape(&before, old, new, path)
        } else if old.is_none() || before.is_same(&after) {
            self.compare_shape(&after, old, new, path)
        } else {
            // The field changed its kind, for example from a list to a map. Both shapes are
            // compared.
            self.compare_shape(&before, old, new, path);
            self.compare_shape(&after, old, new, path)
        };
        // For an added or removed container, the set contains its own path in addition to the paths of its members.
        if !was_compared_whole && old.is_none() {
            self.added.insert(path);
        } else if !was_compared_whole && new.is_none() {
            self.removed.insert(path);
        }
    }

    /// Returns true if the value was compared as a whole.
    fn compare_shape(
        &mut self,
        shape: &Shape,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<PathElement>,
    ) -> bool {
        match shape {
            Shape::Map(map) => {
                let (before, after) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
                // Empty containers have no members to own, so they count as leaves.
                if map.is_atomic || before.is_none_or(Map::is_empty) && after.is_none_or(Map::is_empty) {
                    return self.compare_leaf(old, new, path);
                }
                self.compare_fields(map, before, after, path);
                false
            }
            Shape::List(list) => {
                let (before, after) = (items_of(old), items_of(new));
                if list.strategy == MergeStrategy::Atomic || before.is_empty() && after.is_empty() {
                    return self.compare_leaf(old, new, path);
                }
                self.compare_items(list, before, after, path);
                false
            }
            Shape::Scalar(_) => self.compare_leaf(old, new, path),
            Shape::NoValue => false,
        }
    }

    fn compare_leaf(&mut self, old: Option<&Value>, new: Option<&Value>, path: &[PathElement]) -> bool {
        if old.is_none() {
            self.added.insert(path);
        } else if new.is_none() {
            self.removed.insert(path);
        } else if !old.zip(new).is_some_and(|(old, new)| is_equal(old, new)) {
            self.modified.insert(path);
        }
        true
    }

    fn compare_fields(
        &mut self,
        map: &MapAtom,
        old: Option<&Map<String, Value>>,
        new: Option<&Map<String, Value>>,
        path: &mut Vec<PathElement>,
    ) {
        let keys: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
        for key in keys {
            let (before, after) = (old.and_then(|old| old.get(key)), new.and_then(|new| new.get(key)));
            path.push(PathElement::field(key));
            self.walk(map.field_type(key).unwrap_or(&TypeRef::Deduced), before, after, path);
            path.pop();
        }
    }

    fn compare_items(&mut self, list: &ListAtom, old: &[Value], new: &[Value], path: &mut Vec<PathElement>) {
        let mut items_by_element: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for (element, item) in elements(list, old) {
            items_by_element.entry(element).or_default().0.push(item);
        }
        // Keyed items are compared by key, not by index: a moved item is not a change.
        for (element, item) in elements(list, new) {
            items_by_element.entry(element).or_default().1.push(item);
        }
        for (element, (before, after)) in items_by_element {
            path.push(element);
            match (before.len(), after.len()) {
                (0 | 1, 0 | 1) => self.walk(&list.item, before.first().copied(), after.first().copied(), path),
                // Duplicates on both sides cannot be paired, so only their sequence is compared.
                (2.., 2..) => {
                    let are_equal =
                        before.len() == after.len() && before.iter().zip(&after).all(|(a, b)| is_equal(a, b));
                    if !are_equal {
                        self.modified.insert(path);
                    }
                }
                // Items with duplicate keys are compared as a whole.
                (2.., _) => {
                    if let Some(item) = after.first() {
                        self.walk(&list.item, None, Some(item), path);
                    }
                    self.removed.insert(path);
                }
                _ => {
                    if let Some(item) = before.first() {
                        self.walk(&list.item, Some(item), None, path);
                    }
                    self.added.insert(path);
                }
            }
            path.pop();
        }
    }
}

/// Returns whether two values are equal for field management. Numbers are compared by value: `2` equals `2.0`.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        // `1` and `1.0` are equal, as in structured-merge-diff.
        (Value::Number(one), Value::Number(other)) if one.is_f64() || other.is_f64() => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_same_entry =
                |(key, one): (&String, &Value)| other.get(key).is_some_and(|other| is_equal(one, other));
            one.len() == other.len() && one.iter().all(is_same_entry)
        }
        _ => one == other,
    }
}
