//! Settings and times of a drawing.

use std::time::{Duration, Instant};

use ratatui::style::{Color, Style};

use crate::clock::Clock;
use crate::top::row::{Row, RowMark};

/// Time during which a changed row is marked.
const MARK_DURATION: Duration = Duration::from_secs(5);

/// Settings and times of a drawing.
pub(in crate::top) struct ViewContext<'a> {
    pub(in crate::top) now: Instant,
    pub(in crate::top) clock: &'a Clock,
    pub(in crate::top) has_color: bool,
    /// Returns the current cells of a row.
    pub(in crate::top) cells: &'a dyn Fn(usize, &Row) -> Option<Vec<String>>,
}

impl ViewContext<'_> {
    pub(super) fn style(&self, color: Color) -> Style {
        if self.has_color { Style::new().fg(color) } else { Style::new() }
    }

    pub(super) fn dim(&self) -> Style {
        if self.has_color { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }
}

/// Returns the symbol and the colour of a row that changed lately.
pub(super) fn mark_of(change: Option<(Instant, RowMark)>, now: Instant) -> Option<(&'static str, Color)> {
    let (time, mark) = change?;
    (now.saturating_duration_since(time) < MARK_DURATION).then_some(match mark {
        RowMark::Added => ("+", Color::Green),
        RowMark::Updated => ("~", Color::Yellow),
    })
}
