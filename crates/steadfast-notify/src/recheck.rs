//! Messages without a change of the object: caused by time, or by a change of a looked-up object.
//!
//! One task runs for each source and stream of a rule that uses `now` or `get(…)`. Each pass first evaluates changed
//! objects at the instant at which the previous pass ended. No handler can have overtaken that instant. The evaluation
//! determines the next instant at which the result may change, and the looked-up objects. The pass then evaluates the
//! objects whose looked-up objects changed. Last, it replays all due instants since then, in order. `now` is exactly
//! the due instant, so that another run sends the same message with the same ID. Results that the handlers have already
//! sent are not sent again, since the result is unchanged.
//!
//! The first pass starts at the [watermark](Watermark) of the earlier run or leader. Only the leader makes passes. A
//! standby stores earlier states of looked-up resources, to detect changes since the leader's watermark. A new leader
//! first waits until its caches contain all [earlier writes](crate::earlier_writes): the cache of a standby may be some
//! seconds behind, without doubt. The task waits in the same way after a [gap](gap_detector) in its execution.

mod gap_detector;
mod snapshot_history;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use steadfast::{Informer, Lazy, Object, ObjectKey, Snapshot};
use steadfast_targets::WritePermit;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::change::{Cause, ObjectChange, ObjectState};
use crate::config::EventKind;
use crate::earlier_writes::confirm_caches;
use crate::engine::Engine;
use crate::event_subject::EventSubject;
use crate::instants::RecheckSchedule;
use crate::lookups::{Dependents, LookupCaches, LookupSnapshot};
use crate::offload::offload;
use crate::rule::CompiledRule;
use crate::rule_source::{RuleSource, doubt, json_with_type, subject};
use crate::wake::wake_on_changes;
use crate::watermark::Watermark;
use gap_detector::GapDetector;
use snapshot_history::SnapshotHistory;

/// Maximum sleep. Bounds the delay after a change of the wall clock.
const MAX_SLEEP: Duration = Duration::from_secs(10);

/// Interval between repetitions of postponed evaluations.
const STALLED_INTERVAL: Duration = Duration::from_secs(1);

/// Number of objects per evaluation batch. Other rules can run between batches.
const OBJECTS_PER_BATCH: usize = 16;

/// Maximum number of replayed instants of one object in one pass. Further instants up to the present are skipped.
const MAX_REPLAYED_INSTANTS: usize = 32;

/// Time by which a new leader starts before the watermark of the earlier leader, because clocks and caches of replicas
/// differ. Messages within this time are sent again, with the same IDs.
const REPLICA_SLACK: SignedDuration = SignedDuration::from_secs(10);

/// Maximum wait for the confirmation of the caches after a gap. Afterwards, a cache without doubt counts as current.
const MAX_CONFIRMATION_TIME: Duration = Duration::from_secs(30);

/// Parameters of the task of one source and stream.
pub(crate) struct Recheck {
    pub(crate) source: RuleSource,
    pub(crate) rule: Arc<CompiledRule>,
    pub(crate) sink: String,
    /// Name under which replicas share the settled instant of this task.
    pub(crate) subscription_name: String,
    pub(crate) informer: Informer<Lazy<DynamicObject>>,
    pub(crate) caches: Option<Arc<LookupCaches>>,
    pub(crate) watermark: Arc<Watermark>,
    pub(crate) engine: Engine,
    /// Wall clock.
    pub(crate) clock: fn() -> Timestamp,
}

/// State of the task between passes.
struct LeaderState {
    /// All instants up to this instant have been replayed.
    evaluated_until: Timestamp,
    /// Start of the last pass, on the monotonic clock.
    last_pass: Instant,
    objects: Option<Arc<Snapshot<Lazy<DynamicObject>>>>,
    /// Last certain state of each looked-up resource.
    looked_up: Option<Arc<LookupSnapshot>>,
    dependents: Dependents<ObjectKey>,
    instants: RecheckSchedule<ObjectKey>,
    /// Evaluations with lookups in doubt, or without space in the queue of the sink. Repeated in each pass.
    stalled: BTreeMap<ObjectKey, StalledRecheck>,
    /// Last instant at which no looked-up resource was in doubt.
    certain_at: Timestamp,
    /// True if results of an earlier run still have to be compared.
    compares_restored: bool,
}

/// A postponed evaluation.
struct StalledRecheck {
    cause: Cause,
    at: Timestamp,
    lookups_before: Option<Arc<LookupSnapshot>>,
}

impl Recheck {
    /// Runs until dropped.
    pub(crate) async fn run(self: Arc<Self>) -> String {
        let terms = async { match self.run_terms().await {} };
        // The watermark is written in the same task, so that both restart together.
        tokio::join!(terms, self.watermark.clone().write_changes()).0
    }

    async fn run_terms(&self) -> Infallible {
        let gate = self.engine.replication().gate().clone();
        let changed_caches = Arc::new(Notify::new());
        let looked_up = self.caches.iter().flat_map(|caches| caches.change_receivers());
        let _watching = wake_on_changes([self.informer.changed()].into_iter().chain(looked_up), &changed_caches);
        let mut history = SnapshotHistory::default();
        loop {
            let permit = match gate.permit() {
                Some(permit) => permit,
                None => self.stand_by(&mut history, &changed_caches).await,
            };
            let state = self.initial_state(&permit, &mut history);
            // The state of the term is dropped with the term. The next term starts from the settled instant.
            tokio::select! {
                biased;
                () = permit.ended() => {}
                never = self.lead(state, &changed_caches) => match never {},
            }
        }
    }

    /// Waits until this process is the leader. Stores states of looked-up resources in the meantime.
    async fn stand_by(&self, history: &mut SnapshotHistory, changed_caches: &Notify) -> WritePermit {
        let replication = self.engine.replication();
        loop {
            if let Some(caches) = &self.caches {
                let until = replication.settled_until(&self.subscription_name).map(with_slack);
                let (at, now) = ((self.clock)(), caches.snapshot());
                let snapshot = history.last().map_or_else(|| now.clone(), |before| now.with_certain_from(before));
                // A state with a resource that was never certain cannot be compared.
                if !snapshot.has_resource_in_doubt() {
                    history.push(at, snapshot, until);
                }
            }
            tokio::select! {
                biased;
                permit = replication.gate().opened() => return permit,
                () = sleep(MAX_SLEEP) => {}
                () = changed_caches.notified() => {}
            }
        }
    }

    /// Returns the initial state of the task or of a term.
    fn initial_state(&self, permit: &WritePermit, history: &mut SnapshotHistory) -> LeaderState {
        let now = (self.clock)();
        // The task may have been restarted within the term.
        if let Some(evaluated_until) = self.watermark.evaluated_until(permit.token()) {
            // The clock may have been set back since.
            self.set_back(now, now);
            return self.state_since(evaluated_until.min(now));
        }
        let replication = self.engine.replication();
        if !replication.gate().is_replicated() {
            return self.state_since(now);
        }
        // Other replicas may have sent other results since this replica's last term.
        self.engine.clear_results(&self.source, &self.sink);
        let since = replication.settled_until(&self.subscription_name).map_or(now, with_slack).min(now);
        self.watermark.start_term(permit.token(), since);
        LeaderState { looked_up: history.take(since), ..self.state_since(since) }
    }

    fn state_since(&self, evaluated_until: Timestamp) -> LeaderState {
        let compares_restored = self.watermark.take_restored() && self.rule.compares_states();
        LeaderState {
            evaluated_until,
            last_pass: Instant::now(),
            objects: None,
            looked_up: None,
            dependents: Dependents::default(),
            instants: RecheckSchedule::default(),
            stalled: BTreeMap::new(),
            certain_at: evaluated_until,
            compares_restored,
        }
    }

    async fn lead(&self, mut state: LeaderState, changed_caches: &Notify) -> Infallible {
        // An outdated object could cause a false message that no later evaluation corrects. The instants during the
        // wait are replayed afterwards, so the wait loses nothing.
        let mut gaps = GapDetector::new(self.clock);
        if self.engine.replication().gate().is_replicated() {
            self.wait_for_earlier_writes(&mut gaps, Duration::MAX).await;
        }
        loop {
            // While the cache is in doubt, objects may be outdated. Skipped instants are replayed after the doubt.
            let is_certain = doubt(&self.informer).is_none();
            // The clock is read before the caches: the caches are then at least as new as this instant.
            let now = (self.clock)();
            if gaps.has_gap(now) {
                // The changes during the gap may be unread, without doubt.
                self.wait_for_earlier_writes(&mut gaps, MAX_CONFIRMATION_TIME).await;
                continue;
            }
            // A pass over many objects may be longer than a gap, and the duration of a pass is no gap.
            if is_certain && gaps.run(Box::pin(self.run_pass(&mut state, now))).await {
                self.wait_for_earlier_writes(&mut gaps, MAX_CONFIRMATION_TIME).await;
                continue;
            }
            let next = state.instants.next_instant().filter(|_| is_certain);
            let sleep_time = next.map_or(MAX_SLEEP, |next| {
                // An instant in the past is due in the next pass.
                Duration::try_from(next.duration_since((self.clock)())).unwrap_or_default()
            });
            let max_sleep = if state.stalled.is_empty() { MAX_SLEEP } else { STALLED_INTERVAL };
            let pause = sleep_time.min(max_sleep);
            gaps.plan_pause(pause);
            tokio::select! {
                () = changed_caches.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Waits until the caches contain all writes before this call, for at most `limit`. Starts again after a gap.
    async fn wait_for_earlier_writes(&self, gaps: &mut GapDetector, limit: Duration) {
        loop {
            tokio::select! {
                // First, since a gap can also end the limit.
                biased;
                () = gaps.wait_for_gap() => {}
                // A stopped informer ends the wait. Its cache stays in doubt, which postpones the evaluations.
                _ = timeout(limit, confirm_caches(&self.informer, self.caches.as_deref())) => return,
            }
        }
    }

    /// Evaluates everything up to `now`, which was read before the caches.
    async fn run_pass(&self, state: &mut LeaderState, now: Timestamp) {
        let is_set_back = self.follow_clock_set_back(state, now);
        let looked_up = self.caches.as_ref().map(LookupCaches::snapshot);
        // Changes of a resource in doubt are unknown, so the settled instant must not pass its last certain instant.
        if !looked_up.as_ref().is_some_and(|looked_up| looked_up.has_resource_in_doubt()) {
            state.certain_at = now;
        }
        let objects = self.informer.snapshot();
        let mut changed_keys = changed_keys(state.objects.as_deref(), &objects);
        for key in &changed_keys {
            state.dependents.remove(key);
            state.instants.set(key, None);
            // The handler evaluates the current state of a changed object, so the postponed evaluation is obsolete.
            state.stalled.remove(key);
        }
        if is_set_back {
            // Unchanged objects keep their postponed evaluations.
            changed_keys.extend(objects.iter().map(|entry| entry.key().clone()));
        }
        // A change of a resource in doubt is detected when the resource is certain again.
        let looked_up = match (looked_up, &state.looked_up) {
            (Some(now), Some(before)) => Some(now.with_certain_from(before)),
            // Without an earlier state, the current state is the base of the comparison: before the first pass, no
            // handler can have sent results.
            (now, _) => {
                state.looked_up.clone_from(&now);
                now
            }
        };
        let (evaluated_until, before) = (state.evaluated_until, state.looked_up.clone());
        self.update_dependencies(state, &objects, changed_keys, evaluated_until, before.as_ref()).await;
        self.retry_stalled(state, &objects, looked_up.as_ref()).await;
        if std::mem::take(&mut state.compares_restored) {
            let recorded = self.recorded_objects(&objects);
            self.send_lookups(state, &objects, recorded, evaluated_until, looked_up.as_ref()).await;
        }
        if let (Some(before), Some(looked_up)) = (&before, &looked_up) {
            let differences = looked_up.differences(before);
            let dependents = state.dependents.affected_by(&differences);
            // Between the end of a doubt and this pass, a handler may have sent a result of a state that neither
            // snapshot shows. If results are comparable, all dependents are therefore evaluated again. Unchanged
            // results are not sent.
            let affected = if self.rule.compares_states() {
                dependents.clone()
            } else {
                state.dependents.affected_by_objects(&differences)
            };
            let certain = before.with_certain_from(looked_up);
            self.send_lookups(state, &objects, affected, now, Some(&certain)).await;
            self.update_dependencies(state, &objects, dependents, evaluated_until, Some(looked_up)).await;
        }
        self.replay_instants(state, &objects, now, looked_up.as_ref()).await;
        state.evaluated_until = state.evaluated_until.max(now);
        let first_stalled = state.stalled.values().map(|recheck| recheck.at).min();
        let certain_until = state.certain_at.min(now);
        // The settled instant stays one nanosecond before the first stalled instant, so that a restart replays that instant.
        let settled_until = first_stalled
            .map_or(certain_until, |at| at.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(at).min(certain_until));
        self.watermark.advance_to(settled_until);
        (state.objects, state.looked_up) = (Some(objects), looked_up);
    }

    /// Detects that the clock was set back, and moves the state back to an instant on the corrected clock. All objects
    /// must then be evaluated again: their next instants were computed for a time that has not come yet.
    ///
    /// Otherwise, an object that changes before `evaluated_until` would count as evaluated at that later instant, and
    /// its message would be lost.
    fn follow_clock_set_back(&self, state: &mut LeaderState, now: Timestamp) -> bool {
        let since_last_pass = std::mem::replace(&mut state.last_pass, Instant::now()).elapsed();
        if now >= state.evaluated_until {
            return false;
        }
        // The handler may have evaluated objects between the correction and this pass, so this time is replayed.
        let since_last_pass = SignedDuration::try_from(since_last_pass).unwrap_or_default();
        let until = now.checked_sub(since_last_pass).unwrap_or(now);
        state.evaluated_until = until;
        state.certain_at = state.certain_at.min(until);
        // Later instants are computed again.
        state.stalled.retain(|_, stalled| stalled.cause != Cause::Time || stalled.at <= until);
        for stalled in state.stalled.values_mut() {
            stalled.at = stalled.at.min(now);
        }
        self.set_back(now, until);
        true
    }

    /// Sets the watermark, and the times of results after `now`, back to `until`.
    fn set_back(&self, now: Timestamp, until: Timestamp) {
        self.watermark.set_back(until);
        self.engine.set_back_results(&self.source, &self.sink, now, until);
    }

    /// Sends messages caused by instants up to `now`.
    async fn replay_instants(
        &self,
        state: &mut LeaderState,
        objects: &Snapshot<Lazy<DynamicObject>>,
        now: Timestamp,
        looked_up: Option<&Arc<LookupSnapshot>>,
    ) {
        let mut replayed = HashMap::<ObjectKey, usize>::new();
        while let Some((at, key)) = state.instants.take_due(now) {
            let number = replayed.entry(key.clone()).or_default();
            *number += 1;
            // An object whose result changes constantly must not block the pass, so instants beyond a limit are
            // skipped.
            let at = replayed_instant(at, now, *number);
            if self.send(&key, Cause::Time, at, None).await {
                self.update_dependencies(state, objects, [key].into(), at, looked_up).await;
            } else {
                state.stalled.insert(key, StalledRecheck { cause: Cause::Time, at, lookups_before: None });
            }
        }
    }

    /// Repeats postponed evaluations.
    async fn retry_stalled(
        &self,
        state: &mut LeaderState,
        objects: &Snapshot<Lazy<DynamicObject>>,
        looked_up: Option<&Arc<LookupSnapshot>>,
    ) {
        let is_lookup = |(_, stalled): &(&ObjectKey, &StalledRecheck)| stalled.cause == Cause::Lookup;
        let keys = state.stalled.iter().filter(is_lookup).map(|(key, _)| key);
        let subjects: Vec<EventSubject> = keys.filter_map(|key| self.subject(objects, key)).collect();
        // Recorded before the send: after a crash in between, the result is sent again.
        self.watermark.mark_pending(&subjects).await;
        for (key, stalled) in std::mem::take(&mut state.stalled) {
            let StalledRecheck { cause, at, lookups_before } = &stalled;
            if self.send(&key, *cause, *at, lookups_before.as_ref()).await {
                let at = if *cause == Cause::Time { *at } else { state.evaluated_until };
                self.update_dependencies(state, objects, [key].into(), at, looked_up).await;
            } else {
                state.stalled.insert(key, stalled);
            }
        }
    }

    /// Sends messages caused by changes of looked-up objects, for the objects `keys`.
    async fn send_lookups(
        &self,
        state: &mut LeaderState,
        objects: &Snapshot<Lazy<DynamicObject>>,
        keys: BTreeSet<ObjectKey>,
        at: Timestamp,
        before: Option<&Arc<LookupSnapshot>>,
    ) {
        let subjects: Vec<EventSubject> = keys.iter().filter_map(|key| self.subject(objects, key)).collect();
        self.watermark.mark_pending(&subjects).await;
        for key in keys {
            if !self.send(&key, Cause::Lookup, at, before).await {
                state.stalled.insert(key, StalledRecheck { cause: Cause::Lookup, at, lookups_before: before.cloned() });
            }
        }
    }

    /// Returns the objects with a recorded result of an earlier run.
    fn recorded_objects(&self, objects: &Snapshot<Lazy<DynamicObject>>) -> BTreeSet<ObjectKey> {
        let keys = objects.iter().map(|entry| entry.key().clone());
        keys.filter(|key| self.subject(objects, key).is_some_and(|subject| self.watermark.has_result_of(&subject)))
            .collect()
    }

    /// Evaluates objects at the instant `at` to determine dependencies of the results.
    async fn update_dependencies(
        &self,
        state: &mut LeaderState,
        objects: &Snapshot<Lazy<DynamicObject>>,
        keys: BTreeSet<ObjectKey>,
        at: Timestamp,
        looked_up: Option<&Arc<LookupSnapshot>>,
    ) {
        let keys: Vec<ObjectKey> = keys.into_iter().collect();
        for keys in keys.chunks(OBJECTS_PER_BATCH) {
            let changes = keys.iter().map(|key| {
                let lookups = looked_up.map(|lookups| lookups.without_looked_up());
                (key.clone(), self.change(objects, key, Cause::Change, at, lookups, None))
            });
            let (changes, rule): (Vec<_>, _) = (changes.collect(), self.rule.clone());
            let dependencies = offload(move || {
                let evaluate = |(key, change): (ObjectKey, Option<Arc<ObjectChange>>)| {
                    let Some(change) = change else { return (key, None, Vec::new()) };
                    let (_, recheck_at) = rule.project_with_recheck(&change);
                    let reads = change.lookups.as_ref().map(|lookups| lookups.looked_up()).unwrap_or_default();
                    (key, recheck_at, reads)
                };
                changes.into_iter().map(evaluate).collect::<Vec<_>>()
            });
            // A panicking evaluation is reported by the handler.
            for (key, recheck_at, reads) in dependencies.await.unwrap_or_default() {
                // An instant that is not in the future would be replayed forever.
                state.instants.set(&key, recheck_at.filter(|recheck_at| *recheck_at > at));
                state.dependents.set(&key, reads);
            }
        }
    }

    /// Sends the result for an object. Returns `false` if the evaluation is uncertain, or if the queue of the sink has
    /// no space for the namespace.
    async fn send(&self, key: &ObjectKey, cause: Cause, at: Timestamp, before: Option<&Arc<LookupSnapshot>>) -> bool {
        // Evaluated after acquiring the object's lock: a handler may have passed a newer event than this pass has seen.
        let change = || {
            let lookups = self.caches.as_ref().map(LookupCaches::snapshot);
            self.change(&self.informer.snapshot(), key, cause, at, lookups, before.cloned())
        };
        // Registered before the attempt, so that the settled instant cannot pass an instant in flight.
        let in_flight = self.watermark.start_sending(at);
        let (rule, sink) = (&self.source.rule, &self.sink);
        let (key, settled) = ((self.source.cluster.as_str(), key), move || in_flight.settled());
        match self.engine.try_accept_with(rule, sink, key, Some(&self.watermark), change, settled).await {
            Ok(()) => true,
            Err(postponed) => {
                postponed.settle();
                false
            }
        }
    }

    fn subject(&self, objects: &Snapshot<Lazy<DynamicObject>>, key: &ObjectKey) -> Option<EventSubject> {
        let object = objects.entry(key.namespace(), key.name())?.object().map(Object::decoded)?.ok()?;
        Some(subject(&self.source, &self.source.resource_name(), &object))
    }

    /// Creates an evaluation of an object in `objects`. `None` for a missing object.
    fn change(
        &self,
        objects: &Snapshot<Lazy<DynamicObject>>,
        key: &ObjectKey,
        cause: Cause,
        at: Timestamp,
        lookups: Option<Arc<LookupSnapshot>>,
        lookups_before: Option<Arc<LookupSnapshot>>,
    ) -> Option<Arc<ObjectChange>> {
        let entry = objects.entry(key.namespace(), key.name())?;
        let object = entry.object().map(Object::decoded)?.ok()?;
        let subject = subject(&self.source, &self.source.resource_name(), &object);
        let object_state = ObjectState::new(json_with_type(&object, &self.source.resource));
        let instant = if cause == Cause::Time { format!("~{at}") } else { String::new() };
        let id = format!("{}@{}{instant}", subject.identity(), object.version());
        Some(Arc::new(ObjectChange {
            old: Some(object_state.clone()),
            new: Some(object_state),
            cause,
            lookups,
            lookups_before,
            ..ObjectChange::new(id, EventKind::Updated, subject, at)
        }))
    }
}

fn with_slack(until: Timestamp) -> Timestamp {
    until.checked_sub(REPLICA_SLACK).unwrap_or(until)
}

/// Returns the instant to replay for the `number`th due instant of an object, `at`, in a pass up to `now`. After
/// [`MAX_REPLAYED_INSTANTS`], skips to the start of the current second, and then to `now`.
fn replayed_instant(at: Timestamp, now: Timestamp, number: usize) -> Timestamp {
    match number {
        ..=MAX_REPLAYED_INSTANTS => at,
        _ if number == MAX_REPLAYED_INSTANTS + 1 => {
            Timestamp::from_second(now.as_second()).map_or(at, |second| second.max(at))
        }
        _ => now,
    }
}

/// Returns the keys of differing objects.
fn changed_keys(
    before: Option<&Snapshot<Lazy<DynamicObject>>>,
    now: &Snapshot<Lazy<DynamicObject>>,
) -> BTreeSet<ObjectKey> {
    let mut keys = BTreeSet::new();
    match before {
        None => keys.extend(now.iter().map(|entry| entry.key().clone())),
        Some(before) => before.differences(now, |old, new| {
            keys.extend([old, new].into_iter().flatten().map(|entry| entry.key().clone()));
        }),
    }
    keys
}
