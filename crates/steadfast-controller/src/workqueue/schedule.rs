//! Ready, delayed and running keys. Callers pass the current time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hashbrown::HashTable;
use steadfast::environment::Instant;

use super::order::{Order, Position, Priority};
use super::retries::{RetrySettings, TokenBucket};
use super::stats::{Durations, WorkqueueStats};

/// Number of a key, valid while the key is tracked.
pub(super) type KeyNumber = u32;

/// State of all tracked keys.
///
/// A key occupies one entry regardless of the number of additions. The entry is removed once the key is idle and its
/// failures are forgotten.
pub(super) struct Schedule<T> {
    settings: RetrySettings,
    bucket: Option<TokenBucket>,
    numbers_by_hash: HashTable<KeyNumber>,
    items: Vec<Option<Item<T>>>,
    /// Released numbers. Some may lie beyond the end of `items`, or be reused already.
    vacant: Vec<KeyNumber>,
    ready: Order,
    delayed: BTreeMap<Due, KeyNumber>,
    /// Running keys with their start.
    running: BTreeSet<(Instant, KeyNumber)>,
    /// Idle keys with failures, by the time of forgetting.
    idle: BTreeSet<(Instant, KeyNumber)>,
    /// Number of running keys with a pending requeue.
    requeue_pending: usize,
    last_sequence: u64,
    closed: bool,
    adds: u64,
    retries: u64,
    queue_duration: Durations,
    work_duration: Durations,
    /// Number of keys that became ready since the last query.
    newly_ready: usize,
    /// Dropped keys. Their destructors are user code and must not run under the lock.
    dropped: Vec<T>,
}

/// Key with its hash and group, which user code computes.
pub(super) struct HashedKey<T> {
    pub(super) key: T,
    pub(super) hash: u64,
    pub(super) group: u64,
}

/// Due time of a delayed key. The sequence orders equal times by insertion.
type Due = (Instant, u64);

struct Item<T> {
    key: T,
    hash: u64,
    group: u64,
    state: KeyState,
    delay: Option<Delay>,
    failures: u32,
    /// Time in `idle`.
    forget_at: Option<Instant>,
}

#[derive(Clone, Copy)]
enum KeyState {
    Idle,
    Ready { position: Position, since: Instant },
    Running { since: Instant, requeue: Option<PendingRequeue> },
}

/// Addition of a running key.
#[derive(Clone, Copy)]
struct PendingRequeue {
    priority: Priority,
    since: Instant,
}

#[derive(Clone, Copy)]
struct Delay {
    due: Due,
    priority: Priority,
    /// True if only a failure caused this delay. Forgetting the failures cancels the delay.
    is_retry: bool,
}

/// Result of a request for the next key.
pub(super) enum NextKey<T> {
    /// Key to process.
    Key(KeyNumber, T, Priority),
    /// No key is ready before this instant. `None` if no key is delayed.
    Later(Option<Instant>),
    /// No key will be ready again.
    Closed,
}

impl<T> Schedule<T> {
    /// Returns the due time of the first delay.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((at, _), _)| *at)
    }
}

/// Capacity that is never shrunk.
const MIN_CAPACITY: usize = 256;

const TRACKED: &str = "the number of a tracked key";

impl<T: Clone + Eq> Schedule<T> {
    pub(super) fn new(settings: RetrySettings, bucket: Option<TokenBucket>) -> Self {
        Self {
            settings,
            bucket,
            numbers_by_hash: HashTable::new(),
            items: Vec::new(),
            vacant: Vec::new(),
            ready: Order::default(),
            delayed: BTreeMap::new(),
            running: BTreeSet::new(),
            idle: BTreeSet::new(),
            requeue_pending: 0,
            last_sequence: 0,
            closed: false,
            adds: 0,
            retries: 0,
            queue_duration: Durations::default(),
            work_duration: Durations::default(),
            newly_ready: 0,
            dropped: Vec::new(),
        }
    }

    /// Returns the number of a key, and assigns one if necessary.
    fn number(&mut self, HashedKey { key, hash, group }: HashedKey<T>) -> KeyNumber {
        if let Some(number) = self.find(&key, hash) {
            // A key that is already tracked is dropped later, outside of the lock.
            self.dropped.push(key);
            return number;
        }
        let item = Item { key, hash, group, state: KeyState::Idle, delay: None, failures: 0, forget_at: None };
        // Numbers above the shrunken length may remain in `vacant`, and are skipped.
        let is_vacant = |number: &KeyNumber| self.items.get(*number as usize).is_some_and(Option::is_none);
        let number = std::iter::from_fn(|| self.vacant.pop()).find(is_vacant).unwrap_or(self.items.len() as KeyNumber);
        match self.items.get_mut(number as usize) {
            Some(position) => *position = Some(item),
            None => self.items.push(Some(item)),
        }
        let Self { numbers_by_hash, items, .. } = self;
        numbers_by_hash.insert_unique(hash, number, |other| hash_in(items, *other));
        number
    }

    fn find(&self, key: &T, hash: u64) -> Option<KeyNumber> {
        let has_key = |number: &KeyNumber| self.items[*number as usize].as_ref().is_some_and(|item| item.key == *key);
        self.numbers_by_hash.find(hash, has_key).copied()
    }

    fn item(&mut self, number: KeyNumber) -> &mut Item<T> {
        self.items[number as usize].as_mut().expect(TRACKED)
    }

    /// Adds a key.
    pub(super) fn add(&mut self, key: HashedKey<T>, priority: Priority, now: Instant) {
        if self.closed {
            self.dropped.push(key.key);
            return;
        }
        let number = self.number(key);
        self.add_number(number, priority, now);
    }

    fn add_number(&mut self, number: KeyNumber, priority: Priority, since: Instant) {
        let item = self.items[number as usize].as_mut().expect(TRACKED);
        match item.state {
            KeyState::Idle => {
                let position = self.ready.push(number, priority, item.group);
                item.state = KeyState::Ready { position, since };
                self.adds += 1;
                self.newly_ready += 1;
                if let Some(forget_at) = item.forget_at.take() {
                    self.idle.remove(&(forget_at, number));
                }
            }
            KeyState::Ready { position, since } => {
                // A higher priority moves the key. The time of the first addition stays for the statistics.
                if priority > position.priority() {
                    self.ready.remove(position);
                    let position = self.ready.push(number, priority, item.group);
                    item.state = KeyState::Ready { position, since };
                }
            }
            // A key never has two runs at a time: the addition waits for the end of the current run.
            KeyState::Running { since: started, requeue } => {
                if requeue.is_none() {
                    self.adds += 1;
                    self.requeue_pending += 1;
                }
                let before = requeue.unwrap_or(PendingRequeue { priority, since });
                let requeue = PendingRequeue { priority: before.priority.max(priority), ..before };
                item.state = KeyState::Running { since: started, requeue: Some(requeue) };
            }
        }
    }

    /// Adds a key after `delay`.
    pub(super) fn add_after(&mut self, key: HashedKey<T>, priority: Priority, delay: Duration, now: Instant) {
        if self.closed {
            self.dropped.push(key.key);
            return;
        }
        self.retries += 1;
        let number = self.number(key);
        self.delay(number, priority, now + delay, false);
    }

    fn delay(&mut self, number: KeyNumber, priority: Priority, at: Instant, is_retry: bool) {
        self.last_sequence += 1;
        let mut delay = Delay { due: (at, self.last_sequence), priority, is_retry };
        let item = self.items[number as usize].as_mut().expect(TRACKED);
        // One delay per key: the earlier instant and the higher priority apply.
        if let Some(other) = item.delay {
            delay.due = delay.due.min(other.due);
            delay.priority = delay.priority.max(other.priority);
            // A delay counts as a retry only if no other source requested it.
            delay.is_retry &= other.is_retry;
            self.delayed.remove(&other.due);
        }
        item.delay = Some(delay);
        self.delayed.insert(delay.due, number);
        if let Some(forget_at) = item.forget_at.take() {
            // A key with a pending delay is in use again, so its failures are not forgotten.
            self.idle.remove(&(forget_at, number));
        }
    }

    /// Counts a failure of a running key, and adds the key again after a delay. The delay is the backoff of the key, or
    /// the wait for the rate limit if that is longer. Returns the delay.
    pub(super) fn retry(&mut self, number: KeyNumber, priority: Priority, now: Instant, random: u64) -> Duration {
        let settings = self.settings;
        let item = self.item(number);
        item.failures = item.failures.saturating_add(1);
        let backoff = settings.delay(item.failures, random);
        let total_delay = self.bucket.as_mut().map_or(backoff, |bucket| backoff.max(bucket.take(now)));
        if !self.closed {
            self.retries += 1;
            self.delay(number, priority, now + total_delay, true);
        }
        total_delay
    }

    /// Returns the number of failures in a row.
    pub(super) fn failures(&self, key: &T, hash: u64) -> u32 {
        let item = self.find(key, hash).and_then(|number| self.items[number as usize].as_ref());
        item.map_or(0, |item| item.failures)
    }

    /// Forgets the failures of a key and cancels its pending retry.
    pub(super) fn forget(&mut self, key: &T, hash: u64, now: Instant) {
        if let Some(number) = self.find(key, hash) {
            self.forget_number(number);
            self.release(number, now);
        }
    }

    /// Same as [`forget`](Self::forget) for a running key.
    pub(super) fn forget_number(&mut self, number: KeyNumber) {
        let item = self.items[number as usize].as_mut().expect(TRACKED);
        item.failures = 0;
        // `forget` cancels only retries. Delays that the caller requested stay.
        if let Some(delay) = item.delay.filter(|delay| delay.is_retry) {
            self.delayed.remove(&delay.due);
            item.delay = None;
        }
    }

    /// Makes all due keys ready, and forgets expired failures.
    pub(super) fn apply_due(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((due, _), number) = entry.remove_entry();
            let Some(delay) = self.item(number).delay.take() else { continue };
            // The key counts as added when it was due, so that a late timer does not shorten the measured wait.
            self.add_number(number, delay.priority, due);
        }
        while let Some(&(at, number)) = self.idle.first().filter(|(at, _)| *at <= now) {
            self.idle.remove(&(at, number));
            self.item(number).forget_at = None;
            self.item(number).failures = 0;
            self.release(number, now);
        }
    }

    /// Takes the next key.
    pub(super) fn next(&mut self, now: Instant) -> NextKey<T> {
        let Some((position, number)) = self.ready.next() else {
            return if self.is_finished() { NextKey::Closed } else { NextKey::Later(self.next_due()) };
        };
        let item = self.items[number as usize].as_mut().expect(TRACKED);
        let KeyState::Ready { since, .. } = item.state else { unreachable!("an ordered key is ready") };
        // `clone` is user code. No state has changed if it panics.
        let key = item.key.clone();
        item.state = KeyState::Running { since: now, requeue: None };
        self.ready.take(position);
        self.running.insert((now, number));
        self.queue_duration.add(now.since(since));
        NextKey::Key(number, key, position.priority())
    }

    /// Ends the processing of a key.
    pub(super) fn done(&mut self, number: KeyNumber, now: Instant) {
        let item = self.items[number as usize].as_mut().expect(TRACKED);
        let KeyState::Running { since, requeue: pending_requeue } = std::mem::replace(&mut item.state, KeyState::Idle)
        else {
            unreachable!("a finished key was running")
        };
        self.running.remove(&(since, number));
        self.work_duration.add(now.since(since));
        // A key without new additions is released, or kept for its failure count.
        let Some(requeue) = pending_requeue else { return self.release(number, now) };
        self.requeue_pending -= 1;
        self.newly_ready += 1;
        let position = self.ready.push(number, requeue.priority, item.group);
        item.state = KeyState::Ready { position, since: requeue.since };
    }

    /// Removes the entry of an idle key, unless failures must be remembered.
    fn release(&mut self, number: KeyNumber, now: Instant) {
        let Some(item) = self.items[number as usize].as_mut() else { return };
        // Ready, running and delayed keys are in use.
        if !matches!(item.state, KeyState::Idle) || item.delay.is_some() {
            return;
        }
        if let Some(forget_at) = item.forget_at.take() {
            self.idle.remove(&(forget_at, number));
        }
        // The failure count outlives the key for twice the maximum delay, so that flapping keys keep their backoff.
        if item.failures > 0 && !self.closed {
            let forget_at = now + self.settings.failure_memory();
            item.forget_at = Some(forget_at);
            self.idle.insert((forget_at, number));
            return;
        }
        if let Ok(entry) = self.numbers_by_hash.find_entry(item.hash, |other| *other == number) {
            entry.remove();
        }
        self.dropped.extend(self.items[number as usize].take().map(|item| item.key));
        self.vacant.push(number);
        self.shrink();
    }

    /// Releases memory after a burst of keys.
    fn shrink(&mut self) {
        while self.items.last().is_some_and(Option::is_none) {
            self.items.pop();
        }
        // Hysteresis: shrinks only far above the needed capacity. A queue of alternating size does not reallocate each
        // time.
        let min_capacity = MIN_CAPACITY.max(2 * self.items.len());
        if self.items.capacity() > 2 * min_capacity {
            self.items.shrink_to(min_capacity);
        }
        if self.vacant.len() > min_capacity {
            let items = &self.items;
            self.vacant.retain(|number| (*number as usize) < items.len());
            self.vacant.shrink_to(min_capacity);
        }
        let min_capacity = MIN_CAPACITY.max(2 * self.numbers_by_hash.len());
        if self.numbers_by_hash.capacity() > 4 * min_capacity {
            let Self { numbers_by_hash, items, .. } = self;
            numbers_by_hash.shrink_to(min_capacity, |other| hash_in(items, *other));
        }
    }

    /// Stops accepting keys and drops delayed keys. Returns their number.
    pub(super) fn close(&mut self, now: Instant) -> usize {
        self.closed = true;
        let delayed = std::mem::take(&mut self.delayed);
        for number in delayed.values() {
            self.item(*number).delay = None;
            self.release(*number, now);
        }
        // After the shutdown no key returns, so failure counts are useless.
        for (_, number) in std::mem::take(&mut self.idle) {
            self.item(number).forget_at = None;
            self.release(number, now);
        }
        delayed.len()
    }

    /// Returns true after [`close`](Self::close).
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns true if no key will be ready again.
    pub(super) fn is_finished(&self) -> bool {
        // Keys that were added during their run still have to run once.
        self.closed && self.requeue_pending == 0 && self.ready.is_empty()
    }

    /// Returns true if no key is ready or running.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.running.is_empty()
    }

    /// Returns the number of ready keys.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Returns the number of tracked keys.
    pub(super) fn tracked(&self) -> usize {
        self.numbers_by_hash.len()
    }

    /// Returns the number of keys that became ready since the last query and still are.
    pub(super) fn take_newly_ready(&mut self) -> usize {
        std::mem::take(&mut self.newly_ready).min(self.ready.len())
    }

    /// Returns the keys dropped since the last query.
    pub(super) fn take_dropped(&mut self) -> Vec<T> {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn stats(&self, now: Instant) -> WorkqueueStats {
        let elapsed = |(since, _): &(Instant, KeyNumber)| now.since(*since);
        WorkqueueStats {
            depth: self.ready.len() + self.requeue_pending,
            delayed: self.delayed.len(),
            running: self.running.len(),
            adds: self.adds,
            retries: self.retries,
            queue_duration: self.queue_duration.clone(),
            work_duration: self.work_duration.clone(),
            unfinished_work: self.running.iter().map(elapsed).sum(),
            longest_running: self.running.first().map_or(Duration::ZERO, elapsed),
        }
    }
}

fn hash_in<T>(items: &[Option<Item<T>>], number: KeyNumber) -> u64 {
    items[number as usize].as_ref().map_or(0, |item| item.hash)
}
