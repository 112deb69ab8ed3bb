//! Selectors, parsed and evaluated on the history's objects.

mod fields;
mod labels;

use std::fmt;

pub(crate) use fields::FieldSelector;
pub(crate) use labels::LabelSelector;

/// Invalid selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    selector: String,
    reason: String,
}

impl SelectorError {
    fn new(selector: &str, reason: impl Into<String>) -> Self {
        Self { selector: selector.to_owned(), reason: reason.into() }
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "selector {:?}: {}", self.selector, self.reason)
    }
}

impl std::error::Error for SelectorError {}
