//! Redelivery of dead letters.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::dead_letter::{DeadLetter, DeadLetters};
use crate::engine::Streams;
use crate::outcome::Outcome;

/// Report of a redelivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redriven {
    /// IDs of delivered messages.
    pub delivered: Vec<String>,
    /// IDs of failed messages, with the cause. The messages remain dead letters.
    pub failed: Vec<(String, String)>,
    /// Number of skipped letters for other sinks.
    pub others: usize,
    /// Number of removed malformed lines, truncated by a machine crash.
    pub torn: usize,
}

/// Tries each dead letter once, in order. `only` selects the letters of one sink. Undelivered messages remain dead
/// letters.
///
/// Receivers can compare the times of messages, since newer messages of the same object may have been delivered before.
///
/// # Errors
///
/// Returns an error if the file cannot be read or written, or if another `redrive` of the file is running.
pub async fn redrive(dead: &DeadLetters, streams: &Streams, only: Option<&str>) -> io::Result<Redriven> {
    let taken = dead.take()?;
    let mut report = Redriven { torn: taken.torn, ..Redriven::default() };
    let mut left: Vec<DeadLetter> = Vec::new();
    let mut busy: BTreeMap<String, String> = BTreeMap::new();
    for letter in &taken.letters {
        if only.is_some_and(|only| only != letter.sink) {
            report.others += 1;
            left.push(letter.clone());
            continue;
        }
        let outcome = match streams.get(&letter.sink) {
            // The receiver has rejected an earlier letter with HTTP 429 and would reject this letter too.
            Some(_) if busy.contains_key(&letter.sink) => {
                Outcome::Busy { retry_after: None, reason: busy[&letter.sink].clone() }
            }
            Some(stream) => stream.deliver(&[Arc::new(letter.message.clone())]).await,
            None => Outcome::Rejected { reason: format!("the sink {:?} is no longer configured", letter.sink) },
        };
        let id = letter.message.id.clone();
        if let Outcome::Busy { reason, .. } = &outcome {
            busy.insert(letter.sink.clone(), reason.clone());
        }
        match outcome {
            Outcome::Delivered => report.delivered.push(id),
            Outcome::Retry { reason, .. } | Outcome::Busy { reason, .. } | Outcome::Rejected { reason } => {
                report.failed.push((id, reason.clone()));
                left.push(DeadLetter { reason, attempts: letter.attempts.saturating_add(1), ..letter.clone() });
            }
        }
    }
    // Letters beyond the limit of the file stay in the `.taken` file, and are taken first the next time.
    let unplaced = left.iter().position(|letter| dead.add(letter).is_err()).map(|at| left.split_off(at));
    match unplaced {
        None => taken.done()?,
        Some(unplaced) => taken.keep(&unplaced)?,
    }
    Ok(report)
}
