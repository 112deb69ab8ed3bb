//! Texts that are almost always short and stored inline.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::footprint::shared;

/// Text of up to `N` bytes inline; a longer text is a shared allocation.
#[derive(Clone)]
pub(crate) enum ShortText<const N: usize> {
    Inline { len: u8, bytes: [u8; N] },
    Shared(Arc<str>),
}

impl<const N: usize> ShortText<N> {
    /// Concatenates two texts.
    pub(crate) fn joined(first: &str, second: &str) -> Self {
        let length = first.len() + second.len();
        match u8::try_from(length) {
            Ok(len) if length <= N => {
                let mut bytes = [0; N];
                let (before, behind) = bytes[..length].split_at_mut(first.len());
                before.copy_from_slice(first.as_bytes());
                behind.copy_from_slice(second.as_bytes());
                Self::Inline { len, bytes }
            }
            _ => Self::Shared([first, second].concat().into()),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Shared(text) => text.as_bytes(),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Inline { .. } => std::str::from_utf8(self.as_bytes()).expect("the bytes of a string"),
            Self::Shared(text) => text,
        }
    }

    /// Returns the memory beyond the value itself, in bytes.
    pub(crate) fn footprint(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Shared(text) => shared(text.len()),
        }
    }
}

impl<const N: usize> From<&str> for ShortText<N> {
    fn from(text: &str) -> Self {
        Self::joined(text, "")
    }
}

impl<const N: usize> PartialEq for ShortText<N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<const N: usize> Eq for ShortText<N> {}

impl<const N: usize> PartialOrd for ShortText<N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<const N: usize> Ord for ShortText<N> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl<const N: usize> Hash for ShortText<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl<const N: usize> fmt::Debug for ShortText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_shared_texts_are_equal() {
        for text in ["", "four", "fives", "ümläut, and longer than any"] {
            let short = ShortText::<4>::from(text);
            assert_eq!((short.as_str(), matches!(short, ShortText::Shared(_))), (text, text.len() > 4));
            assert_eq!(short, ShortText::from(text));
            assert_eq!(short, ShortText::joined("", text));
        }
        assert!(ShortText::<4>::from("abcd") < ShortText::from("abcde"));
        assert!(ShortText::<4>::from("abcde") < ShortText::from("abd"));
    }
}
