//! The columns of the built-in kinds, as `kubectl get` shows them.

mod cells;
mod columns;
pub(super) mod defined;
mod network;
mod pods;
mod volumes;

use serde_json::Value;

use crate::clock::Clock;
use crate::resources::ServedResource;
use crate::storage::metadata;

/// A column of a table.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// The type of its cells: `string`, `integer`, `boolean` or `date`.
    pub(super) kind: &'static str,
    /// Shown with `-o wide` alone.
    pub(super) wide: bool,
    cell: Cell,
}

/// Where the content of a cell comes from.
#[derive(Clone, Copy)]
enum Cell {
    Name,
    /// How long ago the object was created.
    Age,
    /// When the object was created.
    Created,
    /// The text at a JSON pointer, or what stands for its absence.
    Text(&'static str, &'static str),
    /// The number at a JSON pointer, or 0.
    Number(&'static str),
    /// The flag at a JSON pointer, or false.
    Flag(&'static str),
    /// How many items are at a JSON pointer.
    Count(&'static str),
    /// Anything that takes more than a look at one place.
    Made(fn(&Row) -> Value),
}

/// An object, and the time at which it is shown.
struct Row<'a> {
    object: &'a Value,
    clock: &'a Clock,
}

/// The columns of a resource's table.
pub(super) fn columns(resource: &ServedResource) -> &'static [Column] {
    if resource.custom { columns::CUSTOM } else { columns::of(resource.name.group(), &resource.kind) }
}

impl Column {
    /// The column's cell for an object.
    pub(super) fn cell(&self, object: &Value, clock: &Clock) -> Value {
        let row = Row { object, clock };
        match self.cell {
            Cell::Name => row.meta("name").into(),
            Cell::Age => row.since(row.meta("creationTimestamp")).into(),
            Cell::Created => row.meta("creationTimestamp").into(),
            Cell::Text(path, absent) => row.text_or(path, absent).into(),
            Cell::Number(path) => row.number(path).into(),
            Cell::Flag(path) => row.is(path).into(),
            Cell::Count(path) => row.count(path).into(),
            Cell::Made(make) => make(&row),
        }
    }

    /// What the column is about, for those that every kind has.
    pub(super) fn description(&self) -> &'static str {
        match self.cell {
            Cell::Name => "The name, unique within a namespace.",
            Cell::Age => "The time since the object was created.",
            Cell::Created => "When the object was created.",
            _ => "",
        }
    }

    /// `name` marks the column that identifies an object.
    pub(super) fn format(&self) -> &'static str {
        if matches!(self.cell, Cell::Name) { "name" } else { "" }
    }
}

impl<'a> Row<'a> {
    fn meta(&self, key: &str) -> &'a str {
        metadata::text(self.object, key)
    }

    fn text(&self, path: &str) -> &'a str {
        self.object.pointer(path).and_then(Value::as_str).unwrap_or_default()
    }

    fn text_or(&self, path: &str, absent: &str) -> String {
        match self.object.pointer(path) {
            Some(Value::String(text)) if !text.is_empty() => text.clone(),
            None | Some(Value::Null | Value::String(_)) => absent.to_owned(),
            Some(other) => other.to_string(),
        }
    }

    fn number(&self, path: &str) -> i64 {
        self.number_or(path, 0)
    }

    fn number_or(&self, path: &str, absent: i64) -> i64 {
        self.object.pointer(path).and_then(Value::as_i64).unwrap_or(absent)
    }

    fn is(&self, path: &str) -> bool {
        self.object.pointer(path).and_then(Value::as_bool).unwrap_or(false)
    }

    fn items(&self, path: &str) -> &'a [Value] {
        self.object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    fn count(&self, path: &str) -> usize {
        match self.object.pointer(path) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(items)) => items.len(),
            _ => 0,
        }
    }

    /// Whether there is a time at which it is to be gone.
    fn is_ending(&self) -> bool {
        !self.meta("deletionTimestamp").is_empty()
    }

    /// The status of a condition, empty where there is none.
    fn condition(&self, kind: &str) -> &'a str {
        let condition = self.items("/status/conditions").iter().find(|condition| text_of(condition, "type") == kind);
        condition.map(|condition| text_of(condition, "status")).unwrap_or_default()
    }

    fn since(&self, timestamp: &str) -> String {
        self.clock.age_of(timestamp)
    }
}

/// A text field of an item, empty where there is none.
fn text_of<'a>(item: &'a Value, key: &str) -> &'a str {
    item.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A text, or what stands for its absence.
fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

#[cfg(test)]
mod tests;
