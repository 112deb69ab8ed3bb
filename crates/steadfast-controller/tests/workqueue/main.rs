//! Tests of the workqueue in virtual time.

mod drain;
mod metrics;
mod model;
mod semantics;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use steadfast::environment::SharedEnvironment;
use steadfast::environment::local::LocalEnvironment;
use steadfast_controller::{RateLimit, RetrySettings, Work, Workqueue, WorkqueueBuilder};

/// Returns an environment with tokio's paused clock and randomness from `seed`.
fn environment(seed: u64) -> SharedEnvironment {
    Arc::new(LocalEnvironment::over_tcp(seed))
}

fn builder(seed: u64) -> WorkqueueBuilder<u32> {
    let retries = RetrySettings { initial_delay: Duration::from_millis(100), max_delay: Duration::from_secs(10) };
    Workqueue::builder(environment(seed)).retries(retries).limit(None::<RateLimit>)
}

fn queue() -> Workqueue<u32> {
    builder(0).build()
}

/// Returns the next key if one is ready.
fn take_ready(queue: &Workqueue<u32>) -> Option<Work<u32>> {
    queue.next().now_or_never().flatten()
}

/// Processes all ready keys and returns them.
fn process_ready(queue: &Workqueue<u32>) -> Vec<u32> {
    std::iter::from_fn(|| take_ready(queue).map(|work| *work)).collect()
}
