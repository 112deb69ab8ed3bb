//! Number of elements of the next array, for collections that allocate in advance.
//!
//! `serde_json` knows the number only at the end of an array. Until then a `Vec` grows several times, moves elements of
//! up to thousands of bytes, and ends up a quarter too large on average. This amounts to a sixth of a pod's memory. The
//! first request for a length therefore scans the text for brackets and commas. The scan costs a fifteenth of the
//! decoding, as counted in instructions.

use std::cell::{Cell, OnceCell};

use crate::scan::{Array, arrays};

/// Arrays of a text that is read from start to end.
pub(super) struct Lengths<'t> {
    text: &'t [u8],
    arrays: OnceCell<Vec<Array>>,
    /// Number of arrays that have started; `None` if unknown, after a skipped value that may have contained arrays.
    started: Cell<Option<usize>>,
}

impl<'t> Lengths<'t> {
    /// Creates the state for an unread `text`.
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, arrays: OnceCell::new(), started: Cell::new(Some(0)) }
    }

    /// Records the start of an array. Returns its number, if the number is known.
    pub(super) fn start(&self) -> Option<usize> {
        let number = self.started.get()?;
        self.started.set(number.checked_add(1));
        Some(number)
    }

    /// Returns the number of elements of the array.
    pub(super) fn of(&self, array: usize) -> Option<usize> {
        let arrays = self.arrays.get_or_init(|| arrays(self.text));
        arrays.get(array).map(|array| array.elements as usize)
    }

    /// Records the end of an array. Skipped values within it no longer matter.
    pub(super) fn end(&self, array: usize) {
        if let Some(array) = self.arrays.get().and_then(|arrays| arrays.get(array)) {
            self.started.set(Some(array.end as usize));
        }
    }

    /// Records a skipped value, which may contain arrays. Later numbers are unknown up to the end of an enclosing array
    /// whose length was requested.
    pub(super) fn skip(&self) {
        self.started.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_values_matter_only_within_their_array() {
        let lengths = Lengths::new(br#"[[1], {"unknown": [], "known": [2, 3]}, [4, 5, 6]], [7]"#);
        let outer = lengths.start().expect("a known array");
        assert_eq!(lengths.of(outer), Some(3));
        let first = lengths.start().expect("a known array");
        assert_eq!(lengths.of(first), Some(1));
        lengths.end(first);
        lengths.skip();
        assert_eq!(lengths.start(), None);
        lengths.end(outer);
        let last = lengths.start().expect("a known array");
        assert_eq!(lengths.of(last), Some(1));
    }

    #[test]
    fn text_is_scanned_only_on_request() {
        let lengths = Lengths::new(b"[[], []]");
        let outer = lengths.start().expect("a known array");
        let inner = lengths.start().expect("a known array");
        lengths.end(inner);
        lengths.end(outer);
        assert!(lengths.arrays.get().is_none());
        lengths.skip();
        assert_eq!(lengths.start(), None);
    }
}
