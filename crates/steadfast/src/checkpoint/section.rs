//! The part of a checkpoint that one informer has: what was written of its cache, and what differs from that now.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use kube::Resource;
use serde::de::DeserializeOwned;
use steadfast_core::checkpoint::{Forms, Saved, key_of, write_key};
use steadfast_core::reflector::Note;
use steadfast_core::store::Snapshot;
use steadfast_core::{Entry, Lazy, ResourceVersion};
use tokio::sync::watch;

use super::book::{Fault, Rows, Step};
use super::cluster;
use super::desk::{Attached, Claim, Desk};
use super::head::{Head, Terms};
use super::lineage::Lineage;
use super::writer;
use crate::connection::Connection;
use crate::keepsake::{Asked, Keepsake, Restored};
use crate::shared::Shared;

/// What an informer begins with.
pub(super) struct Kept {
    desk: Arc<Desk>,
    claim: Claim,
    terms: Terms,
    forms: Forms,
    connection: Connection,
    /// The mark of what was restored.
    mark: u64,
}

impl Kept {
    pub(super) fn new(desk: Arc<Desk>, claim: Claim, terms: Terms, forms: Forms, connection: Connection) -> Self {
        Self { desk, claim, terms, forms, connection, mark: 0 }
    }
}

impl<T: Resource + DeserializeOwned + Send + Sync + 'static> Keepsake<Lazy<T>> for Kept {
    fn belongs_to(&mut self, shared: &Arc<Shared<Lazy<T>>>) {
        let shared = shared.clone();
        self.claim.until(move || shared.is_stopped());
    }

    fn restore(&mut self, take: &mut dyn FnMut(Saved)) -> Result<Restored, Option<Arc<str>>> {
        let forms = self.forms;
        let head = self.desk.book.read(&self.claim.name, &self.terms, |key, row| {
            let saved = key_of(key).and_then(|key| forms.read(key, row));
            saved.map(&mut *take).is_some()
        })?;
        self.mark = head.mark;
        Ok(Restored { version: head.version, cluster: head.cluster })
    }

    fn ask(&self, restored: bool) -> BoxFuture<'static, Asked> {
        Box::pin(cluster::ask(self.connection.clone(), restored))
    }

    fn keep(self: Box<Self>, shared: &Arc<Shared<Lazy<T>>>, is_restored: bool, cluster: Option<String>) {
        let Self { desk, claim, terms, forms, mark, .. } = *self;
        let written = is_restored.then(|| (mark, (None, shared.snapshot())));
        let section = Section {
            claim,
            terms,
            forms,
            cluster,
            shared: shared.clone(),
            state: Mutex::new(State { lineage: Lineage::new(written), epoch: None }),
            is_unnameable: AtomicBool::new(false),
        };
        writer::attach(&desk, Arc::new(section), &shared.environment);
    }
}

/// The part of one informer, while that runs.
struct Section<T> {
    claim: Claim,
    terms: Terms,
    forms: Forms,
    /// The cluster that the server was of when the informer began.
    cluster: Option<String>,
    shared: Arc<Shared<Lazy<T>>>,
    state: Mutex<State<T>>,
    /// Whether an object came in a form that has no name in the file.
    is_unnameable: AtomicBool,
}

struct State<T> {
    lineage: Lineage<Held<T>>,
    /// The epoch that was of the cluster.
    epoch: Option<u64>,
}

/// The cluster and version that a part says, unless another life of the program has said them, and what its rows are of.
type Held<T> = (Option<(Option<String>, ResourceVersion)>, Arc<Snapshot<Lazy<T>>>);

impl<T: Send + Sync + 'static> Attached for Section<T> {
    fn step(&self) -> Option<Step<'_>> {
        // What was restored and not confirmed is there already.
        if self.claim.is_lost() || !self.shared.is_synced() || self.shared.is_withheld() {
            return None;
        }
        let (now, evidence) = self.shared.published();
        // What came and could not be named may be missing in it: after a restart from here nobody would know of that. The last
        // state stays; the server tells again what has come since.
        if evidence.unnamed {
            return None;
        }
        let mut state = lock(&self.state);
        let name = self.claim.name.as_str();
        let version = now.version().filter(|version| version.is_ordered());
        let Some(version) = version.filter(|_| !self.is_unnameable.load(Ordering::Relaxed)) else {
            // There is nothing that could be watched on from.
            if state.lineage.is_erased() {
                return None;
            }
            state.lineage.set_out_to_erase();
            return Some(Step { name, anew: true, head: None, edit: Box::new(|_, _| Ok(())) });
        };
        // Another history may be another cluster's: that it is not is found out by the next life, with a list.
        let same_epoch = *state.epoch.get_or_insert(now.epoch()) == now.epoch();
        let cluster = self.cluster.clone().filter(|_| same_epoch);
        let says = Some((cluster.clone(), version.clone()));
        if state.lineage.known().is_some_and(|(said, held)| *said == says && is_same(held, &now)) {
            return None;
        }
        let anew = state.lineage.is_anew();
        let mark = state.lineage.set_out((says, now.clone()));
        let head = Head { terms: self.terms.clone(), cluster, version: version.clone(), mark };
        let edit = move |found, rows: &mut dyn Rows| {
            let written = lock(&self.state).lineage.begin(found)?;
            self.write(written.as_ref().map(|(_, held)| &**held), &now, rows)
        };
        Some(Step { name, anew, head: Some(head), edit: Box::new(edit) })
    }

    fn settle(&self, written: bool) {
        lock(&self.state).lineage.settle(written);
    }

    fn is_over(&self) -> bool {
        self.shared.is_stopped() || self.claim.is_lost()
    }

    fn moved(&self) -> watch::Receiver<u64> {
        self.shared.moved()
    }

    fn tell(&self, note: &Note) {
        self.shared.tell(note);
    }
}

impl<T: Send + Sync + 'static> Section<T> {
    /// Writes what `now` has and `written` has not.
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
        // First all that is gone: what was deleted may be there again, in another place.
        for (old, new) in &changes {
            let Some(old) = old.filter(|old| new.is_none_or(|new| new.key() != old.key())) else { continue };
            key.clear();
            write_key(old.key(), &mut key);
            rows.remove(&key)?;
        }
        changes.iter().filter_map(|(_, new)| *new).try_for_each(|entry| self.put(entry, &mut key, &mut row, rows))
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
        if self.forms.write(entry, row).is_err() {
            self.is_unnameable.store(true, Ordering::Relaxed);
            return Err(Fault(format!("{} came as a message that is not one of its kind", entry.key()).into()));
        }
        rows.put(key, row)
    }
}

/// Whether both have the same entries.
fn is_same<T>(written: &Snapshot<Lazy<T>>, now: &Snapshot<Lazy<T>>) -> bool {
    let mut same = true;
    written.differences(now, |_, _| same = false);
    same
}

/// No code of the user's runs under this lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
