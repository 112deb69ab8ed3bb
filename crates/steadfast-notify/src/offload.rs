//! Evaluation of rules outside of the threads that serve sockets and timers.
//!
//! The cost budget limits one evaluation to some tens of milliseconds. A thread that serves health probes must not
//! block that long, so evaluations run on the runtime's blocking threads. A small number of concurrent evaluations
//! bounds the memory. The queue is fair: a rule waits for at most one evaluation of each other rule.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::sync::Semaphore;

/// Maximum number of concurrent evaluations.
const MAX_CONCURRENT: usize = 2;

/// Semaphores by runtime. Tests have several runtimes, and a runtime with virtual time must not wait for another
/// runtime.
static PERMITS: LazyLock<Mutex<HashMap<Id, Arc<Semaphore>>>> = LazyLock::new(Mutex::default);

fn permits() -> Arc<Semaphore> {
    let mut permits = PERMITS.lock();
    permits.entry(Handle::current().id()).or_insert_with(|| Arc::new(Semaphore::new(MAX_CONCURRENT))).clone()
}

/// Runs `work` on a blocking thread. The error is the reason for a missing result.
pub(crate) async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    // The semaphore is never closed. If it were closed, the evaluation would merely start without a permit.
    let permit = permits().acquire_owned().await.ok();
    let task = tokio::task::spawn_blocking(move || {
        // The permit is released at the end of the evaluation, even if the caller was cancelled.
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
    async fn evaluation_does_not_block_the_runtime() {
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
