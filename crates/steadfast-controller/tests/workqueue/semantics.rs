//! Documented semantics of client-go's workqueue, one test each, and the intended differences.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use steadfast_controller::{Priority, RateLimit, Work, Workqueue};
use tokio::time::{Instant, advance, timeout};

use super::{builder, environment, process_ready, queue, take_ready};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn keys_come_once_in_insertion_order() {
    let queue = queue();
    for key in [3, 1, 2, 1, 3] {
        queue.add(key);
    }
    assert_eq!(queue.len(), 3);
    assert_eq!(process_ready(&queue), [3, 1, 2]);
    assert_eq!(queue.tracked(), 0, "a finished key is not tracked");
}

#[tokio::test(start_paused = true)]
async fn additions_while_running_cause_one_run() {
    let queue = queue();
    queue.add(1);
    let work = take_ready(&queue).expect("a ready key");
    for _ in 0..10 {
        queue.add(1);
    }
    assert!(take_ready(&queue).is_none(), "the key is running");
    drop(work);
    assert_eq!(process_ready(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn earlier_delay_wins() {
    let queue = queue();
    queue.add_after(1, 5 * SECOND);
    queue.add_after(1, SECOND);
    queue.add_after(1, 9 * SECOND);
    let started_at = Instant::now();
    drop(queue.next().await);
    assert_eq!(started_at.elapsed(), SECOND);
    advance(20 * SECOND).await;
    assert!(take_ready(&queue).is_none(), "no further key");
}

#[tokio::test(start_paused = true)]
async fn delay_survives_immediate_addition() {
    let queue = queue();
    queue.add_after(1, 5 * SECOND);
    queue.add(1);
    assert_eq!(process_ready(&queue), [1]);
    let started_at = Instant::now();
    drop(queue.next().await);
    assert_eq!(started_at.elapsed(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn shorter_delay_wakes_waiting_worker() {
    let queue = queue();
    queue.add_after(1, 60 * SECOND);
    let waits = queue.clone();
    let waiting = tokio::spawn(async move { waits.next().await.map(|work| *work) });
    tokio::task::yield_now().await;
    let started_at = Instant::now();
    queue.add_after(2, SECOND);
    assert_eq!(waiting.await.expect("no panic"), Some(2));
    assert_eq!(started_at.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn zero_delay_adds_immediately() {
    let queue = queue();
    queue.add_after(1, Duration::ZERO);
    assert_eq!(process_ready(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn backoff_doubles_until_finish() {
    let queue = queue();
    queue.add(1);
    for failure in 0..10 {
        let work = queue.next().await.expect("an open queue");
        let wait = work.retry();
        let longest = (SECOND / 10 * 2u32.pow(failure)).min(10 * SECOND);
        assert!((longest / 2..=longest).contains(&wait), "{wait:?} after {failure} failures");
        assert_eq!(queue.failures(&1), failure + 1);
    }
    queue.next().await.expect("an open queue").finish();
    assert_eq!((queue.failures(&1), queue.tracked()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn retries_share_rate_limit() {
    let limit = RateLimit { per_second: 2.0, burst: 3 };
    let queue = builder(0).limit(limit).build();
    (0..5).for_each(|key| queue.add(key));
    let works: Vec<_> = std::iter::from_fn(|| take_ready(&queue)).collect();
    let waits: Vec<_> = works.into_iter().map(|work| work.retry().max(SECOND / 10)).collect();
    assert_eq!(waits, [SECOND / 10, SECOND / 10, SECOND / 10, SECOND / 2, SECOND]);
}

/// client-go's rate limiters keep the failures of each key until `Forget`.
#[tokio::test(start_paused = true)]
async fn failures_expire_after_twice_the_ceiling() {
    let queue = queue();
    for key in 0..1000 {
        queue.add(key);
    }
    for work in std::iter::from_fn(|| take_ready(&queue)).collect::<Vec<_>>() {
        work.retry();
    }
    advance(SECOND).await;
    assert_eq!(process_ready(&queue).len(), 1000);
    assert_eq!(queue.tracked(), 1000);
    advance(21 * SECOND).await;
    assert!(take_ready(&queue).is_none());
    assert_eq!(queue.tracked(), 0);
}

/// In client-go, a pending retry runs even after the key has succeeded.
#[tokio::test(start_paused = true)]
async fn finish_cancels_retry_but_not_delay() {
    let queue = queue();
    queue.add(1);
    take_ready(&queue).expect("a ready key").retry();
    queue.add(1);
    take_ready(&queue).expect("a key that was added again").finish();
    advance(60 * SECOND).await;
    assert!(take_ready(&queue).is_none());

    queue.add_after(2, SECOND);
    queue.add(2);
    take_ready(&queue).expect("a ready key").finish();
    advance(SECOND).await;
    assert_eq!(process_ready(&queue), [2]);
}

#[tokio::test(start_paused = true)]
async fn highest_priority_of_key_applies() {
    let queue = queue();
    for key in 0..3 {
        queue.add_with_priority(key, Priority::LOW);
    }
    queue.add(10);
    queue.add_with_priority(2, Priority::NORMAL);
    queue.add_with_priority(10, Priority::LOW);
    assert_eq!(process_ready(&queue), [10, 2, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn fairness_groups_take_turns() {
    let queue = builder(0).fairness_key(|key| key / 1000).build();
    (1000..2000).for_each(|key| queue.add(key));
    queue.add(1);
    queue.add(2);
    let first = process_ready(&queue).into_iter().take(4).collect::<Vec<_>>();
    assert_eq!(first, [1000, 1, 1001, 2]);
}

#[tokio::test(start_paused = true)]
async fn worker_panic_releases_key() {
    let queue = queue();
    queue.add(1);
    let worker = queue.clone();
    let panicked = tokio::spawn(async move {
        let _work = worker.next().await;
        worker.add(1);
        panic!("on purpose");
    });
    assert!(panicked.await.is_err());
    assert_eq!(process_ready(&queue), [1]);
}

/// True if cloning a key panics.
static CLONE_PANICS: AtomicBool = AtomicBool::new(true);

#[derive(PartialEq, Eq, Hash)]
struct PanickingClone;

impl Clone for PanickingClone {
    fn clone(&self) -> Self {
        assert!(!CLONE_PANICS.load(Ordering::Relaxed), "on purpose");
        Self
    }
}

#[tokio::test(start_paused = true)]
async fn panic_in_clone_keeps_key() {
    let queue = Workqueue::<PanickingClone>::new(environment(0));
    queue.add(PanickingClone);
    let worker = queue.clone();
    assert!(tokio::spawn(async move { drop(worker.next().await) }).await.is_err());
    CLONE_PANICS.store(false, Ordering::Relaxed);
    queue.next().now_or_never().flatten().expect("the key is still queued").finish();
    assert_eq!(queue.drain(SECOND).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn cancelled_wait_loses_no_key() {
    let queue = queue();
    let mut cancelled = Box::pin(queue.next());
    assert!(cancelled.as_mut().now_or_never().is_none());
    let other = queue.clone();
    let waiting = tokio::spawn(async move { other.next().await.map(|work| *work) });
    tokio::task::yield_now().await;
    queue.add(1);
    // The task was woken and will not run again.
    drop(cancelled);
    assert_eq!(waiting.await.expect("no panic"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn defaults_match_client_go() {
    let queue = Workqueue::<u32>::new(environment(3));
    (0..101).for_each(|key| queue.add(key));
    let works: Vec<_> = std::iter::from_fn(|| queue.next().now_or_never().flatten()).collect();
    let waits: Vec<_> = works.into_iter().map(Work::retry).collect();
    let own = Duration::from_micros(2500)..=Duration::from_millis(5);
    assert!(waits[..100].iter().all(|wait| own.contains(wait)), "{waits:?}");
    assert_eq!(waits[100], Duration::from_millis(100));
}

/// Key with a destructor that may panic. All values are equal.
#[derive(Clone)]
struct FragileKey {
    panics_on_drop: bool,
}

impl PartialEq for FragileKey {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for FragileKey {}

impl Hash for FragileKey {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Drop for FragileKey {
    fn drop(&mut self) {
        assert!(!self.panics_on_drop, "planted");
    }
}

/// Regression test: the panic of a destructor lost the wake-up of a worker, so that a ready key was not processed.
#[tokio::test(start_paused = true)]
async fn panicking_destructor_wakes_worker() {
    let queue = Workqueue::<FragileKey>::builder(environment(0)).build();
    queue.add(FragileKey { panics_on_drop: false });
    // A failure keeps the key tracked, so that the next addition drops its own copy of the key.
    queue.next().await.expect("a key").retry();
    drop(queue.next().await.expect("the retry"));
    let waiting = queue.clone();
    let worker = tokio::spawn(async move { waiting.next().await.is_some() });
    tokio::task::yield_now().await;
    let added = catch_unwind(AssertUnwindSafe(|| queue.add(FragileKey { panics_on_drop: true })));
    assert!(added.is_err(), "the destructor panicked");
    let woken = timeout(SECOND, worker).await;
    assert!(matches!(woken, Ok(Ok(true))), "{woken:?}");
}
