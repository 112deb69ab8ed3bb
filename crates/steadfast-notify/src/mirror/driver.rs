//! Object-safe interface to targets of all kinds: entries, status and previews.

use std::collections::{BTreeMap, btree_map};
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast_targets::{
    ApprovalRequest, CompetingEntry, DesiredState, DryRun, EntryLoss, EntryValue, Mirror, MirrorMemory, MirrorSettings,
    MirrorState, MirrorStatus, ObjectId, SkipReason, Target, preview,
};
use tokio::sync::watch;

use super::claim::ClaimedEntry;
use super::collect::CollectedEntries;
use super::entry::Entry;

/// Error of opening a mirror: field of the sink, error and remedy.
pub(crate) struct OpenError {
    pub(crate) path: String,
    pub(crate) description: String,
    pub(crate) remedy: &'static str,
    /// True if the cause is outside of the configuration, such as an unreadable file or an unset variable. Opening is
    /// retried, since the cause may disappear.
    pub(crate) has_external_cause: bool,
}

impl OpenError {
    pub(crate) fn new(path: impl Into<String>, description: impl Display, remedy: &'static str) -> Self {
        Self { path: path.into(), description: description.to_string(), remedy, has_external_cause: false }
    }

    /// Marks the cause as outside of the configuration.
    pub(crate) fn with_external_cause(self) -> Self {
        Self { has_external_cause: true, ..self }
    }
}

/// Preview of a mirror's next actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorPreview {
    /// Number of steps.
    pub steps: usize,
    /// Steps in the syntax of the target's tool.
    pub commands: Vec<String>,
    /// Entries that would not match the desired state, with reasons.
    pub skipped: BTreeMap<String, String>,
    /// Removals that need approval.
    pub approvals: Vec<ApprovalRequest>,
    /// Reason why no entries would be removed, if the desired state is uncertain.
    pub doubt: Option<String>,
}

/// Status of a mirror at the last comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorSinkStatus {
    /// State of the mirror.
    pub state: MirrorState,
    /// Number of the mirror's entries in the target.
    pub entries: usize,
    /// True if all entries match the desired state, except entries that are left unchanged.
    pub is_settled: bool,
    /// Number of mismatching entries that are left unchanged, plus the number of objects with unknown entries.
    pub skipped: usize,
    /// First mismatching entries and objects with unknown entries, with reasons: at most [`MAX_LISTED`] of each.
    pub skipped_entries: BTreeMap<String, String>,
    /// Number of entries with a removal that needs approval.
    pub entries_pending_approval: usize,
    /// Removals that need approval, by group.
    pub pending_approvals: Vec<ApprovalRequest>,
    /// Reason why the target cannot be read or changed.
    pub failing: Option<Arc<str>>,
    /// Time since the last successful read of the target. `None` before the first read.
    pub last_read: Option<Duration>,
    /// Number of restarts after a panic.
    pub restarts: u64,
}

impl MirrorSinkStatus {
    /// Status of a mirror that is not open, with the reason.
    pub(super) fn blocked(reason: Arc<str>) -> Self {
        Self {
            state: MirrorState::Blocked(reason.clone()),
            entries: 0,
            is_settled: false,
            skipped: 0,
            skipped_entries: BTreeMap::new(),
            entries_pending_approval: 0,
            pending_approvals: Vec::new(),
            failing: Some(reason),
            last_read: None,
            restarts: 0,
        }
    }
}

/// Maximum number of entries that a status lists by name.
pub const MAX_LISTED: usize = 100;

pub(super) type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Receiver of the planned steps in a dry run.
pub(super) type CommandsCallback = Box<dyn Fn(Vec<String>) + Send + Sync>;

/// An opened target.
pub(crate) trait AnyDriver: Send + Sync {
    /// Starts to reconcile the target. With `report_commands`, only reports planned steps (dry run).
    fn start(
        self: Box<Self>,
        name: &str,
        settings: MirrorSettings,
        memory: MirrorMemory,
        report_commands: Option<CommandsCallback>,
    ) -> Arc<dyn AnyMirror>;

    /// Returns the next steps without any change.
    fn preview<'a>(
        &'a self,
        name: &'a str,
        settings: &'a MirrorSettings,
        memory: &'a MirrorMemory,
        collected_entries: &'a CollectedEntries,
    ) -> BoxedFuture<'a, Result<MirrorPreview, Arc<str>>>;
}

/// A running mirror.
pub(crate) trait AnyMirror: Send + Sync {
    /// Sets the desired entries. Returns invalid entries with the reason, by object.
    fn set_desired(&self, collected_entries: &CollectedEntries) -> BTreeMap<ObjectId, Arc<str>>;

    /// Triggers a comparison with the target.
    fn compare_now(&self);

    /// Returns conditions that need attention by an operator.
    fn conditions(&self) -> MirrorConditions;

    /// Returns the status.
    fn status(&self) -> MirrorSinkStatus;

    /// Returns the reason why the mirror's task ended unexpectedly. A panic counts even if the task was restarted.
    fn end_reason(&self) -> Option<String>;

    /// Stops the mirror after the current step.
    fn stop(&self) -> BoxedFuture<'_, ()>;
}

/// Conditions of a mirror that need attention by an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MirrorConditions {
    pub(crate) pending_removals: Vec<ApprovalRequest>,
    pub(crate) failing: Option<Arc<str>>,
    /// Keys with several different entries of one group.
    pub(crate) conflicting_keys: Vec<String>,
    /// Entries that are skipped or unchanged because of the content, with reasons.
    pub(crate) rejected_entries: BTreeMap<String, String>,
    /// Last loss of entries at the target.
    pub(crate) loss: Option<EntryLoss>,
}

/// A target, and the conversion of entries to the target's values.
pub(super) struct Driver<T: Target> {
    pub(super) target: T,
    pub(super) convert_entry: EntryConverter<T::Value>,
}

/// Converts one entry to a name and a value at the target. `None` for an entry that must not exist now.
///
/// An error affects only this entry.
pub(super) type EntryConverter<V> = Box<dyn Fn(&Entry) -> Result<Option<(String, V)>, String> + Send + Sync>;

/// Returns a conversion for targets that contain all entries, ready or not.
pub(super) fn all_entries<V: EntryValue>(
    value: impl Fn(&Entry) -> Result<(String, V), String> + Send + Sync + 'static,
) -> EntryConverter<V> {
    Box::new(move |entry| value(entry).map(Some))
}

/// Returns a conversion for targets that contain only ready entries.
pub(super) fn ready_entries<V: EntryValue>(
    value: impl Fn(&Entry) -> Result<(String, V), String> + Send + Sync + 'static,
) -> EntryConverter<V> {
    Box::new(move |entry| if entry.is_ready { value(entry).map(Some) } else { Ok(None) })
}

impl<T: Target> AnyDriver for Driver<T> {
    fn start(
        self: Box<Self>,
        name: &str,
        settings: MirrorSettings,
        memory: MirrorMemory,
        report_commands: Option<CommandsCallback>,
    ) -> Arc<dyn AnyMirror> {
        let Self { target, convert_entry } = *self;
        let mirror = match report_commands {
            None => Mirror::start(name, target, settings, memory),
            Some(report) => Mirror::start(name, DryRun::new(target, report), settings, memory),
        };
        let status = mirror.status();
        Arc::new(RunningMirror {
            mirror: Mutex::new(Some(mirror)),
            status,
            convert_entry,
            unknown_entries: Mutex::default(),
        })
    }

    fn preview<'a>(
        &'a self,
        name: &'a str,
        settings: &'a MirrorSettings,
        memory: &'a MirrorMemory,
        collected_entries: &'a CollectedEntries,
    ) -> BoxedFuture<'a, Result<MirrorPreview, Arc<str>>> {
        let (desired, invalid) = desired(collected_entries, &self.convert_entry);
        Box::pin(async move {
            let target_preview = preview(name, &self.target, settings, memory, &desired).await?;
            let uncertain_origins =
                desired.uncertain_origins.clusters.values().chain(desired.uncertain_origins.objects.values());
            let doubt = desired.doubt.iter().chain(uncertain_origins).next().map(ToString::to_string);
            let mut skipped = reason_texts(&target_preview.skipped);
            skipped.extend(invalid.into_iter().map(|(object, reason)| (object.to_string(), reason.to_string())));
            Ok(MirrorPreview {
                steps: target_preview.steps.len(),
                commands: target_preview.commands,
                skipped,
                approvals: target_preview.approvals,
                doubt,
            })
        })
    }
}

/// Converts the collected entries. Returns invalid entries by object. Other entries of such an object stay unchanged.
fn desired<V: EntryValue>(
    collected_entries: &CollectedEntries,
    convert_entry: &EntryConverter<V>,
) -> (DesiredState<V>, BTreeMap<ObjectId, Arc<str>>) {
    let CollectedEntries { claims, uncertain_origins, doubt, existence_check, term } = collected_entries;
    let (doubt, exists) = (doubt.clone(), existence_check.clone());
    let mut desired = DesiredState { doubt, exists, term: *term, ..DesiredState::default() };
    let mut invalid = BTreeMap::new();
    for ClaimedEntry { entry, origin } in claims {
        match convert_entry(entry) {
            Ok(None) => {}
            Ok(Some((name, value))) => match desired.entries.entry(name.clone()) {
                btree_map::Entry::Vacant(vacant) => {
                    vacant.insert(value);
                    desired.origins.insert(name, origin.clone());
                }
                btree_map::Entry::Occupied(_) => {
                    // Two entries have the same name. The mirror resolves the conflict later, by the recorded holder of
                    // the name.
                    desired.competing.push(CompetingEntry { name, value, origin: origin.clone() });
                }
            },
            Err(reason) => {
                let reason = format!("the entry {:?} is invalid: {reason}", entry.key);
                invalid.entry(origin.object.clone()).or_insert_with(|| Arc::from(reason));
            }
        }
    }
    desired.uncertain_origins = uncertain_origins.clone();
    // Entries of an invalid object stay at the target until the object is valid again.
    desired.uncertain_origins.objects.extend(invalid.clone());
    (desired, invalid)
}

fn reason_texts(skipped: &BTreeMap<String, SkipReason>) -> BTreeMap<String, String> {
    skipped.iter().map(|(name, reason)| (name.clone(), reason.to_string())).collect()
}

/// Objects with unknown entries: number, and the first [`MAX_LISTED`] with reasons.
#[derive(Default)]
struct UnknownEntries {
    count: usize,
    listed: BTreeMap<String, String>,
}

struct RunningMirror<V> {
    mirror: Mutex<Option<Mirror<V>>>,
    status: watch::Receiver<MirrorStatus<V>>,
    convert_entry: EntryConverter<V>,
    unknown_entries: Mutex<UnknownEntries>,
}

impl<V: EntryValue> AnyMirror for RunningMirror<V> {
    fn set_desired(&self, collected_entries: &CollectedEntries) -> BTreeMap<ObjectId, Arc<str>> {
        let (desired, invalid) = desired(collected_entries, &self.convert_entry);
        let objects = &desired.uncertain_origins.objects;
        let listed = objects.iter().take(MAX_LISTED).map(|(object, reason)| (object.to_string(), reason.to_string()));
        *self.unknown_entries.lock() = UnknownEntries { count: objects.len(), listed: listed.collect() };
        // After `stop` the mirror is absent, and the call has no effect.
        if let Some(mirror) = &*self.mirror.lock() {
            mirror.set_desired(desired);
        }
        invalid
    }

    fn compare_now(&self) {
        if let Some(mirror) = &*self.mirror.lock() {
            mirror.compare_now();
        }
    }

    fn conditions(&self) -> MirrorConditions {
        let status = self.status.borrow();
        let concerns_entry = |reason: &SkipReason| {
            matches!(
                reason,
                SkipReason::Conflict(_)
                    | SkipReason::Invalid(_)
                    | SkipReason::Foreign
                    | SkipReason::OtherProcess
                    | SkipReason::Rejected(_)
            )
        };
        let rejected_entries = status.skipped.iter().filter(|(_, reason)| concerns_entry(reason));
        MirrorConditions {
            pending_removals: status.approvals.clone(),
            failing: status.failing.clone(),
            conflicting_keys: status.conflicting.clone(),
            rejected_entries: rejected_entries.map(|(name, reason)| (name.clone(), reason.to_string())).collect(),
            loss: status.loss.clone(),
        }
    }

    fn status(&self) -> MirrorSinkStatus {
        let status = self.status.borrow();
        let unknown_entries = self.unknown_entries.lock();
        let skipped_entries =
            status.skipped.iter().take(MAX_LISTED).map(|(name, reason)| (name.clone(), reason.to_string()));
        let skipped_entries = skipped_entries.chain(unknown_entries.listed.clone());
        MirrorSinkStatus {
            state: status.state(),
            entries: status.entries,
            is_settled: status.settled,
            skipped: status.skipped.len() + unknown_entries.count,
            skipped_entries: skipped_entries.collect(),
            entries_pending_approval: status.approvals.iter().map(|request| request.names.len()).sum(),
            pending_approvals: status.approvals.clone(),
            failing: status.failing.clone(),
            last_read: status.last_read.map(|instant| instant.elapsed()),
            restarts: status.restarts,
        }
    }

    fn end_reason(&self) -> Option<String> {
        // The mirror's task owns the sender of the status, so a closed channel means that the task has ended.
        let has_ended = self.status.has_changed().is_err();
        let status = self.status.borrow();
        let reason = || status.failing.as_deref().unwrap_or("the task that compares the target has ended").to_owned();
        (has_ended || status.restarts > 0).then(reason)
    }

    fn stop(&self) -> BoxedFuture<'_, ()> {
        let mirror = self.mirror.lock().take();
        Box::pin(async move {
            if let Some(mirror) = mirror {
                mirror.stop().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use steadfast_targets::Origin;
    use steadfast_targets::haproxy::Server;

    use super::*;
    use crate::entry_fields::SERVER;
    use crate::mirror::entry::entries;

    fn origin(name: &str) -> Arc<Origin> {
        let object = ObjectId { cluster: "c".into(), name: name.into(), ..ObjectId::default() };
        Arc::new(Origin { group: "c/shop".into(), object, uid: String::new() })
    }

    #[test]
    fn invalid_entry_affects_only_its_object() {
        let claims = [("good", json!(80)), ("bad", json!(0))].map(|(key, port)| {
            let value = json!({"key": key, "address": "10.0.0.1", "port": port});
            let read = entries(&value, SERVER, &serde_json::Value::Null, key).expect("an entry");
            ClaimedEntry { entry: read[0].clone(), origin: origin(key) }
        });
        let convert_entry = all_entries(|entry: &Entry| {
            Ok((entry.key.clone(), Server { address: entry.address()?, weight: entry.weight()? }))
        });
        let collected_entries = CollectedEntries { claims: claims.into(), ..CollectedEntries::default() };
        let (desired, invalid) = desired(&collected_entries, &convert_entry);
        assert_eq!(desired.entries.keys().collect::<Vec<_>>(), ["good"]);
        assert_eq!(desired.uncertain_origins.objects, invalid);
        let reason = &invalid[&origin("bad").object];
        assert!(reason.contains("\"bad\"") && reason.contains("`port`"), "{reason}");
    }
}
