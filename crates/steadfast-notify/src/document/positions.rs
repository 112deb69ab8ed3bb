//! Positions of keys and values in a file.

use std::collections::BTreeMap;

use crate::problem::FilePosition;

/// Position of a value, and of the key if the value has a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValuePosition {
    pub(super) key: Option<FilePosition>,
    pub(super) value: FilePosition,
    /// Byte offset of the value, including quotes.
    pub(super) offset: usize,
}

/// Positions by path.
pub(super) type ValuePositions = BTreeMap<String, ValuePosition>;

/// Reason why a file cannot be parsed: position, error and remedy.
pub(super) type ParseError = (FilePosition, String, String);

/// Returns the path of the field `key` below `path`.
pub(super) fn child_path(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
