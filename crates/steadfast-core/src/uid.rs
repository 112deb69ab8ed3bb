//! UIDs of objects. A UID distinguishes an object from earlier ones of the same name. The name of an object replaces a
//! missing UID.

use std::fmt;
use std::ops::Deref;

use crate::key::ObjectKey;
use crate::short::ShortText;

/// UID of an object, verbatim from the server.
///
/// Some aggregated APIs provide no UIDs. Such an object is identified by its name. Any other object of this name counts
/// as this object, since no client can distinguish them (C1).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(ShortText<INLINE_BYTES>);

/// Maximum length of an inline UID in bytes. UIDs of Kubernetes have 36 bytes.
const INLINE_BYTES: usize = 38;

/// Prefix of a name that replaces a missing UID.
const NAME_PREFIX: char = '\u{1}';

/// Prefix that escapes a UID from the server that starts with one of the two prefixes.
const LITERAL_PREFIX: char = '\0';

impl Uid {
    /// Creates the UID with the text `text`.
    pub fn new(text: &str) -> Self {
        // A UID that starts like a marker is escaped, so no server can forge an identity by name.
        let text =
            if text.starts_with([NAME_PREFIX, LITERAL_PREFIX]) { &format!("{LITERAL_PREFIX}{text}") } else { text };
        Self(text.into())
    }

    /// Creates a substitute UID for the object at `key`, unique for each key.
    pub fn by_name(key: &ObjectKey) -> Self {
        Self(format!("{NAME_PREFIX}{}\0{}", key.namespace().unwrap_or_default(), key.name()).as_str().into())
    }

    /// Returns whether the server provided the UID. Otherwise the object is identified by its name.
    pub fn is_from_server(&self) -> bool {
        self.0.as_bytes().first() != Some(&(NAME_PREFIX as u8))
    }

    /// Returns the UID from the server; empty if the server provided none.
    pub fn as_str(&self) -> &str {
        let text = self.unique_text();
        if self.is_from_server() { text.strip_prefix(LITERAL_PREFIX).unwrap_or(text) } else { "" }
    }

    /// Returns whether two objects of one name count as one object. They do, unless both have UIDs and these differ.
    pub fn is_same(&self, other: &Self) -> bool {
        self == other || !self.is_from_server() || !other.is_from_server()
    }

    /// Returns a text that is unique to this UID, including substitutes.
    pub(crate) fn unique_text(&self) -> &str {
        self.0.as_str()
    }
}

impl Deref for Uid {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_from_server() { self.as_str() } else { "without a UID" })
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_from_server() { fmt::Debug::fmt(self.as_str(), f) } else { fmt::Display::fmt(self, f) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_uid_equals_any_uid_of_name() {
        let by_name = Uid::by_name(&ObjectKey::namespaced("n", "a"));
        assert!(by_name.is_same(&Uid::from("u")) && Uid::from("u").is_same(&by_name));
        assert!(!Uid::from("u").is_same(&Uid::from("v")));
        assert_eq!((by_name.as_str(), by_name.to_string().as_str()), ("", "without a UID"));
        assert_ne!(by_name, Uid::by_name(&ObjectKey::cluster("a")));
    }

    #[test]
    fn server_uid_is_never_a_name() {
        for odd in ["\u{1}n\0a", "\0", "\0\u{1}n\0a"] {
            let uid = Uid::from(odd);
            assert_eq!((uid.is_from_server(), uid.as_str()), (true, odd));
        }
        assert_ne!(Uid::from("\u{1}n\0a"), Uid::by_name(&ObjectKey::namespaced("n", "a")));
    }
}
