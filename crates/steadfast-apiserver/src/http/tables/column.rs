//! Columns of tables and the sources of their cells.

use serde_json::Value;

use super::row::Row;
use crate::clock::Clock;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Column {
    pub(in crate::http) name: &'static str,
    /// Type of the cells: `string`, `integer`, `boolean` or `date`.
    pub(in crate::http) kind: &'static str,
    /// True if the column is only part of `-o wide`.
    pub(in crate::http) is_wide: bool,
    pub(super) cell: Cell,
}

/// Source of a cell's content.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cell {
    Name,
    /// Age of the object.
    Age,
    /// Creation time of the object.
    Created,
    /// String at a JSON pointer, and the text for an absent value.
    Text(&'static str, &'static str),
    /// Number at a JSON pointer; 0 if absent.
    Number(&'static str),
    /// Flag at a JSON pointer; false if absent.
    Flag(&'static str),
    /// Number of items at a JSON pointer.
    Count(&'static str),
    /// Computed value.
    Computed(fn(&Row) -> Value),
}

impl Column {
    /// Returns the column's cell for an object.
    pub(in crate::http) fn cell(&self, object: &Value, clock: &Clock) -> Value {
        let row = Row { object, clock };
        match self.cell {
            Cell::Name => row.metadata_text("name").into(),
            Cell::Age => row.since(row.metadata_text("creationTimestamp")).into(),
            Cell::Created => row.metadata_text("creationTimestamp").into(),
            Cell::Text(path, absent) => row.text_or(path, absent).into(),
            Cell::Number(path) => row.number(path).into(),
            Cell::Flag(path) => row.is_true(path).into(),
            Cell::Count(path) => row.count(path).into(),
            Cell::Computed(compute) => compute(&row),
        }
    }

    /// Returns the description of a column that every kind has.
    pub(in crate::http) fn description(&self) -> &'static str {
        match self.cell {
            Cell::Name => "The name, unique within a namespace.",
            Cell::Age => "The time since the object was created.",
            Cell::Created => "When the object was created.",
            _ => "",
        }
    }

    /// Returns the format. `name` marks the column that identifies an object.
    pub(in crate::http) fn format(&self) -> &'static str {
        if matches!(self.cell, Cell::Name) { "name" } else { "" }
    }
}
