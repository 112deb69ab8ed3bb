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
use super::database::{Fault, PartitionChange, Rows};
use super::generations::Generations;
use super::partition_header::{PartitionHeader, Terms};
use super::write_queue::{Claim, PartitionWriter, WriteQueue};
use super::writer;
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
        self.claim.until(move || shared.is_stopped());
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
        let called = queue.clone();
        shared.durables.wake_by(move || called.called.notify_one());
        let section = Partition {
            claim,
            terms,
            encodings,
            cluster,
            shared: shared.clone(),
            state: Mutex::new(State {
                generations: Generations::new(written),
                epoch: None,
                is_going: false,
                failures: 0,
            }),
            is_unnameable: AtomicBool::new(false),
            is_notified: AtomicBool::new(false),
        };
        writer::attach(&queue, Arc::new(section), &shared.environment);
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
    is_unnameable: AtomicBool,
    /// True after the warning that nothing can be written.
    is_notified: AtomicBool,
}

/// Number of failed attempts to store pending deliveries before they are delivered unstored. The attempts take at least
/// 1.5 s.
const ATTEMPTS: u32 = 3;

struct State<T> {
    generations: Generations<Held<T>>,
    /// Epoch in which the cluster was identified.
    epoch: Option<u64>,
    /// True during a transaction.
    is_going: bool,
    /// Consecutive failed transactions.
    failures: u32,
}

/// State of a partition: cluster and version in its header, and the snapshot of its rows. The header is `None` for a
/// restored state.
type Held<T> = (Option<(Option<String>, ResourceVersion)>, Arc<Snapshot<Lazy<T>>>);

impl<T: Send + Sync + 'static> PartitionWriter for Partition<T> {
    fn step(&self) -> Option<PartitionChange<'_>> {
        // A restored and unconfirmed cache is already in the file.
        if self.claim.is_lost() || !self.shared.is_synced() || self.shared.is_withheld() {
            return None;
        }
        // Snapshot and pending deliveries are taken from one publication, so that the file never has a change without
        // its deliveries, or the other way round.
        let mut state = self.state.lock();
        let discard_rows = state.generations.is_unusable();
        let (now, evidence, pending_deliveries) = self.shared.with_publication(|now, evidence| {
            let can_be = !evidence.unidentified && self.has_version(now);
            if can_be { self.shared.durables.begin_write(discard_rows) } else { Vec::new() }
        });
        // The cache may lack changes of objects whose identity could not be read, and a restart from it would lose them
        // silently. The file keeps the last complete state; after a restart the server sends the later changes again.
        if evidence.unidentified {
            drop(state);
            self.go_without("an object could not be identified, and no list has resolved this yet", true);
            return None;
        }
        let name = self.claim.name.as_str();
        let Some(version) = now.version().filter(|_| self.has_version(&now)) else {
            // Without a version a restored watch could not resume.
            let is_erased = state.generations.is_erased();
            if !is_erased {
                state.generations.start_erase();
                state.is_going = true;
            }
            drop(state);
            self.go_without("the server returns no version that a watch could resume from", false);
            return (!is_erased).then(|| PartitionChange {
                name,
                discard_rows: true,
                head: None,
                edit: Box::new(|_, _| Ok(())),
            });
        };
        // After a new epoch the server may belong to another cluster, so no cluster is stored. The next run then starts
        // with a list.
        let same_epoch = *state.epoch.get_or_insert(now.epoch()) == now.epoch();
        let cluster = self.cluster.clone().filter(|_| same_epoch);
        let new_head = Some((cluster.clone(), version.clone()));
        let is_unchanged =
            state.generations.known().is_some_and(|(known_head, held)| *known_head == new_head && is_same(held, &now));
        // Bookmarks change the version in the header even if no row changes: a restart then resumes at a later version.
        if is_unchanged && pending_deliveries.is_empty() {
            return None;
        }
        state.is_going = true;
        let mark = state.generations.start_write((new_head, now.clone()));
        let head = PartitionHeader { terms: self.terms.clone(), cluster, version: version.clone(), mark };
        let edit = move |found, rows: &mut dyn Rows| {
            let written = self.state.lock().generations.begin(found)?;
            self.write(written.as_ref().map(|(_, held)| &**held), &now, rows)?;
            self.write_pending_deliveries(&pending_deliveries, &now, rows)
        };
        Some(PartitionChange { name, discard_rows, head: Some(head), edit: Box::new(edit) })
    }

    fn finish_write(&self, written: bool) {
        let failures = {
            let mut state = self.state.lock();
            // This method is called for every informer of the queue, also for informers without changes in this
            // transaction.
            state.generations.finish(written);
            if !std::mem::take(&mut state.is_going) {
                return;
            }
            state.failures = if written { 0 } else { state.failures.saturating_add(1) };
            state.failures
        };
        self.shared.durables.finish_write(written);
        if written {
            self.is_notified.store(false, Ordering::Relaxed);
        } else if failures >= ATTEMPTS {
            self.go_without("the disk rejects writes", false);
        }
    }

    fn is_over(&self) -> bool {
        // Acknowledgements are still written while handlers drain.
        (self.shared.is_stopped() && self.shared.durables.is_idle()) || self.claim.is_lost()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed()
    }

    fn report(&self, diagnostic: &Diagnostic) {
        self.shared.report(diagnostic);
    }
}

impl<T: Send + Sync + 'static> Partition<T> {
    /// Writes the difference between `now` and `written`.
    fn write(
        &self,
        written: Option<&Snapshot<Lazy<T>>>,
        now: &Snapshot<Lazy<T>>,
        rows: &mut dyn Rows,
    ) -> Result<(), Fault> {
        let (mut key, mut row) = (Vec::new(), Vec::new());
        let Some(written) = written else {
            return now.iter().try_for_each(|entry| self.put(entry, &mut key, &mut row, rows));
        };
        let mut changes = Vec::new();
        written.differences(now, |old, new| changes.push((old, new)));
        // Removals come first: a deleted object may exist again under another row key.
        for (old, new) in &changes {
            let Some(old) = old.filter(|old| new.is_none_or(|new| new.key() != old.key())) else { continue };
            key.clear();
            write_key(old.key(), &mut key);
            rows.remove(&key)?;
        }
        changes.iter().filter_map(|(_, new)| *new).try_for_each(|entry| self.put(entry, &mut key, &mut row, rows))
    }

    /// Returns true if a watch can resume from the snapshot's version.
    fn has_version(&self, now: &Snapshot<Lazy<T>>) -> bool {
        now.version().is_some_and(ResourceVersion::is_ordered) && !self.is_unnameable.load(Ordering::Relaxed)
    }

    /// Delivers the pending events of durable handlers although nothing can be written. Logs a warning once, and
    /// reports a diagnostic if `noted` is true.
    fn go_without(&self, why: &str, noted: bool) {
        let delivers_more = self.shared.durables.deliver_unrecorded();
        if (delivers_more || noted) && !self.is_notified.swap(true, Ordering::Relaxed) {
            let why = Arc::<str>::from(why);
            if noted {
                self.shared.report(&Diagnostic::CheckpointNotWritten { why: why.clone() });
            }
            if delivers_more {
                tracing::warn!(informer = %self.shared.name, %why, "durable handlers receive events that cannot be written to the checkpoint");
                self.shared.report(&Diagnostic::DeliveredUnrecorded { why });
            }
        }
    }

    /// Writes the pending deliveries of handlers, in addition to the cache `now`.
    fn write_pending_deliveries(
        &self,
        pending_deliveries: &[OutboxRows<Lazy<T>>],
        now: &Snapshot<Lazy<T>>,
        rows: &mut dyn Rows,
    ) -> Result<(), Fault> {
        let mut row = Vec::new();
        let key_of = |handler: &str, of: Option<&ObjectKey>| {
            let mut key = Vec::new();
            DeliveryKey::write(handler, of, &mut key);
            key
        };
        for handler_rows in pending_deliveries {
            let (handler, is_new, changed) = match handler_rows {
                OutboxRows::Nothing(handler, names) => {
                    rows.remove(&key_of(handler, None))?;
                    names.iter().try_for_each(|of| rows.remove(&key_of(handler, Some(of))))?;
                    continue;
                }
                OutboxRows::Rows(handler, is_new, changed) => (handler, *is_new, changed),
            };
            if is_new {
                rows.put(&key_of(handler, None), &[])?;
            }
            for (of, pending) in changed {
                let key = key_of(handler, Some(of));
                let Some(pending) = pending else {
                    rows.remove(&key)?;
                    continue;
                };
                row.clear();
                let held = now.entry(of.namespace(), of.name());
                self.encodings.write_delivery(pending, held, &mut row).map_err(|_| self.cannot_name(of))?;
                rows.put(&key, &row)?;
            }
        }
        Ok(())
    }

    fn cannot_name(&self, key: &ObjectKey) -> Fault {
        self.is_unnameable.store(true, Ordering::Relaxed);
        Fault(format!("{key} was received as a message of another kind").into())
    }

    fn put(
        &self,
        entry: &Entry<Lazy<T>>,
        key: &mut Vec<u8>,
        row: &mut Vec<u8>,
        rows: &mut dyn Rows,
    ) -> Result<(), Fault> {
        key.clear();
        row.clear();
        write_key(entry.key(), key);
        self.encodings.write(entry, row).map_err(|_| self.cannot_name(entry.key()))?;
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
fn is_same<T>(written: &Snapshot<Lazy<T>>, now: &Snapshot<Lazy<T>>) -> bool {
    let mut same = true;
    written.differences(now, |_, _| same = false);
    same
}
