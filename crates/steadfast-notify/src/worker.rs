//! The task that delivers to one sink: an outbox with a clock, and a stream at its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::chance::Chance;
use crate::dead::{DeadLetters, Letter};
use crate::message::Message;
use crate::notice::{Notice, Tell};
use crate::outbox::{Delivery, Outbox, Shipment};
use crate::outcome::Outcome;
use crate::sink::Stream;
use crate::ticket::Ticket;

/// How many messages may wait; whoever has more waits too, and its informer keeps what comes meanwhile.
const MOST_WAITING: usize = 10_000;

/// Delivers to one sink.
pub(crate) struct Courier {
    name: String,
    state: Mutex<State>,
    /// There is something new to do.
    changed: Notify,
    /// There is room again, or nothing waits any more.
    settled: Notify,
    begun: Instant,
    dead: Arc<DeadLetters>,
    tell: Arc<Tell>,
}

struct State {
    outbox: Outbox<Ticket>,
    stream: Arc<dyn Stream>,
    chance: Chance,
    /// Whether the last attempt failed, so that it was told.
    is_troubled: bool,
    delivered: u64,
    given_up: u64,
}

/// What a courier has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Messages delivered.
    pub delivered: u64,
    /// Messages that became dead letters.
    pub given_up: u64,
    /// Messages that are not settled.
    pub waiting: usize,
    /// How long the oldest of these has waited.
    pub oldest: Option<Duration>,
}

impl Courier {
    pub(crate) fn new(
        name: &str,
        delivery: Delivery,
        stream: Arc<dyn Stream>,
        chance: Chance,
        dead: Arc<DeadLetters>,
        tell: Arc<Tell>,
    ) -> Arc<Self> {
        let state =
            State { outbox: Outbox::new(delivery), stream, chance, is_troubled: false, delivered: 0, given_up: 0 };
        Arc::new(Self {
            name: name.to_owned(),
            state: Mutex::new(state),
            changed: Notify::new(),
            settled: Notify::new(),
            begun: Instant::now(),
            dead,
            tell,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it delivers so; what waits stays.
    pub(crate) fn become_as(&self, delivery: Delivery, stream: Arc<dyn Stream>) {
        let mut state = self.state();
        state.outbox.deliver_as(delivery);
        state.stream = stream;
        drop(state);
        self.changed.notify_one();
    }

    pub(crate) fn counts(&self) -> SinkCounts {
        let state = self.state();
        let oldest = state.outbox.oldest().map(|put| self.begun.elapsed().saturating_sub(put));
        SinkCounts { delivered: state.delivered, given_up: state.given_up, waiting: state.outbox.len(), oldest }
    }

    /// Waits until there is room, and puts a message behind the others.
    pub(crate) async fn put(&self, message: Arc<Message>, ticket: Ticket) {
        loop {
            let room = self.settled.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            {
                let mut state = self.state();
                if state.outbox.len() < MOST_WAITING {
                    state.outbox.put(self.begun.elapsed(), message, ticket);
                    break;
                }
            }
            room.await;
        }
        self.changed.notify_one();
    }

    /// Waits until nothing waits to be delivered.
    pub(crate) async fn until_empty(&self) {
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if self.state().outbox.is_empty() {
                return;
            }
            settled.await;
        }
    }

    /// Delivers, for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut attempts = JoinSet::new();
        let mut numbers: HashMap<Id, u64> = HashMap::new();
        loop {
            let (shipments, stream, next) = {
                let mut state = self.state();
                let shipments = state.outbox.take(self.begun.elapsed());
                (shipments, state.stream.clone(), state.outbox.next())
            };
            for Shipment { number, messages } in shipments {
                let stream = stream.clone();
                let attempt = attempts.spawn(async move { stream.deliver(&messages).await });
                numbers.insert(attempt.id(), number);
            }
            let waiting = async {
                match next {
                    Some(next) => sleep_until(self.begun + next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(ended) = attempts.join_next_with_id() => {
                    let (id, outcome) = match ended {
                        Ok((id, outcome)) => (id, outcome),
                        Err(error) => {
                            (error.id(), Outcome::Retry { after: None, why: "the attempt panicked".to_owned() })
                        }
                    };
                    if let Some(number) = numbers.remove(&id) {
                        self.settle(number, &outcome);
                    }
                }
                () = self.changed.notified() => {}
                () = waiting => {}
            }
        }
    }

    fn settle(&self, number: u64, outcome: &Outcome) {
        let now = self.begun.elapsed();
        let mut notices = Vec::new();
        let settled = {
            let state = &mut *self.state();
            let bury = |message: &Message, why: &str, attempts: u32| {
                let (sink, why) = (self.name.clone(), why.to_owned());
                let letter = Letter { sink: sink.clone(), why: why.clone(), attempts, message: message.clone() };
                match self.dead.add(&letter) {
                    Ok(()) => {
                        notices.push(Notice::GivenUp { sink, id: letter.message.id, why, attempts });
                        true
                    }
                    Err(untaken) => {
                        let file = self.dead.file().to_owned();
                        notices.push(Notice::NoPlace { sink, file, why: untaken.to_string() });
                        false
                    }
                }
            };
            let chance = &mut state.chance;
            let settled = state.outbox.settle(now, number, outcome, || chance.next(), bury);
            for settled in &settled {
                *(if settled.is_delivered { &mut state.delivered } else { &mut state.given_up }) += 1;
            }
            let (sink, waiting) = (self.name.clone(), state.outbox.len());
            match outcome {
                Outcome::Retry { why, .. } if !state.is_troubled => {
                    state.is_troubled = true;
                    notices.push(Notice::Troubled { sink, why: why.clone(), waiting });
                }
                Outcome::Delivered if state.is_troubled => {
                    state.is_troubled = false;
                    notices.push(Notice::Recovered { sink, waiting });
                }
                _ => {}
            }
            settled
        };
        for notice in notices {
            (self.tell)(notice);
        }
        settled.iter().flat_map(|settled| &settled.tokens).for_each(Ticket::done);
        self.settled.notify_waiters();
    }
}

/// How a sink is delivered to, as it is configured.
pub(crate) fn delivery(sink: &crate::config::sinks::Sink) -> Delivery {
    use crate::config::sinks::Mode;
    let batched = sink.webhook.as_ref().filter(|webhook| webhook.mode == Mode::Batched);
    Delivery {
        debounce: sink.debounce.map_or(Duration::ZERO, |span| span.0),
        rate: sink.rate.map(|rate| (rate.per_second, rate.burst)),
        first: sink.retry.first.0,
        longest: sink.retry.longest.0,
        give_up_after: sink.retry.give_up_after.0,
        // Lines come in their order.
        concurrency: if sink.stdout.is_some() { 1 } else { sink.concurrency },
        batch: if sink.stdout.is_some() { 100 } else { batched.map_or(1, |webhook| webhook.batch) },
    }
}
