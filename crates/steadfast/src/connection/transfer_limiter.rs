//! The places for full transfers: a few at once (R5), held by progress, so that one that hangs holds up nobody (R7).
//!
//! A transfer that was requested counts for as long as something of it keeps coming. One that is silent gives its place to
//! the next and goes on; if it comes at last, it is read at once and counts again, though there be one too many for a
//! while: the server has done its work already, and would have to keep what is not read.
//!
//! Who falls silent is found out at the cost of those who wait, so the more are silent, the shorter is the patience with
//! the next, and who fell silent the last time lets others go first and never takes the last place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use steadfast_core::Instant;
use tokio::sync::{Notify, oneshot};

use crate::environment::SharedEnvironment;

/// How long a transfer may be silent before it counts no more, while others are not.
const PATIENCE: Duration = Duration::from_secs(1);

/// The shortest that becomes: more than a healthy server takes for the head of an answer.
const LEAST_PATIENCE: Duration = Duration::from_millis(200);

/// How long a transfer counts, whatever it brings: one that drips holds up nobody for longer either.
const LONGEST: Duration = Duration::from_secs(30);

/// How much later than it did who fell silent the last time is taken to have come.
const HANDICAP: Duration = Duration::from_secs(10);

/// The places for full transfers from one server; cheap to clone.
#[derive(Clone)]
pub(crate) struct TransferLimiter {
    shared: Arc<Shared>,
}

struct Shared {
    environment: SharedEnvironment,
    limit: usize,
    state: Mutex<State>,
    /// Notified when the usher has to look sooner.
    sooner: Notify,
}

#[derive(Default)]
struct State {
    numbers: u64,
    /// The transfers that count, by number.
    counting: BTreeMap<u64, Holder>,
    /// Those that do not, until they are heard again.
    silent: BTreeMap<u64, Holder>,
    /// What was silent when it was last seen.
    suspects: BTreeSet<Arc<str>>,
    /// Those who wait, in the order of asking: suspects, and the others.
    waiting: VecDeque<Waiter>,
    waiting_suspects: VecDeque<Waiter>,
    /// When the usher looks next, while there is one.
    usher: Option<Instant>,
}

struct Holder {
    what: Arc<str>,
    suspect: bool,
    begun: Instant,
    heard: Instant,
}

struct Waiter {
    what: Arc<str>,
    asked: Instant,
    place: oneshot::Sender<Place>,
}

/// A place among the full transfers, until it is dropped.
pub(crate) struct Place {
    shared: Arc<Shared>,
    number: u64,
    heard: Instant,
}

impl TransferLimiter {
    /// So many places, at least one.
    pub(super) fn new(environment: SharedEnvironment, limit: usize) -> Self {
        let (limit, state, sooner) = (limit.max(1), Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { environment, limit, state, sooner }) }
    }

    /// A place for a transfer of the collection `what`, by its path: as soon as there is one.
    pub(super) fn wait(&self, what: &str) -> BoxFuture<'static, Place> {
        let (place, granted) = oneshot::channel();
        let now = self.shared.environment.now();
        let mut state = self.shared.lock();
        let suspect = state.suspects.get(what).cloned();
        let queue = if suspect.is_some() { &mut state.waiting_suspects } else { &mut state.waiting };
        queue.push_back(Waiter { what: suspect.unwrap_or_else(|| what.into()), asked: now, place });
        self.shared.serve(state);
        Box::pin(async move {
            match granted.await {
                Ok(place) => place,
                // Those who wait are asked for by this connection alone, which is on its way out.
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// A place if one is free now, and nobody waits for it but suspects.
    pub(super) fn spare(&self, what: &str) -> Option<Place> {
        let now = self.shared.environment.now();
        let mut state = self.shared.lock();
        state.settle(now, self.shared.limit);
        state.forget_who_left();
        let free = state.waiting.is_empty() && state.counting.len() < self.shared.limit;
        free.then(|| {
            let what = what.into();
            let suspect = state.suspects.contains(&what);
            self.shared.place(&mut state, now, what, suspect)
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(self: &Arc<Self>, state: &mut State, now: Instant, what: Arc<str>, suspect: bool) -> Place {
        state.numbers += 1;
        state.counting.insert(state.numbers, Holder { what, suspect, begun: now, heard: now });
        Place { shared: self.clone(), number: state.numbers, heard: now }
    }

    /// Gives the places that there are to those who wait, and sees to it that the next one is given too.
    fn serve(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let now = self.environment.now();
        let given = self.grant(&mut state, now);
        let due = state.next(self.limit).filter(|_| !state.nobody_waits());
        match (due, state.usher) {
            (Some(due), None) => {
                state.usher = Some(due);
                self.environment.spawn(Box::pin(usher(Arc::downgrade(self))));
            }
            (Some(due), Some(before)) if due < before => {
                state.usher = Some(due);
                self.sooner.notify_one();
            }
            _ => {}
        }
        drop(state);
        // A place that nobody takes any more comes back, which needs the lock.
        for (waiter, place) in given {
            drop(waiter.place.send(place));
        }
    }

    fn grant(self: &Arc<Self>, state: &mut State, now: Instant) -> Vec<(Waiter, Place)> {
        let mut given = Vec::new();
        state.settle(now, self.limit);
        state.forget_who_left();
        while state.counting.len() < self.limit {
            let Some((waiter, suspect)) = state.take_next(self.limit) else { break };
            let place = self.place(state, now, waiter.what.clone(), suspect);
            given.push((waiter, place));
            state.forget_who_left();
        }
        given
    }
}

/// Looks after those who wait when a transfer may have fallen silent, for as long as anybody waits.
async fn usher(transfers: Weak<Shared>) {
    loop {
        let Some(shared) = transfers.upgrade() else { return };
        let given = {
            let now = shared.environment.now();
            let mut state = shared.lock();
            let given = shared.grant(&mut state, now);
            state.usher = state.next(shared.limit).filter(|_| !state.nobody_waits());
            given
        };
        for (waiter, place) in given {
            drop(waiter.place.send(place));
        }
        let Some(due) = shared.lock().usher else { return };
        let sleep = shared.environment.sleep_until(due);
        tokio::select! {
            biased;
            () = sleep => {}
            () = shared.sooner.notified() => {}
        }
    }
}

impl State {
    /// How long a transfer may be silent now.
    fn patience(&self, limit: usize) -> Duration {
        let share = u32::try_from(1 + self.silent.len() / limit).unwrap_or(u32::MAX);
        (PATIENCE / share).max(LEAST_PATIENCE)
    }

    /// When the next transfer counts no more, if it is not heard before.
    fn next(&self, limit: usize) -> Option<Instant> {
        let patience = self.patience(limit);
        self.counting.values().map(|holder| (holder.heard + patience).min(holder.begun + LONGEST)).min()
    }

    /// Lets those count no more that have been silent for too long.
    fn settle(&mut self, now: Instant, limit: usize) {
        while let Some(due) = self.next(limit).filter(|due| *due <= now) {
            let patience = self.patience(limit);
            let over = |holder: &Holder| (holder.heard + patience).min(holder.begun + LONGEST) == due;
            let Some(number) = self.counting.iter().find(|(_, holder)| over(holder)).map(|(number, _)| *number) else {
                return;
            };
            if let Some(holder) = self.counting.remove(&number) {
                if holder.heard + patience <= now {
                    self.suspects.insert(holder.what.clone());
                }
                self.silent.insert(number, holder);
            }
        }
    }

    fn nobody_waits(&self) -> bool {
        self.waiting.is_empty() && self.waiting_suspects.is_empty()
    }

    /// Forgets those at the heads of the queues who wait no more.
    fn forget_who_left(&mut self) {
        for queue in [&mut self.waiting, &mut self.waiting_suspects] {
            while queue.front().is_some_and(|waiter| waiter.place.is_closed()) {
                queue.pop_front();
            }
        }
    }

    /// Who is next, and whether it is a suspect; they leave one place to the others, where there is more than one.
    fn take_next(&mut self, limit: usize) -> Option<(Waiter, bool)> {
        let suspects = self.counting.values().filter(|holder| holder.suspect).count();
        let room = suspects < limit.saturating_sub(1).max(1);
        let suspect = match (self.waiting.front(), self.waiting_suspects.front().filter(|_| room)) {
            (Some(other), Some(suspect)) => suspect.asked + HANDICAP < other.asked,
            (other, suspect) => other.is_none() && suspect.is_some(),
        };
        let queue = if suspect { &mut self.waiting_suspects } else { &mut self.waiting };
        queue.pop_front().map(|waiter| (waiter, suspect))
    }
}

impl Place {
    /// The transfer was last heard at that moment.
    pub(crate) fn heard(&mut self, at: Instant) {
        if at <= self.heard {
            return;
        }
        self.heard = at;
        let mut state = self.shared.lock();
        let state = &mut *state;
        if let Some(holder) = state.counting.get_mut(&self.number) {
            holder.heard = at;
            if std::mem::take(&mut holder.suspect) {
                state.suspects.remove(&holder.what);
            }
        } else if let Some(mut holder) = state.silent.remove(&self.number) {
            state.suspects.remove(&holder.what);
            (holder.heard, holder.suspect) = (at, false);
            if at.since(holder.begun) < LONGEST {
                state.counting.insert(self.number, holder);
            } else {
                state.silent.insert(self.number, holder);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.counting.remove(&self.number);
        state.silent.remove(&self.number);
        self.shared.serve(state);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::environment::local::Local;

    fn four() -> TransferLimiter {
        let environment = Local::new(1, |_, _| Box::pin(async { Err(std::io::Error::other("nobody is there")) }));
        TransferLimiter::new(Arc::new(environment), 4)
    }

    impl TransferLimiter {
        fn now(&self) -> Instant {
            self.shared.environment.now()
        }

        async fn crowd(&self, number: usize) -> Vec<Place> {
            let mut held = Vec::new();
            for index in 0..number {
                held.push(self.wait(&format!("crowd {index}")).await);
            }
            held
        }
    }

    async fn pass(time: Duration) {
        tokio::time::sleep(time).await;
    }

    #[tokio::test(start_paused = true)]
    async fn four_are_there_at_once_as_long_as_they_make_progress() {
        let transfers = four();
        let mut held = transfers.crowd(4).await;
        let mut fifth = transfers.wait("fifth");
        for _ in 0..20 {
            pass(Duration::from_millis(900)).await;
            for place in &mut held {
                place.heard(transfers.now());
            }
            assert!((&mut fifth).now_or_never().is_none(), "there were four already");
        }
        held.pop();
        assert!(fifth.now_or_never().is_some(), "one has left");
    }

    #[tokio::test(start_paused = true)]
    async fn what_drips_counts_for_half_a_minute() {
        let transfers = four();
        let mut held = transfers.crowd(4).await;
        let mut fifth = transfers.wait("fifth");
        let begun = transfers.now();
        while (&mut fifth).now_or_never().is_none() {
            pass(Duration::from_millis(500)).await;
            for place in &mut held {
                place.heard(transfers.now());
            }
        }
        let took = transfers.now().since(begun);
        assert!((LONGEST..=LONGEST + Duration::from_secs(1)).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_after_all_counts_again() {
        let transfers = four();
        let mut silent = transfers.crowd(4).await;
        let others = transfers.crowd(3).await;
        pass(Duration::from_millis(1)).await;
        silent[0].heard(transfers.now());
        assert!(transfers.spare("fifth").is_none(), "it takes the fourth place");
        drop((silent, others));
        assert!(transfers.spare("fifth").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_silent_lets_others_go_first_and_leaves_them_a_place() {
        let transfers = four();
        drop({
            let held = transfers.crowd(8).await;
            pass(PATIENCE).await;
            transfers.shared.serve(transfers.shared.lock());
            held
        });
        let crowd: Vec<_> = (0..8).map(|index| transfers.wait(&format!("crowd {index}"))).collect();
        let mut crowd: Vec<_> = crowd.into_iter().map(FutureExt::now_or_never).collect();
        assert_eq!(crowd.iter().flatten().count(), 3, "the last place is for others");
        let other = transfers.wait("other").now_or_never().expect("the last place");
        let another = transfers.wait("another");
        crowd.clear();
        assert!(another.now_or_never().is_some(), "before those who wait for longer");
        drop(other);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_no_more_takes_no_place() {
        let transfers = four();
        let held = transfers.crowd(4).await;
        drop(transfers.wait("gone"));
        let kept = transfers.wait("kept");
        drop(held);
        assert!(kept.now_or_never().is_some());
        assert_eq!(transfers.shared.lock().counting.len(), 0, "nothing is held");
    }
}
