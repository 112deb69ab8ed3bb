//! Versions as some aggregated servers give them, whose namespaces each have a store and so a counter of their own.
//!
//! They rise within a namespace, and say nothing across. The server itself places any of them.

/// A version is so many times the number of its counter, and the revision: no server of a test comes this far.
const APART: u64 = 1_000_000_000;

/// More than the number of any namespace's counter.
const COLLECTION: u64 = 1_000;

/// The version of an object in `namespace` that was changed at `revision`.
pub(super) fn of_object(namespace: &str, revision: u64) -> u64 {
    let number = namespace.bytes().fold(0, |number: u64, byte| (number * 31 + u64::from(byte)) % (COLLECTION - 1));
    (number + 1) * APART + revision
}

/// The version of a list or a bookmark: the highest there is.
pub(super) fn of_collection(revision: u64) -> u64 {
    COLLECTION * APART + revision
}

/// The revision that a client means by a version.
pub(super) fn revision(version: u64) -> u64 {
    version % APART
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_rise_within_a_namespace_and_say_nothing_across() {
        assert!(of_object("a", 8) > of_object("a", 7));
        assert!(of_object("a", 8) < of_object("b", 7), "though it was later");
        assert!(of_object("b", 9) < of_collection(1));
        for version in [of_object("a", 7), of_object("", 7), of_collection(7), 7] {
            assert_eq!(revision(version), 7);
        }
    }
}
