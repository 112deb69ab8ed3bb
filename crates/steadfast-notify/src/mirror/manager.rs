//! Manager of one running mirror: collects entries, reports conditions, applies approvals.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use steadfast_targets::{MirrorMemory, MirrorSettings, TermGate, WritePermit};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::approvals::Approvals;
use super::collect::{CollectedEntries, collect, first_unknown};
use super::driver::{AnyMirror, MirrorConditions, MirrorPreview, MirrorSinkStatus};
use super::feed::MirrorFeed;
use super::grouping::Grouping;
use super::input::MirrorInput;
use super::open::{OpenedMirror, OpenedMirrors};
use crate::engine_event::{EngineEvent, EventCallback};
use crate::entry_fields::EntryFields;
use crate::wake::wake_on_changes;

/// Interval between checks. Staleness of a cache and new approvals cause no notification.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Minimum delay between collections, so that changes within this time are collected together. The delay grows to ten
/// times the duration of the last collection.
const COLLECT_MIN_DELAY: Duration = Duration::from_millis(20);

/// Maximum delay between collections.
const COLLECT_MAX_DELAY: Duration = Duration::from_secs(5);

/// Receiver of the planned steps of a mirror in a dry run.
pub type DryRunCallback = dyn Fn(&str, Vec<String>) + Send + Sync;

/// Settings shared by all mirrors of a program.
#[derive(Clone)]
pub struct MirrorContext {
    /// State across restarts.
    pub memory: MirrorMemory,
    /// Source of approvals. `None` without a state folder.
    pub approvals: Option<Approvals>,
    /// Receiver of planned steps, for a dry run: the mirror, and the steps in the syntax of the target's tool.
    pub report_commands: Option<Arc<DryRunCallback>>,
    /// Receiver of events.
    pub report: Arc<EventCallback>,
    /// Permission to write to the targets.
    pub gate: TermGate,
    /// Name under which replicas share owner marks. `None` for a process without replicas.
    pub instance: Option<String>,
}

/// A running mirror. Dropping the value stops the collection of entries.
pub(super) struct MirrorManager {
    mirror: Arc<dyn AnyMirror>,
    collector: AbortHandle,
}

impl MirrorManager {
    /// Starts the mirror `name` on the current runtime, with entries from `feed`. The returned task only ends if the
    /// mirror ends. The value of the task is the reason.
    pub(super) fn start(
        name: String,
        opened_mirror: OpenedMirror,
        feed: MirrorFeed,
        context: MirrorContext,
    ) -> (Self, JoinHandle<String>) {
        let OpenedMirror { driver, settings, entry_fields, grouping } = opened_mirror;
        let settings = MirrorSettings { gate: context.gate.clone(), instance: context.instance.clone(), ..settings };
        let report_commands = context.report_commands.clone().map(|dry_run| {
            let name = name.clone();
            Box::new(move |commands| dry_run(&name, commands)) as Box<_>
        });
        let mirror = driver.start(&name, settings, context.memory.clone(), report_commands);
        let collector_task = CollectorTask {
            name,
            mirror: mirror.clone(),
            feed,
            inputs: Vec::new(),
            failed_inputs: BTreeMap::new(),
            watch_tasks: JoinSet::new(),
            entry_fields,
            grouping,
            context,
            reported: ReportedConditions::default(),
        };
        let task = tokio::spawn(collector_task.run());
        (Self { mirror, collector: task.abort_handle() }, task)
    }

    /// Returns the status of the mirror.
    pub(super) fn status(&self) -> MirrorSinkStatus {
        self.mirror.status()
    }

    /// Stops the mirror after the current step. The entries stay in the target.
    pub(super) async fn stop(&self) {
        // A concurrent call of `set_desired` finds the mirror stopped.
        self.collector.abort();
        self.mirror.stop().await;
    }
}

impl Drop for MirrorManager {
    fn drop(&mut self) {
        self.collector.abort();
    }
}

/// Previews the next steps of all opened mirrors, with the `inputs` of each mirror by name. The result for a mirror is
/// an error with the reason if the target cannot be read. Waits at most `limit` for the caches.
pub async fn preview_mirrors(
    opened_mirrors: &OpenedMirrors,
    mut inputs: BTreeMap<String, Vec<MirrorInput>>,
    memory: &MirrorMemory,
    limit: Duration,
) -> BTreeMap<String, Result<MirrorPreview, Arc<str>>> {
    let mut previews = BTreeMap::new();
    let deadline = Instant::now() + limit;
    for (name, OpenedMirror { driver, settings, entry_fields, grouping }) in &opened_mirrors.0 {
        let mut inputs = inputs.remove(name).unwrap_or_default();
        // All inputs share one deadline.
        for input in &inputs {
            input.wait_until_fresh(deadline.saturating_duration_since(Instant::now())).await;
        }
        let (_, clusters) = catch_up_inputs(&mut inputs, entry_fields, grouping).await;
        let preview = driver.preview(name, settings, memory, &collect_inputs(&inputs, &clusters)).await;
        previews.insert(name.clone(), preview);
    }
    previews
}

/// Clusters of a mirror, each with the reason if objects may be stale.
type ClusterDoubts = BTreeMap<String, Option<Arc<str>>>;

/// Evaluates changed objects of all inputs. Returns true if any object was evaluated, and each cluster with its doubt,
/// if any.
async fn catch_up_inputs(
    inputs: &mut [MirrorInput],
    entry_fields: EntryFields,
    grouping: &Grouping,
) -> (bool, ClusterDoubts) {
    inputs.iter_mut().for_each(MirrorInput::confirm);
    let mut clusters = ClusterDoubts::new();
    // Doubt is checked before and after: without doubt at both times, the cache was certain in between.
    let mut record_doubt = |inputs: &[MirrorInput]| {
        for input in inputs {
            let doubt = clusters.entry(input.cluster().to_owned()).or_default();
            *doubt = doubt.take().or_else(|| input.doubt().map(Arc::from));
        }
    };
    record_doubt(inputs);
    let mut has_changes = false;
    for input in &mut *inputs {
        has_changes |= input.catch_up(entry_fields, grouping).await;
    }
    record_doubt(inputs);
    (has_changes, clusters)
}

fn collect_inputs(inputs: &[MirrorInput], clusters: &ClusterDoubts) -> CollectedEntries {
    let mut collected_entries = collect(
        inputs.iter().flat_map(MirrorInput::object_entries),
        clusters,
        inputs.iter().filter_map(MirrorInput::existence_snapshot).collect(),
    );
    collected_entries.uncertain_origins.selections = inputs.iter().map(MirrorInput::selection).collect();
    collected_entries
}

struct CollectorTask {
    name: String,
    mirror: Arc<dyn AnyMirror>,
    feed: MirrorFeed,
    inputs: Vec<MirrorInput>,
    /// Clusters with inputs that could not be started, with reasons.
    failed_inputs: BTreeMap<String, String>,
    /// Tasks that wake this task.
    watch_tasks: JoinSet<()>,
    entry_fields: EntryFields,
    grouping: Grouping,
    context: MirrorContext,
    reported: ReportedConditions,
}

/// Last reported conditions.
#[derive(Default)]
struct ReportedConditions {
    unknown: Option<Arc<str>>,
    conditions: MirrorConditions,
}

impl CollectorTask {
    async fn run(mut self) -> String {
        let wake_signal = Arc::new(Notify::new());
        let mut feed_changes = self.feed.subscribe();
        feed_changes.mark_changed();
        // `None` before the first collection.
        let (mut reported, mut planned_pause) = (None, CHECK_INTERVAL);
        loop {
            if let Some(reason) = self.mirror.end_reason() {
                // The supervisor counts the failure and restarts the whole mirror.
                return reason;
            }
            let started = Instant::now();
            let has_feed_changed = feed_changes.has_changed().unwrap_or_default();
            if has_feed_changed || !self.failed_inputs.is_empty() {
                // Marked before the update: a change during the update causes another pass.
                feed_changes.mark_unchanged();
                self.failed_inputs = self.feed.update(&mut self.inputs);
                self.watch_tasks = self.spawn_watch_tasks(&wake_signal, feed_changes.clone());
            }
            // The permit at the start of the pass applies, because entries that are collected in one term are not used
            // in another term.
            let permit = self.context.gate.permit();
            // 0 on a standby, and without replicas.
            let term = permit.as_ref().map_or(0, WritePermit::token);
            for input in &mut self.inputs {
                input.enter_term(term, planned_pause, &wake_signal);
            }
            // Checked before the caches are read. An input that is confirmed during the pass may still have entries of
            // an older snapshot.
            let held_back = self.inputs.iter().filter(|input| input.is_held_back());
            let held_back: BTreeSet<String> = held_back.map(|input| input.cluster().to_owned()).collect();
            let (has_changes, mut clusters) =
                catch_up_inputs(&mut self.inputs, self.entry_fields, &self.grouping).await;
            // A cluster with missing inputs is uncertain: entries of the cluster may exist in the target.
            for (cluster, reason) in self.feed.missing().into_iter().chain(self.failed_inputs.clone()) {
                clusters.insert(cluster, Some(reason.into()));
            }
            // The barrier of a cluster may have ended in between. Nothing of it may be removed in this pass either.
            for cluster in &held_back {
                let doubt = clusters.entry(cluster.clone()).or_default();
                doubt.get_or_insert_with(|| "the entries of the cluster are held back".into());
            }
            // Without any change, the desired state stays valid. The mirror still compares the target periodically.
            let conditions = (term, held_back, clusters);
            if has_feed_changed || has_changes || reported.as_ref() != Some(&conditions) {
                let (_, held_back, clusters) = &conditions;
                let mut collected_entries = collect_inputs(&self.inputs, clusters);
                collected_entries.uncertain_origins.held_back.clone_from(held_back);
                collected_entries.term = term;
                let invalid = self.mirror.set_desired(&collected_entries);
                collected_entries.uncertain_origins.objects.extend(invalid);
                self.report_objects(&collected_entries);
                reported = Some(conditions);
            }
            self.report_mirror();
            self.take_approvals();
            // The pause grows with the cost of a pass: collection uses at most a tenth of the time.
            let min_pause = (started.elapsed() * 10).clamp(COLLECT_MIN_DELAY, COLLECT_MAX_DELAY);
            planned_pause = min_pause + CHECK_INTERVAL;
            let pause = async {
                sleep(min_pause).await;
                // Continue after the interval even without a notification.
                let _ = timeout(CHECK_INTERVAL, wake_signal.notified()).await;
            };
            // A new term ends the pause, because entries that were collected before the term are not used. After a
            // freeze of the process the pause may be at its maximum, because the measured duration of the pass includes
            // the freeze.
            let term_change = async {
                match &permit {
                    Some(permit) => permit.ended().await,
                    None => drop(self.context.gate.opened().await),
                }
            };
            tokio::select! {
                () = pause => {}
                () = term_change => {}
            }
        }
    }

    /// Starts tasks that wake the mirror when an input or the feed changes.
    fn spawn_watch_tasks(&self, wake_signal: &Arc<Notify>, mut feed_changes: watch::Receiver<u64>) -> JoinSet<()> {
        let mut watch_tasks = wake_on_changes(self.inputs.iter().flat_map(MirrorInput::changed), wake_signal);
        let wake_signal = wake_signal.clone();
        watch_tasks.spawn(async move {
            if feed_changes.changed().await.is_ok() {
                wake_signal.notify_one();
            }
        });
        watch_tasks
    }

    fn report_objects(&mut self, collected_entries: &CollectedEntries) {
        let mirror = || self.name.clone();
        let unknown = first_unknown(&collected_entries.uncertain_origins.objects);
        let reason = unknown.as_ref().map(|(reason, _)| reason.clone());
        if self.reported.unknown != reason {
            (self.context.report)(match unknown {
                Some((reason, objects)) => {
                    EngineEvent::EntriesUnknown { mirror: mirror(), reason: reason.to_string(), objects }
                }
                None => EngineEvent::EntriesKnown { mirror: mirror() },
            });
            self.reported.unknown = reason;
        }
    }

    fn report_mirror(&mut self) {
        let conditions = self.mirror.conditions();
        if self.reported.conditions == conditions {
            return;
        }
        let previous = std::mem::replace(&mut self.reported.conditions, conditions);
        let (current, mirror) = (&self.reported.conditions, || self.name.clone());
        for request in current.pending_removals.iter().filter(|request| !previous.pending_removals.contains(request)) {
            (self.context.report)(EngineEvent::ApprovalRequired { mirror: mirror(), request: request.clone() });
        }
        if current.conflicting_keys.iter().any(|key| !previous.conflicting_keys.contains(key)) {
            (self.context.report)(EngineEvent::ConflictingEntries {
                mirror: mirror(),
                keys: current.conflicting_keys.clone(),
            });
        }
        let mut rejected_entries = current
            .rejected_entries
            .iter()
            .filter(|(name, reason)| previous.rejected_entries.get(*name) != Some(*reason));
        if let Some((entry, reason)) = rejected_entries.next() {
            let others = rejected_entries.count();
            let (entry, reason) = (entry.clone(), reason.clone());
            (self.context.report)(EngineEvent::EntrySkipped {
                mirror: mirror(),
                entry,
                reason,
                skipped_since_report: others,
            });
        }
        if let Some(loss) = current.loss.as_ref().filter(|loss| previous.loss.as_ref() != Some(loss)) {
            (self.context.report)(EngineEvent::EntriesLost {
                mirror: mirror(),
                missing: loss.missing,
                reason: loss.reason.to_string(),
            });
        }
        if current.failing != previous.failing {
            (self.context.report)(match &current.failing {
                Some(reason) => EngineEvent::TargetFailing { mirror: mirror(), reason: reason.to_string() },
                None => EngineEvent::TargetRecovered { mirror: mirror() },
            });
        }
    }

    fn take_approvals(&self) {
        // Only the leader takes approvals: a standby would remove the file without effect.
        let Some(approvals) = self.context.approvals.as_ref().filter(|_| self.context.gate.permit().is_some()) else {
            return;
        };
        let ids = match approvals.take(&self.name) {
            Ok(ids) if ids.is_empty() => return,
            Ok(ids) => ids,
            Err(reason) => {
                return (self.context.report)(EngineEvent::InvalidApproval {
                    mirror: self.name.clone(),
                    reason: reason.to_string(),
                });
            }
        };
        for id in ids {
            let mirror = self.name.clone();
            (self.context.report)(match self.context.memory.approve(&self.name, &id) {
                Ok(request) => EngineEvent::Approved { mirror, request },
                Err(reason) => EngineEvent::InvalidApproval { mirror, reason: reason.to_string() },
            });
        }
        // An approved removal should not wait for the next comparison.
        self.mirror.compare_now();
    }
}
