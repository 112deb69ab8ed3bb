//! What is wanted of an expression, and what is wrong with it.

use crate::shape::Shape;

/// A mistake in an expression: the letter at which it is, from zero, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) offset: usize,
    pub(crate) what: String,
}

/// What an expression is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It says whether: its value is true or false.
    Condition,
    /// It says what: any value.
    Value,
    /// It says what is to be in a mirror: an entry of this shape, or a list of them.
    Entries(Shape),
    /// The body of a request, over these names.
    Body(&'static [&'static str]),
}

/// Number of characters in front of the byte at `offset`.
pub(super) fn letters_before(text: &str, offset: usize) -> usize {
    text.char_indices().take_while(|(at, _)| *at < offset).count()
}
