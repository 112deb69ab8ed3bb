//! Random additions with several workers: no key is lost or processed twice concurrently.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use steadfast_controller::{Priority, Workqueue};
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

use super::builder;

/// Observations of one key.
#[derive(Default)]
struct KeyState {
    /// Last addition. Processing must start once more afterwards.
    added: Option<Instant>,
    running: bool,
    /// Start of the last run.
    started_at: Option<Instant>,
}

type Keys = Rc<RefCell<BTreeMap<u32, KeyState>>>;

#[derive(Clone, Debug)]
enum Step {
    Add(u32, i32),
    AddAfter(u32, u64),
    Wait(u64),
    /// Replaces a waiting worker by another.
    Replace,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12u32, -1..2i32).prop_map(|(key, priority)| Step::Add(key, priority)),
        2 => (0..12u32, 0..50u64).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        3 => (0..30u64).prop_map(Step::Wait),
        1 => Just(Step::Replace),
    ]
}

async fn work(queue: Workqueue<u32>, keys: Keys, run_ms: u64) {
    while let Some(work) = queue.next().await {
        let key = *work;
        {
            let mut keys = keys.borrow_mut();
            let state = keys.entry(key).or_default();
            assert!(!std::mem::replace(&mut state.running, true), "{key} is processed twice concurrently");
            state.started_at = Some(Instant::now());
        }
        sleep(Duration::from_millis(run_ms)).await;
        keys.borrow_mut().entry(key).or_default().running = false;
        if key % 5 == 4 && queue.failures(&key) < 3 {
            work.retry();
        } else {
            work.finish();
        }
    }
}

async fn run_steps(steps: Vec<Step>, workers: usize, run_ms: u64, is_grouped: bool) {
    let builder = builder(7);
    let queue = if is_grouped { builder.fairness_key(|key| key % 3).build() } else { builder.build() };
    let keys = Keys::default();
    let begin = || tokio::task::spawn_local(work(queue.clone(), keys.clone(), run_ms));
    let mut working: Vec<_> = (0..workers).map(|_| begin()).collect();
    // Worker that `Replace` aborts. The worker is aborted only while it waits: once it has a key, it ends without
    // waiting again.
    let mut waiting = tokio::task::spawn_local(std::future::pending::<()>());
    for step in steps {
        match step {
            Step::Add(key, priority) => {
                queue.add_with_priority(key, Priority(priority));
                keys.borrow_mut().entry(key).or_default().added.replace(Instant::now());
            }
            Step::AddAfter(key, delay) => {
                // If the key already has an earlier delay, that delay applies. It also expires after this step, so a
                // run must follow.
                queue.add_after(key, Duration::from_millis(delay));
                keys.borrow_mut().entry(key).or_default().added.replace(Instant::now());
            }
            Step::Wait(time) => sleep(Duration::from_millis(time)).await,
            Step::Replace => {
                waiting.abort();
                let queue = queue.clone();
                waiting = tokio::task::spawn_local(async move {
                    // Stops waiting after 1 ms, often at the instant of its wake-up.
                    if let Ok(Some(work)) = timeout(Duration::from_millis(1), queue.next()).await {
                        queue.add(*work);
                    }
                });
            }
        }
    }
    sleep(Duration::from_secs(20)).await;
    assert!(queue.is_empty(), "{queue:?}");
    for (key, KeyState { added, started_at, running }) in &*keys.borrow() {
        assert!(!running && started_at >= added, "{key} was added at {added:?} and last processed at {started_at:?}");
    }
    queue.drain(Duration::from_secs(1)).await.expect("nothing is left");
    for worker in working.drain(..) {
        worker.await.expect("no worker panics");
    }
    assert_eq!(queue.tracked(), 0, "{queue:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn each_addition_is_processed_after_it(
        steps in prop::collection::vec(step(), 1..120),
        workers in 1..5usize,
        run_ms in 0..8u64,
        is_grouped in any::<bool>(),
    ) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        LocalSet::new().block_on(&runtime, run_steps(steps, workers, run_ms, is_grouped));
    }
}
