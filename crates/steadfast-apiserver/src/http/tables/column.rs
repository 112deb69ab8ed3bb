//! A column, and where the content of its cells comes from.

use serde_json::Value;

use super::row::Row;
use crate::clock::Clock;

/// A column of a table.
#[derive(Clone, Copy)]
pub(in crate::http) struct Column {
    pub(in crate::http) name: &'static str,
    /// The type of its cells: `string`, `integer`, `boolean` or `date`.
    pub(in crate::http) kind: &'static str,
    /// Shown with `-o wide` alone.
    pub(in crate::http) wide: bool,
    pub(super) cell: Cell,
}

/// Where the content of a cell comes from.
#[derive(Clone, Copy)]
pub(super) enum Cell {
    Name,
    /// How long ago the object was created.
    Age,
    /// When the object was created.
    Created,
    /// The text at a JSON pointer, or what represents its absence.
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

impl Column {
    /// The column's cell for an object.
    pub(in crate::http) fn cell(&self, object: &Value, clock: &Clock) -> Value {
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
    pub(in crate::http) fn description(&self) -> &'static str {
        match self.cell {
            Cell::Name => "The name, unique within a namespace.",
            Cell::Age => "The time since the object was created.",
            Cell::Created => "When the object was created.",
            _ => "",
        }
    }

    /// `name` marks the column that identifies an object.
    pub(in crate::http) fn format(&self) -> &'static str {
        if matches!(self.cell, Cell::Name) { "name" } else { "" }
    }
}
