//! Correlation of the values before and after an update. Unchanged values are not rejected.

use serde_json::Value;

use super::{ListType, Schema};

/// Value before an update, with its schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct OldValue<'a> {
    pub(super) value: &'a Value,
    pub(super) schema: &'a Schema,
}

impl<'a> OldValue<'a> {
    /// Returns a field, if the value and the schema contain it.
    pub(super) fn field(self, name: &str) -> Option<Self> {
        Some(Self { value: self.value.as_object()?.get(name)?, schema: self.schema.field(name)? })
    }

    /// Returns the earlier item with the same keys as the item `new`. Only items of lists that are maps have keys.
    pub(super) fn item(self, new: &Value) -> Option<Self> {
        // Only items of a list map have an identity across writes.
        if self.schema.list_type != Some(ListType::Map) {
            return None;
        }
        let schema = self.schema.items.as_deref()?;
        let keys = &self.schema.list_map_keys;
        // An item without a key has no predecessor.
        let has_same_keys =
            |old: &&'a Value| keys.iter().all(|key| new.get(key).is_some() && old.get(key) == new.get(key));
        let value = self.value.as_array()?.iter().find(has_same_keys)?;
        Some(Self { value, schema })
    }

    /// Returns whether the value is unchanged. Fields without a schema count as changed.
    pub(super) fn is_unchanged(self, new: &Value) -> bool {
        match (self.value, new) {
            // The order of a list map does not matter. Items of other lists are compared in order.
            (Value::Array(old), Value::Array(items)) if old.len() == items.len() => {
                if self.schema.list_type == Some(ListType::Map) && self.schema.items.is_some() {
                    return items.iter().all(|item| self.item(item).is_some_and(|before| before.is_unchanged(item)));
                }
                old == items
            }
            (Value::Object(old), Value::Object(fields)) if old.len() == fields.len() => {
                fields.iter().all(|(name, value)| self.field(name).is_some_and(|before| before.is_unchanged(value)))
            }
            (Value::Array(_) | Value::Object(_), _) => false,
            (old, new) => old == new,
        }
    }
}
