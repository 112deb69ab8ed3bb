//! Engine: evaluates rules for changes and delivers the resulting messages.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast::ObjectKey;
use steadfast::unstable::random::Random;
use tokio::time::{Instant, sleep};

use crate::ack::Ack;
use crate::change::ObjectChange;
use crate::config::EventKind;
use crate::dead_letter::DeadLetters;
use crate::engine_event::{EngineEvent, EventCallback};
use crate::event_subject::EventSubject;
use crate::key_locks::KeyLocks;
use crate::lookups::Lookups;
use crate::message::Message;
use crate::offload::offload;
use crate::plan::Plan;
use crate::projections::{Comparison, Hash, Projections};
use crate::replication::Replication;
use crate::rule::{CompiledRule, RuleOutcome};
use crate::sink::Stream;
use crate::supervise::{Supervised, Supervisor};
use crate::watermark::{SettledResult, Watermark};
use crate::worker::{SinkStats, SinkWorker, delivery};

/// Grace period at shutdown for in-flight attempts of a sink that is down.
const ATTEMPT_GRACE: Duration = Duration::from_secs(5);

/// Time for which all pending messages must be undeliverable before shutdown stops waiting. Messages for other sinks
/// may be evaluated in the meantime.
const STUCK_PERIOD: Duration = Duration::from_millis(500);

/// Interval between two checks for undeliverable messages.
const STUCK_INTERVAL: Duration = Duration::from_millis(100);

/// Streams of a plan's sinks, by name.
pub type Streams = BTreeMap<String, Arc<dyn Stream>>;

/// Evaluates rules for changes and delivers the resulting messages. Cloning shares the engine.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    rules: Mutex<HashMap<String, Arc<ActiveRule>>>,
    workers: Mutex<BTreeMap<String, RunningSink>>,
    dead_letters: Arc<DeadLetters>,
    report: Arc<EventCallback>,
    supervisor: Supervisor,
    replication: Replication,
    seed: u64,
    counts: Mutex<EngineStats>,
}

/// Runtime state of a rule.
struct ActiveRule {
    rule: Arc<CompiledRule>,
    /// Results that the rule has sent, by sink. Retained when the configuration is reloaded.
    sent: Arc<Mutex<BTreeMap<String, Projections>>>,
    /// Locks by sink and object, held from the evaluation until the message is in the queue. Otherwise two evaluations
    /// of one object could overtake each other. Only for rules that depend on more than the object.
    object_locks: Arc<KeyLocks>,
}

/// Result of an evaluation.
enum EvaluationResult {
    /// A message to send. `hash` identifies the content, if remembered.
    Message { message: Arc<Message>, hash: Option<Hash> },
    /// Nothing to send. `settled` is the result to record, if there is one.
    Nothing { settled: Option<SettledResult> },
    /// The evaluation looked up an object of a resource in doubt.
    Uncertain(Arc<Lookups>),
}

/// An evaluation that was not possible. `settled` was not called.
pub(crate) struct Postponed<S> {
    reason: PostponeReason,
    settled: S,
}

/// Reason why an evaluation was not possible.
enum PostponeReason {
    /// The evaluation looked up an object of a resource in doubt.
    Uncertain(Arc<Lookups>),
    /// The namespace of the object has used up its share of the sink's queue.
    QueueFull,
}

impl<S: FnOnce()> Postponed<S> {
    /// Calls `settled` for the change. The caller evaluates the object again later.
    pub(crate) fn settle(self) {
        (self.settled)();
    }
}

/// A sink worker and its task.
struct RunningSink {
    worker: Arc<SinkWorker>,
    _task: Supervised,
}

/// Counters of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Number of accepted changes, once for each rule and sink.
    pub changes: u64,
    /// Number of changes with a resulting message.
    pub messages: u64,
    /// Number of changes with an unchanged result, which was not sent again.
    pub unchanged: u64,
    /// Number of failed evaluations, by rule.
    pub failed: BTreeMap<String, u64>,
    /// Delivery counters, by sink.
    pub sinks: BTreeMap<String, SinkStats>,
}

impl Engine {
    /// Starts an engine for `plan` on the current runtime. `seed` initialises the random numbers.
    pub fn start(
        plan: &Plan,
        streams: Streams,
        seed: u64,
        report: impl Fn(EngineEvent) + Send + Sync + 'static,
    ) -> Self {
        let report: Arc<EventCallback> = Arc::new(report);
        Self::start_supervised(plan, streams, seed, Supervisor::new(report.clone()), report)
    }

    /// Starts an engine for `plan`, with the tasks of the sinks under `supervisor`.
    pub fn start_supervised(
        plan: &Plan,
        streams: Streams,
        seed: u64,
        supervisor: Supervisor,
        report: Arc<EventCallback>,
    ) -> Self {
        Self::start_replicated(plan, streams, seed, supervisor, report, Replication::none())
    }

    /// Starts an engine for `plan` as one of several replicas. A standby replica sends nothing.
    pub fn start_replicated(
        plan: &Plan,
        streams: Streams,
        seed: u64,
        supervisor: Supervisor,
        report: Arc<EventCallback>,
        replication: Replication,
    ) -> Self {
        let dead_letters = Arc::new(DeadLetters::at(plan.dead_letters.clone(), plan.max_dead_letters));
        let shared = Shared {
            rules: Mutex::default(),
            workers: Mutex::default(),
            dead_letters,
            report,
            supervisor,
            replication,
            seed,
            counts: Mutex::default(),
        };
        let engine = Self { shared: Arc::new(shared) };
        engine.apply_plan(plan, streams);
        engine
    }

    /// Applies another plan. Pending messages and the record of sent results are retained. A removed sink stays until
    /// all pending messages are settled.
    pub fn apply_plan(&self, plan: &Plan, streams: Streams) {
        {
            let mut workers = self.shared.workers.lock();
            for (name, stream) in streams {
                let Some(sink) = plan.sinks.get(&name) else { continue };
                if let Some(running) = workers.get(&name) {
                    // The worker stays, with its queue: a reload must not lose pending messages.
                    running.worker.reconfigure(delivery(sink), stream);
                    continue;
                }
                // Each sink has an independent random sequence.
                let rng = Random::new(self.shared.seed.wrapping_add((workers.len() as u64).wrapping_mul(0x9e37)));
                let (dead_letters, report) = (self.shared.dead_letters.clone(), self.shared.report.clone());
                let worker = SinkWorker::new(&name, delivery(sink), stream, rng, dead_letters, report);
                let worker = worker.with_gate(self.shared.replication.gate().clone());
                let task = worker.clone().start(&self.shared.supervisor);
                workers.insert(name, RunningSink { worker, _task: task });
            }
            // A removed sink stays until its queue is empty.
            workers.retain(|name, running| plan.sinks.contains_key(name) || running.worker.pending() > 0);
        }
        let mut rules = self.shared.rules.lock();
        let mut previous = std::mem::take(&mut *rules);
        for rule in &plan.rules {
            let known = previous.remove(&rule.config.name);
            // The history survives a reload, so that unchanged results are not sent again.
            let (sent, object_locks) = known
                .map(|active_rule| (active_rule.sent.clone(), active_rule.object_locks.clone()))
                .unwrap_or_default();
            // A sink that is added again later starts without history.
            sent.lock().retain(|sink, _| rule.config.to.contains(sink));
            rules.insert(rule.config.name.clone(), Arc::new(ActiveRule { rule: rule.clone(), sent, object_locks }));
        }
    }

    /// Evaluates a rule for a change, and queues the message for one of the rule's sinks. The caller must pass changes
    /// of one object in order. Returns when the message is in the queue. Calls `settled` when the message is delivered
    /// or a dead letter, or if there is nothing to send.
    pub async fn accept(
        &self,
        rule: &str,
        sink: &str,
        change: Arc<ObjectChange>,
        settled: impl FnOnce() + Send + 'static,
    ) {
        let current = || {
            let mut change = change.clone();
            if let Some(lookups) = change.lookups.as_ref().map(|lookups| lookups.current_snapshot()) {
                Arc::make_mut(&mut change).lookups = Some(lookups);
            }
            Some(change)
        };
        let EventSubject { namespace, name, .. } = &change.subject;
        let key = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
        self.accept_current(rule, sink, &key, None, current, settled).await;
    }

    /// Like [`accept`](Self::accept), but calls `change` after acquiring the object's lock. If `change` returns `None`,
    /// nothing is sent. Waits while a looked-up resource is in doubt. `key` identifies the object, and `record` stores
    /// settled results.
    pub(crate) async fn accept_current(
        &self,
        rule: &str,
        sink: &str,
        key: &str,
        record: Option<&Arc<Watermark>>,
        mut change: impl FnMut() -> Option<Arc<ObjectChange>>,
        mut settled: impl FnOnce() + Send + 'static,
    ) {
        while let Err(postponed) = self.evaluate(rule, sink, (key, true), record, &mut change, settled).await {
            if let PostponeReason::Uncertain(lookups) = postponed.reason {
                lookups.wait_until_certain().await;
            }
            settled = postponed.settled;
        }
    }

    /// Like [`accept_current`](Self::accept_current), but returns an error instead of waiting. `key` is the cluster
    /// and the object.
    pub(crate) async fn attempt<S: FnOnce() + Send + 'static>(
        &self,
        rule: &str,
        sink: &str,
        key: (&str, &ObjectKey),
        record: Option<&Arc<Watermark>>,
        change: impl FnOnce() -> Option<Arc<ObjectChange>>,
        settled: S,
    ) -> Result<(), Postponed<S>> {
        let (cluster, object) = key;
        // The worker's handle is cloned, so that the lock of all workers is released before the check of one queue.
        let worker = self.shared.workers.lock().get(sink).map(|running| running.worker.clone());
        let namespace = (cluster.to_owned(), object.namespace().unwrap_or_default().to_owned());
        if worker.is_some_and(|worker| !worker.has_space(&namespace)) {
            return Err(Postponed { reason: PostponeReason::QueueFull, settled });
        }
        // Do not wait for queue space that another change has taken in the meantime: the caller has other objects to
        // evaluate.
        self.evaluate(rule, sink, (&object.to_string(), false), record, change, settled).await
    }

    /// Evaluates a rule for a change of the object `key`. With `waits`, waits for space in the queue of the sink.
    async fn evaluate<S: FnOnce() + Send + 'static>(
        &self,
        rule: &str,
        sink: &str,
        (key, waits): (&str, bool),
        record: Option<&Arc<Watermark>>,
        change: impl FnOnce() -> Option<Arc<ObjectChange>>,
        settled: S,
    ) -> Result<(), Postponed<S>> {
        let active_rule = self.shared.rules.lock().get(rule).cloned();
        let worker = self.shared.workers.lock().get(sink).map(|running| running.worker.clone());
        // A reload has removed the rule or the sink in the meantime.
        let (Some(active_rule), Some(worker)) = (active_rule, worker) else {
            settled();
            return Ok(());
        };
        // Rules with time or lookups are evaluated by handlers and by the recheck task. The lock orders both per
        // object.
        let _object_lock = if active_rule.rule.depends_on_context() {
            Some(active_rule.object_locks.take(sink, key).await)
        } else {
            None
        };
        let Some(change) = change() else {
            settled();
            return Ok(());
        };
        // The number is taken while holding the lock, so that results of one object are numbered in order of
        // evaluation.
        let record = record.map(|record| (record.clone(), record.next_number(), change.subject.clone()));
        let is_recorded = record.as_ref().is_some_and(|(record, ..)| record.has_results());
        match self.evaluate_rule(&active_rule, sink, &change, is_recorded).await {
            EvaluationResult::Message { message, hash } => {
                self.shared.counts.lock().changes += 1;
                let is_deleted = change.kind == EventKind::Deleted;
                // Recorded after the delivery: a crash in between repeats the message and loses nothing.
                let ack = move || {
                    match (record, hash) {
                        (Some((record, number, subject)), _) if is_deleted => record.record(&subject, number, None),
                        (Some((record, number, subject)), Some(hash)) => {
                            record.record(&subject, number, Some(SettledResult::Sent(hash)));
                        }
                        _ => {}
                    }
                    settled();
                };
                if waits {
                    worker.enqueue_when_free(message, Ack::new(ack)).await;
                } else {
                    worker.enqueue(message, Ack::new(ack));
                }
            }
            EvaluationResult::Nothing { settled: result } => {
                self.shared.counts.lock().changes += 1;
                if let Some((record, number, subject)) = record {
                    match result {
                        _ if change.kind == EventKind::Deleted => record.record(&subject, number, None),
                        Some(result) => record.record(&subject, number, Some(result)),
                        None => record.nothing_sent(&subject),
                    }
                }
                settled();
            }
            EvaluationResult::Uncertain(lookups) => {
                if let Some((record, _, subject)) = record {
                    // The recorded state of the previous result is valid again, because nothing was sent.
                    record.nothing_sent(&subject);
                }
                return Err(Postponed { reason: PostponeReason::Uncertain(lookups), settled });
            }
        }
        Ok(())
    }

    /// Evaluates a rule for a change that another replica has settled. Only records the result as sent.
    pub(crate) async fn record_settled(&self, rule: &str, sink: &str, change: Arc<ObjectChange>) {
        let active_rule = self.shared.rules.lock().get(rule).cloned();
        if let Some(active_rule) = active_rule {
            self.shared.counts.lock().changes += 1;
            // The leader may have sent another result since this change: at a later instant, or after a change of a
            // looked-up object. For rules with time or lookups, the state before a change determines the sent result
            // instead.
            if !active_rule.rule.depends_on_context() {
                let _ = self.evaluate_rule(&active_rule, sink, &change, false).await;
            }
        }
    }

    /// Restores the last sent results of an earlier run. `None` if the rule did not fire.
    pub(crate) fn restore_results(
        &self,
        rule: &str,
        sink: &str,
        sent: impl IntoIterator<Item = (EventSubject, Option<Hash>)>,
    ) {
        let active_rule = self.shared.rules.lock().get(rule).cloned();
        if let Some(active_rule) = active_rule {
            let mut known = active_rule.sent.lock();
            let known = known.entry(sink.to_owned()).or_default();
            sent.into_iter().for_each(|(subject, hash)| known.restore(subject, hash));
        }
    }

    /// Forgets the sent results of a rule for `sink`. Other replicas have sent other results since.
    pub(crate) fn clear_results(&self, rule: &str, sink: &str) {
        let active_rule = self.shared.rules.lock().get(rule).cloned();
        // The map is dropped after both locks are released: dropping many projections takes time.
        if let Some(known) =
            active_rule.and_then(|active_rule| active_rule.sent.lock().get_mut(sink).map(std::mem::take))
        {
            drop(known);
        }
    }

    /// Returns the replication state shared with other replicas.
    pub fn replication(&self) -> &Replication {
        &self.shared.replication
    }

    /// Evaluates the rule, and compares the result with the previous result sent to `sink`.
    async fn evaluate_rule(
        &self,
        active_rule: &Arc<ActiveRule>,
        sink: &str,
        change: &Arc<ObjectChange>,
        is_recorded: bool,
    ) -> EvaluationResult {
        let (evaluated_rule, sink, evaluated_change) = (active_rule.clone(), sink.to_owned(), change.clone());
        let evaluation = offload(move || {
            // Evaluated without a lock, because an expression may run for a long time.
            let outcome = evaluated_rule.rule.evaluate_change(&evaluated_change);
            // Checked before the result is recorded: a result from objects in doubt must not count as sent.
            if evaluated_change.lookups.as_ref().is_some_and(|lookups| lookups.has_read_in_doubt()) {
                return None;
            }
            let mut sent = evaluated_rule.sent.lock();
            let sent = sent.entry(sink).or_default();
            let comparison = sent.record(&evaluated_rule.rule, &evaluated_change, &outcome, is_recorded);
            Some((outcome, comparison, sent.hash_of(&evaluated_change.subject)))
        });
        let failed = |reason| Some((RuleOutcome::Failed { expression: "when", reason }, Comparison::Unchanged, None));
        let Some((outcome, comparison, hash)) = evaluation.await.unwrap_or_else(failed) else {
            return match &change.lookups {
                Some(lookups) => EvaluationResult::Uncertain(lookups.clone()),
                None => EvaluationResult::Nothing { settled: None },
            };
        };
        let mut counts = self.shared.counts.lock();
        match (outcome, comparison) {
            (RuleOutcome::Fires(data), Comparison::Changed) => {
                counts.messages += 1;
                EvaluationResult::Message {
                    message: Arc::new(Message::new(&active_rule.rule.config.name, change, data)),
                    hash,
                }
            }
            (RuleOutcome::Fires(_), Comparison::Unchanged) => {
                counts.unchanged += 1;
                EvaluationResult::Nothing { settled: None }
            }
            (RuleOutcome::Failed { expression, reason }, _) => {
                // `failed` takes the lock again.
                drop(counts);
                self.failed(&active_rule.rule.config.name, expression, change.subject.reported(), reason);
                EvaluationResult::Nothing { settled: None }
            }
            (RuleOutcome::Initial(_), _) => EvaluationResult::Nothing { settled: hash.map(SettledResult::Sent) },
            (RuleOutcome::DoesNotHold, _) => EvaluationResult::Nothing { settled: Some(SettledResult::Silent) },
            (RuleOutcome::OtherKind, _) => EvaluationResult::Nothing { settled: None },
        }
    }

    /// Returns a rule.
    pub(crate) fn rule(&self, name: &str) -> Option<Arc<CompiledRule>> {
        self.shared.rules.lock().get(name).map(|active_rule| active_rule.rule.clone())
    }

    /// Starts a supervised task that is restarted whenever the task ends.
    pub(crate) fn supervise<F: Future<Output = String> + Send + 'static>(
        &self,
        name: String,
        run: impl Fn() -> F + Send + Sync + 'static,
    ) -> Supervised {
        self.shared.supervisor.spawn(name, run)
    }

    /// Counts and reports an object for which the rule could not be evaluated.
    pub(crate) fn skip_undecodable(&self, rule: &str, object: String, reason: String) {
        self.shared.counts.lock().changes += 1;
        self.failed(rule, "object", object, reason);
    }

    fn failed(&self, rule: &str, expression: &'static str, object: String, reason: String) {
        let rule = rule.to_owned();
        let failures = {
            let mut counts = self.shared.counts.lock();
            let failures = counts.failed.entry(rule.clone()).or_default();
            *failures += 1;
            *failures
        };
        // Report at powers of two only: an expression that fails for one object fails for many.
        if failures.is_power_of_two() {
            (self.shared.report)(EngineEvent::RuleFailed { rule, expression, object, reason, failures });
        }
    }

    /// Returns a copy of the counters.
    pub fn stats(&self) -> EngineStats {
        let workers = self.shared.workers.lock();
        let sinks = workers.iter().map(|(name, running)| (name.clone(), running.worker.stats())).collect();
        EngineStats { sinks, ..self.shared.counts.lock().clone() }
    }

    /// Waits until messages are pending only for sinks that are down: all attempts of such a sink have failed for ten
    /// seconds. In-flight attempts get five more seconds. Returns the names of these sinks.
    pub async fn wait_until_undeliverable(&self) -> Vec<String> {
        let (start, mut since) = (Instant::now(), None);
        loop {
            // In the first seconds of this wait, an attempt in flight may still succeed.
            let waits_for_attempts = start.elapsed() < ATTEMPT_GRACE;
            let workers: Vec<_> = self
                .shared
                .workers
                .lock()
                .iter()
                .filter(|(_, running)| running.worker.pending() > 0)
                .map(|(name, running)| (name.clone(), running.worker.clone()))
                .collect();
            let is_stuck = !workers.is_empty() && workers.iter().all(|(_, worker)| worker.is_down(waits_for_attempts));
            if !is_stuck {
                // Any sink that works again restarts the period.
                since = None;
            } else if since.get_or_insert_with(Instant::now).elapsed() >= STUCK_PERIOD {
                return workers.into_iter().map(|(name, _)| name).collect();
            }
            sleep(STUCK_INTERVAL).await;
        }
    }

    /// Waits until all messages are settled, at most for `deadline`. Returns the number of unsettled messages.
    pub async fn drain(&self, deadline: Duration) -> usize {
        let workers: Vec<Arc<SinkWorker>> =
            self.shared.workers.lock().values().map(|running| running.worker.clone()).collect();
        let all = async {
            for worker in &workers {
                worker.wait_until_empty().await;
            }
        };
        // The result of the timeout is not needed: pending messages are counted below.
        let _ = tokio::time::timeout(deadline, all).await;
        workers.iter().map(|worker| worker.pending()).sum()
    }
}
