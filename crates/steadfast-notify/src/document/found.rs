//! Where everything of a file stands.

use std::collections::BTreeMap;

use crate::problem::Place;

/// Where something stands: its key, if it has one, and the value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    pub(super) key: Option<Place>,
    pub(super) value: Place,
    /// The byte at which the value begins, quotes included.
    pub(super) offset: usize,
}

/// What stands where, by path.
pub(super) type Stands = BTreeMap<String, Stand>;

/// Why a file cannot be read: where, what is wrong, and the remedy.
pub(super) type Refused = (Place, String, String);

/// The path of what is called `key` at `path`.
pub(super) fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
