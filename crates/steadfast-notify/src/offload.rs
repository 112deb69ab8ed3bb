//! Evaluation of rules outside of the threads that serve sockets and timers.
//!
//! The cost budget bounds one evaluation to some tens of milliseconds. That is too long for a thread that answers probes,
//! so that evaluations run on the runtime's threads for blocking work. A small number of evaluations at a time bounds their
//! memory; the queue is fair, so that a rule waits for at most one evaluation of each other rule.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tokio::runtime::{Handle, Id};
use tokio::sync::Semaphore;

/// Maximum number of concurrent evaluations.
const MAX_CONCURRENT: usize = 2;

/// By runtime, of which a program has one: a runtime with virtual time must never wait for another one.
static PERMITS: LazyLock<Mutex<HashMap<Id, Arc<Semaphore>>>> = LazyLock::new(Mutex::default);

fn permits() -> Arc<Semaphore> {
    let mut permits = PERMITS.lock().unwrap_or_else(PoisonError::into_inner);
    permits.entry(Handle::current().id()).or_insert_with(|| Arc::new(Semaphore::new(MAX_CONCURRENT))).clone()
}

/// Runs `work` on a thread for blocking work. The error states why `work` has no result.
pub(crate) async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    // The semaphore is never closed; without a permit the evaluation would only run earlier.
    let permit = permits().acquire_owned().await.ok();
    let task = tokio::task::spawn_blocking(move || {
        // The permit returns when the evaluation has ended, even if the caller was cancelled.
        let _permit = permit;
        work()
    });
    task.await.map_err(|error| {
        if error.is_panic() { "the evaluation panicked" } else { "the program stops before the evaluation" }.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[tokio::test]
    async fn evaluation_never_blocks_the_runtime_thread() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let evaluation = tokio::spawn(offload(move || receiver.recv_timeout(Duration::from_secs(60)).is_ok()));
        let start = Instant::now();
        // The only thread of this runtime still runs timers.
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(start.elapsed() < Duration::from_secs(30));
        sender.send(()).expect("the evaluation waits");
        assert_eq!(evaluation.await.expect("a task"), Ok(true));
    }

    #[tokio::test]
    async fn panic_of_an_evaluation_is_an_error() {
        let result = offload(|| -> u8 { panic!("on purpose") }).await;
        assert_eq!(result, Err("the evaluation panicked".to_owned()));
    }
}
