//! What a program says of an event.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;

use super::subject::Subject;

/// Whether an event is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// It is.
    Normal,
    /// It is not, and somebody may want to look.
    Warning,
}

impl EventType {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event to be recorded.
///
/// ```
/// # use steadfast_controller::EventDraft;
/// # let image = "web:7";
/// EventDraft::warning("PullFailed", "Pulling").note(format!("{image} is not there"));
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
    /// Something is as it should be.
    ///
    /// `reason` is why it is told, `action` what was done about the object, each a word in `UpperCamelCase` for programs to
    /// look for. Both have to be given, and what they have beyond 128 bytes is cut off: the API takes no more.
    pub fn normal(reason: impl Into<Cow<'static, str>>, action: impl Into<Cow<'static, str>>) -> Self {
        Self::new(EventType::Normal, reason.into(), action.into())
    }

    /// Something is not as it should be; `reason` and `action` as for [`normal`](Self::normal).
    pub fn warning(reason: impl Into<Cow<'static, str>>, action: impl Into<Cow<'static, str>>) -> Self {
        Self::new(EventType::Warning, reason.into(), action.into())
    }

    fn new(kind: EventType, reason: Cow<'static, str>, action: Cow<'static, str>) -> Self {
        Self { kind, reason, action, note: String::new(), related: None }
    }

    /// A sentence for people. What it has beyond 1,024 bytes is cut off: the API takes no more.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Another object that has to do with it.
    #[must_use]
    pub fn related<Form>(mut self, object: &impl Subject<Form>) -> Self {
        self.related = Some(object.reference());
        self
    }
}

/// Without the note, which may quote what is in an object.
impl fmt::Debug for EventDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventDraft")
            .field("type", &self.kind.as_str())
            .field("reason", &self.reason)
            .field("action", &self.action)
            .finish_non_exhaustive()
    }
}
