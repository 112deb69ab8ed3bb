//! Whether anything may be called: not on the word of a cache that has been in doubt for too long.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast::environment::Instant;
use steadfast::{Freshness, ObjectKey};
use tokio::sync::watch;

use super::declared::Declared;
use super::when_stale::{Choice, WhenStale};
use crate::workqueue::Priority;

/// The caches that a controller reads, and what that says of its calls.
pub(super) struct Gate {
    caches: Vec<Declared>,
    when_stale: WhenStale,
    state: Mutex<State>,
    /// Whether it is closed.
    closed: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    closed_since: Option<Instant>,
    put_off: HashMap<ObjectKey, Priority>,
}

/// What a look at the caches has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing.
    None,
    /// It is closed from now on: which cache is in doubt, since when, and why.
    Closed(String),
    /// It is open again, after so long; these were put off.
    Opened(Duration, HashMap<ObjectKey, Priority>),
}

impl Gate {
    pub(super) fn new(caches: Vec<Declared>, when_stale: WhenStale) -> Self {
        Self { caches, when_stale, state: Mutex::default(), closed: watch::Sender::new(false) }
    }

    /// Looks whether the caches are true enough.
    pub(super) fn look(&self, now: Instant) -> Turn {
        let doubtful = match self.when_stale.choice {
            Choice::Act => None,
            Choice::Wait | Choice::Only(_) => self.caches.iter().find_map(|cache| self.doubt(cache)),
        };
        if doubtful.is_none() && !*self.closed.borrow() {
            return Turn::None;
        }
        let mut state = self.lock();
        match (doubtful, state.closed_since) {
            (Some(why), None) => {
                state.closed_since = Some(now);
                self.closed.send_replace(true);
                Turn::Closed(why)
            }
            (None, Some(since)) => {
                state.closed_since = None;
                let put_off = std::mem::take(&mut state.put_off);
                self.closed.send_replace(false);
                Turn::Opened(now.since(since), put_off)
            }
            _ => Turn::None,
        }
    }

    /// Why a cache cannot be relied on, if it cannot.
    fn doubt(&self, Declared { view, role }: &Declared) -> Option<String> {
        let freshness = view.freshness();
        let lasting = freshness.doubt()?.lasting;
        let is_refused = matches!(freshness, Freshness::Failed(_)) && role.is_refusable();
        let is_doubted = if view.is_synced() {
            lasting > self.when_stale.bound
        } else {
            // Calls are made before it is synced, as soon as its doubt is as old as the bound.
            !self.when_stale.waits() && !is_refused && lasting >= self.when_stale.bound
        };
        is_doubted.then(|| format!("{}: {freshness}", view.name()))
    }

    /// Whether it was closed when it was last looked at.
    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Whether `key` may be called now; one that may not is to be put off or put back.
    pub(super) fn admits(&self, key: &ObjectKey) -> bool {
        match &self.when_stale.choice {
            _ if !self.is_closed() => true,
            Choice::Act => true,
            Choice::Wait => false,
            Choice::Only(safe) => safe(key),
        }
    }

    /// Whether what may not be called is put off, so that the rest is; nothing is taken otherwise.
    pub(super) fn puts_off(&self) -> bool {
        matches!(self.when_stale.choice, Choice::Only(_))
    }

    /// Keeps `key` until the gate opens; returns whether it does, for it may be open by now.
    pub(super) fn put_off(&self, key: &ObjectKey, priority: Priority) -> bool {
        let mut state = self.lock();
        let is_closed = state.closed_since.is_some();
        if is_closed {
            let known = state.put_off.entry(key.clone()).or_insert(priority);
            *known = priority.max(*known);
        }
        is_closed
    }

    /// How many keys are put off.
    pub(super) fn waiting(&self) -> usize {
        self.lock().put_off.len()
    }

    /// Waits until keys may be taken.
    pub(super) async fn opened(&self) {
        if matches!(self.when_stale.choice, Choice::Wait) {
            // This holds the other end.
            drop(self.closed.subscribe().wait_for(|closed| !closed).await);
        }
    }

    /// Tells when a look may find something else.
    pub(super) fn changes(&self) -> Vec<watch::Receiver<u64>> {
        self.caches.iter().map(|cache| cache.view.changed()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
