//! Queue of one sink: order and timing of messages.
//!
//! A state machine without clock, tasks or random source: the caller passes the time since an arbitrary origin, and
//! random numbers. Messages with equal [`OrderingKey`] are sent one after another. Namespaces are served in turn.

mod bucket;
mod delivery;
mod namespaces;
mod pause;
mod usage;
mod window;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::delivery_outcome::DeliveryOutcome;
use crate::message::{ClusterNamespace, Message, OrderingKey};
use bucket::Bucket;
use delivery::backoff;
pub use delivery::{DeliverySettings, MAX_REQUESTED_DELAY};
use namespaces::{NamespaceQueues, ReadyKey};
use pause::Pause;
use usage::{QueueUsage, message_bytes};
use window::Window;

/// Maximum number of messages that debouncing merges into one. Each merged message keeps an acknowledgement in memory,
/// and only separate messages count towards the share of a namespace.
const MAX_MERGED_MESSAGES: usize = 100;

/// Messages of one delivery attempt.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Number for [`settle`](SinkQueue::settle).
    pub number: u64,
    /// The messages, in order.
    pub messages: Vec<Arc<Message>>,
}

/// Queue of one sink. `T` is the acknowledgement of a message.
pub struct SinkQueue<T> {
    delivery: DeliverySettings,
    queues: HashMap<OrderingKey, VecDeque<Pending<T>>>,
    /// Keys with pending messages and no message in flight.
    namespaces: NamespaceQueues,
    /// Keys of `namespaces`, ordered by the age of the first message. Each item is the time of insertion and the entry
    /// in `namespaces`.
    by_insertion_time: BTreeSet<(Duration, ReadyKey)>,
    in_flight: HashMap<u64, InFlightBatch<T>>,
    bucket: Bucket,
    pause: Pause,
    window: Window,
    /// Unsettled messages.
    usage: QueueUsage,
    /// Next number of a message or batch.
    next_number: u64,
}

struct Pending<T> {
    message: Arc<Message>,
    /// Approximate memory of the message.
    bytes: usize,
    number: u64,
    queued_at: Duration,
    not_before: Duration,
    attempts: u32,
    /// Set after the receiver rejected a batch with this message. Separate batches identify the rejected message.
    is_separate: bool,
    tokens: Vec<T>,
}

struct InFlightBatch<T> {
    started_at: Duration,
    items: Vec<(OrderingKey, Pending<T>)>,
    namespaces: BTreeSet<ClusterNamespace>,
}

/// A message that was delivered or became a dead letter.
pub struct SettledMessage<T> {
    /// The message.
    pub message: Arc<Message>,
    /// Acknowledgements of the message and of all replaced messages.
    pub tokens: Vec<T>,
    /// True if delivered, false for a dead letter.
    pub is_delivered: bool,
}

impl<T> SinkQueue<T> {
    /// Creates an empty queue.
    pub fn new(delivery: DeliverySettings) -> Self {
        Self {
            delivery,
            queues: HashMap::new(),
            namespaces: NamespaceQueues::default(),
            by_insertion_time: BTreeSet::new(),
            in_flight: HashMap::new(),
            bucket: Bucket::new(delivery.rate),
            pause: Pause::default(),
            window: Window::default(),
            usage: QueueUsage::default(),
            next_number: 0,
        }
    }

    /// Changes the delivery settings. Pending messages are retained.
    pub fn reconfigure(&mut self, delivery: DeliverySettings) {
        if delivery.rate != self.delivery.rate {
            self.bucket = Bucket::new(delivery.rate);
        }
        self.delivery = delivery;
        // The receiver may have changed.
        self.pause.end();
        self.window = Window::default();
    }

    /// Returns the number of unsettled messages.
    pub fn len(&self) -> usize {
        self.usage.len()
    }

    /// Returns true if a batch is in flight.
    pub fn is_sending(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns true if all messages are settled.
    pub fn is_empty(&self) -> bool {
        self.usage.len() == 0
    }

    /// Returns true if the namespace may add a message. Namespaces share `max_messages`: with `n` active namespaces,
    /// each may have `max_messages / (n + 1)`. One share is reserved for an inactive namespace. Messages beyond a
    /// reduced share stay. The total never exceeds twice `max_messages`. The same applies to 256 MiB of memory.
    pub fn has_space(&self, namespace: &ClusterNamespace, max_messages: usize) -> bool {
        self.usage.has_space(namespace, max_messages)
    }

    /// Returns the insertion time of the oldest unsettled message.
    pub fn oldest(&self) -> Option<Duration> {
        let queued = self.queues.values().filter_map(VecDeque::front).map(|pending| pending.queued_at);
        let in_flight = self.in_flight.values().flat_map(|batch| &batch.items).map(|(_, pending)| pending.queued_at);
        queued.chain(in_flight).min()
    }

    /// Returns the end of a pause that the receiver requested.
    pub fn paused_until(&self, now: Duration) -> Option<Duration> {
        self.pause.until(now)
    }

    /// Removes all messages, including messages in flight. Returns the acknowledgements.
    pub fn clear(&mut self) -> Vec<T> {
        let queued = std::mem::take(&mut self.queues).into_values().flatten();
        let in_flight = std::mem::take(&mut self.in_flight).into_values().flat_map(|batch| batch.items);
        let tokens = queued.chain(in_flight.map(|(_, pending)| pending)).flat_map(|pending| pending.tokens).collect();
        (self.namespaces, self.usage) = (NamespaceQueues::default(), QueueUsage::default());
        self.by_insertion_time.clear();
        tokens
    }

    /// Appends a message to the queue of the object.
    pub fn push(&mut self, now: Duration, message: Arc<Message>, token: T) {
        let (key, bytes) = (message.ordering_key(), message_bytes(&message));
        let debounce = self.delivery.debounce;
        let queue = self.queues.entry(key.clone()).or_default();
        // Debouncing replaces the last pending message, unless an attempt was made with it.
        if !debounce.is_zero()
            && let Some(last) = queue.back_mut()
            && last.attempts == 0
            && last.tokens.len() < MAX_MERGED_MESSAGES
            && last.message.rule == message.rule
            && last.message.uid == message.uid
        {
            self.usage.resize(&key.cluster_namespace(), std::mem::replace(&mut last.bytes, bytes), bytes);
            last.message = message;
            last.tokens.push(token);
            return;
        }
        let number = self.next_number;
        self.next_number += 1;
        let not_before = now.saturating_add(debounce);
        let tokens = vec![token];
        queue.push_back(Pending {
            message,
            bytes,
            number,
            queued_at: now,
            not_before,
            attempts: 0,
            is_separate: false,
            tokens,
        });
        self.usage.add(key.cluster_namespace(), bytes);
        let is_first = queue.len() == 1;
        // A key in flight becomes ready when its batch is settled.
        if is_first && !self.is_in_flight(&key) {
            self.make_ready(key);
        }
    }

    fn is_in_flight(&self, key: &OrderingKey) -> bool {
        self.in_flight.values().flat_map(|batch| &batch.items).any(|(other, _)| other == key)
    }

    /// Marks a key as ready with the first message. Removes a key without messages.
    fn make_ready(&mut self, key: OrderingKey) {
        // Only the first message of a key is ready, so that the messages of an object stay in order.
        match self.queues.get(&key).and_then(VecDeque::front) {
            Some(first) => {
                self.by_insertion_time.insert((first.queued_at, (first.not_before, first.number, key.clone())));
                self.namespaces.insert(first.not_before, first.number, key);
            }
            None => drop(self.queues.remove(&key)),
        }
    }

    /// Returns the batches to send now. The caller must [`settle`](Self::settle) each.
    pub fn take(&mut self, now: Duration) -> Vec<Batch> {
        let mut batches = Vec::new();
        while self.in_flight.len() < self.concurrency() {
            let limit = self.namespaces.limit(self.concurrency());
            let due = self.next_ready_at(limit).is_some_and(|at| at.max(self.pause_end(now)) <= now);
            // A pause must not prevent the last attempt of a message at the age limit.
            let last_attempt = if self.pause.until(now).is_some() { self.first_expired(now) } else { None };
            // The token is taken last: a batch that is not sent must not use a token.
            if !(due || last_attempt.is_some()) || !self.bucket.take(now) {
                break;
            }
            let items = match last_attempt {
                Some(ready) => self.collect_key(&ready, now),
                None => self.collect_batch(now, limit),
            };
            let namespaces: BTreeSet<ClusterNamespace> = items.iter().map(|(key, _)| key.cluster_namespace()).collect();
            // Counted per namespace, so that one slow namespace cannot occupy all attempts.
            self.namespaces.start_batch(&namespaces);
            let number = self.next_number;
            self.next_number += 1;
            let messages = items.iter().map(|(_, pending)| pending.message.clone()).collect();
            self.in_flight.insert(number, InFlightBatch { started_at: now, items, namespaces });
            batches.push(Batch { number, messages });
        }
        batches
    }

    /// Returns the maximum number of batches in flight. An overloaded receiver gets fewer than configured.
    fn concurrency(&self) -> usize {
        self.window.limit(self.delivery.concurrency)
    }

    fn pause_end(&self, now: Duration) -> Duration {
        self.pause.until(now).unwrap_or_default()
    }

    fn next_ready_at(&self, limit: usize) -> Option<Duration> {
        self.namespaces.next_ready_at(limit)
    }

    /// Returns the oldest key with an expired first message. A pause does not delay the last attempt.
    fn first_expired(&self, now: Duration) -> Option<ReadyKey> {
        let expired = self.by_insertion_time.iter().take_while(|(queued_at, _)| self.expires_at(*queued_at) <= now);
        expired.map(|(_, ready)| ready).find(|(not_before, ..)| *not_before <= now).cloned()
    }

    fn expires_at(&self, queued_at: Duration) -> Duration {
        queued_at.saturating_add(self.delivery.give_up_after)
    }

    /// Collects the messages of a batch, from keys in the order of [`NamespaceQueues`].
    fn collect_batch(&mut self, now: Duration, limit: usize) -> Vec<(OrderingKey, Pending<T>)> {
        let mut items: Vec<(OrderingKey, Pending<T>)> = Vec::new();
        while items.len() < self.delivery.batch.max(1) {
            let queues = &self.queues;
            let is_separate =
                |key: &OrderingKey| queues.get(key).and_then(VecDeque::front).is_some_and(|first| first.is_separate);
            let is_first = items.is_empty();
            let Some(ready) = self.namespaces.take(now, limit, |key| is_first || !is_separate(key)) else { break };
            // `by_insertion_time` and `namespaces` contain the same keys, and change together.
            self.remove_age(&ready);
            if self.move_messages(&ready.2, now, &mut items) {
                break;
            }
        }
        items
    }

    /// Collects the messages of one key out of turn.
    fn collect_key(&mut self, ready: &ReadyKey, now: Duration) -> Vec<(OrderingKey, Pending<T>)> {
        let mut items = Vec::new();
        self.namespaces.remove(ready);
        self.remove_age(ready);
        self.move_messages(&ready.2, now, &mut items);
        items
    }

    fn remove_age(&mut self, ready: &ReadyKey) {
        if let Some(first) = self.queues.get(&ready.2).and_then(VecDeque::front) {
            self.by_insertion_time.remove(&(first.queued_at, ready.clone()));
        }
    }

    /// Moves messages of a key into a batch. Returns true if the batch must not contain other messages.
    fn move_messages(&mut self, key: &OrderingKey, now: Duration, items: &mut Vec<(OrderingKey, Pending<T>)>) -> bool {
        let Some(queue) = self.queues.get_mut(key) else { return false };
        let is_separate = queue.front().is_some_and(|first| first.is_separate);
        while items.len() < self.delivery.batch.max(1)
            && queue.front().is_some_and(|first| first.not_before <= now && first.is_separate == is_separate)
            && let Some(first) = queue.pop_front()
        {
            items.push((key.clone(), first));
            if is_separate {
                return true;
            }
        }
        false
    }

    /// Returns the next time at which messages may be ready, unless something changes before.
    pub fn next_due(&self, now: Duration) -> Option<Duration> {
        if self.in_flight.len() >= self.concurrency() {
            return None;
        }
        let due = self.next_ready_at(self.namespaces.limit(self.concurrency()));
        let Some(pause_end) = self.pause.until(now) else { return due.map(|at| at.max(self.bucket.next_token_at())) };
        let mut next = due.map(|at| at.max(pause_end));
        // `by_insertion_time` is sorted by age, so the loop ends at the first message that expires later.
        for (queued_at, (not_before, ..)) in &self.by_insertion_time {
            let expires_at = self.expires_at(*queued_at);
            if next.is_some_and(|next| expires_at >= next) {
                break;
            }
            let at = expires_at.max(*not_before);
            next = Some(next.map_or(at, |next| next.min(at)));
        }
        next.map(|at| at.max(self.bucket.next_token_at()))
    }

    /// Returns the messages that [`settle`](Self::settle) passes to `dead_letter` for this result, with the number of
    /// attempts. The caller can store the dead letters before, without access to the queue.
    pub fn undeliverable(&self, number: u64, outcome: &DeliveryOutcome) -> Vec<(Arc<Message>, u32)> {
        let Some(InFlightBatch { started_at, items, .. }) = self.in_flight.get(&number) else { return Vec::new() };
        let is_undeliverable = |pending: &&Pending<T>| {
            self.undeliverable_reason(outcome, items.len(), *started_at, pending.queued_at).is_some()
        };
        let undeliverable = items.iter().map(|(_, pending)| pending).filter(is_undeliverable);
        undeliverable.map(|pending| (pending.message.clone(), pending.attempts.saturating_add(1))).collect()
    }

    /// Returns the reason if a message of a batch with `batch_len` messages must become a dead letter after this result.
    fn undeliverable_reason<'o>(
        &self,
        outcome: &'o DeliveryOutcome,
        batch_len: usize,
        started_at: Duration,
        queued_at: Duration,
    ) -> Option<&'o str> {
        match outcome {
            DeliveryOutcome::Delivered => None,
            // The receiver does not identify the rejected message, so each message of a batch is sent again alone.
            DeliveryOutcome::Rejected { reason } => (batch_len == 1).then_some(reason),
            // The age counts from the addition to the queue, not from the first attempt.
            // Compared with the start of the attempt: a freeze of the process may have let an earlier attempt time out.
            // Each message therefore gets one attempt that starts at the age limit or later.
            DeliveryOutcome::Retry { reason, .. } | DeliveryOutcome::Busy { reason, .. } => {
                (self.expires_at(queued_at) <= started_at).then_some(reason)
            }
        }
    }

    /// Records the result of a batch. `random_fraction` returns random numbers from zero to one. `dead_letter` stores a
    /// dead letter and returns true on success. After a failure of `dead_letter`, the message is retried.
    pub fn settle(
        &mut self,
        now: Duration,
        number: u64,
        outcome: &DeliveryOutcome,
        mut random_fraction: impl FnMut() -> f64,
        mut dead_letter: impl FnMut(&Message, &str, u32) -> bool,
    ) -> Vec<SettledMessage<T>> {
        // The batch was abandoned or cleared in the meantime.
        let Some(InFlightBatch { started_at, items, namespaces }) = self.in_flight.remove(&number) else {
            return Vec::new();
        };
        match outcome {
            DeliveryOutcome::Busy { retry_after: after, .. } => {
                self.pause.start(now, *after, &self.delivery, random_fraction());
                self.window.record_rejection(now);
            }
            // An earlier attempt that is still in flight may succeed. Messages that fail fast must not reduce the
            // concurrency of a slow receiver that accepts all others.
            DeliveryOutcome::Retry { .. } if self.in_flight.values().all(|other| other.started_at >= started_at) => {
                self.window.record_failure(started_at, now, self.delivery.concurrency);
            }
            // Another attempt may have started a pause, which must not end here.
            DeliveryOutcome::Delivered | DeliveryOutcome::Rejected { .. } if self.pause.until(now).is_none() => {
                self.pause.end();
                self.window.record_success(now, self.delivery.concurrency);
            }
            DeliveryOutcome::Delivered | DeliveryOutcome::Rejected { .. } | DeliveryOutcome::Retry { .. } => {}
        }
        let batch_len = items.len();
        let (mut settled, mut returned) = (Vec::new(), Vec::new());
        let mut keys: Vec<OrderingKey> = Vec::new();
        for (key, mut pending) in items {
            if !keys.contains(&key) {
                keys.push(key.clone());
            }
            pending.attempts = pending.attempts.saturating_add(1);
            let reason = self.undeliverable_reason(outcome, batch_len, started_at, pending.queued_at);
            let retry_at = now.saturating_add(self.retry_delay(outcome, &pending, now, random_fraction()));
            let (delivery_result, not_before) = match (reason, outcome) {
                (_, DeliveryOutcome::Delivered) => (Some(true), now),
                // Without space for the dead letter, the message stays and is retried.
                (Some(reason), _) => {
                    (dead_letter(&pending.message, reason, pending.attempts).then_some(false), retry_at)
                }
                (None, DeliveryOutcome::Rejected { .. }) => {
                    pending.is_separate = true;
                    (None, now)
                }
                (None, DeliveryOutcome::Retry { .. }) => (None, retry_at),
                // The pause of the sink already delays the next attempt.
                (None, DeliveryOutcome::Busy { .. }) => (None, now),
            };
            if let Some(is_delivered) = delivery_result {
                self.usage.remove(&key.cluster_namespace(), pending.bytes);
                settled.push(SettledMessage { message: pending.message, tokens: pending.tokens, is_delivered });
            } else {
                pending.not_before = not_before;
                returned.push((key, pending));
            }
        }
        self.put_back(returned, keys, &namespaces);
        settled
    }

    /// Makes all batches pending again after the task ended without results. Receivers may get messages twice, with the
    /// same IDs.
    pub fn requeue_in_flight(&mut self, now: Duration) {
        for InFlightBatch { items, namespaces, .. } in std::mem::take(&mut self.in_flight).into_values() {
            let mut keys: Vec<OrderingKey> = Vec::new();
            let mut returned = Vec::new();
            for (key, mut pending) in items {
                if !keys.contains(&key) {
                    keys.push(key.clone());
                }
                pending.attempts = pending.attempts.saturating_add(1);
                pending.not_before = now;
                returned.push((key, pending));
            }
            self.put_back(returned, keys, &namespaces);
        }
    }

    /// Inserts messages in front of newer messages, in order.
    fn put_back(
        &mut self,
        returned: Vec<(OrderingKey, Pending<T>)>,
        keys: Vec<OrderingKey>,
        namespaces: &BTreeSet<ClusterNamespace>,
    ) {
        // In reverse, so that the original order is restored at the front of each queue.
        for (key, pending) in returned.into_iter().rev() {
            self.queues.entry(key).or_default().push_front(pending);
        }
        for key in keys {
            self.make_ready(key);
        }
        self.namespaces.end_batch(namespaces);
    }

    /// Returns the delay before the next attempt: exponential backoff with jitter, at least the delay that the receiver
    /// requests. The delay ends at the age limit of the message at the latest, for one last attempt.
    fn retry_delay(
        &self,
        outcome: &DeliveryOutcome,
        pending: &Pending<T>,
        now: Duration,
        random_fraction: f64,
    ) -> Duration {
        let backoff = backoff(&self.delivery, pending.attempts, random_fraction);
        let retry_delay = match outcome {
            DeliveryOutcome::Retry { retry_after: Some(after), .. } => backoff.max((*after).min(MAX_REQUESTED_DELAY)),
            _ => backoff,
        };
        // The last attempt is due exactly at the age limit.
        let remaining = self.expires_at(pending.queued_at).saturating_sub(now);
        if remaining.is_zero() { backoff } else { retry_delay.min(remaining) }
    }
}
