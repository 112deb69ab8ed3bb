//! The one history behind all replicas: what was written, in which order, and what each replica has seen of it.

mod cache;
mod change;
mod endings;
pub(crate) mod metadata;
mod patch;
mod state;
mod writes;

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

pub(crate) use cache::{Cache, Source};
pub use change::{Change, History};
pub(crate) use endings::Endings;
pub(crate) use patch::Patch;
pub(crate) use state::{ObjectKey, State};
pub(crate) use writes::{
    Asked, Deletion, Dependents, FieldManager, Outcome, Part, Strictness, Update, Verdicts, Warnings, WriteTarget,
    scale_of,
};

use crate::signal::Signal;

/// The state under its lock, and the signal that wakes whoever waits for it to change.
#[derive(Debug)]
pub(crate) struct Store {
    state: Mutex<State>,
    changed: Signal,
    /// Raised when it changes which namespace ends next.
    endings: Signal,
}

impl Store {
    pub(crate) fn new(state: State, changed: Signal) -> Self {
        Self { state: Mutex::new(state), changed, endings: Signal::new() }
    }

    /// Tells of each change of when the next namespace ends.
    pub(crate) fn endings(&self) -> watch::Receiver<()> {
        self.endings.subscribe()
    }

    /// Looks at the state.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.lock())
    }

    /// Changes the state; replicas that do not lag see it before anybody else can look.
    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (outcome, ending) = {
            let mut state = self.lock();
            let before = state.endings.next();
            let outcome = change(&mut state);
            state.advance_caches();
            (outcome, state.endings.next() != before)
        };
        self.changed.raise();
        if ending {
            self.endings.raise();
        }
        outcome
    }

    /// The same, for the request of this number.
    pub(crate) fn write_for<T>(&self, request: u64, change: impl FnOnce(&mut State) -> T) -> T {
        self.write(|state| {
            state.request = Some(request);
            let outcome = change(state);
            state.request = None;
            outcome
        })
    }

    /// Waits until the state is as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&State) -> bool) {
        self.changed.until(|| self.read(&wanted)).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is made whole before anything can panic, so a poisoned lock guards good data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
