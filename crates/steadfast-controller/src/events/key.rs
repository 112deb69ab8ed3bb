//! Which events are one and the same.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;

use super::draft::{EventDraft, EventType};
use super::names::{LONGEST_NOTE, LONGEST_WORD, cut, is_subdomain};

/// Where events are about what is in no namespace (`metav1.NamespaceDefault`).
const DEFAULT_NAMESPACE: &str = "default";

/// How long each part of a reference may be, in bytes: names have 253 at most, groups and fields not many more.
const LONGEST_PART: usize = 1024;

/// An object that an event is about, without the version in which it was: what happens to it in two of its versions is the
/// same event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Referent {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) field_path: String,
}

impl From<ObjectReference> for Referent {
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

impl Referent {
    pub(super) fn reference(&self) -> ObjectReference {
        let given = |text: &String| (!text.is_empty()).then(|| text.clone());
        ObjectReference {
            api_version: given(&self.api_version),
            kind: given(&self.kind),
            namespace: given(&self.namespace),
            name: given(&self.name),
            uid: given(&self.uid),
            field_path: given(&self.field_path),
            resource_version: None,
        }
    }

    /// Whether any of it is longer than it can be of an object: what is remembered is bounded.
    fn is_too_long(&self) -> bool {
        let Self { api_version, kind, namespace, name, uid, field_path } = self;
        [api_version, kind, namespace, name, uid, field_path].iter().any(|text| text.len() > LONGEST_PART)
    }

    /// The namespace that events about it are in.
    pub(super) fn events_namespace(&self) -> &str {
        if self.namespace.is_empty() { DEFAULT_NAMESPACE } else { &self.namespace }
    }
}

impl fmt::Display for Referent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// What makes two events one, counted twice; they have one reporter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) likeness: Likeness,
    /// None of those that are combined, whatever their notes are.
    pub(super) note: Option<String>,
}

/// What similar events have in common: all but their notes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Likeness {
    pub(super) kind: EventType,
    pub(super) reason: Cow<'static, str>,
    pub(super) action: Cow<'static, str>,
    pub(super) regarding: Referent,
    pub(super) related: Option<Referent>,
}

impl Likeness {
    /// What events have in common about one object, as far as a limit on their number goes: client-go's `getSpamKey`.
    pub(super) fn source(&self) -> impl std::hash::Hash {
        let Referent { api_version, kind, namespace, name, uid, field_path: _ } = &self.regarding;
        (self.kind, api_version, kind, namespace, name, uid)
    }
}

/// What the API would not take, and cannot be made so that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invalid(pub(super) &'static str);

/// The event of this draft, and its note, as the API takes them.
pub(super) fn checked(regarding: ObjectReference, draft: EventDraft) -> Result<(Likeness, String), Invalid> {
    let EventDraft { kind, reason, action, mut note, related } = draft;
    let regarding = Referent::from(regarding);
    if reason.is_empty() || action.is_empty() {
        return Err(Invalid("it has no reason or no action: give both"));
    }
    if !is_subdomain(regarding.events_namespace()) {
        return Err(Invalid("the namespace of the object is no valid one"));
    }
    let related = related.map(Referent::from);
    if [Some(&regarding), related.as_ref()].into_iter().flatten().any(Referent::is_too_long) {
        return Err(Invalid("a part of the reference to the object is longer than that of any object"));
    }
    note.truncate(cut(&note, LONGEST_NOTE).len());
    let (reason, action) = (word(reason), word(action));
    Ok((Likeness { kind, reason, action, regarding, related }, note))
}

fn word(word: Cow<'static, str>) -> Cow<'static, str> {
    match word {
        Cow::Borrowed(word) => Cow::Borrowed(cut(word, LONGEST_WORD)),
        Cow::Owned(mut word) => {
            word.truncate(cut(&word, LONGEST_WORD).len());
            Cow::Owned(word)
        }
    }
}
