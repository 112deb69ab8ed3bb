//! The part of a checkpoint that one informer has: what was written of its cache, and what differs from that now.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use kube::Resource;
use serde::de::DeserializeOwned;
use steadfast_core::checkpoint::{Forms, Saved, key_of, write_key};
use steadfast_core::reflector::Note;
use steadfast_core::store::Snapshot;
use steadfast_core::{Entry, Lazy};
use tokio::sync::watch;

use super::book::{Fault, Rows, Step};
use super::cluster;
use super::desk::{Attached, Claim, Desk};
use super::head::{Head, Terms};
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
}

impl Kept {
    pub(super) fn new(desk: Arc<Desk>, claim: Claim, terms: Terms, forms: Forms, connection: Connection) -> Self {
        Self { desk, claim, terms, forms, connection }
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
        Ok(Restored { version: head.version, cluster: head.cluster })
    }

    fn ask(&self, restored: bool) -> BoxFuture<'static, Asked> {
        Box::pin(cluster::ask(self.connection.clone(), restored))
    }

    fn keep(self: Box<Self>, shared: &Arc<Shared<Lazy<T>>>, is_restored: bool, cluster: Option<String>) {
        let Self { desk, claim, terms, forms, .. } = *self;
        let written = is_restored.then(|| shared.snapshot());
        let section = Section {
            claim,
            terms,
            forms,
            cluster,
            shared: shared.clone(),
            state: Mutex::new(State {
                written: written.map(|held| (None, held)),
                on_its_way: None,
                epoch: None,
                is_erased: false,
            }),
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
    /// What the file has; nothing where what it has is worth nothing.
    written: Option<Held<T>>,
    on_its_way: Option<Option<Held<T>>>,
    /// The epoch that was of the cluster.
    epoch: Option<u64>,
    is_erased: bool,
}

/// What the head of a part says, unless that was said by another life of the program, and what its rows are of.
type Held<T> = (Option<Head>, Arc<Snapshot<Lazy<T>>>);

impl<T: Send + Sync + 'static> Attached for Section<T> {
    fn step(&self) -> Option<Step<'_>> {
        // What was restored and not confirmed is there already.
        if self.claim.is_lost() || !self.shared.is_synced() || self.shared.is_withheld() {
            return None;
        }
        let now = self.shared.snapshot();
        let mut state = lock(&self.state);
        let name = self.claim.name.as_str();
        let version = now.version().filter(|version| version.is_ordered());
        let Some(version) = version.filter(|_| !self.is_unnameable.load(Ordering::Relaxed)) else {
            // There is nothing that could be watched on from.
            if state.is_erased {
                return None;
            }
            state.on_its_way = Some(None);
            return Some(Step { name, anew: true, head: None, edit: Box::new(|_| Ok(())) });
        };
        // Another history may be another cluster's: that it is not is found out by the next life, with a list.
        let same_epoch = *state.epoch.get_or_insert(now.epoch()) == now.epoch();
        let cluster = self.cluster.clone().filter(|_| same_epoch);
        let head = Head { terms: self.terms.clone(), cluster, version: version.clone() };
        let written = state.written.clone();
        if written.as_ref().is_some_and(|(said, held)| said.as_ref() == Some(&head) && is_same(held, &now)) {
            return None;
        }
        state.on_its_way = Some(Some((Some(head.clone()), now.clone())));
        let anew = written.is_none();
        let edit = move |rows: &mut dyn Rows| self.write(written.as_ref().map(|(_, held)| &**held), &now, rows);
        Some(Step { name, anew, head: Some(head), edit: Box::new(edit) })
    }

    fn settle(&self, written: bool) {
        let mut state = lock(&self.state);
        let on_its_way = state.on_its_way.take();
        if let Some(now) = on_its_way.filter(|_| written) {
            state.is_erased = now.is_none();
            state.written = now;
        }
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
