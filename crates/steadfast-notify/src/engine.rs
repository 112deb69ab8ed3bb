//! The engine: it is handed changes, asks the rules, and has delivered what they send.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::chance::Chance;
use crate::change::Change;
use crate::courier::{Courier, SinkCounts, delivery};
use crate::dead::DeadLetters;
use crate::message::Message;
use crate::notice::{Notice, Tell};
use crate::plan::Plan;
use crate::projections::{News, Projections};
use crate::rule::{Compiled, Verdict};
use crate::sink::Stream;
use crate::ticket::Ticket;

/// The streams of a plan's sinks, by name.
pub type Streams = BTreeMap<String, Arc<dyn Stream>>;

/// Asks rules about changes, and has delivered what they send. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    rules: Mutex<HashMap<String, Arc<Acting>>>,
    couriers: Mutex<BTreeMap<String, Running>>,
    dead: Arc<DeadLetters>,
    tell: Arc<Tell>,
    seed: u64,
    counts: Mutex<Counts>,
}

/// A rule at work.
struct Acting {
    rule: Arc<Compiled>,
    /// What was sent by it: the same thing still where the rule is read anew.
    known: Arc<Mutex<Projections>>,
}

/// A courier and its task.
struct Running {
    courier: Arc<Courier>,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What an engine has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Changes that were handed over, once for each rule that they were for.
    pub changes: u64,
    /// Those for which the rule sent something.
    pub fired: u64,
    /// Those of which it would have sent what it had sent before.
    pub unchanged: u64,
    /// Those for which it could not be evaluated, by rule.
    pub failed: BTreeMap<String, u64>,
    /// What came of the messages, by sink.
    pub sinks: BTreeMap<String, SinkCounts>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Begins to act by `plan`; on the current runtime, by its clock. Chance comes from `seed`.
    pub fn start(plan: &Plan, streams: Streams, seed: u64, tell: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        let dead = Arc::new(DeadLetters::at(plan.dead_letters.clone(), plan.most_dead_letters));
        let shared = Shared {
            rules: Mutex::default(),
            couriers: Mutex::default(),
            dead,
            tell: Arc::new(tell),
            seed,
            counts: Mutex::default(),
        };
        let engine = Self { shared: Arc::new(shared) };
        engine.act_by(plan, streams);
        engine
    }

    /// From now on it acts by `plan`. What waits to be delivered stays, and so does what is known of what rules have sent;
    /// a sink that is gone keeps what it has to deliver until it has.
    pub fn act_by(&self, plan: &Plan, streams: Streams) {
        {
            let mut couriers = lock(&self.shared.couriers);
            for (name, stream) in streams {
                let Some(sink) = plan.sinks.get(&name) else { continue };
                if let Some(running) = couriers.get(&name) {
                    running.courier.become_as(delivery(sink), stream);
                    continue;
                }
                // Each has chances of its own.
                let chance = Chance::new(self.shared.seed.wrapping_add(couriers.len() as u64 * 0x9e37));
                let (dead, tell) = (self.shared.dead.clone(), self.shared.tell.clone());
                let courier = Courier::new(&name, delivery(sink), stream, chance, dead, tell);
                let task = tokio::spawn(courier.clone().run()).abort_handle();
                couriers.insert(name, Running { courier, task });
            }
            couriers.retain(|name, running| plan.sinks.contains_key(name) || running.courier.counts().waiting > 0);
        }
        let mut rules = lock(&self.shared.rules);
        let mut before = std::mem::take(&mut *rules);
        for rule in &plan.rules {
            let known = before.remove(&rule.config.name).map(|acting| acting.known.clone()).unwrap_or_default();
            rules.insert(rule.config.name.clone(), Arc::new(Acting { rule: rule.clone(), known }));
        }
    }

    /// Asks the rule of this name about a change, which is in order behind those of the same object before. Returns when what
    /// it sends has its place among what waits; `settled` is called when all of it is delivered, or is a dead letter.
    pub async fn accept(&self, rule: &str, change: Arc<Change>, settled: impl FnOnce() + Send + 'static) {
        let acting = lock(&self.shared.rules).get(rule).cloned();
        // It is gone since.
        let Some(acting) = acting else { return settled() };
        lock(&self.shared.counts).changes += 1;
        let Some(message) = self.judge(&acting, &change) else { return settled() };
        let couriers: Vec<Arc<Courier>> = {
            let couriers = lock(&self.shared.couriers);
            let named = acting.rule.config.to.iter().filter_map(|sink| couriers.get(sink));
            named.map(|running| running.courier.clone()).collect()
        };
        let ticket = Ticket::new(couriers.len(), settled);
        for courier in couriers {
            courier.put(message.clone(), ticket.clone()).await;
        }
    }

    /// What the rule sends, if it sends anything that was not sent before.
    fn judge(&self, acting: &Acting, change: &Arc<Change>) -> Option<Arc<Message>> {
        let verdict = acting.rule.judge(change);
        let news = lock(&acting.known).take_in(&acting.rule, change, &verdict);
        let mut counts = lock(&self.shared.counts);
        match (verdict, news) {
            (Verdict::Fires(data), News::Changed) => {
                counts.fired += 1;
                Some(Arc::new(Message::new(&acting.rule.config.name, change, data)))
            }
            (Verdict::Fires(_), News::Unchanged) => {
                counts.unchanged += 1;
                None
            }
            (Verdict::Failed { expression, why }, _) => {
                drop(counts);
                self.failed(&acting.rule.config.name, expression, change.subject.told(), why);
                None
            }
            (Verdict::OtherKind | Verdict::Initial(_) | Verdict::DoesNotHold, _) => None,
        }
    }

    /// Counts and tells that the rule of this name could not be asked about an object.
    pub(crate) fn overlook(&self, rule: &str, object: String, why: String) {
        lock(&self.shared.counts).changes += 1;
        self.failed(rule, "object", object, why);
    }

    fn failed(&self, rule: &str, expression: &'static str, object: String, why: String) {
        let rule = rule.to_owned();
        let times = {
            let mut counts = lock(&self.shared.counts);
            let times = counts.failed.entry(rule.clone()).or_default();
            *times += 1;
            *times
        };
        // Told ever more rarely: an expression that fails for one object fails for many.
        if times.is_power_of_two() {
            (self.shared.tell)(Notice::Failed { rule, expression, object, why, times });
        }
    }

    /// What it has done.
    pub fn counts(&self) -> Counts {
        let couriers = lock(&self.shared.couriers);
        let sinks = couriers.iter().map(|(name, running)| (name.clone(), running.courier.counts())).collect();
        Counts { sinks, ..lock(&self.shared.counts).clone() }
    }

    /// Waits until all that waits is delivered or given up, for `deadline` at most; returns how many messages are not.
    pub async fn drain(&self, deadline: Duration) -> usize {
        let couriers: Vec<Arc<Courier>> =
            lock(&self.shared.couriers).values().map(|running| running.courier.clone()).collect();
        let all = async {
            for courier in &couriers {
                courier.until_empty().await;
            }
        };
        // What is not delivered by then is counted.
        let _ = tokio::time::timeout(deadline, all).await;
        couriers.iter().map(|courier| courier.counts().waiting).sum()
    }
}
