//! Handlers of informers that pass changes to the engine: one for each source of a rule and each of the rule's streams.
//!
//! Each handler acknowledges for its own sink, so that a sink that is down delays nothing for the others. With a checkpoint the
//! handlers are durable: changes that are not settled when the program dies are delivered to the next run of it. Without one,
//! such changes are lost.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use steadfast::{
    AsyncHandler, Call, DurableEvent, DurableRegistration, Event, HandlerError, Informer, Lazy, Object, ObjectKey,
    Registration, ResourceVersion,
};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

use crate::change::{Change, State};
use crate::config::{EventKind, MAX_SPAN};
use crate::engine::Engine;
use crate::lookups::LookupCaches;
use crate::recheck::Recheck;
use crate::replication::{Turn, position_name, recheck_name};
use crate::rule::Compiled;
use crate::short_hash::short_hash;
use crate::source::{Lookout, Source, subject, whole};
use crate::subject::Subject;
use crate::supervise::Supervised;
use crate::watermark::{Settled, Watermark};
use crate::worker::MAX_PENDING_MESSAGES;

/// How many changes of a rule may wait for it to be asked; of what comes then, the newest state of each object does.
const WAITING: usize = 1024;

/// Number of objects of which a change is not settled, for each rule and sink. Namespaces share it, as they share the queue of a sink, so
/// that objects whose messages a sink does not accept do not keep others waiting. Twice the queue: changes that the queue has no space
/// for are counted.
const UNSETTLED_SHARE: usize = 2 * MAX_PENDING_MESSAGES;

/// Deadline of a durable handler. A message is settled at its `give_up_after`, which may be as long as a [`Span`] can be.
///
/// [`Span`]: crate::config::Span
const SETTLE_TIMEOUT: Duration = MAX_SPAN.saturating_mul(2);

/// Bytes of the hash that stands for a longer name: enough to tell any two apart.
const HASH_BYTES: usize = 16;

/// The longest name that a durable handler may have, in bytes.
const LONGEST_NAME: usize = 63;

/// Registration of a rule's handler for one source and one sink. Dropping it removes the handler.
pub struct Following {
    registered: Registered,
    /// Sends what no change of an object causes, if the rule depends on anything else.
    recheck: Option<Supervised>,
    /// The rule that this is for.
    rule: Option<Arc<Compiled>>,
    /// What is settled of that, if there is anything.
    watermark: Option<Arc<Watermark>>,
}

enum Registered {
    Passing(Registration<Lazy<DynamicObject>>),
    Durable(DurableRegistration<DynamicObject>),
}

impl Following {
    /// Starts to pass the changes of `source` to `engine`, for one of the rule's `sinks` each; for those of `known` it has
    /// started already. With a checkpoint it resumes where an earlier run ended. Sources of the same objects share one watch.
    ///
    /// # Errors
    ///
    /// Returns the informer's error text if there is no such informer or it rejects the handler.
    pub fn begin(
        lookout: &Lookout,
        source: &Source,
        sinks: &[&str],
        mut known: BTreeMap<String, Self>,
        engine: &Engine,
    ) -> Result<BTreeMap<String, Self>, String> {
        let informer = source.informer(lookout, None)?;
        let caches = LookupCaches::begin(lookout, &source.cluster, &source.lookups)?;
        let is_kept = lookout.checkpoint.is_some() && source.may_be_kept();
        if is_kept {
            take_over(&informer, &source.rule, sinks);
        }
        let mut following = BTreeMap::new();
        for &sink in sinks {
            let rule = engine.rule(&source.rule);
            let mut known = known.remove(sink);
            let watermark = known.as_ref().and_then(|known| known.watermark.clone()).or_else(|| {
                // Its handler has one already where it is needed.
                let rule = rule.as_ref().filter(|rule| rule.is_of_context())?;
                let folder = lookout.rechecks.as_deref();
                let folder = folder.filter(|_| is_kept && !engine.replication().gate().is_replicated());
                Some(watermark(engine, rule, source, sink, folder))
            });
            let hand_over = HandOver {
                resource: source.resource_name(),
                position: position_name(source, sink),
                source: source.clone(),
                sink: sink.to_owned(),
                engine: engine.clone(),
                caches: caches.clone(),
                watermark: watermark.clone(),
                clock: lookout.clock,
            };
            if let Some(mut known) = known.take() {
                // The handler asks the engine for the rule; the task has one of its own, which may have changed.
                if known.rule.as_ref().map(|rule| &rule.config) != rule.as_ref().map(|rule| &rule.config) {
                    known.recheck = None;
                    if let (Some(watermark), Some(rule)) = (&watermark, &rule) {
                        watermark.applies_to(rule);
                    }
                    known.recheck = hand_over.recheck(&informer);
                    (known.rule, known.watermark) = (rule, watermark);
                }
                following.insert(sink.to_owned(), known);
                continue;
            }
            let recheck = hand_over.recheck(&informer);
            let registered = if is_kept { hand_over.durably(&informer) } else { hand_over.in_passing(&informer) };
            let registered = registered.map_err(|error| error.to_string())?;
            following.insert(sink.to_owned(), Self { registered, recheck, rule, watermark });
        }
        Ok(following)
    }

    /// Returns the positions of the handler among replicas, by name: the version up to which everything is settled, and the instant
    /// up to which messages are that time or lookups cause.
    pub fn positions(&self, source: &Source, sink: &str) -> impl Iterator<Item = (String, u64)> + use<> {
        let position = position_name(source, sink);
        let settled = self.watermark.as_ref().and_then(|watermark| watermark.settled());
        let settled =
            settled.and_then(|until| Some((recheck_name(&position), u64::try_from(until.as_nanosecond()).ok()?)));
        let version = self.settled().map(|version| (position, version));
        version.into_iter().chain(settled)
    }

    /// Returns the version that the cache has reached: every change up to it is pending here, or settled. `None` as for
    /// [`settled`](Self::settled).
    pub fn reached(&self) -> Option<u64> {
        let Registered::Durable(registration) = &self.registered else { return None };
        number(&registration.position()?.reached)
    }

    /// Returns the version up to which everything is settled: delivered, or a dead letter. `None` if that is not known, or if the
    /// server's versions are no numbers.
    pub fn settled(&self) -> Option<u64> {
        let Registered::Durable(registration) = &self.registered else { return None };
        let position = registration.position()?;
        match position.first_pending {
            Some(first) => number(&first)?.checked_sub(1),
            None => number(&position.reached),
        }
    }
}

/// Returns a version as a number, if it is one.
fn number(version: &ResourceVersion) -> Option<u64> {
    version.is_ordered().then(|| version.as_str().parse().ok()).flatten()
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(watermark) = &self.watermark {
            watermark.flush();
        }
        match &self.registered {
            Registered::Passing(registration) => drop(registration.remove()),
            Registered::Durable(registration) => registration.remove(),
        }
    }
}

/// Opens the watermark of a rule and sink, and has the engine adopt the results that an earlier run has recorded.
fn watermark(engine: &Engine, rule: &Compiled, source: &Source, sink: &str, folder: Option<&Path>) -> Arc<Watermark> {
    let watermark = Watermark::open(&position_name(source, sink), rule, folder);
    let results = watermark.results().into_iter().map(|(namespace, name, uid, result)| {
        let (cluster, resource) = (source.cluster.clone(), source.resource_name());
        let hash = match result {
            Settled::Sent(hash) => Some(hash),
            Settled::Silent => None,
            // Differs from each result, so that the present one is sent.
            Settled::Pending => Some([0; 32]),
        };
        (Subject { cluster, resource, namespace, name, uid }, hash)
    });
    engine.adopt(&source.rule, sink, results);
    watermark
}

/// Takes over the state of an older version, which acknowledged once for all sinks of a rule: what was pending for the rule is
/// pending for each of its sinks.
fn take_over(informer: &Informer<Lazy<DynamicObject>>, rule: &str, sinks: &[&str]) {
    let successors: Vec<String> = sinks.iter().map(|sink| durable_name(rule, sink)).collect();
    let successors: Vec<&str> = successors.iter().map(String::as_str).collect();
    informer.replace_durable(&bounded(rule), &successors);
}

/// Drops the state of rules and sinks other than `known`, and of rules other than `incomplete`, of which it is not known yet what
/// they watch. If a rule or sink of the same name is configured later, it starts as a new one.
pub fn forget_others(informer: &Informer<Lazy<DynamicObject>>, known: &[(&str, &str)], incomplete: &[&str]) {
    let names: Vec<String> = known.iter().map(|(rule, sink)| durable_name(rule, sink)).collect();
    for (name, counts) in informer.durables() {
        let is_known =
            names.iter().any(|known| **known == *name) || incomplete.iter().any(|rule| may_be_of(&name, rule));
        if !counts.is_here && !is_known {
            informer.drop_durable(&name);
        }
    }
}

/// Whether `name` may be a [durable name](durable_name) of this rule, with any sink or of an older version.
fn may_be_of(name: &str, rule: &str) -> bool {
    let is_hash = name.len() == 2 * HASH_BYTES && name.bytes().all(|letter| letter.is_ascii_hexdigit());
    is_hash || name == rule || name.strip_prefix(rule).is_some_and(|sink| sink.starts_with('/'))
}

/// Returns the name under which the checkpoint has the state of a rule and sink. No rule's name contains the slash.
fn durable_name(rule: &str, sink: &str) -> String {
    bounded(&format!("{rule}/{sink}"))
}

fn bounded(name: &str) -> String {
    if name.len() <= LONGEST_NAME {
        return name.to_owned();
    }
    short_hash(name, HASH_BYTES)
}

struct HandOver {
    source: Source,
    resource: String,
    /// Name of the position among replicas.
    position: String,
    sink: String,
    engine: Engine,
    /// What the rule looks up, if it does.
    caches: Option<Arc<LookupCaches>>,
    /// What is settled, if the rule depends on anything else than the object.
    watermark: Option<Arc<Watermark>>,
    clock: fn() -> Timestamp,
}

impl HandOver {
    /// Starts the task that sends what no change of an object causes, if the rule depends on anything else.
    fn recheck(&self, informer: &Informer<Lazy<DynamicObject>>) -> Option<Supervised> {
        let rule = self.engine.rule(&self.source.rule).filter(|rule| rule.is_of_context())?;
        let recheck = Arc::new(Recheck {
            source: self.source.clone(),
            rule,
            sink: self.sink.clone(),
            position: self.position.clone(),
            informer: informer.clone(),
            caches: self.caches.clone(),
            watermark: self.watermark.clone()?,
            engine: self.engine.clone(),
            clock: self.clock,
        });
        let name = format!("rechecks of rule {} for sink {}", self.source.rule, self.sink);
        Some(self.engine.supervise(name, move || recheck.clone().run()))
    }

    fn in_passing(self, informer: &Informer<Lazy<DynamicObject>>) -> Result<Registered, HandlerError> {
        let passing = Passing { hand_over: Arc::new(self), parked: Arc::default(), tasks: Mutex::default() };
        informer.handler().deliver_each(WAITING).add_async_handler(passing).map(Registered::Passing)
    }

    /// Passes an event on without a record of what is pending.
    async fn pass(&self, event: &Event<Lazy<DynamicObject>>) {
        let (rule, sink) = (&self.source.rule, &self.sink);
        if self.engine.replication().gate().permit().is_none() {
            // Nothing is pending without a record, as after a restart.
            if let Some(change) = self.change(event, false) {
                self.engine.observe(rule, sink, change).await;
            }
            return;
        }
        let (key, change) = (event.object().key().to_string(), || self.change(event, false));
        self.engine.accept_current(rule, sink, &key, self.watermark.as_ref(), change, || {}).await;
    }

    fn durably(self, informer: &Informer<Lazy<DynamicObject>>) -> Result<Registered, HandlerError> {
        let (name, hand_over) = (durable_name(&self.source.rule, &self.sink), Arc::new(self));
        let durable = informer.durable(&name).concurrency(2 * UNSETTLED_SHARE).namespace_share(UNSETTLED_SHARE);
        let durable = durable.deadline(SETTLE_TIMEOUT);
        let durable = durable.unseen_deletions(hand_over.engine.replication().gate().is_replicated());
        let of = informer.clone();
        let registered = durable.on_event(move |told: DurableEvent<Lazy<DynamicObject>>| {
            let (hand_over, reached) = (hand_over.clone(), of.clone());
            async move { hand_over.deliver(told, || reached.snapshot().version().and_then(number)).await }
        });
        registered.map(Registered::Durable)
    }

    /// Delivers a change as the leader, or waits until a leader has settled it. `reached` returns the version of the cache.
    async fn deliver(
        &self,
        told: DurableEvent<Lazy<DynamicObject>>,
        reached: impl Fn() -> Option<u64>,
    ) -> Result<(), &'static str> {
        let replication = self.engine.replication();
        let version = match &told.event {
            // The deletion is known by a list, and happened before it.
            Event::Deleted { version, .. } => version.as_ref().map_or_else(reached, number),
            event => number(event.object().version()),
        };
        let mut again = told.failures > 0;
        loop {
            let (rule, sink) = (&self.source.rule, &self.sink);
            let is_missed = match replication.turn(&self.position, version).await {
                Turn::Settled => {
                    if let Some(change) = self.change(&told.event, again) {
                        self.engine.observe(rule, sink, change).await;
                    }
                    return Ok(());
                }
                Turn::Deliver { is_missed } => is_missed,
            };
            let (settled, settlement) = oneshot::channel();
            let key = told.event.object().key().to_string();
            let change = || {
                let mut change = self.change(&told.event, again)?;
                if is_missed {
                    Arc::make_mut(&mut change).initial = false;
                }
                Some(change)
            };
            self.engine
                .accept_current(rule, sink, &key, self.watermark.as_ref(), change, move || {
                    // Nobody waits for it where the program ends.
                    let _ = settled.send(());
                })
                .await;
            match settlement.await {
                Ok(()) => return Ok(()),
                // The term has ended before the delivery had.
                Err(_) if replication.gate().is_replicated() => again = true,
                Err(_) => return Err("what it was to send was dropped before it was delivered"),
            }
        }
    }

    /// The change that an event is, if it is one; `again` says that it was handed over before, and not settled.
    fn change(&self, event: &Event<Lazy<DynamicObject>>, again: bool) -> Option<Arc<Change>> {
        match event.decoded() {
            Ok(event) => {
                let mut change = change(&self.source, &self.resource, &event, (self.clock)(), again)?;
                change.lookups = self.caches.as_ref().map(LookupCaches::freeze);
                Some(Arc::new(change))
            }
            Err(error) => {
                let (resource, key, cluster) = (&self.resource, event.object().key(), &self.source.cluster);
                self.engine.overlook(&self.source.rule, format!("{resource} {key} of {cluster}"), error.to_string());
                None
            }
        }
    }
}

/// A handler that acknowledges nothing. The events of an object whose evaluation is not certain, or whose namespace has its share of
/// the sink's queue, are parked, so that they do not hold up those of other objects.
struct Passing {
    hand_over: Arc<HandOver>,
    parked: Arc<Parked>,
    /// One for each object with parked events.
    tasks: Mutex<JoinSet<()>>,
}

/// Events that wait until their evaluation is certain, by object.
#[derive(Default)]
struct Parked {
    events: Mutex<HashMap<ObjectKey, VecDeque<Event<Lazy<DynamicObject>>>>>,
    shrunk: Notify,
}

impl Parked {
    fn events(&self) -> MutexGuard<'_, HashMap<ObjectKey, VecDeque<Event<Lazy<DynamicObject>>>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the event behind those of its object, if there are any. Otherwise it is returned.
    fn follow_up(&self, event: Event<Lazy<DynamicObject>>) -> Option<Event<Lazy<DynamicObject>>> {
        match self.events().get_mut(event.object().key()) {
            Some(queue) => {
                queue.push_back(event);
                None
            }
            None => Some(event),
        }
    }

    /// Waits until there are fewer than [`WAITING`] objects and events.
    async fn until_space(&self) {
        loop {
            let shrunk = self.shrunk.notified();
            tokio::pin!(shrunk);
            shrunk.as_mut().enable();
            if self.events().values().map(VecDeque::len).sum::<usize>() < WAITING {
                return;
            }
            shrunk.await;
        }
    }

    /// Returns the first event of an object, which stays in place, or forgets the object if it has none.
    fn first(&self, key: &ObjectKey) -> Option<Event<Lazy<DynamicObject>>> {
        let mut events = self.events();
        let first = events.get(key).and_then(|queue| queue.front().cloned());
        if first.is_none() {
            events.remove(key);
        }
        first
    }

    fn done(&self, key: &ObjectKey) {
        if let Some(queue) = self.events().get_mut(key) {
            queue.pop_front();
        }
        self.shrunk.notify_one();
    }
}

impl AsyncHandler<Lazy<DynamicObject>> for Passing {
    async fn handle(&self, event: Event<Lazy<DynamicObject>>, _: Call) {
        let hand_over = &self.hand_over;
        if hand_over.engine.replication().gate().permit().is_none() {
            return hand_over.pass(&event).await;
        }
        self.parked.until_space().await;
        let Some(event) = self.parked.follow_up(event) else { return };
        let (rule, sink, watermark) = (&hand_over.source.rule, &hand_over.sink, hand_over.watermark.as_ref());
        let change = || hand_over.change(&event, false);
        let key = event.object().key().clone();
        let of = (hand_over.source.cluster.as_str(), &key);
        if hand_over.engine.attempt(rule, sink, of, watermark, change, || {}).await.is_ok() {
            return;
        }
        self.parked.events().insert(key.clone(), VecDeque::from([event]));
        let (hand_over, parked) = (hand_over.clone(), self.parked.clone());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            while let Some(event) = parked.first(&key) {
                hand_over.pass(&event).await;
                parked.done(&key);
            }
        });
    }
}

/// The change that an event is; none where nothing changed.
///
/// Its id is made of what the server says alone, so that it is the same for whoever is told the same.
fn change(source: &Source, resource: &str, event: &Event<DynamicObject>, at: Timestamp, again: bool) -> Option<Change> {
    let state = |object: &Object<DynamicObject>| Some(State::new(whole(object, &source.resource)));
    let object = event.object();
    let subject = subject(source, resource, object);
    let id = format!("{}@{}", subject.identity(), object.version());
    let mut change = Change { again, ..Change::new(id, EventKind::Added, subject, at) };
    match event {
        Event::Added { object, initial } => {
            (change.new, change.initial) = (state(object), *initial);
        }
        Event::Updated { old, new } => {
            (change.kind, change.old, change.new) = (EventKind::Updated, state(old), state(new));
        }
        Event::Deleted { last, certainty, reason, .. } => {
            (change.kind, change.old) = (EventKind::Deleted, state(last));
            change.id.push_str("-gone");
            (change.certainty, change.reason) = (Some(certainty.to_string()), Some(reason.to_string()));
        }
        Event::Resynced { .. } => return None,
    }
    Some(change)
}
