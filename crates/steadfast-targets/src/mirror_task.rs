//! Task of a mirror: reads the target, plans, applies steps, and reads again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::attempts::Attempts;
use crate::awake_time::AwakeTime;
use crate::entry::{ActualState, DesiredState, EntryValue, Step, Target};
use crate::location_claims::is_claimed;
use crate::mirror_memory::MirrorMemory;
use crate::mirror_record::EntryRecord;
use crate::owner::{ClaimResult, OWNER_RENEW_SECS};
use crate::plan::{DrainState, MarkOwnership, Plan, PlanSettings, PlanTime, SkipReason, plan};
use crate::settings::MirrorSettings;
use crate::status::{EntryLoss, MirrorStatus};
use crate::term::{TermEnded, WritePermit};

/// Initial delay of a restart after a panic. Doubles each time.
const RESTART_INITIAL_DELAY: Duration = Duration::from_millis(100);

/// Maximum delay of a restart after a panic.
const RESTART_MAX_DELAY: Duration = Duration::from_secs(60);

/// Shortest time between two reads because of changes at the target.
const MIN_CHANGE_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum time that the first pass of a term waits for a desired state of this term, without freezes of the process.
const DESIRED_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum pause during this wait. A freeze counts as one pause, so that a newer desired state can arrive afterwards.
const DESIRED_MAX_PAUSE: Duration = Duration::from_secs(1);

/// Maximum pause between two renewals.
const RENEW_MAX_PAUSE: Duration = Duration::from_secs(OWNER_RENEW_SECS);

/// Reason for doubt while the desired state is of another term.
const EARLIER_TERM: &str = "the desired state was determined before the term of this replica as the leader";

/// Maximum time that a pass waits for the disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Input of a mirror task.
#[derive(Clone, Debug)]
pub(crate) struct MirrorTaskInput<V> {
    pub(crate) desired: Option<Arc<DesiredState<V>>>,
    pub(crate) is_stopped: bool,
    /// Counts requests for a read.
    pub(crate) compare_requests: u64,
}

fn panic_message(error: JoinError) -> String {
    let panic = error.into_panic();
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "of unknown cause".to_owned())
}

pub(crate) struct MirrorTask<T: Target> {
    name: String,
    target: Arc<T>,
    settings: MirrorSettings,
    memory: MirrorMemory,
    status_sender: watch::Sender<MirrorStatus<T::Value>>,
    /// True after the target responded to a claim of the mark. Before that, entries may belong to another process.
    has_claimed: AtomicBool,
    /// Instant of the first failed claim of this term.
    claim_failed_at: Mutex<Option<Instant>>,
    claimed: Notify,
}

/// State that one run of a mirror carries from pass to pass.
struct RunState {
    draining: DrainState,
    attempts: Attempts,
    rng: Rng,
    /// Pending write of the memory.
    flushing: Option<JoinHandle<io::Result<()>>>,
    /// Number of consecutive failures.
    failures: u32,
    /// Change of the target since the last read, as reported by the target.
    change_reason: Option<Arc<str>>,
    /// Reason for the last rejection of steps.
    rejection: Option<Arc<str>>,
    /// Entries that the first read found, if the target has an ownership record.
    adopted_names: Option<Arc<BTreeSet<String>>>,
}

/// Outcome of a pass.
struct PassOutcome {
    /// True if steps were applied. The next read then follows soon, to check their effect.
    has_applied_steps: bool,
    /// Latest time of the next read.
    next_read_by: Option<Instant>,
}

impl<T: Target> MirrorTask<T> {
    /// Creates the task of the mirror `name`.
    pub(crate) fn new(
        name: &str,
        target: T,
        settings: MirrorSettings,
        memory: MirrorMemory,
        status_sender: watch::Sender<MirrorStatus<T::Value>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            target: Arc::new(target),
            settings,
            memory,
            status_sender,
            has_claimed: AtomicBool::new(false),
            claim_failed_at: Mutex::default(),
            claimed: Notify::new(),
        })
    }

    /// Runs the mirror, and restarts it after a panic. Most panics come from the code of the target.
    pub(crate) async fn supervise(self: Arc<Self>, input: watch::Receiver<MirrorTaskInput<T::Value>>) {
        let mut delay = RESTART_INITIAL_DELAY;
        loop {
            let started = Instant::now();
            // Dropping the set aborts its task together with this task.
            let mut tasks = JoinSet::new();
            tasks.spawn(self.clone().run(input.clone()));
            match tasks.join_next().await {
                Some(Err(error)) if error.is_panic() => {
                    let reason = panic_message(error);
                    tracing::error!(mirror = self.name, %reason, "the task of a mirror panicked; restarting it");
                    self.report_failure(&Arc::from(format!("the task of the mirror panicked: {reason}")));
                    self.status_sender.send_modify(|status| status.restarts += 1);
                }
                _ => return,
            }
            if started.elapsed() > RESTART_MAX_DELAY {
                delay = RESTART_INITIAL_DELAY;
            }
            sleep(delay).await;
            delay = (delay * 2).min(RESTART_MAX_DELAY);
        }
    }

    /// Runs the mirror during each term of this process, and waits in between. Without replicas, the term never ends.
    async fn run(self: Arc<Self>, mut input: watch::Receiver<MirrorTaskInput<T::Value>>) {
        loop {
            let permit = if let Some(permit) = self.settings.gate.permit() {
                permit
            } else {
                self.report_standby();
                let Some(permit) = self.wait_for_term(&mut input).await else { return };
                permit
            };
            self.has_claimed.store(false, Ordering::Release);
            *self.claim_failed_at.lock() = None;
            self.status_sender.send_if_modified(|status| std::mem::take(&mut status.is_standby));
            // The renewals, the watch of the target and the steps in flight end with the term.
            tokio::select! {
                biased;
                () = permit.ended() => {}
                () = self.clone().run_term(permit.clone(), &mut input) => {
                    if permit.is_valid() {
                        return;
                    }
                    // The keeper of the gate has not yet noticed the end of the term.
                    permit.ended().await;
                }
            }
        }
    }

    /// Reports that another replica leads. Results of an earlier term are dropped.
    fn report_standby(&self) {
        self.status_sender.send_modify(|status| {
            let (reads, restarts) = (status.reads, status.restarts);
            *status = MirrorStatus { reads, restarts, is_standby: true, ..MirrorStatus::default() };
        });
    }

    /// Waits for a term. Remembers the origins of all entries that are desired in the meantime. Returns `None` if the
    /// mirror is stopped.
    async fn wait_for_term(&self, input: &mut watch::Receiver<MirrorTaskInput<T::Value>>) -> Option<WritePermit> {
        loop {
            let MirrorTaskInput { desired, is_stopped, .. } = input.borrow_and_update().clone();
            if is_stopped {
                return None;
            }
            if let Some(desired) = desired {
                let entry_records = desired.entries.iter().filter_map(|(name, value)| {
                    let (origin, locations) = (desired.origins.get(name)?.clone(), value.locations(name));
                    Some((name.clone(), EntryRecord { origin, locations, state: format!("{value:?}") }))
                });
                self.memory.remember_desired(&self.name, entry_records, is_claimed(&desired));
            }
            tokio::select! {
                biased;
                changed = input.changed() => changed.ok()?,
                permit = self.settings.gate.opened() => return Some(permit),
            }
        }
    }

    /// Runs passes until the mirror is stopped or the term ends.
    async fn run_term(self: Arc<Self>, permit: WritePermit, input: &mut watch::Receiver<MirrorTaskInput<T::Value>>) {
        // The term must be recorded before the first write, so that the target rejects late writes of earlier leaders.
        self.record_term(&permit).await;
        // Dropping these tasks ends them together with this run.
        let mut background = JoinSet::new();
        background.spawn(self.clone().renew_periodically(permit.clone()));
        let (sender, mut changed) = watch::channel(());
        background.spawn(self.clone().watch_target(sender));
        let mut run_state = RunState {
            draining: DrainState::default(),
            attempts: Attempts::default(),
            rng: Rng::with_seed(self.settings.seed),
            flushing: None,
            failures: 0,
            change_reason: None,
            rejection: None,
            adopted_names: None,
        };
        let mut awake_time = AwakeTime::start();
        loop {
            let MirrorTaskInput { desired, is_stopped, .. } = input.borrow_and_update().clone();
            if is_stopped || !permit.is_valid() {
                return;
            }
            awake_time.record(DESIRED_MAX_PAUSE);
            let next_read = match desired {
                None => None,
                // The earlier leader may have removed some of these entries.
                Some(desired) if desired.term != permit.token() && awake_time.counted() < DESIRED_TIMEOUT => {
                    Some(Instant::now() + DESIRED_MAX_PAUSE.min(DESIRED_TIMEOUT.saturating_sub(awake_time.counted())))
                }
                Some(_) => {
                    changed.mark_unchanged();
                    // Changes from here on wake the select below, even if this pass has read the target already.
                    let outcome = self.reconcile(&mut run_state, &permit, input).await;
                    let (max_pause, next_read_by) = match outcome {
                        Ok(outcome) => {
                            run_state.failures = 0;
                            let follow_up_delay = self.settings.retry_delay.min(self.settings.compare);
                            (
                                if outcome.has_applied_steps { follow_up_delay } else { self.settings.compare },
                                outcome.next_read_by,
                            )
                        }
                        Err(reason) => {
                            run_state.failures += 1;
                            self.report_failure(&reason);
                            let times = (run_state.failures - 1).min(16);
                            (self.settings.retry_delay.saturating_mul(1 << times).min(self.settings.compare), None)
                        }
                    };
                    // Jitter is added, because mirrors that started together must not read their targets together.
                    let next_comparison = Instant::now() + max_pause.mul_f64(0.75 + 0.25 * run_state.rng.f64());
                    Some(next_read_by.map_or(next_comparison, |latest| latest.min(next_comparison)))
                }
            };
            let pause = async {
                match next_read {
                    Some(next_read) => sleep_until(next_read).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                received = input.changed() => {
                    if received.is_err() {
                        return;
                    }
                    run_state.failures = 0;
                }
                // The sending task ends only if its future panics.
                Ok(()) = changed.changed() => {
                    tracing::info!(mirror = self.name, "the target was restarted or changed by another client; checking it now");
                    run_state.change_reason = Some("the target was restarted or changed by another client".into());
                    run_state.attempts.reset();
                    run_state.failures = 0;
                }
                () = self.claimed.notified() => {}
                () = pause => {}
            }
        }
    }

    /// Renews leases, the term and the ownership record at the target. Runs from the start of the term, independently
    /// of all passes of the mirror.
    async fn renew_periodically(self: Arc<Self>, permit: WritePermit) {
        let (mut failures, mut missing_records) = (0_u32, 0_u32);
        loop {
            let Ok(renewed) = permit.run(timeout(self.settings.deadline, self.target.renew())).await else { return };
            let Ok(is_recorded) = permit.run(self.record_term(&permit)).await else { return };
            if T::HAS_OWNER_RECORD && permit.run(self.claim()).await.is_err() {
                return;
            }
            let reason = match renewed {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error_chain(&error)),
                Err(_) => Some(self.timeout_error()),
            };
            failures = reason.as_ref().map_or(0, |_| failures.saturating_add(1));
            if let Some(reason) = reason.filter(|_| failures.is_power_of_two()) {
                tracing::warn!(mirror = self.name, %reason, failures, "cannot renew the leases at the target; retrying");
            }
            // Removals wait for the first claim, and the target may reject all changes before the term is recorded.
            let is_claim_missing = T::HAS_OWNER_RECORD && !self.has_claimed.load(Ordering::Acquire);
            missing_records = if is_claim_missing || !is_recorded { missing_records.saturating_add(1) } else { 0 };
            // Records of the owner and of the term expire after a fixed time, whatever the interval of reads is.
            let max_pause = (self.settings.compare / 2).min(RENEW_MAX_PAUSE);
            let pause = match failures.max(missing_records) {
                0 => max_pause,
                times => self.settings.retry_delay.saturating_mul(1 << (times - 1).min(16)).min(max_pause),
            };
            sleep(pause.max(MIN_CHANGE_INTERVAL)).await;
        }
    }

    /// Reports changes of the target by other clients.
    async fn watch_target(self: Arc<Self>, changes: watch::Sender<()>) {
        loop {
            self.target.changed().await;
            changes.send_replace(());
            // Bounds the rate of reads if the target changes all the time.
            sleep(MIN_CHANGE_INTERVAL).await;
        }
    }

    fn timeout_error(&self) -> Arc<str> {
        Arc::from(format!("no response within {:?}", self.settings.deadline))
    }

    /// Reads the target, plans, and applies the steps that are due. Applies no step after `input` reports a stop.
    async fn reconcile(
        &self,
        run_state: &mut RunState,
        permit: &WritePermit,
        input: &watch::Receiver<MirrorTaskInput<T::Value>>,
    ) -> Result<PassOutcome, Arc<str>> {
        let read = timeout(self.settings.deadline, self.target.read()).await;
        let found = read.map_err(|_| self.timeout_error())?.map_err(|error| error_chain(&error))?;
        // The caller may have stopped the mirror during the read, and may start another mirror soon. It may also have set
        // another desired state: a removal must not be based on the earlier one.
        let MirrorTaskInput { desired, is_stopped, .. } = input.borrow().clone();
        let (Some(desired), false) = (desired, is_stopped) else {
            return Ok(PassOutcome { has_applied_steps: false, next_read_by: None });
        };
        let desired = if desired.term == permit.token() {
            Cow::Borrowed(&*desired)
        } else {
            Cow::Owned(DesiredState { doubt: Some(EARLIER_TERM.into()), ..(*desired).clone() })
        };
        let unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let now = PlanTime { unix_seconds, instant: Instant::now() };
        let (plan_settings, validate) =
            (self.settings.plan_settings(), |values: &mut BTreeMap<String, T::Value>| self.target.validate(values));
        let plan_settings = PlanSettings { ownership: self.ownership(&found, run_state), ..plan_settings };
        let draining = &mut run_state.draining;
        let Plan { additions, removals, mut skipped, approvals, conflicting, uncertain, drain_deadline } = self
            .memory
            .update(&self.name, |record| plan(&desired, &found, &validate, &plan_settings, (record, draining), now));
        // Error of the last attempt to apply steps, if that attempt failed. The error concerns only the entries whose
        // steps failed, unless the target accepted no step.
        let rejection = run_state.rejection.clone();
        let failed_steps = additions.iter().chain(&removals).filter(|step| run_state.attempts.has_failed(step));
        // A step that the plan repeats after an attempt was not applied. Its entry is reported with the error.
        skipped.extend(rejection.iter().flat_map(|reason| {
            let failed_steps = failed_steps.clone();
            failed_steps.map(|step| (step.name().to_owned(), SkipReason::Rejected(reason.clone())))
        }));
        for request in approvals.iter().filter(|request| !self.status_sender.borrow().approvals.contains(request)) {
            let (mirror, id, names, of, group) =
                (&*self.name, &*request.id, request.names.len(), request.serving, &*request.group);
            tracing::warn!(
                mirror,
                group,
                id,
                names,
                of,
                "a group would lose more than its guard permits; its removals need approval"
            );
        }
        let settled = additions.is_empty() && removals.is_empty();
        let missing = additions.iter().filter(|step| matches!(step, Step::Add { .. })).count();
        let change =
            [self.target.change_reason().map(Arc::from), run_state.change_reason.take()].into_iter().flatten().next();
        // Entries cannot be lost before the first read.
        let was_seen = self.status_sender.borrow().last_read.is_some();
        let loss = change.filter(|_| was_seen && missing > 0).map(|reason| EntryLoss {
            missing,
            reason,
            detected: now.instant,
        });
        if let Some(EntryLoss { missing, reason, .. }) = &loss {
            tracing::warn!(mirror = self.name, missing, %reason, "entries are missing after a change of the target; adding them again");
        }
        self.status_sender.send_modify(|status| {
            if loss.is_some() {
                status.loss = loss;
            }
            status.reads += 1;
            status.last_read = Some(now.instant);
            status.settled = settled;
            status.entries = found.own.len();
            status.skipped = skipped;
            status.first_approval = approvals.first().cloned();
            status.approvals = approvals;
            status.conflicting = conflicting;
            status.uncertain = uncertain;
            status.failing = rejection.filter(|_| found.own.is_empty() && !settled);
        });
        // Removals wait until the disk has their record. Additions do not: a full disk must not keep a balancer empty.
        let (removals, flush_error) = match self.flush(run_state).await {
            Ok(()) => (removals, None),
            Err(_) if removals.is_empty() => (removals, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let steps = additions.into_iter().chain(removals).collect();
        let delays = (self.settings.retry_delay, self.settings.compare);
        let (steps, next) = run_state.attempts.take_due(steps, now.instant, delays);
        let drain_deadline = [drain_deadline, next].into_iter().flatten().min();
        // The flush may have waited for the disk, so the mirror may be stopped by now.
        let has_applied_steps = !steps.is_empty() && !input.borrow().is_stopped;
        if has_applied_steps {
            // The target sets a deadline for each of its attempts. This total timeout is longer, so that a failed
            // attempt does not cut off the others.
            let application = timeout(self.settings.deadline.saturating_mul(3), self.target.apply(&steps));
            let applied = permit
                .run(application)
                .await
                .map_err(|TermEnded| Arc::from("the term of this process as the leader has ended"))?;
            self.status_sender.send_modify(|status| status.applied = steps);
            match applied {
                Ok(Ok(())) => run_state.rejection = None,
                Ok(Err(error)) => self.record_rejection(error_chain(&error), run_state),
                Err(_) => self.record_rejection(self.timeout_error(), run_state),
            }
        }
        if let Some(reason) = flush_error {
            return Err(format!("entries are added but not removed: {reason}").into());
        }
        Ok(PassOutcome { has_applied_steps, next_read_by: drain_deadline })
    }

    /// Writes the state that must survive a restart. Waits at most [`FLUSH_TIMEOUT`] for the disk.
    async fn flush(&self, run_state: &mut RunState) -> Result<(), Arc<str>> {
        let pending = run_state.flushing.take();
        let was_pending = pending.is_some();
        let mut flushing = pending.unwrap_or_else(|| self.start_flush());
        match timeout(FLUSH_TIMEOUT, &mut flushing).await {
            // The earlier flush does not include the newest changes.
            Ok(_) if was_pending => Box::pin(self.flush(run_state)).await,
            Ok(Ok(written)) => written.map_err(|error| error_chain(&error)),
            Ok(Err(error)) => Err(Arc::from(format!("writing the memory of mirrors panicked: {error}"))),
            Err(_) => {
                run_state.flushing = Some(flushing);
                Err(Arc::from("the disk with the memory of mirrors does not respond"))
            }
        }
    }

    fn start_flush(&self) -> JoinHandle<io::Result<()>> {
        let (memory, name) = (self.memory.clone(), self.name.clone());
        tokio::task::spawn_blocking(move || memory.flush(&name))
    }

    /// Remembers the reason of a rejection. The next read shows which steps were rejected.
    fn record_rejection(&self, reason: Arc<str>, run_state: &mut RunState) {
        if run_state.rejection.as_ref() != Some(&reason) {
            tracing::warn!(mirror = self.name, %reason, "the target rejected a change; retrying it, other changes continue");
        }
        run_state.rejection = Some(reason);
    }

    /// Returns the ownership of the mark: exclusive, held by another process, or with the entries that this process has
    /// adopted.
    fn ownership(&self, found: &ActualState<T::Value>, run_state: &mut RunState) -> MarkOwnership {
        if !T::HAS_OWNER_RECORD {
            return MarkOwnership::Exclusive;
        }
        let is_claimed = self.has_claimed.load(Ordering::Acquire);
        if !is_claimed || self.status_sender.borrow().other_process.is_some() {
            return MarkOwnership::OtherProcess;
        }
        // The first read after a successful claim shows the entries of earlier processes, which this process takes
        // over.
        let adopted = run_state.adopted_names.get_or_insert_with(|| Arc::new(found.own.keys().cloned().collect()));
        MarkOwnership::Adopted(adopted.clone())
    }

    /// Makes the target reject writes of earlier leaders. Without permission to write the record, a late write of an
    /// earlier leader may still succeed, as at targets without conditional writes. Returns false if the term was not
    /// recorded.
    async fn record_term(&self, permit: &WritePermit) -> bool {
        if permit.token() == 0 {
            return true;
        }
        let unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let reason: Arc<str> =
            match timeout(self.settings.deadline, self.target.record_term(permit.token(), unix_seconds)).await {
                Ok(Ok(true)) => return true,
                Ok(Ok(false)) => "the target has the record of a later term".into(),
                Ok(Err(error)) => error_chain(&error),
                Err(_) => self.timeout_error(),
            };
        tracing::warn!(mirror = self.name, term = permit.token(), %reason, "cannot record the term at the target; retrying");
        false
    }

    /// Claims the mark for this process, and reports another holder.
    async fn claim(&self) {
        let unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let instance = self.settings.instance.as_deref().unwrap_or_else(|| self.memory.instance());
        let claimed = timeout(self.settings.deadline, self.target.claim(instance, unix_seconds)).await;
        let other = match claimed {
            Ok(Ok(ClaimResult::Ours)) => None,
            Ok(Ok(ClaimResult::Other { instance, .. })) => Some(Arc::from(instance)),
            Ok(Err(error)) => return self.record_failed_claim(&error_chain(&error)),
            // A target that does not respond is already reported by the reads.
            Err(_) => return,
        };
        let before = self.status_sender.borrow().other_process.clone();
        let is_first = !self.has_claimed.load(Ordering::Acquire);
        if other != before {
            self.status_sender.send_modify(|status| status.other_process.clone_from(&other));
        }
        self.has_claimed.store(true, Ordering::Release);
        if is_first {
            // Removals wait until the mark is claimed, so this notification starts a pass.
            self.claimed.notify_one();
        }
        if other == before {
            return;
        }
        if let Some(instance) = &other {
            let remedy = "give each process its own mark";
            tracing::warn!(mirror = self.name, %instance, remedy, "another process has the same mark; this process removes nothing");
        } else {
            tracing::info!(mirror = self.name, "no other process has the mark any more");
        }
    }

    /// Accepts that the ownership record cannot be written, if the target responds to reads: the credentials may lack the
    /// permission. Then no other process can be detected.
    fn record_failed_claim(&self, reason: &str) {
        if self.has_claimed.load(Ordering::Acquire) {
            return;
        }
        let failed_at = *self.claim_failed_at.lock().get_or_insert_with(Instant::now);
        // Without a read since the first failure, the target itself may not have responded. Another process may hold the
        // mark, and its entries must stay.
        if self.status_sender.borrow().last_read.is_some_and(|read_at| read_at >= failed_at) {
            self.has_claimed.store(true, Ordering::Release);
            tracing::warn!(mirror = self.name, %reason, "the ownership record cannot be written; other processes with the same mark are not detected");
        }
        // The pass reads the target for the next claim, or applies the removals that waited for the claim.
        self.claimed.notify_one();
    }

    fn report_failure(&self, reason: &Arc<str>) {
        let is_new = self.status_sender.borrow().failing.as_ref() != Some(reason);
        if is_new {
            tracing::warn!(mirror = self.name, %reason, "cannot reconcile the target with the desired state; retrying");
        }
        self.status_sender.send_modify(|status| {
            status.failing = Some(reason.clone());
            status.settled = false;
        });
    }
}

/// Returns the message of an error with all its causes.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> Arc<str> {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text.into()
}
