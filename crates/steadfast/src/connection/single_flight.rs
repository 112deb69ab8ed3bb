//! Shared attempts: concurrent callers wait for the same operation.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use steadfast_core::Instant;
use tokio::sync::watch;

use crate::environment::SharedEnvironment;

/// Attempts at one operation, at most one at a time. A caller during a running attempt receives its outcome.
///
/// All waiting callers share one attempt; they do not queue for one attempt each.
pub(super) struct SingleFlight<T> {
    state: Arc<Mutex<State<T>>>,
}

struct State<T> {
    /// Time of the last start or end of an attempt.
    last: Option<Instant>,
    running: Option<watch::Receiver<Option<T>>>,
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    /// Creates the state before the first attempt.
    pub(super) fn new() -> Self {
        Self { state: Arc::new(Mutex::new(State { last: None, running: None })) }
    }

    /// Returns the outcome of the running attempt, or else of a new attempt, which `start_attempt` starts.
    ///
    /// Returns `None` if the last attempt was less than `min_interval` ago, or if the attempt panics. The attempt runs
    /// as a separate task, and continues if all its callers are dropped.
    pub(super) async fn join(
        &self,
        environment: &SharedEnvironment,
        min_interval: Duration,
        start_attempt: impl FnOnce() -> BoxFuture<'static, T>,
    ) -> Option<T> {
        let mut running = {
            let mut state = self.state.lock();
            let now = environment.now();
            // `has_changed` fails once the sender is dropped: an attempt without an outcome has panicked. It must not
            // block later attempts.
            match state.running.clone().filter(|running| running.has_changed().is_ok()) {
                Some(running) => running,
                None if state.last.is_some_and(|last| now.since(last) < min_interval) => return None,
                None => {
                    let (done, running) = watch::channel(None);
                    state.last = Some(now);
                    state.running = Some(running.clone());
                    let (attempt, state, clock) = (start_attempt(), self.state.clone(), environment.clone());
                    environment.spawn(Box::pin(async move {
                        let outcome = attempt.await;
                        // Under the lock: a caller finds either the running attempt or `last`, and so starts no second
                        // attempt within `min_interval`.
                        let mut state = state.lock();
                        state.last = Some(clock.now());
                        state.running = None;
                        done.send_replace(Some(outcome));
                    }));
                    running
                }
            }
        };
        running.wait_for(Option::is_some).await.ok()?.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;
    use crate::environment::local::LocalEnvironment;

    const MIN_INTERVAL: Duration = Duration::from_secs(5);

    fn environment() -> SharedEnvironment {
        Arc::new(LocalEnvironment::new(1, |_, _| unreachable!("the test dials no address")))
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_one_attempt() {
        let (environment, attempts, started) = (environment(), SingleFlight::new(), Arc::new(AtomicUsize::new(0)));
        let join = || {
            let started = started.clone();
            attempts.join(&environment, MIN_INTERVAL, move || {
                Box::pin(async move {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    started.fetch_add(1, Ordering::SeqCst)
                })
            })
        };
        // The first caller times out, and the attempt continues without it.
        tokio::time::timeout(Duration::from_secs(1), join()).await.expect_err("the attempt takes 30 s");
        let started_at = tokio::time::Instant::now();
        assert_eq!(join_all((0..20).map(|_| join())).await, [Some(0); 20]);
        assert_eq!(started_at.elapsed(), Duration::from_secs(29));
        assert_eq!(join().await, None, "within the pause");
        tokio::time::sleep(MIN_INTERVAL).await;
        assert_eq!(join().await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn panic_of_an_attempt_does_not_block_later_attempts() {
        let (environment, attempts) = (environment(), SingleFlight::new());
        let panics = || -> BoxFuture<'static, usize> { Box::pin(async { std::panic::resume_unwind(Box::new("no")) }) };
        assert_eq!(attempts.join(&environment, MIN_INTERVAL, panics).await, None);
        tokio::time::sleep(MIN_INTERVAL).await;
        assert_eq!(attempts.join(&environment, MIN_INTERVAL, || Box::pin(async { 7 })).await, Some(7));
    }
}
