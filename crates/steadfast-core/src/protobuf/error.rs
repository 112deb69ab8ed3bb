//! Errors of undecodable messages: the position in the object, without the content.

use std::fmt;

use super::wire::WireError;

/// Error for a message that cannot be decoded into the requested type.
pub struct Error(Box<Inner>);

struct Inner {
    reason: Reason,
    at: Option<usize>,
    /// Path from the innermost to the outermost step.
    path: Vec<Step>,
}

/// Reason of an error.
#[derive(Clone, PartialEq, Eq)]
pub enum Reason {
    /// The bytes are not a valid message.
    Malformed,
    /// The message is nested deeper than the limit of JSON.
    TooDeep,
    /// The type rejects the value. The text may quote values and must not be shown.
    InvalidValue(String),
}

/// Step of the path to a value.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    Field(&'static str),
    Element(usize),
    /// Entry of a map. The key is content and therefore omitted.
    Entry,
}

impl Error {
    pub(crate) fn new(reason: Reason, at: usize) -> Self {
        Self(Box::new(Inner { reason, at: Some(at), path: Vec::new() }))
    }

    /// Adds an outer step to the path. `at` is the offset of the step, which is used if the error has no offset yet.
    #[cold]
    pub(crate) fn step_out(&mut self, step: Step, at: usize) {
        self.0.path.push(step);
        // The innermost step has the most precise position.
        self.0.at.get_or_insert(at);
    }

    /// Returns the reason.
    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// Returns the approximate offset in the bytes.
    pub fn offset(&self) -> usize {
        self.0.at.unwrap_or_default()
    }

    /// Returns the path of the value, such as `spec.containers[1].ports`; empty for the whole object.
    pub fn path(&self) -> String {
        let mut path = String::new();
        for step in self.0.path.iter().rev() {
            match step {
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => path.extend([".", name]),
                Step::Element(index) => path.extend(["[", &index.to_string(), "]"]),
                Step::Entry => path.push_str("[*]"),
            }
        }
        path
    }
}

impl From<WireError> for Error {
    fn from(fault: WireError) -> Self {
        Self::new(Reason::Malformed, fault.at)
    }
}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(Box::new(Inner { reason: Reason::InvalidValue(message.to_string()), at: None, path: Vec::new() }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Reason::Malformed => f.write_str("malformed protobuf")?,
            Reason::TooDeep => f.write_str("nested too deep")?,
            Reason::InvalidValue(_) => f.write_str("a value that the type does not accept")?,
        }
        write!(f, " at {:?}, byte {}", self.path(), self.offset())
    }
}

// Not derived: the message of a type may quote the value.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
