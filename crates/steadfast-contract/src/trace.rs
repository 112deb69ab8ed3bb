//! What a program saw.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::scope::Scope;
use crate::seen::{Key, Ref, Seen, StoreHeld};

/// How far a store can be trusted, in the words of the program under test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Freshness {
    /// Proven within the bound.
    Fresh {
        /// The version reached.
        version: String,
        /// Time since the last proof.
        #[serde(with = "crate::nanos")]
        age: Duration,
    },
    /// The first list is under way.
    Starting,
    /// The stream was cut and is being taken up again.
    Resuming,
    /// A proof was sought and did not come.
    Suspect,
    /// In doubt for longer.
    Stale,
    /// The server refuses; retried.
    Failed,
    /// Stopped: the end.
    Stopped,
}

/// What a caller waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// `wait_for`: the store at or past this version.
    Version(String),
    /// `wait_gone`: the object with this UID out of the store.
    Gone(String),
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// What was waited for is there.
    Ok,
    /// An error, at the deadline or before.
    Err,
}

/// Something that happened to a program under test. Informers and handlers go by names the recorder chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// An informer begins.
    Informer {
        /// Its name.
        informer: String,
        /// What it looks at.
        scope: Scope,
        /// Whether its versions can be ordered; opaque ones are only distinguished.
        ordered: bool,
    },
    /// An informer's scope is the filter of its handlers, which judges states itself: of one that does not decode it cannot
    /// know whether it passes, so a stay goes on until the next one that does decode.
    Filtered {
        /// Its name.
        informer: String,
    },
    /// A handler was registered.
    Registered {
        /// Its name.
        handler: String,
        /// The informer it listens to.
        informer: String,
        /// How many calls it declared to take at once, for different names.
        concurrency: usize,
    },
    /// A handler was removed.
    Removed {
        /// Its name.
        handler: String,
    },
    /// A handler was called.
    Entered {
        /// Its name.
        handler: String,
        /// The call's number, which its end repeats.
        call: u64,
        /// What it was given.
        event: Seen,
        /// 0, or which retry this is after panics.
        retry: u32,
        /// What the store held for the key at that moment.
        store: StoreHeld,
    },
    /// A call returned.
    Returned {
        /// The handler's name.
        handler: String,
        /// The call's number.
        call: u64,
    },
    /// A call panicked, and the panic was contained.
    Panicked {
        /// The handler's name.
        handler: String,
        /// The call's number.
        call: u64,
    },
    /// An event was given up after its last retry, and counted.
    Skipped {
        /// The handler's name.
        handler: String,
        /// The object of the event.
        object: Ref,
    },
    /// The informer said that it has synced.
    InformerSynced {
        /// Its name.
        informer: String,
    },
    /// The registration said that it has synced.
    RegistrationSynced {
        /// The handler's name.
        handler: String,
    },
    /// A complete list was compared with the store and published: the first one, a relist, or the one after a restart
    /// from a checkpoint.
    Relisted {
        /// The informer's name.
        informer: String,
        /// The version up to which the store had followed before; `None` for the first list.
        from: Option<String>,
        /// The version of the list, if it is known.
        to: Option<String>,
    },
    /// A new epoch was announced.
    Epoch {
        /// The informer's name.
        informer: String,
    },
    /// Freshness changed, or was sampled.
    Freshness {
        /// The informer's name.
        informer: String,
        /// What it said.
        state: Freshness,
        /// The keys it named as undecodable.
        tainted: Vec<Key>,
    },
    /// One key was read.
    Read {
        /// The informer's name.
        informer: String,
        /// The key.
        key: Key,
        /// The answer.
        answer: StoreHeld,
    },
    /// The whole store was read, in one consistent view.
    Snapshot {
        /// The informer's name.
        informer: String,
        /// Everything in it.
        objects: Vec<Ref>,
        /// The keys whose newest state could not be decoded.
        tainted: Vec<Key>,
    },
    /// A wait for a version or a deletion ended.
    WaitedFor {
        /// The informer's name.
        informer: String,
        /// What was waited for.
        target: Target,
        /// How it ended.
        outcome: Outcome,
        /// The store's version at the end, if the recorder asked.
        store_version: Option<String>,
    },
    /// A sample of what waits for a handler.
    QueueDepth {
        /// The handler's name.
        handler: String,
        /// The entries in its queue.
        entries: usize,
        /// The objects live in the store.
        live: usize,
        /// The objects it saw added and has not seen deleted.
        owed: usize,
    },
    /// Stopped with this many events undelivered.
    Undelivered {
        /// The handler's name.
        handler: String,
        /// How many.
        count: usize,
    },
    /// A fault begins or ends.
    Fault {
        /// Its name.
        name: String,
        /// Whether it begins.
        on: bool,
    },
    /// From here on the server is reachable and its history is at rest.
    Quiet,
    /// The recorder has waited, after `Quiet`, for all that it expected: what is missing now is lost.
    Settled,
}

impl Record {
    /// An informer with ordered versions begins.
    pub fn informer(informer: &str, scope: Scope) -> Self {
        Self::Informer { informer: informer.to_owned(), scope, ordered: true }
    }

    /// A handler that takes one call at a time was registered.
    pub fn registered(handler: &str, informer: &str) -> Self {
        Self::Registered { handler: handler.to_owned(), informer: informer.to_owned(), concurrency: 1 }
    }

    /// A handler was called, not as a retry.
    pub fn entered(handler: &str, call: u64, event: Seen, store: StoreHeld) -> Self {
        Self::Entered { handler: handler.to_owned(), call, event, retry: 0, store }
    }

    /// A call returned.
    pub fn returned(handler: &str, call: u64) -> Self {
        Self::Returned { handler: handler.to_owned(), call }
    }

    /// The informer that this is about, where it names one itself.
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

    /// The handler that this is about, where it names one.
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

/// A record and its moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When, on the clock of the history.
    #[serde(with = "crate::nanos")]
    pub at: Duration,
    /// What.
    pub record: Record,
}

/// What a program saw of one resource type, in the order in which it happened.
///
/// A recorder holds one lock while it looks (at the store, at the time) and records, so that the order of the entries
/// is the order of what they tell. Else two readers on two threads would look like time travel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Trace {
    entries: Vec<Entry>,
}

impl Trace {
    /// A trace of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends what happened at the moment `at`.
    pub fn record(&mut self, at: Duration, record: Record) {
        self.entries.push(Entry { at, record });
    }

    /// All entries, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What concerns the informers that `wanted` names, and what concerns all, such as faults.
    ///
    /// A program that watches several resource types records one trace; each history judges its own part.
    #[must_use]
    pub fn about(&self, wanted: impl Fn(&str) -> bool) -> Self {
        let mut handlers = std::collections::BTreeSet::new();
        let about = |entry: &&Entry| match (entry.record.informer_name(), entry.record.handler_name()) {
            (Some(informer), handler) => {
                let keep = wanted(informer);
                if let (true, Some(handler)) = (keep, handler) {
                    handlers.insert(handler.to_owned());
                }
                keep
            }
            (None, Some(handler)) => handlers.contains(handler),
            (None, None) => true,
        };
        self.entries.iter().filter(about).cloned().collect()
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
