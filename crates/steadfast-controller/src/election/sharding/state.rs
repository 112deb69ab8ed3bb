//! Published state of a member: its owned keys, and the client for acting on them.

use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use parking_lot::{Mutex, MutexGuard};
use steadfast::ObjectKey;
use steadfast::environment::SharedEnvironment;
use tokio::sync::watch;

use super::super::lease_error::LeaseErrors;
use super::super::state::Term;
use super::gains::GainTracker;
use super::membership::OwnedKeys;

/// Published status of a member.
#[derive(Clone, Default)]
pub(super) struct MemberStatus {
    /// Number of changes.
    pub(super) number: u64,
    pub(super) owned_keys: Option<Arc<OwnedKeys>>,
    /// Term for acting on the owned keys. The term and the keys change together.
    pub(super) term: Option<Arc<Term>>,
    /// Owned keys that are not withheld.
    pub(super) gains: GainTracker,
    /// Number of cache readers.
    readers: usize,
    /// Present after the stop: true if the lease was released.
    pub(super) stopped: Option<bool>,
}

impl MemberStatus {
    /// Returns the term for acting on `key`. Does not check whether the term has expired.
    pub(super) fn term_for(&self, key: &ObjectKey) -> Option<&Arc<Term>> {
        self.term.as_ref().filter(|_| self.gains.owns(key))
    }

    /// Changes the owned keys or the term.
    pub(super) fn change(&mut self, owned_keys: Option<OwnedKeys>, term: Option<Arc<Term>>) {
        self.number += 1;
        self.owned_keys = owned_keys.map(Arc::new);
        self.term = term;
        self.gains.record_change(self.number, self.owned_keys.clone().filter(|_| self.term.is_some()));
        self.skip_catch_up();
    }

    /// Marks the caches as caught up if no cache reader exists.
    fn skip_catch_up(&mut self) {
        if self.readers == 0 {
            self.gains.record_catch_up(self.number);
        }
    }
}

/// State of a member, shared by its handles and its task.
pub(super) struct MemberState {
    pub(super) environment: SharedEnvironment,
    pub(super) namespace: String,
    pub(super) group: String,
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) status: watch::Sender<MemberStatus>,
    pub(super) stopping: watch::Sender<bool>,
    pub(super) lease_errors: LeaseErrors,
    /// Cache readers, by number.
    pub(super) readers: Mutex<Vec<(u64, CatchUp)>>,
}

/// Waits until the caches of a reader contain all earlier writes.
pub(super) type CatchUp = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

impl MemberState {
    /// Adds a cache reader and returns its number.
    pub(super) fn add_reader(&self, catch_up: CatchUp) -> u64 {
        let mut readers = self.readers();
        let number = readers.last().map_or(0, |(last, _)| last + 1);
        readers.push((number, catch_up));
        let count = readers.len();
        self.status.send_modify(|status| status.readers = count);
        number
    }

    /// Removes the cache reader with this number.
    pub(super) fn remove_reader(&self, number: u64) {
        let mut readers = self.readers();
        readers.retain(|(other, _)| *other != number);
        let count = readers.len();
        self.status.send_modify(|status| {
            status.number += 1;
            status.readers = count;
            status.skip_catch_up();
        });
    }

    fn readers(&self) -> MutexGuard<'_, Vec<(u64, CatchUp)>> {
        self.readers.lock()
    }

    /// Lets the caches catch up after each gain, and then publishes the gained keys. Runs until the stop.
    pub(super) async fn publish_gains(&self) {
        let mut statuses = self.status.subscribe();
        loop {
            let lags =
                |status: &MemberStatus| status.stopped.is_some() || (status.readers > 0 && status.gains.is_lagging());
            let lagging = statuses.wait_for(lags).await.map(|status| (status.number, status.stopped.is_some()));
            let Ok((number, false)) = lagging else { return };
            // The readers run without the lock and may take a long time. Changes in the meantime start another pass.
            let all: Vec<_> = self.readers().iter().map(|(_, catch_up)| catch_up()).collect();
            join_all(all).await;
            self.status.send_modify(|status| {
                status.gains.record_catch_up(number);
                status.number += 1;
            });
        }
    }
}
