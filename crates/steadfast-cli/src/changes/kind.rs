//! Group and kind of an object, which select its description.

/// Group and kind of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// API group; empty for the core group.
    pub(crate) group: String,
    /// Kind: `Pod`, `Deployment`.
    pub(crate) kind: String,
}

impl Kind {
    /// Creates the kind.
    pub(crate) fn new(group: &str, kind: &str) -> Self {
        Self { group: group.to_owned(), kind: kind.to_owned() }
    }

    /// Returns whether this is `kind` of `group`.
    pub(crate) fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }

    /// Returns whether objects of this kind contain secret values.
    pub(crate) fn is_secret(&self) -> bool {
        self.is("", "Secret")
    }
}
