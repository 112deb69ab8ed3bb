//! Status line at the bottom of a terminal: freshness, age of the last proof, rate of changes, reconnects and repaired
//! gaps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use steadfast::{Diagnostic, Freshness, Informer, RelistCause};

use super::tally::Tally;
use super::text_line::{GREEN, RED, TextLine};
use super::watched::CachedObject;
use crate::changes::text::plural;
use crate::clock::Clock;

/// Period of the rate of changes.
const RATE_PERIOD: Duration = Duration::from_secs(60);

/// Minimum width of a terminal with a status line.
const MIN_COLUMNS: usize = 20;

/// The watched resources, for the status line. Cheap to clone.
#[derive(Clone)]
pub(super) struct StatusBoard(Arc<Mutex<BoardState>>);

struct BoardState {
    clock: Clock,
    /// Number of clusters that still lack some of the requested resources.
    starting_clusters: usize,
    watched: Vec<WatchedResource>,
    fresh_since: Option<Timestamp>,
    rate: ChangeRate,
}

struct WatchedResource {
    name: String,
    informer: Informer<CachedObject>,
    tally: Arc<Tally>,
    repairs: Arc<Repairs>,
    initial_output: InitialOutput,
}

/// Progress of the first output of a resource. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct InitialOutput(Arc<AtomicBool>);

impl InitialOutput {
    /// Records that all existing objects of the resource are printed.
    pub(super) fn mark_printed(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_printed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Numbers of interruptions that an informer repaired.
#[derive(Debug, Default)]
struct Repairs {
    /// Watches that resumed after an interruption.
    reconnects: AtomicU64,
    /// Relists after a gap: a period whose watch events were no longer available.
    gaps: AtomicU64,
    /// True from the start of a relist after a gap until its end.
    is_repairing: AtomicBool,
    /// True if the current or last relist started because the version of the cache had expired.
    is_after_expiry: AtomicBool,
    /// True from the first complete list until its watch is opened or fails. This watch does not count as a reconnect.
    is_first_watch: AtomicBool,
    /// True while lists replace the watch.
    is_polling: AtomicBool,
    /// True after a relist that counted as a gap, until the watch is known to work. If lists replace the watch instead,
    /// the relist was the first of these lists. Always false after an expiry, which is a gap in any case.
    may_be_poll: AtomicBool,
}

impl Repairs {
    fn record(&self, diagnostic: &Diagnostic) {
        let is_first_watch = self.is_first_watch.swap(false, Ordering::Relaxed);
        match diagnostic {
            Diagnostic::Synced { .. } => self.is_first_watch.store(true, Ordering::Relaxed),
            Diagnostic::Resumed { .. } if is_first_watch => {}
            // The watch does not change with these diagnostics.
            Diagnostic::FellBackToPages { .. } | Diagnostic::FellBackToJson { .. } => {
                self.is_first_watch.store(is_first_watch, Ordering::Relaxed);
            }
            // A resumed watch may still fail at once, so it does not clear `may_be_poll`.
            Diagnostic::Resumed { .. } | Diagnostic::Moved { .. } => {
                self.is_polling.store(false, Ordering::Relaxed);
                self.reconnects.fetch_add(1, Ordering::Relaxed);
            }
            Diagnostic::Polling { .. } => {
                self.is_polling.store(true, Ordering::Relaxed);
                // Watches that always fail lead to a list, and to polling if the next watch fails too.
                if self.may_be_poll.swap(false, Ordering::Relaxed) {
                    self.gaps.fetch_sub(1, Ordering::Relaxed);
                }
            }
            // A poll does not repair a gap. Only a failed poll is announced as a relist.
            Diagnostic::Relisting { cause, .. } if !self.is_polling.load(Ordering::Relaxed) => {
                // A repeated relist, for example after an expired page, has the cause of the first.
                if !self.is_repairing.swap(true, Ordering::Relaxed) {
                    self.is_after_expiry.store(*cause == RelistCause::Expired, Ordering::Relaxed);
                }
                self.may_be_poll.store(false, Ordering::Relaxed);
            }
            Diagnostic::Relisted { .. } if self.is_repairing.swap(false, Ordering::Relaxed) => {
                self.gaps.fetch_add(1, Ordering::Relaxed);
                self.may_be_poll.store(!self.is_after_expiry.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            // The watch works: it reached its regular end.
            Diagnostic::Ended => self.may_be_poll.store(false, Ordering::Relaxed),
            _ => {}
        }
    }
}

impl StatusBoard {
    /// Creates the board without resources.
    pub(super) fn new(clock: Clock) -> Self {
        let rate = ChangeRate::default();
        let board = BoardState { clock, starting_clusters: 0, watched: Vec::new(), fresh_since: None, rate };
        Self(Arc::new(Mutex::new(board)))
    }

    /// Adds a cluster whose resources follow.
    pub(super) fn add_cluster(&self) {
        self.0.lock().starting_clusters += 1;
    }

    /// Records that all requested resources of a cluster are added, except for kinds that the server does not serve yet.
    pub(super) fn cluster_started(&self) {
        self.0.lock().starting_clusters -= 1;
    }

    /// Adds a watched resource. The status is not fresh before its existing objects are printed.
    pub(super) fn add(&self, name: String, informer: &Informer<CachedObject>, tally: Arc<Tally>) -> InitialOutput {
        let (repairs, initial_output) = (Arc::new(Repairs::default()), InitialOutput::default());
        let recorded_repairs = repairs.clone();
        informer.on_diagnostic(move |diagnostic| recorded_repairs.record(diagnostic));
        let watched = WatchedResource {
            name,
            informer: informer.clone(),
            tally,
            repairs,
            initial_output: initial_output.clone(),
        };
        self.0.lock().watched.push(watched);
        initial_output
    }

    /// Returns the current status line for a terminal with this number of columns; empty for a narrow terminal.
    pub(super) fn render(&self, has_color: bool, columns: usize) -> String {
        let mut board = self.0.lock();
        if board.watched.is_empty() {
            return String::new();
        }
        let status = board.status(Instant::now(), Timestamp::now());
        status.render(&board.clock, has_color, columns)
    }
}

impl BoardState {
    fn status(&mut self, now: Instant, time: Timestamp) -> StatusContent {
        let mut doubts = 0;
        let (mut doubt, mut proof_age) = (None, Some(Duration::ZERO));
        for watched in &self.watched {
            let freshness = watched.informer.freshness();
            let age = match &freshness {
                Freshness::Fresh { age, .. } => Some(*age),
                other => {
                    doubts += 1;
                    doubt.get_or_insert_with(|| format!("{} {other}", watched.name));
                    other.doubt().and_then(|doubt| doubt.age)
                }
            };
            // The oldest proof bounds the age of all lines.
            proof_age = proof_age.zip(age).map(|(first, second)| first.max(second));
        }
        let sum = |counter: fn(&Repairs) -> &AtomicU64| {
            self.watched.iter().map(|watched| counter(&watched.repairs).load(Ordering::Relaxed)).sum()
        };
        let (reconnects, gaps) = (sum(|repairs| &repairs.reconnects), sum(|repairs| &repairs.gaps));
        let total = self.watched.iter().map(|watched| watched.tally.counts().total()).sum();
        let state = match (doubt, self.listing()) {
            (Some(text), _) => StatusState::Doubt { text, others: doubts - 1 },
            (None, Some(text)) => StatusState::Listing(text),
            (None, None) => StatusState::Fresh { since: *self.fresh_since.get_or_insert(time) },
        };
        if !matches!(state, StatusState::Fresh { .. }) {
            self.fresh_since = None;
        }
        StatusContent { state, proof_age, changes_a_minute: self.rate.record(now, total), reconnects, gaps }
    }

    /// Describes the resources whose existing objects are not all printed; `None` if no such resource is left.
    fn listing(&self) -> Option<String> {
        let mut unprinted = self.watched.iter().filter(|watched| !watched.initial_output.is_printed());
        let Some(first) = unprinted.next() else {
            return (self.starting_clusters > 0).then(|| "starting to watch all resources".to_owned());
        };
        let others = match unprinted.count() {
            0 => String::new(),
            count => format!(" and of {} more", plural(count as u64, "resource")),
        };
        Some(format!("printing the existing objects of {}{others}", first.name))
    }
}

/// Number of changes within the last minute.
#[derive(Debug, Default)]
struct ChangeRate {
    /// Total numbers of changes, oldest first. The first one is the latest total before the period.
    totals: VecDeque<(Instant, u64)>,
}

impl ChangeRate {
    /// Records the total number of changes; returns the number within the last minute.
    fn record(&mut self, now: Instant, total: u64) -> u64 {
        self.totals.push_back((now, total));
        while self.totals.get(1).is_some_and(|(time, _)| now.duration_since(*time) >= RATE_PERIOD) {
            self.totals.pop_front();
        }
        let total_before = self.totals.front().map_or(total, |(_, total)| *total);
        total - total_before
    }
}

/// Content of the status line.
#[derive(Debug)]
struct StatusContent {
    state: StatusState,
    /// Age of the oldest proof of all resources; `None` before the first proof of a resource.
    proof_age: Option<Duration>,
    changes_a_minute: u64,
    reconnects: u64,
    gaps: u64,
}

#[derive(Debug)]
enum StatusState {
    Fresh {
        since: Timestamp,
    },
    /// All caches are fresh, but not all existing objects are printed.
    Listing(String),
    /// The caches of some resources are in doubt. `text` describes the first one; `others` counts the others.
    Doubt {
        text: String,
        others: usize,
    },
}

impl StatusContent {
    fn render(&self, clock: &Clock, has_color: bool, columns: usize) -> String {
        if columns < MIN_COLUMNS {
            return String::new();
        }
        let mut line = TextLine::default();
        let numbers = [
            self.proof_age.map_or_else(|| "no proof yet".to_owned(), |age| format!("proof {} ago", one_unit(age))),
            format!("{} changes/min", self.changes_a_minute),
            plural(self.reconnects, "reconnect"),
            format!("{} repaired", plural(self.gaps, "gap")),
        ];
        let numbers = numbers.join(" │ ");
        match &self.state {
            StatusState::Fresh { since } => {
                // The time of day without fractions.
                let since = clock.format_time_of_day(*since);
                line.add(Some(GREEN), &format!("fresh since {}", since.get(..8).unwrap_or(&since)));
                line.add_dim(&format!("│ {numbers}"));
            }
            StatusState::Listing(text) => {
                line.add_dim(&format!("{numbers} │"));
                line.add(None, text);
            }
            // The reason is the longest part, so it is shortened first.
            StatusState::Doubt { text, others } => {
                line.add_dim(&format!("{numbers} │"));
                let others = if *others > 0 { format!("{others} more in doubt; ") } else { String::new() };
                line.add(Some(RED), &format!("{others}{text}"));
            }
        }
        // A full last column would move the cursor to the next row.
        line.render_within(has_color, columns - 1)
    }
}

/// Returns a duration with one unit.
pub(crate) fn one_unit(duration: Duration) -> String {
    match duration.as_secs() {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::text::width;

    fn status(state: StatusState) -> StatusContent {
        let proof_age = Some(Duration::from_millis(800));
        StatusContent { state, proof_age, changes_a_minute: 36, reconnects: 2, gaps: 1 }
    }

    fn fresh() -> StatusContent {
        status(StatusState::Fresh { since: "2026-01-02T08:04:05.678Z".parse().expect("a time") })
    }

    /// Returns the diagnostic of a relist. Only its cause may count, not the text.
    fn relist_by(cause: RelistCause) -> Diagnostic {
        Diagnostic::Relisting { cause, reason: "500: the proxy received 410 Gone".into() }
    }

    fn render_plain(status: &StatusContent, columns: usize) -> String {
        status.render(&Clock::choose(true), false, columns)
    }

    #[test]
    fn status_has_freshness_and_numbers() {
        let expected = "fresh since 08:04:05 │ proof 0.8 s ago │ 36 changes/min │ 2 reconnects │ 1 gap repaired";
        assert_eq!(render_plain(&fresh(), 120), expected);
        let text = "pods stale for 3.2 s: reset".to_owned();
        let doubt = render_plain(&status(StatusState::Doubt { text, others: 1 }), 200);
        assert!(doubt.ends_with("1 gap repaired │ 1 more in doubt; pods stale for 3.2 s: reset"), "{doubt}");
        let listing = StatusState::Listing("printing the existing objects of pods".to_owned());
        let expected =
            "proof 0.8 s ago │ 36 changes/min │ 2 reconnects │ 1 gap repaired │ printing the existing objects of pods";
        assert_eq!(render_plain(&status(listing), 200), expected);
        let before = StatusContent { proof_age: None, ..fresh() };
        assert!(render_plain(&before, 120).contains("│ no proof yet │"));
    }

    #[test]
    fn polls_are_not_counted_as_gaps() {
        let repairs = Repairs::default();
        let record = |diagnostics: &[Diagnostic]| {
            for diagnostic in diagnostics {
                repairs.record(diagnostic);
            }
            (repairs.reconnects.load(Ordering::Relaxed), repairs.gaps.load(Ordering::Relaxed))
        };
        let version = || Some("7".into());
        let relisting = || relist_by(RelistCause::Expired);
        let relisted = || Diagnostic::Relisted { held: version(), version: version(), fetched: None };
        let polling = Diagnostic::Polling { reason: "403 Forbidden".into(), every: Duration::from_secs(60) };
        assert_eq!(record(&[Diagnostic::Synced { version: version() }, polling]), (0, 0));
        assert_eq!(record(&[relisted(), relisted()]), (0, 0));
        assert_eq!(record(&[relisting(), relisted()]), (0, 0), "a page of a poll expired");
        assert_eq!(record(&[Diagnostic::Resumed { version: "8".into() }]), (1, 0));
        assert_eq!(record(&[relisting(), relisting(), relisted()]), (1, 1));
        let resumed = || Diagnostic::Resumed { version: "9".into() };
        let polling = || Diagnostic::Polling { reason: "500 broken".into(), every: Duration::from_secs(60) };
        assert_eq!(record(&[resumed(), Diagnostic::Ended, resumed()]), (3, 1));
        // A watch that always fails: the list just before polling repairs no gap, but the earlier relist did.
        let relisting = || relist_by(RelistCause::WatchesFail);
        assert_eq!(record(&[relisting(), relisted(), polling(), relisted()]), (3, 1));
        // The watch fails after it was opened.
        assert_eq!(record(&[resumed(), relisting(), relisted(), resumed(), polling(), relisted()]), (5, 1));
    }

    #[test]
    fn relist_after_410_counts_despite_polling() {
        for (cause, gaps) in [(RelistCause::Expired, 1), (RelistCause::WatchesFail, 0)] {
            let repairs = Repairs::default();
            let version = || Some("7".into());
            for diagnostic in [
                Diagnostic::Synced { version: version() },
                relist_by(cause),
                // The server rejects watches, and therefore also streamed lists.
                Diagnostic::FellBackToPages { reason: "403 Forbidden".into() },
                Diagnostic::Relisted { held: version(), version: version(), fetched: None },
                Diagnostic::Polling { reason: "403 Forbidden".into(), every: Duration::from_secs(60) },
                Diagnostic::Relisted { held: version(), version: version(), fetched: None },
            ] {
                repairs.record(&diagnostic);
            }
            assert_eq!(repairs.gaps.load(Ordering::Relaxed), gaps, "{cause:?}");
        }
    }

    #[test]
    fn first_watch_is_not_counted_as_reconnect() {
        let synced = || Diagnostic::Synced { version: Some("7".into()) };
        let resumed = || Diagnostic::Resumed { version: "7".into() };
        let fell_back = || Diagnostic::FellBackToPages { reason: "rejected".into() };
        for (diagnostics, reconnects) in [
            // Pages, and then the watch.
            (vec![synced(), resumed()], 0),
            (vec![synced(), fell_back(), resumed(), resumed()], 1),
            // The stream of the first list is the watch.
            (vec![synced(), Diagnostic::Ended, resumed()], 1),
        ] {
            let repairs = Repairs::default();
            for diagnostic in &diagnostics {
                repairs.record(diagnostic);
            }
            assert_eq!(repairs.reconnects.load(Ordering::Relaxed), reconnects, "{diagnostics:?}");
        }
    }

    #[test]
    fn status_fits_terminal() {
        for columns in 0..120 {
            for has_color in [false, true] {
                let line = fresh().render(&Clock::choose(true), has_color, columns);
                let plain = render_plain(&fresh(), columns);
                assert!(width(&plain) < columns.max(1), "{columns}: {plain}");
                assert_eq!(line.contains('\x1b'), has_color && columns >= MIN_COLUMNS, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn hostile_reason_is_escaped() {
        let text = "pods stale: \x1b[2J".to_owned();
        let line = render_plain(&status(StatusState::Doubt { text, others: 0 }), 200);
        assert!(line.ends_with("pods stale: \\u{1b}[2J"), "{line}");
    }

    #[test]
    fn rate_counts_the_last_minute() {
        let (mut rate, start) = (ChangeRate::default(), Instant::now());
        let mut record = |seconds: u64, total| rate.record(start + Duration::from_secs(seconds), total);
        assert_eq!(record(0, 5), 0);
        assert_eq!(record(10, 9), 4);
        assert_eq!(record(59, 10), 5);
        assert_eq!(record(61, 10), 5);
        assert_eq!(record(75, 12), 3);
        assert_eq!(record(300, 12), 0);
        assert!(rate.totals.len() <= 3, "{rate:?}");
    }

    #[test]
    fn durations_have_one_unit() {
        let texts = [800, 42_000, 300_000, 7_200_000].map(|millis| one_unit(Duration::from_millis(millis)));
        assert_eq!(texts, ["0.8 s", "42 s", "5 min", "2 h"]);
    }
}
