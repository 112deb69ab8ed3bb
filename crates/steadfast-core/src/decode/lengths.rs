//! How many elements the array has that is read next, for who makes room for them.
//!
//! `serde_json` knows that when it is at an array's end. Until then a `Vec` has grown several times, moved what may be
//! thousands of bytes an element, and is a quarter too large on the average; and that is a sixth of what a pod takes up.
//! So when somebody asks for the first time, the text is looked through for brackets and commas, which costs a fifteenth of
//! decoding it, as the guard counts instructions.

use std::cell::{Cell, OnceCell};

use crate::scan::{Array, arrays};

/// The arrays of one text that is read from its beginning to its end.
pub(super) struct Lengths<'t> {
    text: &'t [u8],
    arrays: OnceCell<Vec<Array>>,
    /// How many have begun; none where nobody knows, for a value was passed over that may have had some in it.
    begun: Cell<Option<usize>>,
}

impl<'t> Lengths<'t> {
    /// Those of `text`, of which nothing was read.
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, arrays: OnceCell::new(), begun: Cell::new(Some(0)) }
    }

    /// An array begins. Returns its number, if that is known.
    pub(super) fn begin(&self) -> Option<usize> {
        let number = self.begun.get()?;
        self.begun.set(number.checked_add(1));
        Some(number)
    }

    /// How many elements the array has.
    pub(super) fn of(&self, array: usize) -> Option<usize> {
        let arrays = self.arrays.get_or_init(|| arrays(self.text));
        arrays.get(array).map(|array| array.elements as usize)
    }

    /// An array ends, or all that is read of it. What was passed over in it does not matter any more.
    pub(super) fn end(&self, array: usize) {
        if let Some(array) = self.arrays.get().and_then(|arrays| arrays.get(array)) {
            self.begun.set(Some(array.end as usize));
        }
    }

    /// A value is passed over, with whatever arrays are in it: behind it nothing is known, up to the end of an array that
    /// was asked about.
    pub(super) fn pass(&self) {
        self.begun.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_passed_over_in_an_array_is_forgotten_behind_it() {
        let lengths = Lengths::new(br#"[[1], {"unknown": [], "known": [2, 3]}, [4, 5, 6]], [7]"#);
        let outer = lengths.begin().expect("it is known");
        assert_eq!(lengths.of(outer), Some(3));
        let first = lengths.begin().expect("it is known");
        assert_eq!(lengths.of(first), Some(1));
        lengths.end(first);
        lengths.pass();
        assert_eq!(lengths.begin(), None);
        lengths.end(outer);
        let last = lengths.begin().expect("it is known again");
        assert_eq!(lengths.of(last), Some(1));
    }

    #[test]
    fn a_text_that_nobody_asks_about_is_not_looked_through() {
        let lengths = Lengths::new(b"[[], []]");
        let outer = lengths.begin().expect("it is known");
        let inner = lengths.begin().expect("it is known");
        lengths.end(inner);
        lengths.end(outer);
        assert!(lengths.arrays.get().is_none());
        lengths.pass();
        assert_eq!(lengths.begin(), None);
    }
}
