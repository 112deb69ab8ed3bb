//! Shared history of all replicas: the writes in order, and the part that each replica has seen.

mod cache;
mod change;
mod patch;
mod state;
mod terminating;
mod writes;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

pub(crate) use cache::{Cache, Source};
pub use change::{Change, History};
pub(crate) use patch::Patch;
pub(crate) use state::{ObjectKey, State};
pub(crate) use terminating::TerminatingNamespaces;
pub(crate) use writes::{
    Deletion, Dependents, FieldValidation, Modification, RequestProperties, RuleResults, Warnings, WriteOutcome,
    WriteTarget, scale_of,
};

use crate::signal::Signal;

/// State under its lock, and the signal for its changes.
#[derive(Debug)]
pub(crate) struct Store {
    state: Mutex<State>,
    changed: Signal,
    /// Signal for changes of the time at which the next terminating namespace is emptied.
    terminating: Signal,
}

impl Store {
    pub(crate) fn new(state: State, changed: Signal) -> Self {
        Self { state: Mutex::new(state), changed, terminating: Signal::new() }
    }

    /// Returns a receiver for changes of the time at which the next terminating namespace is emptied.
    pub(crate) fn terminating(&self) -> watch::Receiver<()> {
        self.terminating.subscribe()
    }

    /// Reads the state.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.lock())
    }

    /// Changes the state. Replicas without lag see the change before any other reader.
    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (outcome, deadline_changed) = {
            let mut state = self.lock();
            let before = state.terminating.next();
            let outcome = change(&mut state);
            // The caches advance under the same lock, so that no reader finds the change in the store but not in the
            // caches.
            state.advance_caches();
            (outcome, state.terminating.next() != before)
        };
        // Wake the tasks without the lock, which they need to re-check their conditions.
        self.changed.raise();
        if deadline_changed {
            self.terminating.raise();
        }
        outcome
    }

    /// Changes the state on behalf of the request with this number.
    pub(crate) fn write_for<T>(&self, request: u64, change: impl FnOnce(&mut State) -> T) -> T {
        self.write(|state| {
            state.request = Some(request);
            let outcome = change(state);
            state.request = None;
            outcome
        })
    }

    /// Waits until the state satisfies a condition.
    pub(crate) async fn until(&self, condition: impl Fn(&State) -> bool) {
        self.changed.until(|| self.read(&condition)).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A change cannot panic halfway, so the state is consistent after a panic of a caller.
        self.state.lock()
    }
}
