//! What happened to an object, as an engine is handed it.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::config::EventKind;
use crate::lookups::Lookups;
pub use crate::object_state::State;
use crate::path::FieldOf;
pub use crate::subject::Subject;

/// A change of one object.
///
/// Its `id` is the same whenever the same change is handed over, also by another run of the program: what is sent for it
/// can be told from what was sent before.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which change it is.
    pub id: String,
    /// What happened.
    pub kind: EventKind,
    /// Whether the object was there when the program began to look.
    pub initial: bool,
    /// Whether it was handed over before by this program, and what it caused may not be settled.
    pub again: bool,
    /// Which object it happened to.
    pub subject: Subject,
    /// The state before; none where the object came to be.
    pub old: Option<State>,
    /// The state after; none where the object is gone.
    pub new: Option<State>,
    /// How a deletion is known: `observed` or `inferred`.
    pub certainty: Option<String>,
    /// What ended it, where it is gone.
    pub reason: Option<String>,
    /// When the change became known, or the instant that caused it: `now` in expressions.
    pub at: Timestamp,
    /// What caused the evaluation.
    pub cause: Cause,
    /// The objects that expressions can look up, if they look up any.
    pub lookups: Option<Arc<Lookups>>,
    /// The same before the change, if another object's change is the cause.
    pub lookups_before: Option<Arc<Lookups>>,
}

/// What caused a rule to be evaluated for an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// The object changed.
    #[default]
    Change,
    /// An instant passed at which a result may change.
    Time,
    /// An object changed that an expression had looked up.
    Lookup,
}

impl Cause {
    /// Name in expressions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Time => "time",
            Self::Lookup => "lookup",
        }
    }
}

impl Change {
    /// A change of which nothing else is known: neither state, and the object itself as the cause.
    pub fn new(id: String, kind: EventKind, subject: Subject, at: Timestamp) -> Self {
        Self {
            id,
            kind,
            initial: false,
            again: false,
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

    /// Values of a field in both states, before and after; none where the state or the field is absent.
    pub(crate) fn at(&self, path: &FieldOf) -> (Option<&Value>, Option<&Value>) {
        (
            self.old.as_ref().and_then(|state| path.of(&state.whole)),
            self.new.as_ref().and_then(|state| path.of(&state.whole)),
        )
    }

    /// The state before it as if the object had come to be in that state; none where there was none.
    pub(crate) fn before(&self) -> Option<Self> {
        let old = self.old.clone()?;
        let mut before =
            Self { kind: EventKind::Added, new: Some(old), old: None, certainty: None, reason: None, ..self.clone() };
        match self.cause {
            Cause::Change => {}
            // The last instant at which nothing had changed yet.
            Cause::Time => before.at = self.at.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(self.at),
            Cause::Lookup => before.lookups = self.lookups_before.clone().or_else(|| self.lookups.clone()),
        }
        // Recorded apart: the message is identified by what is looked up now.
        before.lookups = before.lookups.map(|lookups| lookups.afresh());
        Some(before)
    }

    /// The object as it is, or as it last was.
    pub(crate) fn object(&self) -> Option<&State> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// The change as rules see it under the name `event`.
    pub(crate) fn event(&self) -> Value {
        let Subject { cluster, resource, namespace, name, uid } = &self.subject;
        json!({
            "id": self.id, "type": self.kind.name(), "initial": self.initial, "cluster": cluster, "resource": resource,
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
    fn rules_see_nothing_of_what_a_secret_keeps_and_yet_that_it_changed() {
        let secret = |value: &str| {
            State::new(json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": "s", "annotations": {LAST_APPLIED: format!("{{\"data\":\"{value}\"}}")}},
                "data": {"password": value}, "stringData": {"other": value},
            }))
        };
        let (old, new) = (secret("aHVudGVyMg=="), secret("aHVudGVyMw=="));
        assert!(!old.shown().to_string().contains("aHVudGVy"), "{}", old.shown());
        assert!(!format!("{old:?}").contains("aHVudGVy"));
        let subject = Subject {
            cluster: "default".to_owned(),
            resource: "secrets".to_owned(),
            namespace: "shop".to_owned(),
            name: "s".to_owned(),
            uid: "1".to_owned(),
        };
        let change = Change {
            old: Some(old),
            new: Some(new),
            ..Change::new("1".to_owned(), EventKind::Updated, subject, Timestamp::UNIX_EPOCH)
        };
        let path = |text: &str| text.parse::<FieldOf>().expect("it is a path");
        let changed = |text: &str| {
            let (before, after) = change.at(&path(text));
            before != after
        };
        assert!(changed("data.password") && changed("data") && !changed("metadata.name"));
    }
}
