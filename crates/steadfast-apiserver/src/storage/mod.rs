//! Shared history of all replicas: the writes in order, and the part that each replica has seen.

mod cache;
mod change;
mod patch;
mod state;
mod terminating;
mod writes;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

pub(crate) use cache::{Cache, ReadSource};
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
        self.write_as(None, change)
    }

    /// Changes the state on behalf of the request with this number.
    pub(crate) fn write_for<T>(&self, request: u64, change: impl FnOnce(&mut State) -> T) -> T {
        self.write_as(Some(request), change)
    }

    fn write_as<T>(&self, request: Option<u64>, change: impl FnOnce(&mut State) -> T) -> T {
        let (outcome, deadline_changed) = {
            let mut state = self.lock();
            // Each write sets the request. A panic of an earlier write cannot leave a wrong one.
            state.request = request;
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

    /// Waits until the state satisfies a condition.
    pub(crate) async fn until(&self, condition: impl Fn(&State) -> bool) {
        self.changed.until(|| self.read(&condition)).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A change cannot panic halfway, so the state is consistent after a panic of a caller.
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::clock::Clock;
    use crate::random::Random;
    use crate::resources::{NAMESPACES, Registry};

    #[tokio::test]
    async fn panic_in_write_drops_its_request() {
        let terminating = TerminatingNamespaces::with_delay(Duration::ZERO);
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let state = State::new(clock, Random::seeded(1), Registry::with_declared(&[]), terminating);
        let store = Store::new(state, Signal::new());
        let panicking = || store.write_for(7, |_| panic!("a failed assertion of a rule"));
        assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
        let append = |state: &mut State| state.append(&NAMESPACES, ObjectKey::new("", "a"), None, None).request;
        assert_eq!((store.write(append), store.write_for(8, append), store.write(append)), (None, Some(8), None));
    }
}
