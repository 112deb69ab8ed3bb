//! Model of an informer, small enough to be verified by reading. Its traces satisfy the contract.
//!
//! One server has three names. Two informers watch it, one without and one with a selector. Each informer has two
//! handlers, and the second is registered late. A script of steps drives the server, the informers and the handlers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};
use steadfast_contract::{
    Bounds, Certainty, Change, Freshness, HandlerEvent, History, ObjectVersionRef, Reason, Record, Scope, StoreContent,
    Trace, WaitOutcome, WaitTarget,
};

use crate::scenario::{STEP, key, object};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Step of a script.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The server writes a name, inside or outside of the selector.
    Write { name: usize, is_web: bool },
    /// The server deletes a name.
    Delete { name: usize },
    /// The server restores the state from `back` versions earlier.
    Restore { back: u64 },
    /// An informer's stream delivers some changes.
    Deliver { informer: usize, changes: usize },
    /// An informer lists again.
    List { informer: usize },
    /// A handler is called for a pending event, and its first `panics` calls panic. With `panics: 2`, the third and
    /// last call panics too, and the event is skipped.
    Call { informer: usize, is_late: bool, panics: u32 },
    /// An informer's second handler is registered.
    Register { informer: usize },
    /// A resync delivers the handler's objects again.
    Resync { informer: usize },
    /// The cache, the freshness and the queues of an informer are read.
    Read { informer: usize },
}

/// Runs a script, and then waits until the trace has settled.
pub(crate) fn run(steps: &[Step]) -> (History, Trace, Bounds) {
    let mut model_run = ModelRun::default();
    for scope in [Scope::all(), Scope::all().labels("app=web")] {
        let name = format!("pods-{}", model_run.informers.len());
        model_run.record(Record::informer(&name, scope));
        model_run.informers.push(Informer { name, ..Informer::default() });
        model_run.register(model_run.informers.len() - 1);
    }
    for step in steps {
        model_run.run_step(step);
    }
    model_run.settle();
    // A step may delay deliveries for any time, so the checker must accept any lag.
    let lag = Duration::from_secs(3600);
    (model_run.history, model_run.trace, Bounds { slack: Duration::ZERO, lag, ..Bounds::default() })
}

/// State of an object.
#[derive(Clone, Debug, PartialEq)]
struct ObjectState {
    uid: String,
    version: u64,
    is_web: bool,
    /// Number that is unique among all states of all epochs.
    write_number: u64,
}

#[derive(Default)]
struct ModelRun {
    history: History,
    trace: Trace,
    now: Duration,
    version: u64,
    write_count: u64,
    uid_count: u64,
    call_count: u64,
    /// The server's state at every version of the current epoch.
    states: BTreeMap<u64, BTreeMap<usize, ObjectState>>,
    informers: Vec<Informer>,
}

#[derive(Default)]
struct Informer {
    name: String,
    store: BTreeMap<usize, ObjectState>,
    /// Version of the cache; `None` before the first list.
    version: Option<u64>,
    /// Epoch of that version.
    epoch: u32,
    handlers: Vec<Handler>,
}

#[derive(Default)]
struct Handler {
    name: String,
    /// Pending events by name; at most a deletion and an addition each.
    queue: BTreeMap<usize, VecDeque<HandlerEvent>>,
    /// Delivered states, by name.
    delivered: BTreeMap<usize, ObjectVersionRef>,
    /// Names of the initial list with pending additions.
    pending_initial: BTreeSet<usize>,
    has_initial_list: bool,
    has_synced: bool,
}

impl ModelRun {
    fn record(&mut self, record: Record) {
        self.now += STEP;
        self.trace.record(self.now, record);
    }

    fn server_state(&self) -> BTreeMap<usize, ObjectState> {
        self.states.last_key_value().map(|(_, state)| state.clone()).unwrap_or_default()
    }

    fn run_step(&mut self, step: &Step) {
        match *step {
            Step::Write { name, is_web } => {
                let uid = self.server_state().get(&name).map(|object_state| object_state.uid.clone());
                let uid = uid.unwrap_or_else(|| {
                    self.uid_count += 1;
                    format!("u{}", self.uid_count)
                });
                self.write_change(name, &uid, Some(is_web));
            }
            Step::Delete { name } => {
                if let Some(object_state) = self.server_state().get(&name) {
                    self.write_change(name, &object_state.uid, None);
                }
            }
            Step::Restore { back } => {
                let to = self.version.saturating_sub(back);
                self.now += STEP;
                self.history.restore(self.now, to);
                let state = self.states.range(..=to).next_back().map(|(_, state)| state.clone()).unwrap_or_default();
                self.states.retain(|version, _| *version < to);
                self.states.insert(to, state);
                self.version = to;
            }
            Step::Deliver { informer, changes } => self.deliver(informer, changes),
            Step::List { informer } => self.list(informer),
            Step::Call { informer, is_late, panics } => {
                if usize::from(is_late) < self.informers[informer].handlers.len() {
                    self.call(informer, usize::from(is_late), panics);
                }
            }
            Step::Register { informer } => {
                if self.informers[informer].handlers.len() == 1 {
                    self.register(informer);
                }
            }
            Step::Resync { informer } => self.resync(informer),
            Step::Read { informer } => self.read(informer),
        }
    }

    fn write_change(&mut self, name: usize, uid: &str, is_web: Option<bool>) {
        self.now += STEP;
        self.version += 1;
        self.write_count += 1;
        let (version, write_number, mut state) = (self.version, self.write_count, self.server_state());
        let object_state = is_web.map(|is_web| ObjectState { uid: uid.to_owned(), version, is_web, write_number });
        let mut change = Change::deleted(version, uid, Some("default"), NAMES[name]);
        change.object = object_state.as_ref().map(content);
        state.remove(&name);
        state.extend(object_state.map(|object_state| (name, object_state)));
        self.states.insert(version, state);
        self.history.push(change.in_epoch(self.history.epoch()).at(self.now));
    }

    /// Returns the part of the server's state in an informer's scope.
    fn scoped_state(informer: usize, state: &BTreeMap<usize, ObjectState>) -> BTreeMap<usize, ObjectState> {
        state
            .iter()
            .filter(|(_, object_state)| informer == 0 || object_state.is_web)
            .map(|(name, object_state)| (*name, object_state.clone()))
            .collect()
    }

    fn deliver(&mut self, index: usize, changes: usize) {
        let informer = &self.informers[index];
        let Some(store_version) = informer.version.filter(|_| informer.epoch == self.history.epoch()) else { return };
        let next: Vec<_> =
            self.states.range(store_version + 1..).take(changes).map(|(at, state)| (*at, state.clone())).collect();
        for (version, state) in next {
            self.publish(index, &Self::scoped_state(index, &state), Some(version), false);
            self.informers[index].version = Some(version);
        }
    }

    fn list(&mut self, index: usize) {
        let epoch = self.history.epoch();
        let informer = &mut self.informers[index];
        let is_first = informer.version.is_none();
        // The contract requires no announcement at the first list. The model announces a new epoch there too.
        let is_new_epoch = epoch != std::mem::replace(&mut informer.epoch, epoch);
        let (name, from) = (informer.name.clone(), informer.version.map(|version| version.to_string()));
        informer.version = Some(self.version);
        if is_new_epoch {
            self.record(Record::Epoch { informer: name.clone() });
        }
        self.publish(index, &Self::scoped_state(index, &self.server_state()), None, is_first);
        self.record(Record::Relisted { informer: name.clone(), from, to: Some(self.version.to_string()) });
        if is_first {
            self.record(Record::InformerSynced { informer: name });
            for handler in 0..self.informers[index].handlers.len() {
                self.informers[index].handlers[handler].has_initial_list = true;
                self.sync(index, handler);
            }
        }
    }

    /// Publishes a new state of the scope, from a record of the stream or a list, and notifies the handlers.
    fn publish(&mut self, index: usize, state: &BTreeMap<usize, ObjectState>, record: Option<u64>, initial: bool) {
        let informer = &mut self.informers[index];
        let old = std::mem::replace(&mut informer.store, state.clone());
        for name in 0..NAMES.len() {
            let (old, new) = (old.get(&name), state.get(&name));
            let mut events = Vec::new();
            if let Some(old) = old.filter(|old| new.is_none_or(|new| new.uid != old.uid)) {
                let reason = match (new, index) {
                    (Some(_), _) => Reason::Replaced,
                    (None, 0) => Reason::Deleted,
                    (None, _) => Reason::DeletedOrLeft,
                };
                let certainty = if record.is_some() { Certainty::Observed } else { Certainty::Inferred };
                let version = record.map(|version| version.to_string());
                events.push(HandlerEvent::Deleted { last: state_of(name, old), version, certainty, reason });
            }
            match (old.filter(|old| new.is_some_and(|new| new.uid == old.uid)), new) {
                (Some(old), Some(new)) if old != new => {
                    events.push(HandlerEvent::Updated { old: state_of(name, old), new: state_of(name, new) });
                }
                (None, Some(new)) => events.push(HandlerEvent::Added { object: state_of(name, new), initial }),
                _ => {}
            }
            for handler in &mut informer.handlers {
                for event in &events {
                    handler.push(name, event.clone());
                }
            }
        }
    }

    fn register(&mut self, index: usize) {
        let informer = &mut self.informers[index];
        let name = format!("{}-{}", informer.name, informer.handlers.len());
        let mut handler =
            Handler { name: name.clone(), has_initial_list: informer.version.is_some(), ..Handler::default() };
        for (at, object_state) in &informer.store {
            handler.push(*at, HandlerEvent::Added { object: state_of(*at, object_state), initial: true });
        }
        let handler_index = informer.handlers.len();
        informer.handlers.push(handler);
        let informer = informer.name.clone();
        self.record(Record::registered(&name, &informer));
        self.sync(index, handler_index);
    }

    fn resync(&mut self, index: usize) {
        for handler in &mut self.informers[index].handlers {
            for (name, delivered) in &handler.delivered {
                let queue = handler.queue.entry(*name).or_default();
                if queue.is_empty() {
                    queue.push_back(HandlerEvent::Resynced { object: delivered.clone() });
                }
            }
        }
    }

    /// Calls a handler for the first name with a pending event.
    fn call(&mut self, index: usize, handler: usize, panics: u32) {
        let informer = &mut self.informers[index];
        let handler_state = &mut informer.handlers[handler];
        let Some((&name, _)) = handler_state.queue.iter().find(|(_, queue)| !queue.is_empty()) else { return };
        let Some(pending_event) = handler_state.queue.get_mut(&name).and_then(VecDeque::pop_front) else { return };
        match &pending_event {
            HandlerEvent::Deleted { .. } => handler_state.delivered.remove(&name),
            other => handler_state.delivered.insert(name, other.object().clone()),
        };
        let handler_name = handler_state.name.clone();
        let store = informer.store.get(&name).map_or(StoreContent::Absent, |object_state| StoreContent::Present {
            uid: object_state.uid.clone(),
            version: object_state.version.to_string(),
        });
        for retry in 0..=panics {
            self.call_count += 1;
            let (call, event, store) = (self.call_count, pending_event.clone(), store.clone());
            self.record(Record::Entered { handler: handler_name.clone(), call, event, retry, store });
            if retry < panics || panics == 2 {
                self.record(Record::Panicked { handler: handler_name.clone(), call });
            } else {
                self.record(Record::returned(&handler_name, call));
            }
        }
        if panics == 2 {
            self.record(Record::Skipped { handler: handler_name, object: pending_event.object().clone() });
        }
        self.informers[index].handlers[handler].pending_initial.remove(&name);
        self.sync(index, handler);
    }

    /// Records the sync of a registration as soon as it has synced.
    fn sync(&mut self, index: usize, handler: usize) {
        let handler = &mut self.informers[index].handlers[handler];
        if handler.has_initial_list
            && handler.pending_initial.is_empty()
            && !std::mem::replace(&mut handler.has_synced, true)
        {
            let handler = handler.name.clone();
            self.record(Record::RegistrationSynced { handler });
        }
    }

    /// Reads the whole cache and one name, waits for the current version, and samples queues and freshness.
    fn read(&mut self, index: usize) {
        let informer = &self.informers[index];
        let (name, store) = (informer.name.clone(), informer.store.clone());
        if let Some(version_number) = informer.version {
            let version = version_number.to_string();
            let (target, store_version) = (WaitTarget::Version(version.clone()), Some(version.clone()));
            let informer = name.clone();
            self.record(Record::WaitedFor { informer, target, outcome: WaitOutcome::Ok, store_version });
            let state = Freshness::Fresh { version, age: Duration::ZERO };
            self.record(Record::Freshness { informer: name.clone(), state, tainted: Vec::new() });
        }
        let content = store.get(&0).map_or(StoreContent::Absent, |object_state| StoreContent::Present {
            uid: object_state.uid.clone(),
            version: object_state.version.to_string(),
        });
        self.record(Record::Read { informer: name.clone(), key: key(NAMES[0]), content });
        let objects = store.iter().map(|(name, object_state)| state_of(*name, object_state)).collect();
        self.record(Record::Snapshot { informer: name, objects, tainted: Vec::new() });
        for handler in 0..self.informers[index].handlers.len() {
            let handler = &self.informers[index].handlers[handler];
            let entries = handler.queue.values().map(VecDeque::len).sum();
            let (handler, stored, undeleted) = (handler.name.clone(), store.len(), handler.delivered.len());
            self.record(Record::QueueDepth { handler, entries, stored, undeleted });
        }
    }

    fn settle(&mut self) {
        self.record(Record::Quiet);
        for index in 0..self.informers.len() {
            if self.informers[index].version.is_none() || self.informers[index].epoch != self.history.epoch() {
                self.list(index);
            }
            self.deliver(index, usize::MAX);
            for handler in 0..self.informers[index].handlers.len() {
                while self.informers[index].handlers[handler].queue.values().any(|queue| !queue.is_empty()) {
                    self.call(index, handler, 0);
                }
            }
            self.read(index);
        }
        self.record(Record::Settled);
        for index in 0..self.informers.len() {
            self.read(index);
        }
    }
}

impl Handler {
    /// Queues an event, merged with pending events of the name.
    fn push(&mut self, name: usize, event: HandlerEvent) {
        if let HandlerEvent::Added { initial: true, .. } = event {
            self.pending_initial.insert(name);
        }
        let queue = self.queue.entry(name).or_default();
        let merged = match (queue.pop_back(), event) {
            (Some(HandlerEvent::Added { initial, .. }), HandlerEvent::Updated { new: object, .. }) => {
                Some(HandlerEvent::Added { object, initial })
            }
            (Some(HandlerEvent::Added { .. }), HandlerEvent::Deleted { .. }) => None,
            (Some(HandlerEvent::Updated { old, .. }), HandlerEvent::Updated { new, .. }) => {
                // A restore can revert a pending change.
                (old != new).then_some(HandlerEvent::Updated { old, new })
            }
            (None | Some(HandlerEvent::Updated { .. } | HandlerEvent::Resynced { .. }), event) => Some(event),
            (Some(pending), event) => {
                queue.push_back(pending);
                Some(event)
            }
        };
        queue.extend(merged);
        if !queue.iter().any(|pending| matches!(pending, HandlerEvent::Added { initial: true, .. })) {
            self.pending_initial.remove(&name);
        }
    }
}

fn content(object_state: &ObjectState) -> Value {
    let app = if object_state.is_web { "web" } else { "db" };
    json!({ "metadata": { "labels": { "app": app } }, "written": object_state.write_number })
}

fn state_of(name: usize, object_state: &ObjectState) -> ObjectVersionRef {
    object(NAMES[name], &object_state.uid, object_state.version).with_content(&content(object_state))
}
