//! Resource versions: decimal numbers of any length, or opaque texts.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::short::ShortText;

/// Resource version, verbatim from the server.
///
/// Versions that match `[1-9][0-9]*` are ordered as numbers of any length
/// ([KEP-5504](https://github.com/kubernetes/enhancements/issues/5504)). All others are opaque: they can be
/// distinguished but not ordered. The substitute version of an object without a version is opaque, too.
#[derive(Clone)]
pub struct ResourceVersion(ShortText<INLINE_BYTES>);

/// Inline length in bytes. Kubernetes versions are revisions of etcd, which counts writes; no cluster has had
/// 10^14 writes.
const INLINE_BYTES: usize = 14;

/// Prefix of a version that looks like a number and must not be ordered. The prefix is not part of the version.
const UNORDERED: char = '\0';

/// Prefix of a substitute for a missing version.
const SUBSTITUTE: char = '\u{1}';

impl ResourceVersion {
    /// Creates the version with the text `text`.
    pub fn new(text: &str) -> Self {
        // Any text of the server must be sent back verbatim, so a text with one of the prefixes is escaped.
        let text = if text.starts_with([UNORDERED, SUBSTITUTE]) { &format!("{UNORDERED}{text}") } else { text };
        Self(text.into())
    }

    /// Creates a substitute version for an object without one. Equal `content` has equal versions; different content
    /// has different versions with very high probability. The version is opaque and is never sent to a server.
    pub fn substitute_for(content: &[u8]) -> Self {
        // Without a seed, equal content has equal versions in every process.
        let mut hasher = DefaultHasher::new();
        hasher.write(content);
        Self(format!("{SUBSTITUTE}{:x}-{:016x}", content.len(), hasher.finish()).as_str().into())
    }

    /// Returns whether the server provided the version.
    pub fn is_from_server(&self) -> bool {
        !self.begins_with(SUBSTITUTE)
    }

    /// Returns an opaque version with the same text, for servers whose versions have no order.
    #[must_use]
    pub fn unordered(&self) -> Self {
        if self.begins_with(UNORDERED) || self.begins_with(SUBSTITUTE) {
            self.clone()
        } else {
            Self(format!("{UNORDERED}{}", self.0.as_str()).as_str().into())
        }
    }

    /// Returns the text on the wire; empty for a substitute version.
    pub fn as_str(&self) -> &str {
        if self.is_from_server() { self.unique_text() } else { "" }
    }

    /// Returns a text that is unique to this version, including substitutes.
    pub(crate) fn unique_text(&self) -> &str {
        let text = self.0.as_str();
        text.strip_prefix(UNORDERED).unwrap_or(text)
    }

    /// Returns the bytes of [`unique_text`](Self::unique_text).
    fn unique_bytes(&self) -> &[u8] {
        let bytes = self.0.as_bytes();
        bytes.strip_prefix(&[UNORDERED as u8]).unwrap_or(bytes)
    }

    fn begins_with(&self, prefix: char) -> bool {
        self.0.as_bytes().first() == Some(&(prefix as u8))
    }

    /// Returns whether the version can be ordered relative to other orderable versions.
    pub fn is_ordered(&self) -> bool {
        let digits = self.0.as_bytes();
        matches!(digits.first(), Some(b'1'..=b'9')) && digits.iter().all(u8::is_ascii_digit)
    }

    /// Compares the version with `other`. Returns `None` for different versions, if at least one of the two is opaque.
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        if self.is_ordered() && other.is_ordered() {
            let (digits, other_digits) = (self.0.as_bytes(), other.0.as_bytes());
            // Without leading zeros, the longer number is the larger one.
            return Some(digits.len().cmp(&other_digits.len()).then_with(|| digits.cmp(other_digits)));
        }
        (self == other).then_some(Ordering::Equal)
    }

    /// Returns whether both versions can be ordered and this version is newer.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.order(other) == Some(Ordering::Greater)
    }

    /// Returns whether both versions can be ordered and this version is older.
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.order(other) == Some(Ordering::Less)
    }
}

// Not derived: the prefix of an unordered version is not part of its value.
impl PartialEq for ResourceVersion {
    fn eq(&self, other: &Self) -> bool {
        self.unique_bytes() == other.unique_bytes() && self.is_from_server() == other.is_from_server()
    }
}

impl Eq for ResourceVersion {}

impl Hash for ResourceVersion {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.unique_text().hash(state);
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_from_server() { self.as_str() } else { "none" })
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_versions_are_ordered_as_numbers() {
        let long = ResourceVersion::from("100000000000000000000000000000000000000000");
        let longer = ResourceVersion::from("100000000000000000000000000000000000000001");
        assert!(longer.is_newer_than(&long));
        assert!(ResourceVersion::from("9").is_older_than(&ResourceVersion::from("10")));
    }

    #[test]
    fn unordered_version_is_equal_and_opaque() {
        let (ordered, higher) = (ResourceVersion::from("9"), ResourceVersion::from("10"));
        let unordered = ordered.unordered();
        assert_eq!((unordered.as_str(), unordered.is_ordered(), &unordered), ("9", false, &ordered));
        assert_eq!((unordered.order(&higher), unordered.order(&ordered)), (None, Some(Ordering::Equal)));
        assert_eq!(unordered.unordered().as_str(), "9");
        assert_eq!(ResourceVersion::from("\09").as_str(), "\09", "the version is sent back unchanged");
    }

    #[test]
    fn substitute_version_is_opaque_and_never_sent() {
        let (substitute, other) = (ResourceVersion::substitute_for(b"1"), ResourceVersion::substitute_for(b"2"));
        assert_eq!((substitute.as_str(), substitute.is_from_server(), substitute.is_ordered()), ("", false, false));
        assert_eq!(
            (substitute.order(&other), substitute.order(&ResourceVersion::substitute_for(b"1"))),
            (None, Some(Ordering::Equal))
        );
        assert_eq!(substitute.unordered().as_str(), "");
        assert_eq!(format!("{substitute} {substitute:?}"), "none vnone", "not even a hash of a Secret is shown");
        let given = ResourceVersion::from(substitute.unique_text());
        // A server may send any text, even that of a substitute.
        assert_eq!(
            (given.is_from_server(), given.as_str(), given == substitute),
            (true, substitute.unique_text(), false)
        );
    }

    #[test]
    fn opaque_versions_are_distinct_but_unordered() {
        for opaque in ["", "0", "01", "abc", "12x", "-3"] {
            let opaque = ResourceVersion::from(opaque);
            assert!(!opaque.is_ordered(), "{opaque:?}");
            assert_eq!(opaque.order(&ResourceVersion::from("5")), None);
            assert_eq!(opaque.order(&opaque.clone()), Some(Ordering::Equal));
        }
    }
}
