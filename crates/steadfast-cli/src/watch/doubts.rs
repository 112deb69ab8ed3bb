//! What is in doubt, since when and why, and when the doubt is over: on standard error for people, as lines among the
//! events for programs.

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

/// A doubt that is over sooner than this was a healthy resume, and is not reported.
const WORTH_TELLING: Duration = Duration::from_millis(500);
/// A cache can go stale without anything happening, so silence is looked at too.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How many transitions may wait to be printed; then doubts are looked at again when there is room.
const WAITING: usize = 64;
/// How often it is looked whether the handler has come to what was known when freshness came back.
const DELIVERED_EVERY: Duration = Duration::from_millis(20);

/// Tells every doubt about `informer`, for as long as it runs; its events are reported by `events`.
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
            // Full only where nobody reads; whoever reads again is told of the state that is then.
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
                // Nobody takes them any more once the program is about to end.
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

/// Where doubts are reported.
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

/// Prints the transitions among the events, in their order.
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
        // It may wait for whoever reads.
        if tokio::task::spawn_blocking(move || printer.print_aside(line)).await.is_err() {
            return;
        }
    }
}

/// Waits until the handler has returned from all that it is behind with now: what comes after that is newer.
async fn until_delivered(events: &Registration<DynamicObject>) {
    let begun = events.counts();
    // An entry may stand for an end and a new beginning: two calls.
    let enough = begun.returned + begun.skipped + 2 * begun.entries as u64;
    loop {
        let counts = events.counts();
        if counts.entries == 0 || counts.returned + counts.skipped >= enough {
            return;
        }
        sleep(DELIVERED_EVERY).await;
    }
}

/// What is to be reported of a doubt: to people, and to programs.
#[derive(Debug, PartialEq)]
struct Told {
    line: String,
    became: Transition,
}

/// What was reported of a cache's doubts.
#[derive(Default)]
struct Doubts {
    /// The state and the cause reported last, and when doubt began.
    told: Option<(&'static str, String)>,
    since: Option<Instant>,
}

impl Doubts {
    /// What is to be reported of a server that is not the one that it was, however soon that is mended.
    fn another_history(&mut self, note: &Diagnostic, now: Instant) -> Told {
        let why = note.to_string();
        let since = *self.since.get_or_insert(now);
        self.told = Some(("stale", why.clone()));
        let line = format!("stale: {why}");
        Told { line, became: Transition { state: "Stale", why: Some(why), doubt_seconds: seconds(since, now) } }
    }

    /// What is to be reported now, if anything: one line for each state and cause, one when it is over.
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

/// The state's name as programs get it.
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
    async fn a_doubt_is_told_once_and_its_end_too() {
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
    async fn another_history_is_told_at_once_and_not_twice() {
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
    async fn a_healthy_resume_is_not_told() {
        let mut doubts = Doubts::default();
        let begun = Instant::now() + Duration::from_secs(60);
        assert_eq!(doubts.look(&Freshness::Resuming(doubt(0, "ended")), begun), None);
        assert_eq!(doubts.look(&fresh(), begun + Duration::from_millis(300)), None);
    }
}
