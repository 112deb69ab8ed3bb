//! Informer of a tab. The screen takes all pending rows at once, so that its handler and the screen do not delay each
//! other. If the order or the filter of the table needs the content of the objects, the handler decodes them on separate
//! threads.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

use jiff::Timestamp;
use parking_lot::Mutex;
use steadfast::{Call, Event, Freshness, Handler, Informer, InformerFactory, Object, Registration, Scope};
use tokio::sync::Notify;

use super::history::{ChangeKind, MAX_CHANGES, RecordedChange};
use super::row::{Row, RowKey, RowMark};
use super::schema::{Schema, row_key};
use super::tab::RowChange;
use super::usage::UsagePoll;
use crate::failure::Failure;
use crate::watch::watched::{CachedObject, MAX_PENDING_EVENTS, compressed_informer};

/// Maximum number of threads that compute the rows of one resource.
const MAX_THREADS: usize = 4;

/// Informer of a tab, and its changes that the screen has not taken yet.
pub(super) struct TabInformer {
    informer: Informer<CachedObject>,
    pending: Arc<Mutex<PendingChanges>>,
    /// Whether the handler decodes each object.
    needs_content: Arc<AtomicBool>,
    /// Periodic requests of processor and memory usage; `None` if the server has no metrics.
    _usage: Option<UsagePoll>,
    /// The handler is removed when the registration is dropped.
    _registration: Registration<CachedObject>,
}

/// Changes that the screen has not taken yet.
#[derive(Default)]
pub(super) struct PendingChanges {
    /// Latest change of each object.
    pub(super) rows: HashMap<RowKey, RowChange>,
    /// Latest changes in their order, at most [`MAX_CHANGES`].
    pub(super) history: VecDeque<RecordedChange>,
}

impl PendingChanges {
    fn upsert(&mut self, key: RowKey, mut change: RowChange) {
        // An object that was added and updated since the last drawing is new for the reader.
        if let (RowChange::Upsert { mark, .. }, Some(RowChange::Upsert { mark: earlier, .. })) =
            (&mut change, self.rows.get(&key))
            && *earlier == Some(RowMark::Added)
        {
            *mark = Some(RowMark::Added);
        }
        self.rows.insert(key, change);
    }

    fn record(&mut self, key: RowKey, kind: ChangeKind) {
        if self.history.len() >= MAX_CHANGES {
            self.history.pop_front();
        }
        self.history.push_back(RecordedChange { time: Timestamp::now(), key, kind });
    }
}

impl TabInformer {
    /// Starts the informer. `changed` is notified after each change. `usage` ends with the informer.
    pub(super) fn start(
        factory: &InformerFactory,
        schema: &Arc<Schema>,
        api_resource: &kube::core::ApiResource,
        scope: Scope,
        changed: Arc<Notify>,
        usage: Option<UsagePoll>,
    ) -> Result<Self, Failure> {
        let informer = compressed_informer(factory, api_resource, scope).start().map_err(Failure::usage)?;
        let pending = Arc::<Mutex<PendingChanges>>::default();
        let needs_content = Arc::<AtomicBool>::default();
        let handler = RowHandler {
            schema: schema.clone(),
            pending: pending.clone(),
            needs_content: needs_content.clone(),
            changed,
        };
        let registration = informer.handler().deliver_each(MAX_PENDING_EVENTS).add_handler(handler);
        Ok(Self { informer, pending, needs_content, _usage: usage, _registration: registration.map_err(Failure::run)? })
    }

    /// Sets whether the handler decodes each object, so that the screen does not have to.
    pub(super) fn set_needs_content(&self, needs_content: bool) {
        self.needs_content.store(needs_content, Ordering::Relaxed);
    }

    /// Takes all pending changes.
    pub(super) fn take(&self) -> PendingChanges {
        std::mem::take(&mut *self.pending.lock())
    }

    /// Returns the freshness of the cache.
    pub(super) fn freshness(&self) -> Freshness {
        self.informer.freshness()
    }
}

/// Handler that computes the row of each changed object.
struct RowHandler {
    schema: Arc<Schema>,
    pending: Arc<Mutex<PendingChanges>>,
    needs_content: Arc<AtomicBool>,
    changed: Arc<Notify>,
}

impl RowHandler {
    /// Returns the row of an object. It is decoded before the lock of the changes is taken.
    fn row(&self, key: &RowKey, object: &Object<CachedObject>) -> Row {
        let row = Row::new(key.clone(), self.schema.row_object(object));
        if self.needs_content.load(Ordering::Relaxed) {
            row.compute_content();
        }
        row
    }
}

impl Handler<CachedObject> for RowHandler {
    fn handle(&self, event: Event<CachedObject>, _call: Call) {
        let key = row_key(event.object());
        match &event {
            Event::Added { object, initial } => {
                let mark = (!initial).then_some(RowMark::Added);
                let row = self.row(&key, object);
                let added = row.object.clone();
                let mut pending = self.pending.lock();
                pending.upsert(key.clone(), RowChange::Upsert { row, mark });
                if !initial {
                    pending.record(key, ChangeKind::Added(added));
                }
            }
            Event::Updated { old, new } => {
                let row = self.row(&key, new);
                let kind = ChangeKind::Updated { old: self.schema.row_object(old), new: row.object.clone() };
                let mut pending = self.pending.lock();
                pending.upsert(key.clone(), RowChange::Upsert { row, mark: Some(RowMark::Updated) });
                pending.record(key, kind);
            }
            Event::Deleted { last, certainty, reason, .. } => {
                let detail = format!("{certainty}: {reason}");
                let mut pending = self.pending.lock();
                pending.upsert(key.clone(), RowChange::Remove(key.clone()));
                pending.record(key, ChangeKind::Deleted { last: self.schema.row_object(last), detail });
            }
            Event::Resynced { .. } => return,
        }
        self.changed.notify_one();
    }

    fn concurrency(&self) -> usize {
        available_parallelism().map_or(1, |threads| threads.get().min(MAX_THREADS))
    }
}
