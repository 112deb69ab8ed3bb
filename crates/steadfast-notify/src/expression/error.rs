//! Purposes of expressions, and errors in expressions.

use crate::entry_fields::EntryFields;

/// Error in an expression, with the offset in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpressionError {
    pub(crate) offset: usize,
    pub(crate) description: String,
}

/// Purpose of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Condition of type bool.
    Condition,
    /// Any value.
    Value,
    /// Content of a mirror: an entry with these fields, or a list of entries.
    Entries(EntryFields),
    /// Body of a request, over these variables.
    Body(&'static [&'static str]),
}

/// Returns the number of characters before the byte at `offset`.
pub(super) fn chars_before(text: &str, offset: usize) -> usize {
    text.char_indices().take_while(|(at, _)| *at < offset).count()
}
