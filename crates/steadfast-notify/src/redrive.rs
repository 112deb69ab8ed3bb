//! Dead letters tried again.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::dead::{DeadLetters, Letter};
use crate::engine::Streams;
use crate::outcome::Outcome;

/// What came of trying dead letters again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redriven {
    /// The ids of the messages that were delivered.
    pub delivered: Vec<String>,
    /// The ids of those that were not, and why: they are dead letters still.
    pub failed: Vec<(String, String)>,
    /// How many are for other sinks, and were not tried.
    pub others: usize,
    /// How many lines of the file were no letters, and are gone: what was cut off when a machine stopped.
    pub torn: usize,
}

/// Tries each dead letter once, in their order; with `only`, those for that sink. What is not delivered stays a dead letter.
///
/// Newer messages of the same object may have been delivered before: whoever gets them can tell by their time.
///
/// # Errors
///
/// Returns an error if the file cannot be read or written, or if another `redrive` of it is running.
pub async fn redrive(dead: &DeadLetters, streams: &Streams, only: Option<&str>) -> io::Result<Redriven> {
    let taken = dead.take()?;
    let mut report = Redriven { torn: taken.torn, ..Redriven::default() };
    let mut left: Vec<Letter> = Vec::new();
    let mut busy: BTreeMap<String, String> = BTreeMap::new();
    for letter in &taken.letters {
        if only.is_some_and(|only| only != letter.sink) {
            report.others += 1;
            left.push(letter.clone());
            continue;
        }
        let outcome = match streams.get(&letter.sink) {
            // The receiver would reject this letter as it has rejected another one.
            Some(_) if busy.contains_key(&letter.sink) => {
                Outcome::Busy { after: None, why: busy[&letter.sink].clone() }
            }
            Some(stream) => stream.deliver(&[Arc::new(letter.message.clone())]).await,
            None => Outcome::Refused { why: format!("there is no sink {:?} any more", letter.sink) },
        };
        let id = letter.message.id.clone();
        if let Outcome::Busy { why, .. } = &outcome {
            busy.insert(letter.sink.clone(), why.clone());
        }
        match outcome {
            Outcome::Delivered => report.delivered.push(id),
            Outcome::Retry { why, .. } | Outcome::Busy { why, .. } | Outcome::Refused { why } => {
                report.failed.push((id, why.clone()));
                left.push(Letter { why, attempts: letter.attempts.saturating_add(1), ..letter.clone() });
            }
        }
    }
    // Those that fit no more stay where they were taken to, and are taken first the next time.
    let unplaced = left.iter().position(|letter| dead.add(letter).is_err()).map(|at| left.split_off(at));
    match unplaced {
        None => taken.done()?,
        Some(unplaced) => taken.keep(&unplaced)?,
    }
    Ok(report)
}
