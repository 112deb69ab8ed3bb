//! Rows of one resource, in an order that is maintained incrementally, with a filter and a cursor.
//!
//! A change needs one search in the order. The time for a window depends only on the height of the window. A new filter
//! is evaluated in steps, so that the screen and the keys remain responsive. A new order is evaluated in steps, too, if
//! objects must be decoded for it.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::thread::{self, available_parallelism};
use std::time::Instant;

use super::filter::Filter;
use super::natural_order;
use super::row::{ColumnOrder, Row, RowKey, RowMark, TableColumn};

/// Maximum number of threads that decode objects for a new filter or order.
const MAX_THREADS: usize = 4;
/// Maximum number of objects that a new order decodes at once, which takes a few milliseconds.
const MAX_ROWS_AT_ONCE: usize = 32;
/// Minimum number of rows per thread. For fewer rows, the start of a thread would cost more than it saves.
const MIN_ROWS_PER_THREAD: usize = 16;

/// Rows of one resource.
pub(super) struct Table {
    pub(super) columns: Vec<TableColumn>,
    rows: HashMap<RowKey, StoredRow>,
    /// The matching rows in ascending order.
    order: BTreeSet<Position>,
    sort: Sort,
    filter: Filter,
    /// Rows on which a new filter or order was not evaluated yet.
    unevaluated: Vec<RowKey>,
    selection: RowSelection,
    /// Number of rows above the selected row in the window.
    rows_above: usize,
}

/// Selected row.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RowSelection {
    /// The first row, also if another row becomes the first.
    First,
    /// The row at this position, or else a neighbour.
    At(Position),
    /// The row of this key, after its evaluation. Until then, the first row.
    Pending(RowKey),
}

struct StoredRow {
    row: Row,
    is_shown: bool,
}

/// Column and direction of the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sort {
    pub(super) column: usize,
    pub(super) is_descending: bool,
}

/// Position of a row in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Position {
    value: SortValue,
    key: RowKey,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SortValue {
    Time(i64),
    Text(Box<str>),
}

impl Ord for SortValue {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            // The youngest row is first, as for a numerical age.
            (Self::Time(one), Self::Time(other)) => other.cmp(one),
            (Self::Text(one), Self::Text(other)) => natural_order::compare(one, other),
            (Self::Time(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Time(_)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for SortValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_key = || {
            natural_order::compare(self.key.namespace(), other.key.namespace())
                .then_with(|| natural_order::compare(self.key.name(), other.key.name()))
        };
        self.value.cmp(&other.value).then_with(by_key)
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Visible part of a table.
pub(super) struct Window<'a> {
    pub(super) rows: Vec<&'a Row>,
    /// Index of the selected row.
    pub(super) selected: Option<usize>,
}

impl Table {
    /// Creates an empty table, in the order of its first column.
    pub(super) fn new(columns: Vec<TableColumn>) -> Self {
        Self {
            columns,
            rows: HashMap::new(),
            order: BTreeSet::new(),
            sort: Sort::default(),
            filter: Filter::All,
            unevaluated: Vec::new(),
            selection: RowSelection::First,
            rows_above: 0,
        }
    }

    /// Returns the number of all rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the number of matching rows.
    pub(super) fn shown_count(&self) -> usize {
        self.order.len()
    }

    /// Returns whether the order or the filter depends on the content of the objects.
    pub(super) fn needs_content(&self) -> bool {
        self.filter.needs_content() || self.column_order(self.sort).needs_content()
    }

    /// Returns the number of rows on which the filter or the order was not evaluated yet.
    pub(super) fn unevaluated_count(&self) -> usize {
        self.unevaluated.len()
    }

    pub(super) fn sort(&self) -> Sort {
        self.sort
    }

    /// Returns the row of `key`, even if it does not match the filter.
    pub(super) fn row(&self, key: &RowKey) -> Option<&Row> {
        self.rows.get(key).map(|stored| &stored.row)
    }

    /// Returns the key of the selected row.
    pub(super) fn selected(&self) -> Option<RowKey> {
        match &self.selection {
            RowSelection::Pending(key) => Some(key.clone()),
            RowSelection::First | RowSelection::At(_) => self.resolved_cursor().map(|position| position.key.clone()),
        }
    }

    /// Adds or replaces a row. `change` is absent for rows of the initial list.
    pub(super) fn upsert(&mut self, mut row: Row, change: Option<(Instant, RowMark)>) {
        let old = self.rows.remove(&row.key);
        let old_position = old.as_ref().filter(|old| old.is_shown).map(|old| self.position(&old.row));
        row.change = change.or(old.and_then(|old| old.row.change));
        let is_shown = self.filter.matches(&row);
        let position = self.position(&row);
        self.resolve_pending_selection(&row.key, is_shown.then_some(&position));
        if let Some(old_position) = &old_position {
            if is_shown && *old_position == position {
                self.rows.insert(row.key.clone(), StoredRow { row, is_shown });
                return;
            }
            self.order.remove(old_position);
            // The cursor stays on its row if the row moves.
            if is_shown && matches!(&self.selection, RowSelection::At(cursor) if cursor == old_position) {
                self.selection = RowSelection::At(position.clone());
            }
        }
        if is_shown {
            self.order.insert(position);
        }
        self.rows.insert(row.key.clone(), StoredRow { row, is_shown });
    }

    /// Removes the row of `key`. The cursor stays at its position.
    pub(super) fn remove(&mut self, key: &RowKey) {
        self.resolve_pending_selection(key, None);
        if let Some(old) = self.rows.remove(key).filter(|old| old.is_shown) {
            let position = self.position(&old.row);
            self.order.remove(&position);
        }
    }

    /// Orders the rows by another column or direction. The selected row remains selected. If many objects must be decoded
    /// for this order, the rows appear while [`evaluate`](Self::evaluate) runs.
    pub(super) fn set_sort(&mut self, sort: Sort) {
        let selected = if self.selection == RowSelection::First { None } else { self.selected() };
        self.sort = sort;
        if self.column_order(sort).needs_content() && !self.compute_few_contents() {
            self.restart_evaluation();
            self.selection = selected.map_or(RowSelection::First, RowSelection::Pending);
            return;
        }
        let shown = self.rows.values().filter(|stored| stored.is_shown);
        self.order = shown.map(|stored| self.position(&stored.row)).collect();
        self.selection = match selected {
            None => RowSelection::First,
            Some(key) => match self.rows.get(&key).filter(|stored| stored.is_shown) {
                Some(stored) => RowSelection::At(self.position(&stored.row)),
                None => RowSelection::Pending(key),
            },
        };
    }

    /// Replaces the filter. The rows appear while [`evaluate`](Self::evaluate) runs.
    pub(super) fn set_filter(&mut self, filter: Filter) {
        self.filter = filter;
        self.restart_evaluation();
    }

    /// Evaluates the filter and the order again on all rows, without a selection.
    fn restart_evaluation(&mut self) {
        self.order.clear();
        self.unevaluated = self.rows.keys().cloned().collect();
        self.rows.values_mut().for_each(|stored| stored.is_shown = false);
        self.selection = RowSelection::First;
        self.rows_above = 0;
    }

    /// Evaluates a new filter or order on at most `max_rows` further rows. Returns whether rows remain.
    pub(super) fn evaluate(&mut self, max_rows: usize) -> bool {
        if self.needs_content() {
            self.compute_contents(max_rows);
        }
        for _ in 0..max_rows {
            let Some(key) = self.unevaluated.pop() else { break };
            // The row was evaluated already if it changed after the filter.
            let Some(stored) = self.rows.get(&key).filter(|stored| !stored.is_shown) else { continue };
            let position = self.filter.matches(&stored.row).then(|| self.position(&stored.row));
            self.resolve_pending_selection(&key, position.as_ref());
            if let Some(position) = position {
                self.order.insert(position);
                if let Some(stored) = self.rows.get_mut(&key) {
                    stored.is_shown = true;
                }
            }
        }
        let is_complete = self.unevaluated.is_empty();
        if is_complete && matches!(self.selection, RowSelection::Pending(_)) {
            // The row no longer exists.
            self.selection = RowSelection::First;
        }
        !is_complete
    }

    /// Selects the row of `key` if it is the pending selection, and ends the wait for it. `position` is absent if the row is
    /// not shown.
    fn resolve_pending_selection(&mut self, key: &RowKey, position: Option<&Position>) {
        if matches!(&self.selection, RowSelection::Pending(pending) if pending == key) {
            self.selection = position.cloned().map_or(RowSelection::First, RowSelection::At);
        }
    }

    /// Decodes the objects of the shown rows if only a few are missing. Returns whether all of them are decoded.
    fn compute_few_contents(&self) -> bool {
        let mut missing = self.rows.values().filter(|stored| stored.is_shown && !stored.row.has_content());
        let few: Vec<&StoredRow> = missing.by_ref().take(MAX_ROWS_AT_ONCE).collect();
        let is_complete = missing.next().is_none();
        if is_complete {
            for stored in few {
                stored.row.compute_content();
            }
        }
        is_complete
    }

    /// Decodes the objects of the next `max_rows` rows of the evaluation, on several threads.
    fn compute_contents(&self, max_rows: usize) {
        let next_rows = self.unevaluated.iter().rev().take(max_rows).filter_map(|key| self.row(key));
        let missing: Vec<&Row> = next_rows.filter(|row| !row.has_content()).collect();
        if missing.len() <= MIN_ROWS_PER_THREAD {
            // The evaluation decodes them itself.
            return;
        }
        let threads = available_parallelism().map_or(1, |threads| threads.get().min(MAX_THREADS));
        let share = missing.len().div_ceil(threads).max(MIN_ROWS_PER_THREAD);
        let mut shares = missing.chunks(share);
        let own_share = shares.next();
        thread::scope(|scope| {
            for rows in shares {
                // If the system has no thread left, the evaluation decodes the rows itself.
                let _ =
                    thread::Builder::new().spawn_scoped(scope, || rows.iter().for_each(|row| row.compute_content()));
            }
            own_share.into_iter().flatten().for_each(|row| row.compute_content());
        });
    }

    /// Moves the cursor by a number of rows, in a window of `height` rows.
    pub(super) fn move_cursor(&mut self, rows: isize, height: usize) {
        let Some(start) = self.resolved_cursor().cloned() else { return };
        let neighbours =
            if rows < 0 { self.before(&start, rows.unsigned_abs()) } else { self.after(&start, rows.unsigned_abs()) };
        let (moved, target) = (neighbours.len(), neighbours.last().map(|position| (*position).clone()));
        self.rows_above =
            if rows < 0 { self.rows_above.saturating_sub(moved) } else { self.rows_above.saturating_add(moved) };
        self.rows_above = self.rows_above.min(height.saturating_sub(1));
        self.selection = RowSelection::At(target.unwrap_or(start));
    }

    /// Selects the first row, and follows it.
    pub(super) fn move_to_start(&mut self) {
        self.selection = RowSelection::First;
        self.rows_above = 0;
    }

    /// Selects the last row, in a window of `height` rows.
    pub(super) fn move_to_end(&mut self, height: usize) {
        let last = if self.sort.is_descending { self.order.first() } else { self.order.last() };
        self.selection = last.cloned().map_or(RowSelection::First, RowSelection::At);
        self.rows_above = height.saturating_sub(1);
    }

    /// Returns the rows of a window of `height` rows around the cursor.
    pub(super) fn window(&mut self, height: usize) -> Window<'_> {
        let Some(cursor) = self.resolved_cursor().cloned() else {
            return Window { rows: Vec::new(), selected: None };
        };
        let rows_above = self.rows_above.min(height.saturating_sub(1));
        let mut before = self.before(&cursor, height).len().min(rows_above);
        let after = self.after(&cursor, height).len().min(height.saturating_sub(before + 1));
        // Rows above fill a window that the rows below do not fill.
        if before + 1 + after < height {
            before = self.before(&cursor, height - 1 - after).len();
        }
        self.rows_above = before;
        let above = self.before(&cursor, before).into_iter().rev();
        let positions = above.chain([&cursor]).chain(self.after(&cursor, after));
        let rows = positions.filter_map(|position| self.row(&position.key)).take(height).collect();
        Window { rows, selected: Some(before) }
    }

    /// Returns the position of the selected row: the row at or after the cursor, or else before it.
    fn resolved_cursor(&self) -> Option<&Position> {
        let first = if self.sort.is_descending { self.order.last() } else { self.order.first() };
        let RowSelection::At(cursor) = &self.selection else { return first };
        self.order.get(cursor).or_else(|| self.after(cursor, 1).pop()).or_else(|| self.before(cursor, 1).pop())
    }

    /// Returns up to `count` positions below `position` on the screen, the nearest first.
    fn after(&self, position: &Position, count: usize) -> Vec<&Position> {
        if self.sort.is_descending { self.smaller(position, count) } else { self.larger(position, count) }
    }

    /// Returns up to `count` positions above `position` on the screen, the nearest first.
    fn before(&self, position: &Position, count: usize) -> Vec<&Position> {
        if self.sort.is_descending { self.larger(position, count) } else { self.smaller(position, count) }
    }

    fn larger(&self, position: &Position, count: usize) -> Vec<&Position> {
        self.order.range((Bound::Excluded(position), Bound::Unbounded)).take(count).collect()
    }

    fn smaller(&self, position: &Position, count: usize) -> Vec<&Position> {
        self.order.range((Bound::Unbounded, Bound::Excluded(position))).rev().take(count).collect()
    }

    fn position(&self, row: &Row) -> Position {
        let value = match self.column_order(self.sort) {
            ColumnOrder::Namespace => SortValue::Text(row.key.namespace().into()),
            ColumnOrder::Name => SortValue::Text(row.key.name().into()),
            ColumnOrder::Text => SortValue::Text(row.cell(self.sort.column).into()),
            ColumnOrder::Time => SortValue::Time(row.time()),
        };
        Position { value, key: row.key.clone() }
    }

    fn column_order(&self, sort: Sort) -> ColumnOrder {
        self.columns.get(sort.column).map_or(ColumnOrder::Name, |column| column.order)
    }
}

#[cfg(test)]
mod tests;
