//! Contents of an event.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;

use super::subject::Subject;

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Expected state.
    Normal,
    /// Unexpected state that may need attention.
    Warning,
}

impl EventType {
    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Event to record.
///
/// ```
/// # use steadfast_controller::EventDraft;
/// # let image = "web:7";
/// EventDraft::warning("PullFailed", "Pulling").note(format!("{image} does not exist"));
/// ```
#[derive(Clone, PartialEq)]
pub struct EventDraft {
    pub(super) kind: EventType,
    pub(super) reason: Cow<'static, str>,
    pub(super) action: Cow<'static, str>,
    pub(super) note: String,
    pub(super) related: Option<ObjectReference>,
}

impl EventDraft {
    /// Builds an event of type `Normal`.
    ///
    /// `reason` states the cause and `action` the action on the object, each as one machine-readable word in
    /// `UpperCamelCase`. Both are required. Text beyond 128 bytes is cut off, the limit of the API.
    pub fn normal(reason: impl Into<Cow<'static, str>>, action: impl Into<Cow<'static, str>>) -> Self {
        Self::new(EventType::Normal, reason.into(), action.into())
    }

    /// Builds an event of type `Warning`, with `reason` and `action` like [`normal`](Self::normal).
    pub fn warning(reason: impl Into<Cow<'static, str>>, action: impl Into<Cow<'static, str>>) -> Self {
        Self::new(EventType::Warning, reason.into(), action.into())
    }

    fn new(kind: EventType, reason: Cow<'static, str>, action: Cow<'static, str>) -> Self {
        Self { kind, reason, action, note: String::new(), related: None }
    }

    /// Sets the description for people. Text beyond 1,024 bytes is cut off, the limit of the API.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Sets a related object. `Form` is inferred; see [`Subject`].
    #[must_use]
    pub fn related<Form>(mut self, object: &impl Subject<Form>) -> Self {
        self.related = Some(object.reference());
        self
    }
}

/// Omits the note, which may quote contents of an object.
impl fmt::Debug for EventDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventDraft")
            .field("type", &self.kind.as_str())
            .field("reason", &self.reason)
            .field("action", &self.action)
            .finish_non_exhaustive()
    }
}
