//! Resource versions: decimal numbers of any length where they can be, opaque otherwise.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A resource version as the server wrote it.
///
/// Versions that match `[1-9][0-9]*` are ordered as numbers, whatever their length
/// ([KEP-5504](https://github.com/kubernetes/enhancements/issues/5504)); all others are opaque: they can
/// be told apart, not ordered.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Arc<str>);

impl ResourceVersion {
    /// The version written `text`.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// As it goes on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this version can be ordered against others that can.
    pub fn is_ordered(&self) -> bool {
        let digits = self.0.as_bytes();
        matches!(digits.first(), Some(b'1'..=b'9')) && digits.iter().all(u8::is_ascii_digit)
    }

    /// How this version stands to `other`; `None` where one of them is opaque and they differ.
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        if self.0 == other.0 {
            return Some(Ordering::Equal);
        }
        (self.is_ordered() && other.is_ordered()).then(|| {
            let by_length = self.0.len().cmp(&other.0.len());
            by_length.then_with(|| self.0.cmp(&other.0))
        })
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

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
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
    fn opaque_versions_are_told_apart_and_never_ordered() {
        for opaque in ["", "0", "01", "abc", "12x", "-3"] {
            let opaque = ResourceVersion::from(opaque);
            assert!(!opaque.is_ordered(), "{opaque:?}");
            assert_eq!(opaque.order(&ResourceVersion::from("5")), None);
            assert_eq!(opaque.order(&opaque.clone()), Some(Ordering::Equal));
        }
    }
}
