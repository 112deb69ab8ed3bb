//! Scenarios of work that helpers share.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;
use steadfast_executor::{
    CHUNK_BYTES, HelperPool, HelperThreads, InjectedExecutorFault, SharedWork, WorkLimits, Worker,
};

use crate::check;

const ITEMS: usize = 5;

/// Worker that counts how often each item is processed.
struct CountingWorker(Arc<[AtomicUsize; ITEMS]>);

impl Worker<usize, usize> for CountingWorker {
    fn another(&self) -> Self {
        Self(self.0.clone())
    }

    fn process(&mut self, item: usize) -> usize {
        thread::yield_now();
        self.0[item].fetch_add(1, Ordering::SeqCst);
        item * 10
    }

    fn bytes(_: &usize) -> usize {
        // A helper takes one item at a time.
        CHUNK_BYTES
    }
}

/// Submits items, and discards the odd ones after `discard_after` items.
fn submit_and_discard(fault: Option<InjectedExecutorFault>, discard_after: usize) {
    let pool = HelperPool::new(2).with_fault(fault);
    let processed: Arc<[AtomicUsize; ITEMS]> = Arc::default();
    let pool = Arc::new(pool);
    let helpers = pool.clone();
    let limits = WorkLimits { helpers: HelperThreads { threads: 2, min_bytes: 1 }, max_bytes: 3 * CHUNK_BYTES };
    let mut work =
        SharedWork::new(CountingWorker(processed.clone()), limits, move |work| helpers.run(work)).with_fault(fault);
    let mut results = Vec::new();
    for item in 0..ITEMS {
        work.submit(item, item, 0);
        assert!(work.held_bytes() <= limits.max_bytes, "{} bytes are held", work.held_bytes());
        results.extend(std::iter::from_fn(|| work.next_result()));
        if item == discard_after {
            work.retain(|tag| tag % 2 == 0);
        }
    }
    work.finish();
    results.extend(std::iter::from_fn(|| work.next_result()));
    assert!(results.iter().all(|(tag, result)| tag * 10 == *result), "results of other items: {results:?}");
    assert!(results.is_sorted_by(|one, next| one.0 < next.0), "not in order: {results:?}");
    let is_returned = |item: usize| results.iter().any(|(tag, _)| *tag == item);
    for (item, processed) in processed.iter().enumerate() {
        let times = processed.load(Ordering::SeqCst);
        let is_wanted = item % 2 == 0 || item > discard_after;
        assert!(times <= 1 && (times == 1 || !is_wanted), "item {item} was processed {times} times");
        assert!(is_returned(item) || !is_wanted, "item {item} has no result");
    }
}

/// Submits items, and reads their results.
pub(crate) fn results(fault: Option<InjectedExecutorFault>) {
    submit_and_discard(fault, ITEMS);
}

/// Discards items that wait, that a helper processes, and that have a result.
fn discarded(fault: Option<InjectedExecutorFault>) {
    submit_and_discard(fault, 3);
}

/// Drops the work while a helper processes an item.
fn dropped(fault: Option<InjectedExecutorFault>) {
    let pool = Arc::new(HelperPool::new(1).with_fault(fault));
    let processed: Arc<[AtomicUsize; ITEMS]> = Arc::default();
    let limits = WorkLimits { helpers: HelperThreads { threads: 1, min_bytes: 1 }, max_bytes: ITEMS * CHUNK_BYTES };
    let helpers = pool.clone();
    let mut work =
        SharedWork::new(CountingWorker(processed.clone()), limits, move |work| helpers.run(work)).with_fault(fault);
    for item in 0..ITEMS {
        work.submit(item, item, 0);
    }
    drop(work);
    let after = processed.iter().map(|times| times.load(Ordering::SeqCst)).sum::<usize>();
    for _ in 0..10 {
        thread::yield_now();
    }
    let later = processed.iter().map(|times| times.load(Ordering::SeqCst)).sum::<usize>();
    assert!(later <= after + 1, "the helper finishes its item and starts no other");
}

#[test]
fn results_arrive_once_in_order() {
    check(results);
}

#[test]
fn discarded_items_return_no_result() {
    check(discarded);
}

#[test]
fn dropped_work_starts_no_item() {
    check(dropped);
}
