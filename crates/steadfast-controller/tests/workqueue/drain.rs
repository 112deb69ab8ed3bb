//! Tests of shutdown and drain.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{process_ready, queue, take_ready};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn shutdown_keeps_ready_keys_only() {
    let queue = queue();
    queue.add(1);
    queue.add(2);
    queue.add_after(3, SECOND);
    assert_eq!(queue.shut_down(), 1);
    queue.add(4);
    queue.add_after(5, SECOND);
    assert_eq!(process_ready(&queue), [1, 2]);
    sleep(2 * SECOND).await;
    assert!(queue.next().await.is_none());
    assert_eq!(queue.tracked(), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_wakes_waiting_workers() {
    let queue = queue();
    queue.add_after(1, 60 * SECOND);
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.next().await.is_none() })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.shut_down();
    for waits in waiting {
        assert!(waits.await.expect("no panic"));
    }
}

/// client-go's workers end while a key that changed during its processing still needs another run.
#[tokio::test(start_paused = true)]
async fn shutdown_processes_readded_running_key() {
    let queue = queue();
    queue.add(1);
    let work = take_ready(&queue).expect("a ready key");
    queue.add(1);
    queue.shut_down();
    let other = queue.clone();
    let waiting = tokio::spawn(async move { other.next().await.map(|work| *work) });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(work);
    assert_eq!(waiting.await.expect("no panic"), Some(1));
    assert!(queue.next().await.is_none());
}

/// client-go's `ShutDownWithDrain` returns immediately if keys are queued and none is running.
#[tokio::test(start_paused = true)]
async fn drain_waits_for_queued_and_running() {
    let queue = queue();
    (0..10).for_each(|key| queue.add(key));
    let worker = queue.clone();
    tokio::spawn(async move {
        sleep(SECOND).await;
        while let Some(_work) = worker.next().await {
            sleep(SECOND).await;
        }
    });
    queue.add_after(10, 60 * SECOND);
    let started_at = Instant::now();
    assert_eq!(queue.drain(60 * SECOND).await, Ok(1), "one was delayed");
    assert_eq!(started_at.elapsed(), 11 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn shutdown_keeps_due_delayed_keys() {
    let queue = queue();
    queue.add_after(1, SECOND);
    sleep(2 * SECOND).await;
    queue.add(2);
    assert_eq!((queue.len(), queue.shut_down()), (2, 0));
    assert_eq!(process_ready(&queue), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn drain_timeout_reports_remaining_keys() {
    let queue = queue();
    (0..3).for_each(|key| queue.add(key));
    let work = take_ready(&queue).expect("a ready key");
    queue.add(*work);
    sleep(SECOND).await;
    let left = queue.drain(4 * SECOND).await.expect_err("no worker runs");
    assert_eq!((left.queued, left.running, left.longest_running), (3, 1, 5 * SECOND));
    let message = left.to_string();
    assert!(message.contains("timed out after 4s: 3 keys are queued and 1 running, the longest for 5s"), "{message}");
    drop(work);
    assert_eq!(process_ready(&queue), [1, 2, 0]);
    queue.drain(SECOND).await.expect("nothing is left");
}
