//! Numbers of changes of one resource: for the summary at the end, and for the changes during an interruption.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

/// Counters of the printed and hidden events of one resource.
#[derive(Debug, Default)]
pub(super) struct Tally {
    added: AtomicU64,
    changed: AtomicU64,
    deleted: AtomicU64,
    hidden: AtomicU64,
}

/// Event that a tally counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// An object was added after the initial objects.
    Added,
    /// An object changed.
    Changed,
    /// An object was deleted.
    Deleted,
    /// Only bookkeeping fields (noise) of an object changed.
    Hidden,
}

impl Tally {
    /// Counts one event.
    pub(super) fn count(&self, event: Counted) {
        let counter = match event {
            Counted::Added => &self.added,
            Counted::Changed => &self.changed,
            Counted::Deleted => &self.deleted,
            Counted::Hidden => &self.hidden,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current numbers.
    pub(super) fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            added: load(&self.added),
            deleted: load(&self.deleted),
            changed: load(&self.changed),
            hidden: load(&self.hidden),
        }
    }
}

/// Numbers of events within a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) added: u64,
    pub(super) deleted: u64,
    pub(super) changed: u64,
    /// Changes of bookkeeping fields (noise) only. They are not printed.
    #[serde(skip)]
    pub(super) hidden: u64,
}

impl Counts {
    /// Returns the number of changes with a line.
    pub(super) fn total(self) -> u64 {
        self.added + self.deleted + self.changed
    }

    /// Returns the numbers since `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            added: self.added - earlier.added,
            deleted: self.deleted - earlier.deleted,
            changed: self.changed - earlier.changed,
            hidden: self.hidden - earlier.hidden,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} added, {} deleted, {} changed", self.added, self.deleted, self.changed)?;
        match self.hidden {
            0 => Ok(()),
            hidden => write!(f, " ({hidden} more without a line: only heartbeats, versions or timestamps)"),
        }
    }
}

/// A tally with the name of its resource.
type NamedTally = (String, Arc<Tally>);

/// Tallies of all watched resources. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies(Arc<Mutex<Vec<NamedTally>>>);

impl Tallies {
    /// Creates the tally of the resource `name`.
    pub(super) fn add(&self, name: String) -> Arc<Tally> {
        let tally = Arc::new(Tally::default());
        self.0.lock().push((name, tally.clone()));
        tally
    }

    /// Returns the summary of a run that took `duration`: one line for each resource.
    pub(super) fn summary(&self, duration: Duration) -> String {
        let mut text = format!("# watched for {:.1} s", duration.as_secs_f64());
        for (name, tally) in self.0.lock().iter() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n# {name}: {}", tally.counts());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_line_for_each_resource() {
        let tallies = Tallies::default();
        tallies.add("pods".to_owned()).count(Counted::Deleted);
        tallies.add("nodes".to_owned());
        let expected =
            "# watched for 1.5 s\n# pods: 0 added, 1 deleted, 0 changed\n# nodes: 0 added, 0 deleted, 0 changed";
        assert_eq!(tallies.summary(Duration::from_millis(1500)), expected);
    }

    #[test]
    fn tally_counts_since_an_instant() {
        let tally = Tally::default();
        tally.count(Counted::Added);
        let before = tally.counts();
        for event in [Counted::Added, Counted::Changed, Counted::Changed, Counted::Deleted] {
            tally.count(event);
        }
        assert_eq!(tally.counts().since(before).to_string(), "1 added, 1 deleted, 2 changed");
        tally.count(Counted::Hidden);
        assert!(tally.counts().to_string().starts_with("2 added, 1 deleted, 2 changed (1 more without a line"));
    }
}
