//! Errors of the parser and the evaluator. None of them contains a value, since values may be secrets.

use std::fmt;

/// Error in the text of an expression.
#[derive(Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Byte offset of the error in the text.
    pub offset: usize,
    /// Description without a full stop.
    pub message: String,
}

impl SyntaxError {
    pub(crate) fn new(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, message: message.into() }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SyntaxError {}

/// Failed evaluation: the kind of the error, and the part of the expression that failed.
#[derive(Clone, PartialEq, Eq)]
pub struct CelError {
    /// Byte offset in the text of the expression.
    pub offset: usize,
    /// Cause.
    pub kind: CelErrorKind,
}

impl fmt::Display for CelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for CelError {}

/// Cause of a failed evaluation.
///
/// Names come from the text of the expression, never from a value.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CelErrorKind {
    /// A selected field that the map does not have. The name is part of the expression.
    NoSuchField(String),
    /// A computed key that a map does not have.
    NoSuchKey,
    /// A list index out of range.
    IndexOutOfRange,
    /// An operator or a function without a definition for these types.
    NoSuchOverload {
        /// Name of the function, or of the operator in the form `_+_`.
        function: String,
        /// Names of the argument types.
        types: Vec<&'static str>,
    },
    /// An unbound variable.
    UnknownName(String),
    /// A function that neither CEL nor the context defines.
    UnknownFunction(String),
    /// A value that a function does not accept.
    InvalidArgument {
        /// Name of the function.
        function: String,
        /// Requirement that the value does not meet.
        reason: &'static str,
    },
    /// A value that is not known at present, with the reason.
    Unavailable(String),
    /// Division or modulo by zero.
    DivisionByZero,
    /// A number, timestamp or duration beyond the range of its type.
    Overflow,
    /// A map literal with the same key twice.
    DuplicateKey,
    /// A map key of a type other than bool, int, uint and string.
    UnsupportedKey,
    /// The value of an empty optional.
    NoValue,
    /// A value nested deeper than this number of levels.
    TooDeep(usize),
    /// More cost than this limit.
    BudgetExceeded(u64),
    /// A result larger than this number of bytes of JSON.
    ResultTooLarge(usize),
    /// A result that JSON cannot represent.
    NotJson(&'static str),
}

impl CelErrorKind {
    /// Attaches the position of the failed expression.
    pub(crate) fn at(self, offset: u32) -> CelError {
        CelError { offset: offset as usize, kind: self }
    }

    /// Returns whether `&&`, `||` and the macros `all` and `exists` may absorb the error. Exhausted limits end an
    /// evaluation.
    pub(crate) fn is_absorbable(&self) -> bool {
        !matches!(self, Self::BudgetExceeded(_) | Self::TooDeep(_) | Self::ResultTooLarge(_))
    }

    pub(crate) fn invalid_argument(function: &str, reason: &'static str) -> Self {
        Self::InvalidArgument { function: function.to_owned(), reason }
    }

    pub(crate) fn no_such_overload(function: &str, types: Vec<&'static str>) -> Self {
        Self::NoSuchOverload { function: function.to_owned(), types }
    }
}

impl fmt::Display for CelErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchField(name) | Self::UnknownName(name) => write!(f, "there is no `{name}`"),
            Self::NoSuchKey => f.write_str("a map does not have this key"),
            Self::IndexOutOfRange => f.write_str("a list has no item of this number"),
            Self::NoSuchOverload { function, types } => write!(f, "`{function}` does not take {}", types.join(", ")),
            Self::UnknownFunction(name) => write!(f, "there is no function `{name}`"),
            Self::InvalidArgument { function, reason } => write!(f, "`{function}` does not take this value: {reason}"),
            Self::Unavailable(reason) => f.write_str(reason),
            Self::DivisionByZero => f.write_str("division by zero"),
            Self::Overflow => f.write_str("a number, time or duration exceeds the range of its type"),
            Self::DuplicateKey => f.write_str("a map has a key twice"),
            Self::UnsupportedKey => f.write_str("a map key must be a string, a bool or an integer"),
            Self::NoValue => f.write_str("an optional value is empty"),
            Self::TooDeep(levels) => write!(f, "a value is nested more than {levels} levels deep"),
            Self::BudgetExceeded(limit) => write!(f, "cost budget of {limit} exceeded"),
            Self::ResultTooLarge(limit) => write!(f, "the result exceeds {limit} bytes"),
            Self::NotJson(description) => write!(f, "the result contains {description}, which JSON cannot represent"),
        }
    }
}

impl std::error::Error for CelErrorKind {}

debug_as_message!(SyntaxError, CelError, CelErrorKind);
