//! Hashes of the last results of rules: an unchanged result is not sent again.
//!
//! After a restart, a missing result is computed from the state before the change. The messages for that state are
//! settled: the informer would otherwise deliver a change from an earlier state.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::change::{Cause, EventSubject, ObjectChange};
use crate::config::EventKind;
use crate::rule::{CompiledRule, RuleOutcome};

/// SHA-256 of a sent result.
pub(crate) type Hash = [u8; 32];

/// Hashes of the results of one rule, by object.
#[derive(Debug, Default)]
pub(crate) struct LastResults(HashMap<EventSubject, LastResult>);

/// Result of the last evaluation.
#[derive(Clone, Copy, Debug)]
struct LastResult {
    /// Hash of the result. `None` if the rule did not fire.
    hash: Option<Hash>,
    /// Time (`now`) of the evaluation.
    at: Timestamp,
}

/// Knowledge about results that were sent in earlier runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentResults {
    /// True if the watermark file stores results of earlier runs.
    pub(crate) is_recorded: bool,
    /// Instant up to which messages caused by time are settled.
    pub(crate) settled_until: Option<Timestamp>,
}

/// Comparison of a result with the previous result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// The result differs from the previous result, or there was no previous result.
    Changed,
    /// The result was sent before, or must not be sent.
    Unchanged,
}

impl LastResults {
    /// Records the result of `rule` for `change`.
    ///
    /// If the watermark file stores results but lacks the previous result of the object, a crash has lost this result.
    /// It is then not computed from the state before the change: with the present lookups, the computed result may
    /// differ from the sent message.
    pub(crate) fn record(
        &mut self,
        rule: &CompiledRule,
        change: &ObjectChange,
        outcome: &RuleOutcome,
        sent_results: SentResults,
    ) -> Comparison {
        let subject = &change.subject;
        // The recorded result may belong to this very change, which may be undelivered.
        if change.is_repeated {
            self.0.remove(subject);
        }
        if change.kind == EventKind::Deleted {
            self.0.remove(subject);
            return if matches!(outcome, RuleOutcome::Fires(_)) { Comparison::Changed } else { Comparison::Unchanged };
        }
        if change.cause == Cause::Time && self.0.get(subject).is_some_and(|last| last.at > change.at) {
            // The object was evaluated at a later instant already. The result covers all earlier instants.
            return Comparison::Unchanged;
        }
        match outcome {
            RuleOutcome::Fires(_) if !rule.compares_states() => Comparison::Changed,
            RuleOutcome::Fires(value) => {
                let hash = hash(value);
                let last = LastResult { hash: Some(hash), at: change.at };
                let sent_hash = match self.0.insert(subject.clone(), last) {
                    Some(last) => last.hash,
                    None if sent_results.is_recorded => None,
                    // The object was known before the start: its old state gives the sent result.
                    None => hash_before(rule, change, sent_results.settled_until),
                };
                if sent_hash == Some(hash) { Comparison::Unchanged } else { Comparison::Changed }
            }
            // Recorded without sending: a later change with an equal result is not sent.
            RuleOutcome::Initial(value) => {
                if rule.compares_states() {
                    self.0.insert(subject.clone(), LastResult { hash: Some(hash(value)), at: change.at });
                }
                Comparison::Unchanged
            }
            // When the condition becomes true again, the result must be sent again.
            RuleOutcome::DoesNotHold => {
                if rule.depends_on_context() && rule.compares_states() {
                    self.0.insert(subject.clone(), LastResult { hash: None, at: change.at });
                } else {
                    self.0.remove(subject);
                }
                Comparison::Unchanged
            }
            RuleOutcome::OtherEventKind | RuleOutcome::Failed { .. } => Comparison::Unchanged,
        }
    }

    /// Returns the hash of the last result. `None` if the rule did not fire, or without a known result.
    pub(crate) fn hash_of(&self, subject: &EventSubject) -> Option<Hash> {
        self.0.get(subject).and_then(|last| last.hash)
    }

    /// Sets the times of results after `now` to `until`, because the clock was set back. Such a result covers no later
    /// instant of the corrected clock.
    pub(crate) fn set_back(&mut self, now: Timestamp, until: Timestamp) {
        for last in self.0.values_mut().filter(|last| last.at > now) {
            last.at = until;
        }
    }

    /// Restores the result of an earlier run, unless a later result is known.
    pub(crate) fn restore(&mut self, subject: EventSubject, hash: Option<Hash>) {
        // A result that this process has recorded itself is newer than a restored one.
        self.0.entry(subject).or_insert(LastResult { hash, at: Timestamp::MIN });
    }
}

/// Returns the hash of the rule's result for the previous state. This result was already sent.
///
/// The result may depend on the time. After `settled_until` no further result of the previous state was sent: the
/// process may have been down since.
fn hash_before(rule: &CompiledRule, change: &ObjectChange, settled_until: Option<Timestamp>) -> Option<Hash> {
    let mut previous = change.with_previous_state()?;
    if let Some(settled_until) = settled_until.filter(|_| change.cause == Cause::Change) {
        previous.at = previous.at.min(settled_until);
    }
    match rule.project(&Arc::new(previous)) {
        RuleOutcome::Fires(value) => Some(hash(&value)),
        _ => None,
    }
}

/// Hashes a JSON value. Keys of objects are sorted, so equal values have equal texts.
fn hash(value: &Value) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, value.to_string().as_bytes()).as_ref());
    hash
}
