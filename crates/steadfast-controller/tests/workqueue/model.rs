//! Comparison of the queue with a naive model, with random steps in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use steadfast_controller::{Priority, Work, Workqueue};
use tokio::runtime::Builder;
use tokio::time::{Instant, advance};

use super::{builder, take_ready};

/// Time for which failures of an idle key are remembered.
const FAILURE_MEMORY: Duration = Duration::from_secs(20);

/// Number of urgent keys in a row before a less urgent key.
const MAX_CONSECUTIVE_URGENT: u32 = 16;

#[derive(Clone, Debug)]
enum Step {
    Add(u32, i32),
    AddAfter(u32, u64),
    Forget(u32),
    Next,
    /// Ends the processing of one running key.
    End(usize, End),
    Advance(u64),
    ShutDown,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Drop,
    Finish,
    Retry,
    RequeueAfter(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        2 => Just(End::Drop),
        2 => Just(End::Finish),
        3 => Just(End::Retry),
        1 => (1..2000u64).prop_map(End::RequeueAfter),
    ];
    prop_oneof![
        60 => (0..30u32, -2..2i32).prop_map(|(key, priority)| Step::Add(key, priority)),
        20 => (0..30u32, 0..3000u64).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        5 => (0..30u32).prop_map(Step::Forget),
        60 => Just(Step::Next),
        40 => (any::<usize>(), end).prop_map(|(which, end)| Step::End(which, end)),
        20 => (1..2000u64).prop_map(Step::Advance),
        2 => (20_000..60_000u64).prop_map(Step::Advance),
        1 => Just(Step::ShutDown),
    ]
}

/// Naive model with linear searches.
#[derive(Default)]
struct Model {
    /// In insertion order. Higher priorities are removed first.
    ready: Vec<Ready>,
    delayed: BTreeMap<u32, Delayed>,
    /// Running keys with their start.
    running: BTreeMap<u32, Instant>,
    /// Running keys with a pending requeue.
    requeued: BTreeMap<u32, Ready>,
    failures: BTreeMap<u32, u32>,
    /// Idle keys with failures, each with the time since which the key is idle.
    idle: BTreeMap<u32, Instant>,
    consecutive_urgent: u32,
    closed: bool,
    adds: u64,
    retries: u64,
    queued: Duration,
    worked: Duration,
    /// Sequence number of the next delayed key, which orders keys that are due at the same time.
    sequence: u64,
}

#[derive(Clone, Copy)]
struct Ready {
    key: u32,
    priority: i32,
    since: Instant,
}

#[derive(Clone, Copy)]
struct Delayed {
    at: Instant,
    sequence: u64,
    priority: i32,
    is_retry: bool,
}

impl Model {
    fn add(&mut self, key: u32, priority: i32, since: Instant) {
        let new = Ready { key, priority, since };
        if self.running.contains_key(&key) {
            if !self.requeued.contains_key(&key) {
                self.adds += 1;
            }
            let requeued = self.requeued.entry(key).or_insert(new);
            requeued.priority = requeued.priority.max(priority);
        } else if let Some(at) = self.ready.iter().position(|ready| ready.key == key) {
            if priority > self.ready[at].priority {
                let before = self.ready.remove(at);
                self.ready.push(Ready { priority, ..before });
            }
        } else {
            self.adds += 1;
            self.ready.push(new);
        }
    }

    fn delay(&mut self, key: u32, delay: Duration, priority: i32, is_retry: bool) {
        self.retries += 1;
        self.sequence += 1;
        let mut new = Delayed { at: Instant::now() + delay, sequence: self.sequence, priority, is_retry };
        if let Some(old) = self.delayed.get(&key) {
            (new.at, new.sequence) = (new.at, new.sequence).min((old.at, old.sequence));
            new.priority = new.priority.max(old.priority);
            new.is_retry &= old.is_retry;
        }
        self.delayed.insert(key, new);
    }

    fn wake(&mut self) {
        let mut due: Vec<(u32, Delayed)> = self
            .delayed
            .iter()
            .map(|(key, delayed)| (*key, *delayed))
            .filter(|(_, delayed)| delayed.at <= Instant::now())
            .collect();
        due.sort_by_key(|(_, delayed)| (delayed.at, delayed.sequence));
        for (key, delayed) in due {
            self.delayed.remove(&key);
            self.add(key, delayed.priority, delayed.at);
        }
        self.update_idle();
        let forgotten = self.idle.iter().filter(|(_, since)| since.elapsed() >= FAILURE_MEMORY).map(|(key, _)| *key);
        for key in forgotten.collect::<Vec<_>>() {
            self.failures.remove(&key);
        }
    }

    /// Records keys that are idle from now on.
    fn update_idle(&mut self) {
        let is_ready = |key: &u32| self.ready.iter().any(|ready| ready.key == *key);
        let is_busy = |key: &u32| is_ready(key) || self.running.contains_key(key) || self.delayed.contains_key(key);
        let idle: Vec<u32> = self.failures.keys().copied().filter(|key| !is_busy(key)).collect();
        let since = |key: u32| self.idle.get(&key).copied().unwrap_or_else(Instant::now);
        self.idle = idle.into_iter().map(|key| (key, since(key))).collect();
        if self.closed {
            self.failures.retain(|key, _| !self.idle.contains_key(key));
        }
    }

    fn next(&mut self) -> Option<(u32, i32)> {
        let highest = self.ready.iter().map(|ready| ready.priority).max()?;
        let urgent = self.ready.iter().position(|ready| ready.priority == highest)?;
        let other = self.ready.iter().position(|ready| ready.priority < highest);
        let at = match other {
            Some(other) if self.consecutive_urgent >= MAX_CONSECUTIVE_URGENT => {
                self.consecutive_urgent = 0;
                other
            }
            Some(_) => {
                self.consecutive_urgent += 1;
                urgent
            }
            None => {
                self.consecutive_urgent = 0;
                urgent
            }
        };
        let Ready { key, priority, since } = self.ready.remove(at);
        self.running.insert(key, Instant::now());
        self.queued += since.elapsed();
        Some((key, priority))
    }

    /// Returns the number of tracked keys.
    fn tracked(&self) -> usize {
        let keys = self.ready.iter().map(|ready| &ready.key).chain(self.running.keys());
        keys.chain(self.delayed.keys()).chain(self.failures.keys()).collect::<BTreeSet<_>>().len()
    }

    fn forget(&mut self, key: u32) {
        self.failures.remove(&key);
        if self.delayed.get(&key).is_some_and(|delayed| delayed.is_retry) {
            self.delayed.remove(&key);
        }
    }

    fn done(&mut self, key: u32) {
        self.worked += self.running.remove(&key).map_or(Duration::ZERO, |started_at| started_at.elapsed());
        self.ready.extend(self.requeued.remove(&key));
    }
}

/// Runs the steps on the queue and on the model, and compares the visible states after each step.
async fn run_steps(steps: Vec<Step>) {
    let queue: Workqueue<u32> = builder(11).build();
    let mut model = Model::default();
    let mut works: Vec<Work<u32>> = Vec::new();
    for step in steps {
        match step {
            Step::Add(key, priority) => {
                queue.add_with_priority(key, Priority(priority));
                if !model.closed {
                    model.add(key, priority, Instant::now());
                }
            }
            Step::AddAfter(key, delay) => {
                let delay = Duration::from_millis(delay);
                queue.add_after(key, delay);
                if !model.closed {
                    model.delay(key, delay, 0, false);
                }
            }
            Step::Forget(key) => {
                queue.forget(&key);
                model.forget(key);
            }
            Step::Next => {
                let work = take_ready(&queue);
                assert_eq!(work.as_ref().map(|work| (**work, work.priority().0)), model.next());
                works.extend(work);
            }
            Step::End(which, how) if !works.is_empty() => {
                let work = works.swap_remove(which % works.len());
                let (key, priority) = (*work, work.priority().0);
                match how {
                    End::Drop => drop(work),
                    End::Finish => {
                        work.finish();
                        model.forget(key);
                    }
                    End::Retry => {
                        let failures = model.failures.get(&key).map_or(1, |failures| failures + 1);
                        model.failures.insert(key, failures);
                        let wait = work.retry();
                        let longest = Duration::from_millis(100 << (failures - 1).min(20)).min(Duration::from_secs(10));
                        assert!((longest / 2..=longest).contains(&wait), "{wait:?} after {failures} failures");
                        if !model.closed {
                            model.delay(key, wait, priority, true);
                        }
                    }
                    End::RequeueAfter(delay) => {
                        let delay = Duration::from_millis(delay);
                        work.requeue_after(delay);
                        model.forget(key);
                        if !model.closed {
                            model.delay(key, delay, priority, false);
                        }
                    }
                }
                model.done(key);
            }
            Step::End(..) => {}
            Step::Advance(time) => {
                advance(Duration::from_millis(time)).await;
            }
            Step::ShutDown => {
                assert_eq!(queue.shut_down(), model.delayed.len());
                model.closed = true;
                model.delayed.clear();
            }
        }
        model.wake();
        let stats = queue.stats();
        assert_eq!(stats.depth, model.ready.len() + model.requeued.len());
        assert_eq!((stats.running, stats.delayed), (works.len(), model.delayed.len()));
        assert_eq!((stats.adds, stats.retries), (model.adds, model.retries));
        assert_eq!((stats.queue_duration.sum, stats.work_duration.sum), (model.queued, model.worked));
        assert_eq!(stats.unfinished_work, model.running.values().map(Instant::elapsed).sum::<Duration>());
        assert_eq!(stats.queue_duration.count, stats.work_duration.count + works.len() as u64);
        assert_eq!(queue.tracked(), model.tracked());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn queue_matches_naive_model(steps in prop::collection::vec(step(), 1..300)) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(run_steps(steps));
    }
}
