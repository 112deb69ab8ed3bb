//! Bounded history of changes, described when an object is opened.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;

use super::row::{RowKey, RowObject};
use crate::changes::columns::Column;
use crate::changes::describe::{Content, describe};
use crate::changes::kind::Kind;
use crate::changes::phrases::Phrase;
use crate::changes::state::state;

/// Maximum number of remembered changes of a resource. The oldest changes are dropped.
pub(super) const MAX_CHANGES: usize = 4096;

/// A change of an object.
#[derive(Clone, Debug)]
pub(super) struct RecordedChange {
    pub(super) time: Timestamp,
    pub(super) key: RowKey,
    pub(super) kind: ChangeKind,
}

/// States of a change. The objects are shared with the cache or in its packed form.
#[derive(Clone, Debug)]
pub(super) enum ChangeKind {
    Added(Arc<dyn RowObject>),
    Updated { old: Arc<dyn RowObject>, new: Arc<dyn RowObject> },
    Deleted { last: Arc<dyn RowObject>, detail: String },
}

/// Description of a change.
#[derive(Debug, PartialEq)]
pub(super) struct DescribedChange {
    pub(super) time: Timestamp,
    /// `+`, `~` or `-`.
    pub(super) symbol: char,
    pub(super) phrases: Vec<Phrase>,
    /// State of an added or deleted object.
    pub(super) state: String,
}

/// Recent changes of one resource.
#[derive(Debug, Default)]
pub(super) struct ChangeHistory {
    changes: VecDeque<RecordedChange>,
    /// True if changes were dropped.
    is_truncated: bool,
}

impl ChangeHistory {
    /// Adds a change, and drops the oldest one above the limit.
    pub(super) fn record(&mut self, change: RecordedChange) {
        if self.changes.len() >= MAX_CHANGES {
            self.changes.pop_front();
            self.is_truncated = true;
        }
        self.changes.push_back(change);
    }

    /// Returns whether changes were dropped.
    pub(super) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Describes the changes of an object, the latest first. Changes of bookkeeping fields only (noise) are left out.
    pub(super) fn describe(&self, key: &RowKey, kind: &Kind, columns: &[Column]) -> Vec<DescribedChange> {
        let changes = self.changes.iter().rev().filter(|change| change.key == *key);
        changes.filter_map(|change| change.describe(kind, columns)).collect()
    }
}

impl RecordedChange {
    fn describe(&self, kind: &Kind, columns: &[Column]) -> Option<DescribedChange> {
        let (symbol, phrases, state) = match &self.kind {
            ChangeKind::Added(object) => ('+', Vec::new(), state(kind, columns, &object.decode())),
            ChangeKind::Updated { old, new } => {
                let phrases = describe(kind, columns, &old.decode(), &new.decode(), Content::default()).phrases;
                if phrases.is_empty() {
                    return None;
                }
                ('~', phrases, String::new())
            }
            ChangeKind::Deleted { last, detail } => {
                ('-', Vec::new(), format!("{} ({detail})", state(kind, columns, &last.decode())))
            }
        };
        Some(DescribedChange { time: self.time, symbol, phrases, state })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(replicas: i64) -> Arc<dyn RowObject> {
        Arc::new(json!({"spec": {"replicas": replicas}, "metadata": {"resourceVersion": replicas.to_string()}}))
    }

    fn record(history: &mut ChangeHistory, name: &str, kind: ChangeKind) {
        history.record(RecordedChange { time: Timestamp::UNIX_EPOCH, key: RowKey::new("shop", name), kind });
    }

    #[test]
    fn changes_have_the_wording_of_watch() {
        let mut history = ChangeHistory::default();
        record(&mut history, "web", ChangeKind::Added(deployment(3)));
        record(&mut history, "db", ChangeKind::Added(deployment(1)));
        record(&mut history, "web", ChangeKind::Updated { old: deployment(3), new: deployment(5) });
        record(&mut history, "web", ChangeKind::Updated { old: deployment(5), new: deployment(5) });
        let detail = "Observed: Gone".to_owned();
        record(&mut history, "web", ChangeKind::Deleted { last: deployment(5), detail });
        let described = history.describe(&RowKey::new("shop", "web"), &Kind::new("apps", "Deployment"), &[]);
        let texts: Vec<String> = described
            .iter()
            .map(|change| {
                let phrases: Vec<&str> = change.phrases.iter().map(|phrase| phrase.text.as_str()).collect();
                format!("{} {}{}", change.symbol, phrases.join(", "), change.state)
            })
            .collect();
        assert_eq!(texts, ["- ready 0 of 5 (Observed: Gone)", "~ replicas 3→5", "+ ready 0 of 3"]);
    }

    #[test]
    fn history_is_bounded() {
        let mut history = ChangeHistory::default();
        for _ in 0..=MAX_CHANGES {
            record(&mut history, "web", ChangeKind::Added(deployment(1)));
        }
        assert_eq!((history.changes.len(), history.is_truncated()), (MAX_CHANGES, true));
    }
}
