//! Row of a table: the cells of one object, and the object itself in its cached form.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
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
    /// True if the cells are ages. The rows are then sorted by [`Row::time`], not by the text of the cells.
    pub(super) is_time: bool,
    /// The column is shown only if the terminal is wide enough.
    pub(super) is_wide: bool,
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
    /// Escaped cells in one string, which takes less memory than one string for each cell.
    cells: Box<str>,
    /// Time of the row in seconds since 1970, for the order of ages: the creation, or the last occurrence of an event.
    pub(super) time: i64,
    pub(super) object: Arc<dyn RowObject>,
    /// Time and kind of the last change; `None` if the object is unchanged since the initial list.
    pub(super) change: Option<(Instant, RowMark)>,
}

impl Row {
    /// Creates a row without a change.
    pub(super) fn new(key: RowKey, cells: &[String], time: i64, object: Arc<dyn RowObject>) -> Self {
        let escaped: Vec<_> = cells.iter().map(|cell| escape(cell)).collect();
        Self { key, cells: escaped.join(&SEPARATOR.to_string()).into(), time, object, change: None }
    }

    /// Returns the row with other cells in its last columns.
    pub(super) fn with_last_cells(&self, last: &[String]) -> Self {
        let kept = self.cells().count().saturating_sub(last.len());
        let last = last.iter().map(|cell| escape(cell));
        let cells: Vec<Cow<'_, str>> = self.cells().take(kept).map(Cow::Borrowed).chain(last).collect();
        Self { cells: cells.join(&SEPARATOR.to_string()).into(), ..self.clone() }
    }

    /// Returns the cell of a column; empty if the row has fewer cells.
    pub(super) fn cell(&self, column: usize) -> &str {
        self.cells().nth(column).unwrap_or_default()
    }

    /// Returns all cells.
    pub(super) fn cells(&self) -> impl Iterator<Item = &str> {
        self.cells.split(SEPARATOR)
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
    }

    /// Creates a row with the cells and an object with one label.
    pub(in crate::top) fn row(namespace: &str, name: &str, cells: &[&str], time: i64, app: &str) -> Row {
        let metadata = serde_json::json!({"namespace": namespace, "name": name, "labels": {"app": app}});
        let object = serde_json::json!({"metadata": metadata, "spec": {"time": time}});
        let cells: Vec<String> = cells.iter().map(|cell| (*cell).to_owned()).collect();
        Row::new(RowKey::new(namespace, name), &cells, time, Arc::new(object))
    }

    #[test]
    fn last_cells_are_replaced() {
        let row =
            row("shop", "web", &["a", "", "old"], 0, "x").with_last_cells(&["1m".to_owned(), "\u{1b}".to_owned()]);
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
