//! State of a tab: one resource.

use std::time::Instant;

use steadfast::Freshness;

use super::history::ChangeHistory;
use super::row::{Row, RowKey, RowMark};
use super::schema::Schema;
use super::table::Table;
use crate::changes::columns::Column;
use crate::changes::kind::Kind;

/// A tab: one resource.
pub(super) struct Tab {
    /// Name of the resource: `deployments.apps`.
    pub(super) title: String,
    /// Namespace, or `all namespaces`.
    pub(super) scope: String,
    pub(super) kind: Kind,
    /// Printer columns, for descriptions of changes.
    pub(super) state_columns: Vec<Column>,
    pub(super) table: Table,
    pub(super) history: ChangeHistory,
    pub(super) filter_text: String,
    /// Freshness of the cache; `None` before the resource was opened.
    pub(super) freshness: Option<Freshness>,
}

/// A change of a row, from the cache.
#[derive(Debug)]
pub(super) enum RowChange {
    Upsert { row: Row, mark: Option<RowMark> },
    Remove(RowKey),
}

impl Tab {
    /// Shows the processor and the memory of at most `max_rows` rows. Returns whether rows may remain.
    pub(super) fn update_usage(&mut self, schema: &Schema, max_rows: usize) -> bool {
        let keys = schema.take_changed_usage(max_rows);
        for key in &keys {
            if let Some(row) = self.table.row(key).and_then(|row| schema.with_usage(row)) {
                self.table.upsert(row, None);
            }
        }
        keys.len() == max_rows
    }

    /// Applies a change of the cache.
    pub(super) fn apply(&mut self, change: RowChange, now: Instant) {
        match change {
            RowChange::Upsert { row, mark } => self.table.upsert(row, mark.map(|mark| (now, mark))),
            RowChange::Remove(key) => self.table.remove(&key),
        }
    }
}
