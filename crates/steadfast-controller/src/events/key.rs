//! Identity of events.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;

use super::draft::{EventDraft, EventType};
use super::names::{MAX_NOTE_BYTES, MAX_REASON_BYTES, is_subdomain, truncated};

/// Namespace of events about cluster-scoped objects (`metav1.NamespaceDefault`).
const DEFAULT_NAMESPACE: &str = "default";

/// Maximum length of each part of a reference in bytes. Names have at most 253; groups and fields are not much longer.
const MAX_REFERENCE_PART_BYTES: usize = 1024;

/// Object of an event without its version, so that events about two versions of an object are identical.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReferenceKey {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) field_path: String,
}

impl From<ObjectReference> for ReferenceKey {
    fn from(reference: ObjectReference) -> Self {
        Self {
            api_version: reference.api_version.unwrap_or_default(),
            kind: reference.kind.unwrap_or_default(),
            namespace: reference.namespace.unwrap_or_default(),
            name: reference.name.unwrap_or_default(),
            uid: reference.uid.unwrap_or_default(),
            field_path: reference.field_path.unwrap_or_default(),
        }
    }
}

impl ReferenceKey {
    pub(super) fn reference(&self) -> ObjectReference {
        let non_empty = |text: &String| (!text.is_empty()).then(|| text.clone());
        ObjectReference {
            api_version: non_empty(&self.api_version),
            kind: non_empty(&self.kind),
            namespace: non_empty(&self.namespace),
            name: non_empty(&self.name),
            uid: non_empty(&self.uid),
            field_path: non_empty(&self.field_path),
            resource_version: None,
        }
    }

    /// Returns true if a part exceeds the limit. Bounds the memory of the recorder.
    fn is_too_long(&self) -> bool {
        let Self { api_version, kind, namespace, name, uid, field_path } = self;
        [api_version, kind, namespace, name, uid, field_path].iter().any(|text| text.len() > MAX_REFERENCE_PART_BYTES)
    }

    /// Returns the namespace of events about this object.
    pub(super) fn events_namespace(&self) -> &str {
        // Events of cluster-scoped objects are in `default`, as those of client-go.
        if self.namespace.is_empty() { DEFAULT_NAMESPACE } else { &self.namespace }
    }
}

impl fmt::Display for ReferenceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// Identity of an event within one reporter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EventKey {
    pub(super) similarity: SimilarityKey,
    /// Note of the event. None for a combined event, which represents events with different notes.
    pub(super) note: Option<String>,
}

/// Identity of a group of similar events: all fields except the note.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SimilarityKey {
    pub(super) kind: EventType,
    pub(super) reason: Cow<'static, str>,
    pub(super) action: Cow<'static, str>,
    pub(super) regarding: ReferenceKey,
    pub(super) related: Option<ReferenceKey>,
}

impl SimilarityKey {
    /// Returns the key for rate limiting per object, like client-go's `getSpamKey`.
    pub(super) fn source(&self) -> impl std::hash::Hash {
        // Without the field path: containers of one Pod share the allowance.
        let ReferenceKey { api_version, kind, namespace, name, uid, field_path: _ } = &self.regarding;
        (self.kind, api_version, kind, namespace, name, uid)
    }
}

/// Reason why the API rejects an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invalid(pub(super) &'static str);

/// Validates an event, and cuts its texts to the limits of the API.
pub(super) fn check_event(regarding: ObjectReference, draft: EventDraft) -> Result<(SimilarityKey, String), Invalid> {
    let EventDraft { kind, reason, action, mut note, related } = draft;
    let regarding = ReferenceKey::from(regarding);
    if reason.is_empty() || action.is_empty() {
        return Err(Invalid("the reason or the action is empty; set both"));
    }
    if !is_subdomain(regarding.events_namespace()) {
        return Err(Invalid("the namespace of the object is invalid"));
    }
    let related = related.map(ReferenceKey::from);
    if [Some(&regarding), related.as_ref()].into_iter().flatten().any(ReferenceKey::is_too_long) {
        return Err(Invalid("the reference to the object has a part of more than 1,024 bytes"));
    }
    note.truncate(truncated(&note, MAX_NOTE_BYTES).len());
    let (reason, action) = (truncate_word(reason), truncate_word(action));
    Ok((SimilarityKey { kind, reason, action, regarding, related }, note))
}

fn truncate_word(word: Cow<'static, str>) -> Cow<'static, str> {
    match word {
        Cow::Borrowed(word) => Cow::Borrowed(truncated(word, MAX_REASON_BYTES)),
        Cow::Owned(mut word) => {
            word.truncate(truncated(&word, MAX_REASON_BYTES).len());
            Cow::Owned(word)
        }
    }
}
