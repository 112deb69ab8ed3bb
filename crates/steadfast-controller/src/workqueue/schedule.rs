//! What is ready, delayed and worked on. It knows no clock: whoever asks says what time it is.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use steadfast::environment::Instant;

use super::figures::{Durations, WorkqueueFigures};
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
    hasher: RandomState,
    numbers: HashTable<Number>,
    items: Vec<Option<Item<T>>>,
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
}

/// When a key's time has come; of those with the same time, the first that was added is first.
type Due = (Instant, u64);

struct Item<T> {
    key: T,
    group: Option<u64>,
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

impl<T: Clone + Eq + Hash> Schedule<T> {
    pub(super) fn new(settings: RetrySettings, bucket: Option<Bucket>) -> Self {
        Self {
            settings,
            bucket,
            hasher: RandomState::new(),
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
        }
    }

    /// The number of a key; it has one from now on.
    fn number(&mut self, key: T, group: Option<u64>) -> Number {
        let Self { items, numbers, hasher, vacant, .. } = self;
        let of = |number: &Number| items[*number as usize].as_ref().map(|item| &item.key);
        let hash = hasher.hash_one(&key);
        let rehash = |number: &Number| of(number).map_or(0, |key| hasher.hash_one(key));
        match numbers.entry(hash, |number| of(number) == Some(&key), rehash) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(unknown) => {
                let number = vacant.pop().unwrap_or(items.len() as Number);
                unknown.insert(number);
                let item = Item { key, group, stage: Stage::Idle, delay: None, failures: 0, forgotten: None };
                match items.get_mut(number as usize) {
                    Some(place) => *place = Some(item),
                    None => items.push(Some(item)),
                }
                number
            }
        }
    }

    fn find(&self, key: &T) -> Option<Number> {
        let is = |number: &Number| self.items[*number as usize].as_ref().is_some_and(|item| item.key == *key);
        self.numbers.find(self.hasher.hash_one(key), is).copied()
    }

    fn item(&mut self, number: Number) -> &mut Item<T> {
        self.items[number as usize].as_mut().expect("a number that was given out")
    }

    /// Adds a key; returns whether somebody who waits can have it now.
    pub(super) fn add(&mut self, key: T, group: Option<u64>, priority: Priority, now: Instant) -> bool {
        if self.closed {
            return false;
        }
        let number = self.number(key, group);
        self.add_number(number, priority, now)
    }

    fn add_number(&mut self, number: Number, priority: Priority, now: Instant) -> bool {
        let item = self.items[number as usize].as_mut().expect("a number that was given out");
        match item.stage {
            Stage::Idle => {
                let place = self.ready.push(number, priority, item.group);
                item.stage = Stage::Ready { place, since: now };
                self.adds += 1;
                if let Some(forgotten) = item.forgotten.take() {
                    self.idle.remove(&(forgotten, number));
                }
                true
            }
            Stage::Ready { place, since } => {
                if priority > place.priority() {
                    self.ready.remove(place, item.group);
                    let place = self.ready.push(number, priority, item.group);
                    item.stage = Stage::Ready { place, since };
                }
                false
            }
            Stage::Running { since, again } => {
                if again.is_none() {
                    self.adds += 1;
                    self.again += 1;
                }
                let before = again.unwrap_or(Again { priority, since: now });
                let again = Again { priority: before.priority.max(priority), ..before };
                item.stage = Stage::Running { since, again: Some(again) };
                false
            }
        }
    }

    /// Adds a key when `delay` is over; returns by when that is, if that is before all others.
    pub(super) fn add_after(
        &mut self,
        key: T,
        group: Option<u64>,
        priority: Priority,
        delay: Duration,
        now: Instant,
    ) -> Option<Instant> {
        if self.closed {
            return None;
        }
        self.retries += 1;
        let number = self.number(key, group);
        self.delay(number, priority, now + delay, false)
    }

    fn delay(&mut self, number: Number, priority: Priority, at: Instant, is_retry: bool) -> Option<Instant> {
        self.sequence += 1;
        let before = self.next_due();
        let mut delay = Delay { due: (at, self.sequence), priority, is_retry };
        let item = self.items[number as usize].as_mut().expect("a number that was given out");
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
        (before.is_none_or(|before| delay.due.0 < before)).then_some(delay.due.0)
    }

    /// Counts a failure of a key that is worked on, and adds it again when its wait is over; returns how long that is, and
    /// by when it is over if that is before all others.
    pub(super) fn retry(
        &mut self,
        number: Number,
        priority: Priority,
        now: Instant,
        random: u64,
    ) -> (Duration, Option<Instant>) {
        let settings = self.settings;
        let item = self.item(number);
        item.failures = item.failures.saturating_add(1);
        let own = settings.wait(item.failures, random);
        let wait = self.bucket.as_mut().map_or(own, |bucket| own.max(bucket.take(now)));
        if self.closed {
            return (wait, None);
        }
        self.retries += 1;
        (wait, self.delay(number, priority, now + wait, true))
    }

    /// How often a key has failed in a row.
    pub(super) fn failures(&self, key: &T) -> u32 {
        let item = self.find(key).and_then(|number| self.items[number as usize].as_ref());
        item.map_or(0, |item| item.failures)
    }

    /// Forgets the failures of a key, and the retry that waits because of them.
    pub(super) fn forget(&mut self, key: &T, now: Instant) {
        if let Some(number) = self.find(key) {
            self.forget_number(number);
            self.release(number, now);
        }
    }

    /// The same of one that is worked on.
    pub(super) fn forget_number(&mut self, number: Number) {
        let item = self.items[number as usize].as_mut().expect("a number that was given out");
        item.failures = 0;
        if let Some(delay) = item.delay.filter(|delay| delay.is_retry) {
            self.delayed.remove(&delay.due);
            item.delay = None;
        }
    }

    /// Makes ready whose time has come; returns how many can be worked on now.
    fn wake(&mut self, now: Instant) -> usize {
        let mut ready = 0;
        while let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= now) {
            let number = entry.remove();
            let Some(delay) = self.item(number).delay.take() else { continue };
            ready += usize::from(self.add_number(number, delay.priority, now));
        }
        // What nobody has heard of for long: as much at a time as may have come since.
        while let Some(&(at, number)) = self.idle.first().filter(|(at, _)| *at <= now) {
            self.idle.remove(&(at, number));
            self.item(number).forgotten = None;
            self.item(number).failures = 0;
            self.release(number, now);
        }
        ready
    }

    /// Takes what is next; also returns how many more have become ready.
    pub(super) fn next(&mut self, now: Instant) -> (Next<T>, usize) {
        let had = self.ready.len();
        let woken = self.wake(now);
        let items = &self.items;
        let group = |number: Number| items[number as usize].as_ref().and_then(|item| item.group);
        let Some(number) = self.ready.pop(group) else {
            if self.closed && self.again == 0 {
                return (Next::Over, 0);
            }
            return (Next::Later(self.next_due()), 0);
        };
        let item = self.items[number as usize].as_mut().expect("a number that was given out");
        let Stage::Ready { place, since } = item.stage else { unreachable!("what is in order is ready") };
        item.stage = Stage::Running { since: now, again: None };
        self.running.insert((now, number));
        self.queued.add(now.since(since));
        // Where there were none before, it is one of those.
        (Next::Key(number, item.key.clone(), place.priority()), woken - usize::from(had == 0))
    }

    /// The work on a key has ended; returns whether it can be worked on again now.
    pub(super) fn done(&mut self, number: Number, now: Instant) -> bool {
        let item = self.items[number as usize].as_mut().expect("a number that was given out");
        let Stage::Running { since, again } = std::mem::replace(&mut item.stage, Stage::Idle) else {
            unreachable!("what is done was worked on")
        };
        self.running.remove(&(since, number));
        self.worked.add(now.since(since));
        let Some(again) = again else {
            self.release(number, now);
            return false;
        };
        self.again -= 1;
        let place = self.ready.push(number, again.priority, item.group);
        item.stage = Stage::Ready { place, since: again.since };
        true
    }

    /// Lets go of a key with which nothing is to be done; its failures are remembered for a while.
    fn release(&mut self, number: Number, now: Instant) {
        let Self { items, numbers, hasher, vacant, idle, settings, .. } = self;
        let Some(item) = items[number as usize].as_mut() else { return };
        if !matches!(item.stage, Stage::Idle) || item.delay.is_some() {
            return;
        }
        if let Some(forgotten) = item.forgotten.take() {
            idle.remove(&(forgotten, number));
        }
        if item.failures > 0 {
            let forgotten = now + settings.memory();
            item.forgotten = Some(forgotten);
            idle.insert((forgotten, number));
            return;
        }
        let hash = hasher.hash_one(&item.key);
        if let Ok(entry) = numbers.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        items[number as usize] = None;
        vacant.push(number);
    }

    /// Takes no more keys, and lets go of those that are delayed; returns how many those were.
    pub(super) fn close(&mut self, now: Instant) -> usize {
        self.closed = true;
        let delayed = std::mem::take(&mut self.delayed);
        for number in delayed.values() {
            self.item(*number).delay = None;
            self.release(*number, now);
        }
        delayed.len()
    }

    /// Whether it takes no more keys.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
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

    pub(super) fn figures(&self, now: Instant) -> WorkqueueFigures {
        let took = |(since, _): &(Instant, Number)| now.since(*since);
        WorkqueueFigures {
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
