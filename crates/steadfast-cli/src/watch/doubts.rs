//! Standard error: what is in doubt, since when and why, and when the doubt is over.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use steadfast::{Freshness, Informer, Note};
use tokio::time::{Instant, timeout};

use super::line::clock;

/// A doubt that is over sooner than this was a healthy resume, and is not told.
const WORTH_TELLING: Duration = Duration::from_millis(500);
/// A cache can go stale without anything happening, so silence is looked at too.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Tells every doubt about `informer`, for as long as it runs.
pub(crate) fn follow(resource: String, informer: Informer<DynamicObject>) {
    let doubts = Arc::new(Mutex::new(Doubts::default()));
    let resource: Arc<str> = resource.into();
    let (noted, named) = (doubts.clone(), resource.clone());
    informer.on_note(move |note| {
        if let Note::NewEpoch { .. } = note {
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            tell(&named, &noted.another_history(note, Instant::now()));
        }
    });
    tokio::spawn(async move {
        let mut changed = informer.changed();
        loop {
            let freshness = informer.freshness();
            let line = doubts.lock().unwrap_or_else(PoisonError::into_inner).look(&freshness, Instant::now());
            if let Some(line) = line {
                tell(&resource, &line);
            }
            if matches!(freshness, Freshness::Stopped(_))
                || matches!(timeout(LOOK_EVERY, changed.changed()).await, Ok(Err(_)))
            {
                return;
            }
        }
    });
}

fn tell(resource: &str, line: &str) {
    // Whoever closed standard error does not want to know.
    let _ = writeln!(io::stderr(), "{} ! {resource}: {line}", clock(Timestamp::now()));
}

/// What was told of a cache's doubts.
#[derive(Default)]
struct Doubts {
    /// The state and the cause told last, and when doubt began.
    told: Option<(&'static str, String)>,
    since: Option<Instant>,
}

impl Doubts {
    /// What is to be told of a server that is not the one that it was, however soon that is mended.
    fn another_history(&mut self, note: &Note, now: Instant) -> String {
        let why = note.to_string();
        self.since.get_or_insert(now);
        self.told = Some(("stale", why.clone()));
        format!("stale: {why}")
    }

    /// What is to be told now, if anything: one line for each state and cause, one when it is over.
    fn look(&mut self, freshness: &Freshness, now: Instant) -> Option<String> {
        let Some(doubt) = freshness.doubt() else {
            let since = self.since.take();
            self.told.take()?;
            let lasted = since.map_or(Duration::ZERO, |since| now - since);
            return Some(format!("fresh again after {:.1} s", lasted.as_secs_f64()));
        };
        let since = *self.since.get_or_insert(now - doubt.lasting);
        let telling = (freshness.name(), doubt.why.to_string());
        if now - since < WORTH_TELLING
            || self.told.as_ref() == Some(&telling)
            || matches!(freshness, Freshness::Stopped(_))
        {
            return None;
        }
        self.told = Some(telling);
        Some(freshness.to_string())
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

    #[tokio::test(start_paused = true)]
    async fn a_doubt_is_told_once_and_its_end_too() {
        let mut doubts = Doubts::default();
        let begun = Instant::now() + Duration::from_secs(60);
        let at = |ms| begun + Duration::from_millis(ms);
        assert_eq!(doubts.look(&Freshness::Resuming(doubt(0, "reset")), at(0)), None);
        let told = doubts.look(&Freshness::Resuming(doubt(600, "reset")), at(600)).expect("it lasts");
        assert!(told.starts_with("resuming for 0.6 s: reset"), "{told}");
        assert_eq!(doubts.look(&Freshness::Resuming(doubt(900, "reset")), at(900)), None);
        assert!(doubts.look(&Freshness::Stale(doubt(1200, "reset")), at(1200)).is_some());
        assert_eq!(doubts.look(&fresh(), at(2000)), Some("fresh again after 2.0 s".to_owned()));
        assert_eq!(doubts.look(&fresh(), at(2100)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn another_history_is_told_at_once_and_not_twice() {
        let mut doubts = Doubts::default();
        let begun = Instant::now() + Duration::from_secs(60);
        let at = |ms| begun + Duration::from_millis(ms);
        let note = Note::NewEpoch { held: "9".into(), proof: "1".into() };
        assert_eq!(doubts.look(&Freshness::Resuming(doubt(0, "reset")), at(0)), None);
        let told = doubts.another_history(&note, at(100));
        assert!(told.starts_with("stale: the server's history was replaced: it is at 1, 9 is held"), "{told}");
        assert_eq!(doubts.look(&Freshness::Stale(doubt(600, &note.to_string())), at(600)), None);
        assert_eq!(doubts.look(&fresh(), at(700)), Some("fresh again after 0.7 s".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_healthy_resume_is_not_told() {
        let mut doubts = Doubts::default();
        let begun = Instant::now() + Duration::from_secs(60);
        assert_eq!(doubts.look(&Freshness::Resuming(doubt(0, "ended")), begun), None);
        assert_eq!(doubts.look(&fresh(), begun + Duration::from_millis(300)), None);
    }
}
