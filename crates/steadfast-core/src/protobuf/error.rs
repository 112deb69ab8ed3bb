//! Why a message could not be decoded: where in the object, and never what is in it.

use std::fmt;

use super::wire::Fault;

/// A message that cannot be decoded into what is wanted.
pub struct Error(Box<Inner>);

struct Inner {
    reason: Reason,
    at: Option<usize>,
    /// From the inside out.
    path: Vec<Step>,
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq)]
pub enum Reason {
    /// The bytes are no such message.
    Malformed,
    /// It is nested deeper than JSON may be.
    TooDeep,
    /// The type does not take it. What it says of that may quote values, and is not to be shown.
    Unfit(String),
}

/// A step on the way to a value.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    Field(&'static str),
    Element(usize),
    /// A map's entry. Keys are content.
    Entry,
}

impl Error {
    pub(crate) fn new(reason: Reason, at: usize) -> Self {
        Self(Box::new(Inner { reason, at: Some(at), path: Vec::new() }))
    }

    /// Makes it the error of a value one step further in. `at` is where that is, should it not be known better.
    #[cold]
    pub(crate) fn step_out(&mut self, step: Step, at: usize) {
        self.0.path.push(step);
        self.0.at.get_or_insert(at);
    }

    /// What is wrong.
    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// About where in the bytes.
    pub fn offset(&self) -> usize {
        self.0.at.unwrap_or_default()
    }

    /// The path of the value, as `spec.containers[1].ports`; empty where it is the whole object.
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

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::new(Reason::Malformed, fault.at)
    }
}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(Box::new(Inner { reason: Reason::Unfit(message.to_string()), at: None, path: Vec::new() }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Reason::Malformed => f.write_str("malformed protobuf")?,
            Reason::TooDeep => f.write_str("nested too deep")?,
            Reason::Unfit(_) => f.write_str("a value that the type does not take")?,
        }
        write!(f, " at {:?}, byte {}", self.path(), self.offset())
    }
}

// By hand: what a type says of a value may quote it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
