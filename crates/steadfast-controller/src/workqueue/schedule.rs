//! What is ready, delayed and worked on. It knows no clock: whoever asks says what time it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hashbrown::HashTable;
use steadfast::environment::Instant;

use super::figures::{Durations, WorkqueueStats};
use super::order::{Order, Place, Priority};
use super::retries::{Bucket, RetrySettings};

/// The number of a key, for as long as something is known of it.
pub(super) type Number = u32;

/// Everything that is known of the keys.
///
/// A key takes up one place, however often it is added; and none, once nothing is to be done with it and its failures are
/// forgotten.
pub(super) struct Schedule<T> {
    settings: RetrySettings,
    bucket: Option<Bucket>,
    numbers: HashTable<Number>,
    items: Vec<Option<Item<T>>>,
    /// Numbers that were given back. Some may lie behind the end of the items now, or be given out again.
    vacant: Vec<Number>,
    ready: Order,
    delayed: BTreeMap<Due, Number>,
    /// Since when each is worked on.
    running: BTreeSet<(Instant, Number)>,
    /// The failures of those with which nothing else is to be done, by when they are forgotten.
    idle: BTreeSet<(Instant, Number)>,
    /// How many that are worked on are to be worked on again.
    again: usize,
    sequence: u64,
    closed: bool,
    adds: u64,
    retries: u64,
    queued: Durations,
    worked: Durations,
    /// How many have become ready since it was last asked.
    fresh: usize,
    /// Keys that are let go of: what dropping them runs is the user's, and not for whoever holds a lock.
    gone: Vec<T>,
}

/// A key as it is handed in, with what the user's code says of it.
pub(super) struct Named<T> {
    pub(super) key: T,
    pub(super) hash: u64,
    pub(super) group: u64,
}

/// When a key's time has come; of those with the same time, the first that was added is first.
type Due = (Instant, u64);

struct Item<T> {
    key: T,
    hash: u64,
    group: u64,
    stage: Stage,
    delay: Option<Delay>,
    failures: u32,
    /// In `idle`, by when.
    forgotten: Option<Instant>,
}

#[derive(Clone, Copy)]
enum Stage {
    Idle,
    Ready { place: Place, since: Instant },
    Running { since: Instant, again: Option<Again> },
}

/// An addition of a key that is worked on.
#[derive(Clone, Copy)]
struct Again {
    priority: Priority,
    since: Instant,
}

#[derive(Clone, Copy)]
struct Delay {
    due: Due,
    priority: Priority,
    /// Only because it failed: nothing is left of it when the failures are forgotten.
    is_retry: bool,
}

/// What came of asking for the next key.
pub(super) enum Next<T> {
    /// It is to be worked on.
    Key(Number, T, Priority),
    /// Nothing is ready before this, or at all.
    Later(Option<Instant>),
    /// Nothing will ever be.
    Over,
}

impl<T> Schedule<T> {
    /// When the first delay is over.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((at, _), _)| *at)
    }
}

/// So many items are kept room for without a look whether that is too much.
const FEW: usize = 256;

const GIVEN_OUT: &str = "a number that was given out";

impl<T: Clone + Eq> Schedule<T> {
    pub(super) fn new(settings: RetrySettings, bucket: Option<Bucket>) -> Self {
        Self {
            settings,
            bucket,
            numbers: HashTable::new(),
            items: Vec::new(),
            vacant: Vec::new(),
            ready: Order::default(),
            delayed: BTreeMap::new(),
            running: BTreeSet::new(),
            idle: BTreeSet::new(),
            again: 0,
            sequence: 0,
            closed: false,
            adds: 0,
            retries: 0,
            queued: Durations::default(),
            worked: Durations::default(),
            fresh: 0,
            gone: Vec::new(),
        }
    }

    /// The number of a key; it has one from now on.
    fn number(&mut self, Named { key, hash, group }: Named<T>) -> Number {
        if let Some(number) = self.find(&key, hash) {
            self.gone.push(key);
            return number;
        }
        let item = Item { key, hash, group, stage: Stage::Idle, delay: None, failures: 0, forgotten: None };
        let is_vacant = |number: &Number| self.items.get(*number as usize).is_some_and(Option::is_none);
        let number = std::iter::from_fn(|| self.vacant.pop()).find(is_vacant).unwrap_or(self.items.len() as Number);
        match self.items.get_mut(number as usize) {
            Some(place) => *place = Some(item),
            None => self.items.push(Some(item)),
        }
        let Self { numbers, items, .. } = self;
        numbers.insert_unique(hash, number, |other| hash_in(items, *other));
        number
    }

    fn find(&self, key: &T, hash: u64) -> Option<Number> {
        let is = |number: &Number| self.items[*number as usize].as_ref().is_some_and(|item| item.key == *key);
        self.numbers.find(hash, is).copied()
    }

    fn item(&mut self, number: Number) -> &mut Item<T> {
        self.items[number as usize].as_mut().expect(GIVEN_OUT)
    }

    /// Adds a key.
    pub(super) fn add(&mut self, key: Named<T>, priority: Priority, now: Instant) {
        if self.closed {
            self.gone.push(key.key);
            return;
        }
        let number = self.number(key);
        self.add_number(number, priority, now);
    }

    fn add_number(&mut self, number: Number, priority: Priority, since: Instant) {
        let item = self.items[number as usize].as_mut().expect(GIVEN_OUT);
        match item.stage {
            Stage::Idle => {
                let place = self.ready.push(number, priority, item.group);
                item.stage = Stage::Ready { place, since };
                self.adds += 1;
                self.fresh += 1;
                if let Some(forgotten) = item.forgotten.take() {
                    self.idle.remove(&(forgotten, number));
                }
            }
            Stage::Ready { place, since } => {
                if priority > place.priority() {
                    self.ready.remove(place);
                    let place = self.ready.push(number, priority, item.group);
                    item.stage = Stage::Ready { place, since };
                }
            }
            Stage::Running { since: begun, again } => {
                if again.is_none() {
                    self.adds += 1;
                    self.again += 1;
                }
                let before = again.unwrap_or(Again { priority, since });
                let again = Again { priority: before.priority.max(priority), ..before };
                item.stage = Stage::Running { since: begun, again: Some(again) };
            }
        }
    }

    /// Adds a key when `delay` is over.
    pub(super) fn add_after(&mut self, key: Named<T>, priority: Priority, delay: Duration, now: Instant) {
        if self.closed {
            self.gone.push(key.key);
            return;
        }
        self.retries += 1;
        let number = self.number(key);
        self.delay(number, priority, now + delay, false);
    }

    fn delay(&mut self, number: Number, priority: Priority, at: Instant, is_retry: bool) {
        self.sequence += 1;
        let mut delay = Delay { due: (at, self.sequence), priority, is_retry };
        let item = self.items[number as usize].as_mut().expect(GIVEN_OUT);
        if let Some(other) = item.delay {
            delay.due = delay.due.min(other.due);
            delay.priority = delay.priority.max(other.priority);
            delay.is_retry &= other.is_retry;
            self.delayed.remove(&other.due);
        }
        item.delay = Some(delay);
        self.delayed.insert(delay.due, number);
        if let Some(forgotten) = item.forgotten.take() {
            self.idle.remove(&(forgotten, number));
        }
    }

    /// Counts a failure of a key that is worked on, and adds it again when its wait is over; returns how long that is.
    pub(super) fn retry(&mut self, number: Number, priority: Priority, now: Instant, random: u64) -> Duration {
        let settings = self.settings;
        let item = self.item(number);
        item.failures = item.failures.saturating_add(1);
        let own = settings.wait(item.failures, random);
        let wait = self.bucket.as_mut().map_or(own, |bucket| own.max(bucket.take(now)));
        if !self.closed {
            self.retries += 1;
            self.delay(number, priority, now + wait, true);
        }
        wait
    }

    /// How often a key has failed in a row.
    pub(super) fn failures(&self, key: &T, hash: u64) -> u32 {
        let item = self.find(key, hash).and_then(|number| self.items[number as usize].as_ref());
        item.map_or(0, |item| item.failures)
    }

    /// Forgets the failures of a key, and the retry that waits because of them.
    pub(super) fn forget(&mut self, key: &T, hash: u64, now: Instant) {
        if let Some(number) = self.find(key, hash) {
            self.forget_number(number);
            self.release(number, now);
        }
    }

    /// The same of one that is worked on.
    pub(super) fn forget_number(&mut self, number: Number) {
        let item = self.items[number as usize].as_mut().expect(GIVEN_OUT);
        item.failures = 0;
        if let Some(delay) = item.delay.filter(|delay| delay.is_retry) {
            self.delayed.remove(&delay.due);
            item.delay = None;
        }
    }

    /// Makes ready whose time has come, whoever asks.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((due, _), number) = entry.remove_entry();
            let Some(delay) = self.item(number).delay.take() else { continue };
            self.add_number(number, delay.priority, due);
        }
        while let Some(&(at, number)) = self.idle.first().filter(|(at, _)| *at <= now) {
            self.idle.remove(&(at, number));
            self.item(number).forgotten = None;
            self.item(number).failures = 0;
            self.release(number, now);
        }
    }

    /// Takes what is next.
    pub(super) fn next(&mut self, now: Instant) -> Next<T> {
        let Some((place, number)) = self.ready.next() else {
            return if self.is_over() { Next::Over } else { Next::Later(self.next_due()) };
        };
        let item = self.items[number as usize].as_mut().expect(GIVEN_OUT);
        let Stage::Ready { since, .. } = item.stage else { unreachable!("what is in order is ready") };
        // The user's code: where it panics, nothing has happened yet.
        let key = item.key.clone();
        item.stage = Stage::Running { since: now, again: None };
        self.ready.take(place);
        self.running.insert((now, number));
        self.queued.add(now.since(since));
        Next::Key(number, key, place.priority())
    }

    /// The work on a key has ended.
    pub(super) fn done(&mut self, number: Number, now: Instant) {
        let item = self.items[number as usize].as_mut().expect(GIVEN_OUT);
        let Stage::Running { since, again } = std::mem::replace(&mut item.stage, Stage::Idle) else {
            unreachable!("what is done was worked on")
        };
        self.running.remove(&(since, number));
        self.worked.add(now.since(since));
        let Some(again) = again else { return self.release(number, now) };
        self.again -= 1;
        self.fresh += 1;
        let place = self.ready.push(number, again.priority, item.group);
        item.stage = Stage::Ready { place, since: again.since };
    }

    /// Lets go of a key with which nothing is to be done; its failures are remembered for a while.
    fn release(&mut self, number: Number, now: Instant) {
        let Some(item) = self.items[number as usize].as_mut() else { return };
        if !matches!(item.stage, Stage::Idle) || item.delay.is_some() {
            return;
        }
        if let Some(forgotten) = item.forgotten.take() {
            self.idle.remove(&(forgotten, number));
        }
        if item.failures > 0 && !self.closed {
            let forgotten = now + self.settings.memory();
            item.forgotten = Some(forgotten);
            self.idle.insert((forgotten, number));
            return;
        }
        if let Ok(entry) = self.numbers.find_entry(item.hash, |other| *other == number) {
            entry.remove();
        }
        self.gone.extend(self.items[number as usize].take().map(|item| item.key));
        self.vacant.push(number);
        self.shrink();
    }

    /// Gives back what a burst of keys took up.
    fn shrink(&mut self) {
        while self.items.last().is_some_and(Option::is_none) {
            self.items.pop();
        }
        let enough = FEW.max(2 * self.items.len());
        if self.items.capacity() > 2 * enough {
            self.items.shrink_to(enough);
        }
        if self.vacant.len() > enough {
            let items = &self.items;
            self.vacant.retain(|number| (*number as usize) < items.len());
            self.vacant.shrink_to(enough);
        }
        let enough = FEW.max(2 * self.numbers.len());
        if self.numbers.capacity() > 4 * enough {
            let Self { numbers, items, .. } = self;
            numbers.shrink_to(enough, |other| hash_in(items, *other));
        }
    }

    /// Takes no more keys, and lets go of those that are delayed; returns how many those were.
    pub(super) fn close(&mut self, now: Instant) -> usize {
        self.closed = true;
        let delayed = std::mem::take(&mut self.delayed);
        for number in delayed.values() {
            self.item(*number).delay = None;
            self.release(*number, now);
        }
        for (_, number) in std::mem::take(&mut self.idle) {
            self.item(number).forgotten = None;
            self.release(number, now);
        }
        delayed.len()
    }

    /// Whether it takes no more keys.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether nothing will ever be ready again.
    pub(super) fn is_over(&self) -> bool {
        self.closed && self.again == 0 && self.ready.is_empty()
    }

    /// Whether nothing is ready and nothing is worked on.
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.running.is_empty()
    }

    /// How many are ready.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// How many keys something is known of.
    pub(super) fn known(&self) -> usize {
        self.numbers.len()
    }

    /// How many have become ready since it was last asked, and still are.
    pub(super) fn fresh(&mut self) -> usize {
        std::mem::take(&mut self.fresh).min(self.ready.len())
    }

    /// The keys that were let go of since it was last asked.
    pub(super) fn gone(&mut self) -> Vec<T> {
        std::mem::take(&mut self.gone)
    }

    pub(super) fn figures(&self, now: Instant) -> WorkqueueStats {
        let took = |(since, _): &(Instant, Number)| now.since(*since);
        WorkqueueStats {
            depth: self.ready.len() + self.again,
            delayed: self.delayed.len(),
            running: self.running.len(),
            adds: self.adds,
            retries: self.retries,
            queued: self.queued.clone(),
            worked: self.worked.clone(),
            unfinished: self.running.iter().map(took).sum(),
            longest_running: self.running.first().map_or(Duration::ZERO, took),
        }
    }
}

fn hash_in<T>(items: &[Option<Item<T>>], number: Number) -> u64 {
    items[number as usize].as_ref().map_or(0, |item| item.hash)
}
