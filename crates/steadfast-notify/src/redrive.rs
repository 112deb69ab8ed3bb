//! Redelivery of dead letters.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::dead_letter::{DeadLetter, DeadLetters};
use crate::delivery_outcome::DeliveryOutcome;
use crate::engine::MessageSinks;

/// Report of a redelivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedriveReport {
    /// IDs of delivered messages.
    pub delivered: Vec<String>,
    /// IDs of failed messages, with the cause. The messages remain dead letters.
    pub failed: Vec<(String, String)>,
    /// Number of skipped letters for other sinks.
    pub skipped: usize,
    /// Number of removed malformed lines, truncated by a machine crash.
    pub malformed_lines: usize,
}

/// Tries each dead letter once, in order. `only_sink` selects the letters of one sink. Undelivered messages remain dead
/// letters.
///
/// Receivers can compare the times of messages, since newer messages of the same object may have been delivered before.
///
/// # Errors
///
/// Returns an error if the file cannot be read or written, or if another `redrive` of the file is running.
pub async fn redrive(
    dead_letters: &DeadLetters,
    streams: &MessageSinks,
    only_sink: Option<&str>,
) -> io::Result<RedriveReport> {
    let taken = dead_letters.take()?;
    let mut report = RedriveReport { malformed_lines: taken.malformed_lines, ..RedriveReport::default() };
    let mut remaining: Vec<DeadLetter> = Vec::new();
    let mut busy_reasons: BTreeMap<String, String> = BTreeMap::new();
    for letter in &taken.letters {
        if only_sink.is_some_and(|only_sink| only_sink != letter.sink) {
            report.skipped += 1;
            remaining.push(letter.clone());
            continue;
        }
        let outcome = match streams.get(&letter.sink) {
            // The receiver has rejected an earlier dead letter with HTTP 429 and would reject this one too.
            Some(_) if busy_reasons.contains_key(&letter.sink) => {
                DeliveryOutcome::Busy { retry_after: None, reason: busy_reasons[&letter.sink].clone() }
            }
            Some(stream) => stream.deliver(&[Arc::new(letter.message.clone())]).await,
            None => DeliveryOutcome::Rejected { reason: format!("the sink {:?} is no longer configured", letter.sink) },
        };
        let id = letter.message.id.clone();
        if let DeliveryOutcome::Busy { reason, .. } = &outcome {
            busy_reasons.insert(letter.sink.clone(), reason.clone());
        }
        match outcome {
            DeliveryOutcome::Delivered => report.delivered.push(id),
            DeliveryOutcome::Retry { reason, .. }
            | DeliveryOutcome::Busy { reason, .. }
            | DeliveryOutcome::Rejected { reason } => {
                report.failed.push((id, reason.clone()));
                remaining.push(DeadLetter { reason, attempts: letter.attempts.saturating_add(1), ..letter.clone() });
            }
        }
    }
    // Letters beyond the limit of the file stay in the `.taken` file, and are taken first the next time.
    let not_stored =
        remaining.iter().position(|letter| dead_letters.add(letter).is_err()).map(|at| remaining.split_off(at));
    match not_stored {
        None => taken.remove()?,
        Some(not_stored) => taken.replace(&not_stored)?,
    }
    Ok(report)
}
