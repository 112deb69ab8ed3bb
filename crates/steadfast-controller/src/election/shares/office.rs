//! What a member tells those who ask it: which keys are its own, and by which client it acts on them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, join_all};
use steadfast::ObjectKey;
use steadfast::environment::SharedEnvironment;
use tokio::sync::watch;

use super::super::office::Term;
use super::super::trouble::Troubles;
use super::gains::Gains;
use super::membership::Part;

/// How a member stands.
#[derive(Clone, Default)]
pub(super) struct Standing {
    /// Counts the changes.
    pub(super) number: u64,
    pub(super) part: Option<Arc<Part>>,
    /// By which it acts on that part: both change together.
    pub(super) term: Option<Arc<Term>>,
    /// What of that part is given out.
    pub(super) gains: Gains,
    /// How many read caches.
    readers: usize,
    /// Once nothing is tried any more: whether the lease was released.
    pub(super) over: Option<bool>,
}

impl Standing {
    /// The term to act in on `key`, by what is known; whether its time is over is not looked at.
    pub(super) fn term_for(&self, key: &ObjectKey) -> Option<&Arc<Term>> {
        self.term.as_ref().filter(|_| self.gains.own(key))
    }

    /// It is another part from now on, or another term.
    pub(super) fn turn(&mut self, part: Option<Part>, term: Option<Arc<Term>>) {
        self.number += 1;
        self.part = part.map(Arc::new);
        self.term = term;
        self.gains.turn(self.number, self.part.clone().filter(|_| self.term.is_some()));
        self.reads_nothing();
    }

    /// Where nobody reads a cache, none has to catch up.
    fn reads_nothing(&mut self) {
        if self.readers == 0 {
            self.gains.caught_up(self.number);
        }
    }
}

/// A member, as its handles and what works for it share it.
pub(super) struct Office {
    pub(super) environment: SharedEnvironment,
    pub(super) namespace: String,
    pub(super) group: String,
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) standing: watch::Sender<Standing>,
    pub(super) stopping: watch::Sender<bool>,
    pub(super) troubles: Troubles,
    /// Those who read caches, by number.
    pub(super) readers: Mutex<Vec<(u64, CatchUp)>>,
}

/// Waits until the caches that somebody reads have all that was written before.
pub(super) type CatchUp = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

impl Office {
    /// One more reads caches; returns its number.
    pub(super) fn read(&self, catch_up: CatchUp) -> u64 {
        let mut readers = self.readers();
        let number = readers.last().map_or(0, |(last, _)| last + 1);
        readers.push((number, catch_up));
        let count = readers.len();
        self.standing.send_modify(|standing| standing.readers = count);
        number
    }

    /// The one with this number reads no caches any more.
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
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has caches catch up whenever keys are gained, and has them given out then; as long as the member takes part.
    pub(super) async fn give_out(&self) {
        let mut standings = self.standing.subscribe();
        loop {
            let lags = |standing: &Standing| standing.over.is_some() || (standing.readers > 0 && standing.gains.lag());
            let lagging = standings.wait_for(lags).await.map(|standing| (standing.number, standing.over.is_some()));
            let Ok((number, false)) = lagging else { return };
            let all: Vec<_> = self.readers().iter().map(|(_, catch_up)| catch_up()).collect();
            join_all(all).await;
            self.standing.send_modify(|standing| {
                standing.gains.caught_up(number);
                standing.number += 1;
            });
        }
    }
}
