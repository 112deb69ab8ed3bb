//! The engine: it is handed changes, asks the rules, and has delivered what they send.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ack::Ack;
use crate::chance::Chance;
use crate::change::Change;
use crate::dead::DeadLetters;
use crate::message::Message;
use crate::notice::{Notice, Tell};
use crate::offload::offload;
use crate::plan::Plan;
use crate::projections::{News, Projections};
use crate::replication::Replication;
use crate::rule::{Compiled, Verdict};
use crate::sink::Stream;
use crate::supervise::{Supervised, Supervisor};
use crate::worker::{SinkCounts, SinkWorker, delivery};

/// The streams of a plan's sinks, by name.
pub type Streams = BTreeMap<String, Arc<dyn Stream>>;

/// Asks rules about changes, and has delivered what they send. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    rules: Mutex<HashMap<String, Arc<Acting>>>,
    workers: Mutex<BTreeMap<String, Running>>,
    dead: Arc<DeadLetters>,
    tell: Arc<Tell>,
    supervisor: Supervisor,
    replication: Replication,
    seed: u64,
    counts: Mutex<Counts>,
}

/// A rule at work.
struct Acting {
    rule: Arc<Compiled>,
    /// What the rule has sent, by sink. Kept when the configuration is read again.
    sent: Arc<Mutex<BTreeMap<String, Projections>>>,
    /// Held from the evaluation until the message is in the queue, by sink: two evaluations of one object could otherwise
    /// overtake each other. Only for rules that depend on more than the object.
    turns: Mutex<BTreeMap<String, Arc<Turn>>>,
}

type Turn = tokio::sync::Mutex<()>;

/// A sink worker and its task.
struct Running {
    worker: Arc<SinkWorker>,
    _task: Supervised,
}

/// What an engine has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Changes that were accepted, once for each rule and sink.
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
    /// Starts to act by `plan`, on the current runtime. Random numbers come from `seed`.
    pub fn start(plan: &Plan, streams: Streams, seed: u64, tell: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        let tell: Arc<Tell> = Arc::new(tell);
        Self::supervised(plan, streams, seed, Supervisor::new(tell.clone()), tell)
    }

    /// Starts to act by `plan`, with the tasks of its sinks under `supervisor`.
    pub fn supervised(plan: &Plan, streams: Streams, seed: u64, supervisor: Supervisor, tell: Arc<Tell>) -> Self {
        Self::replicated(plan, streams, seed, supervisor, tell, Replication::none())
    }

    /// Starts to act by `plan` as one of several replicas, which sends nothing while another one is the leader.
    pub fn replicated(
        plan: &Plan,
        streams: Streams,
        seed: u64,
        supervisor: Supervisor,
        tell: Arc<Tell>,
        replication: Replication,
    ) -> Self {
        let dead = Arc::new(DeadLetters::at(plan.dead_letters.clone(), plan.most_dead_letters));
        let shared = Shared {
            rules: Mutex::default(),
            workers: Mutex::default(),
            dead,
            tell,
            supervisor,
            replication,
            seed,
            counts: Mutex::default(),
        };
        let engine = Self { shared: Arc::new(shared) };
        engine.act_by(plan, streams);
        engine
    }

    /// Changes to another plan. Pending messages stay, and so does the record of what rules have sent. A sink that is removed
    /// stays until its pending messages are settled.
    pub fn act_by(&self, plan: &Plan, streams: Streams) {
        {
            let mut workers = lock(&self.shared.workers);
            for (name, stream) in streams {
                let Some(sink) = plan.sinks.get(&name) else { continue };
                if let Some(running) = workers.get(&name) {
                    running.worker.reconfigure(delivery(sink), stream);
                    continue;
                }
                // Each sink has a random sequence of its own.
                let chance = Chance::new(self.shared.seed.wrapping_add((workers.len() as u64).wrapping_mul(0x9e37)));
                let (dead, tell) = (self.shared.dead.clone(), self.shared.tell.clone());
                let worker = SinkWorker::new(&name, delivery(sink), stream, chance, dead, tell);
                let worker = worker.behind(self.shared.replication.gate().clone());
                let task = worker.clone().start(&self.shared.supervisor);
                workers.insert(name, Running { worker, _task: task });
            }
            workers.retain(|name, running| plan.sinks.contains_key(name) || running.worker.pending() > 0);
        }
        let mut rules = lock(&self.shared.rules);
        let mut before = std::mem::take(&mut *rules);
        for rule in &plan.rules {
            let sent = before.remove(&rule.config.name).map(|acting| acting.sent.clone()).unwrap_or_default();
            // A sink that is added again later starts as a new one.
            lock(&sent).retain(|sink, _| rule.config.to.contains(sink));
            rules.insert(
                rule.config.name.clone(),
                Arc::new(Acting { rule: rule.clone(), sent, turns: Mutex::default() }),
            );
        }
    }

    /// Evaluates a rule for a change, and queues the message for one of the rule's sinks. Changes of one object have to come
    /// in order. Returns when the message is in the queue; `settled` is called when it is delivered or a dead letter, or when
    /// there is nothing to send.
    pub async fn accept(&self, rule: &str, sink: &str, change: Arc<Change>, settled: impl FnOnce() + Send + 'static) {
        self.accept_current(rule, sink, || Some(change), settled).await;
    }

    /// [`accept`](Self::accept) of a change that is made when it is its turn. There may be none then.
    pub(crate) async fn accept_current(
        &self,
        rule: &str,
        sink: &str,
        change: impl FnOnce() -> Option<Arc<Change>>,
        settled: impl FnOnce() + Send + 'static,
    ) {
        let acting = lock(&self.shared.rules).get(rule).cloned();
        let worker = lock(&self.shared.workers).get(sink).map(|running| running.worker.clone());
        // The rule or the sink was removed from the configuration since.
        let (Some(acting), Some(worker)) = (acting, worker) else { return settled() };
        let turn = acting.rule.is_of_context().then(|| lock(&acting.turns).entry(sink.to_owned()).or_default().clone());
        let _turn = match &turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        let Some(change) = change() else { return settled() };
        lock(&self.shared.counts).changes += 1;
        match self.judge(&acting, sink, &change).await {
            Some(message) => worker.put(message, Ack::new(settled)).await,
            None => settled(),
        }
    }

    /// Evaluates a rule for a change that another replica has settled, so that what the rule has sent is known here too.
    pub(crate) async fn observe(&self, rule: &str, sink: &str, change: Arc<Change>) {
        let acting = lock(&self.shared.rules).get(rule).cloned();
        if let Some(acting) = acting {
            lock(&self.shared.counts).changes += 1;
            let _ = self.judge(&acting, sink, &change).await;
        }
    }

    /// Returns what is known of other replicas.
    pub fn replication(&self) -> &Replication {
        &self.shared.replication
    }

    /// Returns the message that the rule sends to `sink`, unless it has sent the same before.
    async fn judge(&self, acting: &Arc<Acting>, sink: &str, change: &Arc<Change>) -> Option<Arc<Message>> {
        let (asked, sink, of) = (acting.clone(), sink.to_owned(), change.clone());
        let judged = offload(move || {
            let verdict = asked.rule.judge(&of);
            let mut sent = lock(&asked.sent);
            let news = sent.entry(sink).or_default().take_in(&asked.rule, &of, &verdict);
            drop(sent);
            (verdict, news)
        });
        let failed = |why| (Verdict::Failed { expression: "when", why }, News::Unchanged);
        let (verdict, news) = judged.await.unwrap_or_else(failed);
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

    /// Returns a rule.
    pub(crate) fn rule(&self, name: &str) -> Option<Arc<Compiled>> {
        lock(&self.shared.rules).get(name).map(|acting| acting.rule.clone())
    }

    /// Starts a task that is restarted whenever it ends.
    pub(crate) fn supervise<F: Future<Output = String> + Send + 'static>(
        &self,
        name: String,
        run: impl Fn() -> F + Send + Sync + 'static,
    ) -> Supervised {
        self.shared.supervisor.spawn(name, run)
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

    /// Returns its counters.
    pub fn counts(&self) -> Counts {
        let workers = lock(&self.shared.workers);
        let sinks = workers.iter().map(|(name, running)| (name.clone(), running.worker.counts())).collect();
        Counts { sinks, ..lock(&self.shared.counts).clone() }
    }

    /// Waits until all messages are settled, for `deadline` at most; returns how many are not.
    pub async fn drain(&self, deadline: Duration) -> usize {
        let workers: Vec<Arc<SinkWorker>> =
            lock(&self.shared.workers).values().map(|running| running.worker.clone()).collect();
        let all = async {
            for worker in &workers {
                worker.until_empty().await;
            }
        };
        // Messages that are pending at the deadline are counted.
        let _ = tokio::time::timeout(deadline, all).await;
        workers.iter().map(|worker| worker.pending()).sum()
    }
}
