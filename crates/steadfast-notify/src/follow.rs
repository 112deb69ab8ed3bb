//! Informer handlers that pass changes to the engine, for each source of a rule and each of the rule's streams.
//!
//! Each handler acknowledges for a single sink, so that a sink that is down does not delay other sinks. With a
//! checkpoint the handlers are durable: the next run of the program receives unsettled changes again. Without a
//! checkpoint, unsettled changes are lost at the end of the program.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use parking_lot::Mutex;
use steadfast::{
    AsyncHandler, Call, DurableEvent, DurableRegistration, Event, HandlerError, Informer, Lazy, Object, Registration,
    ResourceVersion,
};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::change::{ObjectChange, ObjectState};
use crate::config::{EventKind, MAX_CONFIG_DURATION};
use crate::engine::Engine;
use crate::event_subject::EventSubject;
use crate::lookups::LookupCaches;
use crate::parked::ParkedEvents;
use crate::recheck::Recheck;
use crate::replication::{DeliveryDecision, recheck_name, subscription_name};
use crate::rule::CompiledRule;
use crate::rule_source::{ClusterInformers, RuleSource, json_with_type, subject};
use crate::short_hash::short_hash;
use crate::supervise::Supervised;
use crate::watermark::{RuleResult, Watermark};
use crate::worker::MAX_PENDING_MESSAGES;

/// Number of pending changes that a rule without a checkpoint keeps separate. Beyond the limit, the pending changes of
/// each object are merged into one.
const MAX_SEPARATE_CHANGES: usize = 1024;

/// Number of objects with unsettled changes that all namespaces share, for each rule and sink. Like the queue of a
/// sink, the number is divided among the namespaces, so that one namespace does not block others. It is twice the queue
/// length, since changes that wait for the queue count too.
const SHARED_UNSETTLED_OBJECTS: usize = 2 * MAX_PENDING_MESSAGES;

/// Deadline of a durable handler. A message is settled with the first attempt that starts after `give_up_after`, which
/// can be as long as the longest [`ConfigDuration`].
///
/// [`ConfigDuration`]: crate::config::ConfigDuration
const SETTLE_TIMEOUT: Duration = MAX_CONFIG_DURATION.saturating_mul(2);

/// Length of the hash that replaces a longer name, in bytes. Collisions are negligible.
const HASH_BYTES: usize = 16;

/// Maximum length of a durable handler's name, in bytes.
const MAX_NAME_BYTES: usize = 63;

/// Registration of a rule's handler for one source and one sink. Dropping the value removes the handler.
pub struct RuleSubscription {
    registration: HandlerRegistration,
    /// Task for messages caused by time or lookups, if the rule depends on either.
    recheck: Option<Supervised>,
    /// Rule of the recheck task.
    rule: Option<Arc<CompiledRule>>,
    /// Watermark of the recheck task.
    watermark: Option<Arc<Watermark>>,
}

enum HandlerRegistration {
    Plain(Registration<Lazy<DynamicObject>>),
    Durable(DurableRegistration<DynamicObject>),
}

impl RuleSubscription {
    /// Starts to pass the changes of `source` to `engine`, with one handler for each of the rule's `sinks`. Handlers in
    /// `existing`, by sink, are reused. With a checkpoint, the handlers resume after the last settled change of an
    /// earlier run. Sources of the same objects share one watch.
    ///
    /// # Errors
    ///
    /// Returns the informer's error text if the informer cannot be started or rejects the handler.
    pub fn start(
        cluster_informers: &ClusterInformers,
        source: &RuleSource,
        sinks: &[&str],
        mut existing: BTreeMap<String, Self>,
        engine: &Engine,
    ) -> Result<BTreeMap<String, Self>, String> {
        let informer = source.informer(cluster_informers, None)?;
        let caches = LookupCaches::start(cluster_informers, &source.cluster, &source.lookups)?;
        let is_durable = cluster_informers.checkpoint.is_some() && source.may_be_stored();
        // An earlier release used one handler for all sinks of a rule. Each sink continues from the position of that
        // handler.
        if is_durable {
            migrate_older_state(&informer, &source.rule, sinks);
        }
        let mut subscriptions = BTreeMap::new();
        for &sink in sinks {
            let rule = engine.rule(&source.rule);
            let mut existing = existing.remove(sink);
            let watermark = existing.as_ref().and_then(|existing| existing.watermark.clone()).or_else(|| {
                // A reused handler already has a watermark, if needed.
                let rule = rule.as_ref().filter(|rule| rule.depends_on_context())?;
                let folder = cluster_informers.watermark_folder.as_deref();
                // A replica continues from the progress of the leader, not from its own file.
                let folder = folder.filter(|_| is_durable && !engine.replication().gate().is_replicated());
                Some(watermark(engine, rule, source, sink, folder))
            });
            let handler_context = HandlerContext {
                resource: source.resource_name(),
                subscription_name: subscription_name(source, sink),
                source: source.clone(),
                sink: sink.to_owned(),
                engine: engine.clone(),
                caches: caches.clone(),
                watermark: watermark.clone(),
                clock: cluster_informers.clock,
            };
            if let Some(mut existing) = existing.take() {
                // The handler looks up the rule in the engine, but the recheck task has a copy, which may be outdated.
                if existing.rule.as_ref().map(|rule| &rule.config) != rule.as_ref().map(|rule| &rule.config) {
                    existing.recheck = None;
                    if let (Some(watermark), Some(rule)) = (&watermark, &rule) {
                        watermark.set_rule(rule);
                    }
                    existing.recheck = handler_context.recheck(&informer);
                    (existing.rule, existing.watermark) = (rule, watermark);
                }
                subscriptions.insert(sink.to_owned(), existing);
                continue;
            }
            let recheck = handler_context.recheck(&informer);
            let registration = if is_durable {
                handler_context.register_durable(&informer)
            } else {
                handler_context.register_plain(&informer)
            };
            let registration = registration.map_err(|error| error.to_string())?;
            subscriptions.insert(sink.to_owned(), Self { registration, recheck, rule, watermark });
        }
        Ok(subscriptions)
    }

    /// Returns the settled progress of the subscription, by published name. One value is the version up to which all changes are
    /// settled. Another value is the instant up to which messages caused by time or lookups are settled.
    pub fn settled_progress(&self, source: &RuleSource, sink: &str) -> impl Iterator<Item = (String, u64)> + use<> {
        let name = subscription_name(source, sink);
        let settled = self.watermark.as_ref().and_then(|watermark| watermark.settled());
        let settled = settled.and_then(|until| Some((recheck_name(&name), u64::try_from(until.as_nanosecond()).ok()?)));
        let version = self.settled_version().map(|version| (name, version));
        version.into_iter().chain(settled)
    }

    /// Returns the version that the cache has reached: every change up to this version is pending or settled. `None` in
    /// the cases of [`settled_version`](Self::settled_version).
    pub fn reached_version(&self) -> Option<u64> {
        let HandlerRegistration::Durable(registration) = &self.registration else { return None };
        version_number(&registration.position()?.reached)
    }

    /// Returns the version up to which all messages are delivered or dead letters. `None` if unknown, or if the
    /// server's versions are not numeric.
    pub fn settled_version(&self) -> Option<u64> {
        let HandlerRegistration::Durable(registration) = &self.registration else { return None };
        let position = registration.position()?;
        // Everything before the first pending change is settled. Later changes may be settled out of order.
        match position.first_pending {
            Some(first) => version_number(&first)?.checked_sub(1),
            None => version_number(&position.reached),
        }
    }
}

/// Returns a numeric version as a number.
fn version_number(version: &ResourceVersion) -> Option<u64> {
    version.is_ordered().then(|| version.as_str().parse().ok()).flatten()
}

impl Drop for RuleSubscription {
    fn drop(&mut self) {
        // Also on a reload: the next subscription continues from the written record.
        if let Some(watermark) = &self.watermark {
            watermark.flush();
        }
        match &self.registration {
            HandlerRegistration::Plain(registration) => drop(registration.remove()),
            HandlerRegistration::Durable(registration) => registration.remove(),
        }
    }
}

/// Opens the watermark of a rule and sink, and restores the results of an earlier run in the engine.
fn watermark(
    engine: &Engine,
    rule: &CompiledRule,
    source: &RuleSource,
    sink: &str,
    folder: Option<&Path>,
) -> Arc<Watermark> {
    let watermark = Watermark::open(&subscription_name(source, sink), rule, folder);
    let results = watermark.results().into_iter().map(|(namespace, name, uid, result)| {
        let (cluster, resource) = (source.cluster.clone(), source.resource_name());
        let hash = match result {
            RuleResult::Sent(hash) => Some(hash),
            RuleResult::Silent => None,
            // An impossible hash differs from every result, so that the present result is sent.
            RuleResult::Pending => Some([0; 32]),
        };
        (EventSubject { cluster, resource, namespace, name, uid }, hash)
    });
    engine.restore_results(&source.rule, sink, results);
    watermark
}

/// Migrates the state of an older version, which acknowledged a change once for all sinks of a rule. Changes pending
/// for the rule become pending for each sink.
fn migrate_older_state(informer: &Informer<Lazy<DynamicObject>>, rule: &str, sinks: &[&str]) {
    let successors: Vec<String> = sinks.iter().map(|sink| durable_name(rule, sink)).collect();
    let successors: Vec<&str> = successors.iter().map(String::as_str).collect();
    informer.replace_durable(&bounded_name(rule), &successors);
}

/// Drops the state of all rules and sinks that `configured` does not list. Keeps the state of `incomplete` rules, whose
/// resources are not all resolved. A rule or sink that is added again later starts without history.
pub fn forget_unlisted(informer: &Informer<Lazy<DynamicObject>>, configured: &[(&str, &str)], incomplete: &[&str]) {
    let names: Vec<String> = configured.iter().map(|(rule, sink)| durable_name(rule, sink)).collect();
    for (name, stats) in informer.durable_handlers() {
        let is_configured = names.iter().any(|configured| **configured == *name)
            || incomplete.iter().any(|rule| may_belong_to(&name, rule));
        // A handler of this process is in use, even if the configuration does not list its rule any more.
        if !stats.is_registered && !is_configured {
            informer.drop_durable(&name);
        }
    }
}

/// Returns true if `name` may be a [durable name](durable_name) of this rule, with any sink or from an older version.
fn may_belong_to(name: &str, rule: &str) -> bool {
    let is_hash = name.len() == 2 * HASH_BYTES && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash || name == rule || name.strip_prefix(rule).is_some_and(|sink| sink.starts_with('/'))
}

/// Returns the checkpoint name of a rule and sink. Names of rules contain no slash, so the result is unique.
fn durable_name(rule: &str, sink: &str) -> String {
    bounded_name(&format!("{rule}/{sink}"))
}

fn bounded_name(name: &str) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name.to_owned();
    }
    short_hash(name, HASH_BYTES)
}

struct HandlerContext {
    source: RuleSource,
    resource: String,
    /// Name of the subscription, equal in all replicas.
    subscription_name: String,
    sink: String,
    engine: Engine,
    /// Caches for lookups, if the rule has lookups.
    caches: Option<Arc<LookupCaches>>,
    /// Watermark, if the rule depends on more than the object.
    watermark: Option<Arc<Watermark>>,
    clock: fn() -> Timestamp,
}

impl HandlerContext {
    /// Starts the task for messages caused by time or lookups, if the rule depends on either.
    fn recheck(&self, informer: &Informer<Lazy<DynamicObject>>) -> Option<Supervised> {
        let rule = self.engine.rule(&self.source.rule).filter(|rule| rule.depends_on_context())?;
        let recheck = Arc::new(Recheck {
            source: self.source.clone(),
            rule,
            sink: self.sink.clone(),
            subscription_name: self.subscription_name.clone(),
            informer: informer.clone(),
            caches: self.caches.clone(),
            watermark: self.watermark.clone()?,
            engine: self.engine.clone(),
            clock: self.clock,
        });
        let name = format!("rechecks of rule {} for sink {}", self.source.rule, self.sink);
        Some(self.engine.supervise(name, move || recheck.clone().run()))
    }

    fn register_plain(self, informer: &Informer<Lazy<DynamicObject>>) -> Result<HandlerRegistration, HandlerError> {
        let parked = Arc::new(ParkedEvents::new(MAX_SEPARATE_CHANGES));
        let parking_handler = ParkingHandler { handler_context: Arc::new(self), parked, tasks: Mutex::default() };
        informer
            .handler()
            .deliver_each(MAX_SEPARATE_CHANGES)
            .add_async_handler(parking_handler)
            .map(HandlerRegistration::Plain)
    }

    /// Passes an event without a durable record.
    async fn pass_to_engine(&self, event: &Event<Lazy<DynamicObject>>) {
        let (rule, sink) = (&self.source.rule, &self.sink);
        if self.engine.replication().gate().permit().is_none() {
            // A standby replica only records the result as sent. It keeps no change pending, because a restart without
            // a durable record loses pending changes anyway.
            if let Some(change) = self.change(event, false) {
                self.engine.record_settled(rule, sink, change).await;
            }
            return;
        }
        let (key, change) = (event.object().key().to_string(), || self.change(event, false));
        self.engine.accept_with(rule, sink, &key, self.watermark.as_ref(), change, || {}).await;
    }

    fn register_durable(self, informer: &Informer<Lazy<DynamicObject>>) -> Result<HandlerRegistration, HandlerError> {
        let (name, handler_context) = (durable_name(&self.source.rule, &self.sink), Arc::new(self));
        // Twice the number that namespaces share, so that one namespace with an unreachable receiver cannot use all
        // slots.
        let durable =
            informer.durable(&name).concurrency(2 * SHARED_UNSETTLED_OBJECTS).namespace_share(SHARED_UNSETTLED_OBJECTS);
        let durable = durable.deadline(SETTLE_TIMEOUT);
        // Another replica may have delivered the creation of an object, so the deletion must be delivered, too.
        let durable = durable.unseen_deletions(handler_context.engine.replication().gate().is_replicated());
        let version_source = informer.clone();
        let registration = durable.on_event(move |durable_event: DurableEvent<Lazy<DynamicObject>>| {
            let (handler_context, reached) = (handler_context.clone(), version_source.clone());
            async move {
                handler_context.deliver(durable_event, || reached.snapshot().version().and_then(version_number)).await
            }
        });
        registration.map(HandlerRegistration::Durable)
    }

    /// Delivers a change as the leader, or waits until a leader has settled the change. `reached` returns the cache's
    /// version.
    async fn deliver(
        &self,
        durable_event: DurableEvent<Lazy<DynamicObject>>,
        reached: impl Fn() -> Option<u64>,
    ) -> Result<(), &'static str> {
        let replication = self.engine.replication();
        let version = match &durable_event.event {
            // A deletion detected by a list happened before the version of the list.
            Event::Deleted { version, .. } => version.as_ref().map_or_else(reached, version_number),
            event => version_number(event.object().version()),
        };
        // After a failure, the result of this change may be recorded without a delivery.
        let mut is_repeated = durable_event.failures > 0;
        loop {
            let (rule, sink) = (&self.source.rule, &self.sink);
            // Waits until this replica leads or the leader has settled this version.
            let was_watched = match replication.wait_for_decision(&self.subscription_name, version).await {
                DeliveryDecision::Settled => {
                    if let Some(change) = self.change(&durable_event.event, is_repeated) {
                        self.engine.record_settled(rule, sink, change).await;
                    }
                    return Ok(());
                }
                DeliveryDecision::Deliver { was_watched } => was_watched,
            };
            let (settled_sender, settled_receiver) = oneshot::channel();
            let key = durable_event.event.object().key().to_string();
            let change = || {
                let mut change = self.change(&durable_event.event, is_repeated)?;
                if was_watched {
                    // `initial` would suppress a message that the previous leader has not delivered.
                    Arc::make_mut(&mut change).is_initial = false;
                }
                Some(change)
            };
            self.engine
                .accept_with(rule, sink, &key, self.watermark.as_ref(), change, move || {
                    // The receiver is dropped when the program ends.
                    let _ = settled_sender.send(());
                })
                .await;
            match settled_receiver.await {
                Ok(()) => return Ok(()),
                // The term ended before the delivery completed. The next leader may have delivered the message already.
                Err(_) if replication.gate().is_replicated() => is_repeated = true,
                Err(_) => return Err("the message was dropped before delivery"),
            }
        }
    }

    /// Converts an event into a change. `is_repeated` marks a repeated delivery of an unsettled change.
    fn change(&self, event: &Event<Lazy<DynamicObject>>, is_repeated: bool) -> Option<Arc<ObjectChange>> {
        match event.decoded() {
            Ok(event) => {
                let mut change = change(&self.source, &self.resource, &event, (self.clock)(), is_repeated)?;
                change.lookups = self.caches.as_ref().map(LookupCaches::snapshot);
                Some(Arc::new(change))
            }
            Err(error) => {
                let (resource, key, cluster) = (&self.resource, event.object().key(), &self.source.cluster);
                let namespace = (cluster.clone(), key.namespace().unwrap_or_default().to_owned());
                self.engine.skip_undecodable(
                    &self.source.rule,
                    namespace,
                    format!("{resource} {key} of {cluster}"),
                    error.to_string(),
                );
                None
            }
        }
    }
}

/// Handler without acknowledgements. Events of an object are parked if the evaluation is uncertain, or if the namespace
/// has used up its share of the sink's queue. Parked events do not delay events of other objects.
struct ParkingHandler {
    handler_context: Arc<HandlerContext>,
    parked: Arc<ParkedEvents<Lazy<DynamicObject>>>,
    /// One task for each object with parked events.
    tasks: Mutex<JoinSet<()>>,
}

impl AsyncHandler<Lazy<DynamicObject>> for ParkingHandler {
    async fn handle(&self, event: Event<Lazy<DynamicObject>>, _: Call) {
        let handler_context = &self.handler_context;
        if handler_context.engine.replication().gate().permit().is_none() {
            return handler_context.pass_to_engine(&event).await;
        }
        // Events of one object stay in order: a parked object collects its later events.
        let Some(event) = self.parked.park_if_waiting(event) else { return };
        let (rule, sink, watermark) =
            (&handler_context.source.rule, &handler_context.sink, handler_context.watermark.as_ref());
        let change = || handler_context.change(&event, false);
        let key = event.object().key().clone();
        let cluster_and_key = (handler_context.source.cluster.as_str(), &key);
        if handler_context.engine.try_accept_with(rule, sink, cluster_and_key, watermark, change, || {}).await.is_ok() {
            return;
        }
        self.parked.park(event);
        let (handler_context, parked) = (handler_context.clone(), self.parked.clone());
        // Remove finished tasks, so that the set does not grow without bound.
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            while let Some(event) = parked.front(&key) {
                // The event stays at the front until it is passed, so that later events of the object are parked behind
                // it.
                handler_context.pass_to_engine(&event).await;
                parked.remove_front(&key);
            }
        });
    }
}

/// Converts an event into a change. `None` for a resync, which changes nothing.
///
/// The ID depends only on data of the server. Equal events have equal IDs in all runs and replicas.
fn change(
    source: &RuleSource,
    resource: &str,
    event: &Event<DynamicObject>,
    at: Timestamp,
    is_repeated: bool,
) -> Option<ObjectChange> {
    let state = |object: &Object<DynamicObject>| Some(ObjectState::new(json_with_type(object, &source.resource)));
    let object = event.object();
    let subject = subject(source, resource, object);
    let id = format!("{}@{}", subject.identity(), object.version());
    let mut change = ObjectChange { is_repeated, ..ObjectChange::new(id, EventKind::Added, subject, at) };
    match event {
        Event::Added { object, initial } => {
            (change.new, change.is_initial) = (state(object), *initial);
        }
        Event::Updated { old, new } => {
            (change.kind, change.old, change.new) = (EventKind::Updated, state(old), state(new));
        }
        Event::Deleted { last, certainty, reason, .. } => {
            (change.kind, change.old) = (EventKind::Deleted, state(last));
            // The last version of a deleted object may equal that of its previous event. The suffix keeps the IDs
            // distinct.
            change.id.push_str("-gone");
            (change.certainty, change.reason) = (Some(certainty.to_string()), Some(reason.to_string()));
        }
        Event::Resynced { .. } => return None,
    }
    Some(change)
}
