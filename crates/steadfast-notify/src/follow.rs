//! Handlers of informers that pass changes to the engine: one for each source of a rule and each of the rule's streams.
//!
//! Each handler acknowledges for its own sink, so that a sink that is down delays nothing for the others. With a checkpoint the
//! handlers are durable: changes that are not settled when the program dies are delivered to the next run of it. Without one,
//! such changes are lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use steadfast::{
    AsyncHandler, Call, DurableRegistration, Event, HandlerError, Informer, Lazy, Object, Registration,
    ResourceVersion, Told,
};
use tokio::sync::oneshot;

use crate::change::{Change, State};
use crate::config::{EventKind, MAX_SPAN};
use crate::engine::Engine;
use crate::lookups::LookupCaches;
use crate::recheck::Recheck;
use crate::replication::{Turn, position_name};
use crate::rule::Compiled;
use crate::short_hash::short_hash;
use crate::source::{Lookout, Source, subject, whole};
use crate::supervise::Supervised;

/// How many changes of a rule may wait for it to be asked; of what comes then, the newest state of each object does.
const WAITING: usize = 1024;

/// Maximum number of objects of which a change is not settled, for each rule and sink. As large as the queue of a sink, so that
/// objects whose messages a sink does not accept do not keep others waiting.
const MAX_UNSETTLED: usize = 10_000;

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
            let hand_over = HandOver {
                resource: source.resource_name(),
                position: position_name(source, sink),
                source: source.clone(),
                sink: sink.to_owned(),
                engine: engine.clone(),
                caches: caches.clone(),
                clock: lookout.clock,
            };
            let rule = engine.rule(&source.rule);
            if let Some(mut known) = known.remove(sink) {
                // The handler asks the engine for the rule; the task has one of its own, which may have changed.
                if known.rule.as_ref().map(|rule| &rule.config) != rule.as_ref().map(|rule| &rule.config) {
                    known.recheck = None;
                    known.recheck = hand_over.recheck(&informer);
                    known.rule = rule;
                }
                following.insert(sink.to_owned(), known);
                continue;
            }
            let recheck = hand_over.recheck(&informer);
            let registered = if is_kept { hand_over.durably(&informer) } else { hand_over.in_passing(&informer) };
            let registered = registered.map_err(|error| error.to_string())?;
            following.insert(sink.to_owned(), Self { registered, recheck, rule });
        }
        Ok(following)
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
        match &self.registered {
            Registered::Passing(registration) => drop(registration.remove()),
            Registered::Durable(registration) => registration.remove(),
        }
    }
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
            informer: informer.clone(),
            caches: self.caches.clone(),
            engine: self.engine.clone(),
            clock: self.clock,
        });
        let name = format!("rechecks of rule {} for sink {}", self.source.rule, self.sink);
        Some(self.engine.supervise(name, move || recheck.clone().run()))
    }

    /// Waits until what the rule looks up is known.
    async fn until_certain(&self) {
        if let Some(caches) = &self.caches {
            caches.until_certain().await;
        }
    }

    fn in_passing(self, informer: &Informer<Lazy<DynamicObject>>) -> Result<Registered, HandlerError> {
        informer.handler().deliver_each(WAITING).add_async_handler(self).map(Registered::Passing)
    }

    fn durably(self, informer: &Informer<Lazy<DynamicObject>>) -> Result<Registered, HandlerError> {
        let (name, hand_over) = (durable_name(&self.source.rule, &self.sink), Arc::new(self));
        let durable = informer.durable(&name).concurrency(MAX_UNSETTLED).deadline(SETTLE_TIMEOUT);
        let durable = durable.unseen_deletions(hand_over.engine.replication().gate().is_replicated());
        let of = informer.clone();
        let registered = durable.on_event(move |told: Told<Lazy<DynamicObject>>| {
            let (hand_over, reached) = (hand_over.clone(), of.clone());
            async move { hand_over.deliver(told, || reached.snapshot().version().and_then(number)).await }
        });
        registered.map(Registered::Durable)
    }

    /// Delivers a change as the leader, or waits until a leader has settled it. `reached` returns the version of the cache.
    async fn deliver(
        &self,
        told: Told<Lazy<DynamicObject>>,
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
            self.until_certain().await;
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
            let change = || {
                let mut change = self.change(&told.event, again)?;
                if is_missed {
                    Arc::make_mut(&mut change).initial = false;
                }
                Some(change)
            };
            self.engine
                .accept_current(rule, sink, change, move || {
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
                change.lookups = self.caches.as_ref().map(|caches| caches.freeze());
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

impl AsyncHandler<Lazy<DynamicObject>> for HandOver {
    async fn handle(&self, event: Event<Lazy<DynamicObject>>, _: Call) {
        self.until_certain().await;
        if self.engine.replication().gate().permit().is_none() {
            // Nothing is pending without a record, as after a restart.
            if let Some(change) = self.change(&event, false) {
                self.engine.observe(&self.source.rule, &self.sink, change).await;
            }
            return;
        }
        self.engine.accept_current(&self.source.rule, &self.sink, || self.change(&event, false), || {}).await;
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
