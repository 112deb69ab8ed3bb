//! Parser of traces: one pass over the entries.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::Case;
use super::call::{Call, End, Knowledge};
use super::position::TracePosition;
use super::records::{Depth, Handler, Informer, Relist, Snapshot, StoreRead, Wait};
use crate::bounds::Bounds;
use crate::history::History;
use crate::objects::{HandlerEvent, Key, StoreContent};
use crate::scope::Scope;
use crate::trace::{Record, Trace};
use crate::view::{StatesByName, View};
use crate::violation::Malformed;

impl<'a> Case<'a> {
    /// Parses `trace`.
    pub(crate) fn new(history: &'a History, trace: &'a Trace, bounds: &'a Bounds) -> Self {
        TraceParser::new(history, bounds).read(trace)
    }
}

/// State of the parser.
struct TraceParser<'a> {
    case: Case<'a>,
    names: StatesByName<'a>,
    scopes: BTreeMap<&'a Scope, usize>,
    informers: BTreeMap<&'a str, usize>,
    handlers: BTreeMap<&'a str, usize>,
    /// Knowledge of each handler about each object, by the index of the handler and the key of the object.
    knowledge: BTreeMap<(usize, &'a Key), Knowledge<'a>>,
    /// Running calls: from handler and call number to the index among the handler's calls.
    running: BTreeMap<(usize, u64), usize>,
    quiet: Option<Duration>,
    settled: Option<TracePosition>,
}

impl<'a> TraceParser<'a> {
    fn new(history: &'a History, bounds: &'a Bounds) -> Self {
        let case = Case {
            history,
            bounds,
            informers: Vec::new(),
            handlers: Vec::new(),
            settled: None,
            malformed: contradictions(history),
            views: Vec::new(),
        };
        Self {
            case,
            names: StatesByName::new(history),
            scopes: BTreeMap::new(),
            informers: BTreeMap::new(),
            handlers: BTreeMap::new(),
            knowledge: BTreeMap::new(),
            running: BTreeMap::new(),
            quiet: None,
            settled: None,
        }
    }

    fn read(mut self, trace: &'a Trace) -> Case<'a> {
        let mut last_time = Duration::ZERO;
        for (index, entry) in trace.entries().iter().enumerate() {
            if entry.at < last_time {
                // The trace is written under one lock, so that a step back means a broken recorder.
                self.malformed(entry.at, format!("the trace goes back in time, from {last_time:.3?}"));
            }
            last_time = last_time.max(entry.at);
            self.entry(TracePosition { at: entry.at, index }, &entry.record);
        }
        self.case.settled = self.settled_by(last_time);
        self.case
    }

    fn entry(&mut self, position: TracePosition, record: &'a Record) {
        match record {
            Record::Informer { informer, scope, ordered } => self.declare(position, informer, scope, *ordered),
            Record::Registered { handler, informer, concurrency } => {
                self.register(position, handler, informer, *concurrency);
            }
            Record::Fault { on, .. } => {
                // A fault invalidates an earlier `Quiet` and an earlier `Settled`.
                if *on {
                    (self.quiet, self.settled) = (None, None);
                }
            }
            Record::Quiet => (self.quiet, self.settled) = (Some(position.at), None),
            Record::Settled => self.settled = Some(position),
            _ => match (record.informer_name(), record.handler_name()) {
                (Some(name), _) => match self.informers.get(name) {
                    Some(informer) => self.informer_record(position, *informer, record),
                    None => self.malformed(position.at, format!("informer {name} was never declared")),
                },
                (None, Some(name)) => match self.handlers.get(name) {
                    Some(handler) => self.handler_record(position, *handler, record),
                    None => self.malformed(position.at, format!("handler {name} was never registered")),
                },
                (None, None) => {}
            },
        }
    }

    fn declare(&mut self, position: TracePosition, name: &'a str, scope: &'a Scope, ordered: bool) {
        // Informers with equal scopes share a view, because a view has the size of the history.
        let view = match self.scopes.get(scope) {
            Some(view) => *view,
            None => match scope.filter() {
                Ok(filter) => {
                    self.case.views.push(View::new(&self.names, &filter));
                    self.scopes.insert(scope, self.case.views.len() - 1);
                    self.case.views.len() - 1
                }
                Err(error) => return self.malformed(position.at, error.to_string()),
            },
        };
        if self.informers.insert(name, self.case.informers.len()).is_some() {
            self.malformed(position.at, format!("informer {name} was declared twice"));
        }
        self.case.informers.push(Informer {
            name,
            ordered,
            filtered: false,
            declared: position,
            synced: None,
            relists: Vec::new(),
            epochs: Vec::new(),
            freshness: Vec::new(),
            reads: Vec::new(),
            snapshots: Vec::new(),
            waits: Vec::new(),
            ever_tainted: [].into(),
            tainted: [].into(),
            view,
        });
    }

    fn register(&mut self, position: TracePosition, name: &'a str, informer: &'a str, concurrency: usize) {
        let Some(&informer) = self.informers.get(informer) else {
            return self.malformed(position.at, format!("informer {informer} was never declared"));
        };
        if self.handlers.insert(name, self.case.handlers.len()).is_some() {
            self.malformed(position.at, format!("handler {name} was registered twice"));
        }
        self.case.handlers.push(Handler {
            name,
            informer,
            concurrency,
            registered: position,
            removed: None,
            synced: None,
            calls: Vec::new(),
            skips: Vec::new(),
            depths: Vec::new(),
            undelivered: 0,
        });
    }

    fn informer_record(&mut self, position: TracePosition, index: usize, record: &'a Record) {
        let informer = &mut self.case.informers[index];
        match record {
            Record::Filtered { .. } => informer.filtered = true,
            Record::InformerSynced { .. } => informer.synced = informer.synced.or(Some(position)),
            Record::Relisted { from, to, .. } => {
                informer.relists.push(Relist { position, from: from.as_deref(), to: to.as_deref() });
            }
            Record::Epoch { .. } => informer.epochs.push(position),
            Record::Freshness { state, tainted, .. } => {
                informer.freshness.push((position, state));
                informer.taint(tainted);
            }
            Record::Read { key, content, .. } => informer.add_read(position, key, content),
            Record::Snapshot { objects, tainted, .. } => {
                informer.taint(tainted);
                let objects = objects.iter().map(|object| (&object.key, object)).collect();
                informer.snapshots.push(Snapshot { position, objects, tainted: tainted.iter().collect() });
            }
            Record::WaitedFor { target, outcome, store_version, .. } => {
                let store_version = store_version.as_deref();
                informer.waits.push(Wait { position, target, outcome: *outcome, store_version });
            }
            _ => {}
        }
    }

    fn handler_record(&mut self, position: TracePosition, index: usize, record: &'a Record) {
        let handler = &mut self.case.handlers[index];
        match record {
            Record::Removed { .. } => handler.removed = Some(position),
            Record::Entered { call, event, retry, store, .. } => {
                self.enter(position, index, *call, event, *retry, store);
            }
            Record::Returned { call, .. } => self.end(position, index, *call, false),
            Record::Panicked { call, .. } => self.end(position, index, *call, true),
            Record::Skipped { object, .. } => {
                let last_call = self.knowledge.get(&(index, &object.key)).and_then(|knowledge| knowledge.last_call);
                // A skip ends the attempts of the last call of this name.
                if let Some(last_call) = last_call {
                    handler.calls[last_call].skipped = Some(position);
                }
                handler.skips.push((position, object));
            }
            Record::RegistrationSynced { .. } => handler.synced = handler.synced.or(Some(position)),
            Record::QueueDepth { entries, stored, undeleted, .. } => {
                handler.depths.push(Depth { position, entries: *entries, stored: *stored, undeleted: *undeleted });
            }
            Record::Undelivered { count, .. } => handler.undelivered += count,
            _ => {}
        }
    }

    fn enter(
        &mut self,
        entered: TracePosition,
        index: usize,
        number: u64,
        event: &'a HandlerEvent,
        retry: u32,
        store: &'a StoreContent,
    ) {
        let known_by = self.case.known_by(entered.at);
        let handler = &mut self.case.handlers[index];
        let informer = &mut self.case.informers[handler.informer];
        let timeline = self.case.views[informer.view].timeline(event.key());
        let knowledge = self.knowledge.entry((index, event.key())).or_default();

        // A call counts as a retry only if it repeats the event of the previous call.
        let previous = knowledge.last_call.map(|previous| &handler.calls[previous]);
        let is_retry = retry > 0 && previous.is_some_and(|previous| previous.event == event);
        // A retry has the position of its first attempt, and does not change the handler's knowledge.
        let (last_delivered, place, exit) = if let Some(previous) = previous.filter(|_| is_retry) {
            (previous.last_delivered.clone(), previous.place, previous.exit)
        } else {
            let last_delivered = knowledge.last_delivered.clone();
            let (place, exit) = knowledge.process(timeline, event, informer.ordered, entered.at, known_by);
            (last_delivered, place, exit)
        };
        let previous = knowledge.last_call.replace(handler.calls.len());
        if let Some(previous) = previous {
            handler.calls[previous].next = Some(handler.calls.len());
        }
        // The content of the store at the start of a call is a read like any other.
        informer.add_read(entered, event.key(), store);
        let twice = self.running.insert((index, number), handler.calls.len()).is_some();
        handler.calls.push(Call {
            entered,
            event,
            retry,
            store,
            end: None,
            last_delivered,
            previous,
            next: None,
            skipped: None,
            is_retry,
            place,
            exit,
        });
        if twice {
            self.malformed(entered.at, format!("call {number} was entered twice"));
        }
    }

    fn end(&mut self, position: TracePosition, index: usize, number: u64, panicked: bool) {
        match self.running.remove(&(index, number)) {
            Some(call) => self.case.handlers[index].calls[call].end = Some(End { position, panicked }),
            None => self.malformed(position.at, format!("call {number} ended without having been entered")),
        }
    }

    /// Returns the time by which a trace that ends at `end` must have converged.
    fn settled_by(&self, end: Duration) -> Option<TracePosition> {
        let Bounds { slack, convergence, audit, .. } = *self.case.bounds;
        let changed = self.case.history.changes().last().map_or(Duration::ZERO, |change| change.at);
        let restored = self.case.history.restores().last().map_or(Duration::ZERO, |restore| restore.at);
        let still = changed.max(restored);
        let quiet = self.quiet?.max(still);
        let in_time = quiet + convergence.max(audit.unwrap_or_default());
        // A settled record before the last change does not cover that change.
        let recorded = self.settled.filter(|settled| settled.at + slack >= still);
        // The deadline is computed instead of recorded, so all entries with the same time precede the deadline.
        let in_time = TracePosition { at: in_time, index: usize::MAX };
        recorded.or_else(|| Some(in_time).filter(|in_time| in_time.at <= end))
    }

    fn malformed(&mut self, at: Duration, description: String) {
        self.case.malformed.push(Malformed { at, description });
    }
}

impl<'a> Informer<'a> {
    fn taint(&mut self, keys: &'a [Key]) {
        self.tainted = keys.iter().collect();
        self.ever_tainted.extend(keys);
    }

    fn add_read(&mut self, position: TracePosition, key: &'a Key, content: &'a StoreContent) {
        if let StoreContent::Undecodable { .. } = content {
            self.ever_tainted.insert(key);
        }
        if *content != StoreContent::NotRead {
            self.reads.push(StoreRead { position, key, content: Cow::Borrowed(content) });
        }
    }
}

/// Returns the contradictions within a history.
fn contradictions(history: &History) -> Vec<Malformed> {
    let mut malformed = Vec::new();
    for pair in history.changes().windows(2) {
        let [before, after] = pair else { continue };
        // Versions increase within an epoch only. The pair of epoch and version orders the whole history.
        if (after.epoch, after.version) < (before.epoch, before.version) {
            let description = format!("the history goes back from version {} to {}", before.version, after.version);
            malformed.push(Malformed { at: after.at, description });
        }
        if after.at < before.at {
            malformed.push(Malformed { at: after.at, description: "the history goes back in time".to_owned() });
        }
    }
    malformed
}
