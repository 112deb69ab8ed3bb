//! Redelivery of dead letters.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::dead_letter::{DeadLetter, DeadLetters};
use crate::delivery_outcome::DeliveryOutcome;
use crate::engine::MessageSinks;
use crate::message::Message;
use crate::sink::MessageSink;

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

/// Tries each dead letter once. The letters of a sink are tried in order, those of different sinks concurrently.
/// `only_sink` selects the letters of one sink. Undelivered messages remain dead letters.
///
/// Receivers can compare the times of messages, since newer messages of the same object may have been delivered before.
/// After an interruption, the next call tries all letters again, with the same IDs.
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
    let is_selected = |letter: &DeadLetter| only_sink.is_none_or(|only_sink| only_sink == letter.sink);
    let mut letters_by_sink = BTreeMap::<&str, Vec<(usize, Arc<Message>)>>::new();
    for (number, letter) in taken.letters.iter().enumerate() {
        if is_selected(letter) {
            letters_by_sink.entry(&letter.sink).or_default().push((number, Arc::new(letter.message.clone())));
        }
    }
    // A sink that is down, with a long timeout for each letter, must not delay the others.
    let mut tasks = JoinSet::new();
    for (sink, letters) in letters_by_sink {
        tasks.spawn(deliver_in_order(sink.to_owned(), streams.get(sink).cloned(), letters));
    }
    let mut outcomes = BTreeMap::new();
    while let Some(ended) = tasks.join_next().await {
        outcomes.extend(ended.unwrap_or_default());
    }
    let mut remaining: Vec<DeadLetter> = Vec::new();
    for (number, letter) in taken.letters.iter().enumerate() {
        if !is_selected(letter) {
            report.skipped += 1;
            remaining.push(letter.clone());
            continue;
        }
        let id = letter.message.id.clone();
        let panicked = || DeliveryOutcome::Rejected { reason: "an attempt for this sink panicked".to_owned() };
        match outcomes.remove(&number).unwrap_or_else(panicked) {
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

/// Tries the letters of one sink, and returns the outcomes by the numbers of the letters.
async fn deliver_in_order(
    sink: String,
    stream: Option<Arc<dyn MessageSink>>,
    letters: Vec<(usize, Arc<Message>)>,
) -> Vec<(usize, DeliveryOutcome)> {
    let mut outcomes = Vec::new();
    let mut busy_outcome: Option<DeliveryOutcome> = None;
    for (number, message) in letters {
        let outcome = match (&busy_outcome, &stream) {
            // The receiver has rejected an earlier dead letter with HTTP 429 and would reject this one too.
            (Some(busy_outcome), _) => busy_outcome.clone(),
            (None, Some(stream)) => stream.deliver(&[message]).await,
            (None, None) => DeliveryOutcome::Rejected { reason: format!("the sink {sink:?} is no longer configured") },
        };
        if matches!(outcome, DeliveryOutcome::Busy { .. }) {
            busy_outcome = Some(outcome.clone());
        }
        outcomes.push((number, outcome));
    }
    outcomes
}
