//! Namespaces that end: how long they keep their contents, and which have given them up.

use std::collections::BTreeMap;
use std::time::Duration;

/// The namespaces whose deletion was requested.
///
/// What is in one stays for a while, as with the controller of a real cluster: whoever deletes a namespace and then,
/// one by one, what is in it, finds all of that.
#[derive(Debug)]
pub(crate) struct Endings {
    grace: Duration,
    namespaces: BTreeMap<String, Ending>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The contents go at this time since the server's start.
    At(Duration),
    /// They were deleted; some may wait for their finalizers.
    Emptied,
}

impl Endings {
    /// Namespaces keep their contents for `grace`.
    pub(crate) fn with_grace(grace: Duration) -> Self {
        Self { grace, namespaces: BTreeMap::new() }
    }

    /// The deletion of `namespace` was requested, at `now`; a second request changes nothing.
    pub(crate) fn begin(&mut self, namespace: &str, now: Duration) {
        self.namespaces.entry(namespace.to_owned()).or_insert(Ending::At(now + self.grace));
    }

    /// When contents go next.
    pub(crate) fn next(&self) -> Option<Duration> {
        let times = self.namespaces.values().filter_map(|ending| match ending {
            Ending::At(at) => Some(*at),
            Ending::Emptied => None,
        });
        times.min()
    }

    /// The namespaces whose contents go by `now`; they count as emptied from here on.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<String> {
        let mut due = Vec::new();
        for (namespace, ending) in &mut self.namespaces {
            if matches!(ending, Ending::At(at) if *at <= now) {
                *ending = Ending::Emptied;
                due.push(namespace.clone());
            }
        }
        due
    }

    /// Whether the contents of `namespace` were deleted, so that it goes with the last of them.
    pub(crate) fn is_emptied(&self, namespace: &str) -> bool {
        self.namespaces.get(namespace) == Some(&Ending::Emptied)
    }

    /// `namespace` is gone.
    pub(crate) fn forget(&mut self, namespace: &str) {
        self.namespaces.remove(namespace);
    }

    /// All of them are forgotten: what ends in another epoch is begun anew.
    pub(crate) fn clear(&mut self) {
        self.namespaces.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_go_once_when_their_time_has_come() {
        let seconds = Duration::from_secs;
        let mut endings = Endings::with_grace(seconds(5));
        endings.begin("a", seconds(1));
        endings.begin("b", seconds(2));
        endings.begin("a", seconds(9));
        assert_eq!(endings.next(), Some(seconds(6)));
        assert_eq!(endings.due(seconds(5)), Vec::<String>::new());
        assert_eq!(endings.due(seconds(6)), ["a"]);
        assert!(endings.is_emptied("a") && !endings.is_emptied("b"));
        assert_eq!((endings.next(), endings.due(seconds(6))), (Some(seconds(7)), Vec::new()));
        endings.forget("a");
        assert!(!endings.is_emptied("a"));
    }
}
