//! Strings of values.

use std::ops::Deref;
use std::sync::Arc;

/// String of a value: borrowed from JSON, or shared. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Part of a JSON value.
    Borrowed(&'a str),
    /// Literal of an expression, or a computed string.
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self::Borrowed(text)
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}
