//! Which value of an update was which before it: what did not change is not complained of.

use serde_json::Value;

use super::{ListType, Schema};

/// A value as it was before an update, and what is said of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before<'a> {
    pub(super) value: &'a Value,
    pub(super) schema: &'a Schema,
}

impl<'a> Before<'a> {
    /// A field of it, where both have it and something is said of it.
    pub(super) fn field(self, name: &str) -> Option<Self> {
        Some(Self { value: self.value.as_object()?.get(name)?, schema: self.schema.field(name)? })
    }

    /// The item that has the keys of a new one; only lists that are maps tell which is which.
    pub(super) fn item(self, new: &Value) -> Option<Self> {
        if self.schema.list_type != Some(ListType::Map) {
            return None;
        }
        let schema = self.schema.items.as_deref()?;
        let keys = &self.schema.list_map_keys;
        // What lacks a key is no other one's successor.
        let same = |old: &&'a Value| keys.iter().all(|key| new.get(key).is_some() && old.get(key) == new.get(key));
        let value = self.value.as_array()?.iter().find(same)?;
        Some(Self { value, schema })
    }

    /// Whether it is still the same; of fields of which nothing is said, nobody can tell.
    pub(super) fn is(self, new: &Value) -> bool {
        match (self.value, new) {
            (Value::Array(old), Value::Array(items)) if old.len() == items.len() => {
                if self.schema.list_type == Some(ListType::Map) && self.schema.items.is_some() {
                    return items.iter().all(|item| self.item(item).is_some_and(|before| before.is(item)));
                }
                old == items
            }
            (Value::Object(old), Value::Object(fields)) if old.len() == fields.len() => {
                fields.iter().all(|(name, value)| self.field(name).is_some_and(|before| before.is(value)))
            }
            (Value::Array(_) | Value::Object(_), _) => false,
            (old, new) => old == new,
        }
    }
}
