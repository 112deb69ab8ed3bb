//! One informer's partition of a checkpoint: the stored state of the cache, and the writes that update it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use kube::Resource;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use steadfast_core::checkpoint::{DeliveryKey, RestoredEntry, RowEncodings, SavedDelivery, key_of, write_key};
use steadfast_core::reflector::Diagnostic;
use steadfast_core::store::Snapshot;
use steadfast_core::{Entry, Lazy, ObjectKey, ResourceVersion};
use tokio::sync::watch;

use super::cluster;
use super::database::{CheckpointFileError, PartitionChange, Rows};
use super::partition_header::{PartitionHeader, Terms};
use super::write_queue::{Claim, PartitionWriter, WriteQueue};
use super::writer;
use super::written_states::WrittenStates;
use crate::cache_storage::{CacheStorage, ClusterIdentity, Restored};
use crate::connection::Connection;
use crate::durable::OutboxRows;
use crate::shared::Shared;

/// Partition before the informer runs: restores the stored state, and then attaches the informer to the write queue.
pub(super) struct PartitionStorage {
    queue: Arc<WriteQueue>,
    claim: Claim,
    terms: Terms,
    encodings: RowEncodings,
    connection: Connection,
    /// Identifier of the restored state, from the header.
    mark: u64,
}

impl PartitionStorage {
    pub(super) fn new(
        queue: Arc<WriteQueue>,
        claim: Claim,
        terms: Terms,
        encodings: RowEncodings,
        connection: Connection,
    ) -> Self {
        Self { queue, claim, terms, encodings, connection, mark: 0 }
    }
}

impl<T: Resource + DeserializeOwned + Send + Sync + 'static> CacheStorage<Lazy<T>> for PartitionStorage {
    fn set_owner(&mut self, shared: &Arc<Shared<Lazy<T>>>) {
        let shared = shared.clone();
        self.claim.allow_takeover_when(move || shared.is_stopped());
    }

    fn restore(&mut self, on_row: &mut dyn FnMut(RestoredEntry)) -> Result<Restored, Option<Arc<str>>> {
        let encodings = self.encodings;
        let mut pending_deliveries = Vec::new();
        let head = self.queue.database.read(&self.claim.name, &self.terms, |key, row| {
            if DeliveryKey::has_prefix(key) {
                let read = DeliveryKey::read(key).and_then(|key| Some((pending(encodings, &key, row)?, key)));
                return read.map(|(pending, key)| pending_deliveries.push((key, pending))).is_some();
            }
            let saved = key_of(key).and_then(|key| encodings.read(key, row));
            saved.map(&mut *on_row).is_some()
        })?;
        self.mark = head.mark;
        Ok(Restored { version: head.version, cluster: head.cluster, pending_deliveries })
    }

    fn request_cluster_identity(&self, restored: bool) -> BoxFuture<'static, ClusterIdentity> {
        Box::pin(cluster::request_identity(self.connection.clone(), restored))
    }

    fn start_storing(self: Box<Self>, shared: &Arc<Shared<Lazy<T>>>, is_restored: bool, cluster: Option<String>) {
        let Self { queue, claim, terms, encodings, mark, .. } = *self;
        let written = is_restored.then(|| (mark, (None, shared.snapshot())));
        let woken_queue = queue.clone();
        shared.durable_handlers.wake_by(move || woken_queue.wake_writer.notify_one());
        let partition = Partition {
            claim,
            terms,
            encodings,
            cluster,
            shared: shared.clone(),
            state: Mutex::new(State {
                generations: WrittenStates::new(written),
                epoch: None,
                is_in_progress: false,
                failures: 0,
            }),
            has_unnameable_object: AtomicBool::new(false),
            was_reported: AtomicBool::new(false),
        };
        writer::attach(&queue, Arc::new(partition), &shared.environment);
    }
}

/// Partition of a running informer.
struct Partition<T> {
    claim: Claim,
    terms: Terms,
    encodings: RowEncodings,
    /// Cluster of the server at the start of the informer.
    cluster: Option<String>,
    shared: Arc<Shared<Lazy<T>>>,
    state: Mutex<State<T>>,
    /// True after an object arrived in a form that the file cannot represent.
    has_unnameable_object: AtomicBool,
    /// True after the warning that nothing can be written.
    was_reported: AtomicBool,
}

/// Number of failed attempts to store pending deliveries before they are delivered unstored. The attempts take at least
/// 1.5 s.
const MAX_STORE_ATTEMPTS: u32 = 3;

struct State<T> {
    generations: WrittenStates<PartitionState<T>>,
    /// Epoch in which the cluster was identified.
    epoch: Option<u64>,
    /// True during a transaction.
    is_in_progress: bool,
    /// Consecutive failed transactions.
    failures: u32,
}

/// State of a partition: cluster and version in its header, and the snapshot of its rows. The header is `None` for a
/// restored state.
type PartitionState<T> = (Option<(Option<String>, ResourceVersion)>, Arc<Snapshot<Lazy<T>>>);

impl<T: Send + Sync + 'static> PartitionWriter for Partition<T> {
    fn step(&self) -> Option<PartitionChange<'_>> {
        // A restored and unconfirmed cache is already in the file.
        if self.claim.is_lost() || !self.shared.is_synced() || self.shared.is_withheld() {
            return None;
        }
        // Snapshot and pending deliveries are taken from one publication, so that the file never has a change without
        // its deliveries, or deliveries without their change.
        let mut state = self.state.lock();
        let discard_rows = state.generations.is_unusable();
        let (current, evidence, pending_deliveries) = self.shared.with_publication(|current, evidence| {
            let can_write = !evidence.needs_list && self.has_version(current);
            if can_write { self.shared.durable_handlers.begin_write(discard_rows) } else { Vec::new() }
        });
        // The cache may lack changes of objects whose identity could not be read, and a restart from it would lose them
        // silently. The file keeps the last complete state; after a restart the server sends the later changes again.
        if evidence.needs_list {
            drop(state);
            self.deliver_unstored("an object could not be identified, and no list has resolved this yet", true);
            return None;
        }
        let name = self.claim.name.as_str();
        let Some(version) = current.version().filter(|_| self.has_version(&current)) else {
            // Without a version a restored watch could not resume.
            let is_erased = state.generations.is_erased();
            if !is_erased {
                state.generations.start_erase();
                state.is_in_progress = true;
            }
            drop(state);
            self.deliver_unstored("the server returns no version that a watch could resume from", false);
            return (!is_erased).then(|| PartitionChange {
                name,
                discard_rows: true,
                head: None,
                edit: Box::new(|_, _| Ok(())),
            });
        };
        // After a new epoch the server may belong to another cluster, so no cluster is stored. The next run then starts
        // with a list.
        let same_epoch = *state.epoch.get_or_insert(current.epoch()) == current.epoch();
        let cluster = self.cluster.clone().filter(|_| same_epoch);
        let new_head = Some((cluster.clone(), version.clone()));
        let is_unchanged = state
            .generations
            .certain_state()
            .is_some_and(|(known_head, stored)| *known_head == new_head && is_same(stored, &current));
        // Bookmarks change the version in the header even if no row changes: a restart then resumes at a later version.
        if is_unchanged && pending_deliveries.is_empty() {
            return None;
        }
        state.is_in_progress = true;
        let mark = state.generations.start_write((new_head, current.clone()));
        let head = PartitionHeader { terms: self.terms.clone(), cluster, version: version.clone(), mark };
        let edit = move |found, rows: &mut dyn Rows| {
            let written = self.state.lock().generations.begin(found)?;
            self.write(written.as_ref().map(|(_, stored)| &**stored), &current, rows)?;
            self.write_pending_deliveries(&pending_deliveries, &current, rows)
        };
        Some(PartitionChange { name, discard_rows, head: Some(head), edit: Box::new(edit) })
    }

    fn finish_write(&self, written: bool) {
        let failures = {
            let mut state = self.state.lock();
            // This method is called for every informer of the queue, also for informers without changes in this
            // transaction.
            state.generations.finish(written);
            if !std::mem::take(&mut state.is_in_progress) {
                return;
            }
            state.failures = if written { 0 } else { state.failures.saturating_add(1) };
            state.failures
        };
        self.shared.durable_handlers.finish_write(written);
        if written {
            self.was_reported.store(false, Ordering::Relaxed);
        } else if failures >= MAX_STORE_ATTEMPTS {
            self.deliver_unstored("the disk rejects writes", false);
        }
    }

    fn is_finished(&self) -> bool {
        // Acknowledgements are still written while handlers drain.
        (self.shared.is_stopped() && self.shared.durable_handlers.is_idle()) || self.claim.is_lost()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed()
    }

    fn report(&self, diagnostic: &Diagnostic) {
        self.shared.report(diagnostic);
    }
}

impl<T: Send + Sync + 'static> Partition<T> {
    /// Writes the difference between `current` and `written`.
    fn write(
        &self,
        written: Option<&Snapshot<Lazy<T>>>,
        current: &Snapshot<Lazy<T>>,
        rows: &mut dyn Rows,
    ) -> Result<(), CheckpointFileError> {
        let (mut key, mut row) = (Vec::new(), Vec::new());
        let Some(written) = written else {
            return current.iter().try_for_each(|entry| self.put(entry, &mut key, &mut row, rows));
        };
        let mut changes = Vec::new();
        written.differences(current, |old, new| changes.push((old, new)));
        // Removals come first: a deleted object may exist again under another row key.
        for (old, new) in &changes {
            let Some(old) = old.filter(|old| new.is_none_or(|new| new.key() != old.key())) else { continue };
            key.clear();
            write_key(old.key(), &mut key);
            rows.remove(&key)?;
        }
        changes.iter().filter_map(|(_, new)| *new).try_for_each(|entry| self.put(entry, &mut key, &mut row, rows))
    }

    /// Returns true if the snapshot can be stored: a watch can resume from its version, and the file can represent all
    /// objects.
    fn has_version(&self, current: &Snapshot<Lazy<T>>) -> bool {
        current.version().is_some_and(ResourceVersion::is_ordered)
            && !self.has_unnameable_object.load(Ordering::Relaxed)
    }

    /// Delivers the pending events of durable handlers although nothing can be written. Logs and reports this once
    /// until the next successful write. If `reports_diagnostic` is true, also reports that the checkpoint is not
    /// written.
    fn deliver_unstored(&self, reason: &str, reports_diagnostic: bool) {
        let delivers_more = self.shared.durable_handlers.deliver_unrecorded();
        if (delivers_more || reports_diagnostic) && !self.was_reported.swap(true, Ordering::Relaxed) {
            let reason = Arc::<str>::from(reason);
            if reports_diagnostic {
                self.shared.report(&Diagnostic::CheckpointNotWritten { reason: reason.clone() });
            }
            if delivers_more {
                tracing::warn!(informer = %self.shared.name, why = %reason, "durable handlers receive events that cannot be written to the checkpoint");
                self.shared.report(&Diagnostic::DeliveredUnrecorded { reason });
            }
        }
    }

    /// Writes the pending deliveries of handlers, in addition to the cache `current`.
    fn write_pending_deliveries(
        &self,
        pending_deliveries: &[OutboxRows<Lazy<T>>],
        current: &Snapshot<Lazy<T>>,
        rows: &mut dyn Rows,
    ) -> Result<(), CheckpointFileError> {
        let mut row = Vec::new();
        let key_of = |handler: &str, object_key: Option<&ObjectKey>| {
            let mut key = Vec::new();
            DeliveryKey::write(handler, object_key, &mut key);
            key
        };
        for handler_rows in pending_deliveries {
            let (handler, is_new, changed_rows) = match handler_rows {
                OutboxRows::Remove(handler, names) => {
                    rows.remove(&key_of(handler, None))?;
                    names.iter().try_for_each(|object_key| rows.remove(&key_of(handler, Some(object_key))))?;
                    continue;
                }
                OutboxRows::Write(handler, is_new, changed_rows) => (handler, *is_new, changed_rows),
            };
            if is_new {
                rows.put(&key_of(handler, None), &[])?;
            }
            for (object_key, pending) in changed_rows {
                let key = key_of(handler, Some(object_key));
                let Some(pending) = pending else {
                    rows.remove(&key)?;
                    continue;
                };
                row.clear();
                let stored = current.entry(object_key.namespace(), object_key.name());
                self.encodings
                    .write_delivery(pending, stored, &mut row)
                    .map_err(|_| self.unnameable_error(object_key))?;
                rows.put(&key, &row)?;
            }
        }
        Ok(())
    }

    fn unnameable_error(&self, key: &ObjectKey) -> CheckpointFileError {
        self.has_unnameable_object.store(true, Ordering::Relaxed);
        CheckpointFileError(format!("{key} was received as a message of another kind").into())
    }

    fn put(
        &self,
        entry: &Entry<Lazy<T>>,
        key: &mut Vec<u8>,
        row: &mut Vec<u8>,
        rows: &mut dyn Rows,
    ) -> Result<(), CheckpointFileError> {
        key.clear();
        row.clear();
        write_key(entry.key(), key);
        self.encodings.write(entry, row).map_err(|_| self.unnameable_error(entry.key()))?;
        rows.put(key, row)
    }
}

/// Decodes a row of a pending delivery. A row without an object name records that the handler exists.
fn pending(encodings: RowEncodings, key: &DeliveryKey, row: &[u8]) -> Option<SavedDelivery> {
    match &key.key {
        Some(key) => encodings.read_delivery(key, row),
        None => row.is_empty().then(SavedDelivery::default),
    }
}

/// Returns true if both snapshots have equal entries.
fn is_same<T>(written: &Snapshot<Lazy<T>>, current: &Snapshot<Lazy<T>>) -> bool {
    let mut same = true;
    written.differences(current, |_, _| same = false);
    same
}
