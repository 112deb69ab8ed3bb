//! Reports of doubts about a cache, with start, reason and end: on standard error for people, as lines among the events for
//! programs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use steadfast::{Diagnostic, Freshness, Informer, Registration};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, timeout};

use super::line::{Style, Subject, Transition};
use super::printer::Printer;
use crate::aside;
use crate::clock::Clock;

/// Shortest reported doubt; a shorter one is a regular reconnect.
const WORTH_TELLING: Duration = Duration::from_millis(500);
/// Interval between checks. A cache can become stale without an event that would trigger a check.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Maximum number of transitions that are pending for output. While the channel is full, the check waits.
const WAITING: usize = 64;
/// Interval between checks whether the handler has processed the events that were pending when the cache became fresh.
const DELIVERED_EVERY: Duration = Duration::from_millis(20);

/// Reports every doubt about `informer` until it stops; `events` is the registration of the handler that prints its events.
pub(crate) fn follow(
    subject: Arc<Subject>,
    informer: Informer<DynamicObject>,
    events: Arc<Registration<DynamicObject>>,
    style: Style,
    clock: Clock,
    printer: Printer,
) {
    let doubts = Arc::new(Mutex::new(Doubts::default()));
    let (transitions, waiting) = channel(WAITING);
    tokio::spawn(print(waiting, subject.clone(), events, style, printer));
    let teller = Teller { subject, clock, transitions };
    let (noted, noting) = (doubts.clone(), teller.clone());
    informer.on_diagnostic(move |note| {
        if let Diagnostic::NewEpoch { .. } = note {
            let told = noted.lock().unwrap_or_else(PoisonError::into_inner).another_history(note, Instant::now());
            noting.complain(&told);
            // The channel is full only if output is blocked; the next check reports the state at that time.
            let _ = noting.transitions.try_send(told.became);
        }
    });
    tokio::spawn(async move {
        let mut changed = informer.changed();
        loop {
            let freshness = informer.freshness();
            let told = doubts.lock().unwrap_or_else(PoisonError::into_inner).look(&freshness, Instant::now());
            if let Some(told) = told {
                teller.complain(&told);
                // Fails only if the program is about to end.
                let _ = teller.transitions.send(told.became).await;
            }
            if matches!(freshness, Freshness::Stopped(_))
                || matches!(timeout(LOOK_EVERY, changed.changed()).await, Ok(Err(_)))
            {
                return;
            }
        }
    });
}

/// Destinations of doubt reports.
#[derive(Clone)]
struct Teller {
    subject: Arc<Subject>,
    clock: Clock,
    transitions: Sender<Transition>,
}

impl Teller {
    fn complain(&self, told: &Told) {
        let (clock, resource) = (self.clock.of_day(Timestamp::now()), &self.subject.name);
        aside::say(format_args!("{clock} ! {resource}: {}", told.line));
    }
}

/// Prints the transitions in order, among the events.
async fn print(
    mut transitions: Receiver<Transition>,
    subject: Arc<Subject>,
    events: Arc<Registration<DynamicObject>>,
    style: Style,
    printer: Printer,
) {
    while let Some(became) = transitions.recv().await {
        let Some(line) = style.freshness(&subject, &became) else { continue };
        if became.why.is_none() {
            until_delivered(&events).await;
        }
        let printer = printer.clone();
        // Printing blocks while the reader is slow.
        if tokio::task::spawn_blocking(move || printer.print_aside(line)).await.is_err() {
            return;
        }
    }
}

/// Waits until the handler has returned from all events that are pending now: later lines are newer than the doubt.
async fn until_delivered(events: &Registration<DynamicObject>) {
    let begun = events.counts();
    // An entry may represent a deletion and an addition: two calls.
    let enough = begun.returned + begun.skipped + 2 * begun.entries as u64;
    loop {
        let counts = events.counts();
        if counts.entries == 0 || counts.returned + counts.skipped >= enough {
            return;
        }
        sleep(DELIVERED_EVERY).await;
    }
}

/// Report of a doubt: the line for people and the transition for programs.
#[derive(Debug, PartialEq)]
struct Told {
    line: String,
    became: Transition,
}

/// Reported doubts of one cache.
#[derive(Default)]
struct Doubts {
    /// State and reason of the last report.
    told: Option<(&'static str, String)>,
    since: Option<Instant>,
}

impl Doubts {
    /// Returns the report of a replaced history, which is due regardless of its duration.
    fn another_history(&mut self, note: &Diagnostic, now: Instant) -> Told {
        let why = note.to_string();
        let since = *self.since.get_or_insert(now);
        self.told = Some(("stale", why.clone()));
        let line = format!("stale: {why}");
        Told { line, became: Transition { state: "Stale", why: Some(why), doubt_seconds: seconds(since, now) } }
    }

    /// Returns the report that is due now, if any: one for each state and reason, and one at the end.
    fn look(&mut self, freshness: &Freshness, now: Instant) -> Option<Told> {
        let Some(doubt) = freshness.doubt() else {
            let since = self.since.take();
            self.told.take()?;
            let doubt_seconds = since.map_or(0.0, |since| seconds(since, now));
            let line = format!("fresh again after {doubt_seconds:.1} s");
            return Some(Told { line, became: Transition { state: "Fresh", why: None, doubt_seconds } });
        };
        let since = *self.since.get_or_insert(now - doubt.lasting);
        let telling = (freshness.name(), doubt.why.to_string());
        if now - since < WORTH_TELLING
            || self.told.as_ref() == Some(&telling)
            || matches!(freshness, Freshness::Stopped(_))
        {
            return None;
        }
        let became = Transition {
            state: state(freshness),
            why: Some(telling.1.clone()),
            doubt_seconds: doubt.lasting.as_secs_f64(),
        };
        self.told = Some(telling);
        Some(Told { line: freshness.to_string(), became })
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
        Freshness::Stopped(_) => "Stopped",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn doubt(lasting: u64, why: &str) -> steadfast::Doubt {
        let (lasting, why) = (Duration::from_millis(lasting), Arc::from(why));
        steadfast::Doubt { lasting, why, version: None, attempts: 1, next_attempt: None, age: None }
    }

    fn fresh() -> Freshness {
        Freshness::Fresh { version: None, age: Duration::ZERO, tainted: steadfast::KeySet::default(), polled: None }
    }

    fn line(told: Option<Told>) -> Option<String> {
        told.map(|told| told.line)
    }

    #[tokio::test(start_paused = true)]
    async fn doubt_and_end_are_reported_once() {
        let mut doubts = Doubts::default();
        let begun = Instant::now() + Duration::from_secs(60);
        let at = |ms| begun + Duration::from_millis(ms);
        assert_eq!(doubts.look(&Freshness::Resuming(doubt(0, "reset")), at(0)), None);
        let told = doubts.look(&Freshness::Resuming(doubt(600, "reset")), at(600)).expect("it lasts");
        assert!(told.line.starts_with("resuming for 0.6 s: reset"), "{told:?}");
        let became = Transition { state: "Resuming", why: Some("reset".to_owned()), doubt_seconds: 0.6 };
        assert_eq!(told.became, became);
        assert_eq!(doubts.look(&Freshness::Resuming(doubt(900, "reset")), at(900)), None);
        assert!(doubts.look(&Freshness::Stale(doubt(1200, "reset")), at(1200)).is_some());
        let told = doubts.look(&fresh(), at(2000)).expect("it is over");
        assert_eq!(told.line, "fresh again after 2.0 s");
        assert_eq!(told.became, Transition { state: "Fresh", why: None, doubt_seconds: 2.0 });
        assert_eq!(doubts.look(&fresh(), at(2100)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_history_is_reported_immediately() {
        let mut doubts = Doubts::default();
        let begun = Instant::now() + Duration::from_secs(60);
        let at = |ms| begun + Duration::from_millis(ms);
        let note = Diagnostic::NewEpoch { held: "9".into(), proof: "1".into() };
        assert_eq!(doubts.look(&Freshness::Resuming(doubt(0, "reset")), at(0)), None);
        let told = doubts.another_history(&note, at(100));
        let words = "stale: the server's history was replaced: it is at 1, 9 is held";
        assert!(told.line.starts_with(words), "{told:?}");
        assert_eq!(told.became.state, "Stale");
        assert_eq!(doubts.look(&Freshness::Stale(doubt(600, &note.to_string())), at(600)), None);
        assert_eq!(line(doubts.look(&fresh(), at(700))), Some("fresh again after 0.7 s".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn short_resume_is_not_reported() {
        let mut doubts = Doubts::default();
        let begun = Instant::now() + Duration::from_secs(60);
        assert_eq!(doubts.look(&Freshness::Resuming(doubt(0, "ended")), begun), None);
        assert_eq!(doubts.look(&fresh(), begun + Duration::from_millis(300)), None);
    }
}
