//! Changes of objects, the input of an engine.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::config::EventKind;
pub use crate::event_subject::EventSubject;
use crate::lookups::LookupSnapshot;
pub use crate::object_state::ObjectState;
use crate::path::ValuePath;

/// A change of one object.
///
/// The `id` stays the same if another run of the program delivers the same change. Receivers can use the ID to
/// recognise repeated messages.
#[derive(Clone, Debug)]
pub struct ObjectChange {
    /// Identity of the change.
    pub id: String,
    /// Kind of the change.
    pub kind: EventKind,
    /// Marks an object of the initial list, which existed before the program started.
    pub is_initial: bool,
    /// Marks a repeated change: the engine received the change before, but may not have settled all resulting
    /// messages.
    pub is_repeated: bool,
    /// The changed object.
    pub subject: EventSubject,
    /// State before the change. `None` for an added object.
    pub old: Option<ObjectState>,
    /// State after the change. `None` for a deleted object.
    pub new: Option<ObjectState>,
    /// Certainty of a deletion: `observed` or `inferred`.
    pub certainty: Option<String>,
    /// Reason of a deletion.
    pub reason: Option<String>,
    /// Time of the change, or the instant that caused the evaluation: `now` in expressions.
    pub at: Timestamp,
    /// Cause of the evaluation.
    pub cause: Cause,
    /// Objects for lookups by expressions. `None` for rules without lookups.
    pub lookups: Option<Arc<LookupSnapshot>>,
    /// Objects for lookups before the change, if a change of another object is the cause.
    pub lookups_before: Option<Arc<LookupSnapshot>>,
}

/// Cause of the evaluation of a rule for an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// The object changed.
    #[default]
    Change,
    /// The clock has reached an instant at which the result may change.
    Time,
    /// Another object changed, which an expression had looked up.
    Lookup,
}

impl Cause {
    /// Returns the name of the cause in expressions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Time => "time",
            Self::Lookup => "lookup",
        }
    }
}

impl ObjectChange {
    /// Creates a change without states, caused by the object.
    pub fn new(id: String, kind: EventKind, subject: EventSubject, at: Timestamp) -> Self {
        Self {
            id,
            kind,
            is_initial: false,
            is_repeated: false,
            subject,
            old: None,
            new: None,
            certainty: None,
            reason: None,
            at,
            cause: Cause::Change,
            lookups: None,
            lookups_before: None,
        }
    }

    /// Returns the values of a field before and after the change. `None` for an absent state or field.
    pub(crate) fn values_at(&self, path: &ValuePath) -> (Option<&Value>, Option<&Value>) {
        (
            self.old.as_ref().and_then(|state| path.resolve(&state.full)),
            self.new.as_ref().and_then(|state| path.resolve(&state.full)),
        )
    }

    /// Returns a change that adds the object in its previous state. `None` without a previous state.
    pub(crate) fn with_previous_state(&self) -> Option<Self> {
        // Without an old state, nothing can have been sent before.
        let old = self.old.clone()?;
        let mut previous =
            Self { kind: EventKind::Added, new: Some(old), old: None, certainty: None, reason: None, ..self.clone() };
        match self.cause {
            Cause::Change => {}
            // Evaluated one nanosecond before `at`: the result may already differ at `at`.
            Cause::Time => previous.at = self.at.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(self.at),
            Cause::Lookup => previous.lookups = self.lookups_before.clone().or_else(|| self.lookups.clone()),
        }
        // Reads of the previous state are recorded separately: only the current lookups contribute to the message ID.
        previous.lookups = previous.lookups.map(|lookups| lookups.without_looked_up());
        Some(previous)
    }

    /// Returns the current state of the object, else the last known state.
    pub(crate) fn object(&self) -> Option<&ObjectState> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// Returns the variable `event` of expressions.
    pub(crate) fn event(&self) -> Value {
        let EventSubject { cluster, resource, namespace, name, uid } = &self.subject;
        json!({
            "id": self.id, "type": self.kind.name(), "initial": self.is_initial, "cluster": cluster,
            "resource": resource,
            "namespace": namespace, "name": name, "uid": uid,
            "certainty": self.certainty.as_deref().unwrap_or_default(),
            "reason": self.reason.as_deref().unwrap_or_default(), "cause": self.cause.name(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_state::LAST_APPLIED;

    #[test]
    fn rules_cannot_read_secret_values() {
        let secret = |value: &str| {
            ObjectState::new(json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "s", "annotations": {LAST_APPLIED: format!("{{\"data\":\"{value}\"}}")}},
                "data": {"password": value}, "stringData": {"other": value},
            }))
        };
        let (old, new) = (secret("aHVudGVyMg=="), secret("aHVudGVyMw=="));
        assert!(!old.masked().to_string().contains("aHVudGVy"), "{}", old.masked());
        assert!(!format!("{old:?}").contains("aHVudGVy"));
        let subject = EventSubject {
            cluster: "default".to_owned(),
            resource: "secrets".to_owned(),
            namespace: "shop".to_owned(),
            name: "s".to_owned(),
            uid: "1".to_owned(),
        };
        let change = ObjectChange {
            old: Some(old),
            new: Some(new),
            ..ObjectChange::new("1".to_owned(), EventKind::Updated, subject, Timestamp::UNIX_EPOCH)
        };
        let path = |text: &str| text.parse::<ValuePath>().expect("a valid path");
        let changed = |text: &str| {
            let (before, after) = change.values_at(&path(text));
            before != after
        };
        assert!(changed("data.password") && changed("data") && !changed("metadata.name"));
    }
}
