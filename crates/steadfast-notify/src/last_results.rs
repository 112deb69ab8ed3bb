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

    /// Sets the times of the selected results after `now` to `until`, because the clock was set back. Such a result
    /// covers no later instant of the corrected clock.
    pub(crate) fn set_back(&mut self, is_selected: impl Fn(&EventSubject) -> bool, now: Timestamp, until: Timestamp) {
        let selected = self.0.iter_mut().filter(|(subject, last)| last.at > now && is_selected(subject));
        selected.for_each(|(_, last)| last.at = until);
    }

    /// Removes and returns the selected results.
    pub(crate) fn take(&mut self, is_selected: impl Fn(&EventSubject) -> bool) -> Self {
        Self(self.0.extract_if(|subject, _| is_selected(subject)).collect())
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

#[cfg(test)]
mod tests {
    use kube::core::{ApiResource, GroupVersionKind};
    use steadfast::Scope;

    use super::*;
    use crate::rule_source::RuleSource;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn subject(cluster: &str, namespace: &str) -> EventSubject {
        let text = |text: &str| text.to_owned();
        EventSubject {
            cluster: text(cluster),
            resource: text("pods"),
            namespace: text(namespace),
            name: text("web"),
            uid: format!("{cluster}-{namespace}"),
        }
    }

    /// Source of the rule in the namespace `shop` of the cluster `east`.
    fn source() -> RuleSource {
        RuleSource {
            rule: "old".to_owned(),
            cluster: "east".to_owned(),
            resource: ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod")),
            scope: Scope::namespace("shop"),
            lookups: Vec::new(),
        }
    }

    #[test]
    fn corrected_clock_affects_one_source() {
        let (own, subjects) = (subject("east", "shop"), [("east", "shop"), ("east", "infra"), ("west", "shop")]);
        let all = subjects.map(|(cluster, namespace)| subject(cluster, namespace));
        let mut results = LastResults::default();
        for subject in &all {
            results.0.insert(subject.clone(), LastResult { hash: None, at: at(50) });
        }
        results.set_back(source().subject_filter(), at(20), at(10));
        for subject in &all {
            let expected = if *subject == own { at(10) } else { at(50) };
            assert_eq!(results.0.get(subject).map(|last| last.at), Some(expected), "{subject:?}");
        }
        let taken = results.take(source().subject_filter());
        assert_eq!((taken.0.len(), results.0.len()), (1, 2));
        assert!(taken.0.contains_key(&own));
    }
}
