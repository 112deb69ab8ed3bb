//! Thread that advances the clock of the model at arbitrary times.

use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread::{self, JoinHandle};
use steadfast_executor::advance_clock;

/// Clock that advances until it is stopped.
pub(crate) struct RunningClock {
    is_stopped: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl RunningClock {
    /// Advances the clock by `tick`, again and again.
    pub(crate) fn start(tick: Duration) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let thread = {
            let is_stopped = is_stopped.clone();
            thread::spawn(move || {
                while !is_stopped.load(Ordering::SeqCst) {
                    advance_clock(tick);
                    thread::yield_now();
                }
            })
        };
        Self { is_stopped, thread }
    }

    pub(crate) fn stop(self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.thread.join().expect("the clock does not panic");
    }
}
