//! Connects the model with the cluster and the terminal: keys and changes enter the model, and its effects are
//! executed.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use ratatui::crossterm::event::{Event, KeyEventKind};
use ratatui::{Frame, Terminal, backend::Backend};
use steadfast::InformerFactory;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::sleep;

use super::cell_cache::CellCache;
use super::details::DetailsPage;
use super::model::{Effect, Model};
use super::opening::{OpenedTab, Opener, WatchedTab};
use super::pages::{NumberedUpdate, PageSender, PageTask, PageUpdate, load_events, load_logs};
use super::related_page::{OpenedObject, load_related};
use super::row::Row;
use super::screen;
use super::tab_informer::TabInformer;
use super::usage::UsagePoll;
use super::view::{self, context::ViewContext};
use crate::clock::Clock;
use crate::failure::Failure;

/// Minimum time between two drawings.
const MIN_DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Time between two drawings if nothing changes, so that the displayed ages advance.
const IDLE_DRAW_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time that a new filter may delay a drawing. The remaining rows are evaluated before the next drawing.
const FILTER_BUDGET: Duration = Duration::from_millis(30);

/// Number of rows on which a filter is evaluated between two checks of the time.
const FILTER_STEP: usize = 64;

/// Maximum number of rows whose processor and memory usage is updated for a drawing.
const USAGE_STEP: usize = 4096;

/// Maximum number of pending updates of a page. If this number is reached, the task of the page waits.
const MAX_PENDING_UPDATES: usize = 256;

/// Result of the lookup of a kind.
type Lookup = Result<Box<OpenedTab>, String>;

/// The screen and its informers.
pub(super) struct Session {
    opener: Opener,
    factory: InformerFactory,
    clock: Clock,
    has_color: bool,
    model: Model,
    watched: Vec<WatchedTab>,
    /// Informers by the number of their tab; `None` until the tab is shown.
    sources: Vec<Option<TabInformer>>,
    cells: RefCell<CellCache>,
    changed: Arc<Notify>,
    /// Task of the current page; dropped if another page is shown.
    page: Option<PageTask>,
    /// Number of the latest page load. Updates of earlier loads are ignored.
    page_load_id: u64,
    update_sender: Sender<NumberedUpdate>,
    updates: Receiver<NumberedUpdate>,
    lookup_sender: Sender<Lookup>,
    lookups: Receiver<Lookup>,
}

/// An input of the session.
enum Input {
    Terminal(Option<io::Result<Event>>),
    Update(NumberedUpdate),
    Lookup(Lookup),
    Changed,
    /// The next drawing is due.
    Draw,
}

impl Session {
    /// Creates the session with at least one tab, and shows the first tab.
    pub(super) fn new(opener: Opener, tabs: Vec<OpenedTab>, clock: Clock, has_color: bool) -> Self {
        let (tabs, watched): (Vec<_>, Vec<_>) = tabs.into_iter().map(|opened| (opened.tab, opened.watched)).unzip();
        let (update_sender, updates) = channel(MAX_PENDING_UPDATES);
        let (lookup_sender, lookups) = channel(1);
        let mut session = Self {
            factory: InformerFactory::new(&opener.connection),
            opener,
            clock,
            has_color,
            model: Model::new(tabs),
            sources: watched.iter().map(|_| None).collect(),
            watched,
            cells: RefCell::default(),
            changed: Arc::default(),
            page: None,
            page_load_id: 0,
            update_sender,
            updates,
            lookup_sender,
            lookups,
        };
        session.start_current_tab();
        session
    }

    /// Draws until the user quits.
    pub(super) async fn run<B: Backend<Error = io::Error>>(
        mut self,
        terminal: &mut Terminal<B>,
        mut keys: Receiver<io::Result<Event>>,
    ) -> Result<(), Failure> {
        let (mut last_draw, mut is_changed) = (None::<Instant>, true);
        loop {
            let interval = if is_changed { MIN_DRAW_INTERVAL } else { IDLE_DRAW_INTERVAL };
            let remaining = last_draw.map_or(Duration::ZERO, |last| interval.saturating_sub(last.elapsed()));
            match self.next_input(&mut keys, is_changed, sleep(remaining)).await {
                Input::Terminal(Some(Ok(Event::Key(key)))) if key.kind != KeyEventKind::Release => {
                    match self.model.key(key) {
                        Some(Effect::Quit) => return Ok(()),
                        Some(effect) => self.execute(effect),
                        None => {}
                    }
                }
                Input::Terminal(Some(Ok(_))) | Input::Changed => {}
                Input::Terminal(Some(Err(error))) => return Err(screen::failure(&error)),
                Input::Terminal(None) => return Err(Failure::run("the thread that reads keys has ended")),
                Input::Update((load_id, update)) => self.update_page(load_id, update),
                Input::Lookup(lookup) => self.add_tab(lookup),
                Input::Draw => {
                    self.take_changes();
                    is_changed = self.evaluate_filter() | self.update_usage();
                    terminal.draw(|frame| self.draw(frame)).map_err(|error| screen::failure(&error))?;
                    last_draw = Some(Instant::now());
                    continue;
                }
            }
            is_changed = true;
        }
    }

    async fn next_input(
        &mut self,
        keys: &mut Receiver<io::Result<Event>>,
        is_changed: bool,
        pause: impl Future<Output = ()>,
    ) -> Input {
        tokio::select! {
            // Keys are polled first, and a due drawing before new input. A fast log must delay neither of them.
            biased;
            event = keys.recv() => Input::Terminal(event),
            () = pause => Input::Draw,
            // The session has senders of its own, so the channels never end.
            Some(lookup) = self.lookups.recv() => Input::Lookup(lookup),
            Some(update) = self.updates.recv() => Input::Update(update),
            () = self.changed.notified(), if !is_changed => Input::Changed,
        }
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Quit => {}
            Effect::Show => self.start_current_tab(),
            Effect::Open(name) => self.look_up(name),
            Effect::Load(page) => self.load(page),
            Effect::Close => self.page = None,
        }
    }

    /// Closes the page, and starts the informer of the current tab unless it runs already.
    fn start_current_tab(&mut self) {
        self.page = None;
        let number = self.model.current;
        if self.sources[number].is_some() {
            return;
        }
        let WatchedTab { api_resource, schema, scope, usage } = &self.watched[number];
        let usage = usage
            .clone()
            .zip(schema.usage().cloned())
            .map(|(path, table)| UsagePoll::start(self.opener.connection.client(), path, table, self.changed.clone()));
        match TabInformer::start(&self.factory, schema, api_resource, scope.clone(), self.changed.clone(), usage) {
            Ok(source) => self.sources[number] = Some(source),
            Err(failure) => self.model.message = Some(failure.to_string()),
        }
    }

    /// Finds a kind without blocking the screen.
    fn look_up(&mut self, name: String) {
        self.model.message = Some(format!("looking up {name}"));
        let (opener, sender) = (self.opener.clone(), self.lookup_sender.clone());
        tokio::spawn(async move {
            let lookup = opener.open(&name).await.map(Box::new);
            // The call fails only after the screen has been closed.
            let _ = sender.send(lookup).await;
        });
    }

    fn add_tab(&mut self, lookup: Lookup) {
        self.model.message = None;
        let opened = match lookup {
            Ok(opened) => *opened,
            Err(reason) => {
                self.model.message = Some(reason);
                return;
            }
        };
        // The name may be a short name of a kind that already has a tab.
        let known = self.model.tabs.iter().position(|tab| tab.title == opened.tab.title);
        let number = known.unwrap_or_else(|| {
            self.model.tabs.push(opened.tab);
            self.watched.push(opened.watched);
            self.sources.push(None);
            self.sources.len() - 1
        });
        let effect = self.model.switch_to(number);
        self.execute(effect);
    }

    /// Starts the task of a page that needs requests.
    fn load(&mut self, page: DetailsPage) {
        self.page = None;
        self.page_load_id += 1;
        let Some(details) = &self.model.details else { return };
        let (connection, key) = (self.opener.connection.clone(), details.key.clone());
        let sender = PageSender { load_id: self.page_load_id, updates: self.update_sender.clone() };
        let tab = &self.model.tabs[details.tab];
        self.page = match page {
            DetailsPage::Changes | DetailsPage::Yaml => None,
            DetailsPage::Related => {
                let (resource, columns) = (tab.title.clone(), tab.state_columns.clone());
                Some(load_related(self.opener.clone(), OpenedObject { resource, key, columns }, sender))
            }
            DetailsPage::Events => Some(load_events(connection, key, tab.kind.clone(), sender)),
            DetailsPage::Logs => {
                tab.table.row(&key).map(|row| load_logs(connection, key.clone(), row.object.decode(), sender))
            }
        };
    }

    /// Adds the lines of a page, unless another page is shown.
    fn update_page(&mut self, load_id: u64, update: PageUpdate) {
        let Some(details) = self.model.details.as_mut().filter(|_| load_id == self.page_load_id) else { return };
        match update {
            PageUpdate::Replace(lines) => details.set_lines(lines),
            PageUpdate::Append(line) => details.add_line(line),
        }
    }

    /// Moves the changes of all informers to the model.
    fn take_changes(&mut self) {
        let now = Instant::now();
        for (number, source) in self.sources.iter().enumerate() {
            let Some(source) = source else { continue };
            let tab = &mut self.model.tabs[number];
            source.set_needs_content(tab.table.needs_content());
            let changes = source.take();
            tab.freshness = Some(source.freshness());
            changes.rows.into_values().for_each(|change| tab.apply(change, now));
            self.model.record(number, changes.history);
        }
    }

    /// Evaluates a new filter or order for a limited time. Returns whether rows remain.
    fn evaluate_filter(&mut self) -> bool {
        let (table, start) = (&mut self.model.tab_mut().table, Instant::now());
        while table.evaluate(FILTER_STEP) {
            if start.elapsed() >= FILTER_BUDGET {
                return true;
            }
        }
        false
    }

    /// Updates the processor and memory usage of a limited number of rows. Returns whether rows remain.
    fn update_usage(&mut self) -> bool {
        let tabs = self.model.tabs.iter_mut().zip(&self.watched);
        tabs.fold(false, |remains, (tab, watched)| tab.update_usage(&watched.schema, USAGE_STEP) | remains)
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let (now, time) = (Instant::now(), Timestamp::now());
        self.cells.borrow_mut().begin(self.model.current);
        let cells = |number: usize, row: &Row| {
            let schema = &self.watched.get(number)?.schema;
            let compute = || schema.cells(&row.object.decode(), time);
            Some(self.cells.borrow_mut().cells(row, now, compute))
        };
        let context = ViewContext { now, clock: &self.clock, has_color: self.has_color, cells: &cells };
        view::draw(frame, &mut self.model, &context);
    }
}
