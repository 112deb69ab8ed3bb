//! Reports of doubts about a cache, with start, reason and end. Reports for people go to standard error, and reports
//! for programs are lines among the events.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use steadfast::{Diagnostic, Freshness, Informer, Registration};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, sleep, timeout};

use super::json_line::Transition;
use super::line::Style;
use super::printer::Printer;
use super::tally::{Counts, Tally};
use super::watched::{CachedObject, Subject};
use crate::clock::Clock;

/// Shortest reported doubt. A shorter doubt is a regular reconnect.
const MIN_REPORTED_DOUBT: Duration = Duration::from_millis(500);
/// Interval between checks. A cache can become stale without an event that would trigger a check.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of transitions that are pending for output. While the channel is full, the check waits.
const MAX_PENDING_TRANSITIONS: usize = 64;
/// Interval between checks whether the handler has processed the events that were pending when the cache became fresh.
const DELIVERY_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Receiver of the reports for people, which writes each to standard error.
pub(super) type ReportSink = Arc<dyn Fn(String) + Send + Sync>;

/// An informer with its resource, its handler and the counts of the handler.
pub(super) struct Followed {
    pub(super) subject: Arc<Subject>,
    pub(super) informer: Informer<CachedObject>,
    /// Registration of the handler that prints the events.
    pub(super) events: Arc<Registration<CachedObject>>,
    /// Numbers of the handler's events.
    pub(super) tally: Arc<Tally>,
}

/// Reports every doubt about an informer until the informer stops.
pub(super) fn follow(followed: Followed, style: Style, clock: Clock, printer: Printer, report: ReportSink) {
    let Followed { subject, informer, events, tally } = followed;
    let doubts = Arc::new(Mutex::new(DoubtTracker::default()));
    let (reports, report_receiver) = channel(MAX_PENDING_TRANSITIONS);
    let output = DoubtOutput { subject, clock, style, printer, report, events, tally };
    tokio::spawn(output.print(report_receiver));
    let (doubts_of_diagnostics, reports_of_diagnostics) = (doubts.clone(), reports.clone());
    informer.on_diagnostic(move |diagnostic| {
        // The diagnostic itself is reported, because the cache may be fresh again before the next periodic check.
        if let Diagnostic::NewEpoch { .. } = diagnostic {
            let report = doubts_of_diagnostics.lock().replaced_history(diagnostic, Instant::now());
            // The channel is full only if output is blocked; the next check reports the state at that time.
            let _ = reports_of_diagnostics.try_send(report);
        }
    });
    tokio::spawn(async move {
        let mut changed = informer.changed();
        loop {
            let freshness = informer.freshness();
            let report = doubts.lock().check(&freshness, Instant::now());
            if let Some(report) = report {
                // The call fails only if the program is about to end.
                let _ = reports.send(report).await;
            }
            if matches!(freshness, Freshness::Stopped(_))
                || matches!(timeout(CHECK_INTERVAL, changed.changed()).await, Ok(Err(_)))
            {
                return;
            }
        }
    });
}

/// Destinations of the reports about one informer.
struct DoubtOutput {
    subject: Arc<Subject>,
    clock: Clock,
    style: Style,
    printer: Printer,
    report: ReportSink,
    events: Arc<Registration<CachedObject>>,
    tally: Arc<Tally>,
}

impl DoubtOutput {
    /// Prints the reports in order, among the events.
    async fn print(self, mut reports: Receiver<DoubtReport>) {
        // Numbers at the first report of a doubt. They equal the numbers at its start, because a broken stream delivers
        // no events in between.
        let mut counts_before: Option<Counts> = None;
        while let Some(DoubtReport { line, transition }) = reports.recv().await {
            let mut missed = None;
            if transition.reason.is_none() {
                until_delivered(&self.events).await;
                // A report for people has another path than the lines, and must not overtake them.
                let printer = self.printer.clone();
                if tokio::task::spawn_blocking(move || printer.flush()).await.is_err() {
                    return;
                }
                missed = counts_before.take().map(|counts_before| self.tally.counts().since(counts_before));
            } else {
                counts_before.get_or_insert_with(|| self.tally.counts());
            }
            let suffix = missed.map_or(String::new(), |missed| format!("; while disconnected: {missed}"));
            let (clock, resource) = (self.clock.format_time_of_day(Timestamp::now()), self.subject.title());
            (self.report)(format!("{clock} ! {resource}: {line}{suffix}"));
            let Some(line) = self.style.freshness(&self.subject, &transition, missed) else { continue };
            let printer = self.printer.clone();
            // Printing blocks while the reader is slow.
            if tokio::task::spawn_blocking(move || printer.print_uncounted(line)).await.is_err() {
                return;
            }
        }
    }
}

/// Waits until the handler has returned from all events that are pending now: later lines are newer than the doubt.
async fn until_delivered(events: &Registration<CachedObject>) {
    let stats_at_start = events.stats();
    // A pending entry may represent a deletion and an addition, which are two calls of the handler.
    let required_calls = stats_at_start.returned + stats_at_start.skipped + 2 * stats_at_start.entries as u64;
    loop {
        let stats = events.stats();
        if stats.entries == 0 || stats.returned + stats.skipped >= required_calls {
            return;
        }
        sleep(DELIVERY_CHECK_INTERVAL).await;
    }
}

/// Report of a doubt: the line for people and the transition for programs.
#[derive(Debug, PartialEq)]
struct DoubtReport {
    line: String,
    transition: Transition,
}

/// Reported doubts of one cache.
#[derive(Default)]
struct DoubtTracker {
    /// State and reason of the last report.
    last_report: Option<(&'static str, String)>,
    since: Option<Instant>,
}

impl DoubtTracker {
    /// Returns the report of a replaced history, which is due regardless of its duration.
    fn replaced_history(&mut self, diagnostic: &Diagnostic, now: Instant) -> DoubtReport {
        let reason = diagnostic.to_string();
        let since = *self.since.get_or_insert(now);
        self.last_report = Some(("stale", reason.clone()));
        let line = format!("stale: {reason}");
        DoubtReport {
            line,
            transition: Transition { state: "Stale", reason: Some(reason), doubt_seconds: seconds(since, now) },
        }
    }

    /// Returns the report that is due now, if any: one for each state and reason, and one at the end.
    fn check(&mut self, freshness: &Freshness, now: Instant) -> Option<DoubtReport> {
        let Some(doubt) = freshness.doubt() else {
            // A doubt shorter than the minimum was never reported, and ends without a line.
            let since = self.since.take();
            self.last_report.take()?;
            let doubt_seconds = since.map_or(0.0, |since| seconds(since, now));
            let line = format!("fresh again after {doubt_seconds:.1} s");
            return Some(DoubtReport { line, transition: Transition { state: "Fresh", reason: None, doubt_seconds } });
        };
        // The doubt may have started before this check.
        let since = *self.since.get_or_insert(now - doubt.elapsed);
        let report_key = (freshness.name(), doubt.reason.to_string());
        // A stopped informer means that the program ends, which is not a doubt.
        if now - since < MIN_REPORTED_DOUBT
            || self.last_report.as_ref() == Some(&report_key)
            || matches!(freshness, Freshness::Stopped(_))
        {
            return None;
        }
        let transition = Transition {
            state: state(freshness),
            reason: Some(report_key.1.clone()),
            doubt_seconds: doubt.elapsed.as_secs_f64(),
        };
        self.last_report = Some(report_key);
        Some(DoubtReport { line: freshness.to_string(), transition })
    }
}

fn seconds(since: Instant, now: Instant) -> f64 {
    (now - since).as_secs_f64()
}

/// Returns the name of a state in JSON.
fn state(freshness: &Freshness) -> &'static str {
    match freshness {
        Freshness::Fresh { .. } => "Fresh",
        Freshness::Starting(_) => "Starting",
        Freshness::Resuming(_) => "Resuming",
        Freshness::Suspect(_) => "Suspect",
        Freshness::Stale(_) => "Stale",
        Freshness::Failed(_) => "Failed",
        // Only `Stopped` is left. If the library adds a state, the state needs a name here.
        _ => "Stopped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt(lasting: u64, reason: &str) -> steadfast::Doubt {
        let mut doubt = steadfast::Doubt::new(Duration::from_millis(lasting), reason);
        doubt.attempts = 1;
        doubt
    }

    fn fresh() -> Freshness {
        Freshness::Fresh { version: None, age: Duration::ZERO, tainted: steadfast::KeySet::default(), polled: None }
    }

    fn line(report: Option<DoubtReport>) -> Option<String> {
        report.map(|report| report.line)
    }

    #[tokio::test(start_paused = true)]
    async fn doubt_and_end_are_reported_once() {
        let mut doubts = DoubtTracker::default();
        let start = Instant::now() + Duration::from_secs(60);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(doubts.check(&Freshness::Resuming(doubt(0, "reset")), at(0)), None);
        let report = doubts.check(&Freshness::Resuming(doubt(600, "reset")), at(600)).expect("the doubt lasts");
        assert!(report.line.starts_with("resuming for 0.6 s: reset"), "{report:?}");
        let transition = Transition { state: "Resuming", reason: Some("reset".to_owned()), doubt_seconds: 0.6 };
        assert_eq!(report.transition, transition);
        assert_eq!(doubts.check(&Freshness::Resuming(doubt(900, "reset")), at(900)), None);
        assert!(doubts.check(&Freshness::Stale(doubt(1200, "reset")), at(1200)).is_some());
        let report = doubts.check(&fresh(), at(2000)).expect("the doubt has ended");
        assert_eq!(report.line, "fresh again after 2.0 s");
        assert_eq!(report.transition, Transition { state: "Fresh", reason: None, doubt_seconds: 2.0 });
        assert_eq!(doubts.check(&fresh(), at(2100)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_history_is_reported_immediately() {
        let mut doubts = DoubtTracker::default();
        let start = Instant::now() + Duration::from_secs(60);
        let at = |ms| start + Duration::from_millis(ms);
        let diagnostic = Diagnostic::NewEpoch { held: "9".into(), proof: "1".into() };
        assert_eq!(doubts.check(&Freshness::Resuming(doubt(0, "reset")), at(0)), None);
        let report = doubts.replaced_history(&diagnostic, at(100));
        let words = "stale: the server's history was replaced: the server is at version 1, the cache at version 9";
        assert!(report.line.starts_with(words), "{report:?}");
        assert_eq!(report.transition.state, "Stale");
        assert_eq!(doubts.check(&Freshness::Stale(doubt(600, &diagnostic.to_string())), at(600)), None);
        assert_eq!(line(doubts.check(&fresh(), at(700))), Some("fresh again after 0.7 s".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn short_resume_is_not_reported() {
        let mut doubts = DoubtTracker::default();
        let start = Instant::now() + Duration::from_secs(60);
        assert_eq!(doubts.check(&Freshness::Resuming(doubt(0, "ended")), start), None);
        assert_eq!(doubts.check(&fresh(), start + Duration::from_millis(300)), None);
    }
}
