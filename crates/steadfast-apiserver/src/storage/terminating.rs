//! Terminating namespaces and the deletion of their contents.

use std::collections::BTreeMap;
use std::time::Duration;

/// Namespaces whose deletion was requested.
///
/// The contents stay for `delay`, as with the controller of a real cluster. A client that deletes a namespace
/// and then its objects one by one therefore finds all of them.
#[derive(Debug)]
pub(crate) struct TerminatingNamespaces {
    delay: Duration,
    namespaces: BTreeMap<String, NamespaceEnding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamespaceEnding {
    /// Time from the server's start until the deletion of the contents.
    DeleteContentsAt(Duration),
    /// The contents were deleted; some objects may wait for their finalizers.
    Emptied,
}

impl TerminatingNamespaces {
    /// Creates an empty set. Namespaces keep their contents for `delay`.
    pub(crate) fn with_delay(delay: Duration) -> Self {
        Self { delay, namespaces: BTreeMap::new() }
    }

    /// Adds `namespace`, whose deletion was requested at `now`. A repeated request has no effect.
    pub(crate) fn start(&mut self, namespace: &str, now: Duration) {
        self.namespaces.entry(namespace.to_owned()).or_insert(NamespaceEnding::DeleteContentsAt(now + self.delay));
    }

    /// Returns the time of the next deletion of contents.
    pub(crate) fn next(&self) -> Option<Duration> {
        let times = self.namespaces.values().filter_map(|ending| match ending {
            NamespaceEnding::DeleteContentsAt(at) => Some(*at),
            NamespaceEnding::Emptied => None,
        });
        times.min()
    }

    /// Returns the namespaces whose contents must be deleted by `now`, and marks them as emptied.
    pub(crate) fn take_due(&mut self, now: Duration) -> Vec<String> {
        let mut due = Vec::new();
        for (namespace, ending) in &mut self.namespaces {
            if matches!(ending, NamespaceEnding::DeleteContentsAt(at) if *at <= now) {
                *ending = NamespaceEnding::Emptied;
                due.push(namespace.clone());
            }
        }
        due
    }

    /// Returns whether the contents of `namespace` were deleted. The namespace is then removed with the last object.
    pub(crate) fn is_emptied(&self, namespace: &str) -> bool {
        self.namespaces.get(namespace) == Some(&NamespaceEnding::Emptied)
    }

    /// Removes `namespace` after its deletion.
    pub(crate) fn forget(&mut self, namespace: &str) {
        self.namespaces.remove(namespace);
    }

    /// Removes all namespaces. After a restore, terminating namespaces are added again.
    pub(crate) fn clear(&mut self) {
        self.namespaces.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_deleted_once_after_delay() {
        let seconds = Duration::from_secs;
        let mut terminating = TerminatingNamespaces::with_delay(seconds(5));
        terminating.start("a", seconds(1));
        terminating.start("b", seconds(2));
        terminating.start("a", seconds(9));
        assert_eq!(terminating.next(), Some(seconds(6)));
        assert_eq!(terminating.take_due(seconds(5)), Vec::<String>::new());
        assert_eq!(terminating.take_due(seconds(6)), ["a"]);
        assert!(terminating.is_emptied("a") && !terminating.is_emptied("b"));
        assert_eq!((terminating.next(), terminating.take_due(seconds(6))), (Some(seconds(7)), Vec::new()));
        terminating.forget("a");
        assert!(!terminating.is_emptied("a"));
    }
}
