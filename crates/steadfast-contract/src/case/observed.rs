//! What was observed of informers and handlers, as a trace has it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::call::Call;
use super::moment::Moment;
use crate::breach::Breach;
use crate::clause::Clause;
use crate::seen::{Key, Ref, StoreHeld};
use crate::trace::{Freshness, Outcome, Target};

/// What one informer did.
#[derive(Debug)]
pub(crate) struct Informer<'a> {
    pub(crate) name: &'a str,
    pub(crate) ordered: bool,
    /// Whether its scope is a filter of handlers.
    pub(crate) filtered: bool,
    pub(crate) declared: Moment,
    pub(crate) synced: Option<Moment>,
    pub(crate) relists: Vec<Relist<'a>>,
    /// When it announced new epochs.
    pub(crate) epochs: Vec<Moment>,
    pub(crate) freshness: Vec<(Moment, &'a Freshness)>,
    /// What the store answered to readers and at the entries of handlers.
    pub(super) answers: Vec<Answer<'a>>,
    pub(crate) snapshots: Vec<Snapshot<'a>>,
    pub(crate) waits: Vec<Wait<'a>>,
    /// The keys that it ever named as undecodable.
    pub(crate) ever_tainted: BTreeSet<&'a Key>,
    /// The keys that it named when it was last asked.
    pub(crate) tainted: BTreeSet<&'a Key>,
    pub(super) view: usize,
}

/// A complete list that was compared with the store.
#[derive(Debug)]
pub(crate) struct Relist<'a> {
    pub(crate) moment: Moment,
    pub(crate) from: Option<&'a str>,
    pub(crate) to: Option<&'a str>,
}

/// What the store answered for one key: to a reader, in a snapshot, or as a handler was entered.
#[derive(Clone, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) moment: Moment,
    pub(crate) key: &'a Key,
    pub(crate) held: Cow<'a, StoreHeld>,
}

/// The whole store at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    pub(crate) moment: Moment,
    pub(crate) objects: BTreeMap<&'a Key, &'a Ref>,
    pub(crate) tainted: BTreeSet<&'a Key>,
}

/// A wait that ended.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    pub(crate) moment: Moment,
    pub(crate) target: &'a Target,
    pub(crate) outcome: Outcome,
    pub(crate) store_version: Option<&'a str>,
}

/// What one handler was given.
#[derive(Debug)]
pub(crate) struct Handler<'a> {
    pub(crate) name: &'a str,
    pub(crate) informer: usize,
    pub(crate) concurrency: usize,
    pub(crate) registered: Moment,
    pub(crate) removed: Option<Moment>,
    pub(crate) synced: Option<Moment>,
    pub(crate) calls: Vec<Call<'a>>,
    /// The events given up.
    pub(crate) skips: Vec<(Moment, &'a Ref)>,
    pub(crate) depths: Vec<Depth>,
    pub(crate) undelivered: usize,
}

/// A sample of a handler's queue.
#[derive(Debug)]
pub(crate) struct Depth {
    pub(crate) moment: Moment,
    pub(crate) entries: usize,
    pub(crate) live: usize,
    pub(crate) owed: usize,
}

impl<'a> Informer<'a> {
    /// Its first list, where the recorder saw it: one that was compared with nothing.
    pub(crate) fn first_list(&self) -> Option<&Relist<'a>> {
        self.relists.first().filter(|relist| relist.from.is_none())
    }

    /// Whether it had said, by `moment`, that it is stopped.
    pub(crate) fn stopped_by(&self, moment: Moment) -> bool {
        self.freshness.iter().any(|(said, state)| *said <= moment && **state == Freshness::Stopped)
    }

    /// Whether no answer of its store was recorded.
    pub(crate) fn has_no_answers(&self) -> bool {
        self.answers.is_empty()
    }

    /// A breach that shows at this informer.
    pub(crate) fn breach(
        &self,
        clause: Clause,
        object: Option<&Key>,
        moments: (Duration, Duration),
        what: String,
    ) -> Breach {
        Breach { clause, informer: self.name.to_owned(), handler: None, object: object.cloned(), moments, what }
    }
}
