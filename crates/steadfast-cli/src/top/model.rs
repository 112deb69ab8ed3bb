//! State of the screen: tabs, cursor, prompt and opened object. Keys and changes are inputs, and requests to
//! the module `session` are outputs; the model has no I/O and no clock.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::details::{Details, DetailsPage};
use super::filter::{Filter, MAX_FILTER_BYTES};
use super::history::RecordedChange;
use super::tab::Tab;
use super::table::Sort;

/// State of the screen.
pub(super) struct Model {
    pub(super) tabs: Vec<Tab>,
    pub(super) current: usize,
    /// Text that is being typed.
    pub(super) prompt: Option<Prompt>,
    pub(super) is_help_shown: bool,
    pub(super) details: Option<Details>,
    /// Result of the last command, such as an error; shown until the next key.
    pub(super) message: Option<String>,
    /// Number of rows of the table or of the opened object, from the last drawing.
    pub(super) page_height: usize,
}

/// Text that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) purpose: Purpose,
    pub(super) text: String,
}

/// Meaning of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// `:`, a kind or `q`.
    Command,
    /// `/`, a filter.
    Filter,
}

/// Request of the model to the module `session`, which has the I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Quit,
    /// Start to watch the resource of the current tab, unless it is watched already.
    Show,
    /// Find a kind by its name, and add its tab.
    Open(String),
    /// Load a page of the opened object, such as its events.
    Load(DetailsPage),
    /// Stop loading pages.
    Close,
}

impl Model {
    /// Creates the model with at least one tab.
    pub(super) fn new(tabs: Vec<Tab>) -> Self {
        Self { tabs, current: 0, prompt: None, is_help_shown: false, details: None, message: None, page_height: 1 }
    }

    pub(super) fn tab(&self) -> &Tab {
        &self.tabs[self.current]
    }

    pub(super) fn tab_mut(&mut self) -> &mut Tab {
        &mut self.tabs[self.current]
    }

    /// Adds changes of the resource with this tab number to the history, and updates the opened object.
    pub(super) fn record(&mut self, tab: usize, changes: impl IntoIterator<Item = RecordedChange>) {
        let opened = self.details.as_mut().filter(|details| details.tab == tab);
        let mut is_opened_changed = false;
        for change in changes {
            is_opened_changed |= opened.as_ref().is_some_and(|details| details.key == change.key);
            self.tabs[tab].history.record(change);
        }
        if is_opened_changed {
            self.refresh_details();
        }
    }

    /// Renews the changes and the YAML of the opened object.
    pub(super) fn refresh_details(&mut self) {
        if let Some(details) = &mut self.details {
            details.refresh(&self.tabs[details.tab]);
        }
    }

    /// Processes a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Effect> {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Effect::Quit);
        }
        if self.is_help_shown {
            self.is_help_shown = false;
            return None;
        }
        if self.prompt.is_some() {
            return self.prompt_key(key);
        }
        match key.code {
            KeyCode::Char('?') => self.is_help_shown = true,
            KeyCode::Char(':') => self.prompt = Some(Prompt { purpose: Purpose::Command, text: String::new() }),
            KeyCode::Char('q') => return Some(Effect::Quit),
            _ if self.details.is_some() => return self.details_key(key),
            _ => return self.table_key(key),
        }
        None
    }

    fn prompt_key(&mut self, key: KeyEvent) -> Option<Effect> {
        let prompt = self.prompt.as_mut()?;
        match key.code {
            KeyCode::Esc => self.prompt = None,
            KeyCode::Backspace => drop(prompt.text.pop()),
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => prompt.text.clear(),
            KeyCode::Char(character) if prompt.text.len() < MAX_FILTER_BYTES => prompt.text.push(character),
            KeyCode::Enter => {
                let Prompt { purpose, text } = self.prompt.take()?;
                return match purpose {
                    Purpose::Command => self.command(text.trim()),
                    Purpose::Filter => {
                        self.set_filter(&text);
                        None
                    }
                };
            }
            _ => {}
        }
        None
    }

    fn command(&mut self, text: &str) -> Option<Effect> {
        match text {
            "" => None,
            "q" | "quit" | "q!" => Some(Effect::Quit),
            kind => {
                if let Some(index) = self.tabs.iter().position(|tab| tab.title == kind) {
                    return Some(self.switch_to(index));
                }
                Some(Effect::Open(kind.to_owned()))
            }
        }
    }

    /// Replaces the filter of the current tab. An invalid filter changes nothing and is reported.
    fn set_filter(&mut self, text: &str) {
        match Filter::parse(text) {
            Ok(filter) => {
                let tab = self.tab_mut();
                text.trim().clone_into(&mut tab.filter_text);
                tab.table.set_filter(filter);
            }
            Err(reason) => self.message = Some(format!("invalid filter: {reason}")),
        }
    }

    /// Shows another tab, and closes an opened object.
    pub(super) fn switch_to(&mut self, index: usize) -> Effect {
        self.current = index;
        self.details = None;
        Effect::Show
    }

    fn table_key(&mut self, key: KeyEvent) -> Option<Effect> {
        let (height, count) = (self.page_height, self.tabs.len());
        let page = isize::try_from(height.max(1)).unwrap_or(isize::MAX);
        let table = &mut self.tabs[self.current].table;
        match key.code {
            KeyCode::Down | KeyCode::Char('j') => table.move_cursor(1, height),
            KeyCode::Up | KeyCode::Char('k') => table.move_cursor(-1, height),
            KeyCode::PageDown | KeyCode::Char(' ') => table.move_cursor(page, height),
            KeyCode::PageUp => table.move_cursor(-page, height),
            KeyCode::Home | KeyCode::Char('g') => table.move_to_start(),
            KeyCode::End | KeyCode::Char('G') => table.move_to_end(height),
            KeyCode::Tab | KeyCode::Right => return Some(self.switch_to((self.current + 1) % count)),
            KeyCode::BackTab | KeyCode::Left => return Some(self.switch_to((self.current + count - 1) % count)),
            KeyCode::Char('/') => {
                let text = self.tab().filter_text.clone();
                self.prompt = Some(Prompt { purpose: Purpose::Filter, text });
            }
            KeyCode::Esc => self.set_filter(""),
            KeyCode::Char('s') => self.sort_by_next_column(1),
            KeyCode::Char('S') => self.sort_by_next_column(self.tab().table.columns.len() - 1),
            KeyCode::Char('r') => {
                let sort = table.sort();
                table.set_sort(Sort { is_descending: !sort.is_descending, ..sort });
            }
            KeyCode::Char(digit @ '1'..='9') => {
                let column = digit as usize - '1' as usize;
                let sort = table.sort();
                if column < table.columns.len() {
                    let is_descending = sort.column == column && !sort.is_descending;
                    table.set_sort(Sort { column, is_descending });
                }
            }
            KeyCode::Enter => return self.open_selected(DetailsPage::Changes),
            KeyCode::Char('y') => return self.open_selected(DetailsPage::Yaml),
            KeyCode::Char('e') => return self.open_selected(DetailsPage::Events),
            KeyCode::Char('o') => return self.open_selected(DetailsPage::Related),
            KeyCode::Char('l') => return self.open_selected(DetailsPage::Logs),
            _ => {}
        }
        None
    }

    fn sort_by_next_column(&mut self, step: usize) {
        let table = &mut self.tab_mut().table;
        let (count, sort) = (table.columns.len().max(1), table.sort());
        table.set_sort(Sort { column: (sort.column + step) % count, is_descending: false });
    }

    fn open_selected(&mut self, page: DetailsPage) -> Option<Effect> {
        let key = self.tab().table.selected()?;
        if !page.exists_for(&self.tab().kind) {
            self.message = Some(format!("{} have no {}", self.tab().title, page.title().to_lowercase()));
            return None;
        }
        let mut details = Details::new(self.current, key);
        details.refresh(self.tab());
        self.details = Some(details);
        self.show_page(page)
    }

    fn show_page(&mut self, page: DetailsPage) -> Option<Effect> {
        let details = self.details.as_mut()?;
        details.show(page);
        Some(Effect::Load(page))
    }

    fn details_key(&mut self, key: KeyEvent) -> Option<Effect> {
        let height = self.page_height;
        let details = self.details.as_mut()?;
        let page = match key.code {
            KeyCode::Esc => {
                self.details = None;
                return Some(Effect::Close);
            }
            KeyCode::Tab | KeyCode::Right => details.neighbour(&self.tabs[details.tab], 1),
            KeyCode::BackTab | KeyCode::Left => details.neighbour(&self.tabs[details.tab], -1),
            KeyCode::Enter => DetailsPage::Changes,
            KeyCode::Char('y') => DetailsPage::Yaml,
            KeyCode::Char('e') => DetailsPage::Events,
            KeyCode::Char('o') => DetailsPage::Related,
            KeyCode::Char('l') if DetailsPage::Logs.exists_for(&self.tabs[details.tab].kind) => DetailsPage::Logs,
            code => {
                details.scroll(code, height);
                return None;
            }
        };
        self.show_page(page)
    }
}
