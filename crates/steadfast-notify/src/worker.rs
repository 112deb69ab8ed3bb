//! Sink worker: task that sends the messages of one sink's queue.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use steadfast::unstable::random::Random;
use steadfast_targets::{TermEnded, TermGate};
use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::ack::Ack;
use crate::dead_letter::{AddError, DeadLetter, DeadLetters};
use crate::delivery_outcome::DeliveryOutcome;
use crate::engine_event::{EngineEvent, EventCallback};
use crate::message::{ClusterNamespace, Message};
use crate::sink::MessageSink;
use crate::sink_health::SinkHealth;
use crate::sink_queue::{Batch, DeliverySettings, SinkQueue};
use crate::supervise::{Supervised, Supervisor};

/// Maximum number of queued messages, [shared](SinkQueue::has_space) among namespaces. Callers wait for space in the
/// share of the namespace, and informers keep only the newest state of each object in the meantime.
pub(crate) const MAX_PENDING_MESSAGES: usize = 10_000;

/// Worker that sends the messages of one sink.
pub(crate) struct SinkWorker {
    name: String,
    state: Mutex<State>,
    /// Wakes the task after a new message or changed settings.
    changed: Notify,
    /// Wakes callers after messages were settled: delivered, or stored as dead letters.
    settled: Notify,
    started: Instant,
    dead_letters: Arc<DeadLetters>,
    report: Arc<EventCallback>,
    /// Permission to send.
    gate: TermGate,
}

/// Message, and the result of storing its dead letter.
type StoredLetter = (Arc<Message>, Result<(), AddError>);

struct State {
    queue: SinkQueue<Ack>,
    stream: Arc<dyn MessageSink>,
    rng: Random,
    health: SinkHealth,
    /// True after a dead letter could not be stored and this was reported.
    is_dead_letter_store_failing: bool,
    delivered: u64,
    dead_letters: u64,
    failed_attempts: u64,
    starts: u64,
    /// Number of changes that wait for space, by namespace.
    throttled: BTreeMap<ClusterNamespace, usize>,
    /// Total number of changes that have waited for space.
    throttled_total: u64,
}

/// Counters and state of one sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Number of delivered messages.
    pub delivered: u64,
    /// Number of messages that became dead letters.
    pub dead_letters: u64,
    /// Number of messages that are neither delivered nor dead letters yet.
    pub waiting: usize,
    /// Number of changes that wait for space in the share of the namespace, by `CLUSTER/NAMESPACE`.
    pub throttled: BTreeMap<String, usize>,
    /// Total number of changes that have waited for space, including changes that still wait.
    pub throttled_total: u64,
    /// Age of the oldest message that is neither delivered nor a dead letter yet.
    pub oldest: Option<Duration>,
    /// Number of failed attempts.
    pub failed_attempts: u64,
    /// Cause of the last failure, if the sink has not recovered since.
    pub failing: Option<String>,
    /// Remaining pause that the receiver requested (HTTP 429).
    pub paused: Option<Duration>,
    /// Number of restarts of the sink's task after a panic.
    pub restarts: u64,
}

impl SinkWorker {
    pub(crate) fn new(
        name: &str,
        delivery_settings: DeliverySettings,
        stream: Arc<dyn MessageSink>,
        rng: Random,
        dead_letters: Arc<DeadLetters>,
        report: Arc<EventCallback>,
    ) -> Self {
        let state = State {
            queue: SinkQueue::new(delivery_settings),
            stream,
            rng,
            health: SinkHealth::default(),
            is_dead_letter_store_failing: false,
            delivered: 0,
            dead_letters: 0,
            failed_attempts: 0,
            starts: 0,
            throttled: BTreeMap::new(),
            throttled_total: 0,
        };
        Self {
            name: name.to_owned(),
            state: Mutex::new(state),
            changed: Notify::new(),
            settled: Notify::new(),
            started: Instant::now(),
            dead_letters,
            report,
            gate: TermGate::always(),
        }
    }

    /// Restricts sending to the time while `gate` is open.
    pub(crate) fn with_gate(self, gate: TermGate) -> Arc<Self> {
        Arc::new(Self { gate, ..self })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the delivery settings and the stream. Pending messages are retained.
    pub(crate) fn reconfigure(&self, delivery_settings: DeliverySettings, stream: Arc<dyn MessageSink>) {
        // The new stream applies to new attempts; attempts in flight finish with the old one.
        let mut state = self.state();
        state.queue.reconfigure(delivery_settings);
        state.stream = stream;
        drop(state);
        self.changed.notify_one();
    }

    pub(crate) fn stats(&self) -> SinkStats {
        let (state, now) = (self.state(), self.started.elapsed());
        SinkStats {
            delivered: state.delivered,
            dead_letters: state.dead_letters,
            waiting: state.queue.len(),
            throttled: state
                .throttled
                .iter()
                .map(|((cluster, namespace), count)| (format!("{cluster}/{namespace}"), *count))
                .collect(),
            throttled_total: state.throttled_total,
            oldest: state.queue.oldest().map(|queued_at| now.saturating_sub(queued_at)),
            failed_attempts: state.failed_attempts,
            failing: state.health.reason().map(str::to_owned),
            paused: state.queue.paused_until(now).map(|until| until.saturating_sub(now)),
            restarts: state.starts.saturating_sub(1),
        }
    }

    /// Returns the number of unsettled messages.
    pub(crate) fn pending(&self) -> usize {
        self.state().queue.len()
    }

    /// Returns true if messages are pending and undeliverable, since all attempts have failed for some time.
    ///
    /// With `waits_for_attempts`, returns false while an attempt is in flight, because this attempt may succeed.
    pub(crate) fn is_down(&self, waits_for_attempts: bool) -> bool {
        let state = self.state();
        let may_succeed = waits_for_attempts && state.queue.is_sending();
        !state.queue.is_empty() && state.health.is_down(self.started.elapsed()) && !may_succeed
    }

    /// Returns true if the namespace may add a message now.
    pub(crate) fn has_space(&self, namespace: &ClusterNamespace) -> bool {
        self.state().queue.has_space(namespace, MAX_PENDING_MESSAGES)
    }

    /// Adds a message without waiting, even beyond the share of the namespace. The caller must check
    /// [`has_space`](Self::has_space) before.
    pub(crate) fn enqueue(&self, message: Arc<Message>, ack: Ack) {
        self.state().queue.push(self.started.elapsed(), message, ack);
        self.changed.notify_one();
    }

    /// Waits until the queue has space for the message's namespace, and adds the message.
    pub(crate) async fn enqueue_when_free(&self, message: Arc<Message>, ack: Ack) {
        let namespace = message.ordering_key().cluster_namespace();
        let mut throttled_caller = None;
        loop {
            // Registered before the check, so that a notification in between is not lost.
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            {
                let mut state = self.state();
                if state.queue.has_space(&namespace, MAX_PENDING_MESSAGES) {
                    state.queue.push(self.started.elapsed(), message, ack);
                    break;
                }
            }
            // Counted once per caller, however often the caller is woken.
            throttled_caller.get_or_insert_with(|| ThrottledCaller::new(self, &namespace));
            settled.await;
        }
        drop(throttled_caller);
        self.changed.notify_one();
    }

    /// Waits until all messages are settled.
    pub(crate) async fn wait_until_empty(&self) {
        loop {
            // Registered before the check, so that a notification in between is not lost.
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if self.state().queue.is_empty() {
                return;
            }
            settled.await;
        }
    }

    /// Runs the worker, and restarts the worker after a panic. Dropping the result stops the worker.
    pub(crate) fn start(self: Arc<Self>, supervisor: &Supervisor) -> Supervised {
        supervisor.spawn(format!("sink {}", self.name), move || {
            {
                let state = &mut *self.state();
                state.starts = state.starts.saturating_add(1);
                // Attempts of a panicked run were aborted without a result.
                state.queue.requeue_in_flight(self.started.elapsed());
            }
            self.clone().run()
        })
    }

    async fn run(self: Arc<Self>) -> String {
        let mut attempts = JoinSet::new();
        let mut numbers: HashMap<Id, u64> = HashMap::new();
        let mut term = None;
        loop {
            // The next term can start before this task sees the end of the last one. The attempts of the last term have
            // ended without a result, so their messages would stay in flight.
            let permit = self.gate.permit().filter(|permit| *term.get_or_insert(permit.token()) == permit.token());
            // Without a permit this process is not the leader: in-flight attempts are aborted.
            let Some(permit) = permit else {
                attempts.shutdown().await;
                numbers.clear();
                self.drop_until_leader().await;
                term = None;
                continue;
            };
            let (batches, stream, next_due) = {
                let (now, state) = (self.started.elapsed(), &mut *self.state());
                // `take` and `next_due` are called under one lock, so that the timer matches the taken batches.
                let batches = state.queue.take(now);
                let next_due = [state.queue.next_due(now), state.health.next_recovery()].into_iter().flatten().min();
                (batches, state.stream.clone(), next_due)
            };
            for Batch { number, messages } in batches {
                let stream = stream.clone();
                let permit = permit.clone();
                // The permit ends the delivery with the term, even in the middle of a request.
                let attempt = attempts.spawn(async move { permit.run(stream.deliver(&messages)).await });
                // Batch numbers are stored by task ID, because a panicked task returns no number.
                numbers.insert(attempt.id(), number);
            }
            let next_message = async {
                match next_due.and_then(|due| self.started.checked_add(due)) {
                    Some(instant) => sleep_until(instant).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(ended) = attempts.join_next_with_id() => {
                    let (id, outcome) = match ended {
                        Ok((id, Ok(outcome))) => (id, outcome),
                        // The term has ended, so the next iteration finds no permit, or that of another term.
                        Ok((_, Err(TermEnded))) => continue,
                        Err(error) => {
                            (error.id(), DeliveryOutcome::Retry { retry_after: None, reason: "the attempt panicked".to_owned() })
                        }
                    };
                    if let Some(number) = numbers.remove(&id) {
                        tokio::select! {
                            biased;
                            () = self.handle_outcome(number, &outcome) => {}
                            // A disk that does not respond must not delay the end of the term.
                            () = permit.ended() => {}
                        }
                    }
                }
                () = self.changed.notified() => {}
                () = permit.ended() => {}
                () = next_message => self.report_recovery(),
            }
        }
    }

    /// Waits until this process is the leader. Drops messages without acknowledgement: the informer handlers keep the
    /// changes pending until the leader has settled them.
    async fn drop_until_leader(&self) {
        loop {
            // Acknowledgements are dropped, not called: the changes stay pending for the next leader.
            drop(self.state().queue.clear());
            self.settled.notify_waiters();
            tokio::select! {
                biased;
                _ = self.gate.opened() => return,
                () = self.changed.notified() => {}
            }
        }
    }

    async fn handle_outcome(&self, number: u64, outcome: &DeliveryOutcome) {
        let letters = self.store_dead_letters(number, outcome).await;
        let now = self.started.elapsed();
        let mut events = Vec::new();
        let settled = {
            let state = &mut *self.state();
            let is_store_failing = &mut state.is_dead_letter_store_failing;
            let record_dead_letter = |message: &Message, reason: &str, attempts: u32| {
                let letter = letters.iter().find(|(stored, _)| std::ptr::eq(Arc::as_ptr(stored), message));
                let (sink, reason) = (self.name.clone(), reason.to_owned());
                match letter {
                    Some((_, Ok(()))) => {
                        *is_store_failing = false;
                        events.push(EngineEvent::DeadLettered { sink, id: message.id.clone(), reason, attempts });
                        true
                    }
                    Some((_, Err(error))) => {
                        if !std::mem::replace(is_store_failing, true) {
                            let file = self.dead_letters.file().to_owned();
                            events.push(EngineEvent::DeadLetterNotStored { sink, file, reason: error.to_string() });
                        }
                        false
                    }
                    // A reload has reduced `give_up_after` in the meantime. The message is retried.
                    None => false,
                }
            };
            let rng = &mut state.rng;
            let settled = state.queue.settle(now, number, outcome, || rng.fraction(), record_dead_letter);
            for settled in &settled {
                *(if settled.is_delivered { &mut state.delivered } else { &mut state.dead_letters }) += 1;
            }
            let (sink, pending) = (self.name.clone(), state.queue.len());
            match outcome {
                DeliveryOutcome::Retry { reason, .. } | DeliveryOutcome::Busy { reason, .. } => {
                    state.failed_attempts = state.failed_attempts.saturating_add(1);
                    if state.health.record_failure(now, reason) {
                        events.push(EngineEvent::SinkFailing { sink, reason: reason.clone(), pending });
                    }
                }
                DeliveryOutcome::Delivered => state.health.record_success(),
                DeliveryOutcome::Rejected { .. } => state.failed_attempts = state.failed_attempts.saturating_add(1),
            }
            settled
        };
        // A failed attempt frees no space. Waking thousands of waiting callers after each failure would be expensive.
        let has_space = !settled.is_empty();
        // After the lock is released: acknowledgements run code of the handlers.
        settled.into_iter().flat_map(|settled| settled.tokens).for_each(Ack::settle);
        if has_space {
            self.settled.notify_waiters();
        }
        // Reported without the lock, because a terminal may be slow.
        for event in events {
            (self.report)(event);
        }
        self.report_recovery();
    }

    /// Stores the undeliverable messages of an attempt before the queue settles them.
    ///
    /// Runs on a blocking thread and without the lock. A slow disk must neither block the threads of the runtime, nor
    /// callers that add messages to this sink.
    async fn store_dead_letters(&self, number: u64, outcome: &DeliveryOutcome) -> Vec<StoredLetter> {
        let (DeliveryOutcome::Retry { reason, .. }
        | DeliveryOutcome::Busy { reason, .. }
        | DeliveryOutcome::Rejected { reason }) = outcome
        else {
            return Vec::new();
        };
        let messages = self.state().queue.undeliverable(number, outcome);
        if messages.is_empty() {
            return Vec::new();
        }
        let (sink, reason, dead_letters) = (self.name.clone(), reason.clone(), self.dead_letters.clone());
        let store = move |(message, attempts): (Arc<Message>, u32)| {
            let (sink, reason) = (sink.clone(), reason.clone());
            let letter = DeadLetter { sink, reason, attempts, message: Message::clone(&message) };
            (message, dead_letters.add(&letter))
        };
        let stored = tokio::task::spawn_blocking(move || messages.into_iter().map(store).collect::<Vec<_>>());
        // Without a result, the messages are retried.
        stored.await.unwrap_or_default()
    }

    fn report_recovery(&self) {
        let recovered = {
            let state = &mut *self.state();
            state.health.has_recovered(self.started.elapsed()).then(|| state.queue.len())
        };
        if let Some(pending) = recovered {
            (self.report)(EngineEvent::SinkRecovered { sink: self.name.clone(), pending });
        }
    }
}

/// Caller that waits for space in the queue. The caller is counted until this value is dropped, also if the caller is
/// cancelled.
struct ThrottledCaller<'a> {
    worker: &'a SinkWorker,
    namespace: ClusterNamespace,
}

impl<'a> ThrottledCaller<'a> {
    fn new(worker: &'a SinkWorker, namespace: &ClusterNamespace) -> Self {
        let mut state = worker.state();
        *state.throttled.entry(namespace.clone()).or_default() += 1;
        state.throttled_total = state.throttled_total.saturating_add(1);
        Self { worker, namespace: namespace.clone() }
    }
}

impl Drop for ThrottledCaller<'_> {
    fn drop(&mut self) {
        let mut state = self.worker.state();
        if let Some(count) = state.throttled.get_mut(&self.namespace) {
            *count -= 1;
            if *count == 0 {
                state.throttled.remove(&self.namespace);
            }
        }
    }
}

/// Returns the delivery settings of a configured sink.
pub(crate) fn delivery_settings(sink: &crate::config::sinks::SinkConfig) -> DeliverySettings {
    use crate::config::sinks::WebhookMode;
    let batched = sink.webhook.as_ref().filter(|webhook| webhook.mode == WebhookMode::Batched);
    DeliverySettings {
        debounce: sink.debounce.map_or(Duration::ZERO, |span| span.0),
        rate: sink.rate.map(|rate| (rate.per_second, rate.burst)),
        initial_delay: sink.retry.first.0,
        max_delay: sink.retry.longest.0,
        give_up_after: sink.retry.give_up_after.0,
        // Standard output has a single writer, so that lines stay in order.
        concurrency: if sink.stdout.is_some() { 1 } else { sink.concurrency },
        batch: if sink.stdout.is_some() { 100 } else { batched.map_or(1, |webhook| webhook.batch) },
    }
}
