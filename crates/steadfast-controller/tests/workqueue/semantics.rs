//! What client-go's workqueue documents, row by row, and where this one differs on purpose.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use steadfast_controller::{Priority, RateLimit, Work, Workqueue};
use tokio::time::{Instant, advance};

use super::{all, builder, environment, now, queue};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn keys_come_in_the_order_in_which_they_were_added_and_each_once() {
    let queue = queue();
    for key in [3, 1, 2, 1, 3] {
        queue.add(key);
    }
    assert_eq!(queue.len(), 3);
    assert_eq!(all(&queue), [3, 1, 2]);
    assert_eq!(queue.known(), 0, "nothing is kept of a key that is done");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_worked_on_by_one_at_a_time_and_once_more_for_all_that_was_added_meanwhile() {
    let queue = queue();
    queue.add(1);
    let work = now(&queue).expect("it is ready");
    for _ in 0..10 {
        queue.add(1);
    }
    assert!(now(&queue).is_none(), "it is worked on");
    drop(work);
    assert_eq!(all(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn of_two_delays_the_one_that_is_over_first_counts() {
    let queue = queue();
    queue.add_after(1, 5 * SECOND);
    queue.add_after(1, SECOND);
    queue.add_after(1, 9 * SECOND);
    let begun = Instant::now();
    drop(queue.next().await);
    assert_eq!(begun.elapsed(), SECOND);
    advance(20 * SECOND).await;
    assert!(now(&queue).is_none(), "that was all");
}

#[tokio::test(start_paused = true)]
async fn a_delay_outlives_an_addition_in_between() {
    let queue = queue();
    queue.add_after(1, 5 * SECOND);
    queue.add(1);
    assert_eq!(all(&queue), [1]);
    let begun = Instant::now();
    drop(queue.next().await);
    assert_eq!(begun.elapsed(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_delay_is_noticed_by_whoever_waits_for_a_longer_one() {
    let queue = queue();
    queue.add_after(1, 60 * SECOND);
    let waits = queue.clone();
    let waiting = tokio::spawn(async move { waits.next().await.map(|work| *work) });
    tokio::task::yield_now().await;
    let begun = Instant::now();
    queue.add_after(2, SECOND);
    assert_eq!(waiting.await.expect("no panic"), Some(2));
    assert_eq!(begun.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_delay_of_nothing_is_an_addition() {
    let queue = queue();
    queue.add_after(1, Duration::ZERO);
    assert_eq!(all(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_fails_waits_twice_as_long_each_time_and_finishing_forgets_that() {
    let queue = queue();
    queue.add(1);
    for failure in 0..10 {
        let work = queue.next().await.expect("it is open");
        let wait = work.retry();
        let longest = (SECOND / 10 * 2u32.pow(failure)).min(10 * SECOND);
        assert!((longest / 2..=longest).contains(&wait), "{wait:?} after {failure} failures");
        assert_eq!(queue.failures(&1), failure + 1);
    }
    queue.next().await.expect("it is open").finish();
    assert_eq!((queue.failures(&1), queue.known()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn all_that_fail_together_are_limited_together() {
    let limit = RateLimit { per_second: 2.0, burst: 3 };
    let queue = builder(0).limit(limit).build();
    (0..5).for_each(|key| queue.add(key));
    let works: Vec<_> = std::iter::from_fn(|| now(&queue)).collect();
    let waits: Vec<_> = works.into_iter().map(|work| work.retry().max(SECOND / 10)).collect();
    assert_eq!(waits, [SECOND / 10, SECOND / 10, SECOND / 10, SECOND / 2, SECOND]);
}

/// client-go's rate limiters keep the failures of each key until somebody calls `Forget`.
#[tokio::test(start_paused = true)]
async fn failures_that_nobody_forgot_are_forgotten_after_twice_the_longest_wait() {
    let queue = queue();
    for key in 0..1000 {
        queue.add(key);
    }
    for work in std::iter::from_fn(|| now(&queue)).collect::<Vec<_>>() {
        work.retry();
    }
    advance(SECOND).await;
    assert_eq!(all(&queue).len(), 1000);
    assert_eq!(queue.known(), 1000);
    advance(21 * SECOND).await;
    assert!(now(&queue).is_none());
    assert_eq!(queue.known(), 0);
}

/// In client-go the retry comes all the same.
#[tokio::test(start_paused = true)]
async fn a_retry_that_waits_is_given_up_when_the_failures_are_forgotten_and_a_wanted_delay_is_not() {
    let queue = queue();
    queue.add(1);
    now(&queue).expect("it is ready").retry();
    queue.add(1);
    now(&queue).expect("it was changed").finish();
    advance(60 * SECOND).await;
    assert!(now(&queue).is_none());

    queue.add_after(2, SECOND);
    queue.add(2);
    now(&queue).expect("it is ready").finish();
    advance(SECOND).await;
    assert_eq!(all(&queue), [2]);
}

#[tokio::test(start_paused = true)]
async fn what_is_urgent_is_first_and_a_key_has_the_highest_priority_it_was_added_with() {
    let queue = queue();
    for key in 0..3 {
        queue.add_with(key, Priority::LOW);
    }
    queue.add(10);
    queue.add_with(2, Priority::NORMAL);
    queue.add_with(10, Priority::LOW);
    assert_eq!(all(&queue), [10, 2, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn one_group_with_much_to_do_leaves_the_others_their_turns() {
    let queue = builder(0).fairness_key(|key| key / 1000).build();
    (1000..2000).for_each(|key| queue.add(key));
    queue.add(1);
    queue.add(2);
    let first = all(&queue).into_iter().take(4).collect::<Vec<_>>();
    assert_eq!(first, [1000, 1, 1001, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_worker_panics_is_neither_lost_nor_locked() {
    let queue = queue();
    queue.add(1);
    let worker = queue.clone();
    let panicked = tokio::spawn(async move {
        let _work = worker.next().await;
        worker.add(1);
        panic!("on purpose");
    });
    assert!(panicked.await.is_err());
    assert_eq!(all(&queue), [1]);
}

/// Whether keys cannot be cloned.
static BROKEN: AtomicBool = AtomicBool::new(true);

#[derive(PartialEq, Eq, Hash)]
struct Fragile;

impl Clone for Fragile {
    fn clone(&self) -> Self {
        assert!(!BROKEN.load(Ordering::Relaxed), "on purpose");
        Self
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_panics_when_it_is_cloned_is_there_for_the_next_worker() {
    let queue = Workqueue::<Fragile>::new(environment(0));
    queue.add(Fragile);
    let worker = queue.clone();
    assert!(tokio::spawn(async move { drop(worker.next().await) }).await.is_err());
    BROKEN.store(false, Ordering::Relaxed);
    queue.next().now_or_never().flatten().expect("it is still there").finish();
    assert_eq!(queue.drain(SECOND).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_given_up_takes_no_key_with_it() {
    let queue = queue();
    let mut given_up = Box::pin(queue.next());
    assert!(given_up.as_mut().now_or_never().is_none());
    let other = queue.clone();
    let waiting = tokio::spawn(async move { other.next().await.map(|work| *work) });
    tokio::task::yield_now().await;
    queue.add(1);
    // It has been called, and will not come.
    drop(given_up);
    assert_eq!(waiting.await.expect("no panic"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn defaults_are_those_of_client_go() {
    let queue = Workqueue::<u32>::new(environment(3));
    (0..101).for_each(|key| queue.add(key));
    let works: Vec<_> = std::iter::from_fn(|| queue.next().now_or_never().flatten()).collect();
    let waits: Vec<_> = works.into_iter().map(Work::retry).collect();
    let own = Duration::from_micros(2500)..=Duration::from_millis(5);
    assert!(waits[..100].iter().all(|wait| own.contains(wait)), "{waits:?}");
    assert_eq!(waits[100], Duration::from_millis(100));
}
