//! Resource versions: decimal numbers of any length where they can be, opaque otherwise.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::short::ShortText;

/// A resource version as the server wrote it.
///
/// Versions that match `[1-9][0-9]*` are ordered as numbers, whatever their length
/// ([KEP-5504](https://github.com/kubernetes/enhancements/issues/5504)); all others are opaque: they can
/// be distinguished, not ordered. So is what represents the version of an object that has none.
#[derive(Clone)]
pub struct ResourceVersion(ShortText<LENGTH>);

/// Those of Kubernetes are revisions of etcd, which counts writes: of a hundred million million there have been none.
const LENGTH: usize = 14;

/// What a text begins with that is not to be ordered, though it looks like a number. It is no part of the version.
const UNORDERED: char = '\0';

/// What a text begins with that represents a version that the server did not give.
const MADE: char = '\u{1}';

impl ResourceVersion {
    /// The version written `text`.
    pub fn new(text: &str) -> Self {
        // Whatever a server writes is sent back as it came.
        let text = if text.starts_with([UNORDERED, MADE]) { &format!("{UNORDERED}{text}") } else { text };
        Self(text.into())
    }

    /// What represents the version of an object that has none: the same for the same `content`, and as good as certainly
    /// another for any other. It is opaque, and goes to no server.
    pub fn made_of(content: &[u8]) -> Self {
        // Without a seed, so that the same content has the same version wherever it is read.
        let mut hasher = DefaultHasher::new();
        hasher.write(content);
        Self(format!("{MADE}{:x}-{:016x}", content.len(), hasher.finish()).as_str().into())
    }

    /// Whether the server gave it.
    pub fn is_given(&self) -> bool {
        !self.begins_with(MADE)
    }

    /// The same version of a server whose versions are in no order, whatever they look like: it is opaque.
    #[must_use]
    pub fn unordered(&self) -> Self {
        if self.begins_with(UNORDERED) || self.begins_with(MADE) {
            self.clone()
        } else {
            Self(format!("{UNORDERED}{}", self.0.as_str()).as_str().into())
        }
    }

    /// As it goes on the wire; empty where the server gave none.
    pub fn as_str(&self) -> &str {
        if self.is_given() { self.mark() } else { "" }
    }

    /// What tells it from any other, given or not.
    pub(crate) fn mark(&self) -> &str {
        let text = self.0.as_str();
        text.strip_prefix(UNORDERED).unwrap_or(text)
    }

    /// The bytes of [`mark`](Self::mark).
    fn mark_bytes(&self) -> &[u8] {
        let bytes = self.0.as_bytes();
        bytes.strip_prefix(&[UNORDERED as u8]).unwrap_or(bytes)
    }

    fn begins_with(&self, mark: char) -> bool {
        self.0.as_bytes().first() == Some(&(mark as u8))
    }

    /// Whether this version can be ordered against others that can.
    pub fn is_ordered(&self) -> bool {
        let digits = self.0.as_bytes();
        matches!(digits.first(), Some(b'1'..=b'9')) && digits.iter().all(u8::is_ascii_digit)
    }

    /// How this version compares to `other`; `None` where one of them is opaque and they differ.
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        if self.is_ordered() && other.is_ordered() {
            let (own, others) = (self.0.as_bytes(), other.0.as_bytes());
            return Some(own.len().cmp(&others.len()).then_with(|| own.cmp(others)));
        }
        (self == other).then_some(Ordering::Equal)
    }

    /// Whether both can be ordered and this one is the newer.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.order(other) == Some(Ordering::Greater)
    }

    /// Whether both can be ordered and this one is the older.
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.order(other) == Some(Ordering::Less)
    }
}

// By hand: that a version is not to be ordered is no part of it.
impl PartialEq for ResourceVersion {
    fn eq(&self, other: &Self) -> bool {
        self.mark_bytes() == other.mark_bytes() && self.is_given() == other.is_given()
    }
}

impl Eq for ResourceVersion {}

impl Hash for ResourceVersion {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.mark().hash(state);
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_given() { self.as_str() } else { "none" })
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
    fn versions_longer_than_any_machine_word_are_ordered_as_numbers() {
        let long = ResourceVersion::from("100000000000000000000000000000000000000000");
        let longer = ResourceVersion::from("100000000000000000000000000000000000000001");
        assert!(longer.is_newer_than(&long));
        assert!(ResourceVersion::from("9").is_older_than(&ResourceVersion::from("10")));
    }

    #[test]
    fn a_version_without_order_is_the_same_version_and_opaque() {
        let (ordered, higher) = (ResourceVersion::from("9"), ResourceVersion::from("10"));
        let unordered = ordered.unordered();
        assert_eq!((unordered.as_str(), unordered.is_ordered(), &unordered), ("9", false, &ordered));
        assert_eq!((unordered.order(&higher), unordered.order(&ordered)), (None, Some(Ordering::Equal)));
        assert_eq!(unordered.unordered().as_str(), "9");
        assert_eq!(ResourceVersion::from("\09").as_str(), "\09", "what a server writes is sent back as it came");
    }

    #[test]
    fn what_stands_for_a_version_is_opaque_and_none_on_the_wire() {
        let (made, other) = (ResourceVersion::made_of(b"1"), ResourceVersion::made_of(b"2"));
        assert_eq!((made.as_str(), made.is_given(), made.is_ordered()), ("", false, false));
        assert_eq!((made.order(&other), made.order(&ResourceVersion::made_of(b"1"))), (None, Some(Ordering::Equal)));
        assert_eq!(made.unordered().as_str(), "");
        assert_eq!(format!("{made} {made:?}"), "none vnone", "not even a hash of a Secret is shown");
        let odd = ResourceVersion::from(made.mark());
        assert_eq!((odd.is_given(), odd.as_str(), odd == made), (true, made.mark(), false), "a server's own");
    }

    #[test]
    fn opaque_versions_are_told_apart_and_never_ordered() {
        for opaque in ["", "0", "01", "abc", "12x", "-3"] {
            let opaque = ResourceVersion::from(opaque);
            assert!(!opaque.is_ordered(), "{opaque:?}");
            assert_eq!(opaque.order(&ResourceVersion::from("5")), None);
            assert_eq!(opaque.order(&opaque.clone()), Some(Ordering::Equal));
        }
    }
}
