//! The durable handlers of one informer: those that are there, and those that an earlier life of the program had, for which
//! is kept what they are owed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use steadfast_core::debts::{Debt, Rows};
use steadfast_core::event::Change;
use steadfast_core::{Object, ObjectKey};

use super::calls::{Calls, Durable};
use super::told::DurableCounts;
use crate::environment::SharedEnvironment;

/// All durable handlers of one informer.
pub(crate) struct Durables<K> {
    /// Whether the informer is kept in a file.
    is_kept: AtomicBool,
    members: Mutex<BTreeMap<Arc<str>, Arc<Durable<K>>>>,
    dropped: Mutex<Vec<Dropped>>,
    /// Handlers that are to be replaced, and by which ones.
    successions: Mutex<BTreeMap<Arc<str>, Succession>>,
    wake: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
}

/// The handlers that replace another one.
struct Succession {
    informer: String,
    successors: Vec<String>,
    environment: SharedEnvironment,
}

/// A handler that there is to be no more.
struct Dropped {
    name: Arc<str>,
    keys: BTreeSet<ObjectKey>,
    is_going: bool,
}

/// What is to be written of one handler.
pub(crate) enum Owed<K> {
    /// Nothing of these names is to be left, nor of the handler.
    Nothing(Arc<str>, Vec<ObjectKey>),
    /// These rows, and that there is this handler where that is new.
    Rows(Arc<str>, bool, Rows<K>),
}

/// Why a handler cannot be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The informer is kept in no file.
    Unkept,
    /// One of this name is there.
    Taken,
}

impl<K> Default for Durables<K> {
    fn default() -> Self {
        Self {
            is_kept: AtomicBool::new(false),
            members: Mutex::default(),
            dropped: Mutex::default(),
            successions: Mutex::default(),
            wake: Arc::default(),
        }
    }
}

impl<K: Send + Sync + 'static> Durables<K> {
    /// The informer is kept in a file.
    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    /// Has `wake` called when there is something to be written.
    pub(crate) fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        drop(self.wake.set(Box::new(wake)));
    }

    /// The handler of this name, which may not be there.
    fn member(&self, informer: &str, name: &str, environment: &SharedEnvironment) -> Arc<Durable<K>> {
        let mut members = lock(&self.members);
        if let Some(member) = members.get(name) {
            return member.clone();
        }
        let (name, wake) = (Arc::<str>::from(name), self.wake.clone());
        let wake = Arc::new(move || {
            if let Some(wake) = wake.get() {
                wake();
            }
        });
        let member = Durable::new(informer, name.clone(), environment.clone(), wake);
        members.insert(name, member.clone());
        member
    }

    /// Takes in what an earlier life of the program has kept for the handler of this name.
    pub(crate) fn restore(
        &self,
        informer: &str,
        name: &str,
        debts: Vec<(ObjectKey, Debt<Object<K>>)>,
        environment: &SharedEnvironment,
    ) {
        self.member(informer, name, environment).restore(debts);
    }

    /// All that the file has is [restored](Self::restore).
    pub(crate) fn restored(&self) {
        let names: Vec<Arc<str>> = lock(&self.successions).keys().cloned().collect();
        for name in names {
            self.succeed(&name);
        }
    }

    /// Replaces the handler `name` by `successors` as soon as the file is restored, or now.
    pub(crate) fn replace(&self, informer: &str, name: &str, successors: &[&str], environment: &SharedEnvironment) {
        let (name, successors) = (Arc::<str>::from(name), successors.iter().map(|&name| name.to_owned()).collect());
        let succession = Succession { informer: informer.to_owned(), successors, environment: environment.clone() };
        lock(&self.successions).insert(name.clone(), succession);
        self.succeed(&name);
    }

    /// Copies what is pending for a handler to its successors and drops the handler, if it is there and unused. Both are in
    /// one [cut](Self::cut), because the caller holds the lock under which that is made.
    fn succeed(&self, name: &str) {
        let Some(before) = lock(&self.members).get(name).cloned() else { return };
        if before.counts().is_here {
            return;
        }
        let Some(Succession { informer, successors, environment }) = lock(&self.successions).remove(name) else {
            return;
        };
        for successor in &successors {
            self.member(&informer, successor, &environment).succeed(&before);
        }
        self.drop_name(name);
    }

    /// Has a handler called from here on. It is to be [opened](Self::open) where others are.
    ///
    /// # Errors
    ///
    /// Where there can be none, or one of this name is there.
    pub(crate) fn attach(
        &self,
        informer: &str,
        name: &str,
        calls: Calls<K>,
        environment: &SharedEnvironment,
    ) -> Result<Arc<Durable<K>>, Refused> {
        if !self.is_kept.load(Ordering::Acquire) {
            return Err(Refused::Unkept);
        }
        let member = self.member(informer, name, environment);
        if member.attach(calls) { Ok(member) } else { Err(Refused::Taken) }
    }

    /// All are told from here on; those that are new, first all of `view`.
    pub(crate) fn open<I: Iterator<Item = Change<K>>>(&self, view: impl Fn() -> I) {
        for member in self.members() {
            member.open(view());
        }
    }

    /// All are owed what these changes come to.
    pub(crate) fn record(&self, changes: &[Change<K>]) {
        if !changes.is_empty() {
            for member in self.members() {
                member.record(changes);
            }
        }
    }

    /// What was kept for them is of no worth: they are to be shown anew what there is.
    pub(crate) fn forget(&self) {
        for member in self.members() {
            member.forget();
        }
    }

    /// Begins the calls that may begin.
    pub(crate) fn start(&self) {
        for member in self.members() {
            member.start();
        }
    }

    /// What is to be written; where `anew`, all there is. [`settle`](Self::settle) is to follow, where it is not empty.
    pub(crate) fn cut(&self, anew: bool) -> Vec<Owed<K>> {
        let members: Vec<_> = lock(&self.members).iter().map(|(name, member)| (name.clone(), member.clone())).collect();
        let mut owed = Vec::new();
        for dropped in &mut *lock(&self.dropped) {
            dropped.is_going = true;
            owed.push(Owed::Nothing(dropped.name.clone(), dropped.keys.iter().cloned().collect()));
        }
        owed.extend(members.into_iter().filter_map(|(name, member)| {
            let (is_new, rows) = member.cut(anew);
            (is_new || !rows.is_empty()).then_some(Owed::Rows(name, is_new, rows))
        }));
        owed
    }

    /// What was [cut](Self::cut) is written, or may be not.
    pub(crate) fn settle(&self, written: bool) {
        if written {
            lock(&self.dropped).retain(|dropped| !dropped.is_going);
        }
        for member in self.members() {
            member.settle(written);
        }
    }

    /// Tells what is due though it cannot be written; returns whether there was anything.
    pub(crate) fn waive(&self) -> bool {
        self.members().iter().filter(|member| member.waive()).count() > 0
    }

    /// Drops a handler and all that is kept for it; returns whether there was one.
    pub(crate) fn drop_name(&self, name: &str) -> bool {
        let Some((name, member)) = lock(&self.members).remove_entry(name) else { return false };
        let keys = member.end();
        lock(&self.dropped).push(Dropped { name, keys, is_going: false });
        if let Some(wake) = self.wake.get() {
            wake();
        }
        true
    }

    /// Begins no more calls; what is owed stays.
    pub(crate) fn close(&self) {
        for member in self.members() {
            member.close();
        }
    }

    /// Whether nothing is owed to those that are there, and all of that is written.
    pub(crate) fn is_idle(&self) -> bool {
        self.members().iter().all(|member| member.is_idle())
    }

    /// All of them, with what they have done.
    pub(crate) fn counts(&self) -> Vec<(Arc<str>, DurableCounts)> {
        lock(&self.members).iter().map(|(name, member)| (name.clone(), member.counts())).collect()
    }

    fn members(&self) -> Vec<Arc<Durable<K>>> {
        lock(&self.members).values().cloned().collect()
    }
}

/// No code of the user's runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
