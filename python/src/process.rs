//! State of one process, and of no forked child.
//!
//! A forked child has a copy of the memory of its parent, and none of the parent's other threads. A lock that such a thread
//! held at the fork stays locked in the child, and a wake-up of such a thread writes to a file that parent and child share.
//! The child must therefore neither use nor drop this state.

use pyo3::prelude::*;

use crate::errors;

/// Value that only the process that created it can use. A forked child does not drop it.
pub(crate) struct ProcessBound<T> {
    process: u32,
    /// `None` only while `self` is dropped.
    value: Option<T>,
}

impl<T> ProcessBound<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value: Some(value) }
    }

    /// Returns the value.
    ///
    /// # Errors
    ///
    /// Returns an error in a forked child.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        self.get_own().ok_or_else(|| errors::forked(py, self.process))
    }

    /// Returns the value; `None` in a forked child.
    pub(crate) fn get_own(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_own_process())
    }

    /// Takes the value for a `drop`; `None` in a forked child.
    pub(crate) fn take_own(&mut self) -> Option<T> {
        if self.is_own_process() { self.value.take() } else { None }
    }

    fn is_own_process(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Drop for ProcessBound<T> {
    fn drop(&mut self) {
        if !self.is_own_process() {
            std::mem::forget(self.value.take());
        }
    }
}
