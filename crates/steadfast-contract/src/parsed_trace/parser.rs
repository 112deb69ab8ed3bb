//! Parser of traces: one pass over the entries.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::ParsedTrace;
use super::call::{Call, CallEnd, DeliveryHistory};
use super::position::TracePosition;
use super::records::{Handler, Informer, QueueSample, Relist, Snapshot, StoreRead, Wait};
use crate::bounds::Bounds;
use crate::history::History;
use crate::objects::{HandlerEvent, Key, StoreContent};
use crate::scope::Scope;
use crate::trace::{Record, Trace};
use crate::view::{StatesByName, View};
use crate::violation::Malformed;

impl<'a> ParsedTrace<'a> {
    /// Parses `trace`.
    pub(crate) fn new(history: &'a History, trace: &'a Trace, bounds: &'a Bounds) -> Self {
        TraceParser::new(history, bounds).parse(trace)
    }
}

/// State of the parser.
struct TraceParser<'a> {
    parsed: ParsedTrace<'a>,
    states: StatesByName<'a>,
    views_by_scope: BTreeMap<&'a Scope, usize>,
    informers: BTreeMap<&'a str, usize>,
    handlers: BTreeMap<&'a str, usize>,
    /// Knowledge of each handler about each object, by the index of the handler and the key of the object.
    delivery_history: BTreeMap<(usize, &'a Key), DeliveryHistory<'a>>,
    /// Running calls: from handler and call number to the index among the handler's calls.
    running_calls: BTreeMap<(usize, u64), usize>,
    quiet: Option<Duration>,
    settled: Option<TracePosition>,
}

impl<'a> TraceParser<'a> {
    fn new(history: &'a History, bounds: &'a Bounds) -> Self {
        let parsed = ParsedTrace {
            history,
            bounds,
            informers: Vec::new(),
            handlers: Vec::new(),
            settled: None,
            malformed: contradictions(history),
            views: Vec::new(),
        };
        Self {
            parsed,
            states: StatesByName::new(history),
            views_by_scope: BTreeMap::new(),
            informers: BTreeMap::new(),
            handlers: BTreeMap::new(),
            delivery_history: BTreeMap::new(),
            running_calls: BTreeMap::new(),
            quiet: None,
            settled: None,
        }
    }

    fn parse(mut self, trace: &'a Trace) -> ParsedTrace<'a> {
        let mut last_time = Duration::ZERO;
        for (index, entry) in trace.entries().iter().enumerate() {
            if entry.at < last_time {
                // The trace is written under one lock, so an earlier time means a broken recorder.
                self.add_malformed(
                    entry.at,
                    format!("the time of this entry is before the previous entry at {last_time:.3?}"),
                );
            }
            last_time = last_time.max(entry.at);
            self.parse_entry(TracePosition { at: entry.at, index }, &entry.record);
        }
        self.parsed.settled = self.convergence_deadline(last_time);
        self.parsed
    }

    fn parse_entry(&mut self, position: TracePosition, record: &'a Record) {
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
                    None => self.add_malformed(position.at, format!("informer {name} was never declared")),
                },
                (None, Some(name)) => match self.handlers.get(name) {
                    Some(handler) => self.handler_record(position, *handler, record),
                    None => self.add_malformed(position.at, format!("handler {name} was never registered")),
                },
                (None, None) => {}
            },
        }
    }

    fn declare(&mut self, position: TracePosition, name: &'a str, scope: &'a Scope, ordered: bool) {
        // Informers with equal scopes share a view, because a view has the size of the history.
        let view = match self.views_by_scope.get(scope) {
            Some(view) => *view,
            None => match scope.filter() {
                Ok(filter) => {
                    self.parsed.views.push(View::new(&self.states, &filter));
                    self.views_by_scope.insert(scope, self.parsed.views.len() - 1);
                    self.parsed.views.len() - 1
                }
                Err(error) => return self.add_malformed(position.at, error.to_string()),
            },
        };
        if self.informers.insert(name, self.parsed.informers.len()).is_some() {
            self.add_malformed(position.at, format!("informer {name} was declared twice"));
        }
        self.parsed.informers.push(Informer {
            name,
            has_ordered_versions: ordered,
            is_filtered_by_handlers: false,
            declared: position,
            synced: None,
            relists: Vec::new(),
            epoch_announcements: Vec::new(),
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
            return self.add_malformed(position.at, format!("informer {informer} was never declared"));
        };
        if self.handlers.insert(name, self.parsed.handlers.len()).is_some() {
            self.add_malformed(position.at, format!("handler {name} was registered twice"));
        }
        self.parsed.handlers.push(Handler {
            name,
            informer,
            concurrency,
            registered: position,
            removed: None,
            synced: None,
            calls: Vec::new(),
            skips: Vec::new(),
            queue_samples: Vec::new(),
            undelivered: 0,
        });
    }

    fn informer_record(&mut self, position: TracePosition, index: usize, record: &'a Record) {
        let informer = &mut self.parsed.informers[index];
        match record {
            Record::Filtered { .. } => informer.is_filtered_by_handlers = true,
            Record::InformerSynced { .. } => informer.synced = informer.synced.or(Some(position)),
            Record::Relisted { from, to, .. } => {
                informer.relists.push(Relist { position, from_version: from.as_deref(), to_version: to.as_deref() });
            }
            Record::Epoch { .. } => informer.epoch_announcements.push(position),
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
        let handler = &mut self.parsed.handlers[index];
        match record {
            Record::Removed { .. } => handler.removed = Some(position),
            Record::Entered { call, event, retry, store, .. } => {
                self.enter(position, index, *call, event, *retry, store);
            }
            Record::Returned { call, .. } => self.end(position, index, *call, false),
            Record::Panicked { call, .. } => self.end(position, index, *call, true),
            Record::Skipped { object, .. } => {
                let last_call = self
                    .delivery_history
                    .get(&(index, &object.key))
                    .and_then(|delivery_history| delivery_history.last_call);
                // A skip ends the attempts of the last call of this name.
                if let Some(last_call) = last_call {
                    handler.calls[last_call].skipped_at = Some(position);
                }
                handler.skips.push((position, object));
            }
            Record::RegistrationSynced { .. } => handler.synced = handler.synced.or(Some(position)),
            Record::QueueDepth { entries, stored, undeleted, .. } => {
                handler.queue_samples.push(QueueSample {
                    position,
                    entries: *entries,
                    stored: *stored,
                    undeleted: *undeleted,
                });
            }
            Record::Undelivered { count, .. } => handler.undelivered += count,
            _ => {}
        }
    }

    fn enter(
        &mut self,
        start: TracePosition,
        index: usize,
        number: u64,
        event: &'a HandlerEvent,
        retry: u32,
        store: &'a StoreContent,
    ) {
        let latest = self.parsed.latest_reflected(start.at);
        let handler = &mut self.parsed.handlers[index];
        let informer = &mut self.parsed.informers[handler.informer];
        let timeline = self.parsed.views[informer.view].timeline(event.key());
        let delivery_history = self.delivery_history.entry((index, event.key())).or_default();

        // A call counts as a retry only if it repeats the event of the previous call.
        let previous = delivery_history.last_call.map(|previous| &handler.calls[previous]);
        let is_retry = retry > 0 && previous.is_some_and(|previous| previous.event == event);
        // A retry has the position of its first attempt, and does not change the handler's knowledge.
        let (last_delivered, timeline_position, exit_state) = if let Some(previous) = previous.filter(|_| is_retry) {
            (previous.last_delivered.clone(), previous.timeline_position, previous.exit_state)
        } else {
            let last_delivered = delivery_history.last_delivered.clone();
            let (timeline_position, exit_state) =
                delivery_history.process(timeline, event, informer.has_ordered_versions, start.at, latest);
            (last_delivered, timeline_position, exit_state)
        };
        let previous = delivery_history.last_call.replace(handler.calls.len());
        if let Some(previous) = previous {
            handler.calls[previous].next_for_name = Some(handler.calls.len());
        }
        // The content of the cache at the start of a call is a read like any other.
        informer.add_read(start, event.key(), store);
        let is_duplicate = self.running_calls.insert((index, number), handler.calls.len()).is_some();
        handler.calls.push(Call {
            start,
            event,
            retry,
            store,
            end: None,
            last_delivered,
            previous_for_name: previous,
            next_for_name: None,
            skipped_at: None,
            is_retry,
            timeline_position,
            exit_state,
        });
        if is_duplicate {
            self.add_malformed(start.at, format!("call {number} was entered twice"));
        }
    }

    fn end(&mut self, position: TracePosition, index: usize, number: u64, has_panicked: bool) {
        match self.running_calls.remove(&(index, number)) {
            Some(call) => self.parsed.handlers[index].calls[call].end = Some(CallEnd { position, has_panicked }),
            None => self.add_malformed(position.at, format!("call {number} ended without having been entered")),
        }
    }

    /// Returns the time by which a trace that ends at `end` must have converged.
    fn convergence_deadline(&self, end: Duration) -> Option<TracePosition> {
        let Bounds { slack, convergence, audit, .. } = *self.parsed.bounds;
        let last_change = self.parsed.history.changes().last().map_or(Duration::ZERO, |change| change.at);
        let last_restore = self.parsed.history.restores().last().map_or(Duration::ZERO, |restore| restore.at);
        let unchanged_since = last_change.max(last_restore);
        let quiet_since = self.quiet?.max(unchanged_since);
        let deadline = quiet_since + convergence.max(audit.unwrap_or_default());
        // A settled record before the last change does not cover that change.
        let recorded_settled = self.settled.filter(|settled| settled.at + slack >= unchanged_since);
        // The deadline is computed instead of recorded, so all entries with the same time precede the deadline.
        let deadline = TracePosition { at: deadline, index: usize::MAX };
        recorded_settled.or_else(|| Some(deadline).filter(|deadline| deadline.at <= end))
    }

    fn add_malformed(&mut self, at: Duration, description: String) {
        self.parsed.malformed.push(Malformed { at, description });
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
        let [previous, next] = pair else { continue };
        // Versions increase within an epoch only. The pair of epoch and version orders the whole history.
        if (next.epoch, next.version) < (previous.epoch, previous.version) {
            let description =
                format!("the versions of the history decrease from {} to {}", previous.version, next.version);
            malformed.push(Malformed { at: next.at, description });
        }
        if next.at < previous.at {
            malformed.push(Malformed { at: next.at, description: "the times of the history decrease".to_owned() });
        }
    }
    malformed
}
