//! Published state of a member: own keys, and the client for acting on them.

use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use parking_lot::{Mutex, MutexGuard};
use steadfast::ObjectKey;
use steadfast::environment::SharedEnvironment;
use tokio::sync::watch;

use super::super::state::Term;
use super::super::trouble::Troubles;
use super::gains::GainTracker;
use super::membership::OwnedKeys;

/// Published status of a member.
#[derive(Clone, Default)]
pub(super) struct MemberStatus {
    /// Number of changes.
    pub(super) number: u64,
    pub(super) part: Option<Arc<OwnedKeys>>,
    /// Term for acting on the own keys. Both change together.
    pub(super) term: Option<Arc<Term>>,
    /// Own keys that are not withheld.
    pub(super) gains: GainTracker,
    /// Number of cache readers.
    readers: usize,
    /// Present after the stop: true if the lease was released.
    pub(super) over: Option<bool>,
}

impl MemberStatus {
    /// Returns the term for acting on `key`. Does not check whether the term has expired.
    pub(super) fn term_for(&self, key: &ObjectKey) -> Option<&Arc<Term>> {
        self.term.as_ref().filter(|_| self.gains.own(key))
    }

    /// Changes the own keys or the term.
    pub(super) fn turn(&mut self, part: Option<OwnedKeys>, term: Option<Arc<Term>>) {
        self.number += 1;
        self.part = part.map(Arc::new);
        self.term = term;
        self.gains.turn(self.number, self.part.clone().filter(|_| self.term.is_some()));
        self.reads_nothing();
    }

    /// Without cache readers, no cache must catch up.
    fn reads_nothing(&mut self) {
        if self.readers == 0 {
            self.gains.caught_up(self.number);
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
    pub(super) standing: watch::Sender<MemberStatus>,
    pub(super) stopping: watch::Sender<bool>,
    pub(super) troubles: Troubles,
    /// Cache readers, by number.
    pub(super) readers: Mutex<Vec<(u64, CatchUp)>>,
}

/// Waits until the caches of a reader contain all earlier writes.
pub(super) type CatchUp = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

impl MemberState {
    /// Adds a cache reader and returns its number.
    pub(super) fn read(&self, catch_up: CatchUp) -> u64 {
        let mut readers = self.readers();
        let number = readers.last().map_or(0, |(last, _)| last + 1);
        readers.push((number, catch_up));
        let count = readers.len();
        self.standing.send_modify(|standing| standing.readers = count);
        number
    }

    /// Removes the cache reader with this number.
    pub(super) fn read_no_more(&self, number: u64) {
        let mut readers = self.readers();
        readers.retain(|(other, _)| *other != number);
        let count = readers.len();
        self.standing.send_modify(|standing| {
            standing.number += 1;
            standing.readers = count;
            standing.reads_nothing();
        });
    }

    fn readers(&self) -> MutexGuard<'_, Vec<(u64, CatchUp)>> {
        self.readers.lock()
    }

    /// Lets the caches catch up after each gain, and then publishes the gained keys. Runs until the stop.
    pub(super) async fn give_out(&self) {
        let mut standings = self.standing.subscribe();
        loop {
            let lags =
                |standing: &MemberStatus| standing.over.is_some() || (standing.readers > 0 && standing.gains.lag());
            let lagging = standings.wait_for(lags).await.map(|standing| (standing.number, standing.over.is_some()));
            let Ok((number, false)) = lagging else { return };
            // The readers run without the lock and may take a long time. Changes in the meantime start another pass.
            let all: Vec<_> = self.readers().iter().map(|(_, catch_up)| catch_up()).collect();
            join_all(all).await;
            self.standing.send_modify(|standing| {
                standing.gains.caught_up(number);
                standing.number += 1;
            });
        }
    }
}
