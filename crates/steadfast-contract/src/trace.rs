//! Recordings of a program under test.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::objects::{HandlerEvent, Key, ObjectVersionRef, StoreContent};
use crate::scope::Scope;

/// Freshness of a cache, as reported by the program under test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Freshness {
    /// The last proof that the cache was current is at most two periods old.
    Fresh {
        /// Reached version.
        version: String,
        /// Time since the last proof.
        #[serde(with = "crate::nanos")]
        age: Duration,
    },
    /// The first list is in progress.
    Starting,
    /// The stream was interrupted and is being resumed.
    Resuming,
    /// A requested proof did not arrive in time.
    Suspect,
    /// The cache is known to be behind, or had no proof for longer than the informer's limits.
    Stale,
    /// The server rejects the requests; the informer retries.
    Failed,
    /// Stopped permanently.
    Stopped,
}

/// Target of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitTarget {
    /// `wait_for`: a cache at or past this version.
    Version(String),
    /// `wait_for_deletion`: a cache without the object with this UID.
    #[serde(rename = "Gone")]
    Deleted(String),
}

/// Result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitOutcome {
    /// The target was reached.
    Ok,
    /// Error, at the deadline or earlier.
    Err,
}

/// Event in a program under test. The recorder chooses the names of informers and handlers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// Start of an informer.
    Informer {
        /// Name of the informer.
        informer: String,
        /// Scope of the informer.
        scope: Scope,
        /// True if the versions have an order. Opaque versions can only be compared for equality.
        ordered: bool,
    },
    /// Marks the informer's scope as the filter of its handlers: the client evaluates the scope, not the server.
    ///
    /// Such a filter cannot be evaluated on a state that does not decode. A selected object therefore counts as
    /// selected until its next state that decodes.
    Filtered {
        /// Name of the informer.
        informer: String,
    },
    /// Registration of a handler.
    Registered {
        /// Name of the handler.
        handler: String,
        /// Informer of the handler.
        informer: String,
        /// Maximum number of concurrent calls, each for a different name.
        concurrency: usize,
    },
    /// Removal of a handler.
    Removed {
        /// Name of the handler.
        handler: String,
    },
    /// Start of a handler call.
    Entered {
        /// Name of the handler.
        handler: String,
        /// Number of the call. The record of its end contains the same number.
        call: u64,
        /// Delivered event.
        event: HandlerEvent,
        /// Number of the retry after panics; 0 for the first attempt.
        retry: u32,
        /// Content of the cache for the key at this time.
        store: StoreContent,
    },
    /// Return of a call.
    Returned {
        /// Name of the handler.
        handler: String,
        /// Number of the call.
        call: u64,
    },
    /// Panic of a call, which the informer caught.
    Panicked {
        /// Name of the handler.
        handler: String,
        /// Number of the call.
        call: u64,
    },
    /// Event that was skipped and counted after its last retry.
    Skipped {
        /// Name of the handler.
        handler: String,
        /// Object of the event.
        object: ObjectVersionRef,
    },
    /// The informer reported that it has synced.
    InformerSynced {
        /// Name of the informer.
        informer: String,
    },
    /// The registration reported that it has synced.
    RegistrationSynced {
        /// Name of the handler.
        handler: String,
    },
    /// A complete list was compared with the cache and published: the first list, a relist, or the list after a restart
    /// from a checkpoint.
    Relisted {
        /// Name of the informer.
        informer: String,
        /// Version that the cache had reached before; `None` for the first list.
        from: Option<String>,
        /// Version of the list, if known.
        to: Option<String>,
    },
    /// Announcement of a new epoch.
    Epoch {
        /// Name of the informer.
        informer: String,
    },
    /// Change or sample of the freshness.
    Freshness {
        /// Name of the informer.
        informer: String,
        /// Reported freshness.
        state: Freshness,
        /// Keys reported as undecodable.
        tainted: Vec<Key>,
    },
    /// Read of one key.
    Read {
        /// Name of the informer.
        informer: String,
        /// Requested key.
        key: Key,
        /// Content of the cache.
        #[serde(rename = "answer")]
        content: StoreContent,
    },
    /// Read of the whole cache, in one consistent view.
    Snapshot {
        /// Name of the informer.
        informer: String,
        /// All objects of the cache.
        objects: Vec<ObjectVersionRef>,
        /// Keys whose newest state did not decode.
        tainted: Vec<Key>,
    },
    /// End of a wait for a version or a deletion.
    WaitedFor {
        /// Name of the informer.
        informer: String,
        /// Target of the wait.
        target: WaitTarget,
        /// Result of the wait.
        outcome: WaitOutcome,
        /// Version of the cache at the end, if recorded.
        store_version: Option<String>,
    },
    /// Sample of a handler's queue.
    QueueDepth {
        /// Name of the handler.
        handler: String,
        /// Number of entries in the queue.
        entries: usize,
        /// Number of live objects in the cache.
        #[serde(rename = "live")]
        stored: usize,
        /// Number of objects whose addition was delivered, and whose deletion was not.
        #[serde(rename = "owed")]
        undeleted: usize,
    },
    /// Stop of a handler with undelivered events.
    Undelivered {
        /// Name of the handler.
        handler: String,
        /// Number of undelivered events.
        count: usize,
    },
    /// Start or end of a fault.
    Fault {
        /// Name of the fault.
        name: String,
        /// True at the start of the fault.
        on: bool,
    },
    /// From here on, the server is reachable and its history does not change.
    Quiet,
    /// After `Quiet`, the recorder has waited for all expected events. Events that are still missing are lost.
    Settled,
}

impl Record {
    /// Creates a record of the start of an informer with ordered versions.
    pub fn informer(informer: &str, scope: Scope) -> Self {
        Self::Informer { informer: informer.to_owned(), scope, ordered: true }
    }

    /// Creates a record of the registration of a handler that processes one call at a time.
    pub fn registered(handler: &str, informer: &str) -> Self {
        Self::Registered { handler: handler.to_owned(), informer: informer.to_owned(), concurrency: 1 }
    }

    /// Creates a record of a handler call that is not a retry.
    pub fn entered(handler: &str, call: u64, event: HandlerEvent, store: StoreContent) -> Self {
        Self::Entered { handler: handler.to_owned(), call, event, retry: 0, store }
    }

    /// Creates a record of the return of a call.
    pub fn returned(handler: &str, call: u64) -> Self {
        Self::Returned { handler: handler.to_owned(), call }
    }

    /// Returns the informer that the record names directly, if any, not through a handler.
    pub fn informer_name(&self) -> Option<&str> {
        match self {
            Self::Informer { informer, .. }
            | Self::Registered { informer, .. }
            | Self::Filtered { informer }
            | Self::InformerSynced { informer }
            | Self::Relisted { informer, .. }
            | Self::Epoch { informer }
            | Self::Freshness { informer, .. }
            | Self::Read { informer, .. }
            | Self::Snapshot { informer, .. }
            | Self::WaitedFor { informer, .. } => Some(informer),
            _ => None,
        }
    }

    /// Returns the handler that the record names, if any.
    pub fn handler_name(&self) -> Option<&str> {
        match self {
            Self::Registered { handler, .. }
            | Self::Removed { handler }
            | Self::Entered { handler, .. }
            | Self::Returned { handler, .. }
            | Self::Panicked { handler, .. }
            | Self::Skipped { handler, .. }
            | Self::RegistrationSynced { handler }
            | Self::QueueDepth { handler, .. }
            | Self::Undelivered { handler, .. } => Some(handler),
            _ => None,
        }
    }
}

/// A record and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Time of the record, on the clock of the history.
    #[serde(with = "crate::nanos")]
    pub at: Duration,
    /// Recorded event.
    pub record: Record,
}

/// Recording of a program under test, for one resource type, in order.
///
/// A recorder must hold one lock while it reads the cache or the clock and appends the record. Otherwise two concurrent
/// readers could record their reads in the wrong order, as if the cache had returned to an older state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Trace {
    entries: Vec<Entry>,
}

impl Trace {
    /// Creates an empty trace.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a record at time `at`.
    pub fn record(&mut self, at: Duration, record: Record) {
        self.entries.push(Entry { at, record });
    }

    /// Returns all entries, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the entries of the informers that `is_selected` selects, and the entries that concern all informers,
    /// such as faults.
    ///
    /// A program that watches several resource types records one trace. Each part is then checked against the history
    /// of its type.
    #[must_use]
    pub fn for_informers(&self, is_selected: impl Fn(&str) -> bool) -> Self {
        let mut handlers = std::collections::BTreeSet::new();
        let is_kept = |entry: &&Entry| match (entry.record.informer_name(), entry.record.handler_name()) {
            (Some(informer), handler) => {
                let keep = is_selected(informer);
                if let (true, Some(handler)) = (keep, handler) {
                    handlers.insert(handler.to_owned());
                }
                keep
            }
            (None, Some(handler)) => handlers.contains(handler),
            (None, None) => true,
        };
        self.entries.iter().filter(is_kept).cloned().collect()
    }
}

impl FromIterator<Entry> for Trace {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        Self { entries: entries.into_iter().collect() }
    }
}

impl Extend<Entry> for Trace {
    fn extend<I: IntoIterator<Item = Entry>>(&mut self, entries: I) {
        self.entries.extend(entries);
    }
}
