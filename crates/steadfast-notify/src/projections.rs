//! What rules have sent: a change after which a rule would send what it has sent already is no news.
//!
//! What is not remembered, for the program was started since, is found out: the rule is asked what it sends of the state before
//! the change, which was settled, or the change would be another one.

use std::collections::HashMap;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::change::{Change, Subject};
use crate::config::EventKind;
use crate::rule::{Compiled, Verdict};

/// What one rule has sent of each object, by a hash.
#[derive(Debug, Default)]
pub(crate) struct Projections(HashMap<Subject, [u8; 32]>);

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
        match verdict {
            Verdict::Fires(_) if !rule.is_of_states() => News::Changed,
            Verdict::Fires(value) => {
                let hash = hash(value);
                let before = self.0.insert(subject.clone(), hash).or_else(|| sent_before(rule, change));
                if before == Some(hash) { News::Unchanged } else { News::Changed }
            }
            // Not sent, but known: what does not change it is no news.
            Verdict::Initial(value) => {
                if rule.is_of_states() {
                    self.0.insert(subject.clone(), hash(value));
                }
                News::Unchanged
            }
            // When it holds again, that is news.
            Verdict::DoesNotHold => {
                self.0.remove(subject);
                News::Unchanged
            }
            Verdict::OtherKind | Verdict::Failed { .. } => News::Unchanged,
        }
    }
}

/// What the rule has sent of the state before, if it had to be asked.
fn sent_before(rule: &Compiled, change: &Change) -> Option<[u8; 32]> {
    match rule.project(&Arc::new(change.before()?)) {
        Verdict::Fires(value) => Some(hash(&value)),
        _ => None,
    }
}

/// Objects of JSON have their keys in order, so that the same value has the same text.
fn hash(value: &Value) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, value.to_string().as_bytes()).as_ref());
    hash
}
