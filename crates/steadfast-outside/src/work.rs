//! A mirror at work: looks, plans, acts, looks again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::attempts::Attempts;
use crate::entry::{Found, Step, Target, Value, Wanted};
use crate::memory::Memory;
use crate::owner::Claim;
use crate::plan::{Draining, Kept, Now, Plan, Shared, Terms, plan};
use crate::record::Held;
use crate::settings::Settings;
use crate::status::{Loss, Status};
use crate::term::{Permit, TermEnded};

/// Delay before a mirror that panicked is started again; it doubles each time.
const RESTART_DELAY: Duration = Duration::from_millis(100);

/// Longest delay before a mirror that panicked is started again.
const RESTART_DELAY_LONGEST: Duration = Duration::from_secs(60);

/// Shortest time between two looks because of changes at the target.
const CHANGES_APART: Duration = Duration::from_millis(200);

/// How long a look waits for the disk.
const FLUSH: Duration = Duration::from_secs(1);

/// What a mirror is told to do.
#[derive(Clone, Debug)]
pub(crate) struct Orders<V> {
    pub(crate) wanted: Option<Arc<Wanted<V>>>,
    pub(crate) is_over: bool,
    /// Counts the times that the target was changed by another hand, or that somebody asked for a look.
    pub(crate) nudges: u64,
}

fn panic_message(error: JoinError) -> String {
    let panic = error.into_panic();
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "of unknown cause".to_owned())
}

pub(crate) struct Work<T: Target> {
    name: String,
    target: Arc<T>,
    settings: Settings,
    memory: Memory,
    told: watch::Sender<Status<T::Value>>,
    /// Whether the target has responded to a claim of the mark: before that, entries may be another process's.
    has_claimed: AtomicBool,
    claimed: Notify,
}

/// What one run of a mirror carries from look to look.
struct Course {
    draining: Draining,
    attempts: Attempts,
    rng: Rng,
    /// A write of the memory that has not returned yet.
    flushing: Option<JoinHandle<io::Result<()>>>,
    /// Looks or writes that failed, in a row.
    failures: u32,
    /// What happened to the target since the last look, as far as the target reported it.
    change: Option<Arc<str>>,
    /// Why the last steps were refused, if they were.
    refusal: Option<Arc<str>>,
    /// Entries that the first look found, where a target has an ownership record.
    adopted: Option<Arc<BTreeSet<String>>>,
}

/// What came of a look.
struct Passed {
    /// Whether steps were taken: their effect is checked soon.
    has_acted: bool,
    /// When to look again at the latest.
    until: Option<Instant>,
}

impl<T: Target> Work<T> {
    /// Creates the work of the mirror `name`.
    pub(crate) fn new(
        name: &str,
        target: T,
        settings: Settings,
        memory: Memory,
        told: watch::Sender<Status<T::Value>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            target: Arc::new(target),
            settings,
            memory,
            told,
            has_claimed: AtomicBool::new(false),
            claimed: Notify::new(),
        })
    }

    /// Runs the mirror, and starts it again after a panic: of its target, as a rule.
    pub(crate) async fn supervise(self: Arc<Self>, orders: watch::Receiver<Orders<T::Value>>) {
        let mut delay = RESTART_DELAY;
        loop {
            let begun = Instant::now();
            // In a set, so that the task ends together with this one.
            let mut life = JoinSet::new();
            life.spawn(self.clone().run(orders.clone()));
            match life.join_next().await {
                Some(Err(error)) if error.is_panic() => {
                    let why = panic_message(error);
                    tracing::error!(mirror = self.name, %why, "the task of a mirror panicked; it is started again");
                    self.fail(&Arc::from(format!("the task of the mirror panicked: {why}")));
                    self.told.send_modify(|status| status.restarts += 1);
                }
                _ => return,
            }
            if begun.elapsed() > RESTART_DELAY_LONGEST {
                delay = RESTART_DELAY;
            }
            sleep(delay).await;
            delay = (delay * 2).min(RESTART_DELAY_LONGEST);
        }
    }

    /// Works during each term of this process, and waits in between. Without replicas there is one term.
    async fn run(self: Arc<Self>, mut orders: watch::Receiver<Orders<T::Value>>) {
        loop {
            let permit = if let Some(permit) = self.settings.gate.permit() {
                permit
            } else {
                self.stand_by();
                let Some(permit) = self.until_leader(&mut orders).await else { return };
                permit
            };
            self.has_claimed.store(false, Ordering::Release);
            self.told.send_if_modified(|status| std::mem::take(&mut status.is_standby));
            // The renewals and the watch of the target end with the term, and so does what is in flight.
            tokio::select! {
                biased;
                () = permit.ended() => {}
                () = self.clone().serve(permit.clone(), &mut orders) => {
                    if permit.is_valid() {
                        return;
                    }
                    // The keeper of the gate has not noticed the end yet.
                    permit.ended().await;
                }
            }
        }
    }

    /// Reports that another replica is the leader. What was seen in an earlier term is of no worth.
    fn stand_by(&self) {
        self.told.send_modify(|status| {
            let (looks, restarts) = (status.looks, status.restarts);
            *status = Status { looks, restarts, is_standby: true, ..Status::default() };
        });
    }

    /// Waits for a term, and remembers the origins of all entries that are wanted in the meantime; `None` if the mirror is stopped.
    async fn until_leader(&self, orders: &mut watch::Receiver<Orders<T::Value>>) -> Option<Permit> {
        loop {
            let Orders { wanted, is_over, .. } = orders.borrow_and_update().clone();
            if is_over {
                return None;
            }
            if let Some(wanted) = wanted {
                let held = wanted.entries.iter().filter_map(|(name, value)| {
                    let (origin, places) = (wanted.origins.get(name)?.clone(), value.places(name));
                    Some((name.clone(), Held { origin, places, state: format!("{value:?}") }))
                });
                self.memory.note_wanted(&self.name, held);
            }
            tokio::select! {
                biased;
                changed = orders.changed() => changed.ok()?,
                permit = self.settings.gate.opened() => return Some(permit),
            }
        }
    }

    /// Works until the mirror is stopped or the term ends.
    async fn serve(self: Arc<Self>, permit: Permit, orders: &mut watch::Receiver<Orders<T::Value>>) {
        // Before the first write.
        self.fence(&permit).await;
        // They end with this run.
        let mut aside = JoinSet::new();
        aside.spawn(self.clone().renewals(permit.clone()));
        let (sender, mut changed) = watch::channel(());
        aside.spawn(self.clone().changes(sender));
        let mut course = Course {
            draining: Draining::default(),
            attempts: Attempts::default(),
            rng: Rng::with_seed(self.settings.seed),
            flushing: None,
            failures: 0,
            change: None,
            refusal: None,
            adopted: None,
        };
        loop {
            let Orders { wanted, is_over, .. } = orders.borrow_and_update().clone();
            if is_over || !permit.is_valid() {
                return;
            }
            let until = match wanted {
                None => None,
                Some(wanted) => {
                    changed.mark_unchanged();
                    let (longest, until) = match self.pass(&wanted, &mut course, &permit).await {
                        Ok(passed) => {
                            course.failures = 0;
                            let soon = self.settings.again.min(self.settings.compare);
                            (if passed.has_acted { soon } else { self.settings.compare }, passed.until)
                        }
                        Err(why) => {
                            course.failures += 1;
                            self.fail(&why);
                            let times = (course.failures - 1).min(16);
                            (self.settings.again.saturating_mul(1 << times).min(self.settings.compare), None)
                        }
                    };
                    let next = Instant::now() + longest.mul_f64(0.75 + 0.25 * course.rng.f64());
                    Some(until.map_or(next, |until| until.min(next)))
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
                ordered = orders.changed() => {
                    if ordered.is_err() {
                        return;
                    }
                    course.failures = 0;
                }
                // The task that sends has ended only where its future panicked.
                Ok(()) = changed.changed() => {
                    tracing::info!(mirror = self.name, "the target was restarted or changed by another hand; checking it now");
                    course.change = Some("the target was restarted or changed by another hand".into());
                    course.attempts.reset();
                    course.failures = 0;
                }
                () = self.claimed.notified() => {}
                () = rest => {}
            }
        }
    }

    /// Keeps alive what would expire at the target, from the start on, whatever else the mirror waits for.
    async fn renewals(self: Arc<Self>, permit: Permit) {
        let mut failures = 0_u32;
        loop {
            let Ok(renewed) = permit.run(timeout(self.settings.deadline, self.target.renew())).await else { return };
            if permit.run(self.fence(&permit)).await.is_err() {
                return;
            }
            if T::HAS_OWNER_RECORD && permit.run(self.claim()).await.is_err() {
                return;
            }
            let why = match renewed {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(told(&error)),
                Err(_) => Some(self.late()),
            };
            failures = why.as_ref().map_or(0, |_| failures.saturating_add(1));
            if let Some(why) = why.filter(|_| failures.is_power_of_two()) {
                tracing::warn!(mirror = self.name, %why, failures, "what the target holds cannot be renewed; it is retried");
            }
            let pause = match failures {
                0 => self.settings.compare / 2,
                times => self.settings.again.saturating_mul(1 << (times - 1).min(16)).min(self.settings.compare / 2),
            };
            sleep(pause.max(CHANGES_APART)).await;
        }
    }

    /// Tells when the target was changed by another hand.
    async fn changes(self: Arc<Self>, changes: watch::Sender<()>) {
        loop {
            self.target.changed().await;
            changes.send_replace(());
            // A target that changes all the time is looked at so often, and no more.
            sleep(CHANGES_APART).await;
        }
    }

    fn late(&self) -> Arc<str> {
        Arc::from(format!("no answer in {:?}", self.settings.deadline))
    }

    /// Looks at the target, and takes the steps that are due.
    async fn pass(&self, wanted: &Wanted<T::Value>, course: &mut Course, permit: &Permit) -> Result<Passed, Arc<str>> {
        let looked = timeout(self.settings.deadline, self.target.look()).await;
        let found = looked.map_err(|_| self.late())?.map_err(|error| told(&error))?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now = Now { unix, instant: Instant::now() };
        let (terms, settle) =
            (self.settings.terms(), |values: &mut BTreeMap<String, T::Value>| self.target.settle(values));
        let terms = Terms { shared: self.shared(&found, course), ..terms };
        let draining = &mut course.draining;
        let Plan { more, less, mut kept, asks, contested, uncertain, until } =
            self.memory.update(&self.name, |record| plan(wanted, &found, &settle, &terms, (record, draining), now));
        // What was attempted and is still missing was refused. It concerns these entries only, unless the target took none at all.
        let refusal = course.refusal.clone();
        let refused = more.iter().chain(&less).filter(|step| course.attempts.has_failed(step));
        kept.extend(refusal.iter().flat_map(|why| {
            let refused = refused.clone();
            refused.map(|step| (step.name().to_owned(), Kept::Refused(why.clone())))
        }));
        for ask in asks.iter().filter(|ask| !self.told.borrow().asks.contains(ask)) {
            let (mirror, id, names, of, group) = (&*self.name, &*ask.id, ask.names.len(), ask.of, &*ask.group);
            tracing::warn!(
                mirror,
                group,
                id,
                names,
                of,
                "a group would lose more than its guard permits; its removals need approval"
            );
        }
        let settled = more.is_empty() && less.is_empty();
        let missing = more.iter().filter(|step| matches!(step, Step::Add { .. })).count();
        let change = [self.target.change_reason().map(Arc::from), course.change.take()].into_iter().flatten().next();
        // Before the first look nothing was there to be lost.
        let was_seen = self.told.borrow().seen.is_some();
        let lost = change.filter(|_| was_seen && missing > 0).map(|why| Loss { missing, why, seen: now.instant });
        if let Some(Loss { missing, why, .. }) = &lost {
            tracing::warn!(mirror = self.name, missing, %why, "entries are missing after a change of the target; adding them again");
        }
        self.told.send_modify(|status| {
            if lost.is_some() {
                status.loss = lost;
            }
            status.looks += 1;
            status.seen = Some(now.instant);
            status.settled = settled;
            status.entries = found.own.len();
            status.kept = kept;
            status.ask = asks.first().cloned();
            status.asks = asks;
            status.contested = contested;
            status.uncertain = uncertain;
            status.failing = refusal.filter(|_| found.own.is_empty() && !settled);
        });
        // Removals wait until the disk has their record. Additions do not: a full disk must not keep a balancer empty.
        let (less, unwritten) = match self.flush(course).await {
            Ok(()) => (less, None),
            Err(_) if less.is_empty() => (less, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let steps = more.into_iter().chain(less).collect();
        let delays = (self.settings.again, self.settings.compare);
        let (steps, next) = course.attempts.due(steps, now.instant, delays);
        let until = [until, next].into_iter().flatten().min();
        let has_acted = !steps.is_empty();
        if has_acted {
            // Each attempt within has its own deadline, and one that fails must not cut off the others.
            let acting = timeout(self.settings.deadline.saturating_mul(3), self.target.act(&steps));
            let acted = permit.run(acting).await.map_err(|TermEnded| Arc::from("the term as the leader has ended"))?;
            self.told.send_modify(|status| status.done = steps);
            match acted {
                Ok(Ok(())) => course.refusal = None,
                Ok(Err(error)) => self.refused(told(&error), course),
                Err(_) => self.refused(self.late(), course),
            }
        }
        if let Some(why) = unwritten {
            return Err(format!("entries are added and not removed: {why}").into());
        }
        Ok(Passed { has_acted, until })
    }

    /// Writes what the mirror must not forget. A disk that does not answer is not waited for longer than [`FLUSH`].
    async fn flush(&self, course: &mut Course) -> Result<(), Arc<str>> {
        let pending = course.flushing.take();
        let was_pending = pending.is_some();
        let mut flushing = pending.unwrap_or_else(|| self.begin_to_flush());
        match timeout(FLUSH, &mut flushing).await {
            // What has changed since that one began is not written yet.
            Ok(_) if was_pending => Box::pin(self.flush(course)).await,
            Ok(Ok(written)) => written.map_err(|error| told(&error)),
            Ok(Err(error)) => Err(Arc::from(format!("writing the memory of mirrors panicked: {error}"))),
            Err(_) => {
                course.flushing = Some(flushing);
                Err(Arc::from("the disk of the memory of mirrors does not respond"))
            }
        }
    }

    fn begin_to_flush(&self) -> JoinHandle<io::Result<()>> {
        let (memory, name) = (self.memory.clone(), self.name.clone());
        tokio::task::spawn_blocking(move || memory.flush(&name))
    }

    /// Remembers why steps were refused; the next look tells which.
    fn refused(&self, why: Arc<str>, course: &mut Course) {
        if course.refusal.as_ref() != Some(&why) {
            tracing::warn!(mirror = self.name, %why, "the target refused a change; the change is retried, the others go on");
        }
        course.refusal = Some(why);
    }

    /// Finds out whether another process with the same mark is at work at the target.
    fn shared(&self, found: &Found<T::Value>, course: &mut Course) -> Shared {
        if !T::HAS_OWNER_RECORD {
            return Shared::No;
        }
        let is_claimed = self.has_claimed.load(Ordering::Acquire);
        if !is_claimed || self.told.borrow().other_process.is_some() {
            return Shared::ByOwner;
        }
        let adopted = course.adopted.get_or_insert_with(|| Arc::new(found.own.keys().cloned().collect()));
        Shared::Perhaps(adopted.clone())
    }

    /// Has the target reject what earlier leaders write. A key that may not write the record leaves the window that targets have
    /// which cannot compare.
    async fn fence(&self, permit: &Permit) {
        if permit.token() == 0 {
            return;
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let why: Arc<str> = match timeout(self.settings.deadline, self.target.fence(permit.token(), unix)).await {
            Ok(Ok(true)) => return,
            Ok(Ok(false)) => "the target has the record of a later term".into(),
            Ok(Err(error)) => told(&error),
            Err(_) => self.late(),
        };
        tracing::warn!(mirror = self.name, term = permit.token(), %why, "the term was not recorded at the target; it is retried");
    }

    /// Claims the mark for this process, and reports another one that holds it.
    async fn claim(&self) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let instance = self.settings.instance.as_deref().unwrap_or_else(|| self.memory.instance());
        let claimed = timeout(self.settings.deadline, self.target.claim(instance, unix)).await;
        let other = match claimed {
            Ok(Ok(Claim::Ours)) => None,
            Ok(Ok(Claim::Other { instance, .. })) => Some(Arc::from(instance)),
            // The key may not be permitted to write the record: then no other process can be detected.
            Ok(Err(error)) => {
                let why = told(&error);
                if !self.has_claimed.swap(true, Ordering::AcqRel) {
                    tracing::warn!(mirror = self.name, %why, "the ownership record cannot be written; other processes with the same mark are not detected");
                }
                return;
            }
            // The looks report a target that does not respond.
            Err(_) => return,
        };
        let before = self.told.borrow().other_process.clone();
        let is_first = !self.has_claimed.load(Ordering::Acquire);
        if other != before {
            self.told.send_modify(|status| status.other_process.clone_from(&other));
        }
        self.has_claimed.store(true, Ordering::Release);
        if is_first {
            // Removals have waited for this.
            self.claimed.notify_one();
        }
        if other == before {
            return;
        }
        if let Some(instance) = &other {
            let remedy = "give each process a mark of its own";
            tracing::warn!(mirror = self.name, %instance, remedy, "another process has the same mark; this one removes nothing");
        } else {
            tracing::info!(mirror = self.name, "no other process has the mark any more");
        }
    }

    fn fail(&self, why: &Arc<str>) {
        let is_new = self.told.borrow().failing.as_ref() != Some(why);
        if is_new {
            tracing::warn!(mirror = self.name, %why, "the target cannot be made as it is wanted; it is retried");
        }
        self.told.send_modify(|status| {
            status.failing = Some(why.clone());
            status.settled = false;
        });
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
