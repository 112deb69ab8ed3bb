//! What rules have sent: a change after which a rule would send what it has sent already is no news.
//!
//! What is not remembered, for the program was started since, is found out: the rule is asked what it sends of the state before
//! the change, which was settled, or the change would be another one.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::change::{Cause, Change, Subject};
use crate::config::EventKind;
use crate::rule::{Compiled, Verdict};

/// SHA-256 of what was sent.
pub(crate) type Hash = [u8; 32];

/// What one rule has sent of each object, by a hash.
#[derive(Debug, Default)]
pub(crate) struct Projections(HashMap<Subject, Known>);

/// The result of the last evaluation.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// `None` if the rule did not fire.
    hash: Option<Hash>,
    /// `now` of the evaluation.
    at: Timestamp,
}

/// Whether there is anything to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It differs from what was sent before, or nothing was.
    Changed,
    /// It was sent before, or is not to be sent.
    Unchanged,
}

impl Projections {
    /// Takes in what `rule` makes of `change`.
    pub(crate) fn take_in(&mut self, rule: &Compiled, change: &Change, verdict: &Verdict) -> News {
        let subject = &change.subject;
        // What is remembered may be this very change, of which nobody knows that it was sent.
        if change.again {
            self.0.remove(subject);
        }
        if change.kind == EventKind::Deleted {
            self.0.remove(subject);
            return if matches!(verdict, Verdict::Fires(_)) { News::Changed } else { News::Unchanged };
        }
        if change.cause == Cause::Time && self.0.get(subject).is_some_and(|known| known.at > change.at) {
            // A change of the object was evaluated at a later instant already, and what passed before it is merged into it.
            return News::Unchanged;
        }
        match verdict {
            Verdict::Fires(_) if !rule.is_of_states() => News::Changed,
            Verdict::Fires(value) => {
                let hash = hash(value);
                let known = Known { hash: Some(hash), at: change.at };
                let before = match self.0.insert(subject.clone(), known) {
                    Some(known) => known.hash,
                    None => sent_before(rule, change),
                };
                if before == Some(hash) { News::Unchanged } else { News::Changed }
            }
            // Not sent, but known: what does not change it is no news.
            Verdict::Initial(value) => {
                if rule.is_of_states() {
                    self.0.insert(subject.clone(), Known { hash: Some(hash(value)), at: change.at });
                }
                News::Unchanged
            }
            // When it holds again, that is news.
            Verdict::DoesNotHold => {
                if rule.is_of_context() && rule.is_of_states() {
                    self.0.insert(subject.clone(), Known { hash: None, at: change.at });
                } else {
                    self.0.remove(subject);
                }
                News::Unchanged
            }
            Verdict::OtherKind | Verdict::Failed { .. } => News::Unchanged,
        }
    }

    /// Returns the hash of the last result; `None` if the rule did not fire or no result is known.
    pub(crate) fn of(&self, subject: &Subject) -> Option<Hash> {
        self.0.get(subject).and_then(|known| known.hash)
    }

    /// Adopts the result that an earlier run has recorded, unless a later one is known.
    pub(crate) fn adopt(&mut self, subject: Subject, hash: Option<Hash>) {
        self.0.entry(subject).or_insert(Known { hash, at: Timestamp::MIN });
    }
}

/// What the rule has sent of the state before, if it had to be asked.
fn sent_before(rule: &Compiled, change: &Change) -> Option<Hash> {
    match rule.project(&Arc::new(change.before()?)) {
        Verdict::Fires(value) => Some(hash(&value)),
        _ => None,
    }
}

/// Objects of JSON have their keys in order, so that the same value has the same text.
fn hash(value: &Value) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, value.to_string().as_bytes()).as_ref());
    hash
}
