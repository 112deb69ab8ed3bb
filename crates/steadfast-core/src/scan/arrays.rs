//! Number of elements of each array of a text.

use std::ops::ControlFlow;

use super::block::Marker;

/// Array with its length, before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    /// Number of elements.
    pub(crate) elements: u32,
    /// Number of arrays that start before the end of this one, from the start of the text.
    pub(crate) end: u32,
}

/// Maximum nesting depth, equal to that of a decoder.
const MAX_DEPTH: usize = 128;

/// Maximum number of recorded arrays, which take half a megabyte.
const MAX_ARRAYS: usize = 1 << 16;

/// Returns the arrays of `text` in the order of their starts, up to the first part that is nested too deep, and at most
/// [`MAX_ARRAYS`].
///
/// For an invalid text, the result is bounded: no array has more elements than the text has bytes.
pub(crate) fn arrays(text: &[u8]) -> Vec<Array> {
    let mut arrays: Vec<Array> = Vec::new();
    // Contains the index of the array for each open bracket, and `None` for each open brace.
    let mut open: Vec<Option<usize>> = Vec::new();
    Marker::new().structure(text, |at| {
        match text[at] {
            b',' => {
                if let Some(Some(array)) = open.last() {
                    arrays[*array].elements += 1;
                }
            }
            // Beyond these limits, the remaining arrays stay unknown.
            b'[' | b'{' if open.len() == MAX_DEPTH => return ControlFlow::Break(()),
            b'[' if arrays.len() == MAX_ARRAYS => return ControlFlow::Break(()),
            b'{' => open.push(None),
            b'[' => {
                let first = text[at + 1..].iter().find(|byte| !byte.is_ascii_whitespace());
                open.push(Some(arrays.len()));
                arrays.push(Array { elements: u32::from(first != Some(&b']')), end: u32::MAX });
            }
            _ => {
                if let Some(Some(array)) = open.pop() {
                    arrays[array].end = arrays.len() as u32;
                }
            }
        }
        ControlFlow::Continue(())
    });
    arrays
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> Vec<(u32, u32)> {
        arrays(text.as_bytes()).into_iter().map(|array| (array.elements, array.end)).collect()
    }

    #[test]
    fn arrays_are_returned_in_order_of_starts() {
        assert_eq!(
            counted(r#"{"a": [1, {"b": [], "c": [[2, 3], 4]}, "x,]["], "d": [ ], "e": ["\\"]}"#),
            [(3, 4), (0, 2), (2, 4), (2, 4), (0, 5), (1, 6),]
        );
        assert_eq!(counted("[\n]"), [(0, 1)]);
        assert_eq!(counted("7"), []);
    }

    #[test]
    fn invalid_json_yields_bounded_result() {
        assert_eq!(counted("]]["), [(1, u32::MAX)]);
        assert_eq!(counted("[,,"), [(3, u32::MAX)]);
        assert_eq!(arrays(&[b'['; 1000]).len(), MAX_DEPTH);
        assert_eq!(arrays(&b"[],".repeat(MAX_ARRAYS + 1)).len(), MAX_ARRAYS);
    }
}
