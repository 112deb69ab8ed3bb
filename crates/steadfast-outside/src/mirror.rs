//! One mirror at work: looks, plans, acts, looks again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::entry::{Step, Target, Wanted};
use crate::guard::{Ask, Limits};
use crate::memory::Memory;
use crate::plan::{Draining, Kept, Now, Plan, plan};

/// How a mirror works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How much may be taken out at once.
    pub limits: Limits,
    /// How long what is to go is waited for while somebody still uses it: 30 s by default.
    pub drain: Duration,
    /// After so long it is looked again whether all is as it is wanted, though nothing has changed: a minute by default.
    pub compare: Duration,
    /// How long a look, or what is done at once, may take: 10 s by default.
    pub deadline: Duration,
    /// How long to wait before looking again after something was done, or failed. It doubles, up to the time of
    /// [`compare`](Self::compare), as long as no look finds all as it is wanted: 100 ms by default.
    pub again: Duration,
    /// What times are spread by, a little, so that many mirrors do not come at once.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            drain: Duration::from_secs(30),
            compare: Duration::from_secs(60),
            deadline: Duration::from_secs(10),
            again: Duration::from_millis(100),
            seed: fastrand::u64(..),
        }
    }
}

/// How things are outside.
#[derive(Clone, Debug)]
pub struct Status<V> {
    /// How often it was looked.
    pub looks: u64,
    /// When it was last seen what there is.
    pub seen: Option<Instant>,
    /// Whether all was as it is wanted then, but for what is kept.
    pub settled: bool,
    /// How many entries there were, of the mirror's own.
    pub entries: usize,
    /// What is not as it is wanted, and why.
    pub kept: BTreeMap<String, Kept>,
    /// What waits to be approved of: [`Memory::approve`], and a [`nudge`](Mirror::nudge).
    pub ask: Option<Ask>,
    /// Why the last look failed, or what was done after it.
    pub failing: Option<Arc<str>>,
    /// What was done last.
    pub done: Vec<Step<V>>,
}

/// A mirror at work. Dropped, it ends where it is; what it was about to do is found by the next one.
#[derive(Debug)]
pub struct Mirror<V> {
    orders: watch::Sender<Orders<V>>,
    status: watch::Receiver<Status<V>>,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug)]
struct Orders<V> {
    wanted: Option<Arc<Wanted<V>>>,
    is_over: bool,
}

impl<V: crate::entry::Value> Mirror<V> {
    /// Begins to keep `target` as it is wanted: nothing is done before that is told for the first time. What must not be forgotten is
    /// kept in `memory` under `name`.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio.
    pub fn start<T: Target<Value = V>>(name: &str, target: T, settings: Settings, memory: Memory) -> Self {
        let (orders, received) = watch::channel(Orders { wanted: None, is_over: false });
        let (told, status) = watch::channel(Status {
            looks: 0,
            seen: None,
            settled: false,
            entries: 0,
            kept: BTreeMap::new(),
            ask: None,
            failing: None,
            done: Vec::new(),
        });
        let rng = Rng::with_seed(settings.seed);
        let name = name.to_owned();
        let work = Work { name, target, settings, memory, draining: Draining::default(), rng, told };
        Self { orders, status, task: tokio::spawn(work.run(received)) }
    }

    /// From now on it is to be so.
    pub fn want(&self, wanted: Wanted<V>) {
        self.orders.send_if_modified(|orders| {
            let is_new = orders.wanted.as_deref() != Some(&wanted);
            orders.wanted = Some(Arc::new(wanted));
            is_new
        });
    }

    /// Has it look now.
    pub fn nudge(&self) {
        self.orders.send_modify(|_| {});
    }

    /// How things are outside, as it was last seen.
    pub fn status(&self) -> watch::Receiver<Status<V>> {
        self.status.clone()
    }

    /// Ends it: what is being done is done, and nothing more.
    pub async fn stop(self) {
        self.orders.send_modify(|orders| orders.is_over = true);
        // A task that panicked has told so itself.
        drop((self.task).await);
    }
}

struct Work<T: Target> {
    name: String,
    target: T,
    settings: Settings,
    memory: Memory,
    draining: Draining,
    rng: Rng,
    told: watch::Sender<Status<T::Value>>,
}

impl<T: Target> Work<T> {
    async fn run(mut self, mut orders: watch::Receiver<Orders<T::Value>>) {
        let mut unsettled = Unsettled::default();
        loop {
            let Orders { wanted, is_over } = orders.borrow_and_update().clone();
            if is_over {
                return;
            }
            let until = match wanted {
                None => None,
                Some(wanted) => {
                    let busy = match self.pass(&wanted).await {
                        Ok((settled, busy)) => {
                            unsettled = if settled { Unsettled::default() } else { unsettled.acted() };
                            busy
                        }
                        Err(why) => {
                            unsettled.failures += 1;
                            self.fail(&why);
                            None
                        }
                    };
                    let next = Instant::now() + self.pause(unsettled);
                    Some(busy.map_or(next, |busy| busy.min(next)))
                }
            };
            let rest = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = orders.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // What has changed is not what did not settle.
                    unsettled = Unsettled::default();
                }
                () = rest => {}
            }
        }
    }

    /// One look, and what is to be done after it. Returns whether all is as it is wanted, and when to look again at the latest.
    async fn pass(&mut self, wanted: &Wanted<T::Value>) -> Result<(bool, Option<Instant>), Arc<str>> {
        let late = || Arc::from(format!("no answer in {:?}", self.settings.deadline));
        let looked = timeout(self.settings.deadline, self.target.look()).await;
        let found = looked.map_err(|_| late())?.map_err(|error| told(&error))?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now = Now { unix, instant: Instant::now() };
        let (limits, patience, draining) = (&self.settings.limits, self.settings.drain, &mut self.draining);
        // In the file before anything is done.
        let planned =
            self.memory.update(&self.name, |record| plan(wanted, &found, (record, limits), (draining, patience), now));
        let Plan { steps, kept, ask, until } = planned.map_err(|error| told(&error))?;
        if let Some(ask) = ask.as_ref().filter(|ask| self.told.borrow().ask.as_ref() != Some(ask)) {
            let (mirror, id, names, of) = (&*self.name, &*ask.id, ask.names.len(), ask.of);
            tracing::warn!(
                mirror,
                id,
                names,
                of,
                "more is to be taken out at once than is granted; approve of it, or nothing goes"
            );
        }
        let settled = steps.is_empty();
        self.told.send_modify(|status| {
            status.looks += 1;
            status.seen = Some(now.instant);
            status.settled = settled;
            status.entries = found.own.len();
            status.kept = kept;
            status.ask = ask;
            if settled {
                status.failing = None;
            }
        });
        if !settled {
            let acted = timeout(self.settings.deadline, self.target.act(&steps)).await;
            self.told.send_modify(|status| status.done = steps);
            acted.map_err(|_| late())?.map_err(|error| told(&error))?;
        }
        Ok((settled, until))
    }

    fn fail(&self, why: &Arc<str>) {
        let is_new = self.told.borrow().failing.as_ref() != Some(why);
        if is_new {
            tracing::warn!(mirror = self.name, %why, "the outside cannot be made as it is wanted; it is tried again");
        }
        self.told.send_modify(|status| {
            status.failing = Some(why.clone());
            status.settled = false;
        });
    }

    /// How long until it is looked again where nothing changes.
    fn pause(&mut self, unsettled: Unsettled) -> Duration {
        let Settings { compare, again, .. } = self.settings;
        let longest = match unsettled.acts.max(unsettled.failures) {
            0 => compare,
            times => again.saturating_mul(1 << (times - 1).min(16)).min(compare),
        };
        longest.mul_f64(0.75 + 0.25 * self.rng.f64())
    }
}

/// How often in a row a look did not find all as it is wanted.
#[derive(Clone, Copy, Default)]
struct Unsettled {
    /// Something was done, and said to be done: that is looked at soon, unless it is said over and over and is not so.
    acts: u32,
    /// Nothing could be seen, or done.
    failures: u32,
}

impl Unsettled {
    fn acted(self) -> Self {
        Self { acts: self.acts + 1, failures: 0 }
    }
}

/// All that is behind an error.
pub(crate) fn told(error: &dyn std::error::Error) -> Arc<str> {
    let mut told = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        let more = error.to_string();
        if !told.contains(&more) {
            told = format!("{told}: {more}");
        }
        behind = error.source();
    }
    told.into()
}
