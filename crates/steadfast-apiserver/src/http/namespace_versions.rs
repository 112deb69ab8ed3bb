//! Versions from separate counters: some aggregated servers have a store, and therefore a counter, for each namespace.
//!
//! Such versions rise within a namespace and have no order across namespaces. Each version contains a revision, which
//! this server extracts from the versions in requests.

/// Distance between the counters of two namespaces: a version is this distance times the counter's number, plus the
/// revision. No test reaches so many revisions.
const COUNTER_DISTANCE: u64 = 1_000_000_000;

/// Counter number of lists and bookmarks, above the counter numbers of all namespaces.
const COLLECTION_COUNTER: u64 = 1_000;

/// Returns the version of an object in `namespace` that was changed at `revision`.
pub(super) fn object_version(namespace: &str, revision: u64) -> u64 {
    let number =
        namespace.bytes().fold(0, |number: u64, byte| (number * 31 + u64::from(byte)) % (COLLECTION_COUNTER - 1));
    (number + 1) * COUNTER_DISTANCE + revision
}

/// Returns the version of a list or a bookmark, which is above all object versions.
pub(super) fn collection_version(revision: u64) -> u64 {
    COLLECTION_COUNTER * COUNTER_DISTANCE + revision
}

/// Extracts the revision from a version of these counters.
pub(super) fn revision(version: u64) -> u64 {
    version % COUNTER_DISTANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_rise_only_within_a_namespace() {
        assert!(object_version("a", 8) > object_version("a", 7));
        assert!(object_version("a", 8) < object_version("b", 7), "although the change was later");
        assert!(object_version("b", 9) < collection_version(1));
        for version in [object_version("a", 7), object_version("", 7), collection_version(7), 7] {
            assert_eq!(revision(version), 7);
        }
    }
}
