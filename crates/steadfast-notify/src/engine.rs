//! Engine: evaluates rules for changes and delivers the resulting messages.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
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
use crate::last_results::{Comparison, Hash, LastResults, SentResults};
use crate::lookups::LookupSnapshot;
use crate::message::{ClusterNamespace, Message};
use crate::namespace_failures::NamespaceFailures;
use crate::offload::offload;
use crate::plan::Plan;
use crate::replication::Replication;
use crate::rule::{CompiledRule, RuleOutcome};
use crate::rule_source::RuleSource;
use crate::sink::MessageSink;
use crate::supervise::{Supervised, Supervisor};
use crate::watermark::{RuleResult, Watermark};
use crate::worker::{SinkStats, SinkWorker, delivery_settings};

/// Grace period at shutdown for in-flight attempts of a sink that is down.
const ATTEMPT_GRACE: Duration = Duration::from_secs(5);

/// Time for which all pending messages must be undeliverable before shutdown stops waiting. Messages for other sinks
/// may be evaluated in the meantime.
const STUCK_PERIOD: Duration = Duration::from_millis(500);

/// Interval between two checks for undeliverable messages.
const STUCK_INTERVAL: Duration = Duration::from_millis(100);

/// Opened sinks of a plan, by name.
pub type MessageSinks = BTreeMap<String, Arc<dyn MessageSink>>;

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
    stats: Mutex<EngineStats>,
    namespace_failures: Mutex<NamespaceFailures>,
}

/// Runtime state of a rule.
struct ActiveRule {
    rule: Arc<CompiledRule>,
    /// Results that the rule has sent, by sink. Retained when the configuration is reloaded.
    last_results: Arc<Mutex<BTreeMap<String, LastResults>>>,
    /// Locks by sink and object, held from the evaluation until the message is in the queue. Otherwise two evaluations
    /// of one object could overtake each other. Only for rules that depend on more than the object.
    object_locks: Arc<KeyLocks>,
}

/// Result of an evaluation.
enum EvaluationResult {
    /// A message to send. `hash` identifies the content, if remembered.
    Message { message: Arc<Message>, hash: Option<Hash> },
    /// Nothing to send. `result` is the result to record, if there is one.
    Nothing { result: Option<RuleResult> },
    /// The evaluation looked up an object of a resource in doubt.
    Uncertain(Arc<LookupSnapshot>),
}

/// An evaluation that was not possible. `on_settled` was not called.
pub(crate) struct Postponed<S> {
    reason: PostponeReason,
    on_settled: S,
}

/// Reason why an evaluation was not possible.
enum PostponeReason {
    /// The evaluation looked up an object of a resource in doubt.
    Uncertain(Arc<LookupSnapshot>),
    /// The namespace of the object has used up its share of the sink's queue.
    QueueFull,
}

impl<S: FnOnce()> Postponed<S> {
    /// Calls `on_settled` for the change. The caller evaluates the object again later.
    pub(crate) fn settle(self) {
        (self.on_settled)();
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
        streams: MessageSinks,
        seed: u64,
        report: impl Fn(EngineEvent) + Send + Sync + 'static,
    ) -> Self {
        let report: Arc<EventCallback> = Arc::new(report);
        Self::start_supervised(plan, streams, seed, Supervisor::new(report.clone()), report)
    }

    /// Starts an engine for `plan`, with the tasks of the sinks under `supervisor`.
    pub fn start_supervised(
        plan: &Plan,
        streams: MessageSinks,
        seed: u64,
        supervisor: Supervisor,
        report: Arc<EventCallback>,
    ) -> Self {
        Self::start_replicated(plan, streams, seed, supervisor, report, Replication::none())
    }

    /// Starts an engine for `plan` as one of several replicas. A standby replica sends nothing.
    pub fn start_replicated(
        plan: &Plan,
        streams: MessageSinks,
        seed: u64,
        supervisor: Supervisor,
        report: Arc<EventCallback>,
        replication: Replication,
    ) -> Self {
        let dead_letters = Arc::new(DeadLetters::new(plan.dead_letters.clone(), plan.max_dead_letters));
        let shared = Shared {
            rules: Mutex::default(),
            workers: Mutex::default(),
            dead_letters,
            report,
            supervisor,
            replication,
            seed,
            stats: Mutex::default(),
            namespace_failures: Mutex::default(),
        };
        let engine = Self { shared: Arc::new(shared) };
        engine.apply_plan(plan, streams);
        engine
    }

    /// Applies another plan. Pending messages and the record of sent results are retained. A removed sink stays until
    /// all pending messages are settled.
    pub fn apply_plan(&self, plan: &Plan, streams: MessageSinks) {
        {
            let mut workers = self.shared.workers.lock();
            for (name, stream) in streams {
                let Some(sink) = plan.sinks.get(&name) else { continue };
                if let Some(running) = workers.get(&name) {
                    // The worker stays, with its queue: a reload must not lose pending messages.
                    running.worker.reconfigure(delivery_settings(sink), stream);
                    continue;
                }
                // Each sink has an independent random sequence.
                let rng = Random::new(self.shared.seed.wrapping_add((workers.len() as u64).wrapping_mul(0x9e37)));
                let (dead_letters, report) = (self.shared.dead_letters.clone(), self.shared.report.clone());
                let worker = SinkWorker::new(&name, delivery_settings(sink), stream, rng, dead_letters, report);
                let worker = worker.with_gate(self.shared.replication.gate().clone());
                let task = worker.clone().start(&self.shared.supervisor);
                workers.insert(name, RunningSink { worker, _task: task });
            }
            // A removed sink stays while messages are pending. A later plan removes the sink.
            workers.retain(|name, running| plan.sinks.contains_key(name) || running.worker.pending() > 0);
        }
        self.shared.namespace_failures.lock().retain_rules(|rule| plan.rule(rule).is_some());
        let mut rules = self.shared.rules.lock();
        let mut previous = std::mem::take(&mut *rules);
        for rule in &plan.rules {
            let previous_rule = previous.remove(&rule.config.name);
            // The history survives a reload, so that unchanged results are not sent again.
            let (last_results, object_locks) = previous_rule
                .map(|active_rule| (active_rule.last_results.clone(), active_rule.object_locks.clone()))
                .unwrap_or_default();
            // A sink that is added again later starts without history.
            last_results.lock().retain(|sink, _| rule.config.to.contains(sink));
            rules.insert(
                rule.config.name.clone(),
                Arc::new(ActiveRule { rule: rule.clone(), last_results, object_locks }),
            );
        }
    }

    /// Evaluates a rule for a change, and queues the message for one of the rule's sinks. The caller must pass changes
    /// of one object in order. Returns when the message is in the queue. Calls `on_settled` when the message is
    /// delivered or a dead letter, or if there is nothing to send.
    pub async fn accept(
        &self,
        rule: &str,
        sink: &str,
        change: Arc<ObjectChange>,
        on_settled: impl FnOnce() + Send + 'static,
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
        self.accept_with(rule, sink, &key, None, current, on_settled).await;
    }

    /// Like [`accept`](Self::accept), but calls `change` after acquiring the object's lock. If `change` returns `None`,
    /// nothing is sent. Waits while a looked-up resource is in doubt. `key` identifies the object, and `watermark`
    /// stores settled results.
    pub(crate) async fn accept_with(
        &self,
        rule: &str,
        sink: &str,
        key: &str,
        watermark: Option<&Arc<Watermark>>,
        mut change: impl FnMut() -> Option<Arc<ObjectChange>>,
        mut on_settled: impl FnOnce() + Send + 'static,
    ) {
        while let Err(postponed) = self.evaluate(rule, sink, (key, true), watermark, &mut change, on_settled).await {
            if let PostponeReason::Uncertain(lookups) = postponed.reason {
                lookups.wait_until_certain().await;
            }
            on_settled = postponed.on_settled;
        }
    }

    /// Like [`accept_with`](Self::accept_with), but returns an error instead of waiting. `key` is the cluster
    /// and the object.
    pub(crate) async fn try_accept_with<S: FnOnce() + Send + 'static>(
        &self,
        rule: &str,
        sink: &str,
        key: (&str, &ObjectKey),
        watermark: Option<&Arc<Watermark>>,
        change: impl FnOnce() -> Option<Arc<ObjectChange>>,
        on_settled: S,
    ) -> Result<(), Postponed<S>> {
        let (cluster, object) = key;
        // The worker's handle is cloned, so that the lock of all workers is released before the check of one queue.
        let worker = self.shared.workers.lock().get(sink).map(|running| running.worker.clone());
        let namespace = (cluster.to_owned(), object.namespace().unwrap_or_default().to_owned());
        if worker.is_some_and(|worker| !worker.has_space(&namespace)) {
            return Err(Postponed { reason: PostponeReason::QueueFull, on_settled });
        }
        // Do not wait for queue space that another change has taken in the meantime: the caller has other objects to
        // evaluate.
        self.evaluate(rule, sink, (&object.to_string(), false), watermark, change, on_settled).await
    }

    /// Evaluates a rule for a change of the object `key`. With `waits_for_space`, the call waits for space in the queue
    /// of the sink.
    async fn evaluate<S: FnOnce() + Send + 'static>(
        &self,
        rule: &str,
        sink: &str,
        (key, waits_for_space): (&str, bool),
        watermark: Option<&Arc<Watermark>>,
        change: impl FnOnce() -> Option<Arc<ObjectChange>>,
        on_settled: S,
    ) -> Result<(), Postponed<S>> {
        let active_rule = self.shared.rules.lock().get(rule).cloned();
        let worker = self.shared.workers.lock().get(sink).map(|running| running.worker.clone());
        // A reload has removed the rule or the sink in the meantime.
        let (Some(active_rule), Some(worker)) = (active_rule, worker) else {
            on_settled();
            return Ok(());
        };
        // Rules with time or lookups are evaluated by handlers and by the recheck task. The lock orders both per
        // object.
        let _object_lock = if active_rule.rule.depends_on_context() {
            Some(active_rule.object_locks.acquire(sink, key).await)
        } else {
            None
        };
        let Some(change) = change() else {
            on_settled();
            return Ok(());
        };
        // The number is taken while holding the lock, so that results of one object are numbered in order of
        // evaluation.
        let watermark = watermark.map(|watermark| (watermark.clone(), watermark.next_number(), change.subject.clone()));
        let sent_results = watermark.as_ref().map_or_else(SentResults::default, |(watermark, ..)| SentResults {
            is_recorded: watermark.records_results(),
            settled_until: watermark.settled(),
        });
        match self.evaluate_rule(&active_rule, sink, &change, sent_results).await {
            EvaluationResult::Message { message, hash } => {
                self.shared.stats.lock().changes += 1;
                let is_deleted = change.kind == EventKind::Deleted;
                // Recorded after the delivery: a crash in between repeats the message and loses nothing.
                let ack = move || {
                    match (watermark, hash) {
                        (Some((watermark, number, subject)), _) if is_deleted => {
                            watermark.record(&subject, number, None);
                        }
                        (Some((watermark, number, subject)), Some(hash)) => {
                            watermark.record(&subject, number, Some(RuleResult::Sent(hash)));
                        }
                        _ => {}
                    }
                    on_settled();
                };
                if waits_for_space {
                    worker.enqueue_when_free(message, Ack::new(ack)).await;
                } else {
                    worker.enqueue(message, Ack::new(ack));
                }
            }
            EvaluationResult::Nothing { result } => {
                self.shared.stats.lock().changes += 1;
                if let Some((watermark, number, subject)) = watermark {
                    match result {
                        _ if change.kind == EventKind::Deleted => watermark.record(&subject, number, None),
                        Some(result) => watermark.record(&subject, number, Some(result)),
                        None => watermark.revert_pending(&subject),
                    }
                }
                on_settled();
            }
            EvaluationResult::Uncertain(lookups) => {
                if let Some((watermark, _, subject)) = watermark {
                    // The recorded state of the previous result is valid again, because nothing was sent.
                    watermark.revert_pending(&subject);
                }
                return Err(Postponed { reason: PostponeReason::Uncertain(lookups), on_settled });
            }
        }
        Ok(())
    }

    /// Evaluates a rule for a change that another replica has settled. Only records the result as sent.
    pub(crate) async fn record_settled(&self, rule: &str, sink: &str, change: Arc<ObjectChange>) {
        let active_rule = self.shared.rules.lock().get(rule).cloned();
        if let Some(active_rule) = active_rule {
            self.shared.stats.lock().changes += 1;
            // The leader may have sent another result since this change: at a later instant, or after a change of a
            // looked-up object. For rules with time or lookups, the state before a change determines the sent result
            // instead.
            if !active_rule.rule.depends_on_context() {
                let _ = self.evaluate_rule(&active_rule, sink, &change, SentResults::default()).await;
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
            let mut last_results = active_rule.last_results.lock();
            let last_results = last_results.entry(sink.to_owned()).or_default();
            sent.into_iter().for_each(|(subject, hash)| last_results.restore(subject, hash));
        }
    }

    /// Forgets the results of a source that were sent to `sink`. Other replicas have sent other results since.
    pub(crate) fn clear_results(&self, source: &RuleSource, sink: &str) {
        let active_rule = self.shared.rules.lock().get(&source.rule).cloned();
        // Dropped after both locks are released: dropping many results takes time.
        let results_to_drop = active_rule.and_then(|active_rule| {
            active_rule.last_results.lock().get_mut(sink).map(|results| results.take(source.subject_filter()))
        });
        drop(results_to_drop);
    }

    /// Sets the times of a source's results for `sink` after `now` to `until`, because the clock was set back. Other
    /// sources of the rule detect the correction at another time, and may have newer results by then.
    pub(crate) fn set_back_results(&self, source: &RuleSource, sink: &str, now: Timestamp, until: Timestamp) {
        let active_rule = self.shared.rules.lock().get(&source.rule).cloned();
        if let Some(active_rule) = active_rule {
            let mut last_results = active_rule.last_results.lock();
            if let Some(last_results) = last_results.get_mut(sink) {
                last_results.set_back(source.subject_filter(), now, until);
            }
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
        sent_results: SentResults,
    ) -> EvaluationResult {
        let (evaluated_rule, sink, evaluated_change) = (active_rule.clone(), sink.to_owned(), change.clone());
        let evaluation = offload(move || {
            // Evaluated without a lock, because an expression may run for a long time.
            let outcome = evaluated_rule.rule.evaluate_change(&evaluated_change);
            // Checked before the result is recorded: a result from objects in doubt must not count as sent.
            if evaluated_change.lookups.as_ref().is_some_and(|lookups| lookups.has_read_in_doubt()) {
                return None;
            }
            let mut last_results = evaluated_rule.last_results.lock();
            let last_results = last_results.entry(sink).or_default();
            let comparison = last_results.record(&evaluated_rule.rule, &evaluated_change, &outcome, sent_results);
            Some((outcome, comparison, last_results.hash_of(&evaluated_change.subject)))
        });
        let failed = |reason| Some((RuleOutcome::Failed { expression: "when", reason }, Comparison::Unchanged, None));
        let Some((outcome, comparison, hash)) = evaluation.await.unwrap_or_else(failed) else {
            return match &change.lookups {
                Some(lookups) => EvaluationResult::Uncertain(lookups.clone()),
                None => EvaluationResult::Nothing { result: None },
            };
        };
        let mut stats = self.shared.stats.lock();
        match (outcome, comparison) {
            (RuleOutcome::Fires(data), Comparison::Changed) => {
                stats.messages += 1;
                EvaluationResult::Message {
                    message: Arc::new(Message::new(&active_rule.rule.config.name, change, data)),
                    hash,
                }
            }
            (RuleOutcome::Fires(_), Comparison::Unchanged) => {
                stats.unchanged += 1;
                EvaluationResult::Nothing { result: None }
            }
            (RuleOutcome::Failed { expression, reason }, _) => {
                // `record_failure` takes the lock again.
                drop(stats);
                let EventSubject { cluster, namespace, .. } = &change.subject;
                let (namespace, object) = ((cluster.clone(), namespace.clone()), change.subject.description());
                self.record_failure(&active_rule.rule.config.name, expression, namespace, object, reason);
                EvaluationResult::Nothing { result: None }
            }
            (RuleOutcome::Initial(_), _) => EvaluationResult::Nothing { result: hash.map(RuleResult::Sent) },
            (RuleOutcome::DoesNotHold, _) => EvaluationResult::Nothing { result: Some(RuleResult::Silent) },
            (RuleOutcome::OtherEventKind, _) => EvaluationResult::Nothing { result: None },
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
    pub(crate) fn skip_undecodable(&self, rule: &str, namespace: ClusterNamespace, object: String, reason: String) {
        self.shared.stats.lock().changes += 1;
        self.record_failure(rule, "object", namespace, object, reason);
    }

    fn record_failure(
        &self,
        rule: &str,
        expression: &'static str,
        namespace: ClusterNamespace,
        object: String,
        reason: String,
    ) {
        let is_due_for_namespace = self.shared.namespace_failures.lock().record(rule, namespace);
        let rule = rule.to_owned();
        let failures = {
            let mut stats = self.shared.stats.lock();
            let failures = stats.failed.entry(rule.clone()).or_default();
            *failures += 1;
            *failures
        };
        // Report at powers of two only: an expression that fails for one object fails for many.
        if failures.is_power_of_two() || is_due_for_namespace {
            (self.shared.report)(EngineEvent::RuleFailed { rule, expression, object, reason, failures });
        }
    }

    /// Returns a copy of the counters.
    pub fn stats(&self) -> EngineStats {
        let workers = self.shared.workers.lock();
        let sinks = workers.iter().map(|(name, running)| (name.clone(), running.worker.stats())).collect();
        EngineStats { sinks, ..self.shared.stats.lock().clone() }
    }

    /// Waits until messages are pending only for sinks that are down: all attempts of such a sink have failed for ten
    /// seconds. In-flight attempts get five more seconds. Returns the names of these sinks.
    pub async fn wait_until_undeliverable(&self) -> Vec<String> {
        let (start, mut stuck_since) = (Instant::now(), None);
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
                stuck_since = None;
            } else if stuck_since.get_or_insert_with(Instant::now).elapsed() >= STUCK_PERIOD {
                return workers.into_iter().map(|(name, _)| name).collect();
            }
            sleep(STUCK_INTERVAL).await;
        }
    }

    /// Waits until all messages are settled, at most for `time_limit`. Returns the number of unsettled messages.
    pub async fn drain(&self, time_limit: Duration) -> usize {
        let workers: Vec<Arc<SinkWorker>> =
            self.shared.workers.lock().values().map(|running| running.worker.clone()).collect();
        let all = async {
            for worker in &workers {
                worker.wait_until_empty().await;
            }
        };
        // The result of the timeout is not needed: pending messages are counted below.
        let _ = tokio::time::timeout(time_limit, all).await;
        workers.iter().map(|worker| worker.pending()).sum()
    }
}
