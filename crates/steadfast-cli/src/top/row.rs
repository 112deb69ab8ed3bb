//! Row of a table: an object in its cached form, and its cells, which are computed when an order or a filter needs them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde_json::Value;

use crate::changes::text::escape;

/// Separator of the cells in a row. Escaped text never contains this control character.
const SEPARATOR: char = '\u{1f}';

/// Object of a row. It is decoded only if needed: a hundred thousand decoded objects would take gigabytes.
pub(super) trait RowObject: Debug + Send + Sync {
    /// Decodes the object.
    fn decode(&self) -> Value;

    /// Returns the labels of the object.
    fn labels(&self) -> BTreeMap<String, String>;

    /// Decodes the object, and returns what its row shows.
    fn content(&self) -> RowContent;
}

/// What a row shows of its object.
#[derive(Debug, Default)]
pub(super) struct RowContent {
    pub(super) cells: Vec<String>,
    /// Time of the row in seconds since 1970, for the order of ages: the creation, or the last occurrence of an event.
    pub(super) time: i64,
}

/// Namespace and name of an object; the namespace is empty for cluster-scoped objects. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RowKey(Arc<(String, String)>);

impl RowKey {
    /// Creates the key.
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self(Arc::new((namespace.to_owned(), name.to_owned())))
    }

    pub(super) fn namespace(&self) -> &str {
        &self.0.0
    }

    pub(super) fn name(&self) -> &str {
        &self.0.1
    }

    /// Returns the key for a reader: `shop/web`.
    pub(super) fn title(&self) -> String {
        let separator = if self.namespace().is_empty() { "" } else { "/" };
        escape(&format!("{}{separator}{}", self.namespace(), self.name())).into_owned()
    }
}

/// Column of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableColumn {
    pub(super) name: String,
    pub(super) order: ColumnOrder,
    /// The column is shown only if the terminal is wide enough.
    pub(super) is_wide: bool,
}

/// Order of the rows in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnOrder {
    /// By the namespace of the objects.
    Namespace,
    /// By the name of the objects.
    Name,
    /// By the text of the cells.
    Text,
    /// By [`Row::time`], because the cells are ages.
    Time,
}

impl ColumnOrder {
    /// Returns whether the order depends on the content of the objects, and not only on their keys.
    pub(super) fn needs_content(self) -> bool {
        matches!(self, Self::Text | Self::Time)
    }
}

/// Kind of the last change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowMark {
    Added,
    Updated,
}

/// Row of a table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: RowKey,
    pub(super) object: Arc<dyn RowObject>,
    /// Time and kind of the last change; `None` if the object is unchanged since the initial list.
    pub(super) change: Option<(Instant, RowMark)>,
    /// Computed at the first use. Most rows are never decoded: they are ordered by their keys, and are not visible.
    content: OnceLock<StoredContent>,
}

/// Content of a row in a form that takes little memory.
#[derive(Clone, Debug)]
struct StoredContent {
    /// Escaped cells in one string, which takes less memory than one string for each cell.
    cells: Box<str>,
    time: i64,
}

impl StoredContent {
    fn new<'a>(cells: impl Iterator<Item = Cow<'a, str>>, time: i64) -> Self {
        let cells: Vec<Cow<'_, str>> = cells.collect();
        Self { cells: cells.join(&SEPARATOR.to_string()).into(), time }
    }
}

impl Row {
    /// Creates a row without a change.
    pub(super) fn new(key: RowKey, object: Arc<dyn RowObject>) -> Self {
        Self { key, object, change: None, content: OnceLock::new() }
    }

    /// Returns whether the object was decoded already.
    pub(super) fn has_content(&self) -> bool {
        self.content.get().is_some()
    }

    /// Decodes the object unless that was done already.
    pub(super) fn compute_content(&self) {
        self.content();
    }

    /// Replaces the cells in the last columns, unless the cells are not computed yet.
    pub(super) fn with_last_cells(&self, last: &[String]) -> Option<Self> {
        let content = self.content.get()?;
        let kept = self.cells().count().saturating_sub(last.len());
        let last = last.iter().map(|cell| escape(cell));
        let cells = StoredContent::new(self.cells().take(kept).map(Cow::Borrowed).chain(last), content.time);
        Some(Self { content: cells.into(), ..self.clone() })
    }

    /// Returns the cell of a column; empty if the row has fewer cells. May decode the object.
    pub(super) fn cell(&self, column: usize) -> &str {
        self.cells().nth(column).unwrap_or_default()
    }

    /// Returns all cells. May decode the object.
    pub(super) fn cells(&self) -> impl Iterator<Item = &str> {
        self.content().cells.split(SEPARATOR)
    }

    /// Returns the time for the order of ages, see [`RowContent::time`]. May decode the object.
    pub(super) fn time(&self) -> i64 {
        self.content().time
    }

    fn content(&self) -> &StoredContent {
        self.content.get_or_init(|| {
            let content = self.object.content();
            StoredContent::new(content.cells.iter().map(|cell| escape(cell)), content.time)
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    impl RowObject for Value {
        fn decode(&self) -> Value {
            self.clone()
        }

        fn labels(&self) -> BTreeMap<String, String> {
            let labels = self.pointer("/metadata/labels").and_then(Value::as_object);
            let label = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
            labels.into_iter().flatten().filter_map(label).collect()
        }

        /// Returns the fields `status.cells` and `spec.time`.
        fn content(&self) -> RowContent {
            let cell = |cell: &Value| cell.as_str().unwrap_or_default().to_owned();
            let cells = self["status"]["cells"].as_array().into_iter().flatten().map(cell).collect();
            RowContent { cells, time: self["spec"]["time"].as_i64().unwrap_or_default() }
        }
    }

    /// Creates a row with the cells and an object with one label.
    pub(in crate::top) fn row(namespace: &str, name: &str, cells: &[&str], time: i64, app: &str) -> Row {
        let metadata = serde_json::json!({"namespace": namespace, "name": name, "labels": {"app": app}});
        let object = serde_json::json!({"metadata": metadata, "spec": {"time": time}, "status": {"cells": cells}});
        Row::new(RowKey::new(namespace, name), Arc::new(object))
    }

    #[test]
    fn last_cells_are_replaced() {
        let row = row("shop", "web", &["a", "", "old"], 7, "x");
        let last = ["1m".to_owned(), "\u{1b}".to_owned()];
        assert!(row.with_last_cells(&last).is_none(), "the cells are computed later, with the usage of that time");
        row.compute_content();
        let row = row.with_last_cells(&last).expect("a row with cells");
        assert_eq!(row.time(), 7);
        assert_eq!(row.cells().collect::<Vec<_>>(), ["a", "1m", "\\u{1b}"]);
    }

    #[test]
    fn cells_are_escaped_and_separate() {
        let row = row("shop", "web", &["a\u{1f}b\u{1b}[2J", "", "c"], 0, "x");
        assert_eq!(row.cells().collect::<Vec<_>>(), ["a\\u{1f}b\\u{1b}[2J", "", "c"]);
        assert_eq!((row.cell(2), row.cell(7)), ("c", ""));
        assert_eq!(row.key.title(), "shop/web");
        assert_eq!(RowKey::new("", "n\u{7}").title(), "n\\u{7}");
    }
}
