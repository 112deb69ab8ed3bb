//! An opened object: its recent changes, YAML, events and logs, as lines that scroll.

use std::collections::VecDeque;

use jiff::Timestamp;
use ratatui::crossterm::event::KeyCode;

use super::history::DescribedChange;
use super::row::RowKey;
use super::tab::Tab;
use crate::changes::describe::Content;
use crate::changes::kind::Kind;
use crate::changes::phrases::{HealthEffect, Phrase};
use crate::changes::text::escape;
use crate::watch::object_format::yaml;

/// Maximum number of lines of a page. The oldest lines of a log are dropped.
pub(super) const MAX_LINES: usize = 5000;

/// Page of an opened object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DetailsPage {
    Changes,
    Yaml,
    Events,
    Related,
    Logs,
}

/// All pages in their order.
pub(super) const PAGES: [DetailsPage; 5] =
    [DetailsPage::Changes, DetailsPage::Yaml, DetailsPage::Events, DetailsPage::Related, DetailsPage::Logs];

/// A line of a page.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PageLine {
    /// Time of a change.
    pub(super) time: Option<Timestamp>,
    /// Escaped parts.
    pub(super) parts: Vec<Phrase>,
}

/// An opened object.
pub(super) struct Details {
    /// Number of the tab.
    pub(super) tab: usize,
    pub(super) key: RowKey,
    pub(super) page: DetailsPage,
    changes: Vec<PageLine>,
    yaml: Vec<PageLine>,
    /// Lines of the page of events, related objects or logs, which the module `session` loads from the server.
    loaded: VecDeque<PageLine>,
    /// First visible line.
    scroll: usize,
    /// True if the last lines are shown, also after new lines.
    is_following: bool,
}

impl DetailsPage {
    /// Returns whether the objects of a kind have the page.
    pub(super) fn exists_for(self, kind: &Kind) -> bool {
        self != Self::Logs || kind.is("", "Pod")
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Changes => "Changes",
            Self::Yaml => "YAML",
            Self::Events => "Events",
            Self::Related => "Related",
            Self::Logs => "Logs",
        }
    }
}

impl PageLine {
    /// Creates a line of one part, and escapes its text.
    pub(super) fn plain(text: &str) -> Self {
        Self::with_effect(HealthEffect::Neutral, text)
    }

    /// Creates a line of one part with a health effect, and escapes its text.
    pub(super) fn with_effect(effect: HealthEffect, text: &str) -> Self {
        Self { time: None, parts: vec![Phrase { text: escape(text).into_owned(), effect }] }
    }

    fn change(change: DescribedChange) -> Self {
        let mut parts = vec![Phrase { text: format!("{} ", change.symbol), effect: HealthEffect::Neutral }];
        for (index, phrase) in change.phrases.into_iter().enumerate() {
            if index > 0 {
                parts.push(Phrase { text: ", ".to_owned(), effect: HealthEffect::Neutral });
            }
            parts.push(phrase);
        }
        parts.push(Phrase { text: escape(&change.state).into_owned(), effect: HealthEffect::Neutral });
        Self { time: Some(change.time), parts }
    }
}

impl Details {
    /// Opens the changes of an object.
    pub(super) fn new(tab: usize, key: RowKey) -> Self {
        Self {
            tab,
            key,
            page: DetailsPage::Changes,
            changes: Vec::new(),
            yaml: Vec::new(),
            loaded: VecDeque::new(),
            scroll: 0,
            is_following: false,
        }
    }

    /// Returns the page after or before the current one.
    pub(super) fn neighbour(&self, tab: &Tab, step: isize) -> DetailsPage {
        let pages: Vec<DetailsPage> = PAGES.into_iter().filter(|page| page.exists_for(&tab.kind)).collect();
        let current = pages.iter().position(|page| *page == self.page).unwrap_or(0);
        // The step may be negative.
        pages[current.wrapping_add_signed(step).wrapping_add(pages.len()) % pages.len()]
    }

    /// Shows a page from its start; logs from their end.
    pub(super) fn show(&mut self, page: DetailsPage) {
        self.page = page;
        self.loaded.clear();
        self.scroll = 0;
        self.is_following = page == DetailsPage::Logs;
    }

    /// Renews the changes and the YAML from the cache. The last state of a deleted object remains.
    pub(super) fn refresh(&mut self, tab: &Tab) {
        let described = tab.history.describe(&self.key, &tab.kind, &tab.state_columns);
        self.changes = described.into_iter().map(PageLine::change).collect();
        if self.changes.is_empty() {
            self.changes.push(PageLine::plain("no changes since this table was opened"));
        }
        if tab.history.is_truncated() {
            self.changes.push(PageLine::plain("older changes were dropped"));
        }
        let Some(row) = tab.table.row(&self.key) else {
            let note = "the object was deleted; this is its last state";
            if self.yaml.first() != Some(&PageLine::with_effect(HealthEffect::Degraded, note)) {
                self.yaml.insert(0, PageLine::with_effect(HealthEffect::Degraded, note));
            }
            return;
        };
        let object = row.object.decode();
        let redaction = Content::default().redaction(&tab.kind, &[&object]);
        let printable = redaction.map_or_else(|| object.clone(), |redaction| redaction.object(&object));
        self.yaml = yaml_page(&yaml(&printable));
    }

    /// Adds a line to the loaded page.
    pub(super) fn add_line(&mut self, line: PageLine) {
        if self.loaded.len() >= MAX_LINES {
            self.loaded.pop_front();
            self.scroll = self.scroll.saturating_sub(1);
        }
        self.loaded.push_back(line);
    }

    /// Replaces the lines of the loaded page.
    pub(super) fn set_lines(&mut self, lines: impl IntoIterator<Item = PageLine>) {
        self.loaded = lines.into_iter().take(MAX_LINES).collect();
    }

    /// Returns the number of lines of the current page.
    pub(super) fn len(&self) -> usize {
        match self.page {
            DetailsPage::Changes => self.changes.len(),
            DetailsPage::Yaml => self.yaml.len(),
            DetailsPage::Events | DetailsPage::Related | DetailsPage::Logs => self.loaded.len(),
        }
    }

    /// Returns the visible lines, and the number of the first one.
    pub(super) fn visible(&mut self, height: usize) -> (usize, Vec<&PageLine>) {
        let last_start = self.len().saturating_sub(height);
        self.scroll = if self.is_following { last_start } else { self.scroll.min(last_start) };
        let first = self.scroll;
        let lines: Vec<&PageLine> = match self.page {
            DetailsPage::Changes => self.changes.iter().skip(first).take(height).collect(),
            DetailsPage::Yaml => self.yaml.iter().skip(first).take(height).collect(),
            DetailsPage::Events | DetailsPage::Related | DetailsPage::Logs => {
                self.loaded.iter().skip(first).take(height).collect()
            }
        };
        (first, lines)
    }

    /// Returns whether new lines scroll the page.
    pub(super) fn is_following(&self) -> bool {
        self.is_following
    }

    /// Scrolls by a key.
    pub(super) fn scroll(&mut self, code: KeyCode, height: usize) {
        let last_start = self.len().saturating_sub(height);
        let start = match code {
            KeyCode::Down | KeyCode::Char('j') => self.scroll + 1,
            KeyCode::Up | KeyCode::Char('k') => self.scroll.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll + height,
            KeyCode::PageUp => self.scroll.saturating_sub(height),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last_start,
            KeyCode::Char('f') => {
                self.is_following = !self.is_following;
                return;
            }
            _ => return,
        };
        self.scroll = start.min(last_start);
        // A log that is scrolled to its end follows new lines again.
        self.is_following = self.page == DetailsPage::Logs && self.scroll == last_start;
    }
}

/// Returns the lines of the YAML page, with a note if lines are missing.
fn yaml_page(text: &str) -> Vec<PageLine> {
    let mut remaining = text.lines();
    let mut lines: Vec<PageLine> = remaining.by_ref().take(MAX_LINES).map(PageLine::plain).collect();
    if remaining.next().is_some() {
        let note = "the object has more lines; `steadfast watch -o yaml` prints all";
        lines.push(PageLine::with_effect(HealthEffect::Degraded, note));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_yaml_has_no_note() {
        let page = |lines: usize| yaml_page(&"a: 1\n".repeat(lines));
        assert_eq!(page(MAX_LINES), vec![PageLine::plain("a: 1"); MAX_LINES]);
        let cut = page(MAX_LINES + 1);
        assert_eq!(cut.len(), MAX_LINES + 1);
        assert_ne!(cut.last(), Some(&PageLine::plain("a: 1")));
    }
}
