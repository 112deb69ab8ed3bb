//! Informer of a tab. Its handler computes rows on separate threads, and the screen takes all pending rows at once, so
//! that the handler and the screen do not delay each other.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::available_parallelism;

use jiff::Timestamp;
use parking_lot::Mutex;
use steadfast::{Call, Event, Freshness, Handler, Informer, InformerFactory, Registration, Scope};
use tokio::sync::Notify;

use super::history::{ChangeKind, MAX_CHANGES, RecordedChange};
use super::row::{RowKey, RowMark};
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
        let handler = RowHandler { schema: schema.clone(), pending: pending.clone(), changed };
        let registration = informer.handler().deliver_each(MAX_PENDING_EVENTS).add_handler(handler);
        Ok(Self { informer, pending, _usage: usage, _registration: registration.map_err(Failure::run)? })
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
    changed: Arc<Notify>,
}

impl Handler<CachedObject> for RowHandler {
    fn handle(&self, event: Event<CachedObject>, _call: Call) {
        let key = row_key(event.object());
        // The row is computed before the lock is taken, because decoding takes longer than all other steps.
        let row = |object| self.schema.row(object, Timestamp::now());
        match &event {
            Event::Added { object, initial } => {
                let mark = (!initial).then_some(RowMark::Added);
                let change = RowChange::Upsert { row: row(object), mark };
                let mut pending = self.pending.lock();
                pending.upsert(key.clone(), change);
                if !initial {
                    pending.record(key, ChangeKind::Added(self.schema.shared(object)));
                }
            }
            Event::Updated { old, new } => {
                let change = RowChange::Upsert { row: row(new), mark: Some(RowMark::Updated) };
                let kind = ChangeKind::Updated { old: self.schema.shared(old), new: self.schema.shared(new) };
                let mut pending = self.pending.lock();
                pending.upsert(key.clone(), change);
                pending.record(key, kind);
            }
            Event::Deleted { last, certainty, reason, .. } => {
                let detail = format!("{certainty}: {reason}");
                let mut pending = self.pending.lock();
                pending.upsert(key.clone(), RowChange::Remove(key.clone()));
                pending.record(key, ChangeKind::Deleted { last: self.schema.shared(last), detail });
            }
            Event::Resynced { .. } => return,
        }
        self.changed.notify_one();
    }

    fn concurrency(&self) -> usize {
        available_parallelism().map_or(1, |threads| threads.get().min(MAX_THREADS))
    }
}
