//! What waits to be delivered to one sink: what goes next, and when.
//!
//! It has no clock, no task and no random source: moments are given as the time since a beginning of the caller's choice,
//! chance as numbers. What has one name is one lane: its messages go one after the other, in order, and wait for nobody
//! else's.

mod bucket;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::message::{Lane, Message};
use crate::outcome::Outcome;
use bucket::Bucket;

/// How messages are delivered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivery {
    /// How long a message waits for a newer one of the same rule and object, which takes its place.
    pub debounce: Duration,
    /// How many attempts a second, and how many at once.
    pub rate: Option<(f64, u32)>,
    /// The wait before the second attempt.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// How old a message may become before it is given up.
    pub give_up_after: Duration,
    /// How many shipments may be under way at a time.
    pub concurrency: usize,
    /// How many messages a shipment may have.
    pub batch: usize,
}

/// Messages that are tried together.
#[derive(Clone, Debug)]
pub struct Shipment {
    /// Tells it from others.
    pub number: u64,
    /// In order.
    pub messages: Vec<Arc<Message>>,
}

/// What waits to be delivered; `T` is whatever is to be told when a message is settled.
pub struct Outbox<T> {
    delivery: Delivery,
    lanes: HashMap<Lane, VecDeque<Waiting<T>>>,
    /// The lanes of which nothing is under way, by when their first message may go.
    ready: BTreeSet<(Duration, u64, Lane)>,
    under_way: HashMap<u64, Vec<(Lane, Waiting<T>)>>,
    bucket: Bucket,
    waiting: usize,
    /// Numbers messages and shipments.
    next: u64,
}

struct Waiting<T> {
    message: Arc<Message>,
    /// Which message it is: lanes that may go at once go in this order.
    number: u64,
    put: Duration,
    not_before: Duration,
    attempts: u32,
    /// Whether it was refused among others, and is to be tried by itself.
    alone: bool,
    tokens: Vec<T>,
}

/// A message that is settled.
pub struct Settled<T> {
    /// The message.
    pub message: Arc<Message>,
    /// What was put with it, and with those whose place it took.
    pub tokens: Vec<T>,
    /// Whether it was delivered; else it was given up.
    pub is_delivered: bool,
}

impl<T> Outbox<T> {
    /// Nothing waits yet.
    pub fn new(delivery: Delivery) -> Self {
        Self {
            delivery,
            lanes: HashMap::new(),
            ready: BTreeSet::new(),
            under_way: HashMap::new(),
            bucket: Bucket::new(delivery.rate),
            waiting: 0,
            next: 0,
        }
    }

    /// From now on messages are delivered so.
    pub fn deliver_as(&mut self, delivery: Delivery) {
        if delivery.rate != self.delivery.rate {
            self.bucket = Bucket::new(delivery.rate);
        }
        self.delivery = delivery;
    }

    /// How many messages are not settled.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether all is settled.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// When the oldest message was put that is not settled.
    pub fn oldest(&self) -> Option<Duration> {
        let queued = self.lanes.values().filter_map(VecDeque::front).map(|waiting| waiting.put);
        queued.chain(self.under_way.values().flatten().map(|(_, waiting)| waiting.put)).min()
    }

    /// Puts a message behind those of the same object.
    pub fn put(&mut self, now: Duration, message: Arc<Message>, token: T) {
        let lane = message.lane();
        let debounce = self.delivery.debounce;
        let queue = self.lanes.entry(lane.clone()).or_default();
        if !debounce.is_zero()
            && let Some(last) = queue.back_mut()
            && last.attempts == 0
            && last.message.rule == message.rule
            && last.message.uid == message.uid
        {
            last.message = message;
            last.tokens.push(token);
            return;
        }
        let number = self.next;
        self.next += 1;
        let not_before = now + debounce;
        queue.push_back(Waiting {
            message,
            number,
            put: now,
            not_before,
            attempts: 0,
            alone: false,
            tokens: vec![token],
        });
        self.waiting += 1;
        let is_under_way = self.under_way.values().flatten().any(|(other, _)| *other == lane);
        if queue.len() == 1 && !is_under_way {
            self.ready.insert((not_before, number, lane));
        }
    }

    /// What goes now; each has to be settled.
    pub fn take(&mut self, now: Duration) -> Vec<Shipment> {
        let mut shipments = Vec::new();
        while self.under_way.len() < self.delivery.concurrency {
            let is_due = self.ready.first().is_some_and(|(at, ..)| *at <= now);
            if !is_due || !self.bucket.take(now) {
                break;
            }
            let items = self.load(now);
            let number = self.next;
            self.next += 1;
            let messages = items.iter().map(|(_, waiting)| waiting.message.clone()).collect();
            self.under_way.insert(number, items);
            shipments.push(Shipment { number, messages });
        }
        shipments
    }

    /// Takes as many messages as a shipment may have from the lanes that may go.
    fn load(&mut self, now: Duration) -> Vec<(Lane, Waiting<T>)> {
        let mut items: Vec<(Lane, Waiting<T>)> = Vec::new();
        while items.len() < self.delivery.batch
            && let Some((at, number, lane)) = self.ready.pop_first()
        {
            let queue = self.lanes.get_mut(&lane).expect("a lane that may go has messages");
            let is_alone = queue.front().is_some_and(|first| first.alone);
            if at > now || (is_alone && !items.is_empty()) {
                self.ready.insert((at, number, lane));
                break;
            }
            while items.len() < self.delivery.batch
                && queue.front().is_some_and(|first| first.not_before <= now && first.alone == is_alone)
                && let Some(first) = queue.pop_front()
            {
                items.push((lane.clone(), first));
                if is_alone {
                    return items;
                }
            }
        }
        items
    }

    /// When there may be something to take, if nothing else happens before.
    pub fn next(&self) -> Option<Duration> {
        if self.under_way.len() >= self.delivery.concurrency {
            return None;
        }
        let (at, ..) = self.ready.first()?;
        Some((*at).max(self.bucket.next()))
    }

    /// Takes in what came of a shipment. `chance` is a number from zero to one. What is given up is handed to `bury`, which
    /// says whether it has a place for it; while it has not, the message is tried on.
    pub fn settle(
        &mut self,
        now: Duration,
        number: u64,
        outcome: &Outcome,
        mut chance: impl FnMut() -> f64,
        mut bury: impl FnMut(&Message, &str, u32) -> bool,
    ) -> Vec<Settled<T>> {
        let Some(items) = self.under_way.remove(&number) else { return Vec::new() };
        let were_several = items.len() > 1;
        let mut settled = Vec::new();
        let mut lanes: Vec<Lane> = Vec::new();
        let mut back: Vec<(Lane, Waiting<T>)> = Vec::new();
        for (lane, mut waiting) in items {
            if !lanes.contains(&lane) {
                lanes.push(lane.clone());
            }
            waiting.attempts += 1;
            let is_old = now.saturating_sub(waiting.put) >= self.delivery.give_up_after;
            let (ends, is_delivered) = match outcome {
                Outcome::Delivered => (true, true),
                // Which of them is at fault nobody knows: each is tried by itself.
                Outcome::Refused { .. } if were_several => {
                    (waiting.alone, waiting.not_before) = (true, now);
                    (false, false)
                }
                Outcome::Refused { why } => (bury(&waiting.message, why, waiting.attempts), false),
                Outcome::Retry { why, .. } if is_old => (bury(&waiting.message, why, waiting.attempts), false),
                Outcome::Retry { .. } => (false, false),
            };
            if ends {
                self.waiting -= 1;
                settled.push(Settled { message: waiting.message, tokens: waiting.tokens, is_delivered });
                continue;
            }
            if !(were_several && matches!(outcome, Outcome::Refused { .. })) {
                waiting.not_before = now + self.wait(outcome, &waiting, now, chance());
            }
            back.push((lane, waiting));
        }
        // In front of what came meanwhile, in their order.
        for (lane, waiting) in back.into_iter().rev() {
            self.lanes.entry(lane).or_default().push_front(waiting);
        }
        for lane in lanes {
            match self.lanes.get(&lane).and_then(VecDeque::front) {
                Some(first) => drop(self.ready.insert((first.not_before, first.number, lane))),
                None => drop(self.lanes.remove(&lane)),
            }
        }
        settled
    }

    /// How long to wait before the next attempt: twice as long each time, half of it left to chance; what the other side
    /// asks for, at least; and no longer than until the message is too old.
    fn wait(&self, outcome: &Outcome, waiting: &Waiting<T>, now: Duration, chance: f64) -> Duration {
        let doubled = self.delivery.first.saturating_mul(1 << waiting.attempts.saturating_sub(1).min(20));
        let jittered = doubled.min(self.delivery.longest).mul_f64(0.5 + chance / 2.0);
        let left = (waiting.put + self.delivery.give_up_after).saturating_sub(now);
        match outcome {
            Outcome::Retry { after: Some(after), .. } => jittered.max(*after),
            // One more attempt before the end.
            _ if !left.is_zero() => jittered.min(left),
            _ => jittered,
        }
    }
}
