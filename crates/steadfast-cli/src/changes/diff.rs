//! Exact structural difference between two states of an object.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::merge_keys::{self, Keys};
use super::path::{Path, Segment};

/// Change of one field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change<'a> {
    /// The field.
    pub(crate) path: Path<'a>,
    /// Previous value; `None` if the field was absent.
    pub(crate) old: Option<Cow<'a, Value>>,
    /// Current value; `None` if the field was removed.
    pub(crate) new: Option<Cow<'a, Value>>,
}

impl Change<'_> {
    /// Returns `{"path": …, "old": …, "new": …}`. `old` is missing for an added field, and `new` for a removed one.
    pub(crate) fn to_json(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("path".to_owned(), self.path.to_string().into());
        for (name, value) in [("old", &self.old), ("new", &self.new)] {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value.clone().into_owned());
            }
        }
        Value::Object(fields)
    }
}

/// Granularity of added and removed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// An added or removed subtree is one change.
    Subtrees,
    /// An added or removed subtree is one change per leaf.
    Leaves,
}

/// Returns all changes from `old` to `new`.
///
/// For each list, the changed and removed elements come first, then the added elements, and then a change of the order.
/// An added element counts as appended to the list.
pub(crate) fn diff<'a>(old: &'a Value, new: &'a Value, detail: Detail) -> Vec<Change<'a>> {
    let mut walk = DiffWalk { path: Path::default(), changes: Vec::new(), detail };
    walk.compare(Some(old), Some(new));
    walk.changes
}

struct DiffWalk<'a> {
    path: Path<'a>,
    changes: Vec<Change<'a>>,
    detail: Detail,
}

impl<'a> DiffWalk<'a> {
    fn compare(&mut self, old: Option<&'a Value>, new: Option<&'a Value>) {
        let splits_subtrees = self.detail == Detail::Leaves;
        match (old, new) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => self.compare_fields(Some(old), Some(new)),
            (Some(Value::Object(old)), None) if splits_subtrees && !old.is_empty() => {
                self.compare_fields(Some(old), None);
            }
            (None, Some(Value::Object(new))) if splits_subtrees && !new.is_empty() => {
                self.compare_fields(None, Some(new));
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => self.compare_lists(old, new),
            (Some(Value::Array(old)), None) if splits_subtrees && !old.is_empty() => self.add_or_remove_list(old, true),
            (None, Some(Value::Array(new))) if splits_subtrees && !new.is_empty() => {
                self.add_or_remove_list(new, false);
            }
            (old, new) if old == new => {}
            (old, new) => self.push(old.map(Cow::Borrowed), new.map(Cow::Borrowed)),
        }
    }

    fn push(&mut self, old: Option<Cow<'a, Value>>, new: Option<Cow<'a, Value>>) {
        self.changes.push(Change { path: self.path.clone(), old, new });
    }

    /// Compares two values below `segment`.
    fn compare_below(&mut self, segment: Segment<'a>, old: Option<&'a Value>, new: Option<&'a Value>) {
        self.path.0.push(segment);
        self.compare(old, new);
        self.path.0.pop();
    }

    fn compare_fields(&mut self, old: Option<&'a Map<String, Value>>, new: Option<&'a Map<String, Value>>) {
        for (name, value) in old.into_iter().flatten() {
            self.compare_below(Segment::Field(name), Some(value), new.and_then(|new| new.get(name)));
        }
        let is_added = |name: &str| old.is_none_or(|old| !old.contains_key(name));
        for (name, value) in new.into_iter().flatten().filter(|(name, _)| is_added(name)) {
            self.compare_below(Segment::Field(name), None, Some(value));
        }
    }

    fn find_keys(&self, old: &[Value], new: &[Value]) -> Option<Keys> {
        merge_keys::find_keys(self.path.last_field().unwrap_or_default(), old, new)
    }

    fn compare_lists(&mut self, old: &'a Vec<Value>, new: &'a Vec<Value>) {
        // Most lists are equal, and the search for keys costs more than the comparison.
        if old == new {
            return;
        }
        if let Some(keys) = self.find_keys(old, new) {
            return self.compare_by_key(keys, old, new);
        }
        let common_length = old.len().min(new.len());
        if old.len() == new.len() && old.iter().chain(new).all(Value::is_object) {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                self.compare_below(Segment::Index(index), Some(old), Some(new));
            }
        } else if old.iter().chain(new).all(Value::is_object) && old[..common_length] == new[..common_length] {
            // Removals are listed from the end, so that the positions of earlier elements remain valid.
            for (index, value) in old.iter().enumerate().skip(common_length).rev() {
                self.compare_below(Segment::Index(index), Some(value), None);
            }
            for (index, value) in new.iter().enumerate().skip(common_length) {
                self.compare_below(Segment::Index(index), None, Some(value));
            }
        } else {
            self.push_whole_lists(old, new);
        }
    }

    fn push_whole_lists(&mut self, old: &[Value], new: &[Value]) {
        let (old, new) = (Value::Array(old.to_vec()), Value::Array(new.to_vec()));
        self.push(Some(Cow::Owned(old)), Some(Cow::Owned(new)));
    }

    /// Adds the changes of an added or removed list, by element if its elements have keys.
    fn add_or_remove_list(&mut self, list: &'a Vec<Value>, is_removed: bool) {
        let Some(keys) = self.find_keys(list, &[]) else {
            let list = Some(Cow::Owned(Value::Array(list.clone())));
            return if is_removed { self.push(list, None) } else { self.push(None, list) };
        };
        for element in list {
            let (old, new) = if is_removed { (Some(element), None) } else { (None, Some(element)) };
            self.compare_below(segment(keys, element), old, new);
        }
    }

    fn compare_by_key(&mut self, keys: Keys, old: &'a [Value], new: &'a [Value]) {
        let with_identities = |list: &'a [Value]| -> Vec<(String, &'a Value)> {
            list.iter().map(|element| (merge_keys::identity(keys, element), element)).collect()
        };
        let (old, new) = (with_identities(old), with_identities(new));
        let new_by_identity: BTreeMap<&str, &Value> =
            new.iter().map(|(identity, element)| (identity.as_str(), *element)).collect();
        let old_by_identity: BTreeMap<&str, &Value> =
            old.iter().map(|(identity, element)| (identity.as_str(), *element)).collect();
        // The order of the elements without a change of the order: kept elements, and then added elements.
        let mut order: Vec<&Value> = Vec::new();
        for (identity, element) in &old {
            let successor = new_by_identity.get(identity.as_str()).copied();
            self.compare_below(segment(keys, element), Some(element), successor);
            order.extend(successor);
        }
        for (identity, element) in &new {
            if !old_by_identity.contains_key(identity.as_str()) {
                self.compare_below(segment(keys, element), None, Some(element));
                order.push(element);
            }
        }
        if order.iter().zip(&new).any(|(ordered, (_, element))| !std::ptr::eq(*ordered, *element)) {
            let identities = |elements: &[&Value]| {
                let keys_of = |element: &&Value| match keys {
                    [key] => element[*key].clone(),
                    keys => keys.iter().map(|key| element[*key].clone()).collect(),
                };
                Some(Cow::Owned(elements.iter().map(keys_of).collect::<Value>()))
            };
            let new: Vec<&Value> = new.iter().map(|(_, element)| *element).collect();
            self.path.0.push(Segment::Order(keys));
            self.push(identities(&order), identities(&new));
            self.path.0.pop();
        }
    }
}

fn segment(keys: Keys, element: &Value) -> Segment<'_> {
    Segment::Element(keys.iter().map(|key| (*key, element.get(*key))).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(old: &Value, new: &Value, detail: Detail) -> Vec<String> {
        let value_text = |value: &Option<Cow<'_, Value>>| value.as_ref().map_or("-".to_owned(), ToString::to_string);
        let line =
            |change: &Change<'_>| format!("{} {} {}", change.path, value_text(&change.old), value_text(&change.new));
        diff(old, new, detail).iter().map(line).collect()
    }

    #[test]
    fn equal_objects_have_no_changes() {
        let object = json!({"spec": {"containers": [{"name": "a"}], "args": ["x"]}, "empty": {}, "none": null});
        assert_eq!(diff(&object, &object.clone(), Detail::Leaves), []);
    }

    #[test]
    fn list_elements_are_matched_by_key() {
        let old = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]});
        let new = json!({"containers": [{"name": "b", "image": "2"}, {"name": "c"}]});
        let expected = [
            r#"containers[name=a] {"image":"1","name":"a"} -"#,
            r#"containers[name=b].image "1" "2""#,
            r#"containers[name=c] - {"name":"c"}"#,
        ];
        assert_eq!(lines(&old, &new, Detail::Subtrees), expected);
    }

    #[test]
    fn changed_order_is_one_change() {
        let old = json!({"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]});
        let new = json!({"conditions": [{"type": "B"}, {"type": "A", "status": "False"}]});
        let expected = [r#"conditions[type=A].status "True" "False""#, r#"conditions[type] ["A","B"] ["B","A"]"#];
        assert_eq!(lines(&old, &new, Detail::Subtrees), expected);
    }

    #[test]
    fn ambiguous_keys_compare_whole_lists() {
        let old = json!({"env": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]});
        let new = json!({"env": [{"name": "a", "value": "3"}]});
        assert_eq!(lines(&old, &new, Detail::Subtrees).len(), 1);
        assert_eq!(lines(&json!({"args": ["a"]}), &json!({"args": ["b"]}), Detail::Leaves), [r#"args ["a"] ["b"]"#]);
    }

    #[test]
    fn added_subtree_is_one_or_many() {
        let (old, new) = (json!({}), json!({"status": {"phase": "Pending", "podIPs": [{"ip": "10.0.0.1"}]}}));
        assert_eq!(lines(&old, &new, Detail::Subtrees).len(), 1);
        let expected = [r#"status.phase - "Pending""#, r#"status.podIPs[ip="10.0.0.1"].ip - "10.0.0.1""#];
        assert_eq!(lines(&old, &new, Detail::Leaves), expected);
    }
}
