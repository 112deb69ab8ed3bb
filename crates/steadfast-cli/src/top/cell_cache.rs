//! Cells of the visible rows. They are computed again after a change, and once a second because ages continue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::row::{Row, RowKey, RowObject};

/// Time after which ages are computed again.
const MAX_CELL_AGE: Duration = Duration::from_secs(1);

/// Cells of the rows that were drawn last.
#[derive(Default)]
pub(super) struct CellCache {
    tab: usize,
    drawn: HashMap<RowKey, CachedCells>,
    next: HashMap<RowKey, CachedCells>,
}

struct CachedCells {
    object: Arc<dyn RowObject>,
    time: Instant,
    cells: Vec<String>,
}

impl CellCache {
    /// Starts a drawing of this tab. Rows that the previous drawing did not contain are dropped.
    pub(super) fn begin(&mut self, tab: usize) {
        self.drawn = std::mem::take(&mut self.next);
        if self.tab != tab {
            self.drawn.clear();
        }
        self.tab = tab;
    }

    /// Returns the cells of a row, from the previous drawing if they are current, or else from `compute`.
    pub(super) fn cells(&mut self, row: &Row, now: Instant, compute: impl FnOnce() -> Vec<String>) -> Vec<String> {
        let current = self.drawn.remove(&row.key).filter(|cached| {
            Arc::ptr_eq(&cached.object, &row.object) && now.saturating_duration_since(cached.time) < MAX_CELL_AGE
        });
        let cached = current.unwrap_or_else(|| CachedCells { object: row.object.clone(), time: now, cells: compute() });
        let cells = cached.cells.clone();
        self.next.insert(row.key.clone(), cached);
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::row::tests::row;

    #[test]
    fn cells_are_computed_after_change_or_second() {
        let (mut cache, start, first) = (CellCache::default(), Instant::now(), row("shop", "web", &["1"], 0, "x"));
        let mut draw = |row: &Row, millis: u64, text: &str| {
            cache.begin(0);
            cache.cells(row, start + Duration::from_millis(millis), || vec![text.to_owned()]).remove(0)
        };
        assert_eq!(draw(&first, 0, "a"), "a");
        assert_eq!(draw(&first, 900, "b"), "a");
        assert_eq!(draw(&first, 1000, "c"), "c");
        assert_eq!(draw(&row("shop", "web", &["1"], 0, "x"), 1100, "d"), "d", "another object");
    }
}
